//! `asp status`: the published snapshot, the edges and gateways that have it, the services that fail, items that are off or have
//! drifted, and the language runtimes.

use std::collections::BTreeSet;

use asp_command::environment::ProcessEnvironment;
use asp_command::failure::Failure;
use asp_command::print;
use asp_platform::time::rfc3339;
use serde_json::Value;

use super::answer::{list, number, text, texts};
use super::client::{AdminClient, block_on};
use super::kafka;
use crate::args::JsonArgs;

/// Gets `/api/snapshot` and `/api/runtimes`. Fails if a subscriber rejected the newest snapshot or parts of it, or if it
/// could not be built as a whole. A runtime that does not answer is shown, but is not a failure of the snapshot.
pub fn run(args: &JsonArgs) -> Result<(), Failure> {
    let api = AdminClient::new(&ProcessEnvironment)?;
    let (mut status, runtimes) = block_on(async {
        let status = api.get("/api/snapshot").await?.accepted()?;
        let runtimes = api.get("/api/runtimes").await?.accepted()?;
        Ok::<_, Failure>((status, runtimes))
    })?;
    if args.json {
        if let Some(members) = status.as_object_mut() {
            members.insert("runtimes".to_owned(), runtimes);
        }
        print::json(&status);
    } else {
        let off = runtimes.as_array().into_iter().flatten().flat_map(|runtime| list(runtime, "off"));
        let listed_off: BTreeSet<&str> = off.map(|plugin| text(plugin, "plugin")).collect();
        print_status(&status, &listed_off);
        runtimes.as_array().into_iter().flatten().flat_map(lines).for_each(|line| print::line(&line));
    }
    if healthy(&status) { Ok(()) } else { Err(Failure::Refused) }
}

/// Gets `/api/runtimes`.
pub fn runtimes(args: &JsonArgs) -> Result<(), Failure> {
    let api = AdminClient::new(&ProcessEnvironment)?;
    let runtimes = block_on(async { api.get("/api/runtimes").await?.accepted() })?;
    if args.json {
        print::json(&runtimes);
    } else {
        runtimes.as_array().into_iter().flatten().flat_map(lines).for_each(|line| print::line(&line));
    }
    Ok(())
}

fn healthy(status: &Value) -> bool {
    let refused = |subscriber: &Value| {
        subscriber
            .get("lastNack")
            .is_some_and(|nack| number(nack, "revision") > number(subscriber, "ackedRevision"))
    };
    let is_partial = |subscriber: &Value| number(subscriber, "refusedPartsCount") > 0;
    let whole = status.get("fault").is_none_or(Value::is_null) && number(status, "faultsCount") == 0;
    whole && !list(status, "subscribers").any(|subscriber| refused(subscriber) || is_partial(subscriber))
}

/// Prints the snapshot and its subscribers. `listed_off` are the plugins that are off in the list of runtimes, which follows.
fn print_status(status: &Value, listed_off: &BTreeSet<&str>) {
    print::line(&format!(
        "snapshot {} (store at {}), edge {} bytes, gateway {} bytes",
        text(status, "version"),
        number(status, "storeRevision"),
        number(status, "edgeBytes"),
        number(status, "gatewayBytes")
    ));
    if let Some(fault) = status.get("fault").and_then(Value::as_str) {
        print::line(&format!("not published: {fault}"));
        print::line("  the last good snapshot stays in force; the control plane's log has the whole error");
    }
    unpublished_parts(status).iter().for_each(|line| print::line(line));
    if let Some(topic) = status.get("kafka") {
        print::line(&kafka::status_line(topic));
    }
    for subscriber in list(status, "subscribers") {
        let mut line = format!(
            "{:<10} {:<28} acked {} behind {} ack {} ms",
            text(subscriber, "kind"),
            text(subscriber, "node"),
            number(subscriber, "ackedRevision"),
            number(subscriber, "behind"),
            number(subscriber, "ackMs")
        );
        if let Some(nack) = subscriber.get("lastNack").filter(|nack| !nack.is_null()) {
            line = format!("{line}, refused {}: {}", number(nack, "revision"), text(nack, "reason"));
        }
        print::line(&line);
        refused_parts(subscriber).iter().for_each(|line| print::line(line));
        failing_upstreams(subscriber).for_each(|line| print::line(&line));
        degraded_items(subscriber, listed_off).for_each(|line| print::line(&line));
    }
}

/// Describes the services that failed recently at a gateway.
fn failing_upstreams(subscriber: &Value) -> impl Iterator<Item = String> {
    list(subscriber, "failingUpstreams").map(|upstream| {
        let breaker = match text(upstream, "breaker") {
            "open" => "it gets no requests for some seconds",
            "half_open" => "it gets a few requests to see whether it works again",
            _ => "it gets requests",
        };
        format!(
            "  upstream {} of server {} failed at {}: {}; {breaker}",
            text(upstream, "origin"),
            text(upstream, "server"),
            rfc3339(number(upstream, "failedAt")),
            text(upstream, "cause")
        )
    })
}

