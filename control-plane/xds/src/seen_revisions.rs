//! Revisions that subscribers have in force from other control planes, or from before an older database was restored.

use std::collections::BTreeSet;

use parking_lot::Mutex;

use super::contract::Kind;
use super::published::Publication;

/// Maximum number of revisions kept per kind. The highest are dropped first: one beyond the store's own revision is of
/// no use until the store has passed it, and may be made up.
const MAX_SEEN: usize = 64;

/// Revisions that subscribers have in force. Another control plane on the same store may have published the same
/// content under a later revision, or the store's revision may have been raised past theirs. No subscriber would accept
/// what is then published under an earlier revision.
#[derive(Default)]
pub struct SeenRevisions {
    edge: Mutex<BTreeSet<u64>>,
    recent: Mutex<BTreeSet<u64>>,
    gateway: Mutex<BTreeSet<u64>>,
}

impl SeenRevisions {
    /// Records that a subscriber has a revision in force.
    pub fn record(&self, kind: Kind, revision: u64) {
        let mut seen = match kind {
            Kind::Edge => self.edge.lock(),
            Kind::Revocations => self.recent.lock(),
            Kind::Gateway => self.gateway.lock(),
            Kind::Endpoints => return,
        };
        seen.insert(revision);
        if seen.len() > MAX_SEEN {
            seen.pop_last();
        }
    }

    /// Whether a subscriber would reject the published revision, but accept one that the store has reached by now.
    /// `covers`: the store revision up to which everything is published.
    pub fn concerns(&self, published: &Publication, covers: u64) -> bool {
        let kinds = [
            (&self.edge, published.edge.revision),
            (&self.recent, published.recent.revision),
            (&self.gateway, published.gateway.revision),
        ];
        kinds.into_iter().any(|(seen, published)| {
            let mut seen = seen.lock();
            let Some(stored) = seen.range(..=covers).next_back().copied() else { return false };
            // It is kept: an older database may be restored, and what is published then is older than it.
            *seen = seen.split_off(&stored);
            published < stored
        })
    }
}
