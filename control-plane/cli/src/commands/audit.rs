//! `asp audit`: the events of calls, newest first.

use asp_command::environment::ProcessEnvironment;
use asp_command::failure::Failure;
use asp_command::print;
use serde_json::Value;

use super::client::{AdminClient, block_on, with_query};
use crate::args::AuditArgs;

/// Maximum number of events in a response of the control plane.
const PAGE: u32 = 1000;
/// Maximum number of pages that one command searches for calls of a user, server or trace.
const SEARCHED_PAGES: u32 = 100;

/// Shows events of `/api/audit/calls`: one page or, if only some are wanted, those of many pages.
pub fn run(args: &AuditArgs) -> Result<(), Failure> {
    let api = AdminClient::new(&ProcessEnvironment)?;
    let is_search = args.user.is_some() || args.server.is_some() || args.trace.is_some();
    let (size, pages) = if is_search { (PAGE, SEARCHED_PAGES) } else { (args.limit, 1) };
    let mut left = args.limit as usize;
    let mut before = args.before;
    block_on(async {
        for _ in 0..pages {
            let page = api.get(&path(args, size, before)?).await?.accepted()?;
            let records = page.as_array().map(Vec::as_slice).unwrap_or_default();
            for record in records.iter().filter(|record| is_wanted(args, record)).take(left) {
                left -= 1;
                print::line(&if args.json { record.to_string() } else { line(record) });
            }
            before = records.last().and_then(|record| record.get("seq")).and_then(Value::as_i64);
            if left == 0 || records.len() < size as usize {
                return Ok(());
            }
        }
        if let Some(before) = before.filter(|_| is_search) {
            let searched = PAGE * SEARCHED_PAGES;
            print::note(&format!("{searched} events were searched; --before {before} searches earlier ones"));
        }
        Ok(())
    })
}

/// Whether an event is of the user, server and trace that were asked for.
fn is_wanted(args: &AuditArgs, record: &Value) -> bool {
    let wanted = [("user", &args.user), ("server", &args.server), ("trace", &args.trace)];
    wanted.into_iter().all(|(member, wanted)| {
        let found = record.get("event").and_then(|event| event.get(member)).and_then(Value::as_str);
        wanted.as_deref().is_none_or(|wanted| found == Some(wanted))
    })
}

fn path(args: &AuditArgs, size: u32, before: Option<i64>) -> Result<String, Failure> {
    let mut asked = vec![("limit", size.to_string())];
    asked.extend(before.map(|before| ("before", before.to_string())));
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
    fn events_are_chosen_by_all_that_was_asked_for() {
        let args = |user: Option<&str>, trace: Option<&str>| AuditArgs {
            org: None,
            user: user.map(str::to_owned),
            server: Some("demo".to_owned()),
            trace: trace.map(str::to_owned),
            limit: 100,
            before: None,
            json: false,
        };
        let record = json!({ "event": { "user": "alice", "server": "demo", "trace": "4bf9" } });
        assert!(is_wanted(&args(None, None), &record));
        assert!(is_wanted(&args(Some("alice"), Some("4bf9")), &record));
        assert!(!is_wanted(&args(Some("bob"), Some("4bf9")), &record));
        assert!(!is_wanted(&args(Some("alice"), None), &json!({ "event": { "user": "alice" } })));
    }

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
