//! The credential of a plugin's spec, leased to its worker's proxy for one call and renewed while the call runs.
//!
//! Keeps true: it is sent to the runtime in messages of its API (supervisor.proto), never in a message for the
//! worker; a credential that does not change has no task.

use std::sync::Arc;
use std::time::Duration;

use asp_call::call::Call;
use asp_identity::issuers::credentials;
use asp_proto::supervisor::Credential;
use asp_runtime_client::multiplexer::FrameSender;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until};
use tokio_util::task::AbortOnDropHandle;

use crate::outbound::auth::{AuthFault, Authorizer};

/// Delay before an issuer that gave no token is asked again; the issuer's own limit may be longer.
const RETRY: Duration = Duration::from_secs(5);

/// Credential lease of one call's workers.
pub(super) struct LeasedCredential {
    newest: watch::Receiver<Credential>,
    /// `None` if the credential does not change.
    renewing: Option<RenewalTask>,
}

struct RenewalTask {
    refused: Arc<Notify>,
    _task: AbortOnDropHandle<()>,
}

impl LeasedCredential {
    /// Leases the credential that the call's spec names; `None` if it names none.
    pub(super) async fn of(
        authorizer: &Arc<Authorizer>,
        call: &Arc<Call>,
    ) -> Result<Option<LeasedCredential>, AuthFault> {
        let Some(lease) = authorizer.lease_credential(call).await? else { return Ok(None) };
        let until = lease.until;
        let (sender, newest) = watch::channel(message(&lease));
        let renewing = until.map(|until| {
            let refused = Arc::new(Notify::new());
            let task = renew((authorizer.clone(), call.clone()), refused.clone(), sender, until);
            RenewalTask { refused, _task: AbortOnDropHandle::new(tokio::spawn(task)) }
        });
        Ok(Some(LeasedCredential { newest, renewing }))
    }

    /// Returns the current credential, for the request for a worker.
    pub(super) fn newest(&self) -> Credential {
        self.newest.borrow().clone()
    }

    /// Reports that the service refused the credential.
    pub(super) fn refused(&self) {
        if let Some(renewing) = &self.renewing {
            renewing.refused.notify_one();
        }
    }

    /// Sends each newer credential to the tunnel's runtime until the handle is dropped; `None` if the credential does
    /// not change.
    pub(super) fn follow(&self, tunnel: FrameSender) -> Option<AbortOnDropHandle<()>> {
        self.renewing.as_ref()?;
        // At worst, one that arrived during the allocation is sent again.
        let mut newest = self.newest.clone();
        let following = async move {
            while newest.changed().await.is_ok() {
                let credential = newest.borrow_and_update().clone();
                // Err: the tunnel has ended, which its call notices.
                if tunnel.send(&credential).await.is_err() {
                    return;
                }
            }
        };
        Some(AbortOnDropHandle::new(tokio::spawn(following)))
    }
}

/// Gets a newer credential when the current one ends or is refused. The issuer's answers are shared by all calls, and
/// it is asked at most every ten seconds (`Credentials::refused`).
async fn renew(
    (authorizer, call): (Arc<Authorizer>, Arc<Call>),
    refused: Arc<Notify>,
    newest: watch::Sender<Credential>,
    mut until: Instant,
) {
    loop {
        tokio::select! {
            () = sleep_until(until) => {}
            () = refused.notified() => authorizer.report_lease_rejected(&call).await,
        }
        match authorizer.lease_credential(&call).await {
            Ok(Some(lease)) => {
                let message = message(&lease);
                newest.send_if_modified(|known| std::mem::replace(known, message.clone()) != message);
                until = lease.until.unwrap_or_else(|| Instant::now() + RETRY);
            }
            Ok(None) => return,
            Err(_) => until = Instant::now() + RETRY,
        }
    }
}

fn message(lease: &credentials::CredentialLease) -> Credential {
    // Never empty, because it was made from text.
    let value = lease.value.to_str().unwrap_or_default();
    Credential { origin: lease.origin.clone(), header: lease.header.to_string(), value: value.to_owned() }
}
