//! Streams of tasks.

use std::sync::Arc;
use std::time::Duration;

use asp_call::call::event::Event;
use asp_gateway::gateway::Shared;
use asp_proto::plugin::server_message::Payload;
use asp_proto::plugin::{Progress, StatusUpdated};
use asp_proto::snapshot::RevokedBefore;
use asp_registry::assemble;
use asp_store::outbox::{AppendOutcome, Batch, MemoryOutbox, Outbox, OutboxError, StoredEvents};
use asp_store::records::{CallId, OwnerId};
use async_trait::async_trait;
use http::Method;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use uuid::Uuid;

use super::questions::{reply, shared};
use super::{Client, fixture, message, message_id, snapshot, speaking, with_plugins};
use crate::plugin::{asks_name, user_input};
use crate::runtime::{Runtime, Script, Worker};

/// The results in a stream of JSON-RPC responses.
fn results(events: Vec<Value>) -> Vec<Value> {
    events.into_iter().map(|event| event["result"].clone()).collect()
}

#[tokio::test]
async fn a_stream_has_the_task_its_changes_its_result_and_the_task_again() {
    let fixture = fixture();
    let client = Client::of(&fixture, "demo");
    let params = message("count", json!({"to": 3, "delayMs": 10}));
    let events = results(client.call("SendStreamingMessage", params).await.events());
    assert_eq!(events[0]["task"]["status"]["state"], "TASK_STATE_SUBMITTED", "{events:?}");
    let steps: Vec<u64> = events
        .iter()
        .filter_map(|event| event["statusUpdate"]["metadata"].get("asp/progress"))
        .filter_map(|progress| progress["progress"].as_u64())
        .collect();
    assert_eq!(steps, [1, 2, 3]);
    let [.., result, status, task] = events.as_slice() else { panic!("{events:?}") };
    let artifact = &result["artifactUpdate"];
    assert_eq!(
        (&artifact["artifact"]["artifactId"], &artifact["lastChunk"]),
        (&json!("result"), &json!(true))
    );
    assert_eq!(status["statusUpdate"]["status"]["state"], "TASK_STATE_COMPLETED");
    assert_eq!(task["task"]["artifacts"][0], artifact["artifact"]);
    let id = events[0]["task"]["id"].clone();
    assert_eq!(client.refused("SubscribeToTask", json!({"id": id})).await, (200, -32004), "it has ended");
}

#[tokio::test]
async fn a_stream_of_the_earlier_version_ends_with_its_final_state() {
    let fixture = fixture();
    let client = Client::of(&fixture, "demo");
    let params = json!({"message": {"kind": "message", "messageId": message_id(), "role": "user",
        "parts": [{"kind": "data", "data": {"skill": "count", "arguments": {"to": 1, "delayMs": 0}}}]}});
    let events = results(client.call("message/stream", params).await.events());
    let kinds: Vec<&str> = events.iter().filter_map(|event| event["kind"].as_str()).collect();
    assert_eq!(kinds.iter().filter(|kind| **kind == "task").count(), 1, "clients accept one: {kinds:?}");
    let finals: Vec<bool> = events.iter().filter_map(|event| event["final"].as_bool()).collect();
    assert_eq!((finals.last(), finals.iter().filter(|is_final| **is_final).count()), (Some(&true), 1));
    assert_eq!(events.last().unwrap()["status"]["state"], "completed");
}

#[tokio::test]
async fn a_task_is_followed_over_rest_from_where_it_is_and_goes_on_without_a_stream() {
    let fixture = fixture();
    let client = Client::of(&fixture, "demo");
    let mut params = message("count", json!({"to": 5, "delayMs": 100}));
    params["configuration"] = json!({"returnImmediately": true});
    let id = client.result("SendMessage", params).await["task"]["id"].as_str().unwrap().to_owned();
    for method in [Method::GET, Method::POST] {
        let headers: Vec<(&str, &str)> =
            client.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        // Dropped at once: the task does not end.
        fixture.open(method, &format!("/demo/a2a/tasks/{id}:subscribe"), &headers, "").await;
    }
    let events = client.send(Method::POST, &format!("/tasks/{id}:subscribe"), "").await.events();
    assert_eq!(events[0]["task"]["id"], id.as_str(), "{events:?}");
    let last = &events.last().unwrap()["task"];
    assert_eq!((&last["status"]["state"], &last["id"]), (&json!("TASK_STATE_COMPLETED"), &json!(id)));
}

