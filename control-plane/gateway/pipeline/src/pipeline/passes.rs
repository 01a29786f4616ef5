//! Passes over everything that a snapshot may end: one at a time, however fast snapshots come.
//!
//! Keeps true: every request is followed by a whole pass; requests during a pass share one more pass.

use std::sync::Arc;

use parking_lot::Mutex;

/// The passes over one table.
#[derive(Default)]
pub(crate) struct Passes {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    is_running: bool,
    /// Whether a pass was requested since the last one started.
    is_due: bool,
}

/// The right to make passes, which one task has at a time. If it is dropped before it has ended, as by a panic, the
/// next request gets it.
pub(crate) struct Pass {
    state: Arc<Mutex<State>>,
    has_ended: bool,
}

impl Passes {
    /// Requests a pass; `None` if another task makes passes, which includes this one.
    pub(crate) fn request(&self) -> Option<Pass> {
        let mut state = self.state.lock();
        state.is_due = true;
        if std::mem::replace(&mut state.is_running, true) {
            return None;
        }
        Some(Pass { state: self.state.clone(), has_ended: false })
    }
}

impl Pass {
    /// Starts the next pass; false if none was requested since the last one started, which ends the right.
    pub(crate) fn begin(&mut self) -> bool {
        let mut state = self.state.lock();
        let is_due = std::mem::take(&mut state.is_due);
        state.is_running = is_due;
        self.has_ended = !is_due;
        is_due
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        if !self.has_ended {
            self.state.lock().is_running = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_while_a_pass_is_under_way_are_one_more_pass() {
        let passes = Passes::default();
        let mut pass = passes.request().unwrap();
        assert!(passes.request().is_none(), "before it begins");
        assert!(pass.begin());
        for _ in 0..10 {
            assert!(passes.request().is_none());
        }
        assert!(pass.begin(), "for those");
        assert!(!pass.begin());
    }

    #[test]
    fn a_request_after_the_last_pass_has_a_task_of_its_own() {
        let passes = Passes::default();
        let mut first = passes.request().unwrap();
        assert!(first.begin() && !first.begin());
        let mut second = passes.request().unwrap();
        drop(first);
        assert!(passes.request().is_none(), "the end of the first one is not that of the second");
        assert!(second.begin());
    }

    #[test]
    fn a_pass_that_broke_off_keeps_none_from_being_made() {
        let passes = Passes::default();
        let mut pass = passes.request().unwrap();
        assert!(pass.begin());
        drop(pass);
        assert!(passes.request().is_some_and(|mut pass| pass.begin()));
    }
}
