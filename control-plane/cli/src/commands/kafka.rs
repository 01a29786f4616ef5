//! `asp kafka`: the topic from which the control plane takes revocations.

use asp_command::environment::ProcessEnvironment;
use asp_command::failure::Failure;
use serde_json::Value;

use super::answer::{self, number, text};
use super::client::{AdminClient, api_path, block_on, with_query};
use crate::args::kafka::KafkaCommand;

const PARKED: &str = "/api/kafka/parked";

/// Runs one of the commands.
pub fn run(command: &KafkaCommand) -> Result<(), Failure> {
    let api = AdminClient::new(&ProcessEnvironment)?;
    block_on(async {
        match command {
            KafkaCommand::Status(args) => {
                let snapshot = api.get("/api/snapshot").await?.accepted()?;
                let topic = snapshot.get("kafka").cloned().unwrap_or_default();
                let shown = if topic.is_null() {
                    "this control plane reads no topic (ASP_KAFKA_BROKERS)".to_owned()
                } else {
                    status_line(&topic)
                };
                answer::show(&topic, args.json, &shown);
            }
            KafkaCommand::Parked(args) => {
                let path = with_query(PARKED, &[("limit", args.limit.to_string())])?;
                let page = api.get(&path).await?.accepted()?;
                answer::rows(&page, args.json, parked_line);
            }
            KafkaCommand::Drop(args) => {
                let path = api_path(&["api", "kafka", "parked", args.id.as_str()]);
                let done = api.delete(&path).await?.accepted()?;
                answer::show(&done, args.json, &format!("{} was deleted", args.id));
            }
        }
        Ok(())
    })
}

/// Describes the topic that a control plane reads.
pub(super) fn status_line(topic: &Value) -> String {
    let standing = match topic.get("connected").and_then(Value::as_bool) {
        Some(true) => format!("read since {}", text(topic, "since")),
        _ => match topic.get("fault").and_then(Value::as_str) {
            Some(fault) => format!("not read since {}: {fault}", text(topic, "since")),
            None => "not read yet".to_owned(),
        },
    };
    let lag = topic.get("lag").and_then(Value::as_u64);
    let lag = lag.map_or_else(|| "no partition here".to_owned(), |lag| format!("{lag} messages wait"));
    let [revoked, repeated, old, parked] =
        ["revoked", "repeated", "old", "parked"].map(|name| number(topic, name));
    format!(
        "topic {} {standing}; {lag}; {revoked} revoked, {repeated} repeated, {old} old, {parked} parked",
        text(topic, "topic")
    )
}

fn parked_line(parked: &Value) -> String {
    let [id, at, fault, message] = ["id", "parkedAt", "fault", "message"].map(|name| text(parked, name));
    format!("{id} {at} {fault}: {message}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn lines_say_what_is_wrong_and_what_can_be_dropped() {
        let mut topic = json!({"topic": "asp.revocations", "connected": true, "since": "2026-01-02T03:04:05.000Z",
            "fault": null, "lag": 2, "revoked": 5, "repeated": 1, "old": 0, "parked": 3});
        assert_eq!(
            status_line(&topic),
            "topic asp.revocations read since 2026-01-02T03:04:05.000Z; 2 messages wait; 5 revoked, 1 repeated, 0 old, 3 parked"
        );
        topic["connected"] = json!(false);
        topic["lag"] = Value::Null;
        assert!(status_line(&topic).contains("not read yet; no partition here"));
        topic["fault"] = json!("refused");
        assert!(status_line(&topic).contains("not read since 2026-01-02T03:04:05.000Z: refused;"));
        let parked =
            json!({"id": "t:0:1", "parkedAt": "2026-01-02T03:04:05.000Z", "fault": "f", "message": "m"});
        assert_eq!(parked_line(&parked), "t:0:1 2026-01-02T03:04:05.000Z f: m");
    }
}
