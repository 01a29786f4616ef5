//! `asp servers deprecated`: primitives whose support ends, and who still calls them.

use std::collections::BTreeMap;

use asp_command::failure::Failure;
use asp_command::print;
use asp_platform::time;
use asp_proto::snapshot::Deprecation;
use asp_registry::CompiledServer;
use serde_json::{Value, json};

use super::super::answer::{number, text};
use super::super::client::{AdminClient, with_query};
use super::super::specs;
use crate::args::servers::ServersDeprecatedArgs;

/// Maximum number of events in a page of the API.
const PAGE: u32 = 1000;
/// Event that begins a call.
const START: &str = "call.start";

/// A primitive whose support ends, as one server lists it.
#[derive(Debug, PartialEq)]
struct DeprecatedPrimitive {
    server: String,
    /// `<id>@<version>`.
    primitive: String,
    deprecation: Deprecation,
}

/// Calls of one caller.
#[derive(Debug, Default, PartialEq)]
struct CallCount {
    calls: u64,
    /// Time of the latest, in Unix milliseconds.
    last: u64,
}

/// Calls by server and primitive, then by `<org>/<user>`.
type CallsOfPrimitives = BTreeMap<(String, String), BTreeMap<String, CallCount>>;

pub(super) async fn run(api: &AdminClient, args: &ServersDeprecatedArgs) -> Result<(), Failure> {
    let found = find_deprecated(&specs::stored(api, args.server.as_deref()).await?);
    let mut calls = CallsOfPrimitives::new();
    let mut since = None;
    if args.callers && !found.is_empty() {
        let events = events(api, args.events).await?;
        since = events.last().map(|record| number(record, "at"));
        count(&events, &mut calls);
    }
    if args.json {
        let rows: Vec<Value> = found.iter().map(|one| row(one, args.callers, &calls)).collect();
        print::json(&json!({ "deprecated": rows, "since": since.map(time::rfc3339) }));
        return Ok(());
    }
    if found.is_empty() {
        print::line("no primitive is deprecated");
    }
    for one in &found {
        print::line(&describe(one));
        if args.callers {
            callers(one, &calls).iter().for_each(|line| print::line(line));
        }
    }
    if let Some(since) = since {
        print::line(&format!("callers since {}", time::rfc3339(since)));
    } else if !args.callers && !found.is_empty() {
        print::next_step("asp servers deprecated --callers");
    }
    Ok(())
}

fn find_deprecated(servers: &[CompiledServer]) -> Vec<DeprecatedPrimitive> {
    let of = |server: &CompiledServer| {
        let name = server.server.name.clone();
        let one = move |primitive: &asp_proto::snapshot::Primitive| {
            Some(DeprecatedPrimitive {
                server: name.clone(),
                primitive: format!("{}@{}", primitive.id, primitive.version),
                deprecation: primitive.deprecation.clone()?,
            })
        };
        server.primitives.iter().filter_map(one).collect::<Vec<_>>()
    };
    servers.iter().flat_map(of).collect()
}

/// Reads the latest events, newest first.
async fn events(api: &AdminClient, wanted: u32) -> Result<Vec<Value>, Failure> {
    let mut events: Vec<Value> = Vec::new();
    let mut left = wanted;
    while left > 0 {
        let limit = left.min(PAGE);
        let mut asked = vec![("limit", limit.to_string())];
        let last = events.last().and_then(|record| record.get("seq")?.as_i64());
        asked.extend(last.map(|seq| ("before", seq.to_string())));
        let page = api.get(&with_query("/api/audit/calls", &asked)?).await?.accepted()?;
        let page = page.as_array().cloned().unwrap_or_default();
        let is_last = page.len() < usize::try_from(limit).unwrap_or(usize::MAX);
        events.extend(page);
        if is_last {
            break;
        }
        left -= limit;
    }
    Ok(events)
}

fn count(events: &[Value], calls: &mut CallsOfPrimitives) {
    for record in events {
        let Some(event) = record.get("event").filter(|event| text(event, "event") == START) else { continue };
        let called = (text(event, "server").to_owned(), text(event, "primitive").to_owned());
        let caller = format!("{}/{}", text(record, "org"), text(event, "user"));
        let known = calls.entry(called).or_default().entry(caller).or_default();
        known.calls += 1;
        known.last = known.last.max(number(record, "at"));
    }
}

