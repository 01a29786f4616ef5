//! One replica: its stores, sessions, backends and pipeline, wired together, and the snapshot in force.
//!
//! Owns: the applied snapshot, and the background tasks of a replica. Refuses: configuration of its own; everything it
//! knows comes from a snapshot (I-5), and until the first one arrives it is not ready.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use asp_backends::BackendTable;
use asp_backends::artifacts::Artifacts;
use asp_backends::delegate::Delegates;
use asp_backends::delegate::endpoint::Endpoints;
use asp_backends::outbound::auth::CallHeaders;
use asp_backends::outbound::breaker::UpstreamFailure;
use asp_backends::plugin::LogListener;
use asp_backends::plugin::{PluginDeps, SavedCalls};
use asp_call::call::registry::CallRegistry;
use asp_call::seal::Sealer;
use asp_call::telemetry::audit::Audit;
use asp_call::telemetry::metrics::RevocationStage;
use asp_edge::{Edge, EdgeRole};
use asp_identity::issuers::{IssuerDeps, Issuers};
use asp_identity::minting::{self, CardKeys, TokenAudiences, TokenKeys};
use asp_pipeline::pipeline::admission::{Admission, AdmissionBounds, RequestMemory};
use asp_pipeline::pipeline::approvals::Approvals;
use asp_pipeline::pipeline::limits::Limiter;
use asp_pipeline::pipeline::{Pipeline, PipelineDeps};
use asp_pipeline::sessions::Sessions;
use asp_pipeline::subscriptions;
use asp_platform::runtime_health::RuntimeHealth;
use asp_platform::secret::Secret;
use asp_protocols::a2a::push::sender;
use asp_protocols::approval_webhook::ApprovalWebhook;
use asp_protocols::approvals::notices;
use asp_protocols::message_turns::MessageTurns;
use asp_protocols::push::PushOrigins;
use asp_protocols::replica::{Replica, Settings};
use asp_runtime_client::runtimes::Runtimes;
use asp_snapshot::{PartChanges, PartFaults, Snapshot};
use asp_store::approvals::ApprovalStore;
use asp_store::audit::AuditLog;
use asp_store::blobs::Blobs;
use asp_store::counter::Counters;
use asp_store::ledger::Ledger;
use asp_store::plugin_storage::PluginStorage;
use asp_store::push::PushStore;
use asp_store::records::CallRecords;
use asp_vault::Vault;
use parking_lot::Mutex;
use tokio::sync::watch;

mod approvals;
pub mod degraded;
mod links;
mod live;
mod shared;
pub mod standing;
#[cfg(feature = "testkit")]
mod whole;
mod wiring;

pub use shared::{EVENT_BYTES, Shared};

/// Maximum number of parts that one push logs; `/api/snapshot` of the control plane lists all of them.
const MAX_WARNED: usize = 20;
/// Interval at which idle sessions and ended calls are forgotten.
const SWEEP_EVERY: Duration = Duration::from_secs(60);

/// Interval at which a gateway renews its lease and looks for calls of dead gateways; a lease outlives several
/// intervals.
const KEEP_EVERY: Duration = Duration::from_secs(2);
/// Interval between two scans for calls of dead gateways that lack their last audit event. A call is finished by the second
/// scan that finds it.
const FINISH_LOST_EVERY: Duration = Duration::from_secs(5);
/// Divisor of the time that these scans may take.
const SCAN_SHARE: u32 = 10;
/// Delay before a failed renewal is retried. With up to two seconds for each attempt, a second one finishes before the
/// lease of 8 s ends.
const KEEP_AGAIN: Duration = Duration::from_millis(500);

/// Time that a flush waits for a store that does not accept the ends of calls; the last flush at a shutdown waits
/// longer.
const FLUSH: Duration = Duration::from_secs(3);
const LAST_ENDS: Duration = Duration::from_secs(8);

