//! Stores that fail, gateways that die, and more calls than there are places.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use asp_pipeline::pipeline::admission::AdmissionBounds;
use asp_proto::snapshot::Mutation;
use asp_store::audit::{AuditError, AuditLog, AuditQuery, CallEvent, StoredEvent};
use asp_store::ledger::MemoryLedger;
use async_trait::async_trait;
use http::{Method, StatusCode};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::plugin::{until, until_some};
use crate::rest::Rest;
use crate::runtime::{Runtime, Script, Worker};
use crate::support::ledger::Faulty;
use crate::support::{Fixture, Legacy, Modern, claims, sign, snapshot, token};

/// An audit log that never answers.
struct Hanging;

#[async_trait]
impl AuditLog for Hanging {
    async fn append(&self, _events: &[CallEvent]) -> Result<(), AuditError> {
        std::future::pending().await
    }

    async fn page(&self, _query: &AuditQuery) -> Result<Vec<StoredEvent>, AuditError> {
        Ok(Vec::new())
    }
}

/// An audit log that takes events, and has no room for more of acme.
#[derive(Default)]
struct Crowded {
    taken: Mutex<Vec<CallEvent>>,
}

#[async_trait]
impl AuditLog for Crowded {
    async fn append(&self, events: &[CallEvent]) -> Result<(), AuditError> {
        self.taken.lock().extend_from_slice(events);
        Ok(())
    }

    async fn page(&self, _query: &AuditQuery) -> Result<Vec<StoredEvent>, AuditError> {
        Ok(Vec::new())
    }

    fn is_required(&self) -> bool {
        true
    }

    fn has_room(&self, org: &str) -> bool {
        org != "acme"
    }
}

/// `policy.once` under one key.
fn once() -> Modern {
    let params = json!({"name": "policy.once", "arguments": {"message": "m"}});
    let mut request = Modern::new("policy", &token("alice"), "tools/call", params);
    request.body["params"]["_meta"]["asp/idempotencyKey"] = "k".into();
    request
}

fn with_mutation(mutation: Mutation) -> asp_proto::snapshot::GatewaySnapshot {
    let mut snapshot = snapshot();
    for primitive in snapshot.primitives.iter_mut().filter(|primitive| primitive.id == "policy.once") {
        primitive.mutation = mutation.into();
    }
    snapshot
}

async fn result(request: &Modern, fixture: &Fixture) -> Value {
    request.send(fixture).await.json()["result"].clone()
}

