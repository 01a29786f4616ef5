//! Receivers of push notifications, after the limits.
//!
//! Keeps true: nothing of a new call starts before the store has its receiver; a call whose receiver is refused is void; a
//! receiver for a call that exists draws from the limits like a call, because it may cost a lookup of its name.

use asp_call::call::outcome::Refusal;
use asp_edge::Caller;
use asp_snapshot::{ListedPrimitive, Snapshot, VirtualServer};

use super::{CallTask, Pipeline, ledger};
use crate::pushes::FirstReceiver;

impl Pipeline {
    /// Draws from the limits on calls of a primitive, before a receiver for one of them is checked.
    pub async fn charge_receiver(
        &self,
        snapshot: &Snapshot,
        server: &VirtualServer,
        caller: &Caller,
        entry: &ListedPrimitive,
    ) -> Result<(), Refusal> {
        let charged = self.limiter.charge(snapshot, server, caller, &entry.primitive).await;
        if let Err(Refusal::Limited { limit, .. }) = &charged {
            self.metrics.limited(Some(limit));
        }
        charged
    }
}

impl CallTask {
    /// Stores the receiver, with the record of its call.
    pub(super) async fn store_receiver(&self, receiver: &dyn FirstReceiver) -> Result<(), Refusal> {
        receiver.check().await?;
        let call = &self.call;
        let active = &self.pipeline.active;
        if let Err(error) = active.introduce(call).await {
            tracing::debug!(call = %call.id, trace = %call.trace, %error, "call was refused, because its record could not be stored for its receiver");
            return Err(ledger::not_begun());
        }
        let stored = receiver.store(call.id).await;
        if stored.is_err() {
            active.withdraw(call).await;
        }
        stored
    }
}
