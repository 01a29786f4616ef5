//! Tasks that end between two steps of a request.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use asp_store::records::{CallRecords, MemoryRecords, OwnerId, RecordError, RecordKey, Save, State};
use async_trait::async_trait;
use bytes::Bytes;
use serde_json::json;
use tokio::sync::{Notify, Semaphore};
use uuid::Uuid;

use super::{Client, fixture, message, snapshot};
use crate::support::records::{Faults, FaultyRecords};

/// A step at which a store waits until the test continues it.
struct Gate {
    reached: Notify,
    open: Semaphore,
}

impl Gate {
    fn new() -> Gate {
        Gate { reached: Notify::new(), open: Semaphore::new(0) }
    }

    async fn pass(&self) {
        self.reached.notify_one();
        drop(self.open.acquire().await.unwrap());
    }
}

/// Records that wait after a state was stored, and after tasks were listed.
struct Halting {
    inner: Arc<MemoryRecords>,
    has_stored: Gate,
    has_listed: Gate,
}

#[async_trait]
impl Faults for Halting {
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
        let saved = self.inner.put(key, owner, state, record).await;
        self.has_stored.pass().await;
        saved
    }

    async fn has_listed(&self) {
        self.has_listed.pass().await;
    }
}

/// Invariant I-13.
#[tokio::test]
async fn a_task_that_ends_while_it_is_listed_is_stored_before_it_is_listed_as_ended() {
    let base = fixture();
    let has_stored = Gate::new();
    let has_listed = Gate::new();
    let records = Arc::new(FaultyRecords(Halting { inner: base.active.clone(), has_stored, has_listed }));
    let fixture = base.with_stores(snapshot(), |stores| stores.active = records.clone());
    let client = Client::of(&fixture, "demo");
    let mut params = message("count", json!({"to": 100, "delayMs": 1000}));
    params["configuration"] = json!({"returnImmediately": true});
    let listed = async {
        // The client does not know of the task yet.
        records.0.has_stored.reached.notified().await;
        let ended = async {
            records.0.has_listed.reached.notified().await;
            let call = fixture.gateway.pipeline.internals().registry.running().pop().unwrap();
            call.cancel();
            call.finished().await;
            records.0.has_listed.open.add_permits(1);
        };
        let (page, ()) = tokio::join!(client.result("ListTasks", json!({})), ended);
        let task = &page["tasks"][0];
        assert_eq!(task["status"]["state"], "TASK_STATE_CANCELED", "{page}");
        let id = Uuid::parse_str(task["id"].as_str().unwrap()).unwrap().into_bytes();
        let row = base.active.find(id).await.unwrap().map(|row| (row.state, row.owner));
        assert_eq!(row, Some((State::Cancelled, None)));
        records.0.has_stored.open.add_permits(1);
    };
    let (sent, ()) = tokio::join!(client.result("SendMessage", params), listed);
    assert_eq!(sent["task"]["status"]["state"], "TASK_STATE_CANCELED", "{sent}");
}

/// Records that count how often a running task is stored.
struct Counting {
    inner: Arc<MemoryRecords>,
    puts: AtomicUsize,
}

#[async_trait]
impl Faults for Counting {
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
        self.puts.fetch_add(1, Ordering::Relaxed);
        self.inner.put(key, owner, state, record).await
    }
}

/// Invariant I-13.
#[tokio::test]
async fn a_task_whose_client_waits_is_stored_when_it_ends_if_that_is_soon() {
    let base = fixture();
    let puts = AtomicUsize::new(0);
    let records = Arc::new(FaultyRecords(Counting { inner: base.active.clone(), puts }));
    let fixture = base.with_stores(snapshot(), |stores| stores.active = records.clone());
    let client = Client::of(&fixture, "demo");
    let puts_after = async |at_once: bool| {
        let delay_ms = if at_once { 1000 } else { 50 };
        let mut params = message("count", json!({"to": 2, "delayMs": delay_ms}));
        params["configuration"] = json!({"returnImmediately": at_once});
        let sent = client.result("SendMessage", params).await;
        let id = Uuid::parse_str(sent["task"]["id"].as_str().unwrap()).unwrap().into_bytes();
        let owner = base.active.find(id).await.unwrap().map(|row| row.owner);
        assert_eq!(
            owner.map(|owner| owner.is_none()),
            Some(!at_once),
            "it is stored as it is reported: {sent}"
        );
        records.0.puts.load(Ordering::Relaxed)
    };
    assert_eq!(puts_after(false).await, 0, "its end is the only write");
    assert!(puts_after(true).await > 0, "its client learns of it while it runs");
}
