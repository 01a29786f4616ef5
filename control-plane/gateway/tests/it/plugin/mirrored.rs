//! Calls that are followed at a gateway that does not run them: what of their records it reads, and which events it shows.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use asp_call::call::Call;
use asp_call::call::event::Event;
use asp_call::call::follower::{Follower, FollowerItem};
use asp_call::call::question::Answer;
use asp_gateway::gateway::Gateway;
use asp_pipeline::pipeline::lookup::FoundCall;
use asp_proto::plugin::client_message;
use asp_protocols::mcp::elsewhere;
use asp_runtime_client::runtimes::Runtimes;
use asp_store::outbox::{AppendOutcome, Batch, MemoryOutbox, Outbox, OutboxError, StoredEvents};
use asp_store::records::{CallId, CallRecords, MemoryRecords, OwnerId};
use async_trait::async_trait;
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::{Notify, Semaphore};
use uuid::Uuid;

use super::inbox::{Gateways, asked};
use super::resume::save;
use super::takeover::{answering, call_id, row, saves_and_hangs, send, take_over};
use super::{
    asks_model, asks_name, last_result, modern, progress, tasks, until, until_async, user_input, with_token,
};
use crate::registry::caller;
use crate::runtime::{Runtime, Script, Worker};
use crate::support::Fixture;
use crate::support::records::{Faults, FaultyRecords};

/// Records that count how often they are read.
struct Counted {
    records: Arc<MemoryRecords>,
    whole: AtomicUsize,
    stands: AtomicUsize,
}

impl Faults for Counted {
    fn store(&self) -> &dyn CallRecords {
        &*self.records
    }

    fn reads(&self, whole: bool) {
        let count = if whole { &self.whole } else { &self.stands };
        count.fetch_add(1, Ordering::SeqCst);
    }
}

/// The gateway has a lease, and keeps it.
async fn lives(fixture: &Fixture) {
    fixture.gateway.pipeline.internals().active.renew().await.unwrap();
    tokio::spawn(Gateway::keep_calls(Arc::downgrade(&fixture.gateway)));
}

/// A call may have saved some MiB, and thousands are looked at several times a second.
#[tokio::test]
async fn a_call_that_is_followed_elsewhere_is_looked_at_without_what_it_has_saved() {
    let runtime = Runtime::start(Script::of(|_, mut worker: Worker| async move {
        let invoke = worker.begin(&[("checkpoint", "true")]).await;
        worker.say(asks_name(&invoke.request_id)).await;
        while worker.next().await.is_some() {}
    }));
    let gateways = Gateways::over(&runtime, Arc::new(MemoryOutbox::default()));
    let asked = asked(&gateways, &runtime).await;
    lives(&gateways.first).await;
    let records = gateways.first.active.clone();
    let counted =
        Arc::new(FaultyRecords(Counted { records, whole: AtomicUsize::new(0), stands: AtomicUsize::new(0) }));
    let second = gateways.another_over(counted.clone(), Runtimes::none());
    let answered = send(answering(&asked), &second);
    until("the answer is stored", || gateways.inbox.has_stored()).await;
    let stands = || counted.0.stands.load(Ordering::SeqCst);
    until("it is followed", || stands() >= 1).await;
    let (before, whole) = (stands(), counted.0.whole.load(Ordering::SeqCst));
    until("it is looked at again and again", || stands() >= before + 4).await;
    assert_eq!(counted.0.whole.load(Ordering::SeqCst), whole);
    answered.abort();
}

/// An outbox that may be away, or say that it knows nothing of a call.
#[derive(Default)]
struct Away {
    outbox: MemoryOutbox,
    is_away: AtomicBool,
    forgets: AtomicBool,
    /// Nothing can be read of it.
    is_unreadable: AtomicBool,
}

impl Away {
    fn check(&self) -> Result<(), OutboxError> {
        match self.is_away.load(Ordering::SeqCst) {
            true => Err(OutboxError::Unavailable("connection refused".into())),
            false => Ok(()),
        }
    }

    /// All that is kept of a call, away or not.
    async fn kept(&self, call: CallId) -> Option<StoredEvents> {
        self.outbox.read(call, 0).await.unwrap()
    }
}

