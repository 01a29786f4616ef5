//! Age of the published state: time since the store was known to have nothing newer.
//!
//! Keeps true: a control plane whose age reaches [`STALE`] reports it in its health check and ends its streams to
//! Envoys, so that these look for another one; to a subscriber that has no other control plane it keeps serving.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};

/// Age at which subscribers leave for a fresher control plane.
pub const STALE: Duration = Duration::from_secs(3);
/// Additional lifetime of an Envoy's stream. Within it Envoy's health check, once a second, has failed, so that its
/// next stream goes elsewhere.
const ENVOY_GRACE: Duration = Duration::from_millis(1_500);
/// Lifetime of an Envoy's stream that opens while this control plane is stale: its age at that time, within these
/// bounds. Each new stream is sent everything again.
const ENVOY_RETRY: std::ops::RangeInclusive<Duration> = Duration::from_secs(5)..=Duration::from_secs(60);

/// Time at which the store was last known to have nothing newer than what is published. Clones share it.
#[derive(Clone, Debug)]
pub struct Freshness {
    read: Arc<Mutex<Instant>>,
}

impl Default for Freshness {
    fn default() -> Freshness {
        Freshness { read: Arc::new(Mutex::new(Instant::now())) }
    }
}

impl Freshness {
    /// Records a successful read of the store that began at `began`.
    pub fn renew(&self, began: Instant) {
        let mut read = self.read.lock();
        *read = began.max(*read);
    }

    pub fn age(&self) -> Duration {
        self.read.lock().elapsed()
    }

    pub fn is_stale(&self) -> bool {
        self.age() >= STALE
    }

    /// Waits until the age is [`STALE`].
    pub async fn until_stale(&self) {
        while !self.is_stale() {
            let due = *self.read.lock() + STALE;
            sleep_until(due).await;
        }
    }

    /// Waits until an Envoy whose stream opens now should look for another control plane.
    pub async fn until_envoys_leave(&self) {
        let opened = Instant::now();
        loop {
            let read = *self.read.lock();
            let due = match opened.saturating_duration_since(read) {
                age if age < STALE => read + STALE + ENVOY_GRACE,
                age => opened + age.clamp(*ENVOY_RETRY.start(), *ENVOY_RETRY.end()),
            };
            if Instant::now() >= due {
                return;
            }
            sleep_until(due).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_age_counts_from_the_begin_of_the_newest_read() {
        let freshness = Freshness::default();
        let early = Instant::now();
        tokio::time::advance(STALE - Duration::from_millis(1)).await;
        assert!(!freshness.is_stale());
        freshness.renew(Instant::now());
        freshness.renew(early);
        assert_eq!(freshness.age(), Duration::ZERO, "an older read makes it no older");
        let before = Instant::now();
        freshness.until_stale().await;
        assert!(freshness.is_stale() && before.elapsed() >= STALE);
    }

    #[tokio::test(start_paused = true)]
    async fn an_envoy_stays_while_the_store_is_read_and_leaves_once_its_health_check_has_failed() {
        let freshness = Freshness::default();
        let left = {
            let freshness = freshness.clone();
            tokio::spawn(async move { freshness.until_envoys_leave().await })
        };
        for _ in 0..30 {
            tokio::time::sleep(STALE / 2).await;
            freshness.renew(Instant::now());
        }
        assert!(!left.is_finished(), "it is read");
        let before = Instant::now();
        left.await.unwrap();
        assert!((STALE + ENVOY_GRACE..STALE * 2).contains(&before.elapsed()), "{:?}", before.elapsed());
        for bound in [*ENVOY_RETRY.start(), Duration::from_secs(9), Duration::from_secs(18)] {
            let again = Instant::now();
            freshness.until_envoys_leave().await;
            assert!(
                again.elapsed() >= bound,
                "where no other one is to be had, it tries less and less often"
            );
        }
    }
}
