//! The audit's last events of calls whose gateway was killed.
//!
//! Keeps true: a call with a stored record and no outcome is left to its takeover; every other call that a lost gateway
//! began and nobody ended gets one `call.finish` with the outcome `unknown`.

use std::collections::HashSet;

use asp_call::durable::active::ActiveFault;
use asp_call::telemetry::audit::LostGateway;
use asp_store::audit::AuditError;
use uuid::Uuid;

use crate::pipeline::Pipeline;

/// Number of calls that are looked up at once.
const LOOKUP: usize = 200;

/// Reason why last events could not be written.
#[derive(Debug, thiserror::Error)]
pub enum LostCallsError {
    #[error(transparent)]
    Audit(#[from] AuditError),
    #[error(transparent)]
    Calls(#[from] ActiveFault),
}

impl Pipeline {
    /// Writes the last audit events of calls whose gateway is lost; bounded work, called periodically.
    pub async fn finish_lost_calls(&self) -> Result<(), LostCallsError> {
        let gateways = self.audit.lost_gateways().await?;
        self.lost.retain(&gateways);
        for gateway in &gateways {
            let stored = self.stored_calls_of(gateway).await?;
            let finished = self.audit.finish_lost(&self.lost, gateway, &stored).await?;
            if finished > 0 {
                tracing::warn!(
                    calls = finished,
                    "calls of a lost gateway have ended in the audit with an unknown outcome"
                );
            }
        }
        Ok(())
    }

    /// Returns the calls of a lost gateway that another one takes over or gives up.
    async fn stored_calls_of(&self, gateway: &LostGateway) -> Result<HashSet<Uuid>, ActiveFault> {
        let ids: Vec<Uuid> = gateway.calls.iter().map(|call| call.id).collect();
        let mut stored = HashSet::new();
        for some in ids.chunks(LOOKUP) {
            stored.extend(self.active.without_outcome(some).await?);
        }
        Ok(stored)
    }
}
