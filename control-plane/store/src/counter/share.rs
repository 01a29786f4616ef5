//! The part of each limit that one of several gateways admits by itself.
//!
//! Keeps true: the parts of gateways that know the same number of each other sum up to the limit.

use std::time::Duration;

use async_trait::async_trait;

use super::{Bucket, CounterError};

/// One of several gateways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GatewayShare {
    /// Number of gateways, at least 1.
    pub gateways: u64,
    /// Place of this one among them, from 0.
    pub rank: u64,
}

impl Default for GatewayShare {
    fn default() -> GatewayShare {
        GatewayShare { gateways: 1, rank: 0 }
    }
}

impl GatewayShare {
    /// Returns the part of a bucket; `None` if there are more gateways than it has capacity, and none is left for this one.
    pub fn of(self, bucket: &Bucket) -> Option<Bucket> {
        let gateways = self.gateways.max(1);
        let more = u64::from(self.rank < bucket.capacity % gateways);
        let capacity = bucket.capacity / gateways + more;
        let part = capacity as f64 / bucket.capacity.max(1) as f64;
        let refill_per_second = bucket.refill_per_second * part;
        (capacity > 0).then(|| Bucket { capacity, refill_per_second, ..bucket.clone() })
    }
}

/// The gateways that share counters.
#[async_trait]
pub trait Membership: Send + Sync {
    /// Records that a gateway is there for this time, or leaves if it is zero; returns its place among all.
    async fn enter(&self, gateway: &str, lease: Duration) -> Result<GatewayShare, CounterError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_all_gateways_are_the_limit() {
        for (capacity, gateways) in [(1, 1), (1, 3), (10, 3), (1_000, 7), (2, 2)] {
            let bucket = Bucket { capacity, refill_per_second: 6.0, ..Bucket::default() };
            let parts: Vec<Bucket> =
                (0..gateways).filter_map(|rank| GatewayShare { gateways, rank }.of(&bucket)).collect();
            assert_eq!(parts.iter().map(|part| part.capacity).sum::<u64>(), capacity);
            let refill: f64 = parts.iter().map(|part| part.refill_per_second).sum();
            assert!((refill - 6.0).abs() < 1e-9, "{capacity} over {gateways}: {refill}");
            assert!(parts.iter().all(|part| part.capacity > 0));
        }
    }
}
