//! Rate limit of a user's messages that are not requests: answers to questions, cancels, and changes of roots.
//!
//! Each may cost a lookup in the session directory and a message to every gateway that has the session, and no limit on
//! calls counts it. Keeps true: one bucket for each user, over all clients and sessions; messages of one request are
//! charged together or not at all. The table is bounded; an evicted user starts with a full bucket.

use std::time::Duration;

use asp_call::quota_table::{Owner, Quota, QuotaTable, Quotas};
use parking_lot::Mutex;
use tokio::time::Instant;

/// Messages of a burst: many more than the questions and requests that one user has open at a time.
const BURST: f64 = 1_000.0;
/// Refill of a bucket, in messages per second.
const REFILL: f64 = 100.0;
/// Time after which an unused bucket is full.
const FULL_AFTER: Duration = Duration::from_secs(10);
/// Limits of buckets: in all, of one org and of one user.
const BOUNDS: Quotas = Quotas { whole: Quota::of(100_000), of_org: Quota::of(25_000), of_user: Quota::of(1) };

/// The buckets of one gateway's users.
pub(super) struct MessageLimit {
    levels: Mutex<QuotaTable<Level>>,
}

struct Level {
    tokens: f64,
    at: Instant,
}

/// Error: a user sends more messages than the limit allows.
#[derive(Debug, PartialEq, Eq)]
pub struct TooManyMessages {
    /// Time until the same number of messages fits, in milliseconds; at least 1.
    pub retry_after_ms: u64,
}

impl Default for MessageLimit {
    fn default() -> MessageLimit {
        MessageLimit { levels: Mutex::new(QuotaTable::new(BOUNDS)) }
    }
}

impl MessageLimit {
    /// Takes `messages` from the user's bucket, all or none. More than a burst never fit.
    pub(super) fn take(&self, owner: Owner, messages: usize) -> Result<(), TooManyMessages> {
        if messages == 0 {
            return Ok(());
        }
        let now = Instant::now();
        let mut levels = self.levels.lock();
        let tokens = levels.get(&owner.user).map_or(BURST, |level| level.tokens_at(now));
        let left = tokens - messages as f64;
        if left < 0.0 {
            let wait_ms = (-left * 1000.0 / REFILL).ceil() as u64;
            return Err(TooManyMessages { retry_after_ms: wait_ms.max(1) });
        }
        levels.replace(owner.user, owner, Level { tokens: left, at: now });
        Ok(())
    }

    /// Forgets full buckets.
    pub(super) fn sweep(&self) {
        self.levels.lock().forget_idle(FULL_AFTER);
    }
}

impl Level {
    fn tokens_at(&self, now: Instant) -> f64 {
        let back = now.saturating_duration_since(self.at).as_secs_f64() * REFILL;
        (self.tokens + back).min(BURST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(user: u8) -> Owner {
        Owner { user: [user; 16], org: [255; 16] }
    }

    #[tokio::test(start_paused = true)]
    async fn a_user_has_a_burst_and_then_what_comes_back() {
        let limit = MessageLimit::default();
        assert_eq!(limit.take(owner(1), 999), Ok(()));
        assert_eq!(limit.take(owner(1), 1), Ok(()));
        assert_eq!(limit.take(owner(1), 1), Err(TooManyMessages { retry_after_ms: 10 }));
        assert_eq!(limit.take(owner(2), 50), Ok(()), "another user has a bucket of their own");
        tokio::time::advance(Duration::from_millis(500)).await;
        assert_eq!(limit.take(owner(1), 50), Ok(()));
        assert!(limit.take(owner(1), 1).is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn messages_that_came_together_are_taken_together_or_not_at_all() {
        let limit = MessageLimit::default();
        assert_eq!(limit.take(owner(1), 980), Ok(()));
        assert_eq!(limit.take(owner(1), 50), Err(TooManyMessages { retry_after_ms: 300 }));
        assert_eq!(limit.take(owner(1), 20), Ok(()), "the refused ones took nothing");
    }

    /// Invariant I-4: the table of buckets.
    #[tokio::test(start_paused = true)]
    async fn only_full_buckets_are_forgotten() {
        let limit = MessageLimit::default();
        assert_eq!(limit.take(owner(1), 1_000), Ok(()));
        tokio::time::advance(FULL_AFTER - Duration::from_secs(1)).await;
        limit.sweep();
        assert!(limit.take(owner(1), 1_000).is_err());
        tokio::time::advance(Duration::from_secs(1)).await;
        limit.sweep();
        assert!(limit.levels.lock().is_empty());
        assert_eq!(limit.take(owner(1), 1_000), Ok(()));
    }
}
