//! `asp approvals`: the calls that wait for the approval of another person.

use asp_command::environment::ProcessEnvironment;
use asp_command::failure::Failure;
use serde_json::{Value, json};

use super::answer::{self, number, text};
use super::client::{AdminClient, api_path, block_on, with_query};
use crate::args::approvals::{ApprovalsCommand, ApprovalsDecideArgs, ApprovalsListArgs};

/// Runs one of the commands.
pub fn run(command: &ApprovalsCommand) -> Result<(), Failure> {
    let api = AdminClient::new(&ProcessEnvironment)?;
    block_on(async {
        match command {
            ApprovalsCommand::List(args) => {
                let page = api.get(&list_path(args)?).await?.accepted()?;
                answer::rows(&page, args.output.json, line);
            }
            ApprovalsCommand::Show(args) => {
                let found = api.get(&api_path(&["api", "approvals", &args.id])).await?.accepted()?;
                answer::show(&found, args.output.json, &details(&found));
            }
            ApprovalsCommand::Approve(args) => decide(&api, args, "approve").await?,
            ApprovalsCommand::Deny(args) => decide(&api, args, "deny").await?,
        }
        Ok(())
    })
}

async fn decide(api: &AdminClient, args: &ApprovalsDecideArgs, decision: &str) -> Result<(), Failure> {
    let path = api_path(&["api", "approvals", &args.id, "decision"]);
    let body = json!({ "decision": decision, "reason": args.reason.as_deref().unwrap_or_default() });
    let decided = api.post(&path, &body).await?.accepted()?;
    answer::show(&decided, args.output.json, &format!("{}: {}", args.id, text(&decided, "state")));
    Ok(())
}

fn list_path(args: &ApprovalsListArgs) -> Result<String, Failure> {
    let mut asked = vec![("limit", args.limit.to_string())];
    if !args.all {
        asked.push(("state", args.state.clone()));
    }
    asked.extend(args.before.map(|before| ("before", before.to_string())));
    asked.extend(args.org.clone().map(|org| ("org", org)));
    with_query("/api/approvals", &asked)
}

/// Formats one request: its number, id, time and state, who called what, and who decides.
fn line(request: &Value) -> String {
    let [id, at, org, state, user, primitive, server, approvers] =
        ["id", "createdAt", "org", "state", "user", "primitive", "server", "approvers"]
            .map(|name| text(request, name));
    let number = number(request, "number");
    format!("{number} {id} {at} {org} {state}: {user} calls {primitive} of {server}, {approvers} decides")
}

/// Formats one request with its arguments and, if there is one, its decision.
fn details(request: &Value) -> String {
    let [rule, arguments, until, by, reason] =
        ["rule", "arguments", "expiresAt", "decidedBy", "reason"].map(|name| text(request, name));
    let mut lines = vec![line(request), format!("until {until}"), format!("arguments {arguments}")];
    if !rule.is_empty() {
        lines.push(format!("required by {rule}"));
    }
    if !by.is_empty() {
        lines.push(format!("decided by {by} {reason}").trim_end().to_owned());
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::JsonArgs;

    fn request() -> Value {
        json!({"number": 7, "id": "0192", "createdAt": "2026-01-02T03:04:05.000Z", "org": "acme", "state": "denied",
            "user": "alice", "primitive": "shop.pay@1.0.0", "server": "shop", "approvers": "finance",
            "arguments": "{\"amount\":5}", "expiresAt": "2026-01-02T04:04:05.000Z", "rule": "user:* shop.pay *",
            "decidedBy": "bob@acme", "reason": "too much"})
    }

    #[test]
    fn a_request_is_shown_with_who_what_and_the_decision() {
        let first = "7 0192 2026-01-02T03:04:05.000Z acme denied: alice calls shop.pay@1.0.0 of shop, finance decides";
        assert_eq!(line(&request()), first);
        let shown = details(&request());
        let rest = "until 2026-01-02T04:04:05.000Z\narguments {\"amount\":5}\nrequired by user:* shop.pay *\n\
            decided by bob@acme too much";
        assert_eq!(shown, format!("{first}\n{rest}"));
    }

    #[test]
    fn a_list_has_open_requests_unless_others_are_named() {
        let args = |all, state: &str| ApprovalsListArgs {
            org: Some("a&b".into()),
            all,
            state: state.into(),
            limit: 5,
            before: None,
            output: JsonArgs::default(),
        };
        assert_eq!(
            list_path(&args(false, "pending")).unwrap(),
            "/api/approvals?limit=5&state=pending&org=a%26b"
        );
        assert_eq!(list_path(&args(true, "pending")).unwrap(), "/api/approvals?limit=5&org=a%26b");
    }
}
