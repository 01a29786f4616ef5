//! Times in which a worker's stream was not read, because a gateway did not read one of its calls.
//!
//! Keeps true: messages that the worker sent during a stall were not received, so that time counts neither as silence
//! nor as an ignored cancel. A stall is given up when another call has waited for its end long enough.

use std::future::pending;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::ppp::outbox::wait_until;

/// Longest stall while another call waits for its end: far shorter than that call's grace, far longer than a gateway
/// that reads needs for its queue.
const MOMENT: Duration = Duration::from_millis(100);

/// The stalls of one worker's stream. There is one at a time, because its messages are handled one after another.
#[derive(Debug, Default)]
pub struct Stall {
    times: Mutex<Times>,
    given_up: Notify,
}

#[derive(Debug, Default)]
struct Times {
    /// Start of the current stall.
    since: Option<Instant>,
    /// End of the last stall.
    last: Option<Instant>,
    /// Duration of all stalls before the current one.
    total: Duration,
    /// Time until which a stall lasts no longer than `MOMENT`.
    given_up_until: Option<Instant>,
}

impl Stall {
    /// Returns the last moment at which the worker's silence means nothing.
    pub(super) fn last(&self) -> Option<Instant> {
        let times = self.times.lock();
        if times.since.is_some() { Some(Instant::now()) } else { times.last }
    }

    /// Returns the total duration of the stalls over the worker's life.
    pub fn total(&self) -> Duration {
        let times = self.times.lock();
        times.total + times.since.map(|since| since.elapsed()).unwrap_or_default()
    }

    /// Gives up the calls that block the stream, now and until `end`, because another call has waited for its own end
    /// too long.
    pub fn give_up_until(&self, end: Instant) {
        self.times.lock().given_up_until = Some(end);
        self.given_up.notify_waiters();
    }

    fn is_given_up(&self) -> bool {
        self.times.lock().given_up_until.is_some_and(|end| Instant::now() < end)
    }
}

/// Records a stall as long as it is held.
#[derive(Debug)]
pub struct StallGuard<'a> {
    /// `None`: the blocked stream is not the worker's session stream.
    stall: Option<&'a Stall>,
    since: Instant,
}

impl<'a> StallGuard<'a> {
    pub fn on(stall: Option<&'a Stall>) -> StallGuard<'a> {
        let since = Instant::now();
        if let Some(stall) = stall {
            stall.times.lock().since = Some(since);
        }
        StallGuard { stall, since }
    }

    /// Waits until the stall must be given up.
    pub async fn wait_until_given_up(&self) {
        let Some(stall) = self.stall else { return pending().await };
        wait_until(&stall.given_up, || stall.is_given_up()).await;
        sleep_until(self.since + MOMENT).await;
    }
}

impl Drop for StallGuard<'_> {
    fn drop(&mut self) {
        if let Some(stall) = self.stall {
            let now = Instant::now();
            let mut times = stall.times.lock();
            times.since = None;
            times.total += now - self.since;
            times.last = Some(now);
        }
    }
}
