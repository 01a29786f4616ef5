//! Positions of waiting calls in a pool's queue, and how long they may still wait.

use std::time::Duration;

use super::{Scheduler, TicketId};

/// Position of a waiting call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueuePosition {
    /// Position in the queue, from 1.
    pub position: usize,
    pub depth: usize,
    pub eta: Duration,
    /// Whether a starting worker will take it.
    pub starting: bool,
}

impl Scheduler {
    /// Returns the positions of all waiting calls.
    pub fn positions(&self) -> Vec<(TicketId, QueuePosition)> {
        let queue_position = self.position_at();
        self.queue.positions().map(|(waiting, position)| (waiting.ticket, queue_position(position))).collect()
    }

    /// Returns the position of one waiting call of `tenant`; `None` if it no longer waits.
    pub fn position(&self, tenant: &str, ticket: TicketId) -> Option<QueuePosition> {
        let position = self.queue.position(tenant, |waiting| waiting.ticket == ticket)?;
        Some(self.position_at()(position))
    }

    /// Returns the conversion of a position in the queue.
    fn position_at(&self) -> impl Fn(usize) -> QueuePosition {
        let depth = self.queue.len();
        let per_worker = if self.policy.ephemeral { 1 } else { self.policy.concurrency };
        let coming = self.starting() * per_worker;
        let slots = (self.policy.max * per_worker).max(1);
        let mean_call = self.mean_call;
        move |position| {
            let rounds = position.div_ceil(slots);
            #[expect(clippy::cast_precision_loss, reason = "a queue's length is far below 2^52")]
            let eta = Duration::from_secs_f64(mean_call * rounds as f64 / 1000.0);
            QueuePosition { position, depth, eta, starting: position <= coming }
        }
    }
}
