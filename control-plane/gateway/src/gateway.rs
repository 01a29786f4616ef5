//! One replica: the stores, sessions, executors and the pipeline, wired together, and the snapshot they work by.
//!
//! Owns: what is applied, and the tasks that keep a replica going. Refuses: configuration of its own; everything
//! it knows came in a snapshot (I-5), and until the first one it is not ready.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use asp_edge::{Edge, Role};
use asp_platform::runtime_health::RuntimeHealth;
use asp_proto::snapshot::GatewaySnapshot;
use asp_snapshot::{PartChanges, PartFaults, Snapshot};
use asp_store::audit::{AuditLog, MemoryAudit};
use asp_store::blobs::{Blobs, MemoryBlobs};
use asp_store::counter::{Counters, MemoryCounters};
use asp_store::ledger::{Ledger, MemoryLedger};
use asp_store::records::{CallRecords, MemoryRecords};
use parking_lot::Mutex;
use secrecy::{ExposeSecret, SecretSlice};
use tokio::sync::watch;

use crate::call::registry::CallRegistry;
use crate::executors::artifacts::Artifacts;
use crate::executors::delegate::Delegates;
use crate::executors::delegate::endpoint::Endpoints;
use crate::executors::outbound::auth::Told;
use crate::executors::plugin::logs::LogListener;
use crate::executors::plugin::runtimes::Runtimes;
use crate::executors::plugin::{PluginDeps, Saved};
use crate::inspection::Inspections;
use crate::issuers::{IssuerDeps, Issuers};
use crate::minting::{self, Minter, TokenAudiences, TokenKeys};
use crate::pipeline::admission::{Admission, AdmissionBounds, RequestMemory};
use crate::pipeline::limits::Limiter;
use crate::pipeline::{Pipeline, PipelineDeps};
use crate::seal::{SealError, Sealer};
use crate::sessions::Sessions;
use crate::subscriptions::{self, Subscriptions};
use crate::telemetry::audit::Audit;
use crate::telemetry::metrics::Metrics;

mod shared;
pub mod standing;
mod wiring;

pub use shared::{EVENT_BYTES, Shared};

/// Most parts that one push writes a line about; `/api/snapshot` of the control plane names more.
const MAX_WARNED: usize = 20;
/// How often idle sessions and ended calls are forgotten.
const SWEEP_EVERY: Duration = Duration::from_secs(60);

/// How often a gateway says that it lives and looks for calls whose gateway does not: a lease outlives several.
const KEEP_EVERY: Duration = Duration::from_secs(2);
/// How soon it says so again where the store did not take it: a second attempt, with the two seconds that each may take,
/// is decided before the lease of 8 s ends.
const KEEP_AGAIN: Duration = Duration::from_millis(500);

/// Time that a flush waits for a store that does not take the ends of calls; the last one at a shutdown waits longer.
const FLUSH: Duration = Duration::from_secs(3);
const LAST_ENDS: Duration = Duration::from_secs(8);

/// Most responses that wait for something to happen to a call of REST, each a stream of events or a long request.
const WAITING: AdmissionBounds = AdmissionBounds { whole: 10_000, per_org: 4_000 };

/// The keys that seal what travels through clients; each at least 32 bytes.
pub struct SealKeys {
    pub current: SecretSlice<u8>,
    pub previous: Option<SecretSlice<u8>>,
}

impl SealKeys {
    fn sealer(&self) -> Result<Sealer, SealError> {
        let previous = self.previous.as_ref().map(|key| key.expose_secret());
        Sealer::new(self.current.expose_secret(), previous)
    }
}

/// What a gateway is started with.
pub struct Config {
    pub seal_keys: SealKeys,
    /// The origin clients use, no trailing slash.
    pub public_url: String,
    pub dev: bool,
    /// Whether everybody may list the servers that are exposed to all.
    pub registry: bool,
    /// Whether a mesh encrypts and authenticates connections, and so says who may connect.
    pub in_mesh: bool,
    pub stores: Stores,
    /// What signs the platform's tokens. Their owner is this run of the gateway.
    pub token_keys: Arc<TokenKeys>,
    /// The audiences of these tokens, and the primitives that get them.
    pub token_audiences: TokenAudiences,
    /// What runs plugins; [`Runtimes::none`] where nothing does.
    pub runtimes: Runtimes,
    /// The models of the platform, for delegations.
    pub delegates: Endpoints,
    /// What issuers are asked with.
    pub issuers: IssuerDeps,
    /// What services are told of calls.
    pub told: Told,
    /// The most calls at a time.
    pub bounds: AdmissionBounds,
    /// What requests take of memory at most, in bytes.
    pub memory: AdmissionBounds,
    /// The most who wait to be told of changes.
    pub subscriptions: subscriptions::Bounds,
    /// Who looks into arguments and outputs.
    pub inspections: Inspections,
    /// Who else hears what plugins log during calls.
    pub listener: Option<LogListener>,
}