/// Limits of open REST responses that wait for a change of a call, as event streams or long polls.
const WAITING: AdmissionBounds = AdmissionBounds { whole: 10_000, per_org: 4_000 };

/// Configuration and dependencies of a gateway.
pub struct Config {
    /// Seals data that travels through clients or rests in a store.
    pub sealer: Arc<Sealer>,
    /// Seals the records of linked accounts.
    pub vault: Vault,
    pub settings: Settings,
    pub stores: Stores,
    /// Signing keys of the platform's tokens. Their owner is this run of the gateway.
    pub token_keys: Arc<TokenKeys>,
    /// Audiences of these tokens, and the primitives that get them.
    pub token_audiences: TokenAudiences,
    /// Origins of receivers of push notifications that may be private or speak plain HTTP.
    pub push_origins: PushOrigins,
    /// URL that is notified of requests for approval, which may have a secret; `None` for none.
    pub approval_webhook: Option<Secret>,
    /// Plugin runtimes; [`Runtimes::none`] if there are none.
    pub runtimes: Runtimes,
    /// Models of the platform, for delegations.
    pub delegates: Endpoints,
    /// Dependencies for requests to issuers.
    pub issuers: IssuerDeps,
    /// Information about calls that services receive.
    pub told: CallHeaders,
    /// Limits of concurrent calls.
    pub bounds: AdmissionBounds,
    /// Limits of the memory that requests hold, in bytes.
    pub memory: AdmissionBounds,
    /// Limits of subscribers to changes.
    pub subscriptions: subscriptions::SubscriptionBounds,
    /// Additional listener to the logs of plugin calls.
    pub listener: Option<LogListener>,
}

/// The stores of one gateway.
pub struct Stores {
    /// Ledger of mutating calls (I-6).
    pub ledger: Arc<dyn Ledger>,
    pub audit: Arc<dyn AuditLog>,
    /// Checkpoints of running plugin calls.
    pub active: Arc<dyn CallRecords>,
    /// Artifacts of plugin calls.
    pub blobs: Arc<dyn Blobs>,
    /// Counters of rate limits.
    pub counters: Arc<dyn Counters>,
    /// Receivers and outbox of push notifications, in the database of the records; `None` if none are sent.
    pub pushes: Option<Arc<dyn PushStore>>,
    /// Keys and values of plugins, in the same database; `None` if they have no storage.
    pub storage: Option<Arc<dyn PluginStorage>>,
    /// Approvals that calls wait for, in the same database; `None` if calls that need one are refused.
    pub approvals: Option<Arc<dyn ApprovalStore>>,
    /// State of sessions and calls shared among gateways, if there are several.
    pub shared: Option<Shared>,
}

/// One replica.
pub struct Gateway {
    /// The parts that protocols use.
    pub replica: Arc<Replica>,
    runtimes: Arc<Runtimes>,
    artifacts: Artifacts,
    backends: Arc<BackendTable>,
    edge: Edge,
    /// Seals the records of linked accounts.
    pub vault: Vault,
    /// The revision up to which everything is in force, for requests that wait for one.
    applied: watch::Sender<u64>,
    /// Serializes `apply`, so that revisions are compared and swapped together.
    applying: Mutex<()>,
    /// Whether the store answers but this gateway cannot use it.
    refused_by_store: AtomicBool,
    survey: degraded::PluginSurvey,
}

impl Deref for Gateway {
    type Target = Replica;

    fn deref(&self) -> &Replica {
        &self.replica
    }
}

