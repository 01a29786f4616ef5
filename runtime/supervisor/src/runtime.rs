//! All pools and tunnels of this runtime, and the periodic task that advances them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use asp_proto::grace::{CALL_YIELDS_WITHIN, WORKER_STOPS_WITHIN};
use asp_proto::supervisor::health_response::Status as Health;
use asp_proto::supervisor::{LineProtocol, PluginRef};
use parking_lot::Mutex;
use prost_types::{Struct, Value};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::egress::CredentialLease;
use crate::plugin::installed::{Plugin, PluginKey};
use crate::plugin::language;
use crate::plugin::manifest::Language;
use crate::pool::sampling;
use crate::pool::scheduler::QueuePosition;
use crate::pool::{Pool, TicketState, WorkerRequest};
use crate::ppp::outbox::budget::OutboxBudget;
use crate::ppp::{fields, number};
use crate::refusal::Refusal;
use crate::tunnel::peer::Peer;
use crate::tunnel::{AttachedTunnel, Handles};
use crate::worker::process::Machine;
use crate::worker::session::StillRuns;

/// Maximum number of pools; when it is reached, an idle pool is removed.
const MAX_POOLS: usize = 512;
/// Interval at which queue positions, idle workers and handles of ended tunnels are checked.
const TICK: Duration = Duration::from_millis(250);
/// Time that workers have to exit after a drain.
const STOP_WITHIN: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub struct Runtime {
    pub machine: Arc<Machine>,
    pub handles: Arc<Handles>,
    pub outboxes: Arc<OutboxBudget>,
    pub tasks: TaskTracker,
    pools: Mutex<BTreeMap<PluginKey, Arc<Pool>>>,
    /// Pools whose plugin was replaced, kept until their last call has ended.
    retired: Mutex<Vec<Arc<Pool>>>,
    draining: AtomicBool,
    /// Cancelled when no tunnel is left and none will come.
    stopped: CancellationToken,
}

/// A call's admission.
#[derive(Debug)]
pub struct Allocation {
    pub tunnel_id: String,
    /// The worker's id, or the position in the queue.
    pub worker: Result<String, QueuePosition>,
    pub attached: AttachedTunnel,
}

/// A gateway's request for a worker.
#[derive(Debug)]
pub struct Request {
    pub plugin: PluginRef,
    /// Protocol of a stdio server.
    pub lines: Option<LineProtocol>,
    pub tenant: String,
    pub mcp_request_id: String,
    pub soft_deadline: Option<Duration>,
    pub fresh: bool,
    /// Credential that the egress proxy adds to the worker's requests to one origin.
    pub lease: Option<Arc<CredentialLease>>,
    /// Whether the call is a subscription: it lasts, and calls may evict it.
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

    /// Makes sure that `plugin` can run, and ends an earlier drain of it. `lines`: the protocol of a stdio server.
    pub async fn ensure(
        &self,
        plugin: &PluginRef,
        lines: Option<LineProtocol>,
        prewarm: bool,
    ) -> Result<(), Refusal> {
        self.retire_replaced(plugin).await;
        let pool = self.pool(plugin).await?;
        pool.plan.set_lines(lines)?;
        {
            let pools = self.pools.lock();
            self.check_open()?;
            // A drain covers the pools of all networks and secrets, and so does its end.
            pools.values().filter(|pool| pool.key.is_of(plugin)).for_each(|pool| pool.undrain());
        }
        // Such a worker may not start without its secrets, and which primitive will use it is not known yet.
        if pool.plan.plugin.has_secrets() {
            return Ok(());
        }
        if prewarm || pool.plan.plugin.manifest.pool.min > 0 {
            pool.prewarm();
        }
        Ok(())
    }

