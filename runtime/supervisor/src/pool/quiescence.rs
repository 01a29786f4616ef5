//! The pool's quiescence check: whether its workers without calls are really idle.

use std::sync::Arc;

use tokio::time::sleep;

use super::Pool;
use crate::cause::Cause;
use crate::worker::Worker;
use crate::worker::residual_work::{Idle, Quiescence, WINDOW};

impl Pool {
    /// Checks the workers without calls, and stops those with residual work of a call. Called periodically, so that it
    /// costs no call anything.
    pub fn check_quiescence(self: &Arc<Self>) {
        let open: Vec<(Arc<Worker>, Idle)> = {
            let inner = self.inner.lock();
            let open = inner.scheduler.unchecked_workers().into_iter();
            open.filter_map(|(worker, idle)| Some((Arc::clone(inner.workers.get(&worker)?), idle))).collect()
        };
        for (worker, idle) in open {
            // Reads kernel files, so the lock is not held.
            match worker.check_quiescence(idle) {
                Quiescence::Unclear => continue,
                Quiescence::Quiet => self.inner.lock().scheduler.mark_quiescent(worker.number, idle),
                Quiescence::ResidualWork(what) => {
                    if self.inner.lock().scheduler.condemn(worker.number, idle) {
                        worker.session.kill(Cause::ResidualWork(what));
                    }
                }
            }
            self.pump();
        }
    }

    /// Checks the workers that take no calls until they are found quiescent, as early as possible.
    pub(super) async fn check_held_back(self: Arc<Self>) {
        loop {
            self.check_quiescence();
            {
                let mut inner = self.inner.lock();
                if !inner.scheduler.is_held_back() {
                    inner.checking = false;
                    return;
                }
            }
            // Periodic samples may have been taken just after the last check.
            sleep(WINDOW / 2).await;
        }
    }
}
