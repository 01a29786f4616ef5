//! Promises that a client can return for a call: as a task, under an id that it chose, to a stream, or with the answer
//! to a question.
//!
//! Owns: the order of the steps that keep a promise: the store, so that other gateways know of the call; the registry,
//! so that this one keeps it; the call's authority, so that it continues without its client. Keeps true: a client
//! learns of a task, and that its chosen call runs, once the store has the record or the end (I-3), unless every
//! gateway finds the end of a call that only read without; of a call that ends soon, and of which its client learns only
//! then, the store gets the end alone; a promise ends only with its time; a stream and a retry
//! lead back to this gateway, so that without the store other gateways do not see the call, but every client gets its
//! answer.

use std::sync::Arc;
use std::time::Duration;

use asp_call::call::Call;
use asp_call::call::outcome::{Outcome, Refusal};
use asp_call::call::question::input_timeout;
use asp_call::call::terms::retention;
use asp_call::durable::active::brief::BriefPlace;
use asp_call::durable::active::{ActiveFault, ActiveTable};
use asp_edge::Caller;
use asp_proto::snapshot::Primitive;
use tokio::time::Instant;

use super::Pipeline;
use super::lookup::StoreFault;

/// Time within which it is known whether a chosen call starts at all; later the call itself reports its end.
const BEGINS_WITHIN: Duration = Duration::from_secs(2);
/// Time within which the end of a quick call is stored before its client is answered; for a later one the client asks.
const ENDS_WITHIN: Duration = Duration::from_secs(2);
/// Time in which a call ends of which the database gets nothing before its end, or nothing at all.
const BRIEF: Duration = Duration::from_secs(1);
/// Time beyond its deadline for which a client can return to a call's stream.
const STREAM: Duration = Duration::from_secs(120);
/// Time for a retry beyond the call's input timeout: a late answer finds its call and is refused as late.
const RETRY: Duration = Duration::from_secs(600);
/// Time beyond its deadline for which a call of another gateway can be found here: as long as a client may retry.
const TAKEN_OVER: Duration = Duration::from_secs(15 * 60);

/// The gateway at which a client finds its chosen call.
pub enum Keeper {
    ThisGateway,
    /// Started the call under the same id first, or continues it.
    AnotherGateway,
}

/// Reason why a client is not told of its chosen call.
pub enum PromiseFault {
    /// The call was refused before it started; its id is free.
    Void(Refusal),
    /// The call runs here, and the store does not know of it.
    Unstored,
}

impl Pipeline {
    /// Promises a task: its client need not stay, and the call outlives the token with which it started. Returns false
    /// if the store does not accept the task: nothing is promised then, and the client waits for the answer.
    pub async fn promise_task(&self, call: &Arc<Call>) -> bool {
        if let Err(error) = self.active.announce(call).await {
            tracing::warn!(call = %call.id, trace = %call.trace, %error, "call could not become a task, because its record could not be stored; its client waits for the answer");
            return false;
        }
        self.registry.promise(call, Instant::now() + retention(&call.entry.primitive));
        call.authority.keep();
        true
    }

    /// Promises a new call under an id that its client chose. The promise holds from the start, because the client
    /// knows the id and can return for it, whether it stays or not: the registry has it since the call began. Returns once
    /// the client may be informed of the call.
    pub async fn promise_chosen(&self, call: &Arc<Call>) -> Result<Keeper, PromiseFault> {
        call.authority.keep();
        call.authority.leave();
        self.acknowledge(call, false).await
    }

    /// Whether the database may not get the calls of a primitive that end soon.
    pub(super) fn keeps_briefly(&self, primitive: &Primitive) -> bool {
        self.active.keeps_briefly(primitive)
    }

    /// Promises a new call in the same way to the sender of a message. If it `waits` for an end that comes soon, the database
    /// gets the call when it ends; one that only reads it does not get, as far as every gateway finds that without.
    pub async fn promise_message(&self, call: &Arc<Call>, waits: bool) -> Result<Keeper, PromiseFault> {
        call.authority.keep();
        call.authority.leave();
        if !self.keeps_briefly(&call.entry.primitive) {
            return self.acknowledge(call, waits).await;
        }
        if waits {
            call.ownership.make_brief();
            call.asks_or_ends(BRIEF).await;
        } else {
            call.begins_or_ends(BEGINS_WITHIN).await;
        }
        accept(call).await?;
        if waits && call.outcome().is_some() {
            match self.active.keep_brief(call).await {
                BriefPlace::Kept => return Ok(Keeper::ThisGateway),
                BriefPlace::Elsewhere => return Ok(Keeper::AnotherGateway),
                BriefPlace::Nowhere => {}
            }
        }
        if !self.active.mark(call).await {
            return Ok(Keeper::AnotherGateway);
        }
        self.acknowledge(call, false).await
    }

    /// Stores a call that the database may not have, because more of it is about to be stored.
    pub async fn store_brief(&self, call: &Arc<Call>) -> Result<(), StoreFault> {
        Ok(self.active.store_brief(call).await?)
    }

    /// Repeats the promise to a client that sent the same call again.
    pub async fn promise_again(
        &self,
        call: &Arc<Call>,
        caller: &Arc<Caller>,
    ) -> Result<Keeper, PromiseFault> {
        self.renew_authority(call, caller);
        self.acknowledge(call, false).await
    }