#[tokio::test]
async fn a_blocked_callers_stream_ends_with_the_reason_and_nothing_more_is_answered() {
    let fixture = fixture();
    let client = Client::of(&fixture, "demo");
    let headers: Vec<(&str, &str)> =
        client.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let params = message("count", json!({"to": 100, "delayMs": 100}));
    let request = json!({"jsonrpc": "2.0", "id": 7, "method": "SendStreamingMessage", "params": params});
    let answer = fixture.open(Method::POST, "/demo/a2a", &headers, &request.to_string()).await;
    let mut inputs = speaking();
    inputs.revision = 2;
    inputs.revoked_before = vec![RevokedBefore {
        org: "acme".into(),
        user: "alice".into(),
        not_after_iat: u64::MAX,
        since_ms: 1_000,
        reason: "left the company".into(),
        block: true,
    }];
    fixture.gateway.apply(assemble(inputs)).unwrap();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    let text = String::from_utf8(body.to_vec()).unwrap();
    let last = text.lines().filter_map(|line| line.strip_prefix("data: ")).next_back().unwrap_or(&text);
    let reason = "the caller has been blocked since 1970-01-01T00:00:01Z: left the company";
    assert!(last.contains(reason), "{text}");
    assert_eq!(client.refused("GetTask", json!({"id": "any"})).await, (403, -32000));
}

#[tokio::test]
async fn progress_has_a_phase_from_before_the_client_subscribed() {
    let runtime = Runtime::start(Script::of(|_, mut worker: Worker| async move {
        let invoke = worker.begin(&[]).await;
        let request_id = invoke.request_id.clone();
        let phase = "SCANNING".to_owned();
        let status = StatusUpdated { request_id: request_id.clone(), phase, ..StatusUpdated::default() };
        worker.say(Payload::Status(status)).await;
        worker.say(asks_name(&invoke.request_id)).await;
        user_input(&mut worker).await;
        let message = "Scanning…".to_owned();
        let progress = Progress { request_id, percent: 62.0, message, ..Progress::default() };
        worker.say(Payload::Progress(progress)).await;
        worker.complete(&invoke, &json!({"ok": true})).await;
    }));
    let fixture = with_plugins(&runtime);
    let client = Client::of(&fixture, "plugins");
    let task = client.result("SendMessage", message("sweep", json!({}))).await["task"].clone();
    let headers: Vec<(&str, &str)> =
        client.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let params = json!({"id": task["id"]});
    let request = json!({"jsonrpc": "2.0", "id": 7, "method": "SubscribeToTask", "params": params});
    let answer = fixture.open(Method::POST, "/plugins/a2a", &headers, &request.to_string()).await;
    client.result("SendMessage", reply(&task, &json!([{"text": "Ada"}]))).await;
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    let text = std::str::from_utf8(&body).unwrap();
    let parts = r#"[{"text":"Scanning…"},{"data":{"phase":"SCANNING","progressPct":62}}]"#;
    assert!(text.contains(parts), "{text}");
}

/// An outbox to which it is a long way.
#[derive(Default)]
struct DistantOutbox(MemoryOutbox);

#[async_trait]
impl Outbox for DistantOutbox {
    async fn append(
        &self,
        call: CallId,
        owner: OwnerId,
        batch: Batch<'_>,
        keep: Duration,
    ) -> Result<AppendOutcome, OutboxError> {
        tokio::time::sleep(Duration::from_millis(50)).await;
        self.0.append(call, owner, batch, keep).await
    }

    async fn take(
        &self,
        call: CallId,
        owner: OwnerId,
        keep: Duration,
    ) -> Result<Option<StoredEvents>, OutboxError> {
        self.0.take(call, owner, keep).await
    }

