//! The workers of one plugin version: executes the decisions of its [`Scheduler`].
//!
//! Owns the tickets of waiting calls and the running workers. Keeps true: a ticket that is dropped releases its slot,
//! and every worker is managed by exactly one task.

pub mod backoff;
pub mod blame;
pub mod fair_queue;
mod notices;
pub mod quarantine;
mod quiescence;
pub mod sampling;
pub mod scheduler;
mod ticket;

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::cause::Cause;
use crate::plugin::installed::{Plugin, PluginKey};
use crate::plugin::language;
use crate::plugin::manifest::PoolMode;
use crate::pool::scheduler::{
    Action, PoolPolicy, QuarantineScope, QueuePosition, Scheduler, TicketId, WaitingCall, WorkerEnd,
};
use crate::refusal::Refusal;
use crate::telemetry::totals::{ResourceUse, Totals};
use crate::worker::budget::Lease;
use crate::worker::process::{Machine, why};
use crate::worker::rules::PackageRules;
use crate::worker::{Death, Plan, RunningWorker, Worker, WorkerId};
pub use ticket::Ticket;

/// Maximum wait for a worker of a call without a deadline.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub struct Pool {
    pub key: PluginKey,
    pub plan: Plan,
    machine: Arc<Machine>,
    tasks: TaskTracker,
    /// Resource use and crashes of its workers.
    pub totals: Mutex<Totals>,
    /// Time of the last request for the plugin.
    pub asked_for: Mutex<Instant>,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    scheduler: Scheduler,
    tickets: HashMap<TicketId, watch::Sender<TicketState>>,
    workers: HashMap<WorkerId, Arc<Worker>>,
    next_ticket: TicketId,
    /// Whether a worker is wanted and the machine had no capacity for it.
    starved: bool,
    /// Whether a task is checking the workers that wait for their quiescence check.
    checking: bool,
}

/// State of a call on its way to a worker.
#[derive(Clone, Debug)]
pub enum TicketState {
    Waiting(QueuePosition),
    Assigned(Arc<Worker>),
    Refused(Refusal),
}

/// A gateway's request for a worker.
#[derive(Clone, Debug)]
pub struct WorkerRequest {
    pub tenant: String,
    pub fresh: bool,
    /// `None`: the request waits for `LONGEST_WAIT`.
    pub deadline: Option<Instant>,
    /// Whether it is a subscription, which lasts, and which calls may evict.
    pub subscription: bool,
}

/// Statistics of a pool for Health.
#[derive(Clone, Debug)]
pub struct PoolStats {
    pub workers: usize,
    pub starting: usize,
    pub active: usize,
    pub queued: usize,
    pub crashes: u64,
    pub host_failures: u64,
    pub admitted_warm: u64,
    pub admitted_cold: u64,
    pub breaker: &'static str,
    pub quarantined: Option<Duration>,
    /// Number of tenants whose calls are refused because they crash the workers.
    pub tenants_off: usize,
    pub draining: bool,
}

impl Pool {
    /// Creates a pool for `plugin`, if this machine may run it. Starts no worker yet.
    pub fn new(
        machine: &Arc<Machine>,
        key: PluginKey,
        plugin: Plugin,
        tasks: TaskTracker,
    ) -> Result<Arc<Pool>, Refusal> {
        let mut command = language::command(&machine.settings.languages, &plugin)?;
        command.secrets.clone_from(&key.secrets);
        let manifest = &plugin.manifest;
        let mut wanted = manifest.isolation.min_level.max(machine.settings.min_level.number());
        if manifest.has_network() {
            // Below level 3, a worker has no network of its own, so nothing would enforce the list.
            wanted = 3;
        }
        let given = machine.level.number();
        if given < wanted {
            return Err(Refusal::Isolation { wanted, given, why: why(&machine.probe.missing) });
        }
        let policy = PoolPolicy {
            ephemeral: manifest.pool.mode == PoolMode::Ephemeral,
            min: manifest.pool.min,
            max: manifest.pool.max,
            concurrency: manifest.pool.concurrency,
            idle: Duration::from_secs(manifest.pool.idle_seconds),
            queue: machine.settings.queue,
            development: machine.settings.development,
        };
        let inner = Inner {
            scheduler: Scheduler::new(policy),
            tickets: HashMap::new(),
            workers: HashMap::new(),
            next_ticket: 1,
            starved: false,
            checking: false,
        };
        let rules = PackageRules::of_manifest(&plugin.manifest);
        Ok(Arc::new(Pool {
            key,
            plan: Plan::new(plugin, command, rules),
            machine: Arc::clone(machine),
            tasks,
            totals: Mutex::default(),
            asked_for: Mutex::new(Instant::now()),
            inner: Mutex::new(inner),
        }))
    }