impl Gateway {
    /// Creates a gateway without a snapshot. Needs a running tokio runtime, for the audit writer.
    pub fn new(config: Config) -> anyhow::Result<Arc<Gateway>> {
        let settings = config.settings;
        let sealer = config.sealer;
        let metrics = wiring::metrics(&config.vault, config.issuers.links.as_ref());
        let runtimes = Arc::new(config.runtimes);
        let artifacts = Artifacts::new(config.stores.blobs);
        let issuers = Issuers::new(config.issuers, &sealer, &settings.public_url)?;
        let minter = wiring::minter(config.token_keys, &settings, config.token_audiences);
        let registry = Arc::new(CallRegistry::default());
        let counters = config.stores.counters;
        let (replicas, of_calls, answers) =
            shared::in_common(config.stores.shared, &counters, &sealer, minter.keys.owner());
        let active = wiring::active_table(config.stores.active, &minter, &sealer, &registry, of_calls);
        let push = wiring::push_service(config.stores.pushes, &active, &sealer, config.push_origins)?;
        let deps = PluginDeps {
            saved: SavedCalls { active: active.clone() },
            storage: wiring::storage(config.stores.storage, &sealer),
            artifacts: artifacts.clone(),
            minter: minter.clone(),
            authorizer: Arc::new(wiring::authorizer(&minter, &issuers, config.told)),
            delegates: Arc::new(Delegates::new(config.delegates)?),
            listener: config.listener,
        };
        let backends = Arc::new(wiring::backends(deps, &runtimes, &metrics)?);
        let pipeline = Arc::new(Pipeline::new(PipelineDeps {
            limiter: Limiter::new(counters),
            ledgers: wiring::ledgers(config.stores.ledger, answers, &active, &sealer),
            backends: backends.clone(),
            audit: Audit::new(config.stores.audit, metrics.audit_lost.clone()),
            metrics,
            bounds: config.bounds,
            registry,
            active,
            replicas: replicas.clone(),
            approvals: Approvals::new(config.stores.approvals, config.approval_webhook.is_some()),
        }));
        let replica = Replica {
            config: settings,
            sessions: Sessions::new(sealer.clone(), replicas),
            subscriptions: wiring::listening(&pipeline, config.subscriptions),
            card_keys: CardKeys::new(minter.keys.store(), sealer.clone()),
            minter,
            pipeline,
            push,
            approval_webhook: config.approval_webhook.map(ApprovalWebhook::new).transpose()?,
            memory: RequestMemory::new(config.memory),
            message_turns: MessageTurns::default(),
            waiting: Admission::of(WAITING, ["open responses", "open responses of the org"]),
            sealer,
            issuers,
            in_force: ArcSwapOption::empty(),
        };
        Ok(Arc::new(Gateway::of(replica, runtimes, (artifacts, backends), config.vault)))
    }

    /// Returns a gateway of these parts without a snapshot.
    fn of(
        replica: Replica,
        runtimes: Arc<Runtimes>,
        (artifacts, backends): (Artifacts, Arc<BackendTable>),
        vault: Vault,
    ) -> Gateway {
        Gateway {
            replica: Arc::new(replica),
            runtimes,
            artifacts,
            backends,
            edge: Edge::new(EdgeRole::Gateway),
            vault,
            applied: watch::Sender::new(0),
            applying: Mutex::default(),
            refused_by_store: AtomicBool::new(false),
            survey: degraded::PluginSurvey::default(),
        }
    }

    /// Applies as many of the changes up to a revision as possible, and returns the parts that are not in force as
    /// sent. Up to revision `covers` the changes are complete; of later revisions they contain only revocations. On
    /// `Err`, the reason for the NACK, the previous snapshot stays in force.
    pub fn apply_changes(
        &self,
        revision: u64,
        covers: u64,
        changes: PartChanges,
    ) -> Result<Arc<PartFaults>, String> {
        let _one_at_a_time = self.applying.lock();
        self.is_no_older(revision)?;
        let known = self.snapshot().unwrap_or_else(|| Arc::new(Snapshot::empty()));
        let next = known.applied(revision, changes)?;
        let faults = Arc::clone(next.faults());
        warn_of_faults(known.faults(), &faults);
        self.put_in_force(next, covers);
        Ok(faults)
    }

    /// Returns the services that failed recently, as seen from here.
    pub fn failing_upstreams(&self) -> Vec<UpstreamFailure> {
        self.backends.failing_upstreams()
    }

