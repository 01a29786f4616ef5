//! Subscriptions: long-lived work of a pool in addition to its calls, which reports changes to a client.
//!
//! Keeps true: subscriptions take at most half of the pool's slots, and half of a worker's if it has several; one
//! tenant takes half of those; no call waits behind one. They end when a call needs the worker's memory, when their
//! worker needs a quiescence check, and with a drain. The gateway then subscribes again.

use asp_platform::breaker::Outcome;
use tokio::time::Instant;

use super::slot::{History, Phase, WorkerSlot};
use super::{Action, PoolPolicy, Scheduler, WaitingCall};
use crate::refusal::Refusal;
use crate::worker::WorkerId;

impl PoolPolicy {
    /// Returns the maximum number of concurrent calls in a worker.
    pub(super) fn per_worker(&self) -> usize {
        if self.ephemeral { 1 } else { self.concurrency.max(1) }
    }

    /// Returns the maximum number of slots for subscriptions.
    fn subscriptions(&self) -> usize {
        match self.per_worker() / 2 {
            0 => self.max / 2,
            of_worker => self.max * of_worker,
        }
    }

    /// Returns the maximum number of subscriptions in one worker that also serves calls.
    fn subscriptions_of_worker(&self) -> usize {
        (self.per_worker() / 2).max(1)
    }

    /// Returns the number of slots that a subscription takes.
    fn weight(&self, alone: bool) -> usize {
        if alone { self.per_worker() } else { 1 }
    }
}

impl Scheduler {
    /// Queues a subscription for a worker, or returns the reason for refusing it.
    pub(super) fn enqueue_subscription(&mut self, wanted: WaitingCall, now: Instant) -> Result<(), Refusal> {
        // It is not a probe for the breaker: its end is no evidence about the plugin.
        self.breaker.ended(wanted.ticket, Outcome::Abandoned, now.into_std());
        let most = self.policy.subscriptions();
        let weight = self.policy.weight(wanted.fresh);
        let fits = |taken: usize, most: usize| taken + weight <= most;
        let of_tenant = self.subscribed(Some(&wanted.tenant));
        if !fits(self.subscribed(None), most) || !fits(of_tenant, most.div_ceil(2).max(weight)) {
            return Err(Refusal::Subscriptions { most });
        }
        self.subscriptions.push(wanted);
        Ok(())
    }

    /// Returns the number of slots that subscriptions have or wait for, of one tenant or of all.
    fn subscribed(&self, tenant: Option<&str>) -> usize {
        let counts = |of: &str| tenant.is_none_or(|tenant| tenant == of);
        let placed = self.workers.values().map(|slot| {
            let own = slot.subscriptions.iter().filter(|of| counts(of)).count();
            own * self.policy.weight(slot.single && slot.apart.is_none())
        });
        let waiting = self.subscriptions.iter().filter(|waiting| counts(&waiting.tenant));
        placed.chain(waiting.map(|waiting| self.policy.weight(waiting.fresh))).sum()
    }

    /// Returns the next subscription and its worker. Prefers the worker with most subscriptions, so that others can
    /// stop.
    pub(super) fn next_subscription(&mut self, now: Instant) -> Option<(WaitingCall, WorkerId)> {
        let (at, worker) = self.subscriptions.iter().enumerate().find_map(|(at, waiting)| {
            self.worker_for_subscription(waiting, now).map(|worker| (at, worker))
        })?;
        let waiting = self.subscriptions.remove(at);
        self.workers.get_mut(&worker)?.subscribe(&waiting.tenant, waiting.fresh);
        Some((waiting, worker))
    }

    fn worker_for_subscription(&self, waiting: &WaitingCall, now: Instant) -> Option<WorkerId> {
        if self.blame.waits_until(&waiting.tenant, now).is_some() {
            return None;
        }
        let apart = self.blame.is_suspect(&waiting.tenant, now).then_some(waiting.tenant.as_str());
        let most = self.policy.subscriptions_of_worker();
        let fits = |slot: &&WorkerSlot| {
            let takes = matches!(slot.phase, Phase::Ready { .. }) && !slot.single;
            let has_room = match waiting.fresh {
                true => slot.served == 0 && slot.apart.is_none(),
                false => {
                    slot.active < self.policy.per_worker()
                        && slot.subscriptions.len() < most
                        && slot.apart.as_deref() == apart
                }
            };
            takes && slot.history != History::Suspect && has_room
        };
        let workers = self.workers.iter().filter(|(_, slot)| fits(slot));
        workers.max_by_key(|(_, slot)| slot.subscriptions.len()).map(|(worker, _)| *worker)
    }

    /// Returns the number of workers that waiting subscriptions need.
    pub(super) fn demand_of_subscriptions(&self, now: Instant) -> usize {
        let common = self.subscriptions.iter().filter(|waiting| {
            self.blame.waits_until(&waiting.tenant, now).is_none()
                && (waiting.fresh || !self.blame.is_suspect(&waiting.tenant, now))
        });
        let (fresh, shared): (Vec<_>, Vec<_>) = common.partition(|waiting| waiting.fresh);
        fresh.len() + shared.len().div_ceil(self.policy.subscriptions_of_worker())
    }

    /// Ends the subscriptions of workers that must have none now. Called repeatedly until they have none.
    pub(super) fn unsubscribe(&self, actions: &mut Vec<Action>) {
        let ends = |slot: &WorkerSlot| {
            let alone = slot.is_idle_but_for_subscriptions();
            let must_be_found_quiescent = slot.history == History::Suspect && alone;
            // Another suspect needs its slot.
            let makes_room = slot.apart.is_some() && slot.single && alone;
            self.draining || must_be_found_quiescent || makes_room
        };
        let workers = self.workers.iter().filter(|(_, slot)| !slot.subscriptions.is_empty() && ends(slot));
        actions.extend(workers.map(|(worker, _)| Action::Unsubscribe { worker: *worker }));
    }

    /// Returns the worker with nothing but subscriptions that has been without calls for longest, and since when.
    pub fn subscribed_since(&self) -> Option<(Instant, WorkerId)> {
        let idle = self.workers.iter().filter_map(|(worker, slot)| match slot.phase {
            Phase::Ready { idle_since }
                if !slot.subscriptions.is_empty() && slot.is_idle_but_for_subscriptions() =>
            {
                Some((idle_since, *worker))
            }
            _ => None,
        });
        idle.min()
    }
}