    /// Requests a worker for one call, now or later.
    pub fn admit(self: &Arc<Self>, wanted: WorkerRequest) -> Result<Ticket, Refusal> {
        let now = Instant::now();
        let (id, state) = {
            let mut inner = self.inner.lock();
            let id = inner.next_ticket;
            inner.next_ticket += 1;
            let tenant = wanted.tenant.clone();
            let deadline = wanted.deadline.unwrap_or(now + LONGEST_WAIT);
            let WorkerRequest { fresh, subscription, .. } = wanted;
            let waiting = WaitingCall { ticket: id, tenant, fresh, deadline, subscription };
            if let Some(displaced) = inner.scheduler.enqueue(waiting, now)? {
                inner.notify(displaced, TicketState::Refused(Refusal::Overload));
            }
            let (sender, state) = watch::channel(TicketState::Waiting(QueuePosition::default()));
            inner.tickets.insert(id, sender);
            (id, state)
        };
        let WorkerRequest { tenant, fresh, subscription, .. } = wanted;
        let pool = Arc::clone(self);
        let ticket = Ticket { pool, id, tenant, fresh, subscription, state, released: false };
        self.pump();
        if matches!(*ticket.state.borrow(), TicketState::Waiting(_)) {
            self.publish_position(id, &ticket.tenant);
        }
        Ok(ticket)
    }

    /// Executes the scheduler's pending decisions. Called on every change, and periodically.
    pub fn pump(self: &Arc<Self>) {
        let now = Instant::now();
        let mut inner = self.inner.lock();
        let mut leases = Vec::new();
        let mut starved = false;
        let memory = self.plan.plugin.manifest.limits.memory_bytes;
        let mut actions = inner.scheduler.pump(now, &mut || match self.machine.budget.lease(memory) {
            Some(lease) => {
                leases.push(lease);
                true
            }
            None => {
                starved = true;
                false
            }
        });
        inner.starved = starved;
        actions.extend(inner.scheduler.stop_surplus(now));
        self.execute(&mut inner, actions, leases);
    }

    /// Reports their queue positions to the waiting calls. Called periodically and not for every change: with a long
    /// queue, the reports would cost more than the calls.
    pub fn publish_positions(&self) {
        let inner = self.inner.lock();
        if inner.tickets.is_empty() {
            return;
        }
        for (ticket, position) in inner.scheduler.positions() {
            inner.notify_position(ticket, position);
        }
    }

    /// Reports its queue position to one call.
    fn publish_position(&self, ticket: TicketId, tenant: &str) {
        let inner = self.inner.lock();
        if let Some(position) = inner.scheduler.position(tenant, ticket) {
            inner.notify_position(ticket, position);
        }
    }

    /// Keeps the manifest's `min` workers from now on, but at least one.
    pub fn prewarm(self: &Arc<Self>) {
        self.inner.lock().scheduler.prewarm();
        self.pump();
    }

    pub fn drain(self: &Arc<Self>) {
        self.inner.lock().scheduler.drain();
        self.pump();
    }

    pub fn undrain(&self) {
        self.inner.lock().scheduler.undrain();
    }

    /// Whether nothing runs and nothing waits.
    pub fn is_empty(&self) -> bool {
        self.inner.lock().scheduler.is_empty()
    }

    pub fn is_draining(&self) -> bool {
        self.inner.lock().scheduler.is_draining()
    }

    /// Whether calls wait for a worker that the machine has no capacity for. Missing spare workers do not count.
    pub fn is_starved(&self) -> bool {
        let inner = self.inner.lock();
        inner.starved && inner.scheduler.counts().3 > 0
    }

