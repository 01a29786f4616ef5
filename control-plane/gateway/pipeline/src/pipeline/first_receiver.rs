//! Receiver of push notifications that a new call brings, after the limits.
//!
//! Keeps true: nothing of the call starts before the store has its receiver; a call whose receiver is refused is void.

use asp_call::call::outcome::Refusal;

use super::{CallTask, ledger};
use crate::pushes::FirstReceiver;

impl CallTask {
    /// Stores the receiver, with the record of its call.
    pub(super) async fn store_receiver(&self, receiver: &dyn FirstReceiver) -> Result<(), Refusal> {
        receiver.check().await?;
        let (call, active) = (&self.call, &self.pipeline.active);
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
