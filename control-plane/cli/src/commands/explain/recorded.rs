//! `asp explain --trace ID`: a call of the audit log as a question.

use anyhow::anyhow;
use asp_command::failure::Failure;
use asp_control::admin::explain::Question;
use asp_platform::time::rfc3339;
use serde_json::Value;

use crate::commands::answer::{number, text};
use crate::commands::client::{AdminClient, with_query};

/// Number of events in a page.
const PAGE: u32 = 1_000;
/// Maximum number of pages that are searched, newest first.
const MAX_PAGES: usize = 20;

/// Finds the newest event with this trace id, call id or token id, of one org or of all.
pub(super) async fn find(api: &AdminClient, org: Option<&str>, id: &str) -> Result<Value, Failure> {
    let mut before = None;
    for _ in 0..MAX_PAGES {
        let mut query = vec![("limit", PAGE.to_string())];
        query.extend(org.map(|org| ("org", org.to_owned())));
        query.extend(before.map(|before: i64| ("before", before.to_string())));
        let page = api.get(&with_query("/api/audit/calls", &query)?).await?.accepted()?;
        let events = page.as_array().map(Vec::as_slice).unwrap_or_default();
        if let Some(found) = events.iter().find(|record| is_about(record, id)) {
            return Ok(found.clone());
        }
        before = events.last().and_then(|record| record.get("seq")).and_then(Value::as_i64);
        if before.is_none() {
            break;
        }
    }
    Err(Failure::Other(anyhow!(
        "no call with the trace, the id or the token {id} is among the last {} events of the audit log; name \
         the caller instead: --org, --user, --server, --primitive",
        u64::from(PAGE) * MAX_PAGES as u64
    )))
}

fn is_about(record: &Value, id: &str) -> bool {
    let Some(event) = record.get("event") else { return false };
    // A trace may be given as a whole `traceparent` (W3C Trace Context).
    let is_trace = |part: &str| part == text(event, "trace") && !part.is_empty();
    [text(event, "call"), text(event, "wcit")].contains(&id) || id.split('-').any(is_trace)
}

/// Fills in what the question leaves out.
pub(super) fn complete(question: &mut Question, record: &Value) {
    let event = record.get("event").unwrap_or(&Value::Null);
    let primitive = text(event, "primitive");
    let id = primitive.rsplit_once('@').map_or(primitive, |(id, _)| id);
    for (part, recorded) in [
        (&mut question.org, text(record, "org")),
        (&mut question.server, text(event, "server")),
        (&mut question.primitive, id),
        (&mut question.protocol, text(event, "protocol")),
        (&mut question.wcit, text(event, "wcit")),
    ] {
        if part.is_empty() {
            recorded.clone_into(part);
        }
    }
    if question.user.is_empty() && question.machine.is_empty() {
        text(event, "user").clone_into(&mut question.user);
    }
}

/// Describes a recorded call.
pub(super) fn describe(record: &Value) -> String {
    let event = record.get("event").unwrap_or(&Value::Null);
    let of = |member: &str| text(event, member);
    let outcome = match (of("outcome"), of("reason")) {
        ("", _) => String::new(),
        (outcome, reason) => format!(", {outcome} ({reason})"),
    };
    format!(
        "call {} at {}: {} of {} called {} of {} over {}{outcome}",
        of("call"),
        rfc3339(number(record, "at")),
        of("user"),
        text(record, "org"),
        of("primitive"),
        of("server"),
        of("protocol")
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn record() -> Value {
        json!({ "seq": 9, "at": 0, "org": "acme", "event": { "event": "call.finish", "call": "c-1", "user": "alice",
            "wcit": "t-1", "server": "demo", "primitive": "echo@1.0.0", "protocol": "rest",
            "trace": "4bf92f3577b34da6a3ce929d0e0e4736", "outcome": "rejected",
            "reason": "rate_limited" } })
    }

    #[test]
    fn a_call_is_found_by_its_trace_its_id_and_its_token() {
        let traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        for id in [traceparent, "4bf92f3577b34da6a3ce929d0e0e4736", "c-1", "t-1"] {
            assert!(is_about(&record(), id), "{id}");
        }
        for id in ["", "4bf9", "alice"] {
            assert!(!is_about(&record(), id), "{id}");
        }
    }

    #[test]
    fn a_recorded_call_completes_the_question_and_replaces_nothing_in_it() {
        let given = json!({ "org": "", "user": "", "server": "", "primitive": "", "protocol": "mcp", "groups": ["ops"] });
        let mut question: Question = serde_json::from_value(given).unwrap();
        complete(&mut question, &record());
        let Question { org, user, server, primitive, protocol, wcit, groups, .. } = question;
        assert_eq!(
            [org, user, server, primitive, protocol, wcit],
            ["acme", "alice", "demo", "echo", "mcp", "t-1"]
        );
        assert_eq!(groups, ["ops"]);
        let words = "call c-1 at 1970-01-01T00:00:00.000Z: alice of acme called echo@1.0.0 of demo over rest, rejected \
                     (rate_limited)";
        assert_eq!(describe(&record()), words);
    }
}
