//! Linked accounts of callers: the audit of those that users link and remove, and the end of calls whose account was removed.

pub use asp_call::telemetry::audit::LinkFact;
use asp_call::telemetry::audit::link;
use uuid::Uuid;

use super::Pipeline;

impl Pipeline {
    /// Records that a user has linked or removed an account, or why not.
    pub async fn record_link(&self, fact: &LinkFact<'_>) {
        // The change is stored; a lost event is counted.
        let _ = self.audit.record_end(link(fact)).await;
    }

    /// Whether the call of this id runs here and was not cancelled.
    pub fn is_active(&self, call: [u8; 16]) -> bool {
        let call = self.registry.find_running(Uuid::from_bytes(call));
        call.is_some_and(|call| !call.is_cancelled())
    }

    /// Cancels a call that uses a linked account which was removed.
    pub fn cancel_unlinked(&self, call: [u8; 16]) {
        let Some(call) = self.registry.find_running(Uuid::from_bytes(call)) else { return };
        call.note_failure_cause("the linked account that it used was removed");
        tracing::info!(
            call = %call.id, org = call.caller.org, primitive = %call.entry.primitive.id,
            "call cancelled, because the linked account that it used was removed"
        );
        call.cancel();
    }
}
