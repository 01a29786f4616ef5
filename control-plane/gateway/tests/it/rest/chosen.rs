//! One id is one call.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use asp_gateway::gateway::Gateway;
use asp_runtime_client::runtimes::Runtimes;
use asp_store::records::{CallRecords, MemoryRecords, OwnerId, RecordError, RecordKey, Save, State};
use async_trait::async_trait;
use bytes::Bytes;
use http::StatusCode;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::{Rest, asking, reason, refused, with_plugins};
use crate::plugin::{until, until_async};
use crate::runtime::{Runtime, Script, Worker};
use crate::support::records::{Faults, FaultyRecords};
use crate::support::{Fixture, now, snapshot, token};

#[tokio::test]
async fn the_same_id_is_the_same_call_and_runs_once() {
    let fixture = Fixture::new();
    let call = Rest::of(&fixture, "policy.once", "1");
    let first = call.put(&json!({"message": "a", "to": 1})).await;
    let again = call.put(&json!({"to": 1, "message": "a"})).await;
    assert_eq!((first.status, again.status), (StatusCode::CREATED, StatusCode::OK));
    assert_eq!(first.json(), again.json(), "the clock is read once");
    assert_eq!(reason(&call.put(&json!({"message": "b"})).await), refused(422, "invalid_params"));
    let keyed = call.with("idempotency-key", "k");
    assert_eq!(reason(&keyed.put(&json!({"message": "a", "to": 1})).await), refused(409, "invalid_params"));
    let other_tool = Rest::of(&fixture, "policy.open", "1").put(&json!({"message": "a", "to": 1})).await;
    assert_eq!(reason(&other_tool), refused(409, "invalid_params"));
    assert_eq!(Rest::of(&fixture, "policy.open", "1").get().await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn an_id_is_its_principals_and_its_servers() {
    let fixture = Fixture::new();
    let own = Rest::of(&fixture, "policy.once", "1");
    let first = own.put(&json!({})).await.json();
    let stranger = own.with("authorization", &format!("Bearer {}", token("bob")));
    assert_eq!(reason(&stranger.get().await), refused(404, "unknown_primitive"));
    let theirs = stranger.put(&json!({"message": "b"})).await;
    assert_eq!(theirs.status, StatusCode::CREATED, "{}", theirs.text);
    let elsewhere = Rest::at(&fixture, "/demo/rest/tools/echo/calls/1").put(&json!({"message": "m"})).await;
    assert_eq!(elsewhere.status, StatusCode::CREATED);
    assert_eq!(own.get().await.json(), first);
}

#[tokio::test]
async fn a_key_that_was_used_under_another_id_is_answered_as_the_ledger_says() {
    let fixture = Fixture::new();
    let keyed = |id: &str| Rest::of(&fixture, "policy.once", id).with("idempotency-key", "k");
    let first = keyed("1").put(&json!({})).await.json();
    let replayed = keyed("2").put(&json!({})).await.json();
    assert_eq!(replayed["result"]["structuredContent"], first["result"]["structuredContent"]);
    assert_eq!(replayed["result"]["_meta"]["asp/replayed"], true);
    let conflict = keyed("3").put(&json!({"message": "other"})).await;
    assert_eq!(reason(&conflict), refused(422, "invalid_params"));
}

/// The same id at the same moment, many times.
#[tokio::test]
async fn of_many_that_put_an_id_at_once_one_begins_the_call() {
    let runtime = Runtime::start(Script::of(|_, mut worker: Worker| async move {
        let invoke = worker.begin(&[]).await;
        worker.complete(&invoke, &json!({"ok": true})).await;
    }));
    let fixture = Arc::new(with_plugins(&runtime));
    let putting = (0..16).map(|_| {
        let fixture = fixture.clone();
        tokio::spawn(async move {
            let call = Rest::at(&fixture, "/plugins/rest/tools/order/calls/1").with("prefer", "wait=20");
            call.put(&json!({})).await
        })
    });
    let mut created = 0;
    for put in futures::future::join_all(putting).await {
        let put = put.unwrap();
        created += usize::from(put.status == StatusCode::CREATED);
        assert_eq!(put.json()["result"]["structuredContent"], json!({"ok": true}), "{}", put.text);
    }
    assert_eq!((created, runtime.told.allocations.lock().len()), (1, 1));
}

/// Also where the call ends before anybody waits for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_that_put_different_arguments_under_an_id_at_once_one_begins_the_call() {
    let fixture = Arc::new(Fixture::new());
    for id in 0..20 {
        let putting = (0..16).map(|n| {
            let fixture = fixture.clone();
            tokio::spawn(async move {
                let call = Rest::at(&fixture, &format!("/demo/rest/tools/echo/calls/{id}"));
                call.put(&json!({"message": n.to_string()})).await.status
            })
        });
        let mut answers: Vec<StatusCode> =
            futures::future::join_all(putting).await.into_iter().map(Result::unwrap).collect();
        answers.sort();
        let mut expected = vec![StatusCode::UNPROCESSABLE_ENTITY; 15];
        expected.insert(0, StatusCode::CREATED);
        assert_eq!(answers, expected);
    }
}

/// I-3: what is put at two gateways runs once.
#[tokio::test]
async fn a_call_that_waits_for_its_user_is_not_begun_again_elsewhere() {
    let runtime = asking();
    let fixture = with_plugins(&runtime);
    fixture.gateway.pipeline.internals().active.renew().await.unwrap();
    let other = fixture.beside(runtime.runtimes());
    let call = Rest::at(&fixture, "/plugins/rest/tools/book/calls/1");
    let asks = call.with("prefer", "wait=20").put(&json!({})).await.json();
    assert_eq!(asks["status"], "awaitingElicitationResult", "{asks}");
    let elsewhere = call.on(&other).put(&json!({})).await;
    assert_eq!((elsewhere.status, &elsewhere.json()["status"]), (StatusCode::OK, &json!("running")));
    assert_eq!(runtime.told.allocations.lock().len(), 1);
}

/// I-3: also of one that may be repeated, whose end says to call again.
#[tokio::test]
async fn a_call_whose_gateway_is_gone_has_failed_under_its_id() {
    let runtime = asking();
    let fixture = with_plugins(&runtime);
    fixture.gateway.pipeline.internals().active.renew().await.unwrap();
    let other = fixture.beside(runtime.runtimes());
    let call = Rest::at(&fixture, "/plugins/rest/tools/sweep/calls/1");
    let asks = call.with("prefer", "wait=20").put(&json!({})).await.json();
    assert_eq!(asks["status"], "awaitingElicitationResult", "{asks}");
    fixture.gateway.pipeline.internals().active.retire().await;
    let lost = call.on(&other);
    for answer in [lost.put(&json!({})).await, lost.get().await, lost.put(&json!({})).await] {
        assert_eq!(
            (answer.status, &answer.json()["status"]),
            (StatusCode::OK, &json!("failed")),
            "{}",
            answer.text
        );
    }
    assert_eq!(runtime.told.allocations.lock().len(), 1);
}

/// I-3: its user had not approved it, so that nothing was done.
#[tokio::test]
async fn a_call_that_was_acknowledged_and_is_taken_over_unbegun_keeps_its_id_and_its_end() {
    let runtime = asking();
    let fixture = with_plugins(&runtime);
    fixture.gateway.pipeline.internals().active.renew().await.unwrap();
    let other = fixture.beside(runtime.runtimes());
    let call = Rest::at(&fixture, "/plugins/rest/tools/purge/calls/1");
    let asks = call.with("prefer", "wait=20").put(&json!({})).await;
    assert_eq!(asks.status, StatusCode::CREATED, "{}", asks.text);
    assert_eq!(asks.json()["status"], "awaitingElicitationResult", "{}", asks.text);
    fixture.gateway.pipeline.internals().active.retire().await;
    other.gateway.pipeline.internals().active.renew().await.unwrap();
    tokio::spawn(Gateway::take_over_calls(Arc::downgrade(&other.gateway)));
    let taken = call.on(&other);
    until_async("its end is known", async || taken.get().await.json()["status"] == "failed").await;
    let again = taken.put(&json!({})).await;
    assert_eq!((again.status, &again.json()["status"]), (StatusCode::OK, &json!("failed")), "{}", again.text);
    assert!(runtime.told.allocations.lock().is_empty(), "nothing was done");
}

/// Records that are not stored while a test says so.
struct Refusing {
    inner: Arc<MemoryRecords>,
    refuses: AtomicBool,
}

#[async_trait]
impl Faults for Refusing {
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
        if self.refuses.load(Ordering::Acquire) {
            return Err(RecordError::Unavailable("the disk is full".into()));
        }
        self.inner.put(key, owner, state, record).await
    }
}

