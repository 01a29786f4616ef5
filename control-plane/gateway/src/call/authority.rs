//! Under whose token a call runs, and whether somebody is attached to it.
//!
//! Keeps true: whoever attends is the same principal; the token that was presented last counts.

use std::sync::Arc;
use std::time::Duration;

use asp_edge::{Caller, LEEWAY_SECONDS};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::clock::unix_ms;

/// Under whose token a call runs, and whether a response of it is open.
#[derive(Clone)]
struct Standing {
    caller: Arc<Caller>,
    attended: bool,
}

/// The standing of one call, which changes when its caller leaves and comes back.
pub struct Authority {
    standing: watch::Sender<Standing>,
}

impl Authority {
    /// `attended`: somebody waits for the call's answer from the start.
    pub(super) fn new(caller: Arc<Caller>, attended: bool) -> Authority {
        Authority { standing: watch::Sender::new(Standing { caller, attended }) }
    }

    /// Who the call runs for, with the token that was presented last.
    pub fn caller(&self) -> Arc<Caller> {
        self.standing.borrow().caller.clone()
    }

    /// The same principal is back, perhaps with a fresh token.
    pub fn attend(&self, caller: &Arc<Caller>) {
        self.standing.send_replace(Standing { caller: caller.clone(), attended: true });
    }

    /// The last response of the call has ended, and the call goes on.
    pub fn leave(&self) {
        self.standing.send_modify(|standing| standing.attended = false);
    }

    /// Resolves when the token has expired while somebody is attached.
    pub(crate) async fn expired(&self, deadline: Instant) {
        let mut standing = self.standing.subscribe();
        loop {
            let Standing { caller, attended } = standing.borrow_and_update().clone();
            let end = ends_at(&caller);
            let due = async {
                match end.filter(|end| attended && *end < deadline) {
                    Some(end) => tokio::time::sleep_until(end).await,
                    // The call's own deadline comes first, or nobody is attached.
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = due => return,
                // The sender lives in `self`.
                _ = standing.changed() => {}
            }
        }
    }
}

/// When the caller's token is refused everywhere; `None` beyond every deadline.
fn ends_at(caller: &Caller) -> Option<Instant> {
    let ends = caller.expires_at.checked_add(LEEWAY_SECONDS)?.checked_mul(1000)?;
    Instant::now().checked_add(Duration::from_millis(ends.saturating_sub(unix_ms())))
}