    /// Requests a worker for one call of `peer`, now or later.
    pub async fn allocate(&self, peer: Peer, request: Request) -> Result<Allocation, Refusal> {
        let pool = self.pool(&request.plugin).await?;
        pool.plan.set_lines(request.lines)?;
        let soft_deadline = request.soft_deadline.map(|limit| Instant::now() + limit);
        let Request { tenant, fresh, subscription, .. } = request;
        // A subscription's lifetime does not limit how long it may wait for a worker.
        let deadline = soft_deadline.filter(|_| !subscription);
        let wanted = WorkerRequest { tenant, fresh, deadline, subscription };
        let ticket = pool.admit(wanted)?;
        let worker = match ticket.state() {
            TicketState::Assigned(worker) => Ok(worker.id.clone()),
            TicketState::Waiting(position) => Err(position),
            TicketState::Refused(reason) => return Err(reason),
        };
        let opened = self.handles.open(peer, request.mcp_request_id);
        let (tunnel_id, cancel) = opened.ok_or(Refusal::Tunnels)?;
        let attached = AttachedTunnel { ticket, soft_deadline, lease: request.lease, cancel };
        Ok(Allocation { tunnel_id, worker, attached })
    }

    /// Lets a plugin's calls finish and admits no new ones. Returns when no call is left, or ends the remaining ones
    /// once `limit` has passed. Shortly before that, calls that save their state are asked to yield, and then all calls
    /// are cancelled.
    pub async fn drain(&self, plugin: &PluginRef, limit: Duration) {
        let mut pools: Vec<Arc<Pool>> = self.pools.lock().values().cloned().collect();
        pools.retain(|pool| pool.key.is_of(plugin));
        pools.iter().for_each(Pool::drain);
        if !wind_down(&pools, limit, || pools.iter().all(|pool| pool.is_empty())).await {
            pools.iter().for_each(Pool::stop);
        }
    }

    /// Ends the execution of a call, whichever plugin runs it, and returns when it has ended.
    pub async fn end_execution(&self, request_id: &str) -> Result<(), StillRuns> {
        // At most one pool has it, which may be one that is being replaced.
        for pool in self.all_pools() {
            pool.plan.executions.end_previous(request_id).await?;
        }
        Ok(())
    }

    /// Drains everything: running calls have `limit`, then the workers are stopped.
    pub async fn shut_down(&self, limit: Duration) {
        self.draining.store(true, Ordering::Relaxed);
        let pools = self.all_pools();
        pools.iter().for_each(Pool::drain);
        // With this sample, gateways choose another runtime at once, without asking this one first.
        sampling::now(&pools).into_iter().for_each(|sample| self.machine.metrics.send(sample));
        let idle = || pools.iter().map(|pool| pool.stats()).all(|stats| stats.active + stats.queued == 0);
        if !wind_down(&pools, limit, idle).await {
            tracing::warn!("calls were still running when the drain ended; they end with their workers");
        }
        pools.iter().for_each(Pool::stop);
        self.tasks.close();
        if timeout(STOP_WITHIN, self.tasks.wait()).await.is_err() {
            tracing::warn!(
                "workers were still running when the drain ended; the kernel ends them with the runtime"
            );
        }
        self.stopped.cancel();
    }

    /// Waits until [`Runtime::shut_down`] has finished.
    pub async fn wait_until_stopped(&self) {
        self.stopped.cancelled().await;
    }

