//! Checkpoints: a call goes on where its worker was lost.

use std::sync::Arc;

use asp_proto::plugin::{
    Checkpoint, ResultChunk, client_message, deliver_user_input::Action, server_message::Payload,
};
use asp_proto::supervisor::tunnel_event;
use asp_store::records::{CallRecords, Orphan, OwnerId};
use http::Method;
use prost_types::value::Kind;
use serde_json::json;
use tokio::sync::Notify;
use tonic::{Code, Status};

use super::takeover::{call_id, request, row, send};
use super::{asks_name, call, fixture, last_result, modern, next_request, until, user_input};
use crate::runtime::{Runtime, Script, Worker, admitted, rejected};
use crate::support::Legacy;

pub(super) fn checkpoint(request_id: &str, seq: u64, capsule: &[u8]) -> Payload {
    Payload::Checkpoint(Checkpoint { request_id: request_id.into(), seq, capsule: capsule.to_vec() })
}

/// Saves a checkpoint and returns the error of its acknowledgement.
pub(super) async fn save(worker: &mut Worker, request_id: &str, seq: u64, capsule: &[u8]) -> String {
    worker.say(checkpoint(request_id, seq, capsule)).await;
    match worker.next().await {
        Some(client_message::Payload::CheckpointAck(ack)) => {
            assert_eq!((ack.request_id.as_str(), ack.seq), (request_id, seq));
            ack.error
        }
        other => panic!("no acknowledgement: {other:?}"),
    }
}

