//! `asp audit`: the events of calls, newest first.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use asp_command::environment::ProcessEnvironment;
use asp_command::failure::Failure;
use asp_command::print;
use asp_platform::clock;
use asp_platform::time::{from_rfc3339, rfc3339};
use serde_json::{Value, json};

use super::answer::text;
use super::client::{AdminClient, block_on, with_query};
use super::token::parse_ttl;
use crate::args::AuditArgs;

/// Maximum number of events in a response of the control plane.
const PAGE: u32 = 1000;
/// Event that ends a call.
const FINISH: &str = "call.finish";
/// Maximum number of pages that one command searches for the wanted events.
const SEARCHED_PAGES: u32 = 100;

/// Shows events of `/api/audit/calls`, or counts calls in them.
pub fn run(args: &AuditArgs) -> Result<(), Failure> {
    let api = AdminClient::new(&ProcessEnvironment)?;
    let Some(by) = &args.by else {
        let mut show =
            |record: &Value| print::line(&if args.json { record.to_string() } else { line(record) });
        return block_on(search(args, &api, args.limit as usize, &mut show));
    };
    let mut counts = BTreeMap::new();
    block_on(search(args, &api, usize::MAX, &mut |record| count(&mut counts, by, record)))?;
    let mut counts: Vec<(String, u64)> = counts.into_iter().collect();
    counts.sort_by_key(|(_, calls)| Reverse(*calls));
    if args.json {
        let row = |(name, calls): &(String, u64)| json!({ "name": name, "calls": calls });
        print::json(&counts.iter().map(row).collect::<Vec<_>>());
    } else {
        counts.iter().for_each(|(name, calls)| print::line(&format!("{calls:>8} {name}")));
    }
    Ok(())
}

/// Passes on wanted events, newest first, at most `left`: those of one page or, if only some are wanted, of many pages.
async fn search(
    args: &AuditArgs,
    api: &AdminClient,
    mut left: usize,
    show: &mut dyn FnMut(&Value),
) -> Result<(), Failure> {
    let since = args.since.as_deref().map(|text| parse_since(text, clock::now_ms())).transpose()?;
    let choices =
        [&args.user, &args.server, &args.primitive, &args.outcome, &args.trace, &args.since, &args.by];
    let is_search = choices.into_iter().any(Option::is_some);
    let (size, pages) = if is_search { (PAGE, SEARCHED_PAGES) } else { (args.limit, 1) };
    let mut before = args.before;
    for _ in 0..pages {
        let page = api.get(&path(args, size, before)?).await?.accepted()?;
        let records = page.as_array().map(Vec::as_slice).unwrap_or_default();
        let is_later = |record: &&Value| since.is_none_or(|since| at(record) >= since);
        let wanted = records.iter().filter(is_later).filter(|record| is_wanted(args, record));
        for record in wanted.take(left) {
            left -= 1;
            show(record);
        }
        before = records.last().and_then(|record| record.get("seq")).and_then(Value::as_i64);
        // Gateways store their events late and in any order, so that one early event does not end the search.
        if left == 0 || records.len() < size as usize || !records.iter().any(|record| is_later(&record)) {
            return Ok(());
        }
    }
    if let Some(before) = before.filter(|_| is_search) {
        let searched = PAGE * SEARCHED_PAGES;
        print::note(&format!("{searched} events were searched; --before {before} searches earlier ones"));
    }
    Ok(())
}

/// Counts an event that ends a call; each call has one.
fn count(counts: &mut BTreeMap<String, u64>, by: &str, record: &Value) {
    let Some(event) = record.get("event").filter(|event| text(event, "event") == FINISH) else { return };
    let of = if by == "org" { record } else { event };
    *counts.entry(text(of, by).to_owned()).or_default() += 1;
}

/// Parses a time, or an age such as `2h` before `now_ms`; returns Unix milliseconds.
fn parse_since(text: &str, now_ms: u64) -> Result<u64, Failure> {
    if let Some(age) = parse_ttl(text) {
        return Ok(now_ms.saturating_sub(u64::try_from(age.as_millis()).unwrap_or(u64::MAX)));
    }
    let time = from_rfc3339(text).map(|time| u64::try_from(time).unwrap_or_default());
    time.ok_or_else(|| {
        Failure::bad("--since", format!("`{text}` is not a time: write 15m, 2h, 7d or 2026-01-31T08:00:00Z"))
    })
}

/// Returns the time of an event in Unix milliseconds.
fn at(record: &Value) -> u64 {
    record.get("at").and_then(Value::as_u64).unwrap_or_default()
}