    /// Advances queues, idle workers and handles; never returns.
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
                // The worker that has been idle for longest; none if all have calls.
                let idle = others.filter_map(|other| Some((other.idle_since()?, other)));
                if let Some((_, idlest)) = idle.min_by_key(|(since, _)| *since) {
                    idlest.evict_idle();
                    continue;
                }
                // Otherwise, evicts the subscriptions of a worker that has nothing else, first one of the starved pool,
                // where it can serve the waiting calls at once.
                let own = starved.subscribed_since().map(|since| (since, starved));
                let subscribed = pools.iter().filter_map(|pool| Some((pool.subscribed_since()?, pool)));
                if let Some((_, idlest)) = own.or_else(|| subscribed.min_by_key(|(since, _)| *since)) {
                    idlest.unsubscribe_idle();
                }
            }
        }
    }

    /// The runtime's state, for operators and health checks.
    pub fn health(&self) -> (Health, Struct) {
        let settings = &self.machine.settings;
        let runtimes = Language::ALL.map(|language| {
            let there = language::present(&settings.languages, language);
            (language.name().to_owned(), Value::from(if there { "present" } else { "absent" }))
        });
        let probe = &self.machine.probe;
        let missing = probe.missing.iter();
        let missing =
            missing.map(|(level, why)| (format!("level{}", level.number()), Value::from(why.as_str())));
        let pools: Vec<Arc<Pool>> = self.pools.lock().values().cloned().collect();
        let degraded = pools.iter().any(|pool| {
            let stats = pool.stats();
            stats.quarantined.is_some() || stats.breaker != "closed"
        });
        let (memory, memory_left, workers, workers_left) = self.machine.budget.stats();
        let draining = self.draining.load(Ordering::Relaxed);
        let details = fields([
            ("languages", BTreeMap::from(runtimes).into()),
            ("isolation_level", number(self.machine.level.number())),
            ("bounds", probe.bounds.name().into()),
            ("bounds_reason", probe.no_cgroup.as_deref().unwrap_or_default().into()),
            ("own_user", probe.own_user.into()),
            ("missing", missing.collect::<BTreeMap<_, _>>().into()),
            ("memory_budget", number(memory)),
            ("memory_left", number(memory_left)),
            ("max_workers", number(workers as u64)),
            ("workers_left", number(workers_left as u64)),
            ("tunnels", number(self.handles.len() as u64)),
            ("draining", draining.into()),
            ("plugins", sampling::plugins(&pools).into()),
        ]);
        let status = if draining || degraded { Health::Degraded } else { Health::Ok };
        (status, details)
    }

    /// Returns all pools, including those whose plugin was replaced.
    pub fn all_pools(&self) -> Vec<Arc<Pool>> {
        let mut pools: Vec<Arc<Pool>> = self.pools.lock().values().cloned().collect();
        pools.extend(self.retired.lock().iter().cloned());
        pools
    }

    /// Returns the pools of a plugin, whatever secrets their workers have.
    fn pools_of(&self, key: &PluginKey) -> Vec<Arc<Pool>> {
        let key = &PluginKey { secrets: Vec::new(), ..key.clone() };
        let pools = self.pools.lock();
        let beside = pools.range(key.clone()..).take_while(|(other, _)| other.differs_only_in_secrets(key));
        beside.map(|(_, pool)| Arc::clone(pool)).collect()
    }

    /// Refuses work once the runtime shuts down. Under the lock of the pools this is final: a shutdown that begins later
    /// drains what was changed.
    fn check_open(&self) -> Result<(), Refusal> {
        if self.draining.load(Ordering::Relaxed) { Err(Refusal::Draining) } else { Ok(()) }
    }

    /// Returns the pool of an installed plugin whose workers have the networks and secrets of the primitive it is
    /// called as, and creates it if there is none.
    async fn pool(&self, wanted: &PluginRef) -> Result<Arc<Pool>, Refusal> {
        self.check_open()?;
        let routes = &self.machine.settings.egress_allow_private;
        let mut key = PluginKey::of(wanted, routes);
        let beside = self.pools_of(&key);
        if let Some(pool) = beside.first() {
            key.secrets = self.machine.granted_secrets(&pool.plan.plugin, wanted);
        }
        if let Some(pool) = beside.into_iter().find(|pool| pool.key == key) {
            *pool.asked_for.lock() = Instant::now();
            pool.plan.plugin.check_reference(wanted)?;
            return Ok(pool);
        }
        let plugins = self.machine.settings.plugins.clone();
        let asked = wanted.clone();
        let loaded = tokio::task::spawn_blocking(move || Plugin::load(&plugins, &asked)).await;
        let mut plugin = loaded.map_err(|_| Refusal::NotInstalled("it could not be read".to_owned()))??;
        plugin.private = key.routes.iter().filter_map(|number| routes.get(*number)).cloned().collect();
        key.secrets = self.machine.granted_secrets(&plugin, wanted);
        let pool = Pool::new(&self.machine, key.clone(), plugin, self.tasks.clone())?;
        let mut pools = self.pools.lock();
        self.check_open()?;
        if pools.len() >= MAX_POOLS {
            let idle = pools.iter().filter(|(_, pool)| pool.is_empty());
            let idle = idle.min_by_key(|(_, pool)| *pool.asked_for.lock()).map(|(key, _)| key.clone());
            match idle {
                Some(idle) => pools.remove(&idle),
                None => return Err(Refusal::Overload),
            };
        }
        // A concurrent request may have inserted it first.
        Ok(Arc::clone(pools.entry(key).or_insert(pool)))
    }

    /// Retires the pool of a plugin that was reinstalled under the same version: it finishes its calls, and the next
    /// request gets a new pool.
    async fn retire_replaced(&self, plugin: &PluginRef) {
        let of_version = |key: &PluginKey| key.id == plugin.id && key.version == plugin.version;
        let mut pools: Vec<Arc<Pool>> = self.pools.lock().values().cloned().collect();
        pools.retain(|pool| of_version(&pool.key));
        for pool in pools {
            let installed = Arc::clone(&pool.plan.plugin);
            let replaced = tokio::task::spawn_blocking(move || installed.is_replaced()).await;
            if replaced.unwrap_or(false) {
                // In one of the two at any time, so that a shutdown finds it.
                self.retired.lock().push(Arc::clone(&pool));
                self.pools.lock().retain(|_, other| !Arc::ptr_eq(other, &pool));
                pool.drain();
            }
        }
    }
}