/// Describes the items that a gateway does not serve as they were accepted, without plugins that are listed already.
fn degraded_items(subscriber: &Value, listed_off: &BTreeSet<&str>) -> impl Iterator<Item = String> {
    let is_new = move |one: &&Value| text(one, "state") != "off" || !listed_off.contains(text(one, "item"));
    list(subscriber, "degradedItems").filter(is_new).map(|one| {
        let source = text(one, "source");
        let item = text(one, "item");
        match text(one, "state") {
            "off" => format!("  off {item} ({source}): {}", text(one, "cause")),
            "changed" => format!(
                "  drift {item} of {source}: the upstream changed it; served as accepted; review with asp import"
            ),
            "removed" => format!(
                "  drift {item} of {source}: the upstream lists it no longer; hidden; remove it with asp import"
            ),
            _ => format!(
                "  drift {item} of {source}: the upstream no longer fits the accepted schemas; off; review with asp import"
            ),
        }
    })
}

/// Returns the parts that a gateway could not put in force as they were sent.
fn refused_parts(subscriber: &Value) -> Vec<String> {
    let describe = |part: &Value| format!("  refused {}: {}", text(part, "name"), text(part, "reason"));
    let mut lines: Vec<String> = list(subscriber, "refusedParts").map(describe).collect();
    let more = number(subscriber, "refusedPartsCount").saturating_sub(lines.len() as u64);
    if more > 0 {
        lines.push(format!("  and {more} more parts"));
    }
    lines
}

/// Describes the parts that are not published as stored: the fault, what is in force instead, and the remedy.
fn unpublished_parts(status: &Value) -> Vec<String> {
    let listed = list(status, "faults");
    let more = number(status, "faultsCount").saturating_sub(listed.len() as u64);
    let mut lines = Vec::new();
    for fault in listed {
        lines.push(format!(
            "{:<10} {:<28} {}",
            text(fault, "part"),
            text(fault, "name"),
            text(fault, "fault")
        ));
        lines.push(format!("  in force: {}", text(fault, "inForce")));
        lines.push(format!("  remedy: {}", text(fault, "wayOut")));
    }
    if more > 0 {
        lines.push(format!("and {more} more faults of the same kind"));
    }
    lines
}

/// Formats a runtime, followed by its plugins.
fn lines(runtime: &Value) -> Vec<String> {
    let languages = texts(runtime, "languages").join("+");
    let head = format!("{:<10} {languages:<28} {}", "runtime", text(runtime, "state"));
    let at = match (text(runtime, "url"), text(runtime, "address")) {
        ("", _) => String::new(),
        (url, "") => format!(" at {url}"),
        (url, address) => format!(" at {url} ({address})"),
    };
    let off = unavailable_plugins(runtime);
    let Some(report) = runtime.get("report").filter(|report| !report.is_null()) else {
        return std::iter::once(format!("{head}{at}")).chain(off).collect();
    };
    let budget = number(report, "maxWorkers");
    let left = number(report, "workersLeft");
    let level = number(report, "isolationLevel");
    // An older runtime does not report it.
    let bounds = match text(report, "bounds") {
        "" => String::new(),
        bounds => format!(" bounds {bounds}"),
    };
    let used = budget.saturating_sub(left);
    let mut lines = vec![format!("{head} level {level}{bounds} workers {used}/{budget}{at}")];
    for (name, plugin) in report.get("plugins").and_then(Value::as_object).into_iter().flatten() {
        let mut line = format!(
            "{:<10} {name:<28} workers {} active {} queued {} crashes {} rss {} MiB",
            "plugin",
            number(plugin, "workers"),
            number(plugin, "active"),
            number(plugin, "queued"),
            number(plugin, "crashes"),
            number(plugin, "rssBytes") >> 20
        );
        if number(plugin, "quarantinedS") > 0 {
            line = format!("{line}, quarantined for {} s", number(plugin, "quarantinedS"));
        } else if !matches!(text(plugin, "breaker"), "" | "closed") {
            line = format!("{line}, breaker {}", text(plugin, "breaker"));
        }
        lines.push(line);
    }
    lines.extend(off);
    lines
}

