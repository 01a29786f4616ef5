//! Which worker takes which call, when workers start and when they go: the pool of one plugin version.
//!
//! A pure state machine: it is given the time, and answers with [`Action`]s that the pool carries out.
//! Keeps true: a worker never has more calls than its slots, a call that wants a fresh process shares it
//! with nobody, no worker starts during backoff, quarantine or without the machine's consent, there are
//! never more than `max` workers that take calls, and twice that with those that go or wait for their quiescence check.
//! A tenant whose calls may crash workers is served apart, by at most as many workers more as there are `max`.
//! A call that was stopped may go on in secret: its worker takes no more calls until it was found, without
//! any, that it does nothing.

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
use crate::pool::fair_queue::{FairQueue, Full};
use crate::pool::quarantine::Quarantine;
use crate::refusal::Refusal;
use crate::worker::WorkerId;
pub use position::QueuePosition;
use slot::{History, Phase, Slot};

pub type TicketId = u64;

/// The pool's bounds.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Every call has a process of its own.
    pub ephemeral: bool,
    /// Workers kept ready without calls.
    pub min: usize,
    /// Workers that take calls.
    pub max: usize,
    /// Calls at once in a worker.
    pub concurrency: usize,
    /// A worker beyond `min` goes after this long without a call.
    pub idle: Duration,
    /// Calls that one tenant may queue; all together twice that.
    pub queue: usize,
}

/// A call that waits for a worker.
#[derive(Debug)]
pub struct Waiting {
    pub ticket: TicketId,
    pub tenant: String,
    /// It wants a process that nobody used before.
    pub fresh: bool,
    pub deadline: Instant,
    /// It stays, and gives way to calls.
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
    /// Its subscriptions end.
    Unsubscribe {
        worker: WorkerId,
    },
}

/// A call that had a worker and has ended.
#[derive(Clone, Copy, Debug)]
pub struct Spent {
    pub ticket: TicketId,
    pub took: Duration,
    pub outcome: Outcome,
    /// It was told to end, by its caller or its deadline: something of it may go on.
    pub stopped: bool,
    pub subscription: bool,
}

/// How a worker ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// It was asked to go.
    Went,
    Crashed,
    /// A call of this tenant did not end when it was told to, while the worker answered.
    Overrun(String),
    /// It never started, for what the machine could not do.
    Host(String),
}

/// Who is refused from now on because of a crash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SetAside {
    Nobody,
    Tenant { tenant: String, rest: Duration },
    Plugin,
}

/// Starts that failed through no fault of the plugin.
#[derive(Debug)]
struct HostTrouble {
    backoff: Backoff,
    /// What the machine could not do last, to be told to those who wait.
    untold: Option<String>,
}

impl Default for HostTrouble {
    fn default() -> Self {
        HostTrouble { backoff: Backoff::of_host(), untold: None }
    }
}

#[derive(Debug)]
pub struct Scheduler {
    policy: Policy,
    workers: BTreeMap<WorkerId, Slot>,
    queue: FairQueue<Waiting>,
    /// Those that wait for a worker, in a queue of their own: no call waits behind one.
    subscriptions: Vec<Waiting>,
    backoff: Backoff,
    quarantine: Quarantine,
    blame: Blame,
    breaker: Breaker,
    host: HostTrouble,
    draining: bool,
    prewarm: bool,
    next_worker: WorkerId,
    /// Mean length of a call in milliseconds.
    mean_call: f64,
    pub crashes: u64,
    /// Starts that the machine had no room for.
    pub host_failures: u64,
    pub admitted_warm: u64,
    pub admitted_cold: u64,
}

/// Weight of the latest call in the mean length.
const ALPHA: f64 = 0.1;
/// What a call is thought to take before the first has ended, in milliseconds.
const FIRST_GUESS: f64 = 100.0;

