//! Times at which deliveries that this gateway tried are due again.
//!
//! Keeps true: they are bounded (I-4); a delivery beyond the bound waits for the next look at the store.

use std::collections::BTreeSet;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// Maximum number of times that are known at once.
const MAX_TIMES: usize = 1_024;

#[derive(Default)]
pub(super) struct RetryTimes {
    times: Mutex<BTreeSet<Instant>>,
    added: Notify,
}

impl RetryTimes {
    pub(super) fn add(&self, time: Instant) {
        let mut times = self.times.lock();
        if times.len() < MAX_TIMES {
            times.insert(time);
            drop(times);
            self.added.notify_one();
        }
    }

    /// Waits for the first of the times, and removes those that have passed.
    pub(super) async fn wait(&self) {
        loop {
            let first = self.times.lock().first().copied();
            let Some(first) = first else {
                self.added.notified().await;
                continue;
            };
            tokio::select! {
                () = sleep_until(first) => break,
                () = self.added.notified() => {}
            }
        }
        let now = Instant::now();
        self.times.lock().retain(|time| *time > now);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_first_time_ends_the_wait_whenever_it_is_added() {
        let times = RetryTimes::default();
        let began = Instant::now();
        let seconds = |seconds| began + Duration::from_secs(seconds);
        times.add(seconds(9));
        let adding = async {
            sleep_until(seconds(1)).await;
            times.add(seconds(3));
            times.add(seconds(2));
        };
        tokio::join!(times.wait(), adding);
        let mut ends = vec![began.elapsed().as_secs()];
        for _ in 0..2 {
            times.wait().await;
            ends.push(began.elapsed().as_secs());
        }
        assert_eq!(ends, [2, 3, 9]);
        for number in 0..2_000 {
            times.add(began + Duration::from_millis(number));
        }
        assert_eq!(times.times.lock().len(), MAX_TIMES);
        times.wait().await;
        assert!(times.times.lock().is_empty(), "what has passed is not waited for");
    }
}
