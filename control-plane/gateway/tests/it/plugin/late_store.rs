//! A store that does what it was asked after its gateway has given up waiting. The rows are in the real store; only
//! the answer to the first row is held back for ever, as a disk that stands still for seconds does.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use asp_gateway::gateway::Gateway;
use asp_proto::plugin::client_message;
use asp_store::records::{CallRecords, OwnerId, RecordError, RecordKey, Save, State};
use asp_store::sqlite::SqliteCalls;
use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::{last_result, modern, until_async};
use crate::runtime::{Runtime, Script, Worker};
use crate::support::records::{Faults, FaultyRecords};
use crate::support::{Fixture, Modern};

struct Late {
    store: Arc<SqliteCalls>,
    /// Whether those rows are late that only tell of a call, else those that another gateway goes on by.
    telling: bool,
    puts: AtomicUsize,
    /// The states that rows were to tell, one after the other.
    told: Arc<Mutex<Vec<State>>>,
}

#[async_trait]
impl Faults for Late {
    fn store(&self) -> &dyn CallRecords {
        &*self.store
    }

    async fn put(
        &self,
        key: &RecordKey,
        owner: OwnerId,
        state: State,
        record: Bytes,
    ) -> Result<Save, RecordError> {
        if !key.resumes {
            self.told.lock().push(state);
        }
        if key.resumes == self.telling {
            return self.store.put(key, owner, state, record).await;
        }
        match self.puts.fetch_add(1, Ordering::AcqRel) {
            0 => {
                self.store.put(key, owner, state, record).await?;
                std::future::pending().await
            }
            1 => Err(RecordError::Unavailable("database is locked".into())),
            _ => self.store.put(key, owner, state, record).await,
        }
    }
}

/// The real store, in a directory that goes with the test.
struct Store {
    calls: Arc<SqliteCalls>,
    told: Arc<Mutex<Vec<State>>>,
    _directory: tempfile::TempDir,
}

impl Store {
    async fn open() -> Store {
        let directory = tempfile::tempdir().unwrap();
        let calls = Arc::new(SqliteCalls::open(&directory.path().join("calls.db")).await.unwrap());
        Store { calls, told: Arc::default(), _directory: directory }
    }

    /// A gateway that makes its rows late: see [`Late::telling`].
    fn late(&self, runtime: &Runtime, telling: bool) -> Fixture {
        let late =
            Late { store: self.calls.clone(), telling, puts: AtomicUsize::new(0), told: self.told.clone() };
        Fixture::with_runtimes_and(runtime.runtimes(), |stores| {
            stores.ledger = self.calls.clone();
            stores.active = Arc::new(FaultyRecords(late));
        })
    }

    /// A gateway that goes on with what another one has left.
    async fn successor(&self, runtime: &Runtime) -> Fixture {
        let fixture = Fixture::with_runtimes_and(runtime.runtimes(), |stores| {
            stores.ledger = self.calls.clone();
            stores.active = self.calls.clone();
        });
        fixture.gateway.pipeline.internals().active.renew().await.unwrap();
        tokio::spawn(Gateway::take_over_calls(Arc::downgrade(&fixture.gateway)));
        fixture
    }

    /// Returns the number of rows without a living gateway: in these tests, all.
    async fn rows(&self) -> usize {
        self.calls.orphans(100).await.unwrap().len()
    }
}

fn keyed(name: &str) -> Modern {
    let mut request = modern(name, json!({}));
    let meta = &mut request.body["params"]["_meta"];
    meta["io.modelcontextprotocol/clientCapabilities"] = json!({"elicitation": {}});
    meta["asp/idempotencyKey"] = "k".into();
    request
}

/// `purge`, approved.
async fn purged(fixture: &Fixture) -> Value {
    let asked = last_result(&keyed("purge").send(fixture).await);
    let mut approving = keyed("purge");
    approving.body["params"]["requestState"] = asked["requestState"].clone();
    approving.body["params"]["inputResponses"] =
        json!({"asp.approve": {"action": "accept", "content": {"approve": true}}});
    last_result(&approving.send(fixture).await)
}

