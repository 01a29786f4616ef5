//! Audit of the accounts that users link and remove.

use asp_call::telemetry::audit::{LinkFact, link};

use super::Pipeline;

impl Pipeline {
    /// Records that a user has linked or removed an account, or why not.
    pub async fn record_link(&self, fact: &LinkFact<'_>) {
        // The change is stored; a lost event is counted.
        let _ = self.audit.record_end(link(fact)).await;
    }
}
