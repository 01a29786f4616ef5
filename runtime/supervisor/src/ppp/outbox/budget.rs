//! Byte budget of all outboxes together.
//!
//! Keeps true: beyond the budget, a tunnel gets no second frame into its outbox. The first one always fits, so that
//! tunnels that nobody reads cannot stop those that are read.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Maximum number of bytes of frames: four full outboxes, or thousands of usual ones.
const MAX_BYTES: usize = 64 << 20;

/// The bytes in all outboxes of this process.
#[derive(Debug, Default)]
pub struct OutboxBudget(AtomicUsize);

impl OutboxBudget {
    /// Whether `bytes` more fit. Concurrent tunnels may take them first, one frame each at most.
    pub fn has(&self, bytes: usize) -> bool {
        self.0.load(Ordering::Relaxed).saturating_add(bytes) <= MAX_BYTES
    }

    pub fn take(&self, bytes: usize) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }

    pub fn give_back(&self, bytes: usize) {
        self.0.fetch_sub(bytes, Ordering::Relaxed);
    }
}
