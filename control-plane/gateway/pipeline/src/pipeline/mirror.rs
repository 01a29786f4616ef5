//! Mirrors of calls that run at another gateway: their events and questions, for clients of this one.
//!
//! Keeps true: a mirror shows its caller's own call; it runs nothing, and changes none of the call's records; events
//! keep their numbers, unless the call's numbers start again at another gateway: then the new events are appended to
//! the earlier ones, under the name of a log that no other gateway knows; a client that comes from another gateway finds
//! all that it was shown there; a caller that may no longer see the call, or whose token has expired, gets nothing more;
//! a mirror without followers is dropped; all clients of a call here share one mirror; the departure of its clients, or
//! the expiry of their token, cancels nothing: the gateway that runs the call is notified, and asks the others.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use asp_call::call::authority::Arrival;
use asp_call::call::event::Event;
use asp_call::call::event::log::LoggedEvent;
use asp_call::call::outcome::{Outcome, Refusal, Withdrawal};
use asp_call::call::question::{Answer, Question};
use asp_call::call::started::StartGuard;
use asp_call::call::{Call, State, principal};
use asp_call::durable::active::call_status::{BriefStatus, RemoteCallRow};
use asp_call::durable::inbox::CallerInput;
use asp_call::durable::shared_events::{KeptEvent, KeptEvents};
use asp_call::durable::shared_followers::RENEW_EVERY;
use asp_edge::Caller;
use asp_platform::pauses::doubling;
use futures::FutureExt;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::caller_input::InputDelivery;
use super::lookup::GONE;
use super::running::{RefreshRequest, end_if_expired};
use crate::pipeline::Pipeline;

/// Interval at which new events are looked for: at first, and while there are none.
const FIRST_LOOK: Duration = Duration::from_millis(25);
const LAST_LOOK: Duration = Duration::from_millis(250);
/// Maximum number of requests that wait for the newest events; further ones wait for these.
const REQUESTS: usize = 16;
/// Interval at which the call's end is looked for.
const STANDS_EVERY: Duration = Duration::from_millis(250);
/// Time for which a mirror without followers is kept: a client that polls gets the same one.
const KEPT: Duration = Duration::from_secs(1);
/// Time for which the call's end is awaited beyond its deadline.
const LATE: Duration = Duration::from_secs(15);
const UNSAID: &str = "the call's deadline has passed, and its gateway did not report the outcome: call again";
/// Delay before an entry that could not be stored is stored again.
const RETRY: Duration = Duration::from_secs(1);

/// One call that is mirrored.
struct Mirror {
    pipeline: Arc<Pipeline>,
    call: Arc<Call>,
    /// Name of the call's log that it follows.
    log: u32,
    /// First event of that log that it does not have.
    next: u64,
    /// Offset of that log's numbers: more than 0 if the call's numbers have started again.
    shift: u64,
    /// Another log, with its next number, for which it could not be decided whether its numbers start again.
    unclear: Option<(u32, u64)>,
    /// Time at which the entry of its followers is renewed; `None` if it has none.
    renew_at: Option<Instant>,
}

impl Pipeline {
    /// Returns a call of `caller` at `server` that another gateway runs, with all events that it has published; `None`
    /// if they are not known here.
    pub(super) async fn mirrored(
        self: &Arc<Self>,
        id: Uuid,
        seen: &RemoteCallRow,
        (caller, server): (&Caller, &str),
    ) -> Option<Arc<Call>> {
        let events = self.active.events()?;
        let is_theirs = |call: &Caller, of: &str| principal::is_same(call, caller) && of == server;
        if let Some(known) = self.running.mirror(id) {
            let is_shown = is_theirs(&known.caller, &known.server.message.name);
            return (is_shown && self.running.refresh(&known).await).then_some(known);
        }
        let snapshot = self.running.snapshot()?;
        let invocation = seen.record.as_ref()?.ended(&snapshot)?;
        if !is_theirs(&invocation.request.caller, &invocation.request.server.message.name) {
            return None;
        }
        let kept = events.read(id, 0).await?;
        let now = Instant::now();
        let deadline = invocation.deadline.unwrap_or(now);
        let mut call = Call::new(&invocation, now, deadline, CancellationToken::new());
        call.id = id;
        call.continues(kept.log, Vec::new(), kept.first);
        call.events.begin_after(seen.takeovers);
        // Neither its row nor its permit belongs to this gateway.
        call.ownership.passed_on.set();
        call.ownership.known.set();
        StartGuard::of(&call).mark_sent();
        call.enter(seen.call.state);
        call.questions.restore(seen.call.history.clone());
        if let Some(claim) = seen.record.as_ref().and_then(|record| record.claim.clone()) {
            call.ownership.set_claim(claim);
        }
        call.authority.share();
        // The token of this request counts, not the one with which the call started.
        call.authority.present(&Arc::new(caller.clone()));
        call.authority.leave();
        let call = Arc::new(call);
        let (requests, requested) = mpsc::channel(REQUESTS);
        let followed = self.running.follow(call.clone(), requests)?;
        if !Arc::ptr_eq(&followed, &call) {
            return self.running.refresh(&followed).await.then_some(followed);
        }
        let log = kept.log;
        let mut mirror =
            Mirror { pipeline: self.clone(), call, log, next: 0, shift: 0, unclear: None, renew_at: None };
        mirror.take(kept);
        followed.note_changed(seen.call.updated_ms);
        tokio::spawn(mirror.follow(requested));
        Some(followed)
    }

