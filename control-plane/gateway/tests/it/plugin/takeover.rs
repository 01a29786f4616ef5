//! Calls that outlive their gateway: another one over the same stores goes on with them, exactly once (I-3).
//!
//! A gateway of these tests has no lease, so that another one takes it for dead at once.

use std::sync::Arc;

use asp_gateway::gateway::Gateway;
use asp_proto::plugin::{Failed, cancel_request::Mode, client_message, server_message::Payload};
use asp_store::records::{CallRecord, CallRecords, Orphan, OwnerId, RecordKey, State};
use serde_json::{Value, json};

use super::resume::{checkpoint, save, text_chunk};
use super::{asks_name, fixture, last_result, modern, until, user_input};
use crate::runtime::{Runtime, Script, Worker};
use crate::support::{Answer, Fixture, Modern};

/// A request that declares `elicitation`, under a key where one is given.
pub(super) fn request(name: &str, key: Option<&str>) -> Modern {
    let mut request = modern(name, json!({}));
    let meta = &mut request.body["params"]["_meta"];
    meta["io.modelcontextprotocol/clientCapabilities"] = json!({"elicitation": {}});
    if let Some(key) = key {
        meta["asp/idempotencyKey"] = key.into();
    }
    request
}

pub(super) fn send(request: Modern, fixture: &Fixture) -> tokio::task::JoinHandle<Answer> {
    let fixture = fixture.clone();
    tokio::spawn(async move { request.send(&fixture).await })
}

/// The retry of a `sweep` that answers what it was asked.
pub(super) fn answering(asked: &Value) -> Modern {
    let answer = json!({"action": "accept", "content": {"name": "Ada"}});
    let ids = asked["inputRequests"].as_object().unwrap().keys();
    let answers: serde_json::Map<_, _> = ids.map(|id| (id.clone(), answer.clone())).collect();
    let mut answering = request("sweep", None);
    answering.body["params"]["requestState"] = asked["requestState"].clone();
    answering.body["params"]["inputResponses"] = answers.into();
    answering
}

/// Lets a gateway that lives look for what others left behind.
pub(super) async fn take_over(fixture: &Fixture) {
    fixture.gateway.pipeline.internals().active.renew().await.unwrap();
    tokio::spawn(Gateway::take_over_calls(Arc::downgrade(&fixture.gateway)));
}

/// The row of the only call of a runtime, once `holds`.
pub(super) async fn row(
    fixture: &Fixture,
    runtime: &Runtime,
    holds: impl Fn(&CallRecord) -> bool,
) -> CallRecord {
    until("a worker is allocated", || !runtime.told.allocations.lock().is_empty()).await;
    let call = call_id(runtime);
    loop {
        match fixture.active.find(call).await.unwrap() {
            Some(row) if holds(&row) => return row,
            _ => tokio::time::sleep(std::time::Duration::from_millis(5)).await,
        }
    }
}

/// The id of the only call of a runtime, as stores have it.
pub(super) fn call_id(runtime: &Runtime) -> [u8; 16] {
    let id = runtime.told.allocations.lock()[0].ctx.clone().unwrap().correlation_id;
    *uuid::Uuid::parse_str(&id).unwrap().as_bytes()
}

