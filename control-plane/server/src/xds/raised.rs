//! The revisions that subscribers have in force from other control planes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;

use super::published::Published;

/// The highest revision that a subscriber came with. Another control plane on the same store may have published what is
/// the same here under a later revision; nobody would take it, or what follows it in time alone, under an earlier one.
pub struct Raised {
    revision: AtomicU64,
    dirty: Arc<Notify>,
}

impl Raised {
    /// `dirty` is told of a higher one.
    pub fn new(dirty: Arc<Notify>) -> Raised {
        Raised { revision: AtomicU64::new(0), dirty }
    }

    /// A subscriber has that revision in force.
    pub fn seen(&self, revision: u64) {
        if self.revision.fetch_max(revision, Ordering::Relaxed) < revision {
            self.dirty.notify_one();
        }
    }

    /// `covers`: the store's revision up to which all is published.
    pub fn concerns(&self, published: &Published, covers: u64) -> bool {
        let seen = self.revision.load(Ordering::Relaxed);
        let oldest = published.edge.revision.min(published.recent.revision).min(published.gateway.revision);
        oldest < seen && seen <= covers
    }
}