/// Whether an event has everything that was asked for.
fn is_wanted(args: &AuditArgs, record: &Value) -> bool {
    let found =
        |member: &str| record.get("event").and_then(|event| event.get(member)).and_then(Value::as_str);
    let is = |member: &str, wanted: &str| found(member) == Some(wanted);
    let has = |wanted: &Option<String>, holds: &dyn Fn(&str) -> bool| wanted.as_deref().is_none_or(holds);
    let is_of = |wanted: &str| {
        let id = found("primitive").and_then(|primitive| primitive.split('@').next());
        is("primitive", wanted) || id == Some(wanted)
    };
    has(&args.user, &|user| is("user", user))
        && has(&args.server, &|server| is("server", server))
        && has(&args.trace, &|trace| is("trace", trace))
        && has(&args.primitive, &is_of)
        && has(&args.outcome, &|outcome| is("outcome", outcome) || is("reason", outcome))
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
    let head = format!(
        "{} {} {}/{} {} {} {} {}",
        number(record, "seq"),
        rfc3339(at(record)),
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
    use super::*;

    #[test]
    fn events_are_chosen_by_all_that_was_asked_for() {
        let args = |user: Option<&str>, trace: Option<&str>| AuditArgs {
            server: Some("demo".to_owned()),
            ..all(user, trace)
        };
        let record = json!({ "event": { "user": "alice", "server": "demo", "trace": "4bf9" } });
        assert!(is_wanted(&args(None, None), &record));
        assert!(is_wanted(&args(Some("alice"), Some("4bf9")), &record));
        assert!(!is_wanted(&args(Some("bob"), Some("4bf9")), &record));
        assert!(!is_wanted(&args(Some("alice"), None), &json!({ "event": { "user": "alice" } })));
    }

    fn all(user: Option<&str>, trace: Option<&str>) -> AuditArgs {
        AuditArgs {
            org: None,
            user: user.map(str::to_owned),
            server: None,
            primitive: None,
            outcome: None,
            since: None,
            trace: trace.map(str::to_owned),
            by: None,
            limit: 100,
            before: None,
            json: false,
        }
    }

    #[test]
    fn a_primitive_is_chosen_in_every_version_and_an_end_by_its_outcome_or_reason() {
        let record =
            json!({ "event": { "primitive": "echo@1.0.0", "outcome": "failed", "reason": "deadline" } });
        let of_primitive =
            |id: &str| is_wanted(&AuditArgs { primitive: Some(id.to_owned()), ..all(None, None) }, &record);
        assert!(of_primitive("echo") && of_primitive("echo@1.0.0"));
        assert!(!of_primitive("ech") && !of_primitive("echo@2.0.0"));
        let ended = |word: &str, record: &Value| {
            is_wanted(&AuditArgs { outcome: Some(word.to_owned()), ..all(None, None) }, record)
        };
        assert!(ended("failed", &record) && ended("deadline", &record) && !ended("completed", &record));
        assert!(!ended("failed", &json!({ "event": { "event": "call.start" } })));
    }

    #[test]
    fn each_call_counts_once_by_its_org_or_a_member_of_its_event() {
        let start = json!({ "org": "acme", "event": { "event": "call.start", "primitive": "echo@1.0.0" } });
        let end = json!({ "org": "acme", "event": { "event": "call.finish", "primitive": "echo@1.0.0" } });
        for (by, name) in [("org", "acme"), ("primitive", "echo@1.0.0")] {
            let mut counts = BTreeMap::new();
            [&start, &end, &end].into_iter().for_each(|record| count(&mut counts, by, record));
            assert_eq!(counts, BTreeMap::from([(name.to_owned(), 2)]));
        }
    }

    #[test]
    fn a_time_is_an_age_or_a_date_with_its_hour() {
        let now = 1_700_000_000_000;
        assert_eq!(parse_since("2h", now).unwrap(), now - 7_200_000);
        assert_eq!(parse_since("1970-01-01T00:00:01Z", now).unwrap(), 1_000);
        let fault = parse_since("yesterday", now).unwrap_err();
        assert!(matches!(fault, Failure::Configuration(_)), "{fault}");
    }

    #[test]
    fn a_finish_tells_its_outcome_and_a_start_who_calls_what() {
        let event = json!({ "event": "call.start", "user": "alice", "server": "demo", "primitive": "echo@1.0.0", "call": "c-1" });
        let record = json!({ "seq": -7, "at": 1_700_000_000_123_i64, "org": "acme", "event": event });
        assert_eq!(line(&record), "-7 2023-11-14T22:13:20.123Z acme/alice call.start demo echo@1.0.0 c-1");
        let event =
            json!({ "event": "call.finish", "outcome": "failed", "reason": "deadline", "latencyUs": 2500 });
        let shown = line(&json!({ "seq": 8, "at": 0, "org": "acme", "event": event }));
        assert!(
            shown.starts_with("8 1970-01-01T00:00:00.000Z acme/- call.finish")
                && shown.ends_with("failed deadline 2 ms"),
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
