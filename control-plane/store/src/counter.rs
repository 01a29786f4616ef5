//! Exact rate-limit counters: token buckets from which a call draws all or nothing.
//!
//! Owns: the [`Counters`] port. Refuses: to decide which buckets a call needs (the limits stage does). Keeps true: a
//! bucket never admits more than its capacity plus its refill, also under concurrency (invariant I-4, ADR 10).

use async_trait::async_trait;

mod fallback;
mod memory;
#[cfg(any(test, feature = "testing"))]
pub mod suite;

pub use fallback::WithFallback;
pub use memory::MemoryCounters;

/// A token bucket that a call must draw from.
#[derive(Clone, Debug, PartialEq)]
pub struct Bucket {
    /// Name of the bucket, e.g. `acme|limit|3|user=alice`.
    pub key: String,
    /// Maximum number of tokens, at least 1.
    pub capacity: u64,
    /// Tokens added per second, above 0.
    pub refill_per_second: f64,
}

/// The outcome of a draw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrawOutcome {
    /// One token was taken from every bucket; `remaining` is the fewest that any bucket has left.
    Granted { remaining: u64 },
    /// No token was taken. Of the empty buckets, the one at `index` takes longest to have a token again; the time until then is
    /// when a draw can succeed.
    Denied { index: usize, retry_after_ms: u64 },
}

/// Failure of the counters; the caller decides whether to admit or refuse.
#[derive(Debug, thiserror::Error)]
#[error("counters are not available: {0}")]
pub struct CounterError(pub String);

/// Rate-limit counters that draw from several buckets atomically.
#[async_trait]
pub trait Counters: Send + Sync {
    /// Takes one token from every bucket, or none if one of them is empty. All buckets belong to this tenant, whose
    /// buckets are stored together.
    async fn take(&self, tenant: &str, buckets: &[Bucket]) -> Result<DrawOutcome, CounterError>;

    /// Returns the shard that stores a tenant's buckets; shards fail independently.
    fn shard(&self, _tenant: &str) -> u64 {
        0
    }
}

/// Returns a wait in whole milliseconds, between one and a day.
fn milliseconds(seconds: f64) -> u64 {
    (seconds * 1000.0).ceil().clamp(1.0, 86_400_000.0) as u64
}
