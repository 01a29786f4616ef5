//! The guard of one attempt to run a call, by which a call is run at most once.
//!
//! Owns: the mark of a call that may have had an effect. A call that is lost with it ends as unknown unless a repetition is
//! harmless; without it the call may be made again. Keeps true: the mark is set before anything leaves; a guard that is
//! dropped before that takes it back; after that only proof of non-delivery does, and never the mark of an earlier attempt.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::call::Call;

/// The mark of a call.
#[derive(Debug, Default)]
pub(super) struct DeliveryMark(AtomicBool);

impl DeliveryMark {
    pub(super) fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    fn set(&self, marked: bool) {
        self.0.store(marked, Ordering::Release);
    }
}

/// The guard of one attempt to run a call. The call is marked while this exists.
#[derive(Debug)]
pub struct StartGuard {
    mark: Arc<DeliveryMark>,
    /// Whether the call was marked before: an earlier attempt, or another gateway, may have begun it.
    was_marked: bool,
    /// Whether dropping the guard takes the mark back.
    is_unsent: bool,
}

impl StartGuard {
    /// Marks the call; dropping the guard takes that back until it is [`StartGuard::mark_sent`].
    pub fn of(call: &Call) -> StartGuard {
        StartGuard::on(&call.handed_over)
    }

    fn on(mark: &Arc<DeliveryMark>) -> StartGuard {
        let was_marked = mark.is_set();
        mark.set(true);
        StartGuard { mark: Arc::clone(mark), was_marked, is_unsent: true }
    }

    /// Keeps the mark: the request is about to be sent and may arrive, even if the wait for its answer is dropped.
    pub fn mark_sent(&mut self) {
        self.is_unsent = false;
        self.mark.set(true);
    }

    /// Removes the mark: the request certainly did not arrive, or was dropped unread. It may be sent again.
    pub fn undelivered(&mut self) {
        self.is_unsent = false;
        self.mark.set(self.was_marked);
    }
}

impl Drop for StartGuard {
    fn drop(&mut self) {
        if self.is_unsent {
            self.undelivered();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guard_that_is_dropped_unsent_takes_the_mark_back() {
        let mark = Arc::default();
        let started = StartGuard::on(&mark);
        assert!(mark.is_set());
        drop(started);
        assert!(!mark.is_set());
    }

    #[test]
    fn what_was_sent_stays_marked_until_it_certainly_did_not_arrive() {
        let mark = Arc::default();
        let mut started = StartGuard::on(&mark);
        started.mark_sent();
        started.undelivered();
        assert!(!mark.is_set());
        started.mark_sent();
        assert!(mark.is_set());
        drop(started);
        assert!(mark.is_set(), "it may have arrived");
    }

    #[test]
    fn no_attempt_takes_back_the_mark_of_an_earlier_one() {
        let mark = Arc::default();
        StartGuard::on(&mark).mark_sent();
        drop(StartGuard::on(&mark));
        assert!(mark.is_set());
        let mut again = StartGuard::on(&mark);
        again.mark_sent();
        again.undelivered();
        assert!(mark.is_set());
    }

    #[test]
    fn a_guard_that_has_taken_its_mark_back_does_so_once() {
        let mark = Arc::default();
        let mut first = StartGuard::on(&mark);
        first.mark_sent();
        first.undelivered();
        StartGuard::on(&mark).mark_sent();
        drop(first);
        assert!(mark.is_set(), "the next attempt was sent");
    }
}