/// I-3, I-13: what its client is told of, every gateway knows.
#[tokio::test]
async fn a_call_whose_record_is_not_taken_is_not_acknowledged_until_it_is() {
    let base = Fixture::new();
    let records =
        Arc::new(FaultyRecords(Refusing { inner: base.active.clone(), refuses: AtomicBool::new(true) }));
    let fixture = base.with_stores(snapshot(), |stores| stores.active = records.clone());
    fixture.gateway.pipeline.internals().active.renew().await.unwrap();
    let call = Rest::of(&fixture, "policy.wipe", "1");
    let arguments = json!({"message": "a"});
    for _ in 0..2 {
        let put = call.put(&arguments).await;
        assert_eq!(reason(&put), refused(503, "upstream_unavailable"), "{}", put.text);
        assert_eq!(put.headers["retry-after"], "1");
    }
    assert_eq!(call.on(&base).get().await.status, StatusCode::NOT_FOUND);
    records.0.refuses.store(false, Ordering::Release);
    let put = call.put(&arguments).await;
    assert_eq!(put.status, StatusCode::OK, "the same call: {}", put.text);
    let elsewhere = call.on(&base).get().await;
    assert_eq!(elsewhere.status, StatusCode::OK, "{}", elsewhere.text);
}

/// Records that are asked for, and not made while anybody waits.
struct Stuck {
    inner: Arc<MemoryRecords>,
    asked: Mutex<Option<(RecordKey, OwnerId)>>,
}

