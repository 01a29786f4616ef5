//! Tasks that end between two steps of a request.

use std::sync::Arc;

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
