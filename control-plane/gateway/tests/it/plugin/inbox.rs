//! Answers and cancels at a gateway that does not run their call, over a bus that carries nothing: they are stored before they are
//! taken, and applied by the gateway that runs the call by then (I-13).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use asp_gateway::executors::plugin::runtimes::Runtimes;
use asp_gateway::faces::mcp::elsewhere;
use asp_gateway::gateway::{Shared, Stores};
use asp_store::answers::MemoryAnswers;
use asp_store::bus::{Bus, BusError, BusEvent};
use asp_store::inbox::{EntryName, Inbox, InboxError, InboxId, MemoryInbox, Put};
use asp_store::outbox::MemoryOutbox;
use asp_store::records::{CallRecords, OwnerId, RecordError};
use asp_store::sessions::MemoryDirectory;
use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::takeover::{answering, request, row, saves_and_hangs, send, take_over};
use super::{asks_name, last_result, tasks, until, until_async, user_input};
use crate::runtime::{Runtime, Script, Worker};
use crate::support::Fixture;
use crate::support::records::{Faults, FaultyRecords};

/// Hang guard of one step.
const BOUND: Duration = Duration::from_secs(60);

/// A bus that carries nothing, and says so when a test wants.
#[derive(Default)]
struct Deaf {
    missed: Arc<Notify>,
}

#[async_trait]
impl Bus for Deaf {
    async fn tell(&self, _: OwnerId, _: Bytes) -> Result<(), BusError> {
        Ok(())
    }

    fn listen(&self, _: OwnerId) -> BoxStream<'static, BusEvent<Bytes>> {
        let missed = self.missed.clone();
        let next = |missed: Arc<Notify>| async move {
            missed.notified().await;
            Some((BusEvent::Gap, missed))
        };
        stream::unfold(missed, next).boxed()
    }
}

/// Inboxes that may be away, and note what was put into them.
#[derive(Default)]
struct Noted {
    inbox: MemoryInbox,
    is_away: AtomicBool,
    stored: Mutex<Vec<InboxId>>,
}

impl Noted {
    fn check(&self) -> Result<(), InboxError> {
        match self.is_away.load(Ordering::SeqCst) {
            true => Err(InboxError::Unavailable("connection refused".into())),
            false => Ok(()),
        }
    }

    fn has_stored(&self) -> bool {
        !self.stored.lock().is_empty()
    }

    /// How often something was put into them.
    fn puts(&self) -> usize {
        self.stored.lock().len()
    }

    async fn is_empty(&self) -> bool {
        let id = self.stored.lock()[0];
        self.inbox.read(id).await.unwrap().is_empty()
    }
}

#[async_trait]
impl Inbox for Noted {
    async fn put(
        &self,
        inbox: InboxId,
        name: EntryName,
        entry: Bytes,
        keep: Duration,
    ) -> Result<Put, InboxError> {
        self.check()?;
        let put = self.inbox.put(inbox, name, entry, keep).await;
        self.stored.lock().push(inbox);
        put
    }

    async fn read(&self, inbox: InboxId) -> Result<Vec<(EntryName, Bytes)>, InboxError> {
        self.check()?;
        self.inbox.read(inbox).await
    }

    async fn remove(&self, inbox: InboxId, names: &[EntryName]) -> Result<(), InboxError> {
        self.check()?;
        self.inbox.remove(inbox, names).await
    }
}

/// Records that take no memory of a call while they are away.
struct Forgetful {
    inner: Arc<dyn CallRecords>,
    is_away: Arc<AtomicBool>,
}

#[async_trait]
impl Faults for Forgetful {
    fn store(&self) -> &dyn CallRecords {
        &*self.inner
    }

    fn saves_memory(&self) -> Result<(), RecordError> {
        match self.is_away.load(Ordering::SeqCst) {
            true => Err(RecordError::Unavailable("the database is away".into())),
            false => Ok(()),
        }
    }
}

/// Gateways over the same stores; at the first one calls begin.
struct Gateways {
    first: Fixture,
    shared: Shared,
    bus: Arc<Deaf>,
    inbox: Arc<Noted>,
}

