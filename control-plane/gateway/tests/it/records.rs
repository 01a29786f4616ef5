//! Records of calls that a client can return to: every gateway on the same stores reports them (I-3).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use asp_call::call::principal::principal;
use asp_pipeline::pipeline::lookup::{AttachResult, FoundCall};
use asp_proto::snapshot::Protocol;
use asp_registry::{Inputs, assemble};
use asp_runtime_client::runtimes::Runtimes;
use asp_store::ledger::MemoryLedger;
use asp_store::records::{
    CallId, CallRecord, CallRecords, ListOrder, Listing, MemoryRecords, OwnerId, RecordError, RecordKey,
    Save, State,
};
use async_trait::async_trait;
use bytes::Bytes;
use http::StatusCode;
use serde_json::{Value, json};
use tokio::sync::Notify;
use uuid::Uuid;

use crate::plugin::{asks_name, last_result, modern, until, until_async, user_input, with_token};
use crate::registry::caller;
use crate::rest::Rest;
use crate::runtime::{Runtime, Script, Worker};
use crate::support::ledger::Faulty;
use crate::support::records::{Faults, FaultyRecords};
use crate::support::{Answer, Fixture, Modern, denied_to_alice, inputs, snapshot, token};

const SECRET: &str = "a secret of the caller";

/// Records of which the first few are not stored and not found, or that never learn how a call ended.
struct Flaky {
    inner: Arc<MemoryRecords>,
    failures: AtomicUsize,
    learns_ends: bool,
}

impl Flaky {
    fn once(fixture: &Fixture) -> Arc<FaultyRecords<Flaky>> {
        let failures = AtomicUsize::new(1);
        Arc::new(FaultyRecords(Flaky { inner: fixture.active.clone(), failures, learns_ends: true }))
    }

    fn fails(&self) -> Result<(), RecordError> {
        let once = |left: usize| left.checked_sub(1);
        match self.failures.fetch_update(Ordering::AcqRel, Ordering::Acquire, once) {
            Ok(_) => Err(RecordError::Unavailable("database is locked".into())),
            Err(_) => Ok(()),
        }
    }
}

#[async_trait]
impl Faults for Flaky {
    fn store(&self) -> &dyn CallRecords {
        &*self.inner
    }

    async fn put(
        &self,
        key: &RecordKey,
        owner: OwnerId,
        state: State,
        record: Bytes,
    ) -> Result<Save, RecordError> {
        self.fails()?;
        self.inner.put(key, owner, state, record).await
    }

    fn finds(&self) -> Result<(), RecordError> {
        self.fails()
    }

    async fn learns_ends(&self) -> Result<(), RecordError> {
        self.learns_ends.then_some(()).ok_or_else(|| RecordError::Unavailable("its gateway has died".into()))
    }
}

/// A call that asks for an approval before it echoes `message`.
fn wipe(message: &str, extra: &Value) -> Modern {
    let mut params = json!({"name": "policy.wipe", "arguments": {"message": message}});
    params.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    let request = Modern::new("policy", &token("alice"), "tools/call", params);
    request.capabilities(json!({"elicitation": {}}))
}

fn keyed(mut request: Modern, key: Option<&str>) -> Modern {
    if let Some(key) = key {
        request.body["params"]["_meta"]["asp/idempotencyKey"] = key.into();
    }
    request
}

/// The question of a `wipe`, and the retry that answers it with `action`.
async fn asked(fixture: &Fixture, message: &str, key: Option<&str>, action: &str) -> Modern {
    let asked = keyed(wipe(message, &json!({})), key).send(fixture).await.json()["result"].clone();
    assert_eq!(asked["resultType"], "input_required", "{asked}");
    record(fixture, State::InputRequired).await;
    let answer = json!({"asp.approve": {"action": action, "content": {"approve": true}}});
    let retry = json!({"requestState": asked["requestState"], "inputResponses": answer});
    keyed(wipe(message, &retry), key)
}

async fn records(fixture: &Fixture) -> Vec<(CallId, CallRecord)> {
    let principal = principal(&caller("alice"));
    let listing = Listing { principal, server: "policy", order: ListOrder::Created, before: None, limit: 10 };
    let mut found = Vec::new();
    for (call, _) in fixture.active.list(&listing).await.unwrap() {
        // A list leaves out what may be large.
        found.extend(fixture.active.find(call).await.unwrap().map(|record| (call, record)));
    }
    found
}

