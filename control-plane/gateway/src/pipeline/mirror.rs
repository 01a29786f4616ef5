//! Calls that run at another gateway, as this one shows them: what they say and ask there, and what their callers answer here.
//!
//! Keeps true: a mirror is of its caller's own call; it runs nothing, and nothing that it holds in the stores is touched;
//! events have the numbers they have there; who may not see it any more, or whose token is over, is shown nothing more; an
//! answer and a cancel go to the gateway that runs the call by then; a mirror that nobody follows is let go; whoever asks
//! for a call that is followed here gets the same mirror.

use std::sync::Arc;
use std::time::Duration;

use asp_edge::Caller;
use asp_snapshot::VirtualServer;
use asp_store::records::OwnerId;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::running::end_if_expired;
use super::takeover::GONE;
use crate::call::event::Event;
use crate::call::event::log::Logged;
use crate::call::outcome::{Outcome, Refusal};
use crate::call::question::{Answer, Question};
use crate::call::{Call, State, principal};
use crate::durable::active::ActiveFault;
use crate::durable::active::told::{Seen, Told as Stands};
use crate::durable::shared_events::{KeptEvent, KeptEvents};
use crate::pipeline::Pipeline;
use crate::sessions::Told;

/// How soon it is looked for more: at first, and where nothing comes.
const FIRST_LOOK: Duration = Duration::from_millis(25);
const LAST_LOOK: Duration = Duration::from_millis(250);
/// How often it is looked whether the call has ended.
const STANDS_EVERY: Duration = Duration::from_millis(250);
/// How long a mirror is kept that nobody follows: whoever polls gets the same one.
const KEPT: Duration = Duration::from_secs(1);
/// How long after a call's time its end is waited for.
const LATE: Duration = Duration::from_secs(15);
const UNSAID: &str = "the call's time is over, and its gateway could not say how it ended: call again";
/// How long a gateway is looked for that takes what a caller says: until another one has taken the call over.
const TOLD_WITHIN: Duration = Duration::from_secs(20);
/// Between two attempts.
const TELL_EVERY: Duration = Duration::from_millis(300);

/// One call that is mirrored.
struct Mirror {
    pipeline: Arc<Pipeline>,
    call: Arc<Call>,
    /// The first event that it does not have.
    next: u64,
}

impl Pipeline {
    /// A call of `caller` at `server` that another gateway runs; `None` where it is not known here what it says.
    pub(super) async fn mirrored(
        self: &Arc<Self>,
        id: Uuid,
        seen: &Seen,
        (caller, server): (&Caller, &str),
    ) -> Option<Arc<Call>> {
        let events = self.active.events()?;
        let is_theirs = |call: &Caller, of: &str| principal::is_same(call, caller) && of == server;
        if let Some(known) = self.running.mirror(id) {
            return is_theirs(&known.caller, &known.server.message.name).then_some(known);
        }
        let snapshot = self.running.snapshot()?;
        let invocation = seen.record.as_ref()?.ended(&snapshot)?;
        if !is_theirs(&invocation.caller, &invocation.server.message.name) {
            return None;
        }
        let kept = events.read(id, 0).await?;
        let now = Instant::now();
        let deadline = invocation.deadline.unwrap_or(now);
        let mut call = Call::new(&invocation, now, deadline, CancellationToken::new());
        call.id = id;
        call.continues(kept.log, Vec::new(), kept.first);
        // Neither its row nor its place is this gateway's.
        call.ownership.pass_on();
        call.ownership.tells();
        call.hand_over();
        call.enter(seen.state);
        if let Some(claim) = seen.record.as_ref().and_then(|record| record.claim.clone()) {
            call.ownership.claims(claim);
        }
        // The token by which it is asked for counts, not the one with which it was begun.
        call.authority.present(&Arc::new(caller.clone()));
        call.authority.leave();
        let call = Arc::new(call);
        let followed = self.running.follow(call.clone())?;
        if !Arc::ptr_eq(&followed, &call) {
            return Some(followed);
        }
        let mut mirror = Mirror { pipeline: self.clone(), call, next: 0 };
        mirror.take(kept);
        tokio::spawn(mirror.follow());
        Some(followed)
    }

    /// What another gateway tells of a call that runs here.
    pub(crate) fn heard(&self, told: Told) {
        match told {
            Told::Answered { call, question, answer } => {
                if let Some(call) = self.registry.find_running(Uuid::from_bytes(call)) {
                    // Where it is no answer, or comes too late, the question is asked again or is over.
                    call.questions.answer(&question, answer);
                }
            }
            Told::Cancelled { call } => {
                if let Some(call) = self.registry.find_running(Uuid::from_bytes(call)) {
                    call.cancel();
                }
            }
            Told::Ended { .. } | Told::Sent { .. } => {}
        }
    }
}