impl Gateways {
    fn with(runtime: &Runtime) -> Gateways {
        Gateways::with_stores(runtime, |_| {})
    }

    /// The same, with other stores at the first one.
    fn with_stores(runtime: &Runtime, change: impl FnOnce(&mut Stores)) -> Gateways {
        let (bus, inbox) = (Arc::new(Deaf::default()), Arc::new(Noted::default()));
        let shared = Shared {
            directory: Arc::new(MemoryDirectory::default()),
            bus: bus.clone(),
            inbox: inbox.clone(),
            outbox: Arc::new(MemoryOutbox::default()),
            answers: Arc::new(MemoryAnswers::default()),
        };
        let of_first = shared.clone();
        let first = Fixture::with_runtimes_and(runtime.runtimes(), |stores| {
            stores.shared = Some(of_first);
            change(stores);
        });
        Gateways { first, shared, bus, inbox }
    }

    fn another(&self, runtimes: Runtimes) -> Fixture {
        let another = Fixture::with_runtimes_and(runtimes, |stores| {
            stores.active = self.first.active.clone();
            stores.ledger = self.first.ledger.clone();
            stores.audit = self.first.audit.clone();
            stores.shared = Some(self.shared.clone());
        });
        Fixture { gateway: another.gateway, ..self.first.clone() }
    }
}