#[async_trait]
impl Outbox for Away {
    async fn append(
        &self,
        call: CallId,
        owner: OwnerId,
        batch: Batch<'_>,
        keep: Duration,
    ) -> Result<AppendOutcome, OutboxError> {
        self.check()?;
        self.outbox.append(call, owner, batch, keep).await
    }

    async fn take(
        &self,
        call: CallId,
        owner: OwnerId,
        keep: Duration,
    ) -> Result<Option<StoredEvents>, OutboxError> {
        self.check()?;
        let kept = self.outbox.take(call, owner, keep).await?;
        Ok(kept.filter(|_| !self.forgets.load(Ordering::SeqCst)))
    }

    async fn read(&self, call: CallId, from: u64) -> Result<Option<StoredEvents>, OutboxError> {
        self.check()?;
        if self.is_unreadable.load(Ordering::SeqCst) {
            return Err(OutboxError::Unavailable("connection refused".into()));
        }
        self.outbox.read(call, from).await
    }
}

/// A worker that says how far it is, once more whenever it is told to, and does not end.
fn goes_on(more: Arc<Notify>) -> Script {
    Script::of(move |_, mut worker: Worker| {
        let more = more.clone();
        async move {
            let invoke = worker.begin(&[]).await;
            for percent in 1..100 {
                worker.say(progress(&invoke.request_id, f64::from(percent))).await;
                more.notified().await;
            }
        }
    })
}

/// The only call of a runtime, as a gateway has or shows it.
pub(super) async fn call_at(fixture: &Fixture, runtime: &Runtime) -> Arc<Call> {
    let id = Uuid::from_bytes(call_id(runtime));
    match fixture.gateway.pipeline.find(id, &caller("alice"), "plugins").await {
        Ok(Some(FoundCall::Here(call))) => call,
        _ => panic!("it is not here"),
    }
}

/// Whether all that the call has said is kept under the name that its events are told by.
async fn is_kept(outbox: &Away, call: &Call) -> bool {
    let kept = outbox.kept(call.id.into_bytes()).await;
    kept.is_some_and(|kept| (kept.log, kept.next()) == (call.events.stream(), call.events.next_number()))
}

/// A call at the first gateway that has said how far it is, which the outbox has.
async fn kept(gateways: &Gateways, runtime: &Runtime, outbox: &Away) -> Arc<Call> {
    tasks::begun(&gateways.first).await;
    until("a worker is allocated", || !runtime.told.allocations.lock().is_empty()).await;
    let call = call_at(&gateways.first, runtime).await;
    until("it says how far it is", || call.events.next_number() > 0).await;
    until_async("that is kept", async || is_kept(outbox, &call).await).await;
    call
}

/// Another gateway that goes on from what is kept gives the next numbers to other events.
#[tokio::test]
async fn what_is_told_while_the_outbox_is_away_shares_no_number_with_what_is_kept() {
    let more = Arc::new(Notify::new());
    let runtime = Runtime::start(goes_on(more.clone()));
    let outbox = Arc::new(Away::default());
    let gateways = Gateways::over(&runtime, outbox.clone());
    let call = kept(&gateways, &runtime, &outbox).await;
    let before = call.events.stream();
    outbox.is_away.store(true, Ordering::SeqCst);
    more.notify_one();
    until("what it says is told by another name", || call.events.stream() != before).await;
    let alone = call.events.stream();
    let kept = outbox.kept(call.id.into_bytes()).await.unwrap();
    assert!(kept.log == before && kept.next() < call.events.next_number());
    assert!(call.events.counts(before), "whoever comes back here is told nothing twice");
    outbox.is_away.store(false, Ordering::SeqCst);
    until_async("all of it is kept", async || is_kept(&outbox, &call).await).await;
    let after = call.events.stream();
    assert!(after != before && after != alone, "what was told alone has other numbers than what is kept");
}

#[tokio::test]
async fn what_was_written_again_after_an_outage_is_followed_elsewhere() {
    let more = Arc::new(Notify::new());
    let runtime = Runtime::start(goes_on(more.clone()));
    let outbox = Arc::new(Away::default());
    let gateways = Gateways::over(&runtime, outbox.clone());
    let call = kept(&gateways, &runtime, &outbox).await;
    lives(&gateways.first).await;
    let second = gateways.another(Runtimes::none());
    let mirror = call_at(&second, &runtime).await;
    let is_shown = || mirror.events.next_number() == call.events.next_number();
    until("that is shown", is_shown).await;
    let before = call.events.stream();
    outbox.is_away.store(true, Ordering::SeqCst);
    more.notify_one();
    until("the outbox is away", || call.events.stream() != before).await;
    assert!(!is_shown());
    outbox.is_away.store(false, Ordering::SeqCst);
    until("all of it is shown", is_shown).await;
    until("by its name", || mirror.events.stream() == call.events.stream()).await;
    assert!(mirror.events.counts(before), "whoever comes back is told nothing twice");
}

