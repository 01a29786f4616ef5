//! What all outboxes together may hold.
//!
//! Keeps true: beyond the budget a tunnel gets no second frame into its outbox. The first one always finds room, so
//! that tunnels which nobody reads cannot stop those that somebody does.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of frames: room for four full outboxes, or for thousands as they usually are.
const MAX_BYTES: usize = 64 << 20;

/// The bytes in all outboxes of this process.
#[derive(Debug, Default)]
pub struct Budget(AtomicUsize);

impl Budget {
    /// Whether `bytes` more fit. Others may take them meanwhile, each a frame at most.
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