    fn is_no_older(&self, offered: u64) -> Result<(), String> {
        let known = self.revision();
        (offered >= known).then_some(()).ok_or_else(|| format!("revision {offered} is older than {known}"))
    }

    fn put_in_force(&self, snapshot: Snapshot, covers: u64) {
        let offered = snapshot.revision;
        let snapshot = Arc::new(snapshot);
        let former = self.in_force.swap(Some(snapshot.clone()));
        self.pipeline.put_in_force(&snapshot);
        // A gateway that starts enforces the earlier revocations late, and its first requests never saw another state.
        let newest = snapshot.edge.newest_revocation_ms();
        if former.is_some_and(|former| former.edge.newest_revocation_ms() < newest) {
            self.metrics().revocations.observe(RevocationStage::Enforced, newest);
        }
        // Must follow the pipeline, which by then knows which primitives have a runtime.
        self.subscriptions.apply(&snapshot);
        self.metrics().applied(offered);
        self.applied.send_replace(covers);
    }

    /// Records that the control plane being followed is up to date.
    pub fn control_is_fresh(&self) {
        self.metrics().control_is_fresh();
    }

    /// Returns the applied revision; 0 before the first.
    pub fn revision(&self) -> u64 {
        self.in_force.load().as_ref().map_or(0, |snapshot| snapshot.revision)
    }

    /// Waits until all of `revision` is in force, for at most `within`.
    pub(crate) async fn until(&self, revision: u64, within: Duration) {
        let mut applied = self.applied.subscribe();
        // Err: the time is over or the gateway ends; the caller uses the snapshot in force.
        let _ = tokio::time::timeout(within, applied.wait_for(|applied| *applied >= revision)).await;
    }

