//! The credential lease of a call: active in its worker's proxy while the call runs; renewals come from the gateway,
//! and refusals by the service go back to it.
//!
//! Keeps true: a credential does not leave this process. Workers receive messages of plugin.proto, which has no field
//! for one; a renewal is taken out of the gateway's messages here.

use std::sync::Arc;

use asp_proto::supervisor::Credential;
use asp_proto::supervisor::tunnel_event::Type;
use tokio_util::task::AbortOnDropHandle;
use tonic::Status;

use crate::egress::{CredentialLease, CredentialUse};
use crate::ppp::outbox::Outbox;
use crate::ppp::{FromGateway, Inbound, event_frame};
use crate::worker::Worker;

/// A credential in use, until this is dropped.
pub(super) struct InUse {
    _active: Option<CredentialUse>,
    _telling: AbortOnDropHandle<()>,
}

/// Activates the credential in the worker's proxy, and notifies the gateway each time the service refuses it.
pub(super) fn activate_in(worker: &Worker, lease: &Arc<CredentialLease>, outbox: &Outbox) -> InUse {
    let (refused, outbox) = (Arc::clone(lease), outbox.clone());
    let telling = tokio::spawn(async move {
        loop {
            refused.wait_for_refusal().await;
            outbox.offer_or_drop(event_frame(outbox.tunnel_id(), Type::CredentialRefused, "", None));
        }
    });
    InUse { _active: worker.use_credential(lease), _telling: AbortOnDropHandle::new(telling) }
}

/// Returns the gateway's next message that concerns the call; handles renewals itself. Cancel-safe.
pub(super) async fn next(
    inbound: &mut Inbound,
    lease: Option<&CredentialLease>,
) -> Result<Option<FromGateway>, Status> {
    loop {
        match inbound.next().await? {
            Some(FromGateway::Credential(newer)) => renew(lease, &newer)?,
            other => return Ok(other),
        }
    }
}

fn renew(lease: Option<&CredentialLease>, newer: &Credential) -> Result<(), Status> {
    let lease = lease.ok_or_else(|| Status::failed_precondition("the call brought no credential"))?;
    let Credential { origin, header, value } = newer;
    lease.renew(origin, header, value).map_err(|bad| Status::invalid_argument(bad.to_string()))
}