#[tokio::test(start_paused = true)]
async fn a_retry_after_its_gateways_death_runs_what_is_idempotent_and_nothing_else() {
    for (mutation, runs) in [(Mutation::Idempotent, true), (Mutation::NonIdempotent, false)] {
        let inner = Arc::new(MemoryLedger::default());
        let dying =
            Faulty { inner: inner.clone(), failures: AtomicUsize::new(0), dies: true, ..Faulty::default() };
        let dying =
            Fixture::new().with_stores(with_mutation(mutation), |stores| stores.ledger = Arc::new(dying));
        let first = result(&once(), &dying).await;
        assert_eq!(first["isError"], false, "{first}");
        let next = Fixture::new().with_stores(with_mutation(mutation), |stores| stores.ledger = inner);
        // Past the time that the first could have taken.
        tokio::time::advance(Duration::from_secs(70)).await;
        let retry = result(&once(), &next).await;
        if !runs {
            assert_eq!(retry["_meta"]["asp/reason"], "outcome_unknown", "{retry}");
            continue;
        }
        assert_eq!(retry["isError"], false, "{retry}");
        assert!(retry["_meta"].get("asp/replayed").is_none(), "it ran again: {retry}");
        assert_eq!(result(&once(), &next).await["_meta"]["asp/replayed"], true);
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_is_stored_in_the_end_where_the_store_is_busy_for_a_while() {
    let inner = Arc::new(MemoryLedger::default());
    let busy = Faulty { inner, failures: AtomicUsize::new(4), dies: false, ..Faulty::default() };
    let fixture = Fixture::new().with_stores(snapshot(), |stores| stores.ledger = Arc::new(busy));
    let first = result(&once(), &fixture).await;
    assert_eq!(first["isError"], false, "{first}");
    let second = result(&once(), &fixture).await;
    assert_eq!(second["_meta"]["asp/replayed"], true);
    assert_eq!(second["structuredContent"], first["structuredContent"]);
}

#[tokio::test(start_paused = true)]
async fn of_an_answer_that_cannot_be_stored_the_outcome_is_unknown_unless_the_call_may_be_repeated() {
    for (mutation, told) in
        [(Mutation::Idempotent, "upstream_unavailable"), (Mutation::NonIdempotent, "outcome_unknown")]
    {
        let inner = Arc::new(MemoryLedger::default());
        let away = Faulty { inner, failures: AtomicUsize::new(usize::MAX), dies: false, ..Faulty::default() };
        let fixture =
            Fixture::new().with_stores(with_mutation(mutation), |stores| stores.ledger = Arc::new(away));
        let answer = once().send(&fixture).await.last();
        assert_eq!(answer["result"]["_meta"]["asp/reason"], told, "{answer}");
    }
}

/// A session's request whose claim the store takes and nobody hears of, and the same once more.
async fn claimed_unheard(failures: usize) -> (Value, Value) {
    let unheard =
        Faulty { unheard: AtomicUsize::new(1), failures: AtomicUsize::new(failures), ..Faulty::default() };
    let fixture = Fixture::new().with_stores(snapshot(), |stores| stores.ledger = Arc::new(unheard));
    let client = Legacy::connect(&fixture, "policy", "alice", "2025-11-25", json!({})).await;
    let params = json!({"name": "policy.once", "arguments": {"message": "m"}});
    let send = async || client.request(5, "tools/call", params.clone()).await.json();
    let first = send().await;
    let is_open = |said: &Value| said["result"]["_meta"]["asp/reason"] == "upstream_unavailable";
    // It is given back off the path.
    let again =
        until_some("an answer", async || Some(send().await).filter(|again| failures > 0 || !is_open(again)));
    (first, again.await)
}

#[tokio::test]
async fn a_claim_that_nobody_heard_of_is_given_back_and_the_same_request_runs() {
    let (first, again) = claimed_unheard(0).await;
    assert_eq!(first["result"]["_meta"]["asp/reason"], "upstream_unavailable", "{first}");
    assert_eq!(
        (&again["result"]["isError"], &again["result"]["_meta"]["asp/replayed"]),
        (&json!(false), &Value::Null),
        "{again}"
    );
}

/// I-13: its client puts it again, at this gateway or another one.
#[tokio::test]
async fn a_chosen_id_whose_claim_nobody_heard_of_may_be_put_again() {
    let unheard = Faulty { unheard: AtomicUsize::new(1), ..Faulty::default() };
    let fixture = Fixture::new().with_stores(snapshot(), |stores| stores.ledger = Arc::new(unheard));
    let call = Rest::of(&fixture, "policy.once", "1");
    let arguments = json!({"message": "m"});
    let first = call.put(&arguments).await;
    assert_eq!(first.status, StatusCode::SERVICE_UNAVAILABLE, "{}", first.text);
    let put = async || Some(call.put(&arguments).await).filter(|put| put.status == StatusCode::CREATED);
    let put = until_some("it begins", put).await;
    assert_eq!(put.json()["status"], "success", "{}", put.text);
}

#[tokio::test]
async fn while_it_is_not_given_back_the_same_request_is_to_be_sent_again() {
    let (_, again) = claimed_unheard(usize::MAX).await;
    assert_eq!(again["result"]["_meta"]["asp/reason"], "upstream_unavailable", "{again}");
    assert!(again["result"]["content"][0]["text"].as_str().unwrap().contains("send it again"), "{again}");
}

fn order() -> Modern {
    let params = json!({"name": "order", "arguments": {}});
    let mut request = Modern::new("plugins", &token("alice"), "tools/call", params);
    request.body["params"]["_meta"]["asp/idempotencyKey"] = "k".into();
    request
}

#[tokio::test]
async fn a_replay_is_the_answer_that_was_given_also_where_that_was_a_refusal() {
    let runtime = Runtime::start(Script::of(|_, mut worker: Worker| async move {
        let invoke = worker.begin(&[]).await;
        worker.complete(&invoke, &json!({"ok": "no boolean"})).await;
    }));
    let fixture = Fixture::with(snapshot(), 7, runtime.runtimes());
    let first = result(&order(), &fixture).await;
    assert_eq!(first["_meta"]["asp/reason"], "internal", "{first}");
    assert_eq!(result(&order(), &fixture).await, first);
    assert_eq!(runtime.told.allocations.lock().len(), 1, "it ran once");
}

#[tokio::test]
async fn of_an_answer_that_is_too_large_a_retry_learns_that_the_call_was_completed() {
    let runtime = Runtime::start(Script::of(|_, mut worker: Worker| async move {
        let invoke = worker.begin(&[]).await;
        worker.complete(&invoke, &json!({"ok": true, "text": "x".repeat(1 << 20)})).await;
    }));
    let fixture = Fixture::with(snapshot(), 7, runtime.runtimes());
    let first = result(&order(), &fixture).await;
    assert_eq!(first["structuredContent"]["ok"], true);
    let retry = result(&order(), &fixture).await;
    assert_eq!((&retry["isError"], &retry["_meta"]["asp/replayed"]), (&json!(true), &json!(true)), "{retry}");
    assert_eq!(retry["_meta"]["asp/answerNotKept"], true);
    assert!(retry["content"][0]["text"].as_str().unwrap().contains("was completed"), "{retry}");
    assert_eq!(runtime.told.allocations.lock().len(), 1, "it ran once");
}

#[tokio::test(start_paused = true)]
async fn an_audit_log_that_hangs_stops_what_has_effects_and_delays_what_reads() {
    let fixture = Fixture::new().with_stores(snapshot(), |stores| stores.audit = Arc::new(Hanging));
    let audit = fixture.gateway.pipeline.internals().audit;
    let event = CallEvent { at_ms: 0, org: "acme".into(), event: "{}".into() };
    // The writer holds a batch, and the queue behind it is full.
    audit.record_now(event.clone());
    tokio::time::sleep(Duration::from_secs(1)).await;
    while audit.offer(event.clone()).is_none() {}
    let read = Modern::new(
        "demo",
        &token("alice"),
        "tools/call",
        json!({"name": "echo", "arguments": {"message": "m"}}),
    );
    let bound = Duration::from_secs(30);
    let read = tokio::time::timeout(bound, result(&read, &fixture)).await.expect("an answer");
    assert_eq!(read["structuredContent"], json!({"message": "m"}), "{read}");
    let refused = tokio::time::timeout(bound, result(&once(), &fixture)).await.expect("an answer");
    assert_eq!(refused["_meta"]["asp/reason"], "upstream_unavailable", "{refused}");
    assert!(refused["content"][0]["text"].as_str().unwrap().contains("nothing was done"), "{refused}");
    let metrics = fixture.send(Method::GET, "/metrics", &[], "").await.text;
    let lost = metrics.lines().find(|line| line.starts_with("asp_audit_events_lost_total ")).unwrap();
    assert_ne!(lost, "asp_audit_events_lost_total 0");
}

#[tokio::test]
async fn an_org_without_room_in_the_audit_log_is_refused_unrecorded_and_others_are_served() {
    let log = Arc::new(Crowded::default());
    let fixture = Fixture::new().with_stores(snapshot(), |stores| stores.audit = log.clone());
    let mut elsewhere = claims("bob");
    elsewhere["org"] = "globex".into();
    let call = |token: &str, server: &str, name: &str, arguments: Value| {
        Modern::new(server, token, "tools/call", json!({"name": name, "arguments": arguments}))
    };
    let read = call(&token("alice"), "demo", "echo", json!({"message": "m"}));
    let refused = result(&read, &fixture).await;
    assert_eq!(refused["_meta"]["asp/reason"], "upstream_unavailable", "{refused}");
    // Refused for another reason, before it begins.
    call(&token("alice"), "policy", "policy.scoped", json!({})).send(&fixture).await;
    let read = call(&sign(&elsewhere), "demo", "echo", json!({"message": "m"}));
    assert_eq!(result(&read, &fixture).await["structuredContent"], json!({"message": "m"}));
    fixture.gateway.flush().await;
    let orgs: Vec<String> = log.taken.lock().iter().map(|event| event.org.clone()).collect();
    assert_eq!(orgs, ["globex", "globex"], "what is refused takes no room either");
    let metrics = fixture.send(Method::GET, "/metrics", &[], "").await.text;
    assert!(metrics.lines().any(|line| line == "asp_audit_events_lost_total 4"), "two of each refused call");
}

#[tokio::test]
async fn a_call_without_a_place_is_told_when_to_come_again_and_leaves_those_of_other_orgs() {
    let bounds = AdmissionBounds { whole: 100, per_org: 1 };
    let fixture = Fixture::new().bounded(bounds);
    let asking = Modern::new("policy", &token("alice"), "tools/call", json!({"name": "policy.wipe"}));
    let asking = asking.capabilities(json!({"elicitation": {"form": {}}}));
    assert_eq!(result(&asking, &fixture).await["resultType"], "input_required");
    let echo = |token: &str| {
        Modern::new("demo", token, "tools/call", json!({"name": "echo", "arguments": {"message": "m"}}))
    };
    let refused = result(&echo(&token("bob")), &fixture).await;
    assert_eq!(refused["_meta"]["asp/reason"], "rate_limited", "{refused}");
    assert!(refused["_meta"]["asp/retryAfterMs"].as_u64().unwrap() > 0);
    let read = Modern::new("demo", &token("alice"), "resources/read", json!({"uri": "demo://about"}));
    let error = read.send(&fixture).await.json()["error"].clone();
    assert_eq!(
        (&error["code"], &error["data"]["reason"]),
        (&json!(-32000), &json!("rate_limited")),
        "{error}"
    );
    let mut claims = claims("carol");
    claims["org"] = "globex".into();
    let other = result(&echo(&sign(&claims)), &fixture).await;
    assert_eq!(other["structuredContent"], json!({"message": "m"}), "{other}");
    let metrics = fixture.send(Method::GET, "/metrics", &[], "").await.text;
    assert!(metrics.contains("asp_calls_active 1\n"), "{metrics}");
}

#[tokio::test]
async fn whose_call_waited_when_its_gateway_stopped_is_told_to_call_again() {
    let fixture = Fixture::new();
    let asking = Modern::new("policy", &token("alice"), "tools/call", json!({"name": "policy.wipe"}));
    let mut asking = asking.capabilities(json!({"elicitation": {"form": {}}}));
    let asked = result(&asking, &fixture).await;
    asking.body["params"]["requestState"] = asked["requestState"].clone();
    fixture.gateway.pipeline.internals().calls.end().await;
    let answer = asking.send(&fixture).await;
    assert_eq!(answer.json()["id"], 7, "{}: {}", answer.status, answer.text);
    let told = answer.json()["result"].clone();
    assert_eq!(told["_meta"]["asp/reason"], "upstream_unavailable", "{told}");
    assert!(told["content"][0]["text"].as_str().unwrap().contains("call again"), "{told}");
}

#[tokio::test]
async fn of_a_call_that_had_begun_when_its_gateway_stopped_the_outcome_is_unknown() {
    let runtime = Runtime::start(Script::of(|_, mut worker: Worker| async move {
        worker.begin(&[]).await;
        while worker.next().await.is_some() {}
    }));
    let fixture = Fixture::with(snapshot(), 7, runtime.runtimes());
    let waiting = sent(order(), &fixture);
    until("it runs", || !runtime.told.allocations.lock().is_empty()).await;
    let registry = fixture.gateway.pipeline.internals().registry;
    until("it has begun", || registry.running().iter().any(|call| call.was_handed_over())).await;
    fixture.gateway.pipeline.internals().calls.end().await;
    let told = waiting.await.unwrap();
    assert_eq!(told["_meta"]["asp/reason"], "outcome_unknown", "{told}");
    let again = result(&order(), &fixture.beside(runtime.runtimes())).await;
    assert_eq!(again["_meta"]["asp/reason"], "outcome_unknown", "its key says the same: {again}");
}

#[tokio::test]
async fn a_call_that_its_client_cancelled_stays_cancelled_when_its_gateway_stops() {
    let fixture = Fixture::new();
    let asking = Modern::new("policy", &token("alice"), "tools/call", json!({"name": "policy.wipe"}));
    let mut asking = asking.capabilities(json!({"elicitation": {"form": {}}}));
    let asked = result(&asking, &fixture).await;
    asking.body["params"]["requestState"] = asked["requestState"].clone();
    fixture.gateway.pipeline.internals().registry.running().pop().unwrap().cancel();
    fixture.gateway.pipeline.internals().calls.end().await;
    let answer = asking.send(&fixture).await;
    assert_eq!(answer.reason(), "deadline", "{}", answer.text);
}

/// `request`, whose client may go away.
fn sent(request: Modern, fixture: &Fixture) -> tokio::task::JoinHandle<Value> {
    let fixture = fixture.clone();
    tokio::spawn(async move { request.send(&fixture).await.last()["result"].clone() })
}

#[tokio::test]
async fn whose_client_goes_away_while_it_waits_for_its_key_takes_no_place_any_more() {
    let (script, go) = Script::until_told(|mut worker: Worker, went| async move {
        let invoke = worker.begin(&[]).await;
        went.await.unwrap();
        worker.complete(&invoke, &json!({"ok": true})).await;
    });
    let runtime = Runtime::start(script);
    let fixture = Fixture::with(snapshot(), 7, runtime.runtimes());
    let registry = fixture.gateway.pipeline.internals().registry;
    let first = sent(order(), &fixture);
    until("it runs", || !runtime.told.allocations.lock().is_empty()).await;
    for _ in 0..3 {
        let retry = sent(order(), &fixture);
        until("a retry waits", || registry.len() == 2).await;
        retry.abort();
        until("its place is free", || registry.len() == 1).await;
    }
    go.send(()).unwrap();
    assert_eq!(first.await.unwrap()["structuredContent"], json!({"ok": true}), "it was not theirs to end");
    assert_eq!(result(&order(), &fixture).await["_meta"]["asp/replayed"], true);
}

#[tokio::test]
async fn a_key_that_was_claimed_as_its_client_went_away_is_free_again() {
    let ledger = Arc::new(Faulty { unanswered: AtomicUsize::new(1), ..Faulty::default() });
    let claims = ledger.clone();
    let fixture = Fixture::new().with_stores(snapshot(), |stores| stores.ledger = claims);
    let gone = sent(once(), &fixture);
    until("the store has the claim", || ledger.unanswered.load(Ordering::Acquire) == 0).await;
    gone.abort();
    // A hang guard, below the time that a key is held.
    let retry = tokio::time::timeout(Duration::from_secs(20), result(&once(), &fixture)).await;
    let retry = retry.expect("the key is free");
    assert_eq!(
        (&retry["isError"], &retry["_meta"]["asp/replayed"]),
        (&json!(false), &Value::Null),
        "{retry}"
    );
}

#[tokio::test]
async fn a_shutdown_waits_until_a_key_is_given_back() {
    let ledger =
        Faulty { unanswered: AtomicUsize::new(1), failures: AtomicUsize::new(2), ..Faulty::default() };
    let ledger = Arc::new(ledger);
    let claims = ledger.clone();
    let fixture = Fixture::new().with_stores(snapshot(), |stores| stores.ledger = claims);
    let waiting = sent(once(), &fixture);
    until("the store has the claim", || ledger.unanswered.load(Ordering::Acquire) == 0).await;
    fixture.gateway.stop().await;
    assert_eq!(ledger.failures.load(Ordering::Acquire), 0, "it is tried until it is done");
    assert_eq!(waiting.await.unwrap()["_meta"]["asp/reason"], "upstream_unavailable");
}

/// Another gateway had reclaimed it, and gave it back.
#[tokio::test(start_paused = true)]
async fn who_asks_whether_an_answer_was_stored_after_all_takes_no_key() {
    let ledger = Faulty { failures: AtomicUsize::new(1), loses_keys: true, ..Faulty::default() };
    let fixture = Fixture::new().with_stores(snapshot(), |stores| stores.ledger = Arc::new(ledger));
    let first = once().send(&fixture).await.last();
    assert_eq!(first["result"]["_meta"]["asp/reason"], "outcome_unknown", "{first}");
    let again = once().send(&fixture).await.last();
    assert_eq!(again["result"]["isError"], false, "its key is free: {again}");
}