    /// Notes that the call's principal is back with a token that was evaluated before, and follows the call next. For a
    /// mirror, that is stored first, so that the call does not end with the last client that leaves elsewhere.
    pub async fn attend(&self, arrival: &Arrival, caller: &Arc<Caller>) {
        let call = arrival.call();
        // From here on the arrival counts, which ends even if its client does not wait.
        self.renew_authority(call, caller);
        if self.running.is_mirror(call)
            && let Some(followers) = self.active.followers()
        {
            // Otherwise the mirror stores it later.
            let _ = followers.enter(call.id).await;
        }
    }
}

impl Mirror {
    /// Follows the call until it has ended, or the mirror has no followers.
    async fn follow(mut self, mut requested: mpsc::Receiver<RefreshRequest>) {
        let mut waiting: Vec<RefreshRequest> = Vec::new();
        let mut pauses = doubling(FIRST_LOOK, LAST_LOOK);
        let mut stands_at = Instant::now() + STANDS_EVERY;
        let mut is_cancelled = false;
        let mut alone_since = None;
        loop {
            tokio::select! {
                biased;
                () = self.call.cancelled(), if !is_cancelled => {
                    is_cancelled = true;
                    if self.is_to_end() {
                        // It may be stored by now; a client that closes a stream does not wait for it.
                        tokio::spawn(self.delivery().deliver(CallerInput::Cancel, false));
                    } else {
                        // Others may follow the call with tokens of their own.
                        self.call.authority.abandon();
                    }
                }
                Some(request) = requested.recv() => waiting.push(request),
                () = tokio::time::sleep(pauses.next().unwrap_or(LAST_LOOK)) => {}
            }
            alone_since = match Arc::strong_count(&self.call) {
                1 => alone_since.or(Some(Instant::now())),
                _ => None,
            };
            if alone_since.is_some_and(|since| since.elapsed() >= KEPT) {
                return;
            }
            end_if_expired(&self.call);
            self.attend().await;
            // Only those that came before the read.
            waiting.extend(std::iter::from_fn(|| requested.try_recv().ok()));
            let came = self.read_events().await;
            for request in waiting.drain(..).filter(|_| came.is_some()) {
                // Its client may have left.
                let _ = request.send(());
            }
            pauses = if came == Some(true) { doubling(FIRST_LOOK, LAST_LOOK) } else { pauses };
            if Instant::now() >= stands_at {
                stands_at = Instant::now() + STANDS_EVERY;
                if self.has_ended().await {
                    return;
                }
            }
        }
    }

    /// Whether the call is to end, and not only its mirror.
    fn is_to_end(&self) -> bool {
        self.call.is_cancelled() && self.call.withdrawal() != Some(Withdrawal::TokenExpired)
    }

    /// Stores that clients follow the call here, and notifies its gateway once none does any more.
    async fn attend(&mut self) {
        let Some(followers) = self.pipeline.active.followers() else { return };
        let id = self.call.id;
        if self.call.withdrawal().is_none() && self.call.authority.is_attended() {
            if self.renew_at.is_none_or(|at| at <= Instant::now()) {
                let is_stored = followers.enter(id).await;
                self.renew_at = Some(Instant::now() + if is_stored { RENEW_EVERY } else { RETRY });
            }
            return;
        }
        let is_followed =
            || self.pipeline.running.mirror(id).is_some_and(|mirror| mirror.authority.is_attended());
        // A client may have attached and left between two checks.
        let has_entered = self.renew_at.take().is_some() || self.call.authority.is_abandoned();
        // The entry belongs to the gateway, which may have another mirror of the call by now. The entry of clients
        // that will return expires: until then the call's gateway is informed of their return.
        if has_entered && !is_followed() && !self.call.authority.will_be_back() {
            followers.leave(id).await;
        }
        // A client that has attached since was entered first, perhaps before this gateway left.
        if !is_followed()
            && !self.is_to_end()
            && let Some(departure) = self.call.authority.take_departure()
        {
            let input = CallerInput::Left { gateway: self.pipeline.active.owner().0, departure };
            tokio::spawn(self.delivery().deliver(input, false));
        }
    }

    /// Reads new events, and returns whether there were any; `None` if they cannot be read.
    async fn read_events(&mut self) -> Option<bool> {
        let events = self.pipeline.active.events()?;
        let kept = events.read(self.call.id, self.next).await?;
        if kept.log == self.log {
            return Some(self.take(kept));
        }
        if self.unclear == Some((kept.log, kept.next)) {
            return Some(false);
        }
        // From its beginning: the events show whether it is the same.
        let whole = events.read(self.call.id, 0).await?;
        Some(self.change_to(whole))
    }