/// The stores of one gateway.
pub struct Stores {
    /// The ledger of mutating calls (I-6).
    pub ledger: Arc<dyn Ledger>,
    pub audit: Arc<dyn AuditLog>,
    /// What running plugin calls have saved.
    pub active: Arc<dyn CallRecords>,
    /// The artifacts of plugin calls.
    pub blobs: Arc<dyn Blobs>,
    /// What is left of limits.
    pub counters: Arc<dyn Counters>,
    /// What gateways share of sessions and of what calls say, where there are several.
    pub shared: Option<Shared>,
}

impl Stores {
    /// Stores that end with the process: for tests, and where nothing must survive.
    pub fn in_memory() -> Stores {
        Stores {
            ledger: Arc::new(MemoryLedger::default()),
            audit: Arc::new(MemoryAudit::default()),
            active: Arc::new(MemoryRecords::default()),
            blobs: Arc::new(MemoryBlobs::default()),
            counters: Arc::new(MemoryCounters::default()),
            shared: None,
        }
    }
}

impl Config {
    fn settings(&self) -> Settings {
        let Config { public_url, dev, registry, in_mesh, .. } = self;
        Settings { public_url: public_url.clone(), dev: *dev, registry: *registry, in_mesh: *in_mesh }
    }
}

/// The public part of the configuration.
pub struct Settings {
    pub public_url: String,
    pub dev: bool,
    pub registry: bool,
    pub in_mesh: bool,
}

/// One replica.
pub struct Gateway {
    pub config: Settings,
    pub sealer: Arc<Sealer>,
    pub sessions: Sessions,
    /// Who is told of what changed.
    pub subscriptions: Arc<Subscriptions>,
    pub(crate) minter: Arc<Minter>,
    runtimes: Arc<Runtimes>,
    artifacts: Artifacts,
    pub pipeline: Arc<Pipeline>,
    pub(crate) issuers: Issuers,
    /// Responses that are held open until something happens.
    pub(crate) waiting: Arc<Admission>,
    /// What requests take until their calls have ended.
    pub(crate) memory: RequestMemory,
    edge: Edge,
    snapshot: ArcSwapOption<Snapshot>,
    /// The revision up to which all of it is in force, for those that wait for one.
    applied: watch::Sender<u64>,
    /// Serializes `apply`, so that revisions are compared and swapped together.
    applying: Mutex<()>,
    /// The store answers, and this gateway cannot use it.
    refused_by_store: AtomicBool,
}

impl Gateway {
    /// A gateway without a snapshot. Needs a running tokio runtime, for the audit writer.
    pub fn new(config: Config) -> anyhow::Result<Arc<Gateway>> {
        let settings = config.settings();
        let sealer = Arc::new(config.seal_keys.sealer()?);
        let metrics = Arc::new(Metrics::default());
        let runtimes = Arc::new(config.runtimes);
        let artifacts = Artifacts::new(config.stores.blobs);
        let issuers = Issuers::new(config.issuers)?;
        let minter = Arc::new(Minter::new(config.token_keys, config.public_url, config.token_audiences));
        let registry = Arc::new(CallRegistry::default());
        let counters = config.stores.counters;
        let (replicas, of_calls, answers) =
            shared::in_common(config.stores.shared, &counters, &sealer, minter.keys.owner());
        let active = wiring::active_table(config.stores.active, &minter, &sealer, &registry, of_calls);
        let deps = PluginDeps {
            saved: Saved { active: active.clone() },
            artifacts: artifacts.clone(),
            minter: minter.clone(),
            authorizer: Arc::new(wiring::authorizer(&minter, &issuers, config.told)),
            delegates: Arc::new(Delegates::new(config.delegates)?),
            listener: config.listener,
        };
        let pipeline = Arc::new(Pipeline::new(PipelineDeps {
            limiter: Limiter::new(counters),
            ledgers: wiring::ledgers(config.stores.ledger, answers, &active, &sealer),
            executor: Arc::new(wiring::executors(deps, &runtimes, &metrics)?),
            audit: Audit::new(config.stores.audit, metrics.audit_lost.clone()),
            inspections: config.inspections,
            metrics,
            bounds: config.bounds,
            registry,
            active,
            replicas: replicas.clone(),
        }));
        Ok(Arc::new(Gateway {
            config: settings,
            sessions: Sessions::new(sealer.clone(), replicas),
            subscriptions: wiring::listening(&pipeline, config.subscriptions),
            minter,
            runtimes,
            artifacts,
            pipeline,
            memory: RequestMemory::new(config.memory),
            waiting: Admission::of(WAITING, ["open responses", "open responses of the org"]),
            sealer,
            edge: Edge::new(Role::Gateway),
            issuers,
            snapshot: ArcSwapOption::empty(),
            applied: watch::Sender::new(0),
            applying: Mutex::default(),
            refused_by_store: AtomicBool::new(false),
        }))
    }

