//! The revisions that subscribers have in force from other control planes, or from before an older database was restored.

use std::collections::BTreeSet;

use parking_lot::Mutex;

use super::Kind;
use super::published::Published;

/// Revisions of a kind that are kept. The highest go first: what lies beyond the store's own revision is of no use before
/// that has passed it, and may be made up.
const MAX_SEEN: usize = 64;

/// What subscribers have in force. Another control plane on the same store may have published what is the same here under
/// a later revision, or the store's may have been raised past theirs; nobody would take what is published under an
/// earlier one.
#[derive(Default)]
pub struct Raised {
    edge: Mutex<BTreeSet<u64>>,
    recent: Mutex<BTreeSet<u64>>,
    gateway: Mutex<BTreeSet<u64>>,
}

impl Raised {
    /// A subscriber has that revision in force.
    pub fn seen(&self, kind: Kind, revision: u64) {
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

    /// Whether a subscriber would not take what is published, and takes what is at a revision of the store's by now.
    /// `covers`: the store's revision up to which all is published.
    pub fn concerns(&self, published: &Published, covers: u64) -> bool {
        let kinds = [
            (&self.edge, published.edge.revision),
            (&self.recent, published.recent.revision),
            (&self.gateway, published.gateway.revision),
        ];
        kinds.into_iter().any(|(seen, published)| {
            let mut seen = seen.lock();
            let Some(stored) = seen.range(..=covers).next_back().copied() else { return false };
            // It stays: an older database may be restored, and what is published then is older than it.
            *seen = seen.split_off(&stored);
            published < stored
        })
    }
}
