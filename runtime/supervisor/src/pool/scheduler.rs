//! The scheduler of one plugin version: assigns calls to workers, and decides when workers start and stop.
//!
//! A pure state machine: time is an argument, and it returns [`Action`]s that the pool executes. Keeps true: a worker
//! never has more calls than its slots; a call that wants a fresh process shares it with no other call; no worker
//! starts during backoff or quarantine, or without capacity of the machine; there are never more than `max` workers
//! that take calls, and twice that including those that are stopping or wait for their quiescence check. A tenant whose
//! calls may crash workers is isolated, in at most `max` additional workers. A call that was stopped may continue
//! unseen: its worker takes no more calls until it was found idle while it had none.

mod apart;
mod idle;
mod position;
mod slot;
mod subscriptions;
mod waiting;

use std::collections::BTreeMap;
use std::time::Duration;

use asp_platform::breaker::{Breaker, Outcome};
use tokio::time::Instant;

use crate::pool::backoff::Backoff;
use crate::pool::blame::Blame;
use crate::pool::fair_queue::{FairQueue, Overflow};
use crate::pool::quarantine::Quarantine;
use crate::refusal::Refusal;
use crate::worker::WorkerId;
pub use position::QueuePosition;
use slot::{History, Phase, WorkerSlot};

pub type TicketId = u64;

/// The pool's limits.
#[derive(Clone, Debug)]
pub struct PoolPolicy {
    /// Whether every call has a process of its own.
    pub ephemeral: bool,
    /// Workers kept ready without calls.
    pub min: usize,
    /// Maximum number of workers that take calls.
    pub max: usize,
    /// Maximum number of concurrent calls in a worker.
    pub concurrency: usize,
    /// Time without a call after which a worker beyond `min` stops.
    pub idle: Duration,
    /// Maximum number of calls that one tenant may queue; all together twice that.
    pub queue: usize,
    /// Whether the plugins are their author's own: no crash leads to a quarantine, and a failed start is not repeated.
    pub development: bool,
}

/// A call that waits for a worker.
#[derive(Debug)]
pub struct WaitingCall {
    pub ticket: TicketId,
    pub tenant: String,
    /// Whether the call wants a process that served no call before.
    pub fresh: bool,
    pub deadline: Instant,
    /// Whether it is a subscription, which lasts, and which calls may evict.
    pub subscription: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Action {
    Start {
        worker: WorkerId,
    },
    Assign {
        ticket: TicketId,
        worker: WorkerId,
    },
    Refuse {
        ticket: TicketId,
        reason: Refusal,
    },
    Retire {
        worker: WorkerId,
    },
    /// Ends the worker's subscriptions.
    Unsubscribe {
        worker: WorkerId,
    },
}

/// A call that had a worker and has ended.
#[derive(Clone, Copy, Debug)]
pub struct FinishedCall {
    pub ticket: TicketId,
    pub took: Duration,
    pub outcome: Outcome,
    /// Whether it was cancelled, by its caller or its deadline: a part of it may still run.
    pub stopped: bool,
    pub subscription: bool,
}

/// Outcome of a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorkerEnd {
    /// The worker was asked to stop.
    Went,
    Crashed,
    /// A crash before the worker accepted calls.
    FailedStart,
    /// A call of this tenant ignored its cancellation, while the worker answered.
    Overrun(String),
    /// The worker never started, because the machine lacked something.
    Host(String),
}

/// Quarantine that starts because of a crash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QuarantineScope {
    Nobody,
    Tenant { tenant: String, rest: Duration },
    Plugin,
}

/// Failed starts that were not the plugin's fault.
#[derive(Debug)]
struct HostTrouble {
    backoff: Backoff,
    /// Reason of the last failure, if the waiting calls have not been notified of it.
    unreported: Option<String>,
}

impl Default for HostTrouble {
    fn default() -> Self {
        HostTrouble { backoff: Backoff::of_host(), unreported: None }
    }
}

#[derive(Debug)]
pub struct Scheduler {
    policy: PoolPolicy,
    workers: BTreeMap<WorkerId, WorkerSlot>,
    queue: FairQueue<WaitingCall>,
    /// Waiting subscriptions, in a queue of their own so that no call waits behind one.
    subscriptions: Vec<WaitingCall>,
    backoff: Backoff,
    quarantine: Quarantine,
    blame: Blame,
    breaker: Breaker,
    host: HostTrouble,
    draining: bool,
    prewarm: bool,
    next_worker: WorkerId,
    /// Mean duration of a call in milliseconds.
    mean_call: f64,
    pub crashes: u64,
    /// Number of starts for which the machine lacked something.
    pub host_failures: u64,
    pub admitted_warm: u64,
    pub admitted_cold: u64,
}