/// The only record of alice's, once it is in `state`.
async fn record(fixture: &Fixture, state: State) -> (CallId, CallRecord) {
    let looking = async {
        loop {
            let found = records(fixture).await;
            match found.as_slice() {
                [(_, record)] if record.state == state => return found[0].clone(),
                _ => tokio::task::yield_now().await,
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(60), looking).await.expect("a record in its state")
}

fn other(fixture: &Fixture) -> Fixture {
    fixture.beside(Runtimes::none())
}

async fn at_another(fixture: &Fixture, retry: &Modern) -> Answer {
    fixture.gateway.flush().await;
    retry.send(&other(fixture)).await
}

#[tokio::test]
async fn how_a_suspended_call_ended_is_told_by_every_gateway() {
    let fixture = Fixture::new();
    let retry = asked(&fixture, "gone", None, "accept").await;
    let first = retry.send(&fixture).await.json()["result"].clone();
    assert_eq!(first["structuredContent"], json!({"message": "gone"}), "{first}");
    let again = at_another(&fixture, &retry).await.json();
    assert_eq!(again["result"], first, "{again}");
}

#[tokio::test]
async fn a_refusal_is_told_by_every_gateway_as_it_was() {
    let fixture = Fixture::new();
    let retry = asked(&fixture, "gone", None, "decline").await;
    let first = retry.send(&fixture).await.text;
    assert!(first.contains("was declined"), "{first}");
    assert_eq!(at_another(&fixture, &retry).await.text, first);
}

#[tokio::test]
async fn an_answer_that_the_ledger_has_is_stored_once_and_told_from_there() {
    let fixture = Fixture::new();
    let long = "long ".repeat(1_000);
    let retry = asked(&fixture, &long, Some("k"), "accept").await;
    let first = retry.send(&fixture).await.json()["result"].clone();
    assert_eq!(first["structuredContent"]["message"], long);
    let told = at_another(&fixture, &retry).await.json()["result"].clone();
    assert_eq!(told["structuredContent"], first["structuredContent"]);
    assert_eq!(told["_meta"]["asp/replayed"], true);
    let (_, record) = record(&fixture, State::Completed).await;
    assert!(record.outcome.len() < 1_000, "{} bytes", record.outcome.len());
}

#[tokio::test]
async fn a_record_tells_where_a_suspended_call_stands_and_keeps_nothing_readable() {
    let fixture = Fixture::new();
    let retry = asked(&fixture, SECRET, None, "accept").await;
    let (call, waits) = record(&fixture, State::InputRequired).await;
    assert_eq!((waits.server.as_str(), waits.plugin.as_str()), ("policy", "policy.wipe@1.0.0"));
    assert_eq!((waits.owner.is_some(), waits.resumes, waits.outcome.len()), (true, false, 0));
    retry.send(&fixture).await;
    let (ended_call, ended) = record(&fixture, State::Completed).await;
    assert_eq!((ended_call, ended.owner, ended.created_ms), (call, None, waits.created_ms));
    let kept = i64::try_from(Duration::from_secs(3600).as_millis()).unwrap();
    assert_eq!(ended.expires_ms - ended.updated_ms, kept);
    for record in [waits, ended] {
        let text = format!("{record:?}");
        assert!(!text.contains(SECRET) && !text.contains("alice"), "{text}");
    }
}

#[tokio::test]
async fn nobody_but_its_principal_at_its_server_is_told_of_a_call() {
    let fixture = Fixture::new();
    asked(&fixture, "gone", None, "accept").await.send(&fixture).await;
    fixture.gateway.flush().await;
    let (call, _) = record(&fixture, State::Completed).await;
    let call = Uuid::from_bytes(call);
    let other = other(&fixture).gateway;
    for (user, server, is_told) in
        [("bob", "policy", false), ("alice", "demo", false), ("alice", "policy", true)]
    {
        let attached = other.pipeline.attach(call, &caller(user), server).await.unwrap();
        assert_eq!(matches!(attached, AttachResult::Here(_)), is_told, "{user} at {server}");
    }
}

#[tokio::test]
async fn who_may_not_call_it_any_more_is_told_of_no_ended_call() {
    let fixture = Fixture::new();
    let retry = asked(&fixture, "gone", None, "accept").await;
    assert_eq!(retry.send(&fixture).await.json()["result"]["isError"], false);
    fixture.gateway.flush().await;
    let deny = denied_to_alice("policy.wipe", Protocol::Mcp);
    let denying = assemble(Inputs { revision: 2, bindings: vec![deny], ..inputs() });
    let other = other(&fixture);
    for gateway in [&fixture, &other] {
        gateway.gateway.apply(denying.clone()).unwrap();
        let told = retry.send(gateway).await;
        assert_eq!(told.reason(), "invalid_params", "{}", told.text);
    }
}

#[tokio::test]
async fn how_a_call_ended_is_told_also_when_its_primitive_has_another_version() {
    let fixture = Fixture::new();
    let retry = asked(&fixture, "gone", None, "accept").await;
    let first = retry.send(&fixture).await.json()["result"].clone();
    fixture.gateway.flush().await;
    let mut newer = Inputs { revision: 2, ..inputs() };
    for server in &mut newer.servers {
        server.primitives.iter_mut().for_each(|primitive| primitive.version = "9.9.9".into());
        server.server.listings.iter_mut().for_each(|listing| listing.version = "9.9.9".into());
    }
    let other = other(&fixture);
    other.gateway.apply(assemble(newer)).unwrap();
    let told = retry.send(&other).await.json();
    assert_eq!(told["result"], first, "{told}");
}

#[tokio::test]
async fn a_call_that_nobody_was_told_of_leaves_nothing() {
    let fixture = Fixture::new();
    let params = json!({"name": "policy.once", "arguments": {"message": "m"}});
    Modern::new("policy", &token("alice"), "tools/call", params).send(&fixture).await;
    fixture.gateway.flush().await;
    assert!(records(&fixture).await.is_empty());
}

#[tokio::test]
async fn who_comes_back_for_a_call_whose_gateway_is_gone_is_told_at_once() {
    let fixture = Fixture::new();
    let active = fixture.gateway.pipeline.internals().active;
    active.renew().await.unwrap();
    let retry = asked(&fixture, "gone", None, "accept").await;
    let (call, _) = record(&fixture, State::InputRequired).await;
    active.retire().await;
    let told = retry.send(&other(&fixture)).await.json()["result"].clone();
    assert_eq!(told["_meta"]["asp/reason"], "outcome_unknown", "{told}");
    assert!(fixture.active.find(call).await.unwrap().unwrap().is_left, "nothing has changed it");
}

#[tokio::test]
async fn a_gateway_that_renews_its_lease_late_is_not_taken_for_gone() {
    let fixture = Fixture::new();
    let retry = asked(&fixture, "gone", None, "accept").await;
    let owner = fixture.gateway.pipeline.internals().active.owner();
    fixture.active.renew(owner, Duration::ZERO).await.unwrap();
    let other = other(&fixture);
    let (call, _) = record(&fixture, State::InputRequired).await;
    let found = other.gateway.pipeline.find(Uuid::from_bytes(call), &caller("alice"), "policy").await;
    assert!(matches!(found, Ok(Some(FoundCall::Elsewhere(_)))), "its lease has lapsed a moment ago");
    let first = retry.send(&fixture).await.json()["result"].clone();
    assert_eq!(first["structuredContent"], json!({"message": "gone"}), "{first}");
    let told = at_another(&fixture, &retry).await.json()["result"].clone();
    assert_eq!(told, first);
}

/// Records of gateways that have had no lease for long: nobody reached the store.
struct AllLapsed(Arc<MemoryRecords>);

impl Faults for AllLapsed {
    fn store(&self) -> &dyn CallRecords {
        &*self.0
    }

    fn found(&self, record: CallRecord) -> CallRecord {
        CallRecord { is_left: true, is_retired: false, ..record }
    }
}

#[tokio::test]
async fn after_an_outage_of_the_store_a_call_is_lost_only_if_its_gateway_does_not_come_back() {
    let fixture = Fixture::new();
    asked(&fixture, "gone", None, "accept").await;
    let (call, _) = record(&fixture, State::InputRequired).await;
    let lapsed = Arc::new(FaultyRecords(AllLapsed(fixture.active.clone())));
    let other = fixture.with_stores(snapshot(), |stores| stores.active = lapsed);
    let pipeline = &other.gateway.pipeline;
    let is_running = async || {
        let found = pipeline.find(Uuid::from_bytes(call), &caller("alice"), "policy").await;
        matches!(found, Ok(Some(FoundCall::Elsewhere(_))))
    };
    tokio::time::pause();
    pipeline.internals().active.renew().await.unwrap();
    for _ in 0..3 {
        assert!(is_running().await, "its gateway may be back in a moment");
        tokio::time::advance(Duration::from_secs(2)).await;
        pipeline.internals().active.renew().await.unwrap();
    }
    tokio::time::advance(Duration::from_secs(2)).await;
    assert!(!is_running().await, "it had the time");
}

#[tokio::test]
async fn what_is_past_its_time_is_waited_for_by_nobody() {
    let fixture = Fixture::new();
    let alice = caller("alice");
    let call = Uuid::now_v7();
    let key = RecordKey {
        call: call.into_bytes(),
        org: "acme".into(),
        principal: principal(&alice),
        user: [1; 16],
        server: "demo".into(),
        plugin: "sweep@1.0.0".into(),
        context: String::new(),
        created_ms: 0,
        expires_ms: 1,
        resumes: true,
    };
    fixture.active.put(&key, OwnerId([9; 16]), State::Working, Bytes::new()).await.unwrap();
    let told = fixture.gateway.pipeline.internals().active.status(call, &alice, "demo").await.unwrap();
    assert!(told.is_none(), "no gateway takes it over");
}

#[tokio::test]
async fn a_store_that_does_not_answer_for_a_moment_costs_a_client_one_request() {
    let fixture = Fixture::new();
    let retry = asked(&fixture, "gone", Some("k"), "accept").await;
    let first = retry.send(&fixture).await.json()["result"].clone();
    fixture.gateway.flush().await;
    let records = fixture.with_stores(snapshot(), |stores| {
        stores.active = Flaky::once(&fixture);
        stores.ledger = fixture.ledger.clone();
    });
    let ledger = fixture.with_stores(snapshot(), |stores| {
        stores.active = fixture.active.clone();
        let inner = fixture.ledger.clone();
        stores.ledger =
            Arc::new(Faulty { inner, failures: AtomicUsize::new(1), dies: false, ..Faulty::default() });
    });
    for other in [records, ledger] {
        let unanswered = retry.send(&other).await;
        assert_eq!(unanswered.reason(), "upstream_unavailable", "{}", unanswered.text);
        let told = retry.send(&other).await.json()["result"].clone();
        assert_eq!(told["structuredContent"], first["structuredContent"], "{told}");
    }
}

#[tokio::test]
async fn what_a_ledger_does_not_say_when_a_call_is_taken_over_it_says_later() {
    let base = Fixture::new();
    let runtime = Runtime::start(Script::of(|_, mut worker: Worker| async move {
        let invoke = worker.begin(&[]).await;
        worker.complete(&invoke, &json!({"ok": true})).await;
    }));
    let dying = FaultyRecords(Flaky {
        inner: base.active.clone(),
        failures: AtomicUsize::new(0),
        learns_ends: false,
    });
    let first = Fixture::with_runtimes_and(runtime.runtimes(), |stores| {
        stores.active = Arc::new(dying);
        stores.ledger = base.ledger.clone();
    });
    let request = |extra: Value| {
        let request = modern("purge", extra).capabilities(json!({"elicitation": {}}));
        keyed(request, Some("k"))
    };
    let asked = last_result(&request(json!({})).send(&first).await);
    let approval = json!({"asp.approve": {"action": "accept", "content": {"approve": true}}});
    let retry = request(json!({"requestState": asked["requestState"], "inputResponses": approval}));
    assert_eq!(last_result(&retry.send(&first).await)["structuredContent"], json!({"ok": true}));
    first.gateway.flush().await;
    let second = Fixture::with_runtimes_and(runtime.runtimes(), |stores| {
        stores.active = base.active.clone();
        let inner = base.ledger.clone();
        stores.ledger =
            Arc::new(Faulty { inner, failures: AtomicUsize::new(1), dies: false, ..Faulty::default() });
    });
    second.gateway.pipeline.internals().active.renew().await.unwrap();
    let snapshot = Arc::new(asp_snapshot::Snapshot::build(snapshot()).unwrap());
    second.gateway.pipeline.take_over(&snapshot).await.unwrap();
    // The ledger is asked again.
    second.gateway.pipeline.take_over(&snapshot).await.unwrap();
    second.gateway.flush().await;
    let told = last_result(&retry.send(&second).await);
    assert_eq!(told["structuredContent"], json!({"ok": true}), "{told}");
    assert_eq!(runtime.told.allocations.lock().len(), 1);
}

#[tokio::test]
async fn a_state_that_was_not_stored_does_not_keep_the_next_from_it() {
    let base = Fixture::new();
    let (script, go) = Script::until_told(move |mut worker: Worker, went| async move {
        let invoke = worker.begin(&[]).await;
        worker.say(asks_name(&invoke.request_id)).await;
        user_input(&mut worker).await;
        went.await.unwrap();
        worker.complete(&invoke, &json!({"ok": true})).await;
    });
    let runtime = Runtime::start(script);
    let flaky = Flaky::once(&base);
    let fixture = Fixture::with_runtimes_and(runtime.runtimes(), |stores| stores.active = flaky.clone());
    let request = |extra: Value| with_token(modern("sweep", extra).capabilities(json!({"elicitation": {}})));
    let asked = last_result(&request(json!({})).send(&fixture).await);
    until("the first state is refused", || flaky.0.failures.load(Ordering::Acquire) == 0).await;
    let answers: serde_json::Map<String, Value> = asked["inputRequests"]
        .as_object()
        .unwrap()
        .keys()
        .map(|id| (id.clone(), json!({"action": "accept", "content": {"name": "Ada"}})))
        .collect();
    let retry = request(json!({"requestState": asked["requestState"], "inputResponses": answers}));
    let answering = tokio::spawn({
        let fixture = fixture.clone();
        async move { retry.send(&fixture).await }
    });
    let listing = Listing {
        principal: principal(&caller("alice")),
        server: "plugins",
        order: ListOrder::Created,
        before: None,
        limit: 10,
    };
    let stored = async || {
        let listed = base.active.list(&listing).await.unwrap();
        listed.first().is_some_and(|(_, record)| record.state == State::Working)
    };
    until_async("the next one is stored", stored).await;
    go.send(()).unwrap();
    assert_eq!(last_result(&answering.await.unwrap())["structuredContent"], json!({"ok": true}));
}

/// Invariant I-13.
#[tokio::test]
async fn the_ledger_says_how_a_call_ended_whose_gateway_could_not() {
    let base = Fixture::new();
    let dying = Flaky { inner: base.active.clone(), failures: AtomicUsize::new(0), learns_ends: false };
    let first = base.with_stores(snapshot(), |stores| {
        stores.active = Arc::new(FaultyRecords(dying));
        stores.ledger = base.ledger.clone();
    });
    let active = first.gateway.pipeline.internals().active;
    active.renew().await.unwrap();
    let asked = keyed(wipe("gone", &json!({})), Some("k")).send(&first).await.json()["result"].clone();
    record(&base, State::InputRequired).await;
    let answer = json!({"asp.approve": {"action": "accept", "content": {"approve": true}}});
    let retry = json!({"requestState": asked["requestState"], "inputResponses": answer});
    let retry = keyed(wipe("gone", &retry), Some("k"));
    let told = retry.send(&first).await.json()["result"].clone();
    assert_eq!(told["structuredContent"], json!({"message": "gone"}), "{told}");
    active.retire().await;
    let second = base.with_stores(snapshot(), |stores| {
        stores.active = base.active.clone();
        stores.ledger = base.ledger.clone();
    });
    let again = retry.send(&second).await.json()["result"].clone();
    assert_eq!(again["structuredContent"], json!({"message": "gone"}), "{again}");
}

#[tokio::test]
async fn a_call_that_is_gone_and_whose_key_another_one_has_may_be_called_again() {
    let base = Fixture::new();
    let active = base.gateway.pipeline.internals().active;
    active.renew().await.unwrap();
    let retry = asked(&base, "gone", Some("k"), "accept").await;
    active.retire().await;
    let ledger = Arc::new(MemoryLedger::default());
    let holder = base.with_stores(snapshot(), |stores| stores.ledger = ledger.clone());
    let waits = keyed(wipe("gone", &json!({})), Some("k")).send(&holder).await.json()["result"].clone();
    assert_eq!(waits["resultType"], "input_required", "{waits}");
    let second = base.with_stores(snapshot(), |stores| {
        stores.active = base.active.clone();
        stores.ledger = ledger.clone();
    });
    let told = retry.send(&second).await.json()["result"].clone();
    assert_eq!(told["_meta"]["asp/reason"], "upstream_unavailable", "{told}");
}

#[tokio::test]
async fn a_call_whose_task_panics_is_stored_as_unknown() {
    let may = Arc::new(Notify::new());
    let base = Fixture::new();
    let ledger = Faulty { inner: base.ledger.clone(), panics: Some(may.clone()), ..Faulty::default() };
    let fixture = base.with_stores(snapshot(), |stores| {
        stores.active = base.active.clone();
        stores.ledger = Arc::new(ledger);
    });
    fixture.gateway.pipeline.internals().active.renew().await.unwrap();
    let call = Rest::of(&fixture, "policy.once", "1");
    let put = call.put(&json!({})).await;
    assert_eq!((put.status, &put.json()["status"]), (StatusCode::CREATED, &json!("running")), "{}", put.text);
    may.notify_one();
    let other = fixture.beside(Runtimes::none());
    let elsewhere = call.on(&other);
    until_async("its end is stored", async || elsewhere.get().await.json()["status"] == "failed").await;
    assert_eq!(elsewhere.get().await.json()["error"]["code"], "outcome_unknown");
}
