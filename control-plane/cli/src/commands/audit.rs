//! `asp audit`: events of calls, approvals and changes, newest first; followed, counted or exported.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use asp_command::environment::ProcessEnvironment;
use asp_command::failure::Failure;
use asp_command::print;
use asp_platform::clock;
use asp_platform::time::{from_rfc3339, rfc3339};
use serde_json::{Value, json};

use super::answer::text;
use super::client::{AdminClient, block_on, with_query};
use super::history;
use super::token::parse_ttl;
use crate::args::audit::AuditArgs;

/// Maximum number of events in a response of the control plane.
const PAGE: u32 = 1000;
/// Event that ends a call.
const FINISH: &str = "call.finish";
/// Outcomes of calls; other words are reasons.
const OUTCOMES: [&str; 5] = ["completed", "rejected", "failed", "cancelled", "unknown"];
/// Maximum number of pages that one command reads for the wanted events.
const SEARCHED_PAGES: u32 = 100;
/// Delay before the next look for new events.
const FOLLOW_EVERY: Duration = Duration::from_secs(1);
/// Length of a day in milliseconds.
const DAY_MS: u64 = 24 * 3600 * 1000;

/// Shows events of `/api/audit`, or counts calls in them.
pub fn run(args: &AuditArgs) -> Result<(), Failure> {
    let api = AdminClient::new(&ProcessEnvironment)?;
    let query = query(args, clock::now_ms())?;
    if args.export {
        let path = with_query("/api/audit/calls/export", &query)?;
        return block_on(async { api.copy(&path, &mut std::io::stdout()).await });
    }
    let mut show = |record: &Value| print::line(&describe(args, record));
    if args.follow {
        return block_on(follow(args, &api, &query, &mut show));
    }
    let Some(by) = &args.by else {
        return block_on(search(&api, list(args), &query, args.limit as usize, &mut show));
    };
    let mut counts = BTreeMap::new();
    block_on(search(&api, list(args), &query, usize::MAX, &mut |record| count(&mut counts, by, record)))?;
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

fn describe(args: &AuditArgs, record: &Value) -> String {
    match (args.json, args.changes) {
        (true, _) => record.to_string(),
        (false, true) => history::line(record),
        (false, false) => line(record),
    }
}

/// Returns the path of the list that is shown.
fn list(args: &AuditArgs) -> &'static str {
    match (args.changes, args.approvals) {
        (true, _) => "/api/audit/changes",
        (false, true) => "/api/audit/approvals",
        (false, false) => "/api/audit/calls",
    }
}

/// Returns the filters as the API has them.
fn query(args: &AuditArgs, now_ms: u64) -> Result<Vec<(&'static str, String)>, Failure> {
    let time = |option: &str, text: &Option<String>| {
        text.as_deref().map(|text| parse_time(option, text, now_ms).map(|time| time.to_string())).transpose()
    };
    let is_outcome = args.outcome.as_deref().is_some_and(|word| OUTCOMES.contains(&word));
    let (outcome, reason) = match (is_outcome, &args.reason) {
        (false, Some(_)) if args.outcome.is_some() => {
            let fault = format!("with --reason, is one of {}", OUTCOMES.join(", "));
            return Err(Failure::bad("--outcome", fault));
        }
        (true, reason) => (args.outcome.clone(), reason.clone()),
        (false, reason) => (None, args.outcome.clone().or_else(|| reason.clone())),
    };
    let filters = [
        ("org", args.org.clone()),
        ("user", args.user.clone()),
        ("server", args.server.clone()),
        ("primitive", args.primitive.clone()),
        ("event", args.by.is_some().then(|| FINISH.to_owned())),
        ("outcome", outcome),
        ("reason", reason),
        ("trace", args.trace.clone()),
        ("from", time("--since", &args.since)?),
        ("to", time("--until", &args.until)?),
        (if args.changes { "cursor" } else { "before" }, args.before.map(|before| before.to_string())),
    ];
    Ok(filters.into_iter().filter_map(|(name, value)| Some((name, value?))).collect())
}

