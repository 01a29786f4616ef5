//! The queue of writes to one database.
//!
//! Keeps true: turns are given in order of arrival, so that no write of a queue waits much longer than the others;
//! revocations go before other writes; a write that waits too long, or finds too many ahead of it, fails as busy. A
//! write cancelled while waiting takes no turn.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::control::{Result, StoreError};

/// Timeout for a turn. Thirty writes of as much as an org may store complete within it.
const LONGEST: Duration = Duration::from_secs(20);
/// Maximum number of waiting writes of a rank: each holds its content in memory.
const MAX_WAITING: usize = 256;
/// Maximum number of consecutive turns of revocations while other writes wait; then one of those has its turn.
const IN_A_ROW: u32 = 8;

/// Priority of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rank {
    Revocation,
    Other,
}

pub(super) struct WriteQueue {
    state: Mutex<State>,
}

struct State {
    /// Free turns; while there are any, no write waits.
    free: usize,
    revocations: VecDeque<oneshot::Sender<WriteTurn>>,
    others: VecDeque<oneshot::Sender<WriteTurn>>,
    /// Turns given to revocations since the last one of another write.
    in_a_row: u32,
}

/// A turn that lasts until it is dropped.
pub(super) struct WriteTurn {
    /// `None`: the receiver was gone.
    queue: Option<Arc<WriteQueue>>,
}

impl WriteQueue {
    /// Creates a queue with the given number of concurrent turns.
    pub(super) fn new(turns: usize) -> Arc<WriteQueue> {
        let state = State { free: turns, revocations: VecDeque::new(), others: VecDeque::new(), in_a_row: 0 };
        Arc::new(WriteQueue { state: Mutex::new(state) })
    }

    /// Waits for a turn; fails with [`StoreError::Busy`] after the timeout.
    pub(super) async fn turn(self: &Arc<Self>, rank: Rank) -> Result<WriteTurn> {
        let comes = {
            let mut state = self.state.lock();
            if state.free > 0 {
                state.free -= 1;
                return Ok(WriteTurn { queue: Some(Arc::clone(self)) });
            }
            let waiting = state.of(rank);
            // Cancelled writes do not count.
            waiting.retain(|sender| !sender.is_closed());
            if waiting.len() >= MAX_WAITING {
                return Err(StoreError::Busy(format!("{MAX_WAITING} writes wait for their turn")));
            }
            let (sender, comes) = oneshot::channel();
            waiting.push_back(sender);
            comes
        };
        match timeout(LONGEST, comes).await {
            Ok(Ok(turn)) => Ok(turn),
            _ => Err(StoreError::Busy(format!("no turn to write within {} s", LONGEST.as_secs()))),
        }
    }

    /// Passes a finished turn to the next write that still waits.
    fn pass_on(self: &Arc<Self>) {
        loop {
            let mut state = self.state.lock();
            let Some(next) = state.next() else {
                state.free += 1;
                return;
            };
            drop(state);
            let Err(mut turn) = next.send(WriteTurn { queue: Some(Arc::clone(self)) }) else { return };
            // The write was cancelled.
            turn.queue = None;
        }
    }

    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        let state = self.state.lock();
        state.revocations.iter().chain(&state.others).filter(|sender| !sender.is_closed()).count()
    }
}

impl State {
    fn of(&mut self, rank: Rank) -> &mut VecDeque<oneshot::Sender<WriteTurn>> {
        match rank {
            Rank::Revocation => &mut self.revocations,
            Rank::Other => &mut self.others,
        }
    }

    fn next(&mut self) -> Option<oneshot::Sender<WriteTurn>> {
        let has_had_enough = self.in_a_row >= IN_A_ROW && !self.others.is_empty();
        if self.revocations.is_empty() || has_had_enough {
            self.in_a_row = 0;
            return self.others.pop_front();
        }
        self.in_a_row += 1;
        self.revocations.pop_front()
    }
}