/// Describes the plugins that cannot be called: why, and the remedy.
fn unavailable_plugins(runtime: &Value) -> Vec<String> {
    let line = |plugin: &Value| {
        let line = format!("{:<10} {:<28} {}", "off", text(plugin, "plugin"), text(plugin, "why"));
        match text(plugin, "wayOut") {
            "" => line,
            remedy => format!("{line}; remedy: {remedy}"),
        }
    };
    list(runtime, "off").map(line).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_runtime_is_shown_with_its_plugins_and_what_is_wrong_with_them() {
        let plugin = json!({ "workers": 1, "crashes": 5, "quarantinedS": 300, "rssBytes": 3 << 20 });
        let report = json!({ "maxWorkers": 8, "workersLeft": 7, "isolationLevel": 3, "bounds": "sampled", "plugins": { "a@1": plugin } });
        let shown = lines(&json!({ "languages": ["python", "node"], "state": "degraded", "report": report }));
        assert!(
            shown[0].contains("python+node")
                && shown[0].ends_with("degraded level 3 bounds sampled workers 1/8"),
            "{shown:?}"
        );
        assert!(shown[1].contains("crashes 5 rss 3 MiB, quarantined for 300 s"), "{shown:?}");
        let mut silent = json!({ "languages": ["java"], "url": "https://java:1", "address": null,
            "state": "unreachable", "report": null });
        let shown = lines(&silent);
        assert!(shown.len() == 1 && shown[0].ends_with("unreachable at https://java:1"), "{shown:?}");
        silent["address"] = "10.0.0.7".into();
        assert!(lines(&silent)[0].ends_with(" at https://java:1 (10.0.0.7)"), "{silent:?}");
        let off = json!([{ "plugin": "b@2", "why": "java is not here", "wayOut": "make run" }]);
        let absent = lines(&json!({ "languages": ["java"], "state": "absent", "report": null, "off": off }));
        let words: Vec<&str> = absent[1].split_whitespace().collect();
        assert_eq!(words.join(" "), "off b@2 java is not here; remedy: make run");
    }

    #[test]
    fn a_refused_snapshot_or_a_fault_is_not_healthy() {
        let subscriber = |acked: u64, nack: Value| json!({ "ackedRevision": acked, "lastNack": nack });
        assert!(healthy(&json!({ "fault": null, "subscribers": [subscriber(3, Value::Null)] })));
        assert!(
            healthy(&json!({ "subscribers": [subscriber(3, json!({ "revision": 2 }))] })),
            "it recovered"
        );
        assert!(!healthy(&json!({ "subscribers": [subscriber(3, json!({ "revision": 4 }))] })));
        assert!(!healthy(&json!({ "fault": "disk on fire", "subscribers": [] })));
        assert!(!healthy(&json!({ "fault": null, "faultsCount": 1, "subscribers": [] })));
    }

    #[test]
    fn a_part_that_a_gateway_refused_is_shown_and_not_healthy() {
        let part = json!({ "name": "server/demo", "reason": "bad schema; in force: its last form" });
        let subscriber =
            json!({ "ackedRevision": 3, "lastNack": null, "refusedParts": [part], "refusedPartsCount": 4 });
        let shown = refused_parts(&subscriber).join("\n");
        assert_eq!(shown, "  refused server/demo: bad schema; in force: its last form\n  and 3 more parts");
        assert!(!healthy(&json!({ "subscribers": [subscriber] })));
    }

    #[test]
    fn a_service_that_failed_is_shown_with_time_and_cause_and_is_no_fault_of_the_snapshot() {
        let upstream = |breaker: &str| {
            json!({ "server": "shop", "origin": "https://shop.example", "breaker": breaker, "failedAt": 0,
                "cause": "the service answered 503" })
        };
        let subscriber =
            json!({ "ackedRevision": 3, "failingUpstreams": [upstream("open"), upstream("closed")] });
        let lines: Vec<String> = failing_upstreams(&subscriber).collect();
        assert_eq!(
            lines[0],
            "  upstream https://shop.example of server shop failed at 1970-01-01T00:00:00.000Z: the service answered 503; it gets no \
             requests for some seconds"
        );
        assert!(lines[1].ends_with("; it gets requests"), "{lines:?}");
        assert!(healthy(&json!({ "subscribers": [subscriber] })));
    }

    #[test]
    fn an_item_that_drifted_or_is_off_at_a_gateway_is_shown_once() {
        let item = |item: &str, state: &str| json!({ "source": "http://up.internal/mcp", "item": item, "state": state, "cause": "not_installed: it" });
        let states =
            [("a", "changed"), ("b", "incompatible"), ("c", "removed"), ("d@1", "off"), ("e@1", "off")];
        let items = states.map(|(name, state)| item(name, state));
        let subscriber = json!({ "ackedRevision": 3, "degradedItems": items });
        let lines: Vec<String> = degraded_items(&subscriber, &BTreeSet::from(["e@1"])).collect();
        assert_eq!(lines.len(), 4, "{lines:?}");
        assert!(
            lines[0].starts_with("  drift a of http://up.internal/mcp: ")
                && lines[0].contains("served as accepted")
        );
        assert!(lines[1].contains("; off; ") && lines[2].contains("; hidden; "), "{lines:?}");
        assert_eq!(lines[3], "  off d@1 (http://up.internal/mcp): not_installed: it");
        assert!(healthy(&json!({ "subscribers": [subscriber] })));
    }

    #[test]
    fn a_standing_fault_is_shown_with_what_holds_and_the_way_out() {
        let fault = json!({
            "part": "org", "name": "acme", "fault": "too large", "inForce": "denied", "wayOut": "delete some"
        });
        let lines = unpublished_parts(&json!({ "faults": [fault], "faultsCount": 3 })).join("\n");
        for part in ["acme", "too large", "in force: denied", "remedy: delete some", "2 more"] {
            assert!(lines.contains(part), "{lines}");
        }
    }
}
