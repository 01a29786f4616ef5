//! All pools and tunnels of this runtime, and the clockwork that keeps them moving.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use asp_proto::supervisor::PluginRef;
use asp_proto::supervisor::health_response::Status as Health;
use parking_lot::Mutex;
use prost_types::Struct;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::egress::Lent;
use crate::plugin::installed::{Plugin, PluginKey};
use crate::plugin::language;
use crate::plugin::manifest::Language;
use crate::pool::sampling;
use crate::pool::{Pool, TicketState, Wanted};
use crate::ppp::outbox::budget::Budget;
use crate::ppp::{boolean, fields, number, object, text};
use crate::refusal::Refusal;
use crate::tunnel::handles::{Handles, Offer, TooMany};
use crate::tunnel::peer::Peer;
use crate::worker::call::GRACE;
use crate::worker::executions::StillRuns;
use crate::worker::process::Machine;

/// Plugin versions that are known at a time; idle ones give way.
const MAX_POOLS: usize = 512;
/// Queue positions, idle workers and expired handles are looked at this often.
const TICK: Duration = Duration::from_millis(250);
/// Before the end of a drain: for calls to save what they have and yield.
const YIELD_WITHIN: Duration = Duration::from_secs(10);
/// After a drain: for the workers to go.
const STOP_WITHIN: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub struct Runtime {
    pub machine: Arc<Machine>,
    pub handles: Arc<Handles>,
    pub outboxes: Arc<Budget>,
    pub tasks: TaskTracker,
    pools: Mutex<BTreeMap<PluginKey, Arc<Pool>>>,
    /// Pools whose plugin was replaced, until their last call has ended.
    retired: Mutex<Vec<Arc<Pool>>>,
    draining: AtomicBool,
    /// No tunnel is left and none will come.
    stopped: CancellationToken,
}

/// A call's admission.
#[derive(Debug)]
pub struct Allocation {
    pub tunnel_id: String,
    pub state: TicketState,
}

/// What a gateway wants to allocate.
#[derive(Debug)]
pub struct Request {
    pub plugin: PluginRef,
    pub tenant: String,
    pub mcp_request_id: String,
    pub soft_deadline: Option<Duration>,
    pub fresh: bool,
    /// Proves what its worker sends to one origin.
    pub lent: Option<Arc<Lent>>,
    /// It stays, and gives way to calls.
    pub subscription: bool,
}

impl Runtime {
    pub fn new(machine: Machine) -> Arc<Runtime> {
        Arc::new(Runtime {
            machine: Arc::new(machine),
            handles: Arc::default(),
            outboxes: Arc::default(),
            tasks: TaskTracker::new(),
            pools: Mutex::new(BTreeMap::new()),
            retired: Mutex::new(Vec::new()),
            draining: AtomicBool::new(false),
            stopped: CancellationToken::new(),
        })
    }

    /// Makes sure that `plugin` can run; it runs again if it was drained.
    pub async fn ensure(&self, plugin: &PluginRef, prewarm: bool) -> Result<(), Refusal> {
        self.retire_replaced(plugin).await;
        let pool = self.pool(plugin).await?;
        // What a drain took: the pools of all networks and secrets.
        self.pools.lock().values().filter(|pool| pool.key.is_of(plugin)).for_each(|pool| pool.undrain());
        // Without its secrets such a server may not even start, and who will use it is not known yet.
        if pool.plan.plugin.secrets().next().is_some() {
            return Ok(());
        }
        if prewarm || pool.plan.plugin.manifest.pool.min > 0 {
            pool.prewarm();
        }
        Ok(())
    }

    /// A worker for one call of `peer`, now or later.
    pub async fn allocate(&self, peer: Peer, request: Request) -> Result<Allocation, Refusal> {
        let pool = self.pool(&request.plugin).await?;
        let soft_deadline = request.soft_deadline.map(|limit| Instant::now() + limit);
        let Request { tenant, fresh, subscription, .. } = request;
        // How long a subscription may last says nothing of how long it may wait for a worker.
        let deadline = soft_deadline.filter(|_| !subscription);
        let wanted = Wanted { tenant, fresh, deadline, subscription };
        let ticket = pool.admit(wanted)?;
        let state = ticket.state();
        if let TicketState::Refused(reason) = state {
            return Err(reason);
        }
        let offered = self.handles.offer(
            peer,
            request.mcp_request_id,
            Offer { ticket, soft_deadline, lent: request.lent },
        );
        let tunnel_id = offered.map_err(|TooMany| Refusal::Tunnels)?;
        Ok(Allocation { tunnel_id, state })
    }