/// A worker that asks for a name and completes.
fn asks() -> Script {
    Script::of(|_, mut worker: Worker| async move {
        let invoke = worker.begin(&[("checkpoint", "true")]).await;
        worker.say(asks_name(&invoke.request_id)).await;
        let given = user_input(&mut worker).await;
        assert_eq!(given.fields.unwrap().value, br#"{"name":"Ada"}"#);
        worker.complete(&invoke, &json!({"ok": true})).await;
    })
}

/// The questions of a call of `sweep` at the first gateway, once another one could go on with it.
async fn asked(gateways: &Gateways, runtime: &Runtime) -> Value {
    let asked = last_result(&request("sweep", None).send(&gateways.first).await);
    assert_eq!(asked["resultType"], "input_required", "{asked}");
    row(&gateways.first, runtime, |row| !row.memory.is_empty()).await;
    asked
}

/// Invariant I-13.
#[tokio::test]
async fn an_answer_that_was_taken_while_no_gateway_ran_the_call_arrives_where_it_goes_on() {
    let dead = Runtime::start(Script::of(|_, mut worker: Worker| async move {
        let invoke = worker.begin(&[("checkpoint", "true")]).await;
        worker.say(asks_name(&invoke.request_id)).await;
        while worker.next().await.is_some() {}
    }));
    // The first gateway hears nothing any more.
    let gateways = Gateways::with(&dead);
    let asked = asked(&gateways, &dead).await;
    let second = gateways.another(Runtimes::none());
    let answered = send(answering(&asked), &second);
    until("the answer is stored", || gateways.inbox.has_stored()).await;
    let living = Runtime::start(asks());
    let third = gateways.another(living.runtimes());
    take_over(&third).await;
    let result = last_result(&answered.await.unwrap());
    assert_eq!(result["structuredContent"], json!({"ok": true}), "{result}");
    until_async("what was applied is removed", async || gateways.inbox.is_empty().await).await;
}

#[tokio::test]
async fn a_gateway_that_may_have_missed_an_answer_finds_it() {
    let runtime = Runtime::start(asks());
    let gateways = Gateways::with(&runtime);
    tokio::spawn(elsewhere::hear(Arc::downgrade(&gateways.first.gateway)));
    let asked = asked(&gateways, &runtime).await;
    let answered = send(answering(&asked), &gateways.another(Runtimes::none()));
    until("the answer is stored", || gateways.inbox.has_stored()).await;
    gateways.bus.missed.notify_one();
    let result = last_result(&answered.await.unwrap());
    assert_eq!(result["structuredContent"], json!({"ok": true}), "{result}");
    until_async("what was applied is removed", async || gateways.inbox.is_empty().await).await;
}

/// Invariant I-13: what its caller was told of the first one stands.
#[tokio::test]
async fn of_two_answers_at_two_gateways_the_first_counts() {
    let runtime = Runtime::start(asks());
    let gateways = Gateways::with(&runtime);
    tokio::spawn(elsewhere::hear(Arc::downgrade(&gateways.first.gateway)));
    let asked = asked(&gateways, &runtime).await;
    let answered = send(answering(&asked), &gateways.another(Runtimes::none()));
    until("the answer is stored", || gateways.inbox.puts() == 1).await;
    let mut contradicting = answering(&asked);
    for answer in contradicting.body["params"]["inputResponses"].as_object_mut().unwrap().values_mut() {
        answer["content"]["name"] = "Eve".into();
    }
    let _contradicted = send(contradicting, &gateways.another(Runtimes::none()));
    until("the other one was tried", || gateways.inbox.puts() == 2).await;
    gateways.bus.missed.notify_one();
    let result = last_result(&answered.await.unwrap());
    assert_eq!(result["structuredContent"], json!({"ok": true}), "{result}");
}

/// Invariant I-13. The plugin has the answer, and no store but the inbox.
#[tokio::test]
async fn an_answer_stays_until_it_is_stored_with_its_call() {
    let came = Arc::new(Notify::new());
    let comes = came.clone();
    let dead = Runtime::start(Script::of(move |_, mut worker: Worker| {
        let comes = comes.clone();
        async move {
            let invoke = worker.begin(&[("checkpoint", "true")]).await;
            worker.say(asks_name(&invoke.request_id)).await;
            user_input(&mut worker).await;
            comes.notify_one();
            while worker.next().await.is_some() {}
        }
    }));
    let is_away = Arc::new(AtomicBool::new(false));
    let gateways = Gateways::with_stores(&dead, |stores| {
        let inner = stores.active.clone();
        stores.active = Arc::new(FaultyRecords(Forgetful { inner, is_away: is_away.clone() }));
    });
    tokio::spawn(elsewhere::hear(Arc::downgrade(&gateways.first.gateway)));
    let asked = asked(&gateways, &dead).await;
    is_away.store(true, Ordering::SeqCst);
    let answered = send(answering(&asked), &gateways.another(Runtimes::none()));
    until("the answer is stored", || gateways.inbox.has_stored()).await;
    gateways.bus.missed.notify_one();
    tokio::time::timeout(BOUND, came.notified()).await.expect("the plugin gets the answer");
    assert!(!gateways.inbox.is_empty().await, "it is stored nowhere else");
    let living = Runtime::start(asks());
    let third = gateways.another(living.runtimes());
    take_over(&third).await;
    let result = last_result(&answered.await.unwrap());
    assert_eq!(result["structuredContent"], json!({"ok": true}), "{result}");
    until_async("what was stored is removed", async || gateways.inbox.is_empty().await).await;
}

/// Invariant I-13.
#[tokio::test]
async fn a_cancel_is_refused_until_it_is_stored_and_then_ends_the_call_where_it_goes_on() {
    let dead = Runtime::start(saves_and_hangs());
    let gateways = Gateways::with(&dead);
    let task = tasks::begun(&gateways.first).await;
    row(&gateways.first, &dead, |row| row.seq == 1).await;
    let second = gateways.another(Runtimes::none());
    let cancel = async || tasks::of_task("tasks/cancel", &task, &json!({})).send(&second).await;
    gateways.inbox.is_away.store(true, Ordering::SeqCst);
    let refused = cancel().await;
    assert_eq!(refused.reason(), "upstream_unavailable", "{}", refused.text);
    assert!(refused.text.contains("send it again"), "{}", refused.text);
    assert!(!gateways.inbox.has_stored(), "nothing comes of it");
    gateways.inbox.is_away.store(false, Ordering::SeqCst);
    let taken = cancel().await.json();
    assert_eq!(taken["result"]["resultType"], "complete", "{taken}");
    assert!(gateways.inbox.has_stored(), "before its client is told");
    let living = Runtime::start(Script::of(|_, mut worker: Worker| async move {
        worker.begin(&[("checkpoint", "true")]).await;
        while worker.next().await.is_some() {}
    }));
    let third = gateways.another(living.runtimes());
    take_over(&third).await;
    tasks::until(&second, &task, "cancelled").await;
}
