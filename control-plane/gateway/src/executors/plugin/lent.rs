//! The credential of a plugin's spec, lent to its worker's proxy for one call: kept good while the call runs.
//!
//! Keeps true: it goes to the runtime in messages of its API (supervisor.proto), never in one that a worker gets; one that
//! does not change has no task.

use std::sync::Arc;
use std::time::Duration;

use asp_proto::supervisor::Credential;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until};
use tokio_util::task::AbortOnDropHandle;

use super::multiplexer::FrameSender;
use crate::call::Call;
use crate::executors::outbound::auth::{Authorizer, Unproved};
use crate::issuers::credentials;

/// When an issuer that gave no token is asked again: it says itself how soon it is bothered.
const RETRY: Duration = Duration::from_secs(5);

/// What one call's workers are lent.
pub(super) struct Lent {
    newest: watch::Receiver<Credential>,
    /// `None`: there will be no other.
    renewing: Option<Renewing>,
}

struct Renewing {
    refused: Arc<Notify>,
    _task: AbortOnDropHandle<()>,
}

impl Lent {
    /// `None`: the call's spec names no credential.
    pub(super) async fn of(authorizer: &Arc<Authorizer>, call: &Arc<Call>) -> Result<Option<Lent>, Unproved> {
        let Some(lent) = authorizer.lent(call).await? else { return Ok(None) };
        let until = lent.until;
        let (sender, newest) = watch::channel(message(&lent));
        let renewing = until.map(|until| {
            let refused = Arc::new(Notify::new());
            let task = renew((authorizer.clone(), call.clone()), refused.clone(), sender, until);
            Renewing { refused, _task: AbortOnDropHandle::new(tokio::spawn(task)) }
        });
        Ok(Some(Lent { newest, renewing }))
    }

    /// For the request for a worker.
    pub(super) fn newest(&self) -> Credential {
        self.newest.borrow().clone()
    }

    /// The service has refused it.
    pub(super) fn refused(&self) {
        if let Some(renewing) = &self.renewing {
            renewing.refused.notify_one();
        }
    }

    /// Sends the tunnel's runtime each newer one, until this is dropped. `None`: there will be none.
    pub(super) fn follow(&self, tunnel: FrameSender) -> Option<AbortOnDropHandle<()>> {
        self.renewing.as_ref()?;
        // One that came while the worker was asked for is sent again, at worst.
        let mut newest = self.newest.clone();
        let following = async move {
            while newest.changed().await.is_ok() {
                let credential = newest.borrow_and_update().clone();
                // Err: the tunnel has ended, and its call hears of it.
                if tunnel.send(&credential).await.is_err() {
                    return;
                }
            }
        };
        Some(AbortOnDropHandle::new(tokio::spawn(following)))
    }
}

/// Asks for a newer one when one ends and when one was refused. What the issuer gives is kept for all calls and not
/// asked for more often than every ten seconds (`Credentials::refused`).
async fn renew(
    (authorizer, call): (Arc<Authorizer>, Arc<Call>),
    refused: Arc<Notify>,
    newest: watch::Sender<Credential>,
    mut until: Instant,
) {
    loop {
        tokio::select! {
            () = sleep_until(until) => {}
            () = refused.notified() => authorizer.lent_refused(&call).await,
        }
        match authorizer.lent(&call).await {
            Ok(Some(lent)) => {
                let message = message(&lent);
                newest.send_if_modified(|known| std::mem::replace(known, message.clone()) != message);
                until = lent.until.unwrap_or_else(|| Instant::now() + RETRY);
            }
            Ok(None) => return,
            Err(_) => until = Instant::now() + RETRY,
        }
    }
}

fn message(lent: &credentials::CredentialLease) -> Credential {
    // Empty: never, since it was made of text.
    let value = lent.value.to_str().unwrap_or_default();
    Credential { origin: lent.origin.clone(), header: lent.header.to_string(), value: value.to_owned() }
}
