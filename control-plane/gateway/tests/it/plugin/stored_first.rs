//! The end of a call is in the store before anybody is told of it, if its client may ask again or another gateway could run it
//! again (I-3, I-13).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use asp_runtime_client::runtimes::Runtimes;
use asp_store::records::{CallRecords, MemoryRecords, Orphan, OwnerId, RecordError};
use async_trait::async_trait;
use serde_json::{Value, json};
use uuid::Uuid;

use super::resume::save;
use super::takeover::{call_id, request, send};
use super::tasks::{begun, get, until as until_status};
use super::{last_result, modern, until, until_async};
use crate::runtime::{Runtime, Script, Worker};
use crate::support::Fixture;
use crate::support::records::{Faults, FaultyRecords};

/// Records that take no end of a call while `refuses`.
struct Deaf {
    inner: Arc<MemoryRecords>,
    refuses: AtomicBool,
    refused: AtomicUsize,
}

#[async_trait]
impl Faults for Deaf {
    fn store(&self) -> &dyn CallRecords {
        &*self.inner
    }

    async fn learns_ends(&self) -> Result<(), RecordError> {
        if !self.refuses.load(Ordering::Acquire) {
            return Ok(());
        }
        self.refused.fetch_add(1, Ordering::AcqRel);
        Err(RecordError::Unavailable("the database is away".into()))
    }
}

fn deaf(base: &Fixture) -> Arc<FaultyRecords<Deaf>> {
    let (inner, refuses) = (base.active.clone(), AtomicBool::new(true));
    Arc::new(FaultyRecords(Deaf { inner, refuses, refused: AtomicUsize::new(0) }))
}

fn completing() -> Runtime {
    Runtime::start(Script::of(|_, mut worker: Worker| async move {
        let invoke = worker.begin(&[]).await;
        worker.complete(&invoke, &json!({"ok": true})).await;
    }))
}

/// A gateway without a key for its call, which saves a checkpoint and completes.
fn checkpointing(records: &Arc<FaultyRecords<Deaf>>) -> (Runtime, Fixture) {
    let runtime = Runtime::start(Script::of(|_, mut worker: Worker| async move {
        let invoke = worker.begin(&[("checkpoint", "true")]).await;
        assert_eq!(save(&mut worker, &invoke.request_id, 1, b"one").await, "");
        worker.complete(&invoke, &json!({"ok": true})).await;
    }));
    let records = records.clone();
    let fixture = Fixture::with_runtimes_and(runtime.runtimes(), |stores| stores.active = records);
    (runtime, fixture)
}

fn id(task: &Value) -> [u8; 16] {
    Uuid::parse_str(task["taskId"].as_str().unwrap()).unwrap().into_bytes()
}

/// A task that has its result, at a gateway whose store does not take that.
async fn ended(records: &Arc<FaultyRecords<Deaf>>) -> (Runtime, Fixture, Value) {
    let runtime = completing();
    let records = records.clone();
    let fixture = Fixture::with_runtimes_and(runtime.runtimes(), |stores| stores.active = records.clone());
    fixture.gateway.pipeline.internals().active.renew().await.unwrap();
    let task = begun(&fixture).await;
    until("the end is refused", || records.0.refused.load(Ordering::Acquire) > 0).await;
    (runtime, fixture, task)
}

#[tokio::test]
async fn a_task_stands_as_running_until_the_store_has_its_end() {
    let base = Fixture::new();
    let records = deaf(&base);
    let (_runtime, fixture, task) = ended(&records).await;
    assert_eq!(get(&fixture, &task).await["status"], "working");
    records.0.refuses.store(false, Ordering::Release);
    fixture.gateway.pipeline.internals().active.renew().await.unwrap();
    until_status(&fixture, &task, "completed").await;
    let row = base.active.find(id(&task)).await.unwrap().unwrap();
    assert_eq!(row.owner, None, "stored before it was told");
    let other = base.beside(Runtimes::none());
    let told = get(&other, &task).await;
    assert_eq!(told["result"]["structuredContent"], json!({"ok": true}), "{told}");
}

#[tokio::test]
async fn a_shutdown_waits_for_the_store_to_have_the_end() {
    let base = Fixture::new();
    let records = deaf(&base);
    let (_runtime, fixture, task) = ended(&records).await;
    let gateway = fixture.gateway.clone();
    let stopping = tokio::spawn(async move { gateway.stop().await });
    let before = records.0.refused.load(Ordering::Acquire);
    until("it tries again", || records.0.refused.load(Ordering::Acquire) > before).await;
    assert!(!stopping.is_finished());
    records.0.refuses.store(false, Ordering::Release);
    stopping.await.unwrap();
    let row = base.active.find(id(&task)).await.unwrap().unwrap();
    assert_eq!((row.owner, row.outcome.is_empty()), (None, false));
}

