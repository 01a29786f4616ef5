//! Calls of a gateway that is gone: each has one end in the audit, the one that its client gets.

use std::sync::Arc;
use std::time::Duration;

use asp_call::digest;
use asp_proto::plugin::{Failed, server_message::Payload};
use asp_store::audit::{AuditLog, CallEvent};
use asp_store::ledger::{Answer, Holder, Ledger, LedgerKey};
use bytes::Bytes;
use serde_json::{Value, json};

use super::resume::save;
use super::takeover::{call_id, request, row, row_ends, saves_and_hangs, send, take_over};
use super::{fixture, last_result, until};
use crate::runtime::{Runtime, Script, Worker};
use crate::support::Fixture;

/// A runtime at which nothing may run.
fn idle() -> Runtime {
    Runtime::start(Script::of(|_, _: Worker| async move { panic!("it must not run") }))
}

/// The events of a call in the audit.
fn events(fixture: &Fixture, call: [u8; 16]) -> Vec<CallEvent> {
    let id = format!("\"call\":\"{}\"", uuid::Uuid::from_bytes(call));
    fixture.audit.events().into_iter().filter(|event| event.event.contains(&id)).collect()
}

/// The reasons of the last events of a call in the audit.
fn ends(fixture: &Fixture, call: [u8; 16]) -> Vec<Value> {
    let all = events(fixture, call).into_iter();
    let all = all.map(|event| serde_json::from_str::<Value>(&event.event).unwrap());
    all.filter(|event| event["event"] == "call.finish").map(|event| event["reason"].clone()).collect()
}

/// Stores the answer of the only call of a gateway under its key, after which the gateway is lost.
async fn answer(fixture: &Fixture) {
    let parts = fixture.gateway.pipeline.internals();
    let call = parts.registry.running().pop().unwrap();
    let claim = call.ownership.claim().unwrap();
    let owner = parts.active.owner().0;
    let holder = Holder { call: call.id.into_bytes(), owner, org: digest::short(&call.caller.org) };
    let text =
        json!({"Output": {"kind": "tool", "content": [], "structured": {"ok": true}, "is_error": false}});
    let stored = Answer::whole(Bytes::from(text.to_string()));
    let completing = fixture.ledger.complete(LedgerKey(claim.key), holder, stored, Duration::from_secs(60));
    assert!(completing.await.unwrap());
}

#[tokio::test]
async fn a_call_that_was_answered_before_its_gateway_was_lost_ends_as_it_was_answered() {
    let dead = Runtime::start(saves_and_hangs());
    let first = fixture(&dead);
    let _waiting = send(request("order", Some("k")), &first);
    row(&first, &dead, |row| row.seq == 1).await;
    answer(&first).await;
    let living = idle();
    let second = first.beside(living.runtimes());
    take_over(&second).await;
    row_ends(&first, call_id(&dead)).await;
    second.gateway.flush().await;
    assert_eq!(ends(&first, call_id(&dead)), [json!("ok")]);
    let retry = last_result(&request("order", Some("k")).send(&second).await);
    assert_eq!(retry["structuredContent"], json!({"ok": true}), "{retry}");
}

#[tokio::test]
async fn a_call_whose_lost_gateway_wrote_its_end_gets_no_other() {
    let dead = Runtime::start(saves_and_hangs());
    let first = fixture(&dead);
    let _waiting = send(request("order", Some("k")), &first);
    row(&first, &dead, |row| row.seq == 1).await;
    let call = call_id(&dead);
    until("the audit has its start", || !events(&first, call).is_empty()).await;
    let start = events(&first, call).remove(0);
    let text = start.event.replace("call.start", "call.finish").replacen('{', "{\"reason\":\"ok\",", 1);
    first.audit.append(&[CallEvent { event: text, ..start }]).await.unwrap();
    answer(&first).await;
    let living = idle();
    let second = first.beside(living.runtimes());
    take_over(&second).await;
    row_ends(&first, call).await;
    second.gateway.flush().await;
    assert_eq!(ends(&first, call), [json!("ok")]);
}

#[tokio::test]
async fn a_call_whose_key_is_gone_ends_as_unknown() {
    let dead = Runtime::start(saves_and_hangs());
    let first = fixture(&dead);
    let _waiting = send(request("order", Some("k")), &first);
    row(&first, &dead, |row| row.seq == 1).await;
    let living = idle();
    let second = Fixture { ledger: Arc::default(), ..first.clone() }.beside(living.runtimes());
    take_over(&second).await;
    row_ends(&first, call_id(&dead)).await;
    second.gateway.flush().await;
    assert_eq!(ends(&first, call_id(&dead)), [json!("outcome_unknown")]);
}

#[tokio::test]
async fn a_call_that_a_stopping_gateway_leaves_ends_once_where_it_is_continued() {
    let ending = Runtime::start(Script::of(|_, mut worker: Worker| async move {
        let invoke = worker.begin(&[("checkpoint", "true")]).await;
        let id = invoke.request_id.clone();
        assert_eq!(save(&mut worker, &id, 1, b"one").await, "");
        // The request to yield.
        worker.next().await;
        let code = "CANCELLED".into();
        let failed = Failed { request_id: id, code, yielded: true, ..Failed::default() };
        worker.say(Payload::Failed(failed)).await;
    }));
    let first = fixture(&ending);
    let waiting = send(request("order", Some("k")), &first);
    row(&first, &ending, |row| row.seq == 1).await;
    let call = call_id(&ending);
    first.gateway.stop().await;
    let left = last_result(&waiting.await.unwrap());
    assert_eq!(left["_meta"]["asp/reason"], "upstream_unavailable", "{left}");
    assert_eq!((events(&first, call).len(), ends(&first, call)), (1, Vec::new()), "it has begun");
    let living = Runtime::start(Script::of(|_, mut worker: Worker| async move {
        let invoke = worker.begin(&[("checkpoint", "true")]).await;
        worker.complete(&invoke, &json!({"ok": true})).await;
    }));
    let second = first.beside(living.runtimes());
    take_over(&second).await;
    until("the audit has its end", || !ends(&first, call).is_empty()).await;
    assert_eq!(ends(&first, call), [json!("ok")]);
}
