//! Calls that a gateway leaves behind: how many another one takes at a look, and what one that cannot be taken costs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use asp_runtime_client::runtimes::Runtimes;
use asp_snapshot::Snapshot;
use asp_store::records::{CallRecords, MemoryRecords, NO_ROOM, NOBODY, Orphan, OwnerId, RecordError, State};
use async_trait::async_trait;
use serde_json::json;

use super::takeover::{leave_sealed_elsewhere, request, row, saves_and_hangs, send, take_over};
use super::{fixture, last_result, until_async};
use crate::runtime::{Runtime, Script, Worker};
use crate::support::ledger::Faulty;
use crate::support::records::{Faults, FaultyRecords};
use crate::support::{Fixture, snapshot};

fn in_force() -> Arc<Snapshot> {
    Arc::new(Snapshot::build(snapshot()).unwrap())
}

fn completes() -> Runtime {
    Runtime::start(Script::of(|_, mut worker: Worker| async move {
        let invoke = worker.begin(&[("checkpoint", "true")]).await;
        worker.complete(&invoke, &json!({"ok": true})).await;
    }))
}

#[tokio::test]
async fn all_that_a_gateway_with_many_calls_leaves_is_taken_within_two_looks() {
    const CALLS: usize = 40;
    let dead = Runtime::start(saves_and_hangs());
    let first = fixture(&dead);
    let _waiting: Vec<_> =
        (0..CALLS).map(|n| send(request("order", Some(&format!("k{n}"))), &first)).collect();
    let gone = first.gateway.pipeline.internals().active.owner();
    let left = async || {
        let orphans = first.active.orphans(100).await.unwrap();
        orphans
            .into_iter()
            .filter(|orphan| orphan.owner == gone)
            .map(|orphan| orphan.call)
            .collect::<Vec<_>>()
    };
    let have_saved = async || {
        let calls = left().await;
        let mut saved = 0;
        for call in &calls {
            saved += usize::from(first.active.find(*call).await.unwrap().is_some_and(|row| row.seq == 1));
        }
        saved == CALLS
    };
    until_async("all of them have saved", have_saved).await;
    let living = completes();
    let second = first.beside(living.runtimes());
    second.gateway.pipeline.internals().active.renew().await.unwrap();
    second.gateway.pipeline.take_over(&in_force()).await.unwrap();
    let next = Orphan { call: *left().await.first().expect("some are left"), owner: gone };
    let given_up = first.active.give_up(&next, OwnerId([9; 16]), Duration::ZERO).await.unwrap();
    assert!(!given_up, "it waits for the next look");
    second.gateway.pipeline.take_over(&in_force()).await.unwrap();
    assert!(left().await.is_empty());
    until_async("they go on", async || living.told.allocations.lock().len() == CALLS).await;
}

/// Records that never say whether a call was taken.
struct Silent(Arc<MemoryRecords>);

#[async_trait]
impl Faults for Silent {
    fn store(&self) -> &dyn CallRecords {
        &*self.0
    }

    async fn take(&self, _orphan: &Orphan, _owner: OwnerId) -> Result<bool, RecordError> {
        std::future::pending().await
    }
}

#[tokio::test]
async fn a_store_that_does_not_say_whether_a_call_was_taken_ends_one_look_and_not_the_next_ones() {
    let dead = Runtime::start(saves_and_hangs());
    let first = fixture(&dead);
    let _waiting = send(request("order", Some("k")), &first);
    row(&first, &dead, |row| row.seq == 1).await;
    let living = completes();
    let silent = Arc::new(FaultyRecords(Silent(first.active.clone())));
    let second = Fixture::with_runtimes_and(living.runtimes(), |stores| stores.active = silent);
    let pipeline = &second.gateway.pipeline;
    pipeline.internals().active.renew().await.unwrap();
    tokio::time::pause();
    let looked = tokio::time::timeout(Duration::from_secs(60), pipeline.take_over(&in_force())).await;
    assert!(looked.expect("the look ends").is_err());
}

/// Records that take a call once without saying so.
struct Unheard {
    inner: Arc<MemoryRecords>,
    has_answered: AtomicBool,
}

#[async_trait]
impl Faults for Unheard {
    fn store(&self) -> &dyn CallRecords {
        &*self.inner
    }