    /// Applies a snapshot whole; `Err` is the reason for the NACK, and what was known stays.
    pub fn apply(&self, snapshot: GatewaySnapshot) -> Result<(), String> {
        let _one_at_a_time = self.applying.lock();
        self.is_no_older(snapshot.revision)?;
        let snapshot = Snapshot::build(snapshot)?;
        let covers = snapshot.revision;
        self.put_in_force(snapshot, covers);
        Ok(())
    }

    /// Applies what can be applied of the changes up to a revision, and returns the parts that are not in force as they were
    /// sent. Up to `covers` they say all; what they say of later revisions is revocations alone. `Err` is the reason for the NACK,
    /// and what was known stays.
    pub fn apply_changes(
        &self,
        revision: u64,
        covers: u64,
        changes: PartChanges,
    ) -> Result<Arc<PartFaults>, String> {
        let _one_at_a_time = self.applying.lock();
        self.is_no_older(revision)?;
        let known = self.snapshot.load_full().unwrap_or_else(|| Arc::new(Snapshot::empty()));
        let next = known.applied(revision, changes)?;
        let faults = Arc::clone(next.faults());
        warn_of_faults(known.faults(), &faults);
        self.put_in_force(next, covers);
        Ok(faults)
    }

    fn is_no_older(&self, offered: u64) -> Result<(), String> {
        let known = self.revision();
        (offered >= known).then_some(()).ok_or_else(|| format!("revision {offered} is older than {known}"))
    }

    fn put_in_force(&self, snapshot: Snapshot, covers: u64) {
        let offered = snapshot.revision;
        let snapshot = Arc::new(snapshot);
        self.snapshot.store(Some(snapshot.clone()));
        self.pipeline.put_in_force(&snapshot);
        // After that: what has a runtime is told apart from what has none.
        self.subscriptions.apply(&snapshot);
        self.metrics().applied(offered);
        self.applied.send_replace(covers);
    }

    /// Notes that the control plane that is followed is fresh.
    pub fn control_is_fresh(&self) {
        self.metrics().control_is_fresh();
    }

    /// The applied revision; 0 before the first.
    pub fn revision(&self) -> u64 {
        self.snapshot.load().as_ref().map_or(0, |snapshot| snapshot.revision)
    }

    /// Waits until all of `revision` is in force, for at most `within`.
    pub(crate) async fn until(&self, revision: u64, within: Duration) {
        let mut applied = self.applied.subscribe();
        // Err: too late, or the gateway ends; whoever waits looks at what is there.
        let _ = tokio::time::timeout(within, applied.wait_for(|applied| *applied >= revision)).await;
    }

