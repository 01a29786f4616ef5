//! The runtime's events about the worker of a call.

use asp_proto::supervisor::{TunnelEvent, tunnel_event::Type};
use asp_runtime_client::admission::{Rejection, crash, queue_position};
use asp_runtime_client::tunnel::Tunnel;

use super::admission;
use super::job::Job;
use super::recovery::AttemptOutcome;

/// Handles an event about the worker; `Err` is the attempt's outcome if the event ends it.
pub(super) async fn handle(
    job: &Job<'_>,
    tunnel: &mut Tunnel,
    event: &TunnelEvent,
) -> Result<(), AttemptOutcome> {
    let call = job.call();
    match event.r#type() {
        Type::AllocationQueued => {
            if let Some(details) = &event.details {
                admission::tell_queued(call, queue_position(details));
            }
            Ok(())
        }
        Type::TunnelReady => {
            let sent = tunnel.ready().await;
            sent.map_err(|fault| AttemptOutcome::of_fault(call, &fault))
        }
        Type::WorkerCrashed => {
            let crash = crash(event);
            let delivered = crash.delivered.unwrap_or_else(|| call.was_handed_over());
            if !delivered {
                tunnel.undelivered();
            }
            Err(AttemptOutcome::Lost { delivered, why: format!("worker crashed: {}", crash.cause) })
        }
        Type::AdmissionRejected => Err(AttemptOutcome::Rejected(Rejection::of_reason(&event.message, None))),
        Type::CredentialRefused => {
            job.refused();
            Ok(())
        }
        // The contents of a read are incomplete.
        Type::RuntimeOverload => Err(AttemptOutcome::Ended(Err(admission::overload(call)))),
        // The end of a tunnel is no event.
        Type::AllocationStarted | Type::TunnelClosed | Type::Unspecified => Ok(()),
    }
}
