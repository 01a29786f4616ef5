//! Exact rate-limit counters: buckets from which a call draws all or nothing.
//!
//! Owns: the [`Counters`] port. Refuses: to decide which buckets a call needs (the limits stage does). Keeps true: a
//! bucket never admits more than its kind allows, also under concurrency (invariant I-4, ADR 10).

use async_trait::async_trait;

mod fallback;
#[cfg(test)]
mod interleavings;
mod memory;
mod share;
mod slices;
mod state;
#[cfg(any(test, feature = "testing"))]
pub mod suite;

pub use fallback::WithFallback;
pub use memory::MemoryCounters;
pub use share::{GatewayShare, Membership};
pub use slices::{EVERY_ORG, Slices};

/// Time from the beginning and to the end of a fixed window in which draws are not given back, because clocks differ.
const SKEW_MS: u64 = 5_000;

/// Kind of a bucket: the draws that it counts.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum BucketKind {
    /// Tokens that come back steadily.
    #[default]
    Tokens,
    /// Draws in windows of this length, which begin at multiples of it since 1970 (UTC).
    Fixed { seconds: u64 },
    /// Draws in any period of this length. The oldest tenth counts as a whole.
    Sliding { seconds: u64 },
    /// Slots that are held until they are given back, or until the lease ends.
    Slots { holder: String, lease_ms: u64 },
}

/// A bucket that a call must draw from.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bucket {
    /// Name of the bucket, e.g. `acme|limit|3|user=alice`.
    pub key: String,
    /// Maximum number of tokens, draws of a window, or slots; at least 1.
    pub capacity: u64,
    /// Tokens added per second, above 0. Other kinds ignore it.
    pub refill_per_second: f64,
    pub kind: BucketKind,
}

impl Bucket {
    /// Whether draws are held, and given back when their call ends.
    pub fn is_slots(&self) -> bool {
        matches!(self.kind, BucketKind::Slots { .. })
    }

    /// Returns the number of the fixed window of a draw at this Unix time; `None` if it is too close to another window for
    /// clocks that differ, or for another kind.
    pub(crate) fn window_of(&self, drawn_ms: u64) -> Option<u64> {
        let BucketKind::Fixed { seconds } = self.kind else { return None };
        let length = seconds.max(1).saturating_mul(1000);
        let within = drawn_ms.checked_rem(length)?;
        (within >= SKEW_MS && within.saturating_add(SKEW_MS) < length).then_some(drawn_ms / length)
    }
}

/// Number of remaining draws if no bucket of a draw counts them: slots, and slices.
pub const UNCOUNTED: u64 = u64::MAX;

/// The outcome of a draw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrawOutcome {
    /// One token was taken from every bucket; `remaining` is the fewest that any bucket without slots has left, or
    /// [`UNCOUNTED`].
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

    /// Undoes draws of the given Unix time for a call that was refused later, and gives slots back. A draw of a sliding window,
    /// or of a fixed one that may have ended, is not undone.
    async fn give_back(
        &self,
        _tenant: &str,
        _buckets: &[Bucket],
        _drawn_ms: u64,
    ) -> Result<(), CounterError> {
        Ok(())
    }

    /// Gives slots back at once, if that needs no waiting; returns whether it did.
    fn give_back_now(&self, _tenant: &str, _buckets: &[Bucket]) -> bool {
        false
    }

    /// Extends the leases of slots that are still held.
    async fn renew(&self, _tenant: &str, _buckets: &[Bucket]) -> Result<(), CounterError> {
        Ok(())
    }

    /// Takes up to `count` tokens of one token bucket for the calls to come; returns how many it took.
    async fn take_many(&self, tenant: &str, bucket: &Bucket, count: u64) -> Result<u64, CounterError> {
        let drawn = self.take(tenant, std::slice::from_ref(bucket)).await?;
        Ok(u64::from(count > 0 && matches!(drawn, DrawOutcome::Granted { .. })))
    }

    /// Returns the part of each limit that this gateway admits by itself while the shared counters do not answer.
    fn share(&self) -> GatewayShare {
        GatewayShare::default()
    }

    /// Returns the shard that stores a tenant's buckets; shards fail independently.
    fn shard(&self, _tenant: &str) -> u64 {
        0
    }
}

/// Returns a wait in whole milliseconds, between one and a day.
fn milliseconds(seconds: f64) -> u64 {
    (seconds * 1000.0).ceil().clamp(1.0, 86_400_000.0) as u64
}
