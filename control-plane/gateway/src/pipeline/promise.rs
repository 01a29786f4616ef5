//! Promises that a client can come back for a call: as a task, under an id that it chose, to a stream, or with the answer to a question.
//!
//! Owns: the order of what makes a promise good: the store, so that other gateways know of the call; the registry, so that this
//! one keeps it; the call's authority, so that it goes on without its client. Keeps true: a client is told of a task, and that its
//! chosen call runs, once the store has the record or the end (I-3); a promise ends only with its time; a stream and a retry lead
//! back to this gateway, so that a store that is away costs other gateways the sight of the call, and no client its answer.

use std::sync::Arc;
use std::time::Duration;

use asp_edge::Caller;
use tokio::time::Instant;

use super::Pipeline;
use crate::call::Call;
use crate::call::bounds::kept_for;
use crate::call::outcome::{Outcome, Refusal};
use crate::call::question::input_timeout;
use crate::durable::active::{ActiveFault, ActiveTable};

/// Time in which it turns out whether a chosen call begins at all; later the call itself says how it ended.
const BEGINS_WITHIN: Duration = Duration::from_secs(2);
/// Time in which the end of a quick call is stored before its client is answered; of a later one the client asks.
const ENDS_WITHIN: Duration = Duration::from_secs(2);
/// Time beyond its deadline for which a client can come back to a call's stream.
const STREAM: Duration = Duration::from_secs(120);
/// Time for a retry beyond the call's input timeout: a late answer finds its call and is refused as late.
const RETRY: Duration = Duration::from_secs(600);
/// Time beyond its deadline for which a call of another gateway can be found here: as long as a retry may come.
const TAKEN_OVER: Duration = Duration::from_secs(15 * 60);

/// The gateway at which a client finds its chosen call.
pub(crate) enum Keeper {
    ThisGateway,
    /// It began the call under the same id first, or goes on with it.
    AnotherGateway,
}

/// The reason for which a client is told of no chosen call.
pub(crate) enum PromiseFault {
    /// The call was refused before it began; its id is free.
    Void(Refusal),
    /// The call runs here, and the store does not know of it.
    Unstored,
}

impl Pipeline {
    /// Promises a task: its client need not stay, and the call outlives the token with which it began. Returns false if the store
    /// does not take the task: nothing is promised then, and the client waits for the answer.
    pub(crate) async fn promise_task(&self, call: &Arc<Call>) -> bool {
        if let Err(error) = self.active.announce(call).await {
            tracing::warn!(call = %call.id, trace = %call.trace, %error, "a call does not become a task, because the store does not take it; its client waits for the answer");
            return false;
        }
        self.registry.promise(call, Instant::now() + kept_for(&call.entry.primitive));
        call.authority.keep();
        true
    }

    /// Promises a new call under an id that its client chose. The promise holds from the first, because the client knows the id and
    /// can come back for it, whether it stays or not. Returns when the client can be told of the call.
    pub(crate) async fn promise_chosen(&self, call: &Arc<Call>) -> Result<Keeper, PromiseFault> {
        call.authority.keep();
        call.authority.leave();
        self.registry.promise(call, Instant::now() + kept_for(&call.entry.primitive));
        self.acknowledge(call).await
    }

    /// Repeats the promise to a client that sent the same call again.
    pub(crate) async fn promise_again(
        &self,
        call: &Arc<Call>,
        caller: &Arc<Caller>,
    ) -> Result<Keeper, PromiseFault> {
        self.renew_authority(call, caller);
        self.acknowledge(call).await
    }

    /// Promises that a client can come back to the stream of a call.
    pub(crate) fn promise_stream(&self, call: &Arc<Call>) {
        self.registry.promise(call, call.deadline() + STREAM);
        if self.replicas.is_some() {
            // Its client may come back by way of another gateway when this one is gone.
            self.active.tell(call);
        }
    }

    /// Notes that a promised stream has ended. If the call goes on, its client may come back by way of another gateway.
    pub(crate) fn leave_stream(&self, call: &Arc<Call>) {
        if call.outcome().is_none() {
            self.active.tell(call);
        }
    }

    /// Promises that a retry with the answer to a question finds its call; returns for how long.
    pub(crate) fn promise_retry(&self, call: &Arc<Call>) -> Duration {
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
    pub(crate) fn renew_authority(&self, call: &Call, caller: &Arc<Caller>) {
        self.running.attend(call, caller);
        call.authority.leave();
    }

    /// Returns when the client of a chosen call can be told of it: the call has begun or ended, and the store knows.
    async fn acknowledge(&self, call: &Arc<Call>) -> Result<Keeper, PromiseFault> {
        // Apart: a client that goes away does not stop it.
        let storing = tokio::spawn(store(self.active.clone(), call.clone()));
        call.begins_or_ends(BEGINS_WITHIN).await;
        accept(call).await?;
        // The store's own time bounds this.
        let stored = storing.await;
        if call.ownership.is_passed_on() {
            return Ok(Keeper::AnotherGateway);
        }
        // No client is told that its call runs which only this gateway knows of.
        let Ok(Ok(())) = stored else { return Err(PromiseFault::Unstored) };
        if call.ownership.has_given_row_up() {
            // Its end is being stored: a quick call is answered with its result, and a store that takes longer leaves it running.
            let _ = tokio::time::timeout(ENDS_WITHIN, call.finished()).await;
        }
        accept(call).await?;
        Ok(Keeper::ThisGateway)
    }
}

/// Returns when the store knows of a chosen call, or has not taken it. A call that has ended before tells its client all by its answer.
async fn store(active: Arc<ActiveTable>, call: Arc<Call>) -> Result<(), ActiveFault> {
    // A call that is refused before it begins leaves no record at which another gateway would find it running.
    call.begins_or_ends(BEGINS_WITHIN).await;
    if call.void().is_some() || call.ownership.is_told() {
        return Ok(());
    }
    if call.outcome().is_none() {
        match active.announce(&call).await {
            Ok(()) => return Ok(()),
            Err(error) if call.outcome().is_none() => {
                tracing::warn!(call = %call.id, trace = %call.trace, %error, "the store does not take the record of a call: it runs on here, other gateways do not see it, and its client is told to send it again");
                return Err(error);
            }
            // It has ended since.
            Err(_) => {}
        }
    }
    // The same call sent again gets the same answer, at every gateway.
    active.tell_end(&call).await
}

/// Refuses a call that has ended as if it had never been, so that nobody is told of it.
async fn accept(call: &Call) -> Result<(), PromiseFault> {
    if call.state().is_terminal() {
        call.finished().await;
    }
    match call.void().as_deref() {
        Some(Outcome::Refused(refusal)) => Err(PromiseFault::Void(refusal.clone())),
        _ => Ok(()),
    }
}