    /// Returns the time since which the longest idle worker has had no calls; `None` if no worker is idle.
    pub fn idle_since(&self) -> Option<Instant> {
        self.inner.lock().scheduler.idle_since().map(|(since, _)| since)
    }

    /// Returns the time since which a worker has had nothing but subscriptions; `None` if there is no such worker.
    pub fn subscribed_since(&self) -> Option<Instant> {
        self.inner.lock().scheduler.subscribed_since().map(|(since, _)| since)
    }

    /// Ends the subscriptions of the worker that has had nothing else for longest, so that calls get its slot or its
    /// memory.
    pub fn unsubscribe_idle(&self) {
        let inner = self.inner.lock();
        let idlest = inner.scheduler.subscribed_since();
        if let Some(worker) = idlest.and_then(|(_, worker)| inner.workers.get(&worker)) {
            worker.unsubscribes.notify_waiters();
        }
    }

    /// Stops an idle worker in favour of another plugin; returns false if there is none.
    pub fn evict_idle(self: &Arc<Self>) -> bool {
        let mut inner = self.inner.lock();
        let Some(action) = inner.scheduler.evict_idle() else { return false };
        self.execute(&mut inner, vec![action], Vec::new());
        true
    }

    /// Asks the running calls to save their state and yield, if their plugin supports it: they continue elsewhere.
    pub fn ask_to_yield(&self) {
        self.inner.lock().workers.values().for_each(|worker| worker.yields.cancel());
    }

    /// Cancels the running calls and refuses the waiting ones. For a pool that drains.
    pub fn close(self: &Arc<Self>) {
        self.end_all(|worker| &worker.closes);
    }

    /// Stops all workers at once and refuses the waiting calls. For a pool that drains: no worker starts after it.
    pub fn stop(self: &Arc<Self>) {
        self.end_all(|worker| &worker.leave);
    }

    /// Refuses the waiting calls and cancels this token of every worker.
    fn end_all(self: &Arc<Self>, token: fn(&Worker) -> &CancellationToken) {
        let mut inner = self.inner.lock();
        let refused = inner.scheduler.refuse_waiting(Instant::now());
        self.execute(&mut inner, refused, Vec::new());
        inner.workers.values().for_each(|worker| token(worker).cancel());
    }

    pub fn workers(&self) -> Vec<Arc<Worker>> {
        self.inner.lock().workers.values().cloned().collect()
    }

    pub fn stats(&self) -> PoolStats {
        let mut inner = self.inner.lock();
        let scheduler = &mut inner.scheduler;
        let (workers, starting, active, queued) = scheduler.counts();
        PoolStats {
            workers,
            starting,
            active,
            queued,
            crashes: scheduler.crashes,
            host_failures: scheduler.host_failures,
            admitted_warm: scheduler.admitted_warm,
            admitted_cold: scheduler.admitted_cold,
            breaker: scheduler.breaker(),
            quarantined: scheduler.remaining_quarantine(Instant::now()),
            tenants_off: scheduler.tenants_off(Instant::now()),
            draining: scheduler.is_draining(),
        }
    }

    fn execute(self: &Arc<Self>, inner: &mut Inner, actions: Vec<Action>, mut leases: Vec<Lease>) {
        for action in actions {
            match action {
                Action::Start { worker } => {
                    // One lease was acquired for each start.
                    if let Some(lease) = leases.pop() {
                        self.tasks.spawn(Arc::clone(self).run_worker(worker, lease));
                    }
                }
                Action::Assign { ticket, worker } => {
                    if let Some(worker) = inner.workers.get(&worker).cloned() {
                        inner.notify(ticket, TicketState::Assigned(worker));
                    }
                }
                Action::Refuse { ticket, reason } => inner.notify(ticket, TicketState::Refused(reason)),
                Action::Retire { worker } => {
                    if let Some(worker) = inner.workers.get(&worker) {
                        worker.leave.cancel();
                    }
                }
                Action::Unsubscribe { worker } => {
                    if let Some(worker) = inner.workers.get(&worker) {
                        worker.unsubscribes.notify_waiters();
                    }
                }
            }
        }
    }