/// Invariant I-13: answers that a call was given before its checkpoint.
#[tokio::test]
async fn a_call_resumes_from_its_checkpoint_with_the_answers_it_was_given() {
    let runtime = Runtime::start(Script::of(|n, mut worker: Worker| async move {
        let invoke = worker.begin(&[("checkpoint", "true")]).await;
        let id = invoke.request_id.clone();
        match n {
            0 => {
                assert!(invoke.resume.is_none());
                worker.say(text_chunk(&id, "first ")).await;
                assert_eq!(save(&mut worker, &id, 1, b"one").await, "");
                worker.say(asks_name(&id)).await;
                assert_eq!(user_input(&mut worker).await.action(), Action::Accept);
                assert_eq!(save(&mut worker, &id, 3, b"three").await, "");
                assert_eq!(save(&mut worker, &id, 2, b"late").await, "stale");
                assert_eq!(save(&mut worker, &id, 4, &vec![0; 65 << 10]).await, "too_large");
                worker.say(text_chunk(&id, "again ")).await;
                worker.crash(true).await;
            }
            // The whole runtime goes away, before and after it says anything.
            1 => worker.cut(Status::unavailable("killed")).await,
            _ => {
                let resume = invoke.resume.clone().unwrap();
                assert_eq!((resume.seq, resume.capsule.as_slice(), resume.attempt), (3, &b"three"[..], 3));
                assert_eq!(resume.user_inputs.len(), 1);
                assert_eq!(resume.user_inputs[0].fields.as_ref().unwrap().value, br#"{"name":"Ada"}"#);
                assert_eq!(save(&mut worker, &id, 4, b"four").await, "");
                worker.say(text_chunk(&id, "again")).await;
                worker.complete(&invoke, &json!({"ok": true})).await;
            }
        }
    }));
    let fixture = fixture(&runtime);
    let client =
        Legacy::connect(&fixture, "plugins", "alice", "2025-11-25", json!({"elicitation": {}})).await;
    let request = json!({"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": {"name": "sweep", "arguments": {}}});
    let mut body = client.open(&request).await.into_body();
    let asked = next_request(&mut body).await;
    let answer = json!({"jsonrpc": "2.0", "id": asked["id"], "result": {"action": "accept", "content": {"name": "Ada"}}});
    assert_eq!(client.post(&answer).await.status.as_u16(), 202);
    let result = next_request(&mut body).await["result"].clone();
    assert_eq!(result["structuredContent"], json!({"ok": true}), "{result}");
    assert_eq!(result["content"][0]["text"], "first again");
    let ids: Vec<String> =
        runtime.told.allocations.lock().iter().map(|a| a.ctx.clone().unwrap().correlation_id).collect();
    assert_eq!(ids.len(), 3);
    assert!(ids.iter().all(|id| *id == ids[0]));
    fixture.gateway.flush().await;
    let call = uuid::Uuid::parse_str(&ids[0]).unwrap();
    assert_eq!(fixture.active.find(*call.as_bytes()).await.unwrap(), None, "the row goes with the call");
}

pub(super) fn text_chunk(request_id: &str, text: &str) -> Payload {
    Payload::Chunk(ResultChunk { request_id: request_id.into(), text: text.into(), ..ResultChunk::default() })
}

#[tokio::test]
async fn a_lost_call_waits_for_a_runtime_that_does_not_take_it_at_once() {
    let script = Script::of(|n, mut worker: Worker| async move {
        let invoke = worker.begin(&[("checkpoint", "true")]).await;
        if n == 0 {
            assert_eq!(save(&mut worker, &invoke.request_id, 1, b"one").await, "");
            return worker.crash(true).await;
        }
        // Refusals are no executions.
        assert_eq!(invoke.resume.as_ref().unwrap().attempt, 2);
        worker.complete(&invoke, &json!({"ok": true})).await;
    });
    let script = script.admitting(|n| match n {
        1 => rejected("overload"),
        2 => rejected("draining"),
        n => admitted(n),
    });
    let runtime = Runtime::start(script);
    let result = call(&fixture(&runtime), "order", json!({})).await.json()["result"].clone();
    assert_eq!(result["structuredContent"], json!({"ok": true}), "{result}");
    // One that is quarantined meanwhile is not waited for.
    let script = Script::of(|_, mut worker: Worker| async move {
        worker.begin(&[("checkpoint", "true")]).await;
        worker.crash(true).await;
    });
    let script = script.admitting(|n| if n == 0 { admitted(n) } else { rejected("quarantined") });
    let runtime = Runtime::start(script);
    let result = call(&fixture(&runtime), "order", json!({})).await.json()["result"].clone();
    assert_eq!(result["_meta"]["asp/reason"], "outcome_unknown", "{result}");
}

/// After a broken stream the runtime ends the former execution within seconds, and refuses the call until then.
#[tokio::test]
async fn a_call_whose_former_execution_has_not_ended_waits_for_it_and_loses_nothing() {
    let runtime = Runtime::start(Script::of(|n, mut worker: Worker| async move {
        let invoke = worker.begin(&[]).await;
        match n {
            0 => worker.cut(Status::unavailable("killed")).await,
            1..=3 => {
                let code = [("code", Kind::NumberValue(f64::from(i32::from(Code::AlreadyExists))))];
                let text = "the worker has a call of this request_id";
                worker.event(tunnel_event::Type::TunnelClosed, text, &code).await;
            }
            _ => worker.complete(&invoke, &json!({"ok": true})).await,
        }
    }));
    let fixture = fixture(&runtime);
    let result = last_result(&call(&fixture, "sweep", json!({})).await);
    assert_eq!(result["structuredContent"], json!({"ok": true}), "{result}");
    assert!(
        fixture
            .send(Method::GET, "/metrics", &[], "")
            .await
            .text
            .contains("asp_worker_lost_total{language=\"python\"} 1\n")
    );
}

#[tokio::test]
async fn what_the_store_holds_of_a_call_is_sealed() {
    let runtime = Runtime::start(Script::of(|_, mut worker: Worker| async move {
        let invoke = worker.begin(&[]).await;
        assert_eq!(save(&mut worker, &invoke.request_id, 1, b"a secret of the plugin").await, "");
        // Until the test has looked.
        while worker.next().await.is_some() {}
    }));
    let fixture = fixture(&runtime);
    let request = modern("order", json!({}));
    let response = request.open(&fixture);
    let looking = async {
        until("a worker is allocated", || !runtime.told.allocations.lock().is_empty()).await;
        let id = runtime.told.allocations.lock()[0].ctx.clone().unwrap().correlation_id;
        let call = *uuid::Uuid::parse_str(&id).unwrap().as_bytes();
        loop {
            if let Some(row) = fixture.active.find(call).await.unwrap() {
                return row;
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    let row = tokio::select! {
        row = looking => row,
        _ = response => panic!("the call ended"),
    };
    assert_eq!((row.org.as_str(), row.plugin.as_str(), row.seq), ("acme", "order@1.0.0", 1));
    assert!(!String::from_utf8_lossy(&row.capsule).contains("secret"));
}

#[tokio::test]
async fn a_question_stays_open_when_its_worker_dies_and_is_asked_once() {
    let runtime = Runtime::start(Script::of(|n, mut worker: Worker| async move {
        let invoke = worker.begin(&[("checkpoint", "true")]).await;
        worker.say(asks_name(&invoke.request_id)).await;
        if n == 0 {
            return worker.crash(true).await;
        }
        assert_eq!(user_input(&mut worker).await.action(), Action::Accept);
        worker.complete(&invoke, &json!({"ok": true})).await;
    }));
    let fixture = fixture(&runtime);
    let client =
        Legacy::connect(&fixture, "plugins", "alice", "2025-11-25", json!({"elicitation": {}})).await;
    let request = json!({"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": {"name": "sweep", "arguments": {}}});
    let mut body = client.open(&request).await.into_body();
    let asked = next_request(&mut body).await;
    until("the second worker runs", || runtime.told.allocations.lock().len() == 2).await;
    let answer = json!({"jsonrpc": "2.0", "id": asked["id"], "result": {"action": "accept", "content": {"name": "Ada"}}});
    assert_eq!(client.post(&answer).await.status.as_u16(), 202);
    let ended = next_request(&mut body).await;
    assert_eq!(ended["result"]["structuredContent"], json!({"ok": true}), "{ended}");
}

/// A gateway that goes on with a call first ends the execution at the one that it took for dead.
#[tokio::test]
async fn a_call_that_was_taken_over_gets_no_further_worker_where_it_was() {
    let crashes = Arc::new(Notify::new());
    let crash = crashes.clone();
    let runtime = Runtime::start(Script::of(move |n, mut worker: Worker| {
        let crash = crash.clone();
        async move {
            let invoke = worker.begin(&[("checkpoint", "true")]).await;
            if n == 0 {
                assert_eq!(save(&mut worker, &invoke.request_id, 1, b"one").await, "");
                crash.notified().await;
                return worker.crash(true).await;
            }
            worker.complete(&invoke, &json!({"ok": true})).await;
        }
    }));
    let fixture = fixture(&runtime);
    let waiting = send(request("order", Some("k")), &fixture);
    let owner = row(&fixture, &runtime, |row| row.seq == 1).await.owner.unwrap();
    let orphan = Orphan { call: call_id(&runtime), owner };
    assert!(fixture.active.take(&orphan, OwnerId([9; 16])).await.unwrap());
    crashes.notify_one();
    let result = last_result(&waiting.await.unwrap());
    assert_eq!(result["_meta"]["asp/reason"], "upstream_unavailable", "{result}");
    assert_eq!(runtime.told.allocations.lock().len(), 1);
}