/// Otherwise a client that comes from a gateway that was lost is shown the call as it was before.
#[tokio::test]
async fn a_client_that_comes_to_a_followed_call_finds_all_that_is_kept() {
    let more = Arc::new(Notify::new());
    let runtime = Runtime::start(goes_on(more.clone()));
    let outbox = Arc::new(Away::default());
    let gateways = Gateways::over(&runtime, outbox.clone());
    let call = kept(&gateways, &runtime, &outbox).await;
    lives(&gateways.first).await;
    let second = gateways.another(Runtimes::none());
    let mirror = call_at(&second, &runtime).await;
    for _ in 0..20 {
        let before = call.events.next_number();
        more.notify_one();
        until("it says more", || call.events.next_number() > before).await;
        until_async("that is kept", async || is_kept(&outbox, &call).await).await;
        let found = call_at(&second, &runtime).await;
        assert!(Arc::ptr_eq(&found, &mirror), "all clients share one");
        assert_eq!(found.events.next_number(), call.events.next_number());
    }
    outbox.is_unreadable.store(true, Ordering::SeqCst);
    let found = second.gateway.pipeline.find(call.id, &caller("alice"), "plugins").await;
    assert!(matches!(found, Ok(Some(FoundCall::Elsewhere(_)))), "nothing older is shown");
}

#[tokio::test]
async fn a_call_that_counts_anew_is_followed_on() {
    let dead = Runtime::start(saves_and_hangs());
    let outbox = Arc::new(Away::default());
    let gateways = Gateways::over(&dead, outbox.clone());
    tasks::begun(&gateways.first).await;
    row(&gateways.first, &dead, |row| row.seq == 1).await;
    let call = call_at(&gateways.first, &dead).await;
    until_async("what it said is kept", async || is_kept(&outbox, &call).await).await;
    let second = gateways.another(Runtimes::none());
    let mirror = call_at(&second, &dead).await;
    until("that is shown", || mirror.events.next_number() == call.events.next_number()).await;
    let living = Runtime::start(Script::of(|_, mut worker: Worker| async move {
        let invoke = worker.begin(&[("checkpoint", "true")]).await;
        worker.say(progress(&invoke.request_id, 70.0)).await;
        while worker.next().await.is_some() {}
    }));
    outbox.forgets.store(true, Ordering::SeqCst);
    let third = gateways.another(living.runtimes());
    take_over(&third).await;
    let mut reader = mirror.events.reader_from(0);
    let mut numbers = Vec::new();
    let shown = async {
        while let Some(logged) = reader.next().await {
            numbers.push(logged.number);
            if matches!(logged.event, Event::Progress { .. }) {
                return;
            }
        }
        panic!("only its end is shown");
    };
    tokio::time::timeout(Duration::from_secs(60), shown).await.expect("it is shown how it goes on");
    assert!(numbers.is_sorted_by(|one, next| one < next), "{numbers:?}");
    let kept = outbox.kept(call.id.into_bytes()).await.unwrap();
    assert!(!mirror.events.counts(kept.log), "its numbers are others there");
}

/// Reports progress, in so many steps.
async fn says_how_far(worker: &Worker, request_id: &str, steps: u32) {
    for step in 0..steps {
        worker.say(progress(request_id, f64::from(step) / 4.0)).await;
    }
}