    /// Runs one worker from start to end.
    async fn run_worker(self: Arc<Self>, number: WorkerId, lease: Lease) {
        let began = Instant::now();
        match RunningWorker::start(&self.machine, &self.plan, number, lease).await {
            Ok(running) => {
                self.note_start(&running.worker, began.elapsed());
                {
                    let mut inner = self.inner.lock();
                    inner.workers.insert(number, Arc::clone(&running.worker));
                    inner.scheduler.ready(number, Instant::now());
                }
                self.pump();
                let worker = Arc::clone(&running.worker);
                let mut keeping = pin!(running.run_to_end());
                let (mut death, remains) = tokio::select! {
                    kept = &mut keeping => kept,
                    () = worker.lost.cancelled() => {
                        self.inner.lock().scheduler.mark_lost(number);
                        keeping.await
                    }
                };
                let used = ResourceUse::of(&worker.stats(), &worker.observed.vitals());
                self.totals.lock().record_end(used);
                // Counted before its calls are notified: a client that retries at once finds the plugin or tenant
                // quarantined if it is.
                let end = match death.crash() {
                    Some(_) => death.culprit.clone().map_or(WorkerEnd::Crashed, WorkerEnd::Overrun),
                    None => WorkerEnd::Went,
                };
                let quarantined = self.count_end(number, end);
                death.calls = worker.session.notify_end(death.cause.unwrap_or(Cause::Drained));
                self.note_death(&worker.id, &death, None, quarantined);
                // The calls have been notified; only the slot waits for the kernel.
                remains.clear().await;
            }
            Err(failed) => {
                let id = failed.remains.as_ref().map_or("", |process| process.id.as_str());
                let death =
                    Death { cause: Some(failed.cause), lived: began.elapsed(), calls: 0, culprit: None };
                let end = match (&failed.host, death.crash()) {
                    (Some(why), _) => WorkerEnd::Host(why.clone()),
                    (None, Some(_)) => WorkerEnd::FailedStart,
                    (None, None) => WorkerEnd::Went,
                };
                let quarantined = self.count_end(number, end);
                self.note_death(id, &death, failed.host.as_deref(), quarantined);
                if let Some(remains) = failed.remains {
                    remains.clear().await;
                }
            }
        }
        self.inner.lock().scheduler.remove_ended(number);
        self.pump();
    }

    /// Takes an ended worker out of service, and returns what is quarantined because of it.
    fn count_end(&self, number: WorkerId, end: WorkerEnd) -> QuarantineScope {
        let mut inner = self.inner.lock();
        inner.workers.remove(&number);
        inner.scheduler.record_end(number, end, rand::random(), Instant::now())
    }

    /// Reports an end that has been counted to operators, and frees the worker's slot; after a failure, also wakes the
    /// pool when its backoff ends.
    fn note_death(
        self: &Arc<Self>,
        id: &str,
        death: &Death,
        host: Option<&str>,
        quarantined: QuarantineScope,
    ) {
        match host {
            Some(why) => self.note_host_trouble(why),
            None => self.note_end(id, death),
        }
        self.note_quarantine(quarantined);
        self.pump();
        let failed = host.is_some() || death.crash().is_some();
        let wakes_at = self.inner.lock().scheduler.wakes_at(Instant::now());
        if let Some(wakes_at) = wakes_at.filter(|_| failed) {
            let pool = Arc::clone(self);
            // Bounded by the number of workers: each failed worker has one until its backoff ends.
            tokio::spawn(async move {
                sleep_until(wakes_at).await;
                pool.pump();
            });
        }
    }
}

impl Inner {
    fn notify_position(&self, ticket: TicketId, position: QueuePosition) {
        let Some(sender) = self.tickets.get(&ticket) else { return };
        sender.send_if_modified(|state| match state {
            TicketState::Waiting(known) if *known != position => {
                *known = position;
                true
            }
            _ => false,
        });
    }

    /// Sends a waiting call its final state.
    fn notify(&mut self, ticket: TicketId, state: TicketState) {
        if let Some(sender) = self.tickets.remove(&ticket) {
            sender.send_replace(state);
        }
    }
}
