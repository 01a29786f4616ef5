//! The pool's look at its workers without calls: do they do nothing?

use std::sync::Arc;

use tokio::time::sleep;

use super::Pool;
use crate::cause::Cause;
use crate::worker::Worker;
use crate::worker::leftovers::{Idle, Verdict, WINDOW};

impl Pool {
    /// Looks whether the workers without calls do nothing, and ends those in which a call left something.
    /// Called now and then, so that it costs no call anything.
    pub fn prove_idle(self: &Arc<Self>) {
        let open: Vec<(Arc<Worker>, Idle)> = {
            let inner = self.inner.lock();
            let open = inner.scheduler.to_prove().into_iter();
            open.filter_map(|(worker, idle)| Some((Arc::clone(inner.workers.get(&worker)?), idle))).collect()
        };
        for (worker, idle) in open {
            // Reads files of the kernel, so without the lock.
            match worker.look(idle) {
                Verdict::Unclear => continue,
                Verdict::Quiet => self.inner.lock().scheduler.proven(worker.number, idle),
                Verdict::Leftovers(what) => {
                    if self.inner.lock().scheduler.condemn(worker.number, idle) {
                        worker.session.kill(Cause::Leftovers(what));
                    }
                }
            }
            self.pump();
        }
    }

    /// Proves the workers that take no calls until they are proven, as soon as it can be told.
    pub(super) async fn prove_held_back(self: Arc<Self>) {
        loop {
            self.prove_idle();
            {
                let mut inner = self.inner.lock();
                if !inner.scheduler.is_held_back() {
                    inner.proving = false;
                    return;
                }
            }
            sleep(WINDOW).await;
        }
    }
}