    /// Switches to another log. Either the gateway that runs the call has written its events again, or another one
    /// continues the call with numbers from the start.
    fn change_to(&mut self, kept: KeptEvents) -> bool {
        if self.differs(&kept) {
            self.call.events.rename(rand::random());
            self.resume();
            // Even a question from before the other events gets a number that no follower has seen yet.
            self.shift = self.call.events.next_number().saturating_sub(kept.oldest());
            self.next = kept.oldest();
        } else if kept.next < self.next {
            self.unclear = Some((kept.log, kept.next));
            return false;
        } else if self.shift == 0 {
            self.call.events.rename(kept.log);
        }
        self.log = kept.log;
        self.take(kept)
    }

    /// Whether an event differs from the one that is shown here under its number.
    fn differs(&self, kept: &KeptEvents) -> bool {
        let mut shown = HashMap::new();
        let mut reader = self.call.events.reader_from(0);
        while let Some(Some(logged)) = reader.next().now_or_never() {
            shown.insert(logged.number, logged.at_ms);
        }
        let is_other = |logged: &LoggedEvent| {
            let at_ms = shown.get(&logged.number.saturating_add(self.shift));
            at_ms.is_some_and(|at_ms| *at_ms != logged.at_ms)
        };
        kept.events.iter().any(|event| is_other(&event.logged))
    }

    /// Takes the new events.
    fn take(&mut self, kept: KeptEvents) -> bool {
        if kept.log != self.log || kept.next <= self.next {
            return false;
        }
        for KeptEvent { logged, question, .. } in kept.asked {
            // One that was shown may be answered here, and not there yet.
            if logged.number >= self.next
                && let Some(question) = question
            {
                self.ask(question, logged.number.saturating_add(self.shift), || {});
            }
        }
        for event in kept.events {
            if event.logged.number >= self.next {
                self.show(event);
            }
        }
        self.next = kept.next;
        true
    }

    fn show(&self, KeptEvent { mut logged, question, turn }: KeptEvent) {
        logged.number = logged.number.saturating_add(self.shift);
        let call = &self.call;
        if let Some(turn) = turn {
            call.questions.restore_turn(turn);
        }
        match (&logged.event, question) {
            (Event::Asked { .. }, Some(question)) => {
                return self.ask(question, logged.number, || call.events.push_numbered(logged));
            }
            (Event::TakenBack { id } | Event::Answered { id }, _) => {
                call.questions.withdraw(id);
            }
            (Event::Resumed, _) => self.resume(),
            _ => {}
        }
        call.events.push_numbered(logged);
    }

    /// Withdraws all open questions, because the call continues.
    fn resume(&self) {
        for question in self.call.questions.pending() {
            self.call.questions.withdraw(&question.id);
        }
        self.call.enter(State::Working);
    }

    /// Opens a question that was asked by event `number`; `log` shows the event if it is still there.
    fn ask(&self, question: Question, number: u64, log: impl FnOnce()) {
        let call = &self.call;
        let id = question.id.clone();
        let put = || {
            call.enter(State::InputRequired);
            log();
            Some(number)
        };
        let Some(answered): Option<oneshot::Receiver<Answer>> = call.questions.open(question, put) else {
            return;
        };
        let delivery = self.delivery();
        tokio::spawn(async move {
            // An error means that it was not answered here. An answer from elsewhere is stored first.
            if let Ok(answer) = answered.await {
                let input = CallerInput::Answer { question: id, answer, message: None };
                delivery.deliver(input, true).await;
            }
        });
    }

    /// Sets the outcome of the mirror if the call has one.
    async fn has_ended(&mut self) -> bool {
        let call = self.call.clone();
        let stands = self.delivery().status().await;
        let mut generation = 0;
        let outcome = match stands {
            // Its gateway could not report its end, or the store cannot.
            Ok(Some(BriefStatus::Runs(_))) | Err(_) if call.deadline() + LATE < Instant::now() => {
                let known = self.pipeline.last_known(&call, call.ownership.claim(), UNSAID).await;
                known.unwrap_or_else(|_| Outcome::Refused(call.unanswered(Refusal::Upstream(UNSAID.into()))))
            }
            Ok(Some(BriefStatus::Runs(_))) | Err(_) => return false,
            Ok(Some(BriefStatus::Ended(ended))) => {
                generation = ended.generation;
                match self.pipeline.recorded_outcome(&call, ended.kept, ended.record.claim.as_ref()).await {
                    Ok(outcome) => outcome,
                    Err(_) => return false,
                }
            }
            Ok(None) => match self.pipeline.last_known(&call, call.ownership.claim(), GONE).await {
                Ok(outcome) => outcome,
                Err(_) => return false,
            },
        };
        // Events that came before the end.
        self.read_events().await;
        call.events.raise_to(generation);
        call.finish(outcome);
        true
    }

    fn delivery(&self) -> InputDelivery {
        InputDelivery::of(&self.pipeline, &self.call)
    }
}