/// Weight of the latest call in the mean duration.
const ALPHA: f64 = 0.1;
/// Assumed duration of a call before the first one has ended, in milliseconds.
const FIRST_GUESS: f64 = 100.0;

impl Scheduler {
    pub fn new(policy: PoolPolicy) -> Scheduler {
        Scheduler {
            queue: FairQueue::new(policy.queue),
            policy,
            workers: BTreeMap::new(),
            subscriptions: Vec::new(),
            backoff: Backoff::default(),
            quarantine: Quarantine::default(),
            blame: Blame::default(),
            breaker: Breaker::new(),
            host: HostTrouble::default(),
            draining: false,
            prewarm: false,
            next_worker: 1,
            mean_call: FIRST_GUESS,
            crashes: 0,
            host_failures: 0,
            admitted_warm: 0,
            admitted_cold: 0,
        }
    }

    /// Queues a call, or returns the reason for refusing it. A [`Scheduler::pump`] then assigns it to a worker. Returns
    /// the queued call that was dropped for it, if any.
    pub fn enqueue(&mut self, mut call: WaitingCall, now: Instant) -> Result<Option<TicketId>, Refusal> {
        if self.draining {
            return Err(Refusal::Draining);
        }
        if let Some(reason) = self.quarantine.refusal(now) {
            return Err(reason);
        }
        if let Some(rest) = self.blame.rest(&call.tenant, now) {
            return Err(Refusal::TenantQuarantined { rest });
        }
        if !self.breaker.admit(call.ticket, now.into_std()) {
            return Err(Refusal::BreakerOpen);
        }
        call.fresh |= self.policy.ephemeral;
        if call.subscription {
            return self.enqueue_subscription(call, now).map(|()| None);
        }
        let ticket = call.ticket;
        let tenant = call.tenant.clone();
        match self.queue.push(&tenant, call) {
            Ok(displaced) => {
                let displaced = displaced.map(|waiting| waiting.ticket);
                if let Some(displaced) = displaced {
                    self.end_unrun(displaced, now);
                }
                Ok(displaced)
            }
            Err(full) => {
                self.end_unrun(ticket, now);
                Err(match full {
                    Overflow::Tenant => Refusal::Throttled,
                    Overflow::All => Refusal::Overload,
                })
            }
        }
    }

    /// Advances the state: assignments, starts, refusals. `may_start` asks the machine for capacity for one more
    /// worker; if it returns true, the capacity is reserved.
    pub fn pump(&mut self, now: Instant, may_start: &mut dyn FnMut() -> bool) -> Vec<Action> {
        let mut actions = Vec::new();
        self.refuse(now, &mut actions);
        while let Some((waiting, worker)) = self.next_assignment(false, now) {
            actions.push(Action::Assign { ticket: waiting.ticket, worker });
        }
        while let Some((waiting, worker)) = self.next_subscription(now) {
            actions.push(Action::Assign { ticket: waiting.ticket, worker });
        }
        self.make_room_for_fresh(now, &mut actions);
        self.start(now, may_start, &mut actions);
        self.start_isolated(now, may_start, &mut actions);
        // A worker whose quiescence check is blocked by its other calls is better than none.
        if self.starting() == 0 && self.counted_workers() < self.policy.max {
            while let Some((waiting, worker)) = self.next_assignment(true, now) {
                actions.push(Action::Assign { ticket: waiting.ticket, worker });
            }
        }
        self.unsubscribe(&mut actions);
        actions
    }

    /// Records that a started worker accepts calls.
    pub fn ready(&mut self, worker: WorkerId, now: Instant) {
        if let Some(slot) = self.workers.get_mut(&worker)
            && matches!(slot.phase, Phase::Starting)
        {
            slot.phase = Phase::Ready { idle_since: now };
            self.host.backoff.succeeded();
        }
    }

    /// Records that a worker's connection is lost. New calls are not assigned to it, and have no part in its end.
    pub fn mark_lost(&mut self, worker: WorkerId) {
        if let Some(slot) = self.workers.get_mut(&worker)
            && matches!(slot.phase, Phase::Ready { .. })
        {
            slot.phase = Phase::Lost;
        }
    }

    /// Records the end of a worker: it takes no more calls, and keeps its slot in the pool until it is
    /// [`Scheduler::remove_ended`]. Returns the quarantine that starts because of it.
    pub fn record_end(
        &mut self,
        worker: WorkerId,
        end: WorkerEnd,
        chance: f64,
        now: Instant,
    ) -> QuarantineScope {
        if let Some(slot) = self.workers.get_mut(&worker) {
            slot.phase = Phase::Leaving;
        }
        match end {
            WorkerEnd::Went => QuarantineScope::Nobody,
            WorkerEnd::Host(why) => {
                self.host_failures += 1;
                self.host.backoff.failed(chance, now);
                self.host.unreported = Some(why);
                QuarantineScope::Nobody
            }
            WorkerEnd::Crashed | WorkerEnd::FailedStart | WorkerEnd::Overrun(_) => {
                self.crashes += 1;
                self.blame_for(worker, end, chance, now)
            }
        }
    }

