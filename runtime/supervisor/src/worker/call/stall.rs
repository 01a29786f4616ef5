//! When a worker was not listened to, because a gateway did not read one of its calls.
//!
//! Keeps true: nothing that the worker said meanwhile came through, so nobody takes that time for silence or for a
//! cancel that it ignores. A stall is given up when a call beside it has waited for its end long enough.

use std::future::pending;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// How long a stall is borne while a neighbour waits for its end: far below its grace, far above what a gateway that
/// reads needs for what is queued.
const MOMENT: Duration = Duration::from_millis(100);

/// The stalls of one worker's stream: one at a time, as its messages are taken one after another.
#[derive(Debug, Default)]
pub struct Stall {
    times: Mutex<Times>,
    given_up: Notify,
}

#[derive(Debug, Default)]
struct Times {
    /// The present stall.
    since: Option<Instant>,
    /// The end of the last one.
    last: Option<Instant>,
    /// All before the present one.
    total: Duration,
    /// Until then no stall is borne for more than a moment.
    given_up_until: Option<Instant>,
}

impl Stall {
    /// The last moment of which the worker's silence says nothing.
    pub(super) fn last(&self) -> Option<Instant> {
        let times = self.times.lock();
        if times.since.is_some() { Some(Instant::now()) } else { times.last }
    }

    /// How long the worker was not listened to, over its life.
    pub fn total(&self) -> Duration {
        let times = self.times.lock();
        times.total + times.since.map(|since| since.elapsed()).unwrap_or_default()
    }

    /// Gives up the calls that hold up the stream, now and until `end`: another has waited for its own end too long.
    pub fn give_up_until(&self, end: Instant) {
        self.times.lock().given_up_until = Some(end);
        self.given_up.notify_waiters();
    }

    fn is_given_up(&self) -> bool {
        self.times.lock().given_up_until.is_some_and(|end| Instant::now() < end)
    }
}

/// Notes a stall as long as this is held.
#[derive(Debug)]
pub struct Stalled<'a> {
    /// `None`: what is held up is not the worker's stream.
    stall: Option<&'a Stall>,
    since: Instant,
}

impl<'a> Stalled<'a> {
    pub fn on(stall: Option<&'a Stall>) -> Stalled<'a> {
        let since = Instant::now();
        if let Some(stall) = stall {
            stall.times.lock().since = Some(since);
        }
        Stalled { stall, since }
    }

    /// Ends when the stall is borne no longer.
    pub async fn given_up(&self) {
        let Some(stall) = self.stall else { return pending().await };
        loop {
            let given_up = stall.given_up.notified();
            if stall.is_given_up() {
                return sleep_until(self.since + MOMENT).await;
            }
            given_up.await;
        }
    }
}

impl Drop for Stalled<'_> {
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
