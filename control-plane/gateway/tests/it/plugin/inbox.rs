//! Answers and cancels at a gateway that does not run their call, over a bus that carries nothing: they are stored before they are
//! taken, and applied by the gateway that runs the call by then (I-13).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use asp_call::call::terms::{MAX_WAITS, lifetime_bound};
use asp_gateway::gateway::{EVENT_BYTES, Shared, Stores};
use asp_protocols::mcp::elsewhere;
use asp_runtime_client::runtimes::Runtimes;
use asp_store::answers::MemoryAnswers;
use asp_store::briefs::MemoryBriefs;
use asp_store::bus::{Bus, BusError, BusEvent};
use asp_store::followers::MemoryFollowers;
use asp_store::outbox::{MemoryOutbox, Outbox};
use asp_store::records::{CallRecords, Orphan, OwnerId, RecordError, State};
use asp_store::sessions::MemoryDirectory;
use async_trait::async_trait;
use axum::body::Body;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use http::{Method, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::noted_inbox::Noted;
use super::takeover::{answering, call_id, request, row, row_ends, saves_and_hangs, send, take_over};
use super::{asks_name, last_result, next_request, tasks, until, until_async, user_input};
use crate::runtime::{Runtime, Script, Worker};
use crate::support::records::{Faults, FaultyRecords};
use crate::support::{Fixture, Legacy};

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
pub(super) struct Gateways {
    pub(super) first: Fixture,
    pub(super) shared: Shared,
    bus: Arc<Deaf>,
    pub(super) inbox: Arc<Noted>,
}

impl Gateways {
    pub(super) fn with(runtime: &Runtime) -> Gateways {
        Gateways::with_stores(runtime, Arc::new(MemoryOutbox::default()), |_| {})
    }

    /// The same, with another outbox.
    pub(super) fn over(runtime: &Runtime, outbox: Arc<dyn Outbox>) -> Gateways {
        Gateways::with_stores(runtime, outbox, |_| {})
    }

    /// The same, with other stores at the first one.
    fn with_stores(runtime: &Runtime, outbox: Arc<dyn Outbox>, change: impl FnOnce(&mut Stores)) -> Gateways {
        let (bus, inbox) = (Arc::new(Deaf::default()), Arc::new(Noted::default()));
        let shared = Shared {
            directory: Arc::new(MemoryDirectory::default()),
            bus: bus.clone(),
            inbox: inbox.clone(),
            followers: Arc::new(MemoryFollowers::default()),
            outbox,
            event_bytes: EVENT_BYTES,
            answers: Arc::new(MemoryAnswers::default()),
            briefs: Arc::new(MemoryBriefs::default()),
        };
        let of_first = shared.clone();
        let first = Fixture::with_runtimes_and(runtime.runtimes(), |stores| {
            stores.shared = Some(of_first);
            change(stores);
        });
        Gateways { first, shared, bus, inbox }
    }

    /// The gateways that hear of others may have missed something.
    pub(super) fn miss(&self) {
        self.bus.missed.notify_one();
    }

    pub(super) fn another(&self, runtimes: Runtimes) -> Fixture {
        self.another_over(self.first.active.clone(), runtimes)
    }

    /// The same, with records of the test's own.
    pub(super) fn another_over(&self, active: Arc<dyn CallRecords>, runtimes: Runtimes) -> Fixture {
        let another = Fixture::with_runtimes_and(runtimes, |stores| {
            stores.active = active;
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

/// A worker that asks for a name and gets no answer.
fn asks_in_vain() -> Script {
    Script::of(|_, mut worker: Worker| async move {
        let invoke = worker.begin(&[("checkpoint", "true")]).await;
        worker.say(asks_name(&invoke.request_id)).await;
        while worker.next().await.is_some() {}
    })
}

/// The questions of a call of `sweep` at the first gateway, once another one could go on with it.
pub(super) async fn asked(gateways: &Gateways, runtime: &Runtime) -> Value {
    let asked = last_result(&request("sweep", None).send(&gateways.first).await);
    assert_eq!(asked["resultType"], "input_required", "{asked}");
    row(&gateways.first, runtime, |row| !row.memory.is_empty()).await;
    asked
}

/// Invariant I-13. The former gateway has lost the call, which has not ended there yet.
#[tokio::test]
async fn an_answer_at_the_former_gateway_of_a_call_arrives_where_it_goes_on() {
    let dead = Runtime::start(Script::of(|_, mut worker: Worker| async move {
        let invoke = worker.begin(&[("checkpoint", "true")]).await;
        worker.say(asks_name(&invoke.request_id)).await;
        while worker.next().await.is_some() {}
    }));
    let gateways = Gateways::with(&dead);
    let asked = asked(&gateways, &dead).await;
    let call = gateways.first.gateway.pipeline.internals().registry.running().pop().unwrap();
    // A gateway that is lost as well has taken it.
    let orphan =
        Orphan { call: call_id(&dead), owner: gateways.first.gateway.pipeline.internals().active.owner() };
    assert!(gateways.first.active.take(&orphan, OwnerId([9; 16])).await.unwrap());
    call.ownership.passed_on.set();
    let answered = send(answering(&asked), &gateways.first);
    until("the answer is stored", || gateways.inbox.has_stored()).await;
    let living = Runtime::start(asks());
    let third = gateways.another(living.runtimes());
    take_over(&third).await;
    row_ends(&gateways.first, call_id(&dead)).await;
    let row = gateways.first.active.find(call_id(&dead)).await.unwrap().unwrap();
    assert_eq!(row.state, State::Completed, "it had its answer");
    answered.abort();
}

/// Invariant I-13.
#[tokio::test]
async fn an_answer_that_was_taken_while_no_gateway_ran_the_call_arrives_where_it_goes_on() {
    let dead = Runtime::start(asks_in_vain());
    // The first gateway hears nothing any more.
    let gateways = Gateways::with(&dead);
    let asked = asked(&gateways, &dead).await;
    let second = gateways.another(Runtimes::none());
    let answered = send(answering(&asked), &second);
    until("the answer is stored", || gateways.inbox.has_stored()).await;
    let call = gateways.first.gateway.pipeline.internals().registry.running().pop().unwrap();
    let kept = gateways.inbox.kept.lock().unwrap();
    // A minute longer than any call of it may take, less the moment until it was stored.
    let expected = lifetime_bound(&call.entry.primitive, MAX_WAITS) + Duration::from_secs(59);
    assert!(kept > expected, "whatever the gateways' clocks say: {kept:?}");
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
    tokio::spawn(elsewhere::listen(Arc::downgrade(&gateways.first.gateway.replica)));
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
    tokio::spawn(elsewhere::listen(Arc::downgrade(&gateways.first.gateway.replica)));
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
    let gateways = Gateways::with_stores(&dead, Arc::new(MemoryOutbox::default()), |stores| {
        let inner = stores.active.clone();
        stores.active = Arc::new(FaultyRecords(Forgetful { inner, is_away: is_away.clone() }));
    });
    tokio::spawn(elsewhere::listen(Arc::downgrade(&gateways.first.gateway.replica)));
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

/// A legacy client that a call of `sweep` has asked at the first gateway, and the id of the first event of its stream.
async fn legacy_asked(gateways: &Gateways) -> (Legacy, String) {
    let can = json!({"elicitation": {}});
    let client = Legacy::connect(&gateways.first, "plugins", "alice", "2025-11-25", can).await;
    let call = json!({"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": {"name": "sweep", "arguments": {}}});
    let mut body = client.open(&call).await.into_body();
    let mut text = String::new();
    while !text.contains("elicitation/create") {
        let frame = tokio::time::timeout(BOUND, body.frame()).await.expect("it is asked").unwrap().unwrap();
        text.push_str(std::str::from_utf8(frame.data_ref().unwrap()).unwrap());
    }
    let id = text.lines().find_map(|line| line.strip_prefix("id:")).unwrap().trim().to_owned();
    (client, id)
}

/// The stream of a client that comes back to it.
async fn come_back(client: &Legacy, last: &str) -> Body {
    let headers = client.headers();
    let mut headers: Vec<(&str, &str)> =
        headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
    headers.push(("last-event-id", last));
    let path = format!("/{}/mcp", client.server);
    client.fixture.open(Method::GET, &path, &headers, "").await.into_body()
}

fn legacy_answer(asked: &Value) -> Value {
    let result = json!({"action": "accept", "content": {"name": "Ada"}});
    json!({"jsonrpc": "2.0", "id": asked["id"], "result": result})
}

/// Invariant I-13: a client that was not told that its answer was taken sends it again.
#[tokio::test]
async fn an_answer_whose_client_left_before_it_was_stored_can_be_sent_again() {
    let runtime = Runtime::start(asks());
    let gateways = Gateways::with(&runtime);
    tokio::spawn(elsewhere::listen(Arc::downgrade(&gateways.first.gateway.replica)));
    let (client, first_event) = legacy_asked(&gateways).await;
    let client = Arc::new(Legacy { fixture: gateways.another(Runtimes::none()), ..client });
    let mut stream = come_back(&client, &first_event).await;
    let answer = legacy_answer(&next_request(&mut stream).await);
    gateways.inbox.is_stuck.store(true, Ordering::SeqCst);
    let (leaves, said) = (client.clone(), answer.clone());
    let left = tokio::spawn(async move { leaves.post(&said).await });
    until("it is being stored", || gateways.inbox.tried.load(Ordering::SeqCst) == 1).await;
    left.abort();
    gateways.inbox.is_stuck.store(false, Ordering::SeqCst);
    assert_eq!(client.post(&answer).await.status, StatusCode::ACCEPTED);
    assert!(gateways.inbox.has_stored(), "before its client is told");
    gateways.bus.missed.notify_one();
    assert_eq!(next_request(&mut stream).await["result"]["structuredContent"], json!({"ok": true}));
}

/// Invariant I-13: the client answers in a request of its own, and its call runs at no gateway at that moment.
#[tokio::test]
async fn a_legacy_clients_answer_at_another_gateway_arrives_where_its_call_goes_on() {
    let dead = Runtime::start(asks_in_vain());
    // The first gateway hears nothing any more.
    let gateways = Gateways::with(&dead);
    let (client, first_event) = legacy_asked(&gateways).await;
    row(&gateways.first, &dead, |row| !row.memory.is_empty()).await;
    let client = Legacy { fixture: gateways.another(Runtimes::none()), ..client };
    let mut stream = come_back(&client, &first_event).await;
    let answer = legacy_answer(&next_request(&mut stream).await);
    assert_eq!(client.post(&answer).await.status, StatusCode::ACCEPTED);
    assert!(gateways.inbox.has_stored(), "before its client is told");
    let living = Runtime::start(asks());
    let third = gateways.another(living.runtimes());
    take_over(&third).await;
    // Where the call goes on it may ask again before the answer is there.
    let mut said = next_request(&mut stream).await;
    while said.get("result").is_none() {
        said = next_request(&mut stream).await;
    }
    assert_eq!(said["result"]["structuredContent"], json!({"ok": true}), "{said}");
    until_async("what was applied is removed", async || gateways.inbox.is_empty().await).await;
}

/// Invariant I-13: the gateway that gets the answer has asked nothing in its session.
#[tokio::test]
async fn a_legacy_answer_is_stored_by_a_gateway_that_did_not_ask() {
    let runtime = Runtime::start(asks());
    let gateways = Gateways::with(&runtime);
    tokio::spawn(elsewhere::listen(Arc::downgrade(&gateways.first.gateway.replica)));
    let (client, first_event) = legacy_asked(&gateways).await;
    let second = gateways.another(Runtimes::none());
    // The gateway lives on when its client goes to another one.
    let client = Legacy { fixture: second.clone(), ..client };
    let mut stream = come_back(&client, &first_event).await;
    let answer = legacy_answer(&next_request(&mut stream).await);
    let client = Legacy { fixture: gateways.another(Runtimes::none()), ..client };
    gateways.inbox.is_away.store(true, Ordering::SeqCst);
    let refused = client.post(&answer).await;
    assert_eq!(refused.reason(), "upstream_unavailable", "{}", refused.text);
    assert!(!gateways.inbox.has_stored(), "nothing comes of it");
    gateways.inbox.is_away.store(false, Ordering::SeqCst);
    assert_eq!(client.post(&answer).await.status, StatusCode::ACCEPTED);
    assert!(gateways.inbox.has_stored(), "before its client is told");
    gateways.bus.missed.notify_one();
    assert_eq!(next_request(&mut stream).await["result"]["structuredContent"], json!({"ok": true}));
}