#[async_trait]
impl Faults for Stuck {
    fn store(&self) -> &dyn CallRecords {
        &*self.inner
    }

    async fn put(&self, key: &RecordKey, owner: OwnerId, _: State, _: Bytes) -> Result<Save, RecordError> {
        *self.asked.lock() = Some((key.clone(), owner));
        std::future::pending().await
    }
}

#[tokio::test(start_paused = true)]
async fn a_record_that_is_made_after_its_call_has_ended_is_deleted() {
    let base = Fixture::new();
    let records = Arc::new(FaultyRecords(Stuck { inner: base.active.clone(), asked: Mutex::default() }));
    let fixture = base.with_stores(snapshot(), |stores| stores.active = records.clone());
    fixture.gateway.pipeline.internals().active.renew().await.unwrap();
    let put = Rest::of(&fixture, "policy.wipe", "1").put(&json!({"message": "a"})).await;
    assert_eq!(reason(&put), refused(503, "upstream_unavailable"), "{}", put.text);
    let registry = fixture.gateway.pipeline.internals().registry;
    registry.running().pop().unwrap().cancel();
    until("it has ended", || registry.is_empty()).await;
    fixture.gateway.flush().await;
    let (key, owner) = records.0.asked.lock().take().unwrap();
    base.active.put(&key, owner, State::InputRequired, Bytes::new()).await.unwrap();
    until_async("it is deleted", async || base.active.find(key.call).await.unwrap().is_none()).await;
}

/// Records of a store that takes its time.
struct Slow(Arc<MemoryRecords>);

#[async_trait]
impl Faults for Slow {
    fn store(&self) -> &dyn CallRecords {
        &*self.0
    }