/// Waits until the row of a call is gone, or says how the call ended.
pub(super) async fn row_ends(fixture: &Fixture, call: [u8; 16]) {
    while fixture.active.find(call).await.unwrap().is_some_and(|row| row.owner.is_some()) {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

/// A worker that saves once and then is silent until its tunnel ends.
pub(super) fn saves_and_hangs() -> Script {
    Script::of(|_, mut worker: Worker| async move {
        let invoke = worker.begin(&[("checkpoint", "true")]).await;
        worker.say(text_chunk(&invoke.request_id, "first ")).await;
        assert_eq!(save(&mut worker, &invoke.request_id, 1, b"one").await, "");
        while worker.next().await.is_some() {}
    })
}

#[tokio::test]
async fn a_call_left_behind_goes_on_from_its_checkpoint_and_its_key_gets_the_answer() {
    let dead = Runtime::start(saves_and_hangs());
    let first = fixture(&dead);
    let _waiting = send(request("order", Some("k")), &first);
    row(&first, &dead, |row| row.seq == 1).await;
    let living = Runtime::start(Script::of(|n, mut worker: Worker| async move {
        assert_eq!(n, 0, "one execution only");
        let invoke = worker.begin(&[("checkpoint", "true")]).await;
        let resume = invoke.resume.clone().unwrap();
        assert_eq!((resume.seq, resume.capsule.as_slice(), resume.attempt), (1, &b"one"[..], 2));
        assert_eq!(invoke.idempotency_key, "k");
        assert_eq!(save(&mut worker, &invoke.request_id, 2, b"two").await, "");
        worker.say(text_chunk(&invoke.request_id, "again")).await;
        worker.complete(&invoke, &json!({"ok": true})).await;
    }));
    let second = first.beside(living.runtimes());
    take_over(&second).await;
    // The retry may come before the call is taken, or after it has ended.
    let retry = request("order", Some("k")).send(&second).await;
    let result = last_result(&retry);
    assert_eq!(result["content"][0]["text"], "first again", "{result}");
    assert_eq!(result["_meta"]["asp/replayed"], true);
    let ids = |runtime: &Runtime| runtime.told.allocations.lock()[0].ctx.clone().unwrap().correlation_id;
    assert_eq!(ids(&living), ids(&dead));
    second.gateway.flush().await;
    let call = uuid::Uuid::parse_str(&ids(&dead)).unwrap();
    let row = first.active.find(*call.as_bytes()).await.unwrap().unwrap();
    assert_eq!((row.state, row.owner, row.resumes), (State::Completed, None, false), "its key was given");
    let events: Vec<String> = first.audit.events().into_iter().map(|event| event.event).collect();
    assert!(events.iter().any(|event| event.contains("call.resume") && event.contains(&ids(&dead))));
}

#[tokio::test]
async fn a_key_alone_keeps_no_record_of_a_call_that_has_ended() {
    let runtime = Runtime::start(Script::of(|_, mut worker: Worker| async move {
        let invoke = worker.begin(&[("checkpoint", "true")]).await;
        assert_eq!(save(&mut worker, &invoke.request_id, 1, b"one").await, "");
        worker.complete(&invoke, &json!({"ok": true})).await;
    }));
    let fixture = fixture(&runtime);
    let first = last_result(&request("order", Some("k")).send(&fixture).await);
    assert_eq!(first["structuredContent"], json!({"ok": true}), "{first}");
    fixture.gateway.flush().await;
    assert_eq!(fixture.active.find(call_id(&runtime)).await.unwrap(), None, "its answer is in the ledger");
    let again = last_result(&request("order", Some("k")).send(&fixture).await);
    assert_eq!(again["_meta"]["asp/replayed"], true, "{again}");
}

#[tokio::test]
async fn a_call_that_has_ended_was_taken_over_by_nobody() {
    let runtime = Runtime::start(Script::of(|_, mut worker: Worker| async move {
        let invoke = worker.begin(&[("checkpoint", "true")]).await;
        worker.say(asks_name(&invoke.request_id)).await;
        user_input(&mut worker).await;
        worker.complete(&invoke, &json!({"ok": true})).await;
    }));
    let fixture = fixture(&runtime);
    let asked = last_result(&request("sweep", None).send(&fixture).await);
    let call = fixture.gateway.pipeline.internals().registry.running().pop().unwrap();
    let answering = answering(&asked);
    let result = last_result(&answering.send(&fixture).await);
    assert_eq!(result["structuredContent"], json!({"ok": true}), "{result}");
    fixture.gateway.flush().await;
    let row = fixture.active.find(call_id(&runtime)).await.unwrap().unwrap();
    assert_eq!(row.owner, None, "it says how the call ended");
    assert!(
        fixture.gateway.pipeline.internals().active.is_ours(&call).await
            && !call.ownership.passed_on.is_set()
    );
}

/// A record takes 8 MiB of JSON text, in which a control character takes six bytes.
#[tokio::test]
async fn what_only_reads_and_is_too_large_for_its_record_is_called_again() {
    let runtime = Runtime::start(Script::of(|_, mut worker: Worker| async move {
        let invoke = worker.begin(&[]).await;
        worker.say(asks_name(&invoke.request_id)).await;
        user_input(&mut worker).await;
        for _ in 0..100 {
            worker.say(text_chunk(&invoke.request_id, &"\u{1}".repeat(16 * 1024))).await;
        }
        worker.complete(&invoke, &json!({"ok": true})).await;
    }));
    let first = fixture(&runtime);
    let asked = last_result(&request("sweep", None).send(&first).await);
    let answering = answering(&asked);
    let result = last_result(&answering.send(&first).await);
    assert_eq!(
        result["isError"],
        false,
        "{}",
        result["content"][0]["text"].as_str().unwrap_or_default().len()
    );
    first.gateway.flush().await;
    let second = first.beside(Runtime::start(saves_and_hangs()).runtimes());
    let told = last_result(&answering.send(&second).await);
    assert_eq!(told["_meta"]["asp/reason"], "upstream_unavailable", "{told}");
    assert!(told.to_string().contains("call again"), "{told}");
}

/// Leaves a call of a gateway that is gone, whose record no other one can open.
pub(super) async fn leave_sealed_elsewhere(fixture: &Fixture, call: [u8; 16]) {
    let key = RecordKey {
        call,
        org: "acme".into(),
        principal: [1; 16],
        user: [1; 16],
        server: "plugins".into(),
        plugin: "sweep@1.0.0".into(),
        context: String::new(),
        created_ms: 0,
        expires_ms: i64::MAX,
        resumes: true,
    };
    fixture.active.put(&key, OwnerId([9; 16]), State::Working, "sealed elsewhere".into()).await.unwrap();
}

#[tokio::test]
async fn calls_that_nobody_can_read_hide_no_other() {
    let dead = Runtime::start(saves_and_hangs());
    let first = fixture(&dead);
    let _waiting = send(request("order", Some("k")), &first);
    row(&first, &dead, |row| row.seq == 1).await;
    for n in 0..200 {
        leave_sealed_elsewhere(&first, [n; 16]).await;
    }
    let living = Runtime::start(Script::of(|_, mut worker: Worker| async move {
        let invoke = worker.begin(&[("checkpoint", "true")]).await;
        worker.complete(&invoke, &json!({"ok": true})).await;
    }));
    let second = first.beside(living.runtimes());
    take_over(&second).await;
    let retry = request("order", Some("k")).send(&second).await;
    assert_eq!(last_result(&retry)["structuredContent"], json!({"ok": true}));
}

#[tokio::test]
async fn a_gateway_gives_up_a_call_that_has_ended_on_another() {
    let runtime = Runtime::start(saves_and_hangs());
    let first = fixture(&runtime);
    let active = first.gateway.pipeline.internals().active.clone();
    active.renew().await.unwrap();
    let waiting = send(request("order", Some("k")), &first);
    let row = row(&first, &runtime, |row| row.seq == 1).await;
    let owner = row.owner.unwrap();
    let call = call_id(&runtime);
    // It is silent for too long; another one takes the call and ends it.
    first.active.renew(owner, std::time::Duration::ZERO).await.unwrap();
    let another = OwnerId([9; 16]);
    assert!(first.active.take(&Orphan { call, owner }, another).await.unwrap());
    first.active.drop_record(call, row.created_ms, another).await.unwrap();
    active.renew().await.unwrap();
    let given_up = waiting.await.unwrap();
    assert_eq!(last_result(&given_up)["_meta"]["asp/reason"], "upstream_unavailable");
}

#[tokio::test]
async fn of_several_gateways_one_goes_on_and_the_one_that_was_thought_dead_gives_up() {
    let (go, went) = tokio::sync::oneshot::channel::<()>();
    let went = Arc::new(tokio::sync::Mutex::new(Some(went)));
    let slow = Runtime::start(Script::of(move |_, mut worker: Worker| {
        let went = went.clone();
        async move {
            let invoke = worker.begin(&[("checkpoint", "true")]).await;
            assert_eq!(save(&mut worker, &invoke.request_id, 1, b"one").await, "");
            went.lock().await.take().unwrap().await.unwrap();
            worker.say(checkpoint(&invoke.request_id, 2, b"late")).await;
            // Refused, or the tunnel is closed already.
            while let Some(message) = worker.next().await {
                if let client_message::Payload::CheckpointAck(ack) = message {
                    assert_eq!(ack.error, "unavailable");
                }
            }
        }
    }));
    let first = fixture(&slow);
    let waiting = send(request("order", Some("k")), &first);
    row(&first, &slow, |row| row.seq == 1).await;
    let living = Runtime::start(Script::of(|_, mut worker: Worker| async move {
        let invoke = worker.begin(&[("checkpoint", "true")]).await;
        worker.complete(&invoke, &json!({"ok": true})).await;
    }));
    let others: Vec<Fixture> = (0..3).map(|_| first.beside(living.runtimes())).collect();
    for other in &others {
        take_over(other).await;
    }
    let retry = request("order", Some("k")).send(&others[0]).await;
    assert_eq!(last_result(&retry)["structuredContent"], json!({"ok": true}));
    go.send(()).unwrap();
    let given_up = waiting.await.unwrap();
    let result = last_result(&given_up);
    assert_eq!(result["_meta"]["asp/reason"], "upstream_unavailable", "{result}");
    assert_eq!(living.told.allocations.lock().len(), 1, "exactly one takes it");
    // What the slow one did after does not touch the answer.
    let again = request("order", Some("k")).send(&first).await;
    assert_eq!(last_result(&again)["structuredContent"], json!({"ok": true}));
}

#[tokio::test]
async fn a_retry_answers_what_a_call_left_behind_asks() {
    let dead = Runtime::start(saves_and_hangs());
    let first = fixture(&dead);
    let _waiting = send(request("book", Some("k")), &first);
    row(&first, &dead, |row| row.seq == 1).await;
    let living = Runtime::start(Script::of(|_, mut worker: Worker| async move {
        let invoke = worker.begin(&[("checkpoint", "true")]).await;
        worker.say(asks_name(&invoke.request_id)).await;
        let given = user_input(&mut worker).await;
        assert_eq!(given.fields.unwrap().value, br#"{"name":"Ada"}"#);
        worker.complete(&invoke, &json!({"ok": true})).await;
    }));
    let second = first.beside(living.runtimes());
    take_over(&second).await;
    let asked = last_result(&request("book", Some("k")).send(&second).await);
    assert_eq!(asked["resultType"], "input_required", "{asked}");
    let mut answering = request("book", Some("k"));
    let answer = json!({"action": "accept", "content": {"name": "Ada"}});
    answering.body["params"]["requestState"] = asked["requestState"].clone();
    answering.body["params"]["inputResponses"] = json!({"plugins.name": answer});
    let result = last_result(&answering.send(&second).await);
    assert_eq!(result["structuredContent"], json!({"ok": true}), "{result}");
}

#[tokio::test]
async fn a_request_state_opens_at_the_gateway_that_goes_on_and_nobody_is_asked_twice() {
    let dead = Runtime::start(Script::of(|_, mut worker: Worker| async move {
        let invoke = worker.begin(&[("checkpoint", "true")]).await;
        worker.say(asks_name(&invoke.request_id)).await;
        while worker.next().await.is_some() {}
    }));
    let first = fixture(&dead);
    let asked = last_result(&request("sweep", None).send(&first).await);
    let ids: Vec<String> = asked["inputRequests"].as_object().unwrap().keys().cloned().collect();
    row(&first, &dead, |row| !row.memory.is_empty()).await;
    let living = Runtime::start(Script::of(|_, mut worker: Worker| async move {
        let invoke = worker.begin(&[("checkpoint", "true")]).await;
        assert_eq!(invoke.resume.as_ref().unwrap().attempt, 2);
        worker.say(asks_name(&invoke.request_id)).await;
        user_input(&mut worker).await;
        worker.complete(&invoke, &json!({"ok": true})).await;
    }));
    let second = first.beside(living.runtimes());
    take_over(&second).await;
    let answer = |state: &Value| {
        let mut answering = request("sweep", None);
        answering.body["params"]["requestState"] = state.clone();
        answering.body["params"]["inputResponses"] =
            json!({&ids[0]: {"action": "accept", "content": {"name": "Ada"}}});
        answering
    };
    let result = last_result(&answer(&asked["requestState"]).send(&second).await);
    assert_eq!(result["structuredContent"], json!({"ok": true}), "{result}");
    // The answer is there for whoever missed it; a state that names nothing is refused.
    let again = last_result(&answer(&asked["requestState"]).send(&second).await);
    assert_eq!(again["structuredContent"], json!({"ok": true}), "{again}");
    let refused = answer(&json!("AAAA")).send(&second).await;
    assert_eq!(refused.json()["error"]["code"], -32602);
}

#[tokio::test]
async fn what_can_neither_resume_nor_repeat_is_recorded_as_unknown() {
    let dead = Runtime::start(Script::of(|_, mut worker: Worker| async move {
        worker.begin(&[]).await;
        while worker.next().await.is_some() {}
    }));
    let first = fixture(&dead);
    let _waiting = send(request("order", Some("k")), &first);
    row(&first, &dead, |_| true).await;
    let living = Runtime::start(Script::of(|_, _: Worker| async move { panic!("it must not run") }));
    let second = first.beside(living.runtimes());
    take_over(&second).await;
    let result = last_result(&request("order", Some("k")).send(&second).await);
    assert_eq!(result["_meta"]["asp/reason"], "outcome_unknown", "{result}");
    assert!(living.told.allocations.lock().is_empty());
}

#[tokio::test]
async fn a_call_whose_key_another_execution_has_does_not_go_on() {
    let dead = Runtime::start(saves_and_hangs());
    let first = fixture(&dead);
    let _waiting = send(request("order", Some("k")), &first);
    row(&first, &dead, |row| row.seq == 1).await;
    let (go, went) = tokio::sync::oneshot::channel::<()>();
    let went = Arc::new(tokio::sync::Mutex::new(Some(went)));
    let living = Runtime::start(Script::of(move |n, mut worker: Worker| {
        let went = went.clone();
        async move {
            assert_eq!(n, 0, "one execution only");
            let invoke = worker.begin(&[("checkpoint", "true")]).await;
            assert!(invoke.resume.is_none(), "it begins anew");
            went.lock().await.take().unwrap().await.unwrap();
            worker.complete(&invoke, &json!({"ok": true})).await;
        }
    }));
    // The key was given back, and its giver died before the row was gone.
    let second = Fixture { ledger: Arc::default(), ..first.clone() }.beside(living.runtimes());
    let anew = send(request("order", Some("k")), &second);
    until("it executes", || !living.told.allocations.lock().is_empty()).await;
    take_over(&second).await;
    row_ends(&first, call_id(&dead)).await;
    go.send(()).unwrap();
    assert_eq!(last_result(&anew.await.unwrap())["structuredContent"], json!({"ok": true}));
    assert_eq!(living.told.allocations.lock().len(), 1);
}

/// A record that only describes a call is not enough to continue it.
#[tokio::test]
async fn a_suspended_call_that_saved_nothing_is_not_begun_anew() {
    let dead = Runtime::start(Script::of(|_, mut worker: Worker| async move {
        let invoke = worker.begin(&[]).await;
        worker.say(asks_name(&invoke.request_id)).await;
        while worker.next().await.is_some() {}
    }));
    let first = fixture(&dead);
    let asked = last_result(&request("sweep", None).send(&first).await);
    assert_eq!(asked["resultType"], "input_required", "{asked}");
    let waits = row(&first, &dead, |row| row.state == State::InputRequired).await;
    let living = Runtime::start(Script::of(|_, mut worker: Worker| async move {
        let invoke = worker.begin(&[]).await;
        worker.complete(&invoke, &json!({"ok": true})).await;
    }));
    let second = first.beside(living.runtimes()).gateway;
    second.pipeline.internals().active.renew().await.unwrap();
    let snapshot = Arc::new(asp_snapshot::Snapshot::build(crate::support::snapshot()).unwrap());
    second.pipeline.take_over(&snapshot).await.unwrap();
    assert_eq!(first.active.find(call_id(&dead)).await.unwrap(), Some(waits), "it is left as it was");
    assert!(second.pipeline.internals().registry.is_empty());
}

#[tokio::test]
async fn a_call_whose_key_is_free_has_ended() {
    let dead = Runtime::start(saves_and_hangs());
    let first = fixture(&dead);
    let _waiting = send(request("order", Some("k")), &first);
    row(&first, &dead, |row| row.seq == 1).await;
    let living = Runtime::start(Script::of(|_, mut worker: Worker| async move {
        let invoke = worker.begin(&[]).await;
        worker.complete(&invoke, &json!({"ok": true})).await;
    }));
    let second = Fixture { ledger: Arc::default(), ..first.clone() }.beside(living.runtimes());
    take_over(&second).await;
    row_ends(&first, call_id(&dead)).await;
    assert!(living.told.allocations.lock().is_empty(), "it does not run");
    let anew = last_result(&request("order", Some("k")).send(&second).await);
    assert_eq!(anew["structuredContent"], json!({"ok": true}), "the key is free");
    assert!(anew["_meta"].get("asp/replayed").is_none(), "{anew}");
}

#[tokio::test]
async fn a_call_that_had_not_begun_may_begin_again_and_then_does_not_begin_where_it_was() {
    let idle = Runtime::start(Script::of(|_, mut worker: Worker| async move {
        let invoke = worker.begin(&[]).await;
        worker.complete(&invoke, &json!({"ok": true})).await;
    }));
    let approval = |asked: &Value| {
        let mut approving = request("purge", Some("k"));
        approving.body["params"]["requestState"] = asked["requestState"].clone();
        approving.body["params"]["inputResponses"] =
            json!({"asp.approve": {"action": "accept", "content": {"approve": true}}});
        approving
    };
    let first = fixture(&idle);
    let asked_first = last_result(&request("purge", Some("k")).send(&first).await);
    assert_eq!(asked_first["resultType"], "input_required", "{asked_first}");
    let second = first.beside(idle.runtimes());
    take_over(&second).await;
    // Another request under the key, at a gateway that knows nothing of the first one's question.
    let asked = last_result(&request("purge", Some("k")).send(&second).await);
    assert!(asked["inputRequests"]["asp.approve"].is_object(), "{asked}");
    let result = last_result(&approval(&asked).send(&second).await);
    assert_eq!(result["structuredContent"], json!({"ok": true}), "{result}");
    // The first gateway was only slow.
    let late = approval(&asked_first).send(&first).await;
    assert_eq!(late.reason(), "upstream_unavailable", "{}", late.text);
    assert!(late.text.contains("send this again"), "{}", late.text);
    assert_eq!(idle.told.allocations.lock().len(), 1);
}

#[tokio::test]
async fn a_gateway_that_ends_lets_its_calls_yield_and_another_one_finishes_them() {
    let ending = Runtime::start(Script::of(|_, mut worker: Worker| async move {
        let invoke = worker.begin(&[("checkpoint", "true")]).await;
        let id = invoke.request_id.clone();
        assert_eq!(save(&mut worker, &id, 1, b"one").await, "");
        let Some(client_message::Payload::Cancel(cancel)) = worker.next().await else { panic!("no cancel") };
        assert_eq!(cancel.mode(), Mode::Preempt);
        assert_eq!(save(&mut worker, &id, 2, b"two").await, "");
        let code = "CANCELLED".into();
        worker
            .say(Payload::Failed(Failed { request_id: id, code, yielded: true, ..Failed::default() }))
            .await;
    }));
    let first = fixture(&ending);
    let waiting = send(request("order", Some("k")), &first);
    row(&first, &ending, |row| row.seq == 1).await;
    first.gateway.stop().await;
    let told = last_result(&waiting.await.unwrap());
    assert_eq!(told["_meta"]["asp/reason"], "upstream_unavailable", "{told}");
    let living = Runtime::start(Script::of(|_, mut worker: Worker| async move {
        let invoke = worker.begin(&[("checkpoint", "true")]).await;
        assert_eq!(invoke.resume.as_ref().unwrap().capsule, b"two");
        worker.complete(&invoke, &json!({"ok": true})).await;
    }));
    let second = first.beside(living.runtimes());
    take_over(&second).await;
    let result = last_result(&request("order", Some("k")).send(&second).await);
    assert_eq!(result["structuredContent"], json!({"ok": true}), "{result}");
}