/// All that is kept of it there came after its question.
#[tokio::test]
async fn a_call_that_counts_anew_shows_what_it_asks() {
    let dead = Runtime::start(Script::of(|_, mut worker: Worker| async move {
        let invoke = worker.begin(&[("checkpoint", "true")]).await;
        assert_eq!(save(&mut worker, &invoke.request_id, 1, b"one").await, "");
        says_how_far(&worker, &invoke.request_id, 200).await;
        while worker.next().await.is_some() {}
    }));
    let outbox = Arc::new(Away::default());
    let gateways = Gateways::over(&dead, outbox.clone());
    tasks::begun(&gateways.first).await;
    row(&gateways.first, &dead, |row| row.seq == 1).await;
    let call = call_at(&gateways.first, &dead).await;
    until("it has said all", || call.events.next_number() >= 200).await;
    until_async("that is kept", async || is_kept(&outbox, &call).await).await;
    let log = call.events.stream();
    let second = gateways.another(Runtimes::none());
    let mirror = call_at(&second, &dead).await;
    until("that is shown", || mirror.events.next_number() == call.events.next_number()).await;
    let mut follower = Follower::from(mirror.clone(), mirror.events.next_number());
    let living = Runtime::start(Script::of(|_, mut worker: Worker| async move {
        let invoke = worker.begin(&[("checkpoint", "true")]).await;
        worker.say(asks_name(&invoke.request_id)).await;
        says_how_far(&worker, &invoke.request_id, 300).await;
        while worker.next().await.is_some() {}
    }));
    outbox.forgets.store(true, Ordering::SeqCst);
    outbox.is_unreadable.store(true, Ordering::SeqCst);
    let third = gateways.another(living.runtimes());
    take_over(&third).await;
    let is_anew = async || {
        let kept = outbox.kept(call.id.into_bytes()).await;
        kept.is_some_and(|kept| kept.log != log && kept.next() > 300)
    };
    until_async("it counts anew", is_anew).await;
    outbox.is_unreadable.store(false, Ordering::SeqCst);
    let asked = async {
        loop {
            match follower.next().await {
                FollowerItem::Asked(question) => return question.id,
                FollowerItem::Event(_) => {}
                FollowerItem::Ended(outcome) => panic!("it has ended: {outcome:?}"),
            }
        }
    };
    let asked = tokio::time::timeout(Duration::from_secs(60), asked).await.expect("it is shown what it asks");
    assert_eq!(asked, "plugins.name");
}

/// An outbox that is away at first, and once it is back holds each append until it is let go.
struct Crowded {
    outbox: MemoryOutbox,
    is_away: AtomicBool,
    refused: Mutex<HashSet<CallId>>,
    held: AtomicUsize,
    let_go: Semaphore,
    stored: Mutex<HashSet<CallId>>,
}

#[async_trait]
impl Outbox for Crowded {
    async fn append(
        &self,
        call: CallId,
        owner: OwnerId,
        batch: Batch<'_>,
        keep: Duration,
    ) -> Result<AppendOutcome, OutboxError> {
        if self.is_away.load(Ordering::SeqCst) {
            self.refused.lock().insert(call);
            return Err(OutboxError::Unavailable("connection refused".into()));
        }
        self.held.fetch_add(1, Ordering::SeqCst);
        let let_go = self.let_go.acquire().await.unwrap();
        self.held.fetch_sub(1, Ordering::SeqCst);
        drop(let_go);
        self.stored.lock().insert(call);
        self.outbox.append(call, owner, batch, keep).await
    }

    async fn take(
        &self,
        call: CallId,
        owner: OwnerId,
        keep: Duration,
    ) -> Result<Option<StoredEvents>, OutboxError> {
        self.outbox.take(call, owner, keep).await
    }

    async fn read(&self, call: CallId, from: u64) -> Result<Option<StoredEvents>, OutboxError> {
        self.outbox.read(call, from).await
    }
}

/// Else all that waited for it would bury it again.
#[tokio::test]
async fn an_outbox_that_is_back_is_asked_by_few_calls_at_a_time() {
    const CALLS: usize = 12;
    let runtime = Runtime::start(goes_on(Arc::default()));
    let outbox = Arc::new(Crowded {
        outbox: MemoryOutbox::default(),
        is_away: AtomicBool::new(true),
        refused: Mutex::default(),
        held: AtomicUsize::new(0),
        let_go: Semaphore::new(0),
        stored: Mutex::default(),
    });
    let gateways = Gateways::over(&runtime, outbox.clone());
    for _ in 0..CALLS {
        tasks::begun(&gateways.first).await;
    }
    until("each call has asked in vain", || outbox.refused.lock().len() == CALLS).await;
    outbox.is_away.store(false, Ordering::SeqCst);
    // Longer than any of them waits before it asks again.
    tokio::time::pause();
    tokio::time::sleep(Duration::from_secs(5)).await;
    tokio::time::resume();
    assert_eq!(outbox.held.load(Ordering::SeqCst), 8);
    outbox.let_go.add_permits(1);
    until("what each of them said is kept", || outbox.stored.lock().len() == CALLS).await;
}

