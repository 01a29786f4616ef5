//! How long a worker has for the end of a call that was told to end.
//!
//! Keeps true: only time counts in which the worker could be heard. While a call beside holds up the worker's stream
//! the grace is stretched, by `PATIENCE` at most; then that call is given up, and the worker has `GRACE` once more. No
//! behaviour of a worker or a gateway stretches it further.

use std::time::Duration;

use tokio::time::Instant;

use crate::worker::call::{GRACE, PATIENCE, Stall};

/// Least time after a stretch: what the worker said during the stall is read then, in order.
const CATCH_UP: Duration = Duration::from_millis(100);

/// The time that is left for a call's end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grace {
    /// What it comes to without a stall.
    length: Duration,
    /// When the call was told to end.
    began: Instant,
    /// How long the worker's stream had been held up by then.
    stalled_before: Duration,
    end: Instant,
    /// The calls that held up the stream were given up.
    last: bool,
}

impl Grace {
    /// From now on.
    pub(super) fn of(length: Duration, stall: &Stall) -> Grace {
        let began = Instant::now();
        Grace { length, began, stalled_before: stall.total(), end: began + length, last: false }
    }

    /// When it is to be judged whether the worker has had its time.
    pub(super) fn end(&self) -> Instant {
        self.end
    }

    /// Stretches the grace by what the worker could not be heard of it. `false`: the worker has had its time.
    pub(super) fn stretch(&mut self, stall: &Stall) -> bool {
        let now = Instant::now();
        let unheard = stall.total().saturating_sub(self.stalled_before);
        let due = self.began + self.length + unheard.min(PATIENCE);
        if self.last || due <= now && unheard < PATIENCE {
            return false;
        }
        if unheard < PATIENCE {
            self.end = due.max(now + CATCH_UP);
        } else {
            self.last = true;
            self.end = now + GRACE;
            stall.give_up_until(self.end);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{advance, sleep_until};

    use super::*;
    use crate::worker::call::Stalled;

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
        drop(Stalled::on(Some(&stall)));
        let before = Stalled::on(Some(&stall));
        advance(5 * SECOND).await;
        drop(before);
        assert_eq!(judged(Grace::of(GRACE, &stall), &stall).await, GRACE);
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_in_which_it_could_not_be_heard_does_not_count() {
        let stall = Stall::default();
        let grace = Grace::of(GRACE, &stall);
        advance(SECOND).await;
        let held = Stalled::on(Some(&stall));
        let ends = async {
            sleep_until(Instant::now() + 7 * SECOND).await;
            drop(held);
        };
        let (took, ()) = tokio::join!(judged(grace, &stall), ends);
        let short = took.checked_sub(7 * SECOND + GRACE - SECOND).unwrap();
        assert!(short <= CATCH_UP, "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_stall_without_end_is_given_up_and_then_the_worker_has_its_grace_once_more() {
        let stall = Stall::default();
        let held = Stalled::on(Some(&stall));
        let began = Instant::now();
        let given_up = async {
            held.given_up().await;
            drop(held);
            began.elapsed()
        };
        let (took, given_up) = tokio::join!(judged(Grace::of(GRACE, &stall), &stall), given_up);
        assert!(given_up >= PATIENCE && given_up <= PATIENCE + GRACE + CATCH_UP, "{given_up:?}");
        assert_eq!(took, given_up + GRACE);
    }

    #[tokio::test(start_paused = true)]
    async fn stalls_one_after_another_stretch_it_no_further() {
        let stall = Stall::default();
        let stalls = async {
            loop {
                let held = Stalled::on(Some(&stall));
                tokio::select! {
                    () = held.given_up() => {}
                    () = tokio::time::sleep(SECOND) => {}
                }
            }
        };
        let took = tokio::select! {
            took = judged(Grace::of(GRACE, &stall), &stall) => took,
            () = stalls => Duration::MAX,
        };
        assert!(took <= PATIENCE + 2 * GRACE + CATCH_UP, "{took:?}");
    }
}