    async fn take(&self, orphan: &Orphan, owner: OwnerId) -> Result<bool, RecordError> {
        let taken = self.inner.take(orphan, owner).await;
        match self.has_answered.swap(true, Ordering::AcqRel) {
            true => taken,
            false => Err(RecordError::Unavailable("the connection broke".into())),
        }
    }
}

/// The answer for the row may be lost, and that for the key.
#[tokio::test]
async fn a_call_goes_on_where_the_store_has_taken_it_without_saying_so() {
    for hears_of_row in [false, true] {
        let dead = Runtime::start(saves_and_hangs());
        let first = fixture(&dead);
        let _waiting = send(request("order", Some("k")), &first);
        row(&first, &dead, |row| row.seq == 1).await;
        let living = completes();
        let has_answered = AtomicBool::new(hears_of_row);
        let records = Arc::new(FaultyRecords(Unheard { inner: first.active.clone(), has_answered }));
        let seizures = usize::from(hears_of_row);
        let ledger = Faulty {
            inner: first.ledger.clone(),
            unheard_seizures: AtomicUsize::new(seizures),
            ..Faulty::default()
        };
        let second = Fixture::with_runtimes_and(living.runtimes(), |stores| {
            stores.active = records;
            stores.ledger = Arc::new(ledger);
        });
        take_over(&second).await;
        let result = last_result(&request("order", Some("k")).send(&second).await);
        assert_eq!(result["structuredContent"], json!({"ok": true}), "{result}");
        assert_eq!(living.told.allocations.lock().len(), 1);
    }
}

#[tokio::test]
async fn a_call_that_the_store_has_taken_without_saying_so_waits_for_a_runtime_of_its_language() {
    let dead = Runtime::start(saves_and_hangs());
    let first = fixture(&dead);
    let _waiting = send(request("order", Some("k")), &first);
    row(&first, &dead, |row| row.seq == 1).await;
    let has_answered = AtomicBool::new(false);
    let records = Arc::new(FaultyRecords(Unheard { inner: first.active.clone(), has_answered }));
    let second = Fixture::with_runtimes_and(Runtimes::none(), |stores| {
        stores.active = records;
        stores.ledger = first.ledger.clone();
    });
    let pipeline = &second.gateway.pipeline;
    pipeline.internals().active.renew().await.unwrap();
    let orphan = *pipeline.internals().active.abandoned(1).await.unwrap().first().expect("it is left");
    let abandoned = pipeline.internals().active.open_abandoned(orphan).await.unwrap().expect("it opens");
    assert!(pipeline.internals().active.take(&abandoned).await.is_err(), "the answer is lost");
    pipeline.take_over(&in_force()).await.unwrap();
    assert!(pipeline.internals().registry.is_empty(), "it does not go on yet");
    let kept = first.active.find(orphan.call).await.unwrap().expect("it is not ended");
    assert_eq!(kept.owner, Some(pipeline.internals().active.owner()));
}

#[tokio::test(start_paused = true)]
async fn calls_that_no_gateway_can_open_are_all_looked_at_and_given_up_after_a_minute() {
    const CALLS: u128 = 600;
    let fixture = Fixture::new();
    let (pipeline, snapshot) = (&fixture.gateway.pipeline, in_force());
    for call in 0..CALLS {
        leave_sealed_elsewhere(&fixture, call.to_be_bytes()).await;
    }
    let looks = async || {
        for _ in 0..3 {
            pipeline.take_over(&snapshot).await.unwrap();
        }
    };
    looks().await;
    assert_eq!(pipeline.internals().skipped.begin(snapshot.revision), 600, "none hides another one");
    tokio::time::advance(Duration::from_secs(59)).await;
    looks().await;
    assert_eq!(fixture.active.orphans(1_000).await.unwrap().len(), 600, "another gateway may have their key");
    tokio::time::advance(Duration::from_secs(11)).await;
    fixture.active.renew(NO_ROOM, Duration::from_secs(3600)).await.unwrap();
    looks().await;
    let left = fixture.active.orphans(1_000).await.unwrap();
    assert_eq!(left.len(), 600, "a gateway that could take them has no room yet");
    fixture.active.renew(NO_ROOM, Duration::ZERO).await.unwrap();
    tokio::time::advance(Duration::from_secs(11)).await;
    looks().await;
    assert_eq!(fixture.active.orphans(1_000).await.unwrap(), []);
    let row = fixture.active.find([0; 16]).await.unwrap().unwrap();
    assert_eq!((row.resumes, row.owner, row.state), (false, Some(NOBODY), State::Failed));
}