/// Waits until the draining `pools` are `done`, at most for `limit`; returns false if they are not. The caller then
/// stops whatever still runs, so calls are asked to yield and then cancelled before that: they continue elsewhere, or
/// clean up.
async fn wind_down(pools: &[Arc<Pool>], limit: Duration, done: impl Fn() -> bool) -> bool {
    let to_yield = CALL_YIELDS_WITHIN.min(limit / 4);
    let to_end = WORKER_STOPS_WITHIN.min(limit / 4);
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

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    const MANIFEST: &str = r#"{"format": 1, "id": "echo", "version": "1.0.0", "kind": "tool", "mode": "plugin",
        "language": "python", "entrypoint": "echo.py",
        "artifactSha256": "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}"#;

    #[test]
    fn a_plugin_that_is_still_read_when_the_runtime_shuts_down_gets_no_pool() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let version = root.join("echo/1.0.0");
        std::fs::create_dir_all(version.join("package")).unwrap();
        std::fs::write(version.join("plugin.json"), MANIFEST).unwrap();
        std::fs::write(version.join("package/echo.py"), "").unwrap();
        let plugin = PluginRef { id: "echo".into(), version: "1.0.0".into(), ..PluginRef::default() };
        // One thread reads plugins.
        let mut executor = tokio::runtime::Builder::new_current_thread();
        executor.enable_all().max_blocking_threads(1).build().unwrap().block_on(async {
            let runtime = Runtime::new(Machine::stand_in(&root));
            let (go, waits) = std::sync::mpsc::channel();
            let busy = tokio::task::spawn_blocking(move || waits.recv());
            let mut asking = Box::pin(runtime.pool(&plugin));
            assert!(asking.as_mut().now_or_never().is_none());
            runtime.shut_down(Duration::ZERO).await;
            go.send(()).unwrap();
            busy.await.unwrap().unwrap();
            assert_eq!(asking.await.unwrap_err(), Refusal::Draining);
            assert!(runtime.all_pools().is_empty());
        });
    }
}
