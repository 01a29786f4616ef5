//! The audit's last events of calls whose gateway was killed.
//!
//! Keeps true: a call that a gateway can take over, or runs, is left to that; every other call that a lost gateway began and
//! nobody ended gets one `call.finish` with the outcome `unknown`, also one of which the store only tells.

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
            let continued = self.continued_calls_of(gateway).await?;
            let finished = self.audit.finish_lost(&self.lost, gateway, &continued).await?;
            if finished > 0 {
                tracing::warn!(
                    calls = finished,
                    "calls of a lost gateway have ended in the audit with an unknown outcome"
                );
            }
        }
        Ok(())
    }

    /// Returns the calls of a lost gateway that get their end from another one.
    async fn continued_calls_of(&self, gateway: &LostGateway) -> Result<HashSet<Uuid>, ActiveFault> {
        let ids: Vec<Uuid> = gateway.calls.iter().map(|call| call.id).collect();
        let mut continued = HashSet::new();
        for some in ids.chunks(LOOKUP) {
            continued.extend(self.active.continued(some).await?);
        }
        Ok(continued)
    }
}
