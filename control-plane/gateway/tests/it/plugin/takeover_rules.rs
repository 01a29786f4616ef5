//! Current policy for a call that another gateway left behind, its arguments included: whether it may continue, and
//! whether a person must approve it first.

use asp_proto::snapshot::condition::Test;
use asp_proto::snapshot::{Binding, Condition, GatewaySnapshot, Protocol, Scalars, TargetKind};
use asp_registry::{Inputs, assemble};
use asp_store::records::CallRecords;
use serde_json::{Value, json};

use super::takeover::{call_id, request, row, row_ends, saves_and_hangs, send, take_over};
use super::{fixture, last_result, until};
use crate::runtime::{Runtime, Script, Worker};
use crate::support::{Fixture, Modern, inputs};

/// The rules of calls of `order` with `n` = 1, its default.
fn ruled(revision: u64, approval: bool) -> GatewaySnapshot {
    let equals = Test::Equals(Scalars { json: vec!["1".into()] });
    let rule = Binding {
        org: "acme".into(),
        target_kind: TargetKind::User.into(),
        target: "*".into(),
        primitive: "order".into(),
        protocol: Protocol::Unspecified.into(),
        approval,
        when: vec![Condition { pointer: "/n".into(), test: Some(equals) }],
        name: "small".into(),
        ..Binding::default()
    };
    GatewaySnapshot { revision, ..assemble(Inputs { bindings: vec![rule], ..inputs() }) }
}

/// Another gateway, by whose snapshot a call that was left behind goes on.
async fn successor(first: &Fixture, living: &Runtime, snapshot: GatewaySnapshot) -> Fixture {
    let second = first.beside(living.runtimes());
    second.gateway.apply(snapshot).unwrap();
    take_over(&second).await;
    second
}

fn finishes() -> Script {
    Script::of(|n, mut worker: Worker| async move {
        assert_eq!(n, 0, "one execution only");
        let invoke = worker.begin(&[("checkpoint", "true")]).await;
        assert_eq!(invoke.resume.as_ref().unwrap().seq, 1);
        worker.complete(&invoke, &json!({"ok": true})).await;
    })
}

fn never() -> Script {
    Script::of(|_, _: Worker| async move { panic!("it must not run") })
}

/// An order that its gateway leaves behind once it has saved something.
async fn left_behind() -> (Fixture, Runtime) {
    let dead = Runtime::start(saves_and_hangs());
    let first = fixture(&dead);
    let _waiting = send(request("order", Some("k")), &first);
    row(&first, &dead, |row| row.seq == 1).await;
    (first, dead)
}

/// The answer to the one question that was asked.
fn approving(asked: &Value, content: Value) -> Modern {
    assert_eq!(asked["resultType"], "input_required", "{asked}");
    let ids: Vec<&String> = asked["inputRequests"].as_object().unwrap().keys().collect();
    assert_eq!(ids, ["asp.approve"]);
    let message = asked["inputRequests"]["asp.approve"]["params"]["message"].as_str().unwrap();
    assert!(message.contains("A rule of your organization"), "{message}");
    let mut answering = request("order", Some("k"));
    answering.body["params"]["requestState"] = asked["requestState"].clone();
    answering.body["params"]["inputResponses"] = json!({"asp.approve": content});
    answering
}

fn yes() -> Value {
    json!({"action": "accept", "content": {"approve": true}})
}

#[tokio::test]
async fn a_rule_that_denies_by_now_ends_a_call_that_was_left_behind() {
    let (first, dead) = left_behind().await;
    let living = Runtime::start(never());
    let second = successor(&first, &living, ruled(2, false)).await;
    row_ends(&first, call_id(&dead)).await;
    assert!(living.told.allocations.lock().is_empty());
    // Whoever may ask again is told that nobody knows.
    second.gateway.apply(GatewaySnapshot { revision: 3, ..crate::support::snapshot() }).unwrap();
    let told = last_result(&request("order", Some("k")).send(&second).await);
    assert_eq!(told["_meta"]["asp/reason"], "outcome_unknown", "{told}");
}

/// Invariant I-13.
#[tokio::test]
async fn an_approval_that_was_given_counts_at_the_gateway_that_goes_on() {
    let dead = Runtime::start(saves_and_hangs());
    let first = Fixture::with(ruled(1, true), 7, dead.runtimes());
    let asked = last_result(&request("order", Some("k")).send(&first).await);
    let _waiting = send(approving(&asked, yes()), &first);
    row(&first, &dead, |row| row.seq == 1).await;
    let living = Runtime::start(finishes());
    let second = successor(&first, &living, ruled(2, true)).await;
    until("it goes on, and nobody is asked", || !living.told.allocations.lock().is_empty()).await;
    let told = last_result(&request("order", Some("k")).send(&second).await);
    assert_eq!(told["structuredContent"], json!({"ok": true}), "{told}");
}

#[tokio::test]
async fn an_approval_that_is_wanted_by_now_is_asked_for_once_before_a_call_goes_on() {
    let (first, dead) = left_behind().await;
    // The one that asks is lost as well, after it was told.
    let again = Runtime::start(Script::of(|_, mut worker: Worker| async move {
        worker.begin(&[("checkpoint", "true")]).await;
        while worker.next().await.is_some() {}
    }));
    let second = successor(&first, &again, ruled(2, true)).await;
    let asked = last_result(&request("order", Some("k")).send(&second).await);
    assert!(again.told.allocations.lock().is_empty(), "it waits");
    let _waiting = send(approving(&asked, yes()), &second);
    until("it goes on", || !again.told.allocations.lock().is_empty()).await;

    let owner = first.active.find(call_id(&dead)).await.unwrap().unwrap().owner.unwrap();
    let living = Runtime::start(finishes());
    let third = first.beside(living.runtimes());
    third.gateway.apply(ruled(2, true)).unwrap();
    first.active.retire(owner).await.unwrap();
    take_over(&third).await;
    let told = last_result(&request("order", Some("k")).send(&third).await);
    assert_eq!(told["structuredContent"], json!({"ok": true}), "{told}");
}

#[tokio::test]
async fn without_the_approval_that_is_wanted_by_now_a_call_does_not_go_on_and_is_unknown() {
    for given in [json!({"action": "decline"}), json!({"action": "accept", "content": {"approve": false}})] {
        let (first, _dead) = left_behind().await;
        let living = Runtime::start(never());
        let second = successor(&first, &living, ruled(2, true)).await;
        let asked = last_result(&request("order", Some("k")).send(&second).await);
        let told = last_result(&approving(&asked, given).send(&second).await);
        assert_eq!(told["_meta"]["asp/reason"], "outcome_unknown", "{told}");
        assert!(living.told.allocations.lock().is_empty());
    }
}

#[tokio::test]
async fn whose_client_cannot_be_asked_does_not_go_on_either() {
    let dead = Runtime::start(saves_and_hangs());
    let first = fixture(&dead);
    let mute = || request("order", Some("k")).capabilities(json!({}));
    let _waiting = send(mute(), &first);
    row(&first, &dead, |row| row.seq == 1).await;
    let living = Runtime::start(never());
    let second = successor(&first, &living, ruled(2, true)).await;
    let told = last_result(&mute().send(&second).await);
    assert_eq!(told["_meta"]["asp/reason"], "outcome_unknown", "{told}");
    assert!(living.told.allocations.lock().is_empty());
}
