//! `asp servers`: what servers are stored, what they were before, and the way back.

use serde_json::{Value, json};

use super::client::{AdminClient, api_path, block_on};
use crate::args::servers::ServersCommand;
use crate::failure::Failure;
use crate::print;
use crate::settings::source::ProcessEnvironment;

pub fn run(command: &ServersCommand) -> Result<(), Failure> {
    let api = AdminClient::new(&ProcessEnvironment)?;
    let of = |server: &str, part: &str| api_path(&["api", "registry", "servers", server, part]);
    block_on(async {
        match command {
            ServersCommand::List(args) => {
                let servers = api.get("/api/registry/servers").await?.accepted()?;
                rows(&servers, args.json, |server| {
                    format!(
                        "{:<24} revision {:<8} {}",
                        text(server, "server"),
                        number(server, "revision"),
                        hash(server)
                    )
                });
            }
            ServersCommand::Versions(args) => {
                let versions = api.get(&of(&args.server, "versions")).await?.accepted()?;
                rows(&versions, args.json, |version| {
                    let (revision, seconds) =
                        (number(version, "revision"), number(version, "storedAt") / 1000);
                    format!("{revision:<8} {seconds} {} {}", hash(version), text(version, "actor"))
                });
            }
            ServersCommand::Rollback(args) => {
                let body = json!({ "revision": args.to });
                let answer = api.post(&of(&args.server, "rollback"), &body).await?.accepted()?;
                if args.json {
                    print::json(&answer);
                } else if answer.get("changed") == Some(&Value::Bool(true)) {
                    let revision = number(&answer, "revision");
                    print::line(&format!(
                        "{} is what it was at {}; revision {revision}",
                        args.server, args.to
                    ));
                } else {
                    print::line(&format!("{} is that already", args.server));
                }
            }
        }
        Ok(())
    })
}

fn rows(list: &Value, as_json: bool, row: impl Fn(&Value) -> String) {
    if as_json {
        print::json(list);
        return;
    }
    for one in list.as_array().into_iter().flatten() {
        print::line(&row(one));
    }
}

fn text<'a>(of: &'a Value, member: &str) -> &'a str {
    of.get(member).and_then(Value::as_str).unwrap_or("-")
}

fn number(of: &Value, member: &str) -> u64 {
    of.get(member).and_then(Value::as_u64).unwrap_or_default()
}

/// The beginning of the content's hash: enough to tell versions apart.
fn hash(of: &Value) -> String {
    text(of, "contentHash").chars().take(12).collect()
}
