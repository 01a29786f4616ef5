//! A gateway that does not reach the store: what it refuses, from when on, and what that costs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use asp_gateway::gateway::Gateway;
use asp_registry::assemble;
use asp_store::records::{CallRecords, MemoryRecords, RecordError, STEADY};
use async_trait::async_trait;
use parking_lot::Mutex;
use serde_json::json;
use tokio::time::Instant;

use crate::limits::star;
use crate::support::records::{Faults, FaultyRecords};
use crate::support::{Fixture, Modern, inputs, snapshot, token};

/// Records that take no renewal the next few times, or cannot be looked at.
#[derive(Default)]
struct Cut {
    inner: MemoryRecords,
    next: AtomicU32,
    hides: AtomicBool,
    asked: Mutex<Vec<Instant>>,
}

#[async_trait]
impl Faults for Cut {
    fn store(&self) -> &dyn CallRecords {
        &self.inner
    }

    fn renews(&self) -> Result<(), RecordError> {
        self.asked.lock().push(Instant::now());
        let once = |left: u32| left.checked_sub(1);
        match self.next.fetch_update(Ordering::AcqRel, Ordering::Acquire, once) {
            Ok(_) => Err(RecordError::Unavailable("no connection".into())),
            Err(_) => Ok(()),
        }
    }

    fn finds(&self) -> Result<(), RecordError> {
        match self.hides.load(Ordering::Acquire) {
            true => Err(RecordError::Unavailable("it takes too long".into())),
            false => Ok(()),
        }
    }
}

/// A gateway whose org may call once.
fn gateway() -> (Fixture, Arc<FaultyRecords<Cut>>) {
    let records = Arc::new(FaultyRecords(Cut::default()));
    let store = records.clone();
    let mut inputs = inputs();
    inputs.limits.push(star(1));
    (Fixture::new().with_stores(assemble(inputs), |stores| stores.active = store), records)
}

/// Fails to renew the lease so often.
async fn fails(fixture: &Fixture, records: &FaultyRecords<Cut>, times: u32) {
    records.0.next.store(times, Ordering::Release);
    for _ in 0..times {
        fixture.gateway.pipeline.internals().active.renew().await.unwrap_err();
    }
}

/// Whether a call whose effect must be remembered is refused in a way that has Envoy ask another gateway.
async fn refuses(fixture: &Fixture) -> bool {
    let params = json!({"name": "policy.once", "arguments": {"message": "m"}});
    let mut request = Modern::new("policy", &token("alice"), "tools/call", params);
    request.body["params"]["_meta"]["asp/idempotencyKey"] = "k".into();
    let answer = request.send(fixture).await;
    let reason = answer.json()["result"]["_meta"]["asp/reason"].clone();
    let is_refused = reason == "upstream_unavailable";
    assert_eq!(answer.headers.contains_key("x-asp-unserved"), is_refused, "{}", answer.text);
    is_refused
}

#[tokio::test]
async fn what_it_refuses_takes_nothing_from_limits() {
    let (fixture, records) = gateway();
    fails(&fixture, &records, 2).await;
    for _ in 0..3 {
        assert!(refuses(&fixture).await);
    }
    fixture.gateway.pipeline.internals().active.renew().await.unwrap();
    assert!(!refuses(&fixture).await, "the one call that the limit allows was still there");
}

#[tokio::test(start_paused = true)]
async fn one_renewal_that_fails_refuses_nothing_and_a_lease_that_ends_does() {
    let (fixture, records) = gateway();
    let renew = || fixture.gateway.pipeline.internals().active.renew();
    let is_away = || fixture.gateway.pipeline.internals().active.is_away();
    assert!(!is_away(), "it has just started");
    renew().await.unwrap();
    for _ in 0..3 {
        fails(&fixture, &records, 1).await;
        assert!(!is_away());
        renew().await.unwrap();
    }
    fails(&fixture, &records, 2).await;
    assert!(is_away() && refuses(&fixture).await, "others are asked while it looks for the store");
    renew().await.unwrap();
    assert!(!is_away());
    // Nothing failed, and nothing was renewed: others may take its calls after 8 s.
    tokio::time::advance(Duration::from_millis(6_900)).await;
    assert!(!is_away());
    tokio::time::advance(Duration::from_millis(200)).await;
    assert!(is_away() && refuses(&fixture).await);
    renew().await.unwrap();
    assert!(!is_away() && !refuses(&fixture).await);
}

#[tokio::test(start_paused = true)]
async fn one_that_starts_without_the_store_judges_nobody_before_its_first_lease_has_lasted() {
    let (fixture, records) = gateway();
    let active = fixture.gateway.pipeline.internals().active;
    fails(&fixture, &records, 2).await;
    assert!(active.is_away() && refuses(&fixture).await && !active.is_steady());
    let since = Instant::now();
    active.renew().await.unwrap();
    assert!(!active.is_away() && !refuses(&fixture).await);
    while since.elapsed() < STEADY {
        assert!(!active.is_steady(), "after {:?}", since.elapsed());
        tokio::time::advance(Duration::from_secs(2)).await;
        active.renew().await.unwrap();
    }
    assert!(active.is_steady());
}

#[tokio::test]
async fn one_that_the_store_refuses_is_not_ready_until_it_does_not() {
    let fixture = Fixture::new();
    assert_eq!(fixture.gateway.unready(), None);
    fixture.gateway.set_refused_by_store(true);
    assert!(fixture.gateway.unready().is_some_and(|reason| reason.contains("database")));
    fixture.gateway.set_refused_by_store(false);
    assert_eq!(fixture.gateway.unready(), None);
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_failed_is_tried_again_soon() {
    let (fixture, records) = gateway();
    records.0.next.store(1, Ordering::Release);
    let keeping = tokio::spawn(Gateway::keep_calls(Arc::downgrade(&fixture.gateway)));
    tokio::time::sleep(Duration::from_secs(3)).await;
    keeping.abort();
    let asked = records.0.asked.lock();
    let pauses: Vec<Duration> = asked.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(pauses, [Duration::from_millis(500), Duration::from_secs(2)]);
}

/// However many calls have to be looked at.
#[tokio::test(start_paused = true)]
async fn a_lease_is_back_before_it_is_known_which_calls_were_taken_without_it() {
    let records = Arc::new(FaultyRecords(Cut::default()));
    let store = records.clone();
    let fixture = Fixture::new().with_stores(snapshot(), |stores| stores.active = store);
    let pipeline = &fixture.gateway.pipeline;
    let active = pipeline.internals().active;
    active.renew().await.unwrap();
    let waits = Modern::new("policy", &token("alice"), "tools/call", json!({"name": "policy.wipe"}));
    waits.capabilities(json!({"elicitation": {"form": {}}})).send(&fixture).await;
    let call = pipeline.internals().registry.running().pop().unwrap();
    active.announce(&call).await.unwrap();
    // A renewal whose answer was lost, and then none for longer than a lease.
    fails(&fixture, &records, 1).await;
    tokio::time::advance(Duration::from_secs(9)).await;
    assert!(active.is_away());
    records.0.hides.store(true, Ordering::Release);
    active.renew().await.unwrap();
    assert!(!active.is_away() && !refuses(&fixture).await);
    records.0.hides.store(false, Ordering::Release);
    active.renew().await.unwrap();
    assert!(active.is_ours(&call).await && call.outcome().is_none(), "nobody has taken it");
}
