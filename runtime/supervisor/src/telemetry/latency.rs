//! Durations of calls: a histogram of fixed size.
//!
//! Keeps true: its size is constant, and its counts never decrease.

use std::time::Duration;

use prost_types::Value;

use crate::ppp::{fields, number};

/// Upper bounds of the buckets in milliseconds; one more bucket counts slower calls.
pub const BOUNDS_MS: [u64; 12] = [1, 2, 5, 10, 25, 50, 100, 250, 500, 2_500, 10_000, 60_000];
const BUCKETS: usize = BOUNDS_MS.len() + 1;

/// Calls by duration, from the moment they had a worker to their end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    /// Calls per bucket: longer than the previous bound, at most as long as their own.
    counts: [u64; BUCKETS],
    sum: Duration,
}

impl Latency {
    pub fn observe(&mut self, took: Duration) {
        let bucket = BOUNDS_MS.partition_point(|bound| Duration::from_millis(*bound) < took);
        if let Some(count) = self.counts.get_mut(bucket) {
            *count += 1;
        }
        self.sum = self.sum.saturating_add(took);
    }

    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns `{bounds_ms, counts, sum_ms}`: `counts` has one element more than `bounds_ms`.
    pub fn value(&self) -> Value {
        let histogram = fields([
            ("bounds_ms", BOUNDS_MS.map(number).to_vec().into()),
            ("counts", self.counts.map(number).to_vec().into()),
            ("sum_ms", number(self.sum.as_millis())),
        ]);
        Value::from(histogram.fields)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_counts_in_the_first_bucket_it_fits() {
        let mut latency = Latency::default();
        for micros in [0, 1_000, 1_001, 60_000_000, 60_000_001] {
            latency.observe(Duration::from_micros(micros));
        }
        assert_eq!(latency.counts, [2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1]);
        assert_eq!((latency.count(), latency.sum.as_micros()), (5, 120_002_002));
    }
}
