//! The links that end with revocations and blocks: removed from the database of calls, whoever made the revocation.
//!
//! Keeps true: an ending stays in the control plane's store until its links are gone and their tokens wait for their revocation
//! at the provider, so that neither a crash nor an outage of the database of calls loses one; what is done twice changes nothing.
//! It is repeated once every gateway knows of the revocation, because one that does not may still store a link; or as soon as the
//! revocation is lifted, so that links that are made later stay.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use asp_platform::clock;
use asp_store::control::sql::ControlStore;
use asp_store::control::{EndedLinks, MAX_LINK_ENDINGS};
use asp_store::linked_accounts::{LinkFilter, LinkedAccounts, bound_to_token};
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

/// Interval at which a control plane looks for endings.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Number of endings that are read and deleted at once; a look goes on with the next ones.
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
    /// Ids of endings that were done and are not settled; at most [`MAX_LINK_ENDINGS`].
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

    /// Ends the links of all endings, the oldest first, and deletes those that are settled.
    async fn look(&mut self) -> anyhow::Result<()> {
        let mut unsettled = HashSet::new();
        let mut last: Option<EndedLinks> = None;
        loop {
            let mut page = self.store.link_endings_after(last.as_ref(), AT_ONCE).await?;
            let settled = self.end_each(&page).await?;
            self.store.delete_link_endings(&settled).await?;
            let settled: HashSet<String> = settled.into_iter().collect();
            let left = page.iter().map(|ending| &ending.id).filter(|id| !settled.contains(*id));
            unsettled.extend(left.cloned());
            last = page.pop();
            if last.is_none() {
                break;
            }
        }
        self.begun.retain(|id| unsettled.contains(id));
        Ok(())
    }

    /// Ends the links of these endings, without those that were ended before and are not settled; returns the ids of the settled
    /// ones.
    async fn end_each(&mut self, endings: &[EndedLinks]) -> anyhow::Result<Vec<String>> {
        let now = clock::now_ms();
        let mut settled = Vec::new();
        for ending in endings {
            // No new link is bound to a revoked token: its caller is refused. After a lifted revocation callers may link again.
            let is_settled =
                !ending.token.is_empty() || ending.is_lifted || ending.created_at + SETTLED_MS <= now;
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
            } else if self.begun.len() < MAX_LINK_ENDINGS {
                self.begun.insert(ending.id.clone());
            }
        }
        Ok(settled)
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

#[cfg(test)]
mod tests {
    use asp_store::control::{Change, RevocationRecord};
    use asp_store::linked_accounts::suite;
    use asp_store::sqlite::SqliteCalls;

    use super::*;

    fn revocation(user: &str, at: u64) -> RevocationRecord {
        RevocationRecord {
            id: format!("r-{user}"),
            kind: "user".into(),
            org: "acme".into(),
            target: user.into(),
            issuer: String::new(),
            reason: String::new(),
            created_at: at,
            until: at + 1_000_000,
            by_platform: false,
        }
    }

    #[tokio::test]
    async fn a_link_that_is_made_after_a_block_was_lifted_stays() {
        let directory = tempfile::tempdir().unwrap();
        let store = ControlStore::in_memory().await.unwrap();
        let calls = SqliteCalls::open(&directory.path().join("calls.db")).await.unwrap();
        let link = async |id: u8| {
            let hour = Duration::from_secs(3_600);
            let key = suite::key("bob", "github");
            calls.put_link([id; 16], &key, &suite::tokens("sealed", 1), hour).await.unwrap();
        };
        let linked = async || calls.links(LinkFilter::default(), 10).await.unwrap().len();
        let now = clock::now_ms();
        // Nothing settles by its age while the test runs.
        let change = Change::unconditional("admin", now + 3_600_000);
        let block = RevocationRecord { kind: "block_user".into(), ..revocation("bob", now) };
        store.add_revocation(&change, &block).await.unwrap();
        let mut ender = LinkEnder { store: &store, links: &calls, begun: HashSet::new() };
        link(1).await;
        ender.look().await.unwrap();
        assert_eq!(linked().await, 0);
        // At a gateway that does not know of the block yet.
        link(2).await;
        store.delete_revocation(&change, &block.id).await.unwrap();
        ender.look().await.unwrap();
        assert_eq!(linked().await, 0, "it was made before the block was lifted");
        assert!(store.link_endings(10).await.unwrap().is_empty() && ender.begun.is_empty());
        link(3).await;
        ender.look().await.unwrap();
        assert_eq!(linked().await, 1);
    }

    /// Endings that are not settled do not hold up the others, however many they are.
    #[tokio::test]
    async fn one_look_ends_the_links_of_more_endings_than_it_reads_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let store = ControlStore::in_memory().await.unwrap();
        let calls = SqliteCalls::open(&directory.path().join("calls.db")).await.unwrap();
        let users: Vec<String> = (0..AT_ONCE + 50).map(|number| format!("user-{number:0>5}")).collect();
        let [first, .., last] = users.as_slice() else { panic!("there are some") };
        for (id, user) in [(1, first.as_str()), (2, last.as_str()), (3, "somebody")] {
            let hour = Duration::from_secs(3_600);
            let key = suite::key(user, "github");
            calls.put_link([id; 16], &key, &suite::tokens("sealed", 1), hour).await.unwrap();
        }
        let now = clock::now_ms();
        // Nothing settles while the test runs.
        let later = now + 3_600_000;
        for user in &users {
            let change = Change::unconditional("admin", later);
            store.add_revocation(&change, &revocation(user, now)).await.unwrap();
        }
        let mut ender = LinkEnder { store: &store, links: &calls, begun: HashSet::new() };
        ender.look().await.unwrap();
        let left = calls.links(LinkFilter::default(), 10).await.unwrap();
        assert_eq!(left.iter().map(|link| link.key.subject.as_str()).collect::<Vec<_>>(), ["somebody"]);
        assert_eq!(ender.begun.len(), users.len());
        assert_eq!(store.link_endings(2_000).await.unwrap().len(), users.len(), "each is repeated later");
        // Another control plane has settled one.
        let id = format!("r-{first}");
        store.delete_link_endings(std::slice::from_ref(&id)).await.unwrap();
        ender.look().await.unwrap();
        assert!(ender.begun.len() == users.len() - 1 && !ender.begun.contains(&id));
    }
}