impl Drop for WriteTurn {
    fn drop(&mut self) {
        if let Some(queue) = self.queue.take() {
            queue.pass_on();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Waiting writes in order of arrival; each records its name when it has its turn.
    struct Asking {
        queue: Arc<WriteQueue>,
        order: Arc<Mutex<Vec<String>>>,
        tasks: Vec<tokio::task::JoinHandle<()>>,
    }

    impl Asking {
        fn of(queue: &Arc<WriteQueue>) -> Asking {
            Asking { queue: Arc::clone(queue), order: Arc::default(), tasks: Vec::new() }
        }

        /// Requests a turn, and returns once the request is queued.
        async fn ask(&mut self, rank: Rank, name: &str) {
            let before = self.queue.waiting();
            let (queue, order, name) = (Arc::clone(&self.queue), Arc::clone(&self.order), name.to_owned());
            self.tasks.push(tokio::spawn(async move {
                let _turn = queue.turn(rank).await.unwrap();
                order.lock().push(name);
            }));
            while self.queue.waiting() == before {
                tokio::task::yield_now().await;
            }
        }

        async fn done(self) -> Vec<String> {
            for task in self.tasks {
                task.await.unwrap();
            }
            std::mem::take(&mut self.order.lock())
        }
    }

    #[tokio::test]
    async fn revocations_come_first_and_each_kind_in_its_order() {
        let queue = WriteQueue::new(1);
        let held = queue.turn(Rank::Other).await.unwrap();
        let mut asking = Asking::of(&queue);
        for (rank, name) in [
            (Rank::Other, "a"),
            (Rank::Other, "b"),
            (Rank::Revocation, "first"),
            (Rank::Other, "c"),
            (Rank::Revocation, "second"),
        ] {
            asking.ask(rank, name).await;
        }
        drop(held);
        assert_eq!(asking.done().await, ["first", "second", "a", "b", "c"]);
        drop(queue.turn(Rank::Other).await.unwrap());
    }

    #[tokio::test]
    async fn many_revocations_let_another_write_in() {
        let queue = WriteQueue::new(1);
        let held = queue.turn(Rank::Other).await.unwrap();
        let mut asking = Asking::of(&queue);
        asking.ask(Rank::Other, "other").await;
        for _ in 0..IN_A_ROW * 2 {
            asking.ask(Rank::Revocation, "revocation").await;
        }
        drop(held);
        let order = asking.done().await;
        assert_eq!(order.iter().position(|name| name == "other"), Some(IN_A_ROW as usize));
    }

    #[tokio::test]
    async fn a_write_that_was_given_up_takes_no_turn() {
        let queue = WriteQueue::new(1);
        let held = queue.turn(Rank::Other).await.unwrap();
        let mut asking = Asking::of(&queue);
        asking.ask(Rank::Other, "gone").await;
        asking.ask(Rank::Other, "stays").await;
        let gone = asking.tasks.remove(0);
        gone.abort();
        assert!(gone.await.unwrap_err().is_cancelled());
        drop(held);
        assert_eq!(asking.done().await, ["stays"]);
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_too_long_or_behind_too_many_is_told_that_the_store_is_busy() {
        let queue = WriteQueue::new(1);
        let held = queue.turn(Rank::Other).await.unwrap();
        assert!(matches!(queue.turn(Rank::Other).await, Err(StoreError::Busy(_))), "nobody ends it");
        let mut asking = Asking::of(&queue);
        // Each has its full timeout, so none waits for the clock here.
        for _ in 0..MAX_WAITING {
            asking.ask(Rank::Other, "other").await;
        }
        assert!(matches!(queue.turn(Rank::Other).await, Err(StoreError::Busy(_))));
        asking.ask(Rank::Revocation, "revocation").await;
        drop(held);
        let order = asking.done().await;
        assert_eq!((order.len(), order[0].as_str()), (MAX_WAITING + 1, "revocation"));
    }

    #[tokio::test]
    async fn as_many_write_at_a_time_as_there_are_turns() {
        let queue = WriteQueue::new(2);
        let first = queue.turn(Rank::Other).await.unwrap();
        let second = queue.turn(Rank::Revocation).await.unwrap();
        let mut asking = Asking::of(&queue);
        asking.ask(Rank::Other, "third").await;
        assert_eq!(queue.waiting(), 1);
        drop((first, second));
        assert_eq!(asking.done().await, ["third"]);
    }
}
