//! `asp audit`: the events of calls, newest first.

use asp_command::environment::ProcessEnvironment;
use asp_command::failure::Failure;
use asp_command::print;
use serde_json::Value;

use super::client::{AdminClient, block_on, with_query};
use crate::args::AuditArgs;

/// Gets one page of `/api/audit/calls`.
pub fn run(args: &AuditArgs) -> Result<(), Failure> {
    let api = AdminClient::new(&ProcessEnvironment)?;
    let page = block_on(async { api.get(&path(args)?).await?.accepted() })?;
    for record in page.as_array().into_iter().flatten() {
        let shown = if args.json { record.to_string() } else { line(record) };
        print::line(&shown);
    }
    Ok(())
}

fn path(args: &AuditArgs) -> Result<String, Failure> {
    let mut asked = vec![("limit", args.limit.to_string())];
    asked.extend(args.before.map(|before| ("before", before.to_string())));
    asked.extend(args.org.clone().map(|org| ("org", org)));
    with_query("/api/audit/calls", &asked)
}

/// Formats one event: its number, time, caller, primitive and outcome.
fn line(record: &Value) -> String {
    let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).unwrap_or("-").to_owned();
    let number = |value: &Value, key: &str| value.get(key).and_then(Value::as_i64).unwrap_or_default();
    let nothing = Value::Null;
    let event = record.get("event").unwrap_or(&nothing);
    let seconds = number(record, "at").div_euclid(1000);
    let head = format!(
        "{} {seconds} {}/{} {} {} {} {}",
        number(record, "seq"),
        text(record, "org"),
        text(event, "user"),
        text(event, "event"),
        text(event, "server"),
        text(event, "primitive"),
        text(event, "call")
    );
    match event.get("outcome").and_then(Value::as_str) {
        Some(outcome) => {
            let took = number(event, "latencyUs") / 1000;
            let mut said = format!("{head} {outcome} {} {took} ms", text(event, "reason"));
            if event.get("rule").is_some() {
                said.push_str(&format!(" by {}", text(event, "rule")));
            }
            if let Some(observed) = event.get("observed") {
                let (would, rule) = (text(observed, "would"), text(observed, "rule"));
                said.push_str(&format!(", observed: would {would} by {rule}"));
            }
            said
        }
        None => head,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_finish_tells_its_outcome_and_a_start_who_calls_what() {
        let event = json!({ "event": "call.start", "user": "alice", "server": "demo", "primitive": "echo@1.0.0", "call": "c-1" });
        let record = json!({ "seq": -7, "at": 1_700_000_000_123_i64, "org": "acme", "event": event });
        assert_eq!(line(&record), "-7 1700000000 acme/alice call.start demo echo@1.0.0 c-1");
        let event =
            json!({ "event": "call.finish", "outcome": "failed", "reason": "deadline", "latencyUs": 2500 });
        let shown = line(&json!({ "seq": 8, "at": 0, "org": "acme", "event": event }));
        assert!(
            shown.starts_with("8 0 acme/- call.finish") && shown.ends_with("failed deadline 2 ms"),
            "{shown}"
        );
        let observed = json!({ "would": "deny", "rule": "user:* echo mcp" });
        let event = json!({ "event": "call.finish", "outcome": "completed", "rule": "user:* e* *", "observed": observed });
        let shown = line(&json!({ "seq": 9, "at": 0, "org": "acme", "event": event }));
        assert!(
            shown.ends_with("completed - 0 ms by user:* e* *, observed: would deny by user:* echo mcp"),
            "{shown}"
        );
    }
}