/// Passes on the wanted events, at most `left`, from as many pages as that takes.
async fn search(
    api: &AdminClient,
    list: &str,
    query: &[(&'static str, String)],
    mut left: usize,
    show: &mut dyn FnMut(&Value),
) -> Result<(), Failure> {
    let limit = u32::try_from(left).unwrap_or(PAGE).min(PAGE);
    let mut asked = query.to_vec();
    asked.push(("limit", limit.to_string()));
    let mut path = with_query(list, &asked)?;
    for _ in 0..SEARCHED_PAGES {
        let response = api.get(&path).await?;
        let next = response.next.clone();
        let page = response.accepted()?;
        for record in page.as_array().into_iter().flatten().take(left) {
            left -= 1;
            show(record);
        }
        let Some(next) = next.filter(|_| left > 0) else { return Ok(()) };
        path = next;
    }
    print::note(&format!(
        "{SEARCHED_PAGES} pages were read, and there are more: narrow the time by --since and --until"
    ));
    Ok(())
}

/// Shows the latest events, oldest first, and then each new one until the process is interrupted.
async fn follow(
    args: &AuditArgs,
    api: &AdminClient,
    query: &[(&'static str, String)],
    show: &mut dyn FnMut(&Value),
) -> Result<(), Failure> {
    // Before the latest events are read: one that arrives meanwhile is shown twice rather than never.
    let mut newest = vec![("limit", "1".to_owned()), ("before", i64::MAX.to_string())];
    newest.extend(args.org.clone().map(|org| ("org", org)));
    let end = api.get(&with_query("/api/audit/calls", &newest)?).await?.accepted()?;
    let end = end.pointer("/0/seq").and_then(Value::as_i64).unwrap_or_default();
    let mut latest = Vec::new();
    let mut keep = |record: &Value| latest.push(record.clone());
    search(api, list(args), query, args.limit as usize, &mut keep).await?;
    let is_old = |record: &&Value| record.get("seq").and_then(Value::as_i64).is_some_and(|seq| seq <= end);
    for record in latest.iter().rev().filter(is_old) {
        show(record);
    }
    let mut asked = query.to_vec();
    asked.extend([("limit", PAGE.to_string()), ("after", end.to_string())]);
    let mut path = with_query("/api/audit/calls", &asked)?;
    loop {
        let response = api.get(&path).await?;
        let next = response.next.clone();
        let page = response.accepted()?;
        let records = page.as_array().map(Vec::as_slice).unwrap_or_default();
        for record in records {
            show(record);
        }
        if let Some(next) = next {
            path = next;
        }
        if records.len() < PAGE as usize {
            tokio::time::sleep(FOLLOW_EVERY).await;
        }
    }
}

/// Counts an event that ends a call; each call has one.
fn count(counts: &mut BTreeMap<String, u64>, by: &str, record: &Value) {
    let Some(event) = record.get("event").filter(|event| text(event, "event") == FINISH) else { return };
    let of = if by == "org" { record } else { event };
    *counts.entry(text(of, by).to_owned()).or_default() += 1;
}

/// Parses a time, a date, or an age such as `2h` before `now_ms`; returns Unix milliseconds.
pub(super) fn parse_time(option: &str, text: &str, now_ms: u64) -> Result<u64, Failure> {
    let midnight = now_ms - now_ms % DAY_MS;
    match text {
        "now" => return Ok(now_ms),
        "today" => return Ok(midnight),
        "yesterday" => return Ok(midnight.saturating_sub(DAY_MS)),
        _ => {}
    }
    if let Some(age) = parse_ttl(text) {
        return Ok(now_ms.saturating_sub(u64::try_from(age.as_millis()).unwrap_or(u64::MAX)));
    }
    let time = from_rfc3339(text).or_else(|| from_rfc3339(&format!("{text}T00:00:00Z")));
    time.map(|time| u64::try_from(time).unwrap_or_default()).ok_or_else(|| {
        let forms = "write 15m, 2h, 7d, today, yesterday, 2026-01-31 or 2026-01-31T08:00:00Z";
        Failure::bad(option, format!("`{text}` is not a time: {forms}"))
    })
}

/// Formats a time for people: date and time in UTC, to the second.
fn moment(at_ms: u64) -> String {
    let exact = rfc3339(at_ms);
    let seconds = exact.split('.').next().unwrap_or(&exact);
    format!("{}Z", seconds.replace('T', " "))
}

/// Formats one event: its number, time, caller, primitive and outcome.
fn line(record: &Value) -> String {
    let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).unwrap_or("-").to_owned();
    let number = |value: &Value, key: &str| value.get(key).and_then(Value::as_i64).unwrap_or_default();
    let nothing = Value::Null;
    let event = record.get("event").unwrap_or(&nothing);
    let at = record.get("at").and_then(Value::as_u64).unwrap_or_default();
    let head = format!(
        "{} {} {}/{} {} {} {} {}",
        number(record, "seq"),
        moment(at),
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
            let mut said = match event.get("provider") {
                Some(_) => {
                    format!("{head} {outcome} {} at {}", text(event, "reason"), text(event, "provider"))
                }
                None => format!("{head} {outcome} {} {took} ms", text(event, "reason")),
            };
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
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        args: AuditArgs,
    }

    fn parsed(line: &str) -> Result<AuditArgs, clap::Error> {
        Command::try_parse_from(std::iter::once("audit").chain(line.split_whitespace()))
            .map(|command| command.args)
    }

    fn asked(line: &str) -> String {
        let query = query(&parsed(line).unwrap(), 1_700_000_000_000).unwrap();
        query.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn filters_are_asked_of_the_api() {
        for (line, query) in [
            ("", ""),
            ("--org acme --user alice --server shop", "org=acme user=alice server=shop"),
            ("--primitive pay@1.0.0 --trace 4bf9", "primitive=pay@1.0.0 trace=4bf9"),
            ("--outcome rejected", "outcome=rejected"),
            ("--outcome denied", "reason=denied"),
            ("--outcome failed --reason deadline", "outcome=failed reason=deadline"),
            ("--since 2h --until 1h", "from=1699992800000 to=1699996400000"),
            ("--by user", "event=call.finish"),
            ("--before -7 --org acme", "org=acme before=-7"),
        ] {
            assert_eq!(asked(line), query, "{line}");
        }
        assert!(query(&parsed("--outcome denied --reason deadline").unwrap(), 0).is_err());
        for (line, path) in [
            ("", "/api/audit/calls"),
            ("--approvals", "/api/audit/approvals"),
            ("--changes", "/api/audit/changes"),
        ] {
            assert_eq!(list(&parsed(line).unwrap()), path, "{line}");
        }
    }

    #[test]
    fn what_a_list_does_not_know_is_refused() {
        for line in [
            "--follow --until now",
            "--follow --by user",
            "--export",
            "--export --since 1h --limit 3",
            "--changes --server shop",
            "--changes --approvals",
            "--before 3 --user alice",
            "--by colour",
        ] {
            assert!(parsed(line).is_err(), "{line}");
        }
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
    fn a_time_is_an_age_a_date_or_a_date_with_its_hour() {
        let now = 1_700_000_000_000;
        let time = |text: &str| parse_time("--since", text, now);
        assert_eq!(time("2h").unwrap(), now - 7_200_000);
        assert_eq!(time("1970-01-01T00:00:01Z").unwrap(), 1_000);
        assert_eq!(time("1970-01-02").unwrap(), DAY_MS);
        assert_eq!(time("today").unwrap(), 1_699_920_000_000);
        assert_eq!(time("yesterday").unwrap(), 1_699_833_600_000);
        for text in ["tomorrow", "", "2026-02-30"] {
            let fault = time(text).unwrap_err();
            assert!(matches!(fault, Failure::Configuration(_)), "{fault}");
        }
    }

    #[test]
    fn a_finish_tells_its_outcome_and_a_start_who_calls_what() {
        let event = json!({ "event": "call.start", "user": "alice", "server": "demo", "primitive": "echo@1.0.0", "call": "c-1" });
        let record = json!({ "seq": -7, "at": 1_700_000_000_123_i64, "org": "acme", "event": event });
        assert_eq!(line(&record), "-7 2023-11-14 22:13:20Z acme/alice call.start demo echo@1.0.0 c-1");
        let event =
            json!({ "event": "call.finish", "outcome": "failed", "reason": "deadline", "latencyUs": 2500 });
        let shown = line(&json!({ "seq": 8, "at": 0, "org": "acme", "event": event }));
        assert!(
            shown.starts_with("8 1970-01-01 00:00:00Z acme/- call.finish")
                && shown.ends_with("failed deadline 2 ms"),
            "{shown}"
        );
        let event = json!({ "event": "link.remove", "user": "alice", "issuer": "dev", "provider": "github",
            "outcome": "completed", "reason": "ok" });
        let shown = line(&json!({ "seq": 9, "at": 0, "org": "acme", "event": event }));
        assert!(shown.contains("acme/alice link.remove"), "{shown}");
        assert!(shown.ends_with("completed ok at github"), "{shown}");
        let observed = json!({ "would": "deny", "rule": "user:* echo mcp" });
        let event = json!({ "event": "call.finish", "outcome": "completed", "rule": "user:* e* *", "observed": observed });
        let shown = line(&json!({ "seq": 9, "at": 0, "org": "acme", "event": event }));
        assert!(
            shown.ends_with("completed - 0 ms by user:* e* *, observed: would deny by user:* echo mcp"),
            "{shown}"
        );
    }
}