    /// Lets a plugin's calls finish and admits no new ones. Ends when it is empty or `limit` has passed; then
    /// the rest is ended. Shortly before, calls that save their state are asked to yield, and then all are told
    /// to end.
    pub async fn drain(&self, plugin: &PluginRef, limit: Duration) {
        let mut pools: Vec<Arc<Pool>> = self.pools.lock().values().cloned().collect();
        pools.retain(|pool| pool.key.is_of(plugin));
        pools.iter().for_each(Pool::drain);
        if !wind_down(&pools, limit, || pools.iter().all(|pool| pool.is_empty())).await {
            pools.iter().for_each(Pool::stop);
        }
    }

    /// Ends the execution of a call, of whatever plugin it is, and returns when it has ended.
    pub async fn end_execution(&self, request_id: &str) -> Result<(), StillRuns> {
        // One pool at most has it; one that is being replaced too.
        for pool in self.all_pools() {
            pool.plan.executions.succeed(request_id).await?;
        }
        Ok(())
    }

    /// Drains everything: running calls have `limit`, then the workers go.
    pub async fn shut_down(&self, limit: Duration) {
        self.draining.store(true, Ordering::Relaxed);
        let pools = self.all_pools();
        pools.iter().for_each(Pool::drain);
        // Gateways choose another runtime from now on, without asking this one first.
        sampling::now(&pools).into_iter().for_each(|sample| self.machine.metrics.send(sample));
        let idle = || pools.iter().map(|pool| pool.stats()).all(|stats| stats.active + stats.queued == 0);
        if !wind_down(&pools, limit, idle).await {
            tracing::warn!(
                "calls were still running when the time for the drain was over: they end with their workers"
            );
        }
        pools.iter().for_each(Pool::stop);
        self.tasks.close();
        if timeout(STOP_WITHIN, self.tasks.wait()).await.is_err() {
            tracing::warn!(
                "workers were still there when the time for the drain was over: the kernel ends them with the runtime"
            );
        }
        self.stopped.cancel();
    }

    /// Ends when [`Runtime::shut_down`] has.
    pub async fn stopped(&self) {
        self.stopped.cancelled().await;
    }