    async fn put(
        &self,
        key: &RecordKey,
        owner: OwnerId,
        state: State,
        record: Bytes,
    ) -> Result<Save, RecordError> {
        tokio::time::sleep(Duration::from_millis(50)).await;
        self.0.put(key, owner, state, record).await
    }

    async fn learns_ends(&self) -> Result<(), RecordError> {
        tokio::time::sleep(Duration::from_millis(100)).await;
        Ok(())
    }
}

/// A gateway whose store of calls takes its time.
async fn slow() -> Fixture {
    slow_beside(&Fixture::new()).await
}

/// The same beside a gateway whose stores are fast.
async fn slow_beside(base: &Fixture) -> Fixture {
    let records = Arc::new(FaultyRecords(Slow(base.active.clone())));
    let fixture = base.with_stores(snapshot(), |stores| {
        stores.active = records;
        stores.ledger = base.ledger.clone();
    });
    fixture.gateway.pipeline.internals().active.renew().await.unwrap();
    fixture
}

/// I-13: it ends while its record is stored, and its end is stored later.
#[tokio::test(start_paused = true)]
async fn a_call_is_not_seen_to_have_ended_before_every_gateway_knows_its_end() {
    let base = Fixture::new();
    let fixture = slow_beside(&base).await;
    let call = Rest::at(&fixture, "/demo/rest/tools/count/calls/1");
    let arguments = json!({"to": 1, "delayMs": 10});
    let seeing = async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        let here = call.with("prefer", "wait=20").get().await;
        [here, call.on(&base).get().await]
    };
    let (put, seen) = tokio::join!(call.put(&arguments), seeing);
    assert_eq!(put.status, StatusCode::CREATED, "{}", put.text);
    for seen in seen {
        assert_eq!(
            (seen.status, &seen.json()["status"]),
            (StatusCode::OK, &json!("success")),
            "{}",
            seen.text
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_quick_call_is_answered_with_its_result_however_long_its_end_is_stored() {
    let fixture = slow().await;
    let put = |id: &str, to: u32, delay_ms: u32| {
        let call = Rest::at(&fixture, &format!("/demo/rest/tools/count/calls/{id}"));
        async move { call.put(&json!({"to": to, "delayMs": delay_ms})).await }
    };
    let [quick, long] = [put("quick", 1, 10).await, put("long", 100, 100).await];
    assert_eq!((quick.status, &quick.json()["status"]), (StatusCode::CREATED, &json!("success")));
    assert_eq!((long.status, &long.json()["status"]), (StatusCode::CREATED, &json!("running")));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_put_again_while_its_end_is_stored_is_answered_with_its_result() {
    let fixture = slow().await;
    let call = Rest::at(&fixture, "/demo/rest/tools/count/calls/1");
    let arguments = json!({"to": 1, "delayMs": 1_000});
    let first = call.put(&arguments).await;
    assert_eq!((first.status, &first.json()["status"]), (StatusCode::CREATED, &json!("running")));
    // The first answer took 50 ms, and its end is being stored from 1,000 ms to 1,100 ms.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let again = call.put(&arguments).await;
    assert_eq!((again.status, &again.json()["status"]), (StatusCode::OK, &json!("success")));
}

/// I-3: it waits for the key of another one, and its time is over before it gets that.
#[tokio::test(start_paused = true)]
async fn a_call_that_was_acknowledged_and_never_begins_keeps_its_id_and_its_end() {
    let fixture = Fixture::new();
    let keyed = |id: &str| Rest::of(&fixture, "policy.wipe", id).with("idempotency-key", "k");
    let holder = keyed("1").put(&json!({"message": "a"})).await;
    assert_eq!(holder.status, StatusCode::CREATED, "{}", holder.text);
    let deadline = (now() + 5) * 1000;
    let waiting = keyed("2").with("x-deadline-ms", &deadline.to_string());
    let put = waiting.put(&json!({"message": "a"})).await;
    assert_eq!(
        (put.status, &put.json()["status"]),
        (StatusCode::CREATED, &json!("submitted")),
        "{}",
        put.text
    );
    tokio::time::sleep(Duration::from_secs(10)).await;
    fixture.gateway.flush().await;
    let other = fixture.beside(Runtimes::none());
    for gateway in [&fixture, &other] {
        let got = waiting.on(gateway).get().await;
        assert_eq!((got.status, &got.json()["status"]), (StatusCode::OK, &json!("failed")), "{}", got.text);
    }
}

/// A call that waits for an approval at a gateway whose record of it is not taken, and another gateway.
async fn unrecorded(base: &Fixture) -> (Arc<FaultyRecords<Refusing>>, Fixture, Fixture) {
    let records =
        Arc::new(FaultyRecords(Refusing { inner: base.active.clone(), refuses: AtomicBool::new(true) }));
    let first = base.with_stores(snapshot(), |stores| {
        stores.active = records.clone();
        stores.ledger = base.ledger.clone();
        stores.audit = base.audit.clone();
    });
    let second = base.beside(Runtimes::none());
    for fixture in [&first, &second] {
        fixture.gateway.pipeline.internals().active.renew().await.unwrap();
    }
    let put = Rest::of(&first, "policy.wipe", "1").put(&json!({"message": "a"})).await;
    assert_eq!(reason(&put), refused(503, "upstream_unavailable"), "{}", put.text);
    (records, first, second)
}

/// Approves the call at the gateway that runs it.
async fn approve(call: &Rest<'_>) {
    let asks = call.put(&json!({"message": "a"})).await;
    assert_eq!(
        (asks.status, &asks.json()["status"]),
        (StatusCode::OK, &json!("awaitingElicitationResult")),
        "{}",
        asks.text
    );
    let answer = json!({"action": "accept", "content": {"approve": true}});
    let answered = call.advance(&json!({"serverData": asks.json()["serverData"], "result": answer})).await;
    assert_eq!(answered.status, StatusCode::OK, "{}", answered.text);
}

#[tokio::test]
async fn an_id_that_is_put_at_two_gateways_at_once_is_one_call_at_both() {
    let base = Fixture::new();
    let (records, first, second) = unrecorded(&base).await;
    let call = Rest::of(&first, "policy.wipe", "1");
    let joining = async { call.on(&second).with("prefer", "wait=20").put(&json!({"message": "a"})).await };
    let answering = async {
        until("it has begun there too", || second.gateway.pipeline.internals().registry.len() == 1).await;
        records.0.refuses.store(false, Ordering::Release);
        approve(&call).await;
    };
    let (joined, ()) = tokio::join!(joining, answering);
    assert!(joined.status.is_success(), "{}", joined.text);
    assert_eq!(joined.json()["status"], "success", "{}", joined.text);
}

/// The record is of the request that waits for the other one's answer.
#[tokio::test]
async fn a_call_is_not_ended_by_the_record_of_the_same_request_at_another_gateway() {
    let base = Fixture::new();
    let (records, first, second) = unrecorded(&base).await;
    let call = Rest::of(&first, "policy.wipe", "1");
    let waits = call.on(&second).put(&json!({"message": "a"})).await;
    assert_eq!(
        (waits.status, &waits.json()["status"]),
        (StatusCode::CREATED, &json!("submitted")),
        "{}",
        waits.text
    );
    records.0.refuses.store(false, Ordering::Release);
    approve(&call).await;
    for gateway in [&first, &second] {
        let call = call.on(gateway);
        until_async("it has its answer", async || call.get().await.json()["status"] == "success").await;
        gateway.gateway.flush().await;
    }
    let events = base.audit.events().into_iter();
    let events = events.map(|event| serde_json::from_str::<Value>(&event.event).unwrap());
    let ends = events.filter(|event| event["event"] == "call.finish");
    let ends: Vec<(Value, Value)> = ends.map(|end| (end["outcome"].clone(), end["replay"].clone())).collect();
    assert_eq!(ends.len(), 2, "{ends:?}");
    for replay in [false, true] {
        assert!(ends.contains(&(json!("completed"), json!(replay))), "{ends:?}");
    }
}