    /// Returns why this gateway should get no requests: it has no snapshot, or a store that it cannot use.
    pub fn unready(&self) -> Option<&'static str> {
        if self.in_force.load().is_none() {
            return Some("no snapshot yet");
        }
        let is_refused = self.refused_by_store.load(Ordering::Acquire);
        is_refused.then_some("the database answers, but this gateway cannot use it; see its log")
    }

    /// Records whether the store answers but rejects this gateway, for example because its tables have another version.
    pub fn set_refused_by_store(&self, is_refused: bool) {
        self.refused_by_store.store(is_refused, Ordering::Release);
    }

    /// Forgets expired state until the gateway is dropped; run it as a task.
    pub async fn sweep(gateway: std::sync::Weak<Gateway>) {
        let mut ticks = tokio::time::interval(SWEEP_EVERY);
        loop {
            ticks.tick().await;
            let Some(gateway) = gateway.upgrade() else { return };
            gateway.sessions.sweep();
            gateway.subscriptions.sweep();
            gateway.pipeline.sweep();
            if let Err(error) = gateway.artifacts.sweep().await {
                tracing::warn!(error = %error, "expired artifacts could not be deleted and use storage until a retry in a minute succeeds: check the artifact store");
            }
        }
    }

    /// Renews this gateway's lease until the gateway is dropped; run it as a task.
    pub async fn keep_calls(gateway: std::sync::Weak<Gateway>) {
        let mut ticks = tokio::time::interval(KEEP_EVERY);
        let mut is_failing = false;
        loop {
            ticks.tick().await;
            let Some(gateway) = gateway.upgrade() else { return };
            // Comes first, because a gateway that renews too late loses its calls.
            let renewed = gateway.pipeline.renew_lease().await;
            match &renewed {
                Err(error) if !is_failing => {
                    tracing::warn!(%error, "this gateway could not renew its lease in the store; after 8 s without a renewal, other gateways take over its calls: check the store");
                }
                Ok(()) if is_failing => tracing::info!("this gateway renewed its lease in the store again"),
                Ok(()) | Err(_) => {}
            }
            is_failing = renewed.is_err();
            if is_failing {
                ticks.reset_after(KEEP_AGAIN);
            } else {
                gateway.pipeline.look_for_others().await;
            }
            gateway.subscriptions.reevaluate();
        }
    }

    /// Rotates the key of this gateway's tokens and keeps it published until the gateway is dropped; run it as a task.
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

    /// Takes over the calls of dead gateways until this one is dropped; run it as a task.
    pub async fn take_over_calls(gateway: std::sync::Weak<Gateway>) {
        let mut ticks = tokio::time::interval(KEEP_EVERY);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let Some(gateway) = gateway.upgrade() else { return };
            let Some(snapshot) = gateway.snapshot() else { continue };
            if let Err(error) = gateway.pipeline.take_over(&snapshot).await {
                tracing::warn!(%error, "calls of dead gateways could not be taken over; they wait until a retry in seconds succeeds: check the store");
            }
        }
    }

    /// Writes the last audit events of calls of dead gateways until this one is dropped; run it as a task.
    pub async fn finish_lost_calls(gateway: std::sync::Weak<Gateway>) {
        let mut is_failing = false;
        loop {
            let Some(gateway) = gateway.upgrade() else { return };
            let began = tokio::time::Instant::now();
            let finished = gateway.pipeline.finish_lost_calls().await;
            let took = began.elapsed();
            let has_failed = std::mem::replace(&mut is_failing, finished.is_err());
            if let Err(error) = finished
                && !has_failed
            {
                tracing::warn!(%error, "audit of calls of dead gateways could not be completed; it is tried again: check the store");
            }
            drop(gateway);
            // A scan for calls that began long ago reads much of the log.
            tokio::time::sleep(FINISH_LOST_EVERY.max(took.saturating_mul(SCAN_SHARE))).await;
        }
    }

    /// Sends push notifications until the gateway is dropped; run it as a task.
    pub fn send_pushes(&self) -> impl Future<Output = ()> + Send + use<> {
        sender::send(Arc::downgrade(&self.replica))
    }

    /// Notifies the webhook of requests for approval until the gateway is dropped; run it as a task.
    pub fn send_approval_notices(&self) -> impl Future<Output = ()> + Send + use<> {
        notices::send(Arc::downgrade(&self.replica))
    }

    /// Returns the health of the plugin runtimes, for operators.
    pub async fn runtimes(&self) -> Vec<RuntimeHealth> {
        self.runtimes.health().await
    }

    /// Waits until the audit events of every ended call are durable and its worker is released.
    pub async fn flush(&self) {
        self.flush_within(FLUSH).await;
    }

    async fn flush_within(&self, longest: Duration) {
        self.pipeline.drained(longest).await;
    }

    /// Hands calls that can continue elsewhere to another gateway, ends the others, then flushes. The last step of a
    /// shutdown.
    pub async fn stop(&self) {
        self.pipeline.hand_on().await;
        self.pipeline.end_calls().await;
        self.pipeline.sweep();
        self.pipeline.end_brief_calls(LAST_ENDS).await;
        self.flush_within(LAST_ENDS).await;
        self.pipeline.retire().await;
        self.minter.keys.withdraw().await;
    }

    pub(crate) fn edge(&self) -> &Edge {
        &self.edge
    }
}

/// Logs each part that is not in force as sent, once.
fn warn_of_faults(known: &PartFaults, faults: &PartFaults) {
    let new: Vec<_> = faults.iter().filter(|(name, fault)| known.get(*name) != Some(*fault)).collect();
    for (part, fault) in new.iter().take(MAX_WARNED) {
        tracing::warn!(
            part = %part, reason = %fault.reason, in_force = fault.in_force,
            "part of the snapshot could not be applied; update this gateway or fix the part"
        );
    }
    if new.len() > MAX_WARNED {
        let count = new.len() - MAX_WARNED;
        tracing::warn!(count, "more parts of the snapshot could not be applied");
    }
}
