//! The exact rate-limit counters: token buckets that are taken together or not at all.
//!
//! Owns: the [`Counters`] port. Refuses: deciding which buckets a call needs (the limits stage does). Keeps true: a bucket
//! never admits more than its capacity plus its refill, also under concurrency (invariant I-4, ADR 10).

use async_trait::async_trait;

mod fallback;
mod memory;
#[cfg(any(test, feature = "testing"))]
pub mod suite;

pub use fallback::WithFallback;
pub use memory::MemoryCounters;

/// One token bucket a call must draw from.
#[derive(Clone, Debug, PartialEq)]
pub struct Bucket {
    /// What is counted, e.g. `acme|limit|3|user=alice`.
    pub key: String,
    /// Most tokens the bucket holds, at least 1.
    pub capacity: u64,
    /// Tokens that come back per second, above 0.
    pub refill_per_second: f64,
}

/// What a check said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// One token was taken from every bucket; the fewest that any of them has left.
    Granted { remaining: u64 },
    /// Nothing was taken; the bucket at `index` was empty.
    Denied { index: usize, retry_after_ms: u64 },
}

/// Counters failed; the caller decides whether that admits or refuses.
#[derive(Debug, thiserror::Error)]
#[error("counters are not available: {0}")]
pub struct CounterError(pub String);

/// Takes tokens from several buckets atomically.
#[async_trait]
pub trait Counters: Send + Sync {
    /// Takes one token from every bucket, or none when one of them is empty. All of them are of this tenant: what is
    /// taken together is kept together.
    async fn take(&self, tenant: &str, buckets: &[Bucket]) -> Result<Taken, CounterError>;
}

/// A wait in whole milliseconds, at least one and at most a day.
fn milliseconds(seconds: f64) -> u64 {
    (seconds * 1000.0).ceil().clamp(1.0, 86_400_000.0) as u64
}