    /// Keeps queues, idle workers and handles moving, for ever.
    pub async fn tick(self: Arc<Self>) {
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                () = self.machine.budget.freed() => {}
            }
            self.handles.sweep();
            self.retired.lock().retain(|pool| !pool.is_empty());
            let pools = self.all_pools();
            for pool in &pools {
                pool.pump();
                pool.check_quiescence();
                pool.publish_positions();
            }
            for starved in pools.iter().filter(|pool| pool.is_starved()) {
                let others = pools.iter().filter(|other| !Arc::ptr_eq(other, starved));
                // The worker that was not needed for longest; none: they all have calls.
                let idle = others.filter_map(|other| Some((other.idle_since()?, other)));
                if let Some((_, idlest)) = idle.min_by_key(|(since, _)| *since) {
                    idlest.yield_idle();
                    continue;
                }
                // One that has nothing but subscriptions is idle without them; the pool's own serves its calls at once.
                let own = starved.subscribed_since().map(|since| (since, starved));
                let subscribed = pools.iter().filter_map(|pool| Some((pool.subscribed_since()?, pool)));
                if let Some((_, idlest)) = own.or_else(|| subscribed.min_by_key(|(since, _)| *since)) {
                    idlest.unsubscribe_idle();
                }
            }
        }
    }

    /// The state of everything, for people and probes.
    pub fn health(&self) -> (Health, Struct) {
        let settings = &self.machine.settings;
        let runtimes = Language::ALL.map(|language| {
            let there = language::present(&settings.languages, language);
            (language.name().to_owned(), text(if there { "present" } else { "absent" }))
        });
        let missing = self.machine.missing.iter();
        let missing = missing.map(|(level, why)| (format!("level{}", level.number()), text(why.as_str())));
        let pools: Vec<Arc<Pool>> = self.pools.lock().values().cloned().collect();
        let degraded = pools.iter().any(|pool| {
            let stats = pool.stats();
            stats.quarantined.is_some() || stats.breaker != "closed"
        });
        let (memory, memory_left, workers, workers_left) = self.machine.budget.stats();
        let draining = self.draining.load(Ordering::Relaxed);
        let details = fields([
            ("languages", object(Struct { fields: runtimes.into_iter().collect() })),
            ("isolation_level", number(self.machine.level.number())),
            ("bounds", text(self.machine.bounds().name())),
            ("bounds_reason", text(self.machine.no_cgroup.as_deref().unwrap_or_default())),
            ("own_user", boolean(self.machine.own_user)),
            ("missing", object(Struct { fields: missing.collect() })),
            ("memory_budget", number(memory)),
            ("memory_left", number(memory_left)),
            ("max_workers", number(workers as u64)),
            ("workers_left", number(workers_left as u64)),
            ("tunnels", number(self.handles.len() as u64)),
            ("draining", boolean(draining)),
            ("plugins", object(sampling::plugins(&pools))),
        ]);
        let status = if draining || degraded { Health::Degraded } else { Health::Ok };
        (status, details)
    }

    /// Also those whose plugin was replaced.
    pub fn all_pools(&self) -> Vec<Arc<Pool>> {
        let mut pools: Vec<Arc<Pool>> = self.pools.lock().values().cloned().collect();
        pools.extend(self.retired.lock().iter().cloned());
        pools
    }

    /// The pools of a plugin, whatever secrets their workers have.
    fn pools_of(&self, key: &PluginKey) -> Vec<Arc<Pool>> {
        let key = &PluginKey { secrets: Vec::new(), ..key.clone() };
        let pools = self.pools.lock();
        let beside = pools.range(key.clone()..).take_while(|(other, _)| other.is_beside(key));
        beside.map(|(_, pool)| Arc::clone(pool)).collect()
    }

    /// The pool of an installed plugin whose workers have the networks and secrets of what it is called for, made when there
    /// is none.
    async fn pool(&self, wanted: &PluginRef) -> Result<Arc<Pool>, Refusal> {
        if self.draining.load(Ordering::Relaxed) {
            return Err(Refusal::Draining);
        }
        let routes = &self.machine.settings.egress_allow_private;
        let mut key = PluginKey::of(wanted, routes);
        let beside = self.pools_of(&key);
        if let Some(pool) = beside.first() {
            key.secrets = self.machine.granted(&pool.plan.plugin, &wanted.called_as);
        }
        if let Some(pool) = beside.into_iter().find(|pool| pool.key == key) {
            pool.touch();
            pool.plan.plugin.check_reference(wanted)?;
            return Ok(pool);
        }
        let plugins = self.machine.settings.plugins.clone();
        let asked = wanted.clone();
        let loaded = tokio::task::spawn_blocking(move || Plugin::load(&plugins, &asked)).await;
        let mut plugin = loaded.map_err(|_| Refusal::NotInstalled("it could not be read".to_owned()))??;
        plugin.private = key.routes.iter().filter_map(|number| routes.get(*number)).cloned().collect();
        key.secrets = self.machine.granted(&plugin, &wanted.called_as);
        let pool = Pool::new(&self.machine, key.clone(), plugin, self.tasks.clone())?;
        let mut pools = self.pools.lock();
        if pools.len() >= MAX_POOLS {
            let idle = pools.iter().filter(|(_, pool)| pool.is_empty());
            let idle = idle.min_by_key(|(_, pool)| pool.asked_for()).map(|(key, _)| key.clone());
            match idle {
                Some(idle) => pools.remove(&idle),
                None => return Err(Refusal::Overload),
            };
        }
        // Somebody may have been faster.
        Ok(Arc::clone(pools.entry(key).or_insert(pool)))
    }

    /// A plugin that was installed anew under its version gets a new pool; the old one finishes its calls.
    async fn retire_replaced(&self, plugin: &PluginRef) {
        let of_version = |key: &PluginKey| key.id == plugin.id && key.version == plugin.version;
        let mut pools: Vec<Arc<Pool>> = self.pools.lock().values().cloned().collect();
        pools.retain(|pool| of_version(&pool.key));
        for pool in pools {
            let installed = Arc::clone(&pool.plan.plugin);
            let replaced = tokio::task::spawn_blocking(move || installed.is_replaced()).await;
            if replaced.unwrap_or(false) {
                self.pools.lock().remove(&pool.key);
                pool.drain();
                self.retired.lock().push(pool);
            }
        }
    }
}

/// Waits until the draining `pools` are `done`, at most for `limit`; false when they are not. What runs then is
/// ended by the caller, so its calls are told before: they go on elsewhere, or clean up.
async fn wind_down(pools: &[Arc<Pool>], limit: Duration, done: impl Fn() -> bool) -> bool {
    let to_yield = YIELD_WITHIN.min(limit / 4);
    let to_end = GRACE.min(limit / 4);
    let within = async |limit| {
        let wait = async {
            while !done() {
                sleep(TICK / 10).await;
            }
        };
        timeout(limit, wait).await.is_ok()
    };
    if within(limit.saturating_sub(to_yield + to_end)).await {
        return true;
    }
    pools.iter().for_each(|pool| pool.ask_to_yield());
    if within(to_yield).await {
        return true;
    }
    pools.iter().for_each(Pool::close);
    within(to_end).await
}
