//! `asp usage`: sums of calls, and the primitives without an admitted call.

use std::time::Duration;

use asp_command::environment::ProcessEnvironment;
use asp_command::failure::Failure;
use asp_command::print;
use asp_platform::clock;
use asp_platform::time::rfc3339;
use serde_json::Value;

use super::answer::{is, list, number, show, text};
use super::client::{AdminClient, block_on, with_query};
use super::token::parse_ttl;
use crate::args::usage::UsageArgs;

const DAY: Duration = Duration::from_secs(24 * 3600);

/// Shows usage by group, or what is unused.
pub fn run(args: &UsageArgs) -> Result<(), Failure> {
    let path = match &args.unused {
        Some(age) => unused_path(args, age)?,
        None => path(args, clock::now_ms())?,
    };
    let api = AdminClient::new(&ProcessEnvironment)?;
    let answer = block_on(async { api.get(&path).await?.accepted() })?;
    let words = if args.unused.is_some() { describe_unused(&answer) } else { table(&answer) };
    show(&answer, args.output.json, &words);
    if args.unused.is_none() && is(&answer, "more") && !args.output.json {
        print::note(&format!("there are more than {} groups; --limit shows up to 1000", args.limit));
    }
    Ok(())
}

fn path(args: &UsageArgs, now_ms: u64) -> Result<String, Failure> {
    let mut query = vec![("by", args.by.clone()), ("limit", args.limit.to_string())];
    let since = args.since.as_deref().map(|text| first_day(text, now_ms)).transpose()?;
    let given = [
        ("org", args.org.clone()),
        ("from", since),
        ("to", args.until.clone()),
        ("user", args.filter.user.clone()),
        ("server", args.filter.server.clone()),
        ("primitive", args.primitive.clone()),
    ];
    query.extend(given.into_iter().filter_map(|(name, value)| Some((name, value?))));
    with_query("/api/usage", &query)
}

fn unused_path(args: &UsageArgs, age: &str) -> Result<String, Failure> {
    let days = days_of("--unused", age)?;
    let mut query = vec![("days", days.to_string())];
    query.extend(args.org.clone().map(|org| ("org", org)));
    with_query("/api/usage/unused", &query)
}

/// Parses an age of at least a day; returns its days.
fn days_of(option: &str, age: &str) -> Result<u64, Failure> {
    let days = parse_ttl(age).map(|age| age.as_secs() / DAY.as_secs()).filter(|days| *days > 0);
    days.ok_or_else(|| Failure::bad(option, format!("`{age}` is not a number of days: write 30d")))
}

/// Returns the first day of an age before `now_ms`, today included; any other text is a day, which the API checks.
fn first_day(text: &str, now_ms: u64) -> Result<String, Failure> {
    if parse_ttl(text).is_none() {
        return Ok(text.to_owned());
    }
    let days = days_of("--since", text)?;
    let day_ms = u64::try_from(DAY.as_millis()).unwrap_or(u64::MAX);
    let first = now_ms.saturating_sub((days - 1).saturating_mul(day_ms));
    Ok(rfc3339(first).split('T').next().unwrap_or_default().to_owned())
}

/// Formats the groups, one a line, and their total.
fn table(answer: &Value) -> String {
    let by = text(answer, "by");
    let mut lines = vec![format!("{} from {} to {}", by, text(answer, "from"), text(answer, "to"))];
    lines.push(row(
        by,
        ["calls", "errors", "limited", "p50 ms", "p99 ms", "cpu s", "tokens", "cost"].map(str::to_owned),
    ));
    for group in list(answer, "groups") {
        let name = match text(group, "issuer") {
            "" => text(group, "name").to_owned(),
            issuer => format!("{} ({issuer})", text(group, "name")),
        };
        lines.push(row(&name, cells(group)));
    }
    lines.push(row("total", answer.get("total").map(cells).unwrap_or_default()));
    lines.join("\n")
}

/// Returns the cells of a group after its name.
fn cells(of: &Value) -> [String; 8] {
    let decimal = |pointer: &str, digits: usize| match of.pointer(pointer).and_then(Value::as_f64) {
        Some(number) => format!("{number:.digits$}"),
        None => "-".to_owned(),
    };
    let cpu_ms = number(of, "cpuMs");
    [
        number(of, "calls").to_string(),
        number(of, "errors").to_string(),
        number(of, "rateLimited").to_string(),
        decimal("/latency/p50Ms", 0),
        decimal("/latency/p99Ms", 0),
        format!("{}.{:03}", cpu_ms / 1_000, cpu_ms % 1_000),
        (number(of, "tokensIn") + number(of, "tokensOut")).to_string(),
        decimal("/cost", 2),
    ]
}

