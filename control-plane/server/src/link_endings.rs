//! The links that end with revocations and blocks: removed from the database of calls, whoever made the revocation.
//!
//! Keeps true: an ending stays in the control plane's store until its links are gone and their tokens wait for their revocation
//! at the provider, so that neither a crash nor an outage of the database of calls loses one; what is done twice changes nothing.
//! It is repeated once every gateway knows of the revocation, because one that does not may still store a link.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use asp_platform::clock;
use asp_store::control::EndedLinks;
use asp_store::control::sql::ControlStore;
use asp_store::linked_accounts::{LinkFilter, LinkedAccounts, bound_to_token};
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

/// Interval at which a control plane looks for endings.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Maximum number of endings of one look; more follow once these are settled.
const AT_ONCE: u32 = 1_000;
/// Time in milliseconds after which an ending is settled. Gateways know of a revocation within a second.
const SETTLED_MS: u64 = 5_000;

/// Ends links until `stop` is cancelled; run it as a task.
pub async fn run(store: Arc<ControlStore>, links: Arc<dyn LinkedAccounts>, stop: CancellationToken) {
    let mut ender = LinkEnder { store: &store, links: links.as_ref(), begun: HashSet::new() };
    stop.run_until_cancelled(ender.keep_on()).await;
}

struct LinkEnder<'a> {
    store: &'a ControlStore,
    links: &'a dyn LinkedAccounts,
    /// Ids of endings that were done and are not settled; at most [`AT_ONCE`].
    begun: HashSet<String>,
}

impl LinkEnder<'_> {
    async fn keep_on(&mut self) {
        let mut ticks = tokio::time::interval(LOOK_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut is_failing = false;
        loop {
            ticks.tick().await;
            let done = self.look().await;
            if let (Err(error), false) = (&done, is_failing) {
                tracing::error!(
                    error = format!("{error:#}"),
                    "linked accounts of revoked callers cannot be removed at the moment; they are removed once the databases answer"
                );
            }
            is_failing = done.is_err();
        }
    }

    /// Ends the links of the oldest endings, and deletes those that are settled.
    async fn look(&mut self) -> anyhow::Result<()> {
        let waiting = self.store.link_endings(AT_ONCE).await?;
        let now = clock::now_ms();
        let mut settled = Vec::new();
        for ending in &waiting {
            // No new link is bound to a revoked token: its caller is refused.
            let is_settled = !ending.token.is_empty() || ending.created_at + SETTLED_MS <= now;
            if !is_settled && self.begun.contains(&ending.id) {
                continue;
            }
            let removed = end(self.links, ending).await?;
            if removed > 0 {
                tracing::info!(
                    revocation = ending.id,
                    org = ending.org,
                    removed,
                    "linked accounts of a revocation removed"
                );
            }
            if is_settled {
                settled.push(ending.id.clone());
            } else {
                self.begun.insert(ending.id.clone());
            }
        }
        self.store.delete_link_endings(&settled).await?;
        let left = waiting.iter().map(|ending| &ending.id).filter(|id| !settled.contains(id));
        let left: HashSet<&String> = left.collect();
        self.begun.retain(|id| left.contains(id));
        Ok(())
    }
}

/// Removes the links of an ending; returns their number.
async fn end(links: &dyn LinkedAccounts, ending: &EndedLinks) -> anyhow::Result<u64> {
    let EndedLinks { org, subject, provider, token, .. } = ending;
    let bound = match token.is_empty() {
        true => String::new(),
        false => bound_to_token(token),
    };
    let filter = LinkFilter { org, issuer: "", subject, provider, bound: &bound };
    // Most callers have no links, and a look needs no write.
    if filter == LinkFilter::default() || links.links(filter, 1).await?.is_empty() {
        return Ok(0);
    }
    Ok(links.remove_links(filter).await?)
}
