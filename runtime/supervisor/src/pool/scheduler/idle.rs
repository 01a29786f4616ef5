//! Workers without calls: which ones stop, and which ones must pass a quiescence check before they serve again.
//!
//! Keeps true: a worker with a call is never stopped here, and the result of a check counts only if the worker has had
//! no call since.

use tokio::time::Instant;

use super::slot::{History, Phase, WorkerSlot};
use super::{Action, Scheduler};
use crate::worker::WorkerId;
use crate::worker::residual_work::Idle;

impl Scheduler {
    /// Stops the workers that are no longer needed. Called after releases and periodically.
    pub fn stop_surplus(&mut self, now: Instant) -> Vec<Action> {
        let shared = |slot: &&WorkerSlot| !matches!(slot.phase, Phase::Leaving) && slot.apart.is_none();
        let mut live = self.workers.values().filter(shared).count();
        let waiting = self.waiting_suspects(now);
        let keep = if self.draining || !self.prewarm { 0 } else { self.policy.min };
        let mut actions = Vec::new();
        for (worker, slot) in &mut self.workers {
            let Phase::Ready { idle_since } = slot.phase else { continue };
            if slot.active > 0 {
                continue;
            }
            if let Some(tenant) = &slot.apart {
                if slot.single || !waiting.contains(tenant) {
                    slot.phase = Phase::Leaving;
                    actions.push(Action::Retire { worker: *worker });
                }
                continue;
            }
            let used_up = slot.single && slot.served > 0;
            let idle = live > keep && now.duration_since(idle_since) >= self.policy.idle;
            let drained = self.draining && self.queue.is_empty();
            // A worker that was found quiescent returns to a pool that has filled its slot.
            let replaced = live > self.policy.max;
            if used_up || idle || drained || replaced {
                slot.phase = Phase::Leaving;
                live -= 1;
                actions.push(Action::Retire { worker: *worker });
            }
        }
        actions
    }

    /// Stops a worker without calls, to give its memory to another plugin.
    pub fn evict_idle(&mut self) -> Option<Action> {
        let worker = self.idle_since()?.1;
        self.workers.get_mut(&worker)?.phase = Phase::Leaving;
        Some(Action::Retire { worker })
    }

    /// Returns the worker that has been without calls for longest, and since when.
    pub fn idle_since(&self) -> Option<(Instant, WorkerId)> {
        let idle = self.workers.iter().filter_map(|(worker, slot)| match slot.phase {
            Phase::Ready { idle_since } if slot.active == 0 => Some((idle_since, *worker)),
            _ => None,
        });
        idle.min()
    }

    /// Returns the workers without calls that still need a quiescence check.
    pub fn unchecked_workers(&self) -> Vec<(WorkerId, Idle)> {
        let open = |(worker, slot): (&WorkerId, &WorkerSlot)| match slot.phase {
            Phase::Ready { idle_since } if slot.is_idle() && slot.history != History::Clean => {
                Some((*worker, Idle { since: idle_since, stopped: slot.history == History::Suspect }))
            }
            _ => None,
        };
        self.workers.iter().filter_map(open).collect()
    }

    /// Whether a worker waits for its quiescence check to take calls again.
    pub fn is_held_back(&self) -> bool {
        self.workers.values().any(|slot| slot.is_idle() && slot.history == History::Suspect)
    }

    /// Records that a worker was found idle.
    pub fn mark_quiescent(&mut self, worker: WorkerId, idle: Idle) {
        if let Some(slot) = self.still(worker, idle) {
            slot.history = History::Clean;
        }
    }

    /// Stops a worker that still runs something of its ended calls. Returns false if it has a call again.
    pub fn condemn(&mut self, worker: WorkerId, idle: Idle) -> bool {
        let slot = self.still(worker, idle);
        slot.map(|slot| slot.phase = Phase::Leaving).is_some()
    }

    /// Returns the worker if it has had no call since it was checked.
    fn still(&mut self, worker: WorkerId, idle: Idle) -> Option<&mut WorkerSlot> {
        let slot = self.workers.get_mut(&worker)?;
        let same = matches!(slot.phase, Phase::Ready { idle_since } if idle_since == idle.since);
        (same && slot.active == 0).then_some(slot)
    }
}
