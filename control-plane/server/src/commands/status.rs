//! `asp status`: the published snapshot, and who has it.

use serde_json::Value;

use super::client::{AdminClient, block_on};
use super::{Failure, print};
use crate::args::StatusArgs;
use crate::settings::source::ProcessEnvironment;

/// Asks `/api/snapshot`; fails when a subscriber refused the newest snapshot or it could not be built.
pub fn run(args: &StatusArgs) -> Result<(), Failure> {
    let api = AdminClient::new(&ProcessEnvironment)?;
    let status = block_on(async { api.get("/api/snapshot").await?.accepted() })?;
    if args.json {
        print::json(&status);
    } else {
        tell(&status);
    }
    if healthy(&status) { Ok(()) } else { Err(Failure::Refused) }
}

fn number(value: &Value, key: &str) -> u64 {
    value.get(key).and_then(Value::as_u64).unwrap_or(0)
}

fn text<'v>(value: &'v Value, key: &str) -> &'v str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn subscribers(status: &Value) -> impl Iterator<Item = &Value> {
    status.get("subscribers").and_then(Value::as_array).into_iter().flatten()
}

fn healthy(status: &Value) -> bool {
    let refused = |subscriber: &Value| {
        subscriber
            .get("lastNack")
            .is_some_and(|nack| number(nack, "revision") > number(subscriber, "ackedRevision"))
    };
    status.get("fault").is_none_or(Value::is_null) && !subscribers(status).any(refused)
}

fn tell(status: &Value) {
    print::line(&format!(
        "snapshot {} (store at {}), edge {} bytes, gateway {} bytes",
        text(status, "version"),
        number(status, "storeRevision"),
        number(status, "edgeBytes"),
        number(status, "gatewayBytes")
    ));
    if let Some(fault) = status.get("fault").and_then(Value::as_str) {
        print::line(&format!("not published: {fault}"));
    }
    for subscriber in subscribers(status) {
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
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

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
    }
}
