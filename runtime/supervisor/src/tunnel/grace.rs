//! Grace period of a worker for a call that was cancelled.
//!
//! Keeps true: only time in which the worker's messages could be read counts. While another call blocks the worker's
//! stream, the grace is extended by `MAX_STALL` at most; then that call is given up, and the worker has `WORKER_STOPS_WITHIN`
//! once more. Nothing that a worker or a gateway does extends it further.

use std::time::Duration;

use asp_proto::grace::{MAX_STALL, WORKER_STOPS_WITHIN};
use tokio::time::Instant;

use crate::worker::call::Stall;

/// Minimum grace after an extension, so that messages that the worker sent during the stall are read first, in order.
const CATCH_UP: Duration = Duration::from_millis(100);

/// The remaining time for a call's end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grace {
    /// Length of the grace without a stall.
    length: Duration,
    /// Time of the cancellation.
    began: Instant,
    /// Total duration of the worker's stalls at that time.
    stalled_before: Duration,
    end: Instant,
    /// Whether the calls that blocked the stream were given up.
    last: bool,
}

impl Grace {
    /// Creates a grace that starts now.
    pub(super) fn of(length: Duration, stall: &Stall) -> Grace {
        let began = Instant::now();
        Grace { length, began, stalled_before: stall.total(), end: began + length, last: false }
    }

    /// Time at which [`Grace::stretch`] decides whether the grace is over.
    pub(super) fn end(&self) -> Instant {
        self.end
    }

    /// Extends the grace by the time in which the worker could not be read. Returns false if the grace is over.
    pub(super) fn stretch(&mut self, stall: &Stall) -> bool {
        let now = Instant::now();
        let unheard = stall.total().saturating_sub(self.stalled_before);
        let due = self.began + self.length + unheard.min(MAX_STALL);
        if self.last || due <= now && unheard < MAX_STALL {
            return false;
        }
        if unheard < MAX_STALL {
            self.end = due.max(now + CATCH_UP);
        } else {
            self.last = true;
            self.end = now + WORKER_STOPS_WITHIN;
            stall.give_up_until(self.end);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{advance, sleep_until};

    use super::*;
    use crate::worker::call::StallGuard;

    const SECOND: Duration = Duration::from_secs(1);

    /// Waits as a tunnel does, and returns how long the worker had.
    async fn judged(mut grace: Grace, stall: &Stall) -> Duration {
        let began = Instant::now();
        loop {
            sleep_until(grace.end()).await;
            if !grace.stretch(stall) {
                return began.elapsed();
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_worker_that_can_be_heard_has_its_grace_and_no_more() {
        let stall = Stall::default();
        drop(StallGuard::on(Some(&stall)));
        let before = StallGuard::on(Some(&stall));
        advance(5 * SECOND).await;
        drop(before);
        assert_eq!(judged(Grace::of(WORKER_STOPS_WITHIN, &stall), &stall).await, WORKER_STOPS_WITHIN);
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_in_which_it_could_not_be_heard_does_not_count() {
        let stall = Stall::default();
        let grace = Grace::of(WORKER_STOPS_WITHIN, &stall);
        advance(SECOND).await;
        let held = StallGuard::on(Some(&stall));
        let ends = async {
            sleep_until(Instant::now() + 7 * SECOND).await;
            drop(held);
        };
        let (took, ()) = tokio::join!(judged(grace, &stall), ends);
        let short = took.checked_sub(7 * SECOND + WORKER_STOPS_WITHIN - SECOND).unwrap();
        assert!(short <= CATCH_UP, "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_stall_without_end_is_given_up_and_then_the_worker_has_its_grace_once_more() {
        let stall = Stall::default();
        let held = StallGuard::on(Some(&stall));
        let began = Instant::now();
        let given_up = async {
            held.wait_until_given_up().await;
            drop(held);
            began.elapsed()
        };
        let (took, given_up) = tokio::join!(judged(Grace::of(WORKER_STOPS_WITHIN, &stall), &stall), given_up);
        assert!(
            given_up >= MAX_STALL && given_up <= MAX_STALL + WORKER_STOPS_WITHIN + CATCH_UP,
            "{given_up:?}"
        );
        assert_eq!(took, given_up + WORKER_STOPS_WITHIN);
    }

    #[tokio::test(start_paused = true)]
    async fn stalls_one_after_another_stretch_it_no_further() {
        let stall = Stall::default();
        let stalls = async {
            loop {
                let held = StallGuard::on(Some(&stall));
                tokio::select! {
                    () = held.wait_until_given_up() => {}
                    () = tokio::time::sleep(SECOND) => {}
                }
            }
        };
        let took = tokio::select! {
            took = judged(Grace::of(WORKER_STOPS_WITHIN, &stall), &stall) => took,
            () = stalls => Duration::MAX,
        };
        assert!(took <= MAX_STALL + 2 * WORKER_STOPS_WITHIN + CATCH_UP, "{took:?}");
    }
}