#[tokio::test]
async fn a_row_that_says_late_that_its_call_has_not_begun_lets_nothing_run_twice() {
    let store = Store::open().await;
    let hangs = Runtime::start(Script::of(|_, mut worker: Worker| async move {
        let _invoke = worker.begin(&[]).await;
        while !matches!(worker.next().await, None | Some(client_message::Payload::Cancel(_))) {}
    }));
    let first = store.late(&hangs, false);
    let fixture = first.clone();
    // Its row says that it waits for an approval, whatever it does.
    let purging = tokio::spawn(async move { purged(&fixture).await });
    let began = || !hangs.told.allocations.lock().is_empty();
    until_async("it begins or ends", async || began() || purging.is_finished()).await;
    let begun = usize::from(began());
    let completes = Runtime::start(Script::of(|_, mut worker: Worker| async move {
        let invoke = worker.begin(&[]).await;
        worker.complete(&invoke, &json!({"ok": true})).await;
    }));
    let second = store.successor(&completes).await;
    until_async("it is taken over or gone", async || store.rows().await == 0).await;
    let _retried = purged(&second).await;
    let runs = begun + completes.told.allocations.lock().len();
    assert!(runs <= 1, "it ran {runs} times");
}

#[tokio::test]
async fn a_row_that_was_made_late_ends_with_its_call() {
    let store = Store::open().await;
    let runtime = Runtime::start(Script::of(|_, mut worker: Worker| async move {
        let invoke = worker.begin(&[]).await;
        worker.complete(&invoke, &json!({"ok": true})).await;
    }));
    let fixture = store.late(&runtime, false);
    let result = last_result(&keyed("order").send(&fixture).await);
    assert_eq!(result["structuredContent"], json!({"ok": true}), "a slow store stops no call: {result}");
    fixture.gateway.flush().await;
    assert_eq!(store.rows().await, 0);
}

fn task() -> Modern {
    let extensions = json!({"io.modelcontextprotocol/tasks": {}});
    modern("sweep", json!({})).capabilities(json!({"extensions": extensions}))
}

#[tokio::test]
async fn each_state_of_a_task_is_stored_once() {
    let store = Store::open().await;
    let completes = Arc::new(Notify::new());
    let may = completes.clone();
    let runtime = Runtime::start(Script::of(move |_, mut worker: Worker| {
        let may = may.clone();
        async move {
            let invoke = worker.begin(&[]).await;
            may.notified().await;
            worker.complete(&invoke, &json!({"ok": true})).await;
        }
    }));
    let fixture = store.late(&runtime, false);
    assert_eq!(last_result(&task().send(&fixture).await)["resultType"], "task");
    completes.notify_one();
    until_async("it ends", async || fixture.gateway.pipeline.internals().registry.running().is_empty()).await;
    fixture.gateway.flush().await;
    let told = store.told.lock();
    assert!(!told.is_empty() && told.windows(2).all(|pair| pair[0] != pair[1]), "{told:?}");
}

#[tokio::test]
async fn a_client_that_goes_away_before_it_is_told_of_a_task_cancels_its_call_and_leaves_no_row() {
    let store = Store::open().await;
    let hangs = Runtime::start(Script::of(|_, mut worker: Worker| async move {
        worker.begin(&[]).await;
        while worker.next().await.is_some() {}
    }));
    let fixture = store.late(&hangs, true);
    let request = task();
    let first = fixture.clone();
    let asking = tokio::spawn(async move { request.send(&first).await });
    let registry = fixture.gateway.pipeline.internals().registry;
    until_async("it begins", async || !registry.running().is_empty()).await;
    let id = registry.running()[0].id.into_bytes();
    until_async("its row is made", async || store.calls.find(id).await.unwrap().is_some()).await;
    asking.abort();
    assert!(asking.await.is_err_and(|ended| ended.is_cancelled()), "before it was told of a task");
    until_async("it is cancelled", async || registry.running().is_empty()).await;
    fixture.gateway.flush().await;
    assert_eq!(store.calls.find(id).await.unwrap(), None);
}
