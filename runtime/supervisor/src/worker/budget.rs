//! Budget of all workers of this machine together: number of processes, memory, and user ids.
//!
//! Keeps true: a worker exists only with a [`Lease`], and the leases together never exceed the limits.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

#[derive(Debug)]
pub struct WorkerBudget {
    memory: u64,
    workers: usize,
    state: Mutex<State>,
    /// Notified when a lease is returned.
    freed: Notify,
}

#[derive(Debug)]
struct State {
    memory_left: u64,
    free_numbers: BTreeSet<u32>,
}

/// Capacity for one worker, which is returned when this is dropped.
#[derive(Debug)]
pub struct Lease {
    budget: Arc<WorkerBudget>,
    memory: u64,
    /// Number from 0 up to the limit on workers, unique among the leases: determines the worker's user id.
    pub number: u32,
}

impl WorkerBudget {
    pub fn new(memory: u64, workers: usize) -> Arc<WorkerBudget> {
        let numbers = 0..u32::try_from(workers).unwrap_or(u32::MAX);
        let state = State { memory_left: memory, free_numbers: numbers.collect() };
        Arc::new(WorkerBudget { memory, workers, state: Mutex::new(state), freed: Notify::new() })
    }

    /// Reserves capacity for a worker of `memory` bytes; `None` if there is not enough.
    pub fn lease(self: &Arc<Self>, memory: u64) -> Option<Lease> {
        let mut state = self.state.lock();
        if state.memory_left < memory {
            return None;
        }
        let number = state.free_numbers.pop_first()?;
        state.memory_left -= memory;
        Some(Lease { budget: Arc::clone(self), memory, number })
    }

    /// Waits until capacity was returned since the last call.
    pub async fn freed(&self) {
        self.freed.notified().await;
    }

    /// Returns total bytes, free bytes, the maximum number of workers, and how many more may start.
    pub fn stats(&self) -> (u64, u64, usize, usize) {
        let state = self.state.lock();
        (self.memory, state.memory_left, self.workers, state.free_numbers.len())
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut state = self.budget.state.lock();
        state.memory_left += self.memory;
        state.free_numbers.insert(self.number);
        drop(state);
        self.budget.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leases_never_exceed_memory_or_workers_and_come_back() {
        let budget = WorkerBudget::new(100, 2);
        let one = budget.lease(60).unwrap();
        assert!(budget.lease(60).is_none());
        let two = budget.lease(40).unwrap();
        assert_ne!(one.number, two.number);
        assert!(budget.lease(0).is_none(), "no third process");
        drop(one);
        assert_eq!(budget.lease(60).map(|lease| lease.number), Some(0));
    }
}