    /// Returns why this gateway should get no requests: it has no snapshot, or a store that it cannot use.
    pub fn unready(&self) -> Option<&'static str> {
        if self.snapshot.load().is_none() {
            return Some("no snapshot yet");
        }
        let is_refused = self.refused_by_store.load(Ordering::Acquire);
        is_refused.then_some("the database answers and this gateway cannot use it; its log says why")
    }

    /// Notes whether the store answers and refuses this gateway, as one with tables of another version does.
    pub fn set_refused_by_store(&self, is_refused: bool) {
        self.refused_by_store.store(is_refused, Ordering::Release);
    }

    /// Forgets what has expired until the gateway is dropped; run it as a task.
    pub async fn sweep(gateway: std::sync::Weak<Gateway>) {
        let mut ticks = tokio::time::interval(SWEEP_EVERY);
        loop {
            ticks.tick().await;
            let Some(gateway) = gateway.upgrade() else { return };
            gateway.sessions.sweep();
            gateway.subscriptions.sweep();
            gateway.pipeline.sweep();
            if let Err(error) = gateway.artifacts.sweep().await {
                tracing::warn!(error = %error, "artifacts past their time were not deleted, and are tried again in a minute: they take room until then; check the artifact store");
            }
        }
    }

    /// Says that this gateway lives until it is dropped; run it as a task.
    pub async fn keep_calls(gateway: std::sync::Weak<Gateway>) {
        let mut ticks = tokio::time::interval(KEEP_EVERY);
        let mut is_failing = false;
        loop {
            ticks.tick().await;
            let Some(gateway) = gateway.upgrade() else { return };
            // Before everything else: who comes too late loses its calls.
            let renewed = gateway.pipeline.renew_lease().await;
            match &renewed {
                Err(error) if !is_failing => {
                    tracing::warn!(%error, "this gateway could not renew its lease in the store; after 8 s without, others take over its calls: check the store");
                }
                Ok(()) if is_failing => tracing::info!("this gateway's lease in the store is renewed again"),
                Ok(()) | Err(_) => {}
            }
            is_failing = renewed.is_err();
            if is_failing {
                ticks.reset_after(KEEP_AGAIN);
            }
            gateway.subscriptions.look();
        }
    }

    /// Changes the key of this gateway's tokens and keeps it published until the gateway is dropped; run it as a task.
    pub async fn keep_token_keys(gateway: std::sync::Weak<Gateway>) {
        let mut ticks = tokio::time::interval(minting::KEEP_EVERY);
        loop {
            ticks.tick().await;
            let Some(gateway) = gateway.upgrade() else { return };
            if !gateway.minter.keys.keep().await {
                ticks.reset_after(minting::KEEP_AGAIN);
            }
        }
    }

    /// Goes on with the calls of gateways that are gone, until this one is dropped; run it as a task.
    pub async fn take_over_calls(gateway: std::sync::Weak<Gateway>) {
        let mut ticks = tokio::time::interval(KEEP_EVERY);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let Some(gateway) = gateway.upgrade() else { return };
            let Some(snapshot) = gateway.snapshot() else { continue };
            if let Err(error) = gateway.pipeline.take_over(&snapshot).await {
                tracing::warn!(%error, "the store does not say which calls of gateways that are gone wait to be taken over; they wait until it does");
            }
        }
    }

    /// How the plugin runtimes are, for operators.
    pub async fn runtimes(&self) -> Vec<RuntimeHealth> {
        self.runtimes.health().await
    }

    /// Returns when the audit events of every ended call are durable and its worker's place is given back.
    pub async fn flush(&self) {
        self.flush_within(FLUSH).await;
    }

    async fn flush_within(&self, longest: Duration) {
        self.pipeline.drained(longest).await;
    }

    /// Leaves the calls that can go on elsewhere to another gateway, ends the others, then flushes. The last step of a shutdown.
    pub async fn stop(&self) {
        self.pipeline.hand_on().await;
        self.pipeline.end_calls().await;
        self.flush_within(LAST_ENDS).await;
        self.pipeline.retire().await;
        self.minter.keys.withdraw().await;
    }

    pub(crate) fn snapshot(&self) -> Option<Arc<Snapshot>> {
        self.snapshot.load_full()
    }

    pub(crate) fn edge(&self) -> &Edge {
        &self.edge
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        self.pipeline.metrics()
    }
}

/// Warns once of each part that is not in force as it was sent.
fn warn_of_faults(known: &PartFaults, faults: &PartFaults) {
    let new: Vec<_> = faults.iter().filter(|(name, fault)| known.get(*name) != Some(*fault)).collect();
    for (part, fault) in new.iter().take(MAX_WARNED) {
        tracing::warn!(
            part = %part, reason = %fault.reason, in_force = fault.in_force,
            "part of the snapshot could not be applied; update this gateway, or mend the part"
        );
    }
    if new.len() > MAX_WARNED {
        let count = new.len() - MAX_WARNED;
        tracing::warn!(count, "more parts of the snapshot could not be applied");
    }
}