impl Scheduler {
    pub fn new(policy: Policy) -> Scheduler {
        Scheduler {
            queue: FairQueue::new(policy.queue),
            policy,
            workers: BTreeMap::new(),
            subscriptions: Vec::new(),
            backoff: Backoff::new(),
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

    /// Queues a call, or says why not. A [`Scheduler::pump`] then assigns it to a worker.
    pub fn enqueue(&mut self, mut call: Waiting, now: Instant) -> Result<Option<TicketId>, Refusal> {
        if self.draining {
            return Err(Refusal::Draining);
        }
        if let Some(rest) = self.quarantine.remaining(now) {
            return Err(Refusal::Quarantined { rest });
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
                    self.abandoned(displaced, now);
                }
                Ok(displaced)
            }
            Err(full) => {
                self.abandoned(ticket, now);
                Err(match full {
                    Full::Tenant => Refusal::Throttled,
                    Full::All => Refusal::Overload,
                })
            }
        }
    }

    /// Carries the state forward: assignments, starts, refusals. `may_start` asks the machine for room for one
    /// more worker; when it says yes, the room is taken.
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
        self.start_apart(now, may_start, &mut actions);
        // A worker that others' calls keep from its quiescence check is better than none.
        if self.starting() == 0 && self.taking() < self.policy.max {
            while let Some((waiting, worker)) = self.next_assignment(true, now) {
                actions.push(Action::Assign { ticket: waiting.ticket, worker });
            }
        }
        self.unsubscribe(&mut actions);
        actions
    }

    /// A started worker accepts calls.
    pub fn ready(&mut self, worker: WorkerId, now: Instant) {
        if let Some(slot) = self.workers.get_mut(&worker)
            && matches!(slot.phase, Phase::Starting)
        {
            slot.phase = Phase::Ready { idle_since: now };
            self.host.backoff.succeeded();
        }
    }

    /// Nothing reaches a worker any more. Who comes now has no part in its end.
    pub fn lost(&mut self, worker: WorkerId) {
        if let Some(slot) = self.workers.get_mut(&worker)
            && matches!(slot.phase, Phase::Ready { .. })
        {
            slot.phase = Phase::Lost;
        }
    }

    /// A worker has ended: it takes no more calls, and keeps its slot in the pool until it is [`Scheduler::gone`].
    /// Returns who is set aside because of it.
    pub fn ended(&mut self, worker: WorkerId, end: End, chance: f64, now: Instant) -> SetAside {
        if let Some(slot) = self.workers.get_mut(&worker) {
            slot.phase = Phase::Leaving;
        }
        match end {
            End::Went => SetAside::Nobody,
            End::Host(why) => {
                self.host_failures += 1;
                self.host.backoff.failed(chance, now);
                self.host.untold = Some(why);
                SetAside::Nobody
            }
            End::Crashed => {
                self.crashes += 1;
                self.blame_for(worker, None, chance, now)
            }
            End::Overrun(tenant) => {
                self.crashes += 1;
                self.blame_for(worker, Some(tenant), chance, now)
            }
        }
    }

    /// Nothing is left of a worker that has ended.
    pub fn gone(&mut self, worker: WorkerId) {
        self.workers.remove(&worker);
    }

    /// A call that had a worker has ended, and its slot is free.
    pub fn release(&mut self, worker: WorkerId, tenant: &str, spent: Spent, now: Instant) {
        if !spent.subscription {
            let of_plugin = self.of_plugin(spent.outcome, now);
            self.breaker.ended(spent.ticket, of_plugin, now.into_std());
        }
        // How long somebody was subscribed says nothing of how long a call takes.
        if spent.outcome != Outcome::Abandoned && !spent.subscription {
            let milliseconds = spent.took.as_secs_f64() * 1000.0;
            self.mean_call = self.mean_call * (1.0 - ALPHA) + milliseconds * ALPHA;
            self.queue.spent(tenant, milliseconds);
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

    pub fn undrain(&mut self) {
        self.draining = false;
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

    /// How long the plugin stays set aside.
    pub fn quarantined(&mut self, now: Instant) -> Option<Duration> {
        self.quarantine.remaining(now)
    }

    /// Workers, of those starting, calls running, calls waiting.
    pub fn counts(&self) -> (usize, usize, usize, usize) {
        let active = self.workers.values().map(|slot| slot.active).sum();
        (self.workers.len(), self.starting(), active, self.queue.len())
    }

    /// Workers that count against the pool's bound: neither going nor kept from their quiescence check by others' calls.
    fn taking(&self) -> usize {
        let taking = |slot: &&Slot| {
            !matches!(slot.phase, Phase::Leaving) && !slot.is_held_up() && slot.apart.is_none()
        };
        self.workers.values().filter(taking).count()
    }

    /// Workers for everybody that will take calls.
    fn starting(&self) -> usize {
        let starting = |slot: &&Slot| matches!(slot.phase, Phase::Starting) && slot.apart.is_none();
        self.workers.values().filter(starting).count()
    }

    /// An admitted call ends without having run: it says nothing about the plugin.
    fn abandoned(&mut self, ticket: TicketId, now: Instant) {
        self.breaker.ended(ticket, Outcome::Abandoned, now.into_std());
    }

    /// The next call and its worker. `held_back`: of those that wait for their quiescence check and have calls.
    fn next_assignment(&mut self, held_back: bool, now: Instant) -> Option<(Waiting, WorkerId)> {
        let concurrency = self.policy.concurrency;
        let ready = |slot: &Slot| {
            let trusted = if held_back { slot.is_held_up() } else { slot.history != History::Suspect };
            matches!(slot.phase, Phase::Ready { .. }) && !slot.single && trusted
        };
        let common = self.workers.iter().filter(|(_, slot)| ready(slot) && slot.apart.is_none());
        let unused = common.clone().find(|(_, slot)| slot.served == 0).map(|(worker, _)| *worker);
        let shared = common.filter(|(_, slot)| slot.active < concurrency);
        let shared = shared.min_by_key(|(_, slot)| slot.active).map(|(worker, _)| *worker);
        let own = |tenant: &str| {
            let own = |slot: &Slot| slot.apart.as_deref() == Some(tenant) && slot.active < concurrency;
            let found = self.workers.iter().find(|(_, slot)| ready(slot) && own(slot));
            found.map(|(worker, _)| *worker)
        };
        let blame = &self.blame;
        let worker_for = |waiting: &Waiting| match waiting.fresh {
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

    /// A call that wants a fresh process must not wait for used ones that do nothing.
    fn make_room_for_fresh(&mut self, now: Instant, actions: &mut Vec<Action>) {
        let (fresh, _) = self.demand(now);
        // One that is going makes room already.
        if fresh == 0 || self.taking() < self.policy.max || self.starting() > 0 {
            return;
        }
        let idle = |slot: &Slot| {
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
        let common =
            |slot: &&Slot| !matches!(slot.phase, Phase::Leaving) && !slot.single && slot.apart.is_none();
        let live = self.workers.values().filter(common);
        let spare = if self.prewarm && !self.draining { self.policy.min } else { 0 };
        let wanted = demand.saturating_sub(self.starting()).max(spare.saturating_sub(live.count()));
        for _ in 0..wanted {
            let full = self.taking() >= self.policy.max || self.workers.len() >= self.policy.max * 2;
            if full || !may_start() {
                return;
            }
            let worker = self.next_worker;
            self.next_worker += 1;
            self.workers.insert(worker, Slot::new(None));
            actions.push(Action::Start { worker });
        }
    }

    /// Waiting calls that want a fresh process, and those that share one with other tenants.
    fn demand(&self, now: Instant) -> (usize, usize) {
        let blame = &self.blame;
        let ready = self.queue.iter().filter(|waiting| blame.waits_until(&waiting.tenant, now).is_none());
        let (fresh, others): (Vec<_>, Vec<_>) = ready.partition(|waiting| waiting.fresh);
        let shared = others.iter().filter(|waiting| !blame.is_suspect(&waiting.tenant, now));
        (fresh.len(), shared.count())
    }

    /// Tenants whose calls are refused because they crash the workers.
    pub fn tenants_off(&self, now: Instant) -> usize {
        self.blame.counts(now).1
    }

    /// When the next of those who wait for the end of a backoff may go on; `None`: nobody does.
    pub fn wakes_at(&self, now: Instant) -> Option<Instant> {
        let tenants = self.waiting().filter_map(|waiting| self.blame.waits_until(&waiting.tenant, now));
        tenants.chain(self.starts_again_at(now)).min()
    }

    /// When a worker may start again; `None`: now.
    pub fn starts_again_at(&self, now: Instant) -> Option<Instant> {
        self.backoff.until(now).max(self.host.backoff.until(now))
    }
}

#[cfg(test)]
mod tests;