    /// Removes an ended worker of which nothing is left.
    pub fn remove_ended(&mut self, worker: WorkerId) {
        self.workers.remove(&worker);
    }

    /// Records the end of a call that had a worker, and frees its slot.
    pub fn release(&mut self, worker: WorkerId, tenant: &str, spent: FinishedCall, now: Instant) {
        if !spent.subscription {
            let of_plugin = self.of_plugin(spent.outcome, now);
            self.breaker.ended(spent.ticket, of_plugin, now.into_std());
        }
        // The duration of a subscription is no measure for that of a call.
        if spent.outcome != Outcome::Abandoned && !spent.subscription {
            let milliseconds = spent.took.as_secs_f64() * 1000.0;
            self.mean_call = self.mean_call * (1.0 - ALPHA) + milliseconds * ALPHA;
            self.queue.charge(tenant, milliseconds);
        }
        let Some(slot) = self.workers.get_mut(&worker) else { return };
        slot.leave(tenant, spent.outcome == Outcome::Failure);
        if spent.subscription {
            slot.unsubscribe(tenant);
        }
        slot.history = match slot.history {
            _ if spent.stopped => History::Suspect,
            History::Clean => History::Open,
            known => known,
        };
        if let Phase::Ready { idle_since } = &mut slot.phase {
            *idle_since = now;
        }
    }

    /// Keeps `min` workers from now on.
    pub fn prewarm(&mut self) {
        self.prewarm = true;
    }

    /// Admits no new call; running and waiting ones finish.
    pub fn drain(&mut self) {
        self.draining = true;
    }

    /// Admits calls again. What was drained starts without its quarantines: an operator may disable and enable a plugin to end
    /// them.
    pub fn undrain(&mut self) {
        if std::mem::take(&mut self.draining) {
            self.quarantine = Quarantine::default();
            self.blame = Blame::default();
        }
    }

    pub fn is_draining(&self) -> bool {
        self.draining
    }

    /// Whether nothing waits and no process is left.
    pub fn is_empty(&self) -> bool {
        self.workers.is_empty() && self.queue.is_empty() && self.subscriptions.is_empty()
    }