    /// Promises that a client can return to the stream of a call.
    pub fn promise_stream(&self, call: &Arc<Call>) {
        self.registry.promise(call, call.deadline() + STREAM);
        if self.replicas.is_some() {
            // Its client may return at another gateway if this one is lost.
            self.active.tell(call);
        }
    }

    /// Returns once the store has the end of a chosen call, or has not accepted it in time, so that no client sees an end
    /// that other gateways contradict. A call that ended before it could be acknowledged is not stored yet.
    pub async fn end_stored(&self, call: &Arc<Call>) {
        let has_ended_here = call.outcome().is_some() && call.ownership.given_up.is_set();
        let is_stored = || call.ownership.is_late_end_over() || self.active.has_briefly(call);
        if call.chosen.is_none() || !has_ended_here || call.void().is_some() || is_stored() {
            return;
        }
        let active = self.active.clone();
        let call = Arc::clone(call);
        // In a task of its own: a client that leaves does not stop it.
        let _ = tokio::spawn(async move { active.tell_end(&call).await }).await;
    }

    /// Notes that a promised stream has ended. If the call continues, its client may return at another gateway.
    pub fn leave_stream(&self, call: &Arc<Call>) {
        if call.outcome().is_none() {
            self.active.tell(call);
        }
    }

    /// Promises that a retry with the answer to a question finds its call; returns the duration of the promise.
    pub fn promise_retry(&self, call: &Arc<Call>) -> Duration {
        let life = input_timeout(&call.entry.primitive) + RETRY;
        self.registry.promise(call, Instant::now() + life);
        self.active.tell(call);
        life
    }

    /// Renews the promises of the gateway from which a call was taken over.
    pub(super) fn promise_taken_over(&self, call: &Arc<Call>) {
        self.registry.promise(call, call.deadline() + TAKEN_OVER);
        self.active.tell(call);
    }

    /// Keeps a call that has ended at another gateway, whose record stays for `left`.
    pub(super) fn promise_ended(&self, call: &Arc<Call>, left: Duration) {
        self.registry.promise(call, Instant::now() + left.min(TAKEN_OVER));
    }

    /// Renews the token of a call whose principal is back, and does not wait for the call's end.
    pub fn renew_authority(&self, call: &Call, caller: &Arc<Caller>) {
        self.running.attend(call, caller);
        call.authority.leave();
    }

    /// Returns once the client of a chosen call may be informed of it: the call has started or ended, and the store
    /// has its record. `waits`: the client learns of it when it ends or asks something.
    async fn acknowledge(&self, call: &Arc<Call>, waits: bool) -> Result<Keeper, PromiseFault> {
        // In a task of its own: a client that leaves does not stop it.
        let storing = tokio::spawn(store(self.active.clone(), call.clone(), waits));
        call.begins_or_ends(BEGINS_WITHIN).await;
        accept(call).await?;
        // Bounded by the time limit of the store.
        let stored = storing.await;
        if call.ownership.passed_on.is_set() {
            return Ok(Keeper::AnotherGateway);
        }
        // A client gets no confirmation of a running call that only this gateway knows.
        let Ok(Ok(())) = stored else { return Err(PromiseFault::Unstored) };
        if call.ownership.given_up.is_set() {
            // Its end is being stored: a quick call is answered with its result; if the store takes longer, the call is
            // reported as running.
            let _ = tokio::time::timeout(ENDS_WITHIN, call.finished()).await;
        }
        accept(call).await?;
        Ok(Keeper::ThisGateway)
    }
}

/// Returns once the store has the record of a chosen call, or has rejected it. A call that ended before needs no
/// record, because its client gets the outcome; one that ends soon gets the time for that if its client `waits`.
async fn store(active: Arc<ActiveTable>, call: Arc<Call>, waits: bool) -> Result<(), ActiveFault> {
    // A call that is refused before it starts leaves no record by which another gateway would find it running.
    call.begins_or_ends(BEGINS_WITHIN).await;
    if waits && !call.ownership.may_be_stored() {
        call.asks_or_ends(BRIEF).await;
    }
    if call.void().is_some() {
        return Ok(());
    }
    if call.outcome().is_none() {
        if call.ownership.known.is_set() {
            if call.ownership.has_had_row() {
                // The store has had it since before the call started.
                call.note_announced();
            }
            return Ok(());
        }
        match active.announce(&call).await {
            Ok(()) => return Ok(()),
            Err(error) if call.outcome().is_none() => {
                tracing::warn!(call = %call.id, trace = %call.trace, %error, "record of a call could not be stored; the call continues here, other gateways do not see it, and its client is asked to send it again");
                return Err(error);
            }
            // It has ended since.
            Err(_) => {}
        }
    }
    // The same call sent again gets the same answer, at every gateway.
    active.tell_end(&call).await
}

/// Refuses a void call, so that no client is told of it.
async fn accept(call: &Call) -> Result<(), PromiseFault> {
    if call.state().is_terminal() {
        call.finished().await;
    }
    match call.void().as_deref() {
        Some(Outcome::Refused(refusal)) => Err(PromiseFault::Void(refusal.clone())),
        _ => Ok(()),
    }
}