impl Mirror {
    /// Follows the call until it has ended, or nobody follows the mirror.
    async fn follow(mut self) {
        let mut pause = FIRST_LOOK;
        let mut stands_at = Instant::now() + STANDS_EVERY;
        let mut is_cancelled = false;
        let mut alone_since = None;
        loop {
            tokio::select! {
                biased;
                () = self.call.cancelled(), if !is_cancelled => {
                    is_cancelled = true;
                    let told = Told::Cancelled { call: self.call.id.into_bytes() };
                    tokio::spawn(self.telling().tell(told));
                }
                () = tokio::time::sleep(pause) => {}
            }
            alone_since = match Arc::strong_count(&self.call) {
                1 => alone_since.or(Some(Instant::now())),
                _ => None,
            };
            if alone_since.is_some_and(|since| since.elapsed() >= KEPT) {
                return;
            }
            end_if_expired(&self.call);
            let came = self.look().await;
            pause = if came { FIRST_LOOK } else { (pause * 2).min(LAST_LOOK) };
            if Instant::now() >= stands_at {
                stands_at = Instant::now() + STANDS_EVERY;
                if self.has_ended().await {
                    return;
                }
            }
        }
    }

    /// Whether there was more.
    async fn look(&mut self) -> bool {
        let Some(events) = self.pipeline.active.events() else { return false };
        match events.read(self.call.id, self.next).await {
            Some(kept) => self.take(kept),
            None => false,
        }
    }

    /// Takes what is new. Where the numbers are of another log, only the outcome is still told: the client comes back for
    /// the rest.
    fn take(&mut self, kept: KeptEvents) -> bool {
        if kept.log != self.call.events.stream() || kept.next <= self.next {
            return false;
        }
        for event in kept.events {
            self.show(event);
        }
        self.next = kept.next;
        true
    }

    fn show(&self, KeptEvent { logged, question }: KeptEvent) {
        let call = &self.call;
        match (&logged.event, question) {
            (Event::Asked { .. }, Some(question)) => return self.ask(question, logged),
            (Event::TakenBack { id }, _) => {
                call.questions.withdraw(id);
            }
            (Event::Resumed, _) => {
                for question in call.questions.pending() {
                    call.questions.withdraw(&question.id);
                }
                call.enter(State::Working);
            }
            _ => {}
        }
        call.events.push_numbered(logged);
    }

    fn ask(&self, question: Question, logged: Logged) {
        let call = &self.call;
        let id = question.id.clone();
        let number = logged.number;
        let put = || {
            call.enter(State::InputRequired);
            call.events.push_numbered(logged);
            Some(number)
        };
        let Some(answered): Option<oneshot::Receiver<Answer>> = call.questions.open(question, put) else {
            return;
        };
        let telling = self.telling();
        tokio::spawn(async move {
            // Err: nobody has answered it here.
            if let Ok(answer) = answered.await {
                let call = telling.id.into_bytes();
                telling.tell(Told::Answered { call, question: id, answer }).await;
            }
        });
    }

    /// Gives the mirror its outcome where the call has one.
    async fn has_ended(&mut self) -> bool {
        let call = self.call.clone();
        let stands = self.telling().stands().await;
        let outcome = match stands {
            // Its gateway could not say how it ended, or the store cannot.
            Ok(Some(Stands::Runs(_))) | Err(_) if call.deadline() + LATE < Instant::now() => {
                let known = self.pipeline.last_known(&call, call.ownership.claim(), UNSAID).await;
                known.unwrap_or_else(|_| Outcome::Refused(call.unanswered(Refusal::Upstream(UNSAID.into()))))
            }
            Ok(Some(Stands::Runs(_))) | Err(_) => return false,
            Ok(Some(Stands::Ended(ended))) => {
                match self.pipeline.outcome_elsewhere(&call, ended.kept, ended.record.claim.as_ref()).await {
                    Ok(outcome) => outcome,
                    Err(_) => return false,
                }
            }
            Ok(None) => match self.pipeline.last_known(&call, call.ownership.claim(), GONE).await {
                Ok(outcome) => outcome,
                Err(_) => return false,
            },
        };
        // Whatever it said before.
        self.look().await;
        call.finish(outcome);
        true
    }

    fn telling(&self) -> Telling {
        Telling {
            pipeline: self.pipeline.clone(),
            id: self.call.id,
            caller: self.call.caller.clone(),
            server: self.call.server.clone(),
        }
    }
}

/// Brings what a caller says of a call to the gateway that runs it. Holds no mirror, which is kept for who follows it.
struct Telling {
    pipeline: Arc<Pipeline>,
    id: Uuid,
    caller: Arc<Caller>,
    server: Arc<VirtualServer>,
}

impl Telling {
    /// Where the call stands, by its record.
    async fn stands(&self) -> Result<Option<Stands>, ActiveFault> {
        self.pipeline.active.told(self.id, &self.caller, &self.server.message.name).await
    }

    async fn tell(self, told: Told) {
        let until = Instant::now() + TOLD_WITHIN;
        loop {
            match self.stands().await {
                Ok(Some(Stands::Runs(seen))) => {
                    if let Some(owner) = seen.owner
                        && self.reaches(owner, &told).await
                    {
                        return;
                    }
                }
                // It has ended.
                Ok(Some(Stands::Ended(_)) | None) => return,
                Err(_) => {}
            }
            if Instant::now() >= until {
                tracing::warn!(call = %self.id, "what a caller said of a call does not reach the gateway that runs it, because the store or the bus does not answer: the call waits for it until its time is over");
                return;
            }
            tokio::time::sleep(TELL_EVERY).await;
        }
    }

    async fn reaches(&self, owner: OwnerId, told: &Told) -> bool {
        let Some(replicas) = &self.pipeline.replicas else { return false };
        if owner == replicas.this {
            self.pipeline.heard(told.clone());
            return true;
        }
        replicas.tell(vec![owner], told).await.is_ok()
    }
}
