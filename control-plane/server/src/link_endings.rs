//! The links that end with revocations and blocks: removed from the database of calls, whoever made the revocation.
//!
//! Keeps true: an ending stays in the control plane's store until its links are gone and their tokens wait for their revocation
//! at the provider, so that neither a crash nor an outage of the database of calls loses one; what is done twice changes nothing.

use std::sync::Arc;
use std::time::Duration;

use asp_store::control::EndedLinks;
use asp_store::control::sql::ControlStore;
use asp_store::linked_accounts::{LinkFilter, LinkedAccounts, bound_to_token};
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

/// Interval at which a control plane looks for endings.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Maximum number of endings of one look; more follow at once.
const AT_ONCE: u32 = 200;

/// Ends links until `stop` is cancelled; run it as a task.
pub async fn run(store: Arc<ControlStore>, links: Arc<dyn LinkedAccounts>, stop: CancellationToken) {
    stop.run_until_cancelled(keep_on(&store, links.as_ref())).await;
}

async fn keep_on(store: &ControlStore, links: &dyn LinkedAccounts) {
    let mut ticks = tokio::time::interval(LOOK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut is_failing = false;
    loop {
        ticks.tick().await;
        loop {
            let done = end_some(store, links).await;
            if let (Err(error), false) = (&done, is_failing) {
                tracing::error!(
                    error = format!("{error:#}"),
                    "linked accounts of revoked callers cannot be removed at the moment; they are removed once the databases answer"
                );
            }
            is_failing = done.is_err();
            if !matches!(done, Ok(true)) {
                break;
            }
        }
    }
}

/// Ends the links of the oldest endings; returns whether there are more.
async fn end_some(store: &ControlStore, links: &dyn LinkedAccounts) -> anyhow::Result<bool> {
    let waiting = store.link_endings(AT_ONCE).await?;
    let is_whole = waiting.len() < usize::try_from(AT_ONCE).unwrap_or(usize::MAX);
    let mut done = Vec::with_capacity(waiting.len());
    for ending in waiting {
        match end(links, &ending).await {
            Ok(0) => {}
            Ok(removed) => tracing::info!(
                revocation = ending.id,
                org = ending.org,
                removed,
                "linked accounts of a revocation removed"
            ),
            Err(error) => {
                store.delete_link_endings(&done).await?;
                return Err(error);
            }
        }
        done.push(ending.id);
    }
    store.delete_link_endings(&done).await?;
    Ok(!is_whole)
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
