//! A call's lease of a worker, from the queue to its end.
//!
//! Keeps true: a ticket releases its slot once, by [`Ticket::release`] or when it is dropped.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use asp_platform::breaker::Outcome;
use tokio::sync::watch;
use tokio::time::Instant;

use super::{Pool, TicketState, WorkerRequest};
use crate::pool::scheduler::{FinishedCall, TicketId};
use crate::refusal::Refusal;

/// A call's position in the queue, then its slot in a worker. Dropping it releases the slot.
#[derive(Debug)]
pub struct Ticket {
    pub(super) pool: Arc<Pool>,
    pub(super) id: TicketId,
    pub(super) tenant: String,
    pub(super) fresh: bool,
    pub(super) subscription: bool,
    pub(super) state: watch::Receiver<TicketState>,
    pub(super) released: bool,
}

impl Ticket {
    pub fn state(&self) -> TicketState {
        self.state.borrow().clone()
    }

    /// Waits for the next state after the last one seen.
    pub async fn wait_for_change(&mut self) -> TicketState {
        // Err: the state was final; no other follows.
        if self.state.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
        self.state.borrow_and_update().clone()
    }

    /// Releases the slot.
    pub fn release(mut self, outcome: Outcome, took: Duration) {
        self.give_back(outcome, took);
    }

    fn give_back(&mut self, outcome: Outcome, took: Duration) {
        if std::mem::replace(&mut self.released, true) {
            return;
        }
        let now = Instant::now();
        let mut check = false;
        {
            let mut inner = self.pool.inner.lock();
            inner.tickets.remove(&self.id);
            let state = self.state.borrow().clone();
            match state {
                TicketState::Assigned(worker) => {
                    // A call that never began has no duration, and the duration of a subscription is not a call's.
                    if took > Duration::ZERO && !self.subscription {
                        worker.observed.call(took);
                        self.pool.totals.lock().latency.observe(took);
                    }
                    let stopped = worker.stopped.swap(false, Ordering::Relaxed);
                    let subscription = self.subscription;
                    let spent = FinishedCall { ticket: self.id, took, outcome, stopped, subscription };
                    inner.scheduler.release(worker.number, &self.tenant, spent, now);
                    check = !inner.checking && inner.scheduler.is_held_back();
                    inner.checking |= check;
                }
                TicketState::Waiting(_) => {
                    inner.scheduler.cancel(self.id, now);
                }
                TicketState::Refused(_) => {}
            }
        }
        if check {
            self.pool.tasks.spawn(Arc::clone(&self.pool).check_held_back());
        }
        self.pool.pump();
    }

    /// Requests a new ticket for the same call, whose worker died before it received it. Releases this one's slot.
    pub fn request_again(self, deadline: Option<Instant>) -> Result<Ticket, Refusal> {
        let pool = Arc::clone(&self.pool);
        let Ticket { fresh, subscription, .. } = self;
        let wanted = WorkerRequest { tenant: self.tenant.clone(), fresh, deadline, subscription };
        drop(self);
        pool.admit(wanted)
    }

    /// Returns the tenant of the call.
    pub fn tenant(&self) -> &str {
        &self.tenant
    }

    /// Whether the ticket is for a subscription.
    pub fn is_subscription(&self) -> bool {
        self.subscription
    }

    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.give_back(Outcome::Abandoned, Duration::ZERO);
    }
}
