//! Linked accounts that end: their tokens are revoked, and the running calls of this gateway that use them are cancelled.

use std::sync::{Arc, Weak};
use std::time::Duration;

use asp_identity::linked::LinkedTokens;
use asp_pipeline::pipeline::Pipeline;
use tokio::time::{MissedTickBehavior, interval};

use super::Gateway;

/// Interval at which the links of running calls are looked up.
const LOOK_EVERY: Duration = Duration::from_millis(500);

impl Gateway {
    /// Ends expired linked accounts, revokes ended ones, and cancels the calls that use one which was removed, until the gateway
    /// is dropped; run it as a task.
    pub fn keep_links(&self) -> impl Future<Output = ()> + Send + use<> {
        let links = self.issuers.links.as_ref().map(Arc::downgrade);
        let pipeline = Arc::downgrade(&self.pipeline);
        async move {
            match links {
                Some(links) => {
                    tokio::join!(LinkedTokens::keep(links.clone()), cancel_unlinked(links, pipeline));
                }
                None => std::future::pending().await,
            }
        }
    }
}

/// Cancels the running calls whose linked account was removed, by whichever process.
async fn cancel_unlinked(links: Weak<LinkedTokens>, pipeline: Weak<Pipeline>) {
    let mut ticks = interval(LOOK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut is_failing = false;
    loop {
        ticks.tick().await;
        let (Some(links), Some(pipeline)) = (links.upgrade(), pipeline.upgrade()) else { return };
        let ended = links.calls_without_link(|call| pipeline.is_active(call)).await;
        match &ended {
            Ok(calls) => calls.iter().for_each(|call| pipeline.cancel_unlinked(*call)),
            Err(error) if !is_failing => {
                tracing::warn!(%error, "linked accounts of running calls cannot be read; calls of removed ones go on until they can: check the database");
            }
            Err(_) => {}
        }
        is_failing = ended.is_err();
    }
}