fn describe(one: &DeprecatedPrimitive) -> String {
    let DeprecatedPrimitive { server, primitive, deprecation } = one;
    let end = match deprecation.refuse {
        true => "calls are refused from",
        false => "not supported from",
    };
    let mut line = format!("{server}: {primitive}: {end} {} on", deprecation.until);
    if !deprecation.replacement.is_empty() {
        line.push_str(&format!("; use {}", deprecation.replacement));
    }
    if !deprecation.reason.is_empty() {
        line.push_str(&format!("; {}", deprecation.reason));
    }
    line
}

fn callers(one: &DeprecatedPrimitive, calls: &CallsOfPrimitives) -> Vec<String> {
    let Some(callers) = calls.get(&(one.server.clone(), one.primitive.clone())) else {
        return vec!["  called by nobody".to_owned()];
    };
    let line = |(caller, count): (&String, &CallCount)| {
        format!("  {caller}: {} calls, the last at {}", count.calls, time::rfc3339(count.last))
    };
    callers.iter().map(line).collect()
}

fn row(one: &DeprecatedPrimitive, with_callers: bool, calls: &CallsOfPrimitives) -> Value {
    let DeprecatedPrimitive { server, primitive, deprecation } = one;
    let mut row = json!({
        "server": server,
        "primitive": primitive,
        "until": deprecation.until,
        "use": deprecation.replacement,
        "reason": deprecation.reason,
        "refuse": deprecation.refuse,
    });
    let found = calls.get(&(server.clone(), primitive.clone())).into_iter().flatten();
    let callers = found.map(|(caller, count)| {
        json!({ "caller": caller, "calls": count.calls, "last": time::rfc3339(count.last) })
    });
    if let Some(members) = row.as_object_mut().filter(|_| with_callers) {
        members.insert("callers".to_owned(), callers.collect());
    }
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find() -> DeprecatedPrimitive {
        let deprecation = Deprecation {
            until: "2027-03-01".into(),
            replacement: "crm.find_contact".into(),
            reason: "It is slow.".into(),
            refuse: true,
            ..Deprecation::default()
        };
        DeprecatedPrimitive { server: "crm".into(), primitive: "crm.find@1.0.0".into(), deprecation }
    }

    #[test]
    fn callers_are_counted_by_the_start_of_their_calls() {
        let record = |at: u64, event: &str, user: &str, primitive: &str| {
            let event = json!({ "event": event, "user": user, "server": "crm", "primitive": primitive });
            json!({ "seq": at, "at": at, "org": "acme", "event": event })
        };
        let events = [
            record(3000, START, "bob", "crm.find@1.0.0"),
            record(2000, "call.finish", "bob", "crm.find@1.0.0"),
            record(2000, START, "bob", "crm.find@1.0.0"),
            record(1000, START, "alice", "crm.find@2.0.0"),
        ];
        let mut calls = CallsOfPrimitives::new();
        count(&events, &mut calls);
        assert_eq!(callers(&find(), &calls), ["  acme/bob: 2 calls, the last at 1970-01-01T00:00:03.000Z"]);
        let row = row(&find(), true, &calls);
        assert_eq!(
            row["callers"],
            json!([{"caller": "acme/bob", "calls": 2, "last": "1970-01-01T00:00:03.000Z"}])
        );
        assert_eq!(callers(&find(), &CallsOfPrimitives::new()), ["  called by nobody"]);
    }

    #[test]
    fn the_end_of_support_is_described_with_what_to_call_instead() {
        let mut one = find();
        assert_eq!(
            describe(&one),
            "crm: crm.find@1.0.0: calls are refused from 2027-03-01 on; use crm.find_contact; It is slow."
        );
        one.deprecation = Deprecation { until: "2027-03-01".into(), ..Deprecation::default() };
        assert_eq!(describe(&one), "crm: crm.find@1.0.0: not supported from 2027-03-01 on");
    }
}