    pub fn breaker(&self) -> &'static str {
        self.breaker.name()
    }

    /// Returns the remaining quarantine of the plugin.
    pub fn remaining_quarantine(&mut self, now: Instant) -> Option<Duration> {
        self.quarantine.remaining(now)
    }

    /// Returns the number of workers, those of them that are starting, running calls, and waiting calls.
    pub fn counts(&self) -> (usize, usize, usize, usize) {
        let active = self.workers.values().map(|slot| slot.active).sum();
        (self.workers.len(), self.starting(), active, self.queue.len())
    }

    /// Returns the number of workers that count against the pool's limit: neither stopping, nor isolated, nor kept from
    /// their quiescence check by their calls.
    fn counted_workers(&self) -> usize {
        let taking = |slot: &&WorkerSlot| {
            !matches!(slot.phase, Phase::Leaving) && !slot.is_held_up() && slot.apart.is_none()
        };
        self.workers.values().filter(taking).count()
    }

    /// Returns the number of starting workers that will take calls of all tenants.
    fn starting(&self) -> usize {
        let starting = |slot: &&WorkerSlot| matches!(slot.phase, Phase::Starting) && slot.apart.is_none();
        self.workers.values().filter(starting).count()
    }

    /// Ends an admitted call that has not run, which is no evidence about the plugin.
    fn end_unrun(&mut self, ticket: TicketId, now: Instant) {
        self.breaker.ended(ticket, Outcome::Abandoned, now.into_std());
    }

    /// Returns the next call and its worker. `held_back`: chooses among the workers that wait for their quiescence
    /// check and have calls.
    fn next_assignment(&mut self, held_back: bool, now: Instant) -> Option<(WaitingCall, WorkerId)> {
        let concurrency = self.policy.concurrency;
        let ready = |slot: &WorkerSlot| {
            let trusted = if held_back { slot.is_held_up() } else { slot.history != History::Suspect };
            matches!(slot.phase, Phase::Ready { .. }) && !slot.single && trusted
        };
        let common = self.workers.iter().filter(|(_, slot)| ready(slot) && slot.apart.is_none());
        let unused = common.clone().find(|(_, slot)| slot.served == 0).map(|(worker, _)| *worker);
        let shared = common.filter(|(_, slot)| slot.active < concurrency);
        let shared = shared.min_by_key(|(_, slot)| slot.active).map(|(worker, _)| *worker);
        let own = |tenant: &str| {
            let own = |slot: &WorkerSlot| slot.apart.as_deref() == Some(tenant) && slot.active < concurrency;
            let found = self.workers.iter().find(|(_, slot)| ready(slot) && own(slot));
            found.map(|(worker, _)| *worker)
        };
        let blame = &self.blame;
        let worker_for = |waiting: &WaitingCall| match waiting.fresh {
            _ if blame.waits_until(&waiting.tenant, now).is_some() => None,
            true => unused,
            false if blame.is_suspect(&waiting.tenant, now) => own(&waiting.tenant),
            false => shared,
        };
        let waiting = self.queue.pop(|waiting| worker_for(waiting).is_some())?;
        let worker = worker_for(&waiting)?;
        let slot = self.workers.get_mut(&worker)?;
        if slot.served == 0 {
            self.admitted_cold += 1;
        } else {
            self.admitted_warm += 1;
        }
        slot.assign(&waiting.tenant, waiting.fresh);
        Some((waiting, worker))
    }

    /// Stops an idle used worker if calls wait for a fresh process and there is no capacity for one.
    fn make_room_for_fresh(&mut self, now: Instant, actions: &mut Vec<Action>) {
        let (fresh, _) = self.demand(now);
        // A worker that is stopping makes capacity already.
        if fresh == 0 || self.counted_workers() < self.policy.max || self.starting() > 0 {
            return;
        }
        let idle = |slot: &WorkerSlot| {
            matches!(slot.phase, Phase::Ready { .. }) && slot.active == 0 && slot.apart.is_none()
        };
        if let Some((worker, slot)) = self.workers.iter_mut().find(|(_, slot)| idle(slot)) {
            slot.phase = Phase::Leaving;
            actions.push(Action::Retire { worker: *worker });
        }
    }

    fn start(&mut self, now: Instant, may_start: &mut dyn FnMut() -> bool, actions: &mut Vec<Action>) {
        if self.starts_again_at(now).is_some() || self.quarantine.remaining(now).is_some() {
            return;
        }
        let (fresh, shared) = self.demand(now);
        let demand =
            (fresh + shared.div_ceil(self.policy.concurrency.max(1))).max(self.demand_of_subscriptions(now));
        let common = |slot: &&WorkerSlot| {
            !matches!(slot.phase, Phase::Leaving) && !slot.single && slot.apart.is_none()
        };
        let live = self.workers.values().filter(common);
        let spare = if self.prewarm && !self.draining { self.policy.min } else { 0 };
        let wanted = demand.saturating_sub(self.starting()).max(spare.saturating_sub(live.count()));
        for _ in 0..wanted {
            let full = self.counted_workers() >= self.policy.max || self.workers.len() >= self.policy.max * 2;
            if full || !may_start() {
                return;
            }
            actions.push(self.start_one(None));
        }
    }

    /// Starts a worker, of the suspect `apart` alone if there is one.
    fn start_one(&mut self, apart: Option<String>) -> Action {
        let worker = self.next_worker;
        self.next_worker += 1;
        self.workers.insert(worker, WorkerSlot::new(apart));
        Action::Start { worker }
    }

    /// Returns the number of waiting calls that want a fresh process, and of those that share one with other tenants.
    fn demand(&self, now: Instant) -> (usize, usize) {
        let blame = &self.blame;
        let ready = self.queue.iter().filter(|waiting| blame.waits_until(&waiting.tenant, now).is_none());
        let (fresh, others): (Vec<_>, Vec<_>) = ready.partition(|waiting| waiting.fresh);
        let shared = others.iter().filter(|waiting| !blame.is_suspect(&waiting.tenant, now));
        (fresh.len(), shared.count())
    }

    /// Returns the number of tenants whose calls are refused because they crash the workers.
    pub fn tenants_off(&self, now: Instant) -> usize {
        self.blame.counts(now).1
    }

    /// Returns the earliest end of a backoff that something waits for; `None` if nothing does.
    pub fn wakes_at(&self, now: Instant) -> Option<Instant> {
        let tenants = self.waiting().filter_map(|waiting| self.blame.waits_until(&waiting.tenant, now));
        tenants.chain(self.starts_again_at(now)).min()
    }

    /// Returns the time from which a worker may start again; `None`: now.
    pub fn starts_again_at(&self, now: Instant) -> Option<Instant> {
        self.backoff.until(now).max(self.host.backoff.until(now))
    }
}

#[cfg(test)]
mod tests;