    async fn read(&self, call: CallId, from: u64) -> Result<Option<StoredEvents>, OutboxError> {
        self.0.read(call, from).await
    }
}

/// I-3: a client whose gateway is lost finds all that it has seen at another one.
#[tokio::test]
async fn other_gateways_can_read_an_event_before_a_client_gets_it() {
    let outbox = Arc::new(DistantOutbox::default());
    let base = fixture();
    let fixture = base.with_stores(snapshot(), |stores| {
        stores.active = base.active.clone();
        stores.ledger = base.ledger.clone();
        stores.shared = Some(Shared { outbox: outbox.clone(), ..shared() });
    });
    fixture.gateway.pipeline.internals().active.renew().await.unwrap();
    let client = Client::of(&fixture, "demo");
    let headers: Vec<(&str, &str)> =
        client.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let params = message("count", json!({"to": 3, "delayMs": 10}));
    let request = json!({"jsonrpc": "2.0", "id": 7, "method": "SendStreamingMessage", "params": params});
    let answer = fixture.open(Method::POST, "/demo/a2a", &headers, &request.to_string()).await;
    let mut body = answer.into_body();
    let mut steps = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.unwrap().into_data().unwrap();
        let Some(data) = std::str::from_utf8(&frame).unwrap().strip_prefix("data: ") else { continue };
        let event: Value = serde_json::from_str(data.trim_end()).unwrap();
        let update = &event["result"]["statusUpdate"];
        if update["metadata"]["asp/progress"].is_null() {
            continue;
        }
        steps += 1;
        let task = Uuid::parse_str(update["taskId"].as_str().unwrap()).unwrap();
        let stored = outbox.read(task.into_bytes(), 0).await.unwrap().expect("the events of the task");
        // The event with number 0 has generation 2.
        let generation = update["metadata"]["asp/generation"].as_u64().unwrap();
        assert!(generation <= stored.next() + 1, "{} is stored: {event}", stored.next());
    }
    assert_eq!(steps, 3);
}

/// The events that are left come in order, after a report of those that are not.
#[tokio::test]
async fn a_stream_that_lost_events_reports_it_and_its_generations_rise() {
    let fixture = fixture();
    let client = Client::of(&fixture, "demo");
    let mut params = message("count", json!({"to": 100, "delayMs": 1000}));
    params["configuration"] = json!({"returnImmediately": true});
    let id = client.result("SendMessage", params).await["task"]["id"].clone();
    let headers: Vec<(&str, &str)> =
        client.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let request = json!({"jsonrpc": "2.0", "id": 7, "method": "SubscribeToTask", "params": {"id": id}});
    let answer = fixture.open(Method::POST, "/demo/a2a", &headers, &request.to_string()).await;
    let call = fixture.gateway.pipeline.internals().registry.running().pop().unwrap();
    // More than the log keeps, before the stream reads any.
    for phase in 0..300 {
        call.emit(Event::Status { phase: phase.to_string(), message: None });
    }
    call.cancel();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    let text = std::str::from_utf8(&body).unwrap();
    let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
    let events: Vec<Value> = data.map(|data| serde_json::from_str(data).unwrap()).collect();
    let updates: Vec<&Value> = events
        .iter()
        .map(|event| &event["result"]["statusUpdate"]["metadata"])
        .filter(|metadata| metadata.is_object())
        .collect();
    let gaps: Vec<u64> = updates.iter().filter_map(|metadata| metadata["asp/gap"].as_u64()).collect();
    assert!(matches!(gaps[..], [lost] if lost > 0), "{gaps:?}");
    let generation = |metadata: &Value| metadata["asp/generation"].as_u64().unwrap();
    let all: Vec<u64> = updates.iter().map(|metadata| generation(metadata)).collect();
    assert!(all.len() > 250 && all.is_sorted(), "{all:?}");
    let shown = updates.iter().filter(|metadata| metadata.get("asp/gap").is_none());
    let shown: Vec<u64> = shown.map(|metadata| generation(metadata)).collect();
    assert!(shown.is_sorted_by(|one, next| one < next), "each event has its own: {shown:?}");
}
