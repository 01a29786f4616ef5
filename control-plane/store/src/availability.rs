//! Circuit breaker for a backend whose shards may fail one by one.
//!
//! Keeps true: nobody waits for a shard that is known to be unavailable, except one probe a second.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Interval of probes, and the longest time before a shard that is back is used again.
pub(crate) const PROBE_EVERY: Duration = Duration::from_secs(1);

/// Availability of a backend's shards; one that fails as a whole has a single shard.
#[derive(Default)]
pub(crate) struct Availability {
    /// Time of the next probe of each unavailable shard; at most as many as a Redis Cluster has slots (I-4).
    next_probes: Mutex<HashMap<u64, Instant>>,
}

/// Reason of a request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Attempt {
    /// The shard is available.
    Normal,
    /// The shard is unavailable; this request probes it.
    Probe,
}

impl Availability {
    /// Returns whether to send a request to a shard now, and why.
    pub(crate) fn attempt(&self, shard: u64) -> Option<Attempt> {
        let mut next_probes = self.next_probes.lock();
        match next_probes.get_mut(&shard) {
            None => Some(Attempt::Normal),
            Some(at) if *at > Instant::now() => None,
            Some(at) => {
                // Other requests do not wait for this probe.
                *at = Instant::now() + PROBE_EVERY;
                Some(Attempt::Probe)
            }
        }
    }

    /// Records an answer; returns whether it made the last unavailable shard available. An answer to a request from
    /// before the outage does not count.
    pub(crate) fn answered(&self, shard: u64, attempt: Attempt) -> bool {
        if attempt == Attempt::Normal {
            return false;
        }
        let mut next_probes = self.next_probes.lock();
        let was_unavailable = next_probes.remove(&shard).is_some();
        // A shard whose probe is overdue has no requests, so nobody would find out that it is back.
        next_probes.retain(|_, at| *at > Instant::now());
        was_unavailable && next_probes.is_empty()
    }

    /// Records a failure; returns whether all shards were available until now.
    pub(crate) fn failed(&self, shard: u64) -> bool {
        let mut next_probes = self.next_probes.lock();
        let were_available = next_probes.is_empty();
        next_probes.insert(shard, Instant::now() + PROBE_EVERY);
        were_available
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    /// Probes a shard and records the answer.
    fn is_last_back(availability: &Availability, shard: u64) -> bool {
        let attempt = availability.attempt(shard).unwrap();
        assert!(attempt == Attempt::Probe);
        availability.answered(shard, attempt)
    }

    #[tokio::test(start_paused = true)]
    async fn shards_fail_and_come_back_one_by_one() {
        let availability = Availability::default();
        assert!(availability.failed(1), "the first one");
        assert!(!availability.failed(2));
        assert!(availability.attempt(1).is_none() && availability.attempt(3).is_some());
        advance(PROBE_EVERY).await;
        assert!(availability.attempt(2).is_some_and(|attempt| attempt == Attempt::Probe));
        assert!(!is_last_back(&availability, 1), "the other one is still away");
        assert!(availability.attempt(1).is_some() && availability.attempt(2).is_none());
        advance(PROBE_EVERY).await;
        assert!(is_last_back(&availability, 2));
    }

    #[tokio::test(start_paused = true)]
    async fn a_shard_that_nobody_uses_keeps_no_outage_going() {
        let availability = Availability::default();
        availability.failed(1);
        advance(PROBE_EVERY).await;
        availability.failed(2);
        advance(PROBE_EVERY).await;
        assert!(is_last_back(&availability, 2));
        assert!(availability.failed(1), "the next outage");
    }
}