#[tokio::test]
async fn no_gateway_can_run_a_call_without_a_key_again_once_its_client_has_the_answer() {
    let base = Fixture::new();
    let records = deaf(&base);
    let (runtime, fixture) = checkpointing(&records);
    fixture.gateway.pipeline.internals().active.renew().await.unwrap();
    let waiting = send(request("order", None), &fixture);
    until("the end is refused", || records.0.refused.load(Ordering::Acquire) > 0).await;
    records.0.refuses.store(false, Ordering::Release);
    fixture.gateway.pipeline.internals().active.renew().await.unwrap();
    let result = last_result(&waiting.await.unwrap());
    assert_eq!(result["structuredContent"], json!({"ok": true}), "{result}");
    assert_eq!(base.active.find(call_id(&runtime)).await.unwrap(), None, "deleted before it was told");
}

#[tokio::test]
async fn an_answer_waits_for_a_store_that_is_away_only_briefly_and_its_row_goes_later() {
    let base = Fixture::new();
    let records = deaf(&base);
    let (runtime, fixture) = checkpointing(&records);
    fixture.gateway.pipeline.internals().active.renew().await.unwrap();
    let result = last_result(&request("order", None).send(&fixture).await);
    assert_eq!(result["structuredContent"], json!({"ok": true}), "{result}");
    assert!(base.active.find(call_id(&runtime)).await.unwrap().is_some(), "the store takes nothing");
    records.0.refuses.store(false, Ordering::Release);
    fixture.gateway.pipeline.internals().active.renew().await.unwrap();
    until_async("its row is gone", async || base.active.find(call_id(&runtime)).await.unwrap().is_none())
        .await;
}

#[tokio::test]
async fn a_call_without_a_key_that_another_gateway_has_taken_is_not_answered_here() {
    let base = Fixture::new();
    let records = deaf(&base);
    records.0.refuses.store(false, Ordering::Release);
    let (script, go) = Script::until_told(|mut worker: Worker, went| async move {
        let invoke = worker.begin(&[("checkpoint", "true")]).await;
        assert_eq!(save(&mut worker, &invoke.request_id, 1, b"one").await, "");
        went.await.unwrap();
        worker.complete(&invoke, &json!({"ok": true})).await;
    });
    let runtime = Runtime::start(script);
    let store = records.clone();
    let fixture = Fixture::with_runtimes_and(runtime.runtimes(), |stores| stores.active = store);
    let waiting = send(request("order", None), &fixture);
    let saved = async || {
        let allocated = !runtime.told.allocations.lock().is_empty();
        allocated && base.active.find(call_id(&runtime)).await.unwrap().is_some_and(|row| row.seq == 1)
    };
    until_async("it has saved", saved).await;
    let owner = fixture.gateway.pipeline.internals().active.owner();
    let orphan = Orphan { call: call_id(&runtime), owner };
    assert!(base.active.take(&orphan, OwnerId([9; 16])).await.unwrap());
    go.send(()).unwrap();
    let result = last_result(&waiting.await.unwrap());
    assert_eq!(result["_meta"]["asp/reason"], "outcome_unknown", "{result}");
}

/// Another gateway would go on with the call by what is left of it.
#[tokio::test]
async fn the_row_of_a_call_that_has_ended_is_deleted_once_the_store_answers() {
    let base = Fixture::new();
    let records = deaf(&base);
    let runtime = Runtime::start(Script::of(|_, mut worker: Worker| async move {
        let invoke = worker.begin(&[("checkpoint", "true")]).await;
        assert_eq!(save(&mut worker, &invoke.request_id, 1, b"one").await, "");
        worker.complete(&invoke, &json!({"ok": true})).await;
    }));
    let fixture = Fixture::with_runtimes_and(runtime.runtimes(), |stores| stores.active = records.clone());
    fixture.gateway.pipeline.internals().active.renew().await.unwrap();
    let result = last_result(&modern("order", json!({})).send(&fixture).await);
    assert_eq!(result["structuredContent"], json!({"ok": true}), "{result}");
    until("its row is not deleted", || records.0.refused.load(Ordering::Acquire) > 0).await;
    let call = call_id(&runtime);
    assert!(base.active.find(call).await.unwrap().is_some_and(|row| row.resumes));
    records.0.refuses.store(false, Ordering::Release);
    fixture.gateway.pipeline.internals().active.renew().await.unwrap();
    until_async("it is deleted", async || base.active.find(call).await.unwrap().is_none()).await;
}
