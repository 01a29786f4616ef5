//! `asp push`: the push notifications that were not received.

use asp_command::environment::ProcessEnvironment;
use asp_command::failure::Failure;
use serde_json::Value;

use super::answer::{self, number, text};
use super::client::{AdminClient, api_path, block_on, with_query};
use crate::args::push::{PushCommand, PushListArgs};

/// Runs one of the commands.
pub fn run(command: &PushCommand) -> Result<(), Failure> {
    let api = AdminClient::new(&ProcessEnvironment)?;
    block_on(async {
        match command {
            PushCommand::List(args) => {
                let page = api.get(&list_path(args)?).await?.accepted()?;
                answer::rows(&page, args.output.json, line);
            }
            PushCommand::Show(args) => {
                let letter = api.get(&path(args.id, None)).await?.accepted()?;
                answer::show(&letter, args.output.json, &line(&letter));
            }
            PushCommand::Replay(args) => {
                let done = api.post(&path(args.id, Some("replay")), &Value::Null).await?.accepted()?;
                answer::show(&done, args.output.json, &format!("{} is sent again", args.id));
            }
            PushCommand::Drop(args) => {
                let done = api.delete(&path(args.id, None)).await?.accepted()?;
                answer::show(&done, args.output.json, &format!("{} was deleted", args.id));
            }
        }
        Ok(())
    })
}

fn path(id: i64, action: Option<&str>) -> String {
    let id = id.to_string();
    let mut segments = vec!["api", "push", "dead-letters", id.as_str()];
    segments.extend(action);
    api_path(&segments)
}

fn list_path(args: &PushListArgs) -> Result<String, Failure> {
    let mut asked = vec![("limit", args.limit.to_string())];
    asked.extend(args.before.map(|before| ("before", before.to_string())));
    asked.extend(args.org.clone().map(|org| ("org", org)));
    with_query("/api/push/dead-letters", &asked)
}

/// Formats one notification: its number, time, org, task, state and receiver, and why it was not received.
fn line(letter: &Value) -> String {
    let [at, org, task, state, receiver, fault] =
        ["at", "org", "task", "state", "receiver", "fault"].map(|name| text(letter, name));
    let [id, attempts] = ["id", "attempts"].map(|name| number(letter, name));
    format!("{id} {at} {org} task {task} {state} to {receiver}: {fault} after {attempts} attempts")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::args::JsonArgs;

    #[test]
    fn a_line_has_the_number_for_the_other_commands_and_the_reason() {
        let letter = json!({"id": 7, "at": "2026-01-02T03:04:05.000Z", "org": "acme", "task": "t-1", "config": "c",
            "receiver": "https://example.com", "state": "completed", "attempts": 3, "fault": "HTTP 503"});
        assert_eq!(
            line(&letter),
            "7 2026-01-02T03:04:05.000Z acme task t-1 completed to https://example.com: HTTP 503 after 3 attempts"
        );
    }

    #[test]
    fn paths_name_the_notification_and_the_query_is_escaped() {
        assert_eq!(path(7, None), "/api/push/dead-letters/7");
        assert_eq!(path(7, Some("replay")), "/api/push/dead-letters/7/replay");
        let args =
            PushListArgs { org: Some("a&b".into()), limit: 5, before: Some(9), output: JsonArgs::default() };
        assert_eq!(list_path(&args).unwrap(), "/api/push/dead-letters?limit=5&before=9&org=a%26b");
    }
}