/// Invariant I-13: the answer that waits for a question finds it.
#[tokio::test]
async fn of_two_questions_the_open_one_has_the_same_id_where_the_call_goes_on() {
    let came = Arc::new(Notify::new());
    let comes = came.clone();
    let dead = Runtime::start(Script::of(move |_, mut worker: Worker| {
        let comes = comes.clone();
        async move {
            let invoke = worker.begin(&[("checkpoint", "true")]).await;
            worker.say(asks_name(&invoke.request_id)).await;
            worker.say(asks_model(&invoke.request_id)).await;
            user_input(&mut worker).await;
            comes.notify_one();
            while worker.next().await.is_some() {}
        }
    }));
    let request =
        |extra| with_token(modern("sweep", extra).capabilities(json!({"elicitation": {}, "sampling": {}})));
    let gateways = Gateways::over(&dead, Arc::new(MemoryOutbox::default()));
    let asked = last_result(&request(json!({})).send(&gateways.first).await);
    let call = call_at(&gateways.first, &dead).await;
    until("both are asked", || call.questions.pending().len() == 2).await;
    assert!(call.questions.answer("plugins.name", Answer::Accepted(json!({"name": "Ada"}).into())));
    tokio::time::timeout(Duration::from_secs(60), came.notified()).await.expect("the plugin has the name");
    let second = gateways.another(Runtimes::none());
    let mirror = call_at(&second, &dead).await;
    until("the other question is shown", || mirror.questions.find("plugins.label.2").is_some()).await;
    let label = json!({"role": "assistant", "model": "m", "content": {"type": "text", "text": r#"{"label": "high"}"#}});
    let answers =
        json!({"requestState": asked["requestState"], "inputResponses": {"plugins.label.2": label}});
    let answered = send(request(answers), &second);
    until("the answer is stored", || gateways.inbox.has_stored()).await;
    let living = Runtime::start(Script::of(|_, mut worker: Worker| async move {
        let invoke = worker.begin(&[("checkpoint", "true")]).await;
        assert_eq!(
            invoke.resume.clone().unwrap().user_inputs.len(),
            1,
            "what was answered is not asked again"
        );
        worker.say(asks_model(&invoke.request_id)).await;
        while !matches!(worker.next().await.unwrap(), client_message::Payload::DelegationResult(_)) {}
        worker.complete(&invoke, &json!({"ok": true})).await;
    }));
    let third = gateways.another(living.runtimes());
    take_over(&third).await;
    let result = last_result(&answered.await.unwrap());
    assert_eq!(result["structuredContent"], json!({"ok": true}), "{result}");
}

/// More than the events that gateways share of a call.
#[tokio::test]
async fn an_open_question_is_shown_elsewhere_however_much_was_said_since() {
    let runtime = Runtime::start(Script::of(|_, mut worker: Worker| async move {
        let invoke = worker.begin(&[("checkpoint", "true")]).await;
        worker.say(asks_name(&invoke.request_id)).await;
        says_how_far(&worker, &invoke.request_id, 400).await;
        user_input(&mut worker).await;
        worker.complete(&invoke, &json!({"ok": true})).await;
    }));
    let outbox = Arc::new(Away::default());
    let gateways = Gateways::over(&runtime, outbox.clone());
    tokio::spawn(elsewhere::listen(Arc::downgrade(&gateways.first.gateway.replica)));
    let asked = asked(&gateways, &runtime).await;
    let call = call_at(&gateways.first, &runtime).await;
    until("it has said all", || call.events.next_number() > 400).await;
    until_async("that is kept", async || is_kept(&outbox, &call).await).await;
    assert!(
        outbox.kept(call.id.into_bytes()).await.unwrap().first > 100,
        "the event of its question is gone"
    );
    let second = gateways.another(Runtimes::none());
    let mirror = call_at(&second, &runtime).await;
    assert!(mirror.questions.find("plugins.name").is_some());
    let answered = send(answering(&asked), &second);
    until("the answer is stored", || gateways.inbox.has_stored()).await;
    gateways.miss();
    let result = last_result(&answered.await.unwrap());
    assert_eq!(result["structuredContent"], json!({"ok": true}), "{result}");
}
