//! Tokens that models used for a call.
//!
//! Keeps true: it counts what this gateway asked. A call that moves to another gateway begins there with none.

use std::sync::atomic::{AtomicU64, Ordering};

/// Tokens of the models that a call and the calls within it have asked, as the endpoints report them.
#[derive(Debug, Default)]
pub struct ModelUsage {
    tokens_in: AtomicU64,
    tokens_out: AtomicU64,
}

impl ModelUsage {
    /// Adds tokens in and out.
    pub fn add(&self, (tokens_in, tokens_out): (u64, u64)) {
        self.tokens_in.fetch_add(tokens_in, Ordering::Relaxed);
        self.tokens_out.fetch_add(tokens_out, Ordering::Relaxed);
    }

    /// Returns the tokens in and out.
    pub fn total(&self) -> (u64, u64) {
        (self.tokens_in.load(Ordering::Relaxed), self.tokens_out.load(Ordering::Relaxed))
    }
}