fn row(name: &str, [calls, errors, limited, p50, p99, cpu, tokens, cost]: [String; 8]) -> String {
    format!(
        "{name:<32} {calls:>9} {errors:>8} {limited:>8} {p50:>8} {p99:>8} {cpu:>9} {tokens:>10} {cost:>9}"
    )
}

fn describe_unused(answer: &Value) -> String {
    let unused: Vec<String> = list(answer, "unused")
        .map(|one| format!("{} at {}", text(one, "primitive"), text(one, "server")))
        .collect();
    let mut lines = vec![format!(
        "{} of {} primitives had no admitted call since {}{}",
        unused.len(),
        number(answer, "primitives"),
        text(answer, "from"),
        describe_record(answer)
    )];
    lines.extend(unused.iter().map(|one| format!("  {one}")));
    match number(answer, "unknownCalls") {
        0 => {}
        calls => lines.push(format!(
            "{calls} admitted calls are counted without their primitive; they may be calls of these"
        )),
    }
    lines.join("\n")
}

/// Returns since when usage is recorded, if that is later than the first day.
fn describe_record(answer: &Value) -> String {
    match answer.get("recordedFrom") {
        Some(Value::Null) => "; no usage is on record".to_owned(),
        // Days of one form are in the order of their texts.
        Some(Value::String(day)) if day.as_str() > text(answer, "from") => {
            format!("; the oldest usage on record is of {day}")
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_age_is_its_first_day_and_a_day_is_sent_as_it_is() {
        let args = |since: &str| UsageArgs {
            org: Some("acme".into()),
            by: "user".into(),
            since: Some(since.into()),
            limit: 5,
            ..UsageArgs::default()
        };
        let at = |since: &str| path(&args(since), 10 * 86_400_000 + 5);
        assert_eq!(at("1d").unwrap(), "/api/usage?by=user&limit=5&org=acme&from=1970-01-11");
        assert_eq!(at("7d").unwrap(), "/api/usage?by=user&limit=5&org=acme&from=1970-01-05");
        assert_eq!(at("1970-01-02").unwrap(), "/api/usage?by=user&limit=5&org=acme&from=1970-01-02");
        assert!(at("2h").is_err(), "less than a day");
        assert!(unused_path(&args("1d"), "soon").is_err());
        assert_eq!(unused_path(&args("1d"), "30d").unwrap(), "/api/usage/unused?days=30&org=acme");
    }

    #[test]
    fn a_table_has_a_line_for_each_group_and_the_total() {
        let sums = json!({ "name": "ann", "issuer": "login", "calls": 3, "errors": 1, "rateLimited": 0, "cpuMs": 1_250,
            "latency": { "sumMs": 9, "p50Ms": 2.5, "p99Ms": null }, "tokensIn": 1, "tokensOut": 2, "cost": 0.25 });
        let answer =
            json!({ "by": "user", "from": "a", "to": "b", "groups": [sums], "total": sums, "more": false });
        let shown = table(&answer);
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines.len(), 4, "{shown}");
        let words: Vec<&str> = lines[2].split_whitespace().collect();
        assert_eq!(words, ["ann", "(login)", "3", "1", "0", "2", "-", "1.250", "3", "0.25"]);
    }

    #[test]
    fn what_is_unused_is_listed_with_its_server() {
        let mut answer = json!({ "from": "2026-01-01", "primitives": 3, "unknownCalls": 4,
            "unused": [{ "server": "shop", "primitive": "pay" }] });
        assert_eq!(
            describe_unused(&answer),
            "1 of 3 primitives had no admitted call since 2026-01-01\n  pay at shop\n\
             4 admitted calls are counted without their primitive; they may be calls of these"
        );
        for (recorded, words) in [
            (json!("2025-12-31"), ""),
            (json!("2026-01-01"), ""),
            (json!("2026-01-09"), "; the oldest usage on record is of 2026-01-09"),
            (Value::Null, "; no usage is on record"),
        ] {
            answer["recordedFrom"] = recorded;
            assert_eq!(describe_record(&answer), words, "{answer}");
        }
    }
}
