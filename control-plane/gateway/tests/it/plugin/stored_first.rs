//! The end of a call is in the store before anybody is told of it, if its client may ask again (I-3, I-13).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use asp_gateway::executors::plugin::runtimes::Runtimes;
use asp_store::records::{CallRecords, MemoryRecords, RecordError};
use async_trait::async_trait;
use serde_json::{Value, json};
use uuid::Uuid;

use super::tasks::{begun, get, until as until_status};
use super::until;
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

    fn learns_ends(&self) -> Result<(), RecordError> {
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

fn id(task: &Value) -> [u8; 16] {
    Uuid::parse_str(task["taskId"].as_str().unwrap()).unwrap().into_bytes()
}

/// A task that has its result, at a gateway whose store does not take that.
async fn ended(records: &Arc<FaultyRecords<Deaf>>) -> (Runtime, Fixture, Value) {
    let runtime = completing();
    let records = records.clone();
    let fixture = Fixture::with_runtimes_and(runtime.runtimes(), |stores| stores.active = records.clone());
    fixture.gateway.pipeline.active.renew().await.unwrap();
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
    fixture.gateway.pipeline.active.renew().await.unwrap();
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
