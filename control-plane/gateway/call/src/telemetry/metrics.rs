//! Prometheus metrics of the gateway (names are only added: ADR 13).
//!
//! Keeps true: every label is from a closed set or, within a bound, a name in the snapshot; never an org, a user, a token
//! or a name that a client chose.

use std::sync::atomic::{AtomicI64, AtomicU64};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use asp_platform::process_metrics;
use asp_platform::worker_usage::Stats;
use asp_snapshot::policy::Effect;
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use tokio::time::Instant;

use crate::call::Call;
use crate::call::outcome::Outcome;

mod approvals;
mod calls;
mod links;
pub mod plugins;
mod pushes;
mod revocations;

pub use approvals::ApprovalMetrics;
use calls::PrimitiveCalls;
pub use links::{LinkMetrics, LinkRefresh, LinkRevocation, LinkUse};
use plugins::PluginMetrics;
pub use pushes::PushMetrics;
pub use revocations::{RevocationMetrics, RevocationStage};

/// Upper bounds of the buckets, in seconds.
const LATENCY: [f64; 12] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 2.5, 10.0, 60.0];
/// The same for delegations: a model takes longer than a call.
const DELEGATION_SECONDS: [f64; 9] = [0.05, 0.25, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0];

/// Labels of a metric: their names and values.
type Labels<const N: usize> = [(&'static str, &'static str); N];

/// A stage of the pipeline (ADR 1); identity, resolve and entitlement only read the snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    Limits,
    Input,
    Ledger,
    Approve,
    Execute,
    Output,
}

const STAGES: usize = Stage::Output as usize + 1;

impl Stage {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Stage::Limits => "limits",
            Stage::Input => "input",
            Stage::Ledger => "ledger",
            Stage::Approve => "approve",
            Stage::Execute => "execute",
            Stage::Output => "output",
        }
    }
}

/// The gateway's metrics and their registry.
pub struct Metrics {
    registry: Registry,
    /// Calls by server, primitive and upstream.
    primitives: Arc<PrimitiveCalls>,
    calls: Family<Labels<3>, Counter>,
    durations: Family<Labels<1>, Histogram, fn() -> Histogram>,
    refusals: Family<Labels<1>, Counter>,
    stages: Family<Labels<1>, Histogram, fn() -> Histogram>,
    limits: Family<Labels<2>, Counter>,
    usual: CachedMetrics,
    observed: Family<Labels<2>, Counter>,
    workers: Workers,
    /// Metrics reported by the language runtimes.
    pub plugins: Arc<PluginMetrics>,
    pub delegations: Delegations,
    pub pushes: PushMetrics,
    pub revocations: RevocationMetrics,
    pub approvals: ApprovalMetrics,
    pub upstreams: Arc<UpstreamMetrics>,
    /// Events that the audit log did not accept in time.
    pub audit_lost: Counter,
    active: Gauge<i64, AtomicI64>,
    revision: Gauge<i64, AtomicI64>,
    snapshot_age: Gauge<i64, AtomicI64>,
    alone: Gauge<i64, AtomicI64>,
    /// Last time at which the control plane was known to be up to date.
    fresh_at: Mutex<Instant>,
}

/// Cached metrics that nearly every call uses, because a lookup by labels costs more than counting.
#[derive(Default)]
struct CachedMetrics {
    /// Histograms by [`Stage`].
    stages: [OnceLock<Histogram>; STAGES],
    granted: OnceLock<Counter>,
}

/// Resources of workers used by plugin calls, by language.
#[derive(Default)]
struct Workers {
    calls: Family<Labels<1>, Counter>,
    cpu_seconds: Family<Labels<1>, Counter<f64, AtomicU64>>,
    bytes_in: Family<Labels<1>, Counter>,
    bytes_out: Family<Labels<1>, Counter>,
    rss_max: Family<Labels<1>, Gauge<f64, AtomicU64>>,
    lost: Family<Labels<1>, Counter>,
}

impl Workers {
    fn register(&self, registry: &mut Registry) {
        registry.register("asp_worker_calls", "Plugin calls whose worker was released", self.calls.clone());
        registry.register("asp_worker_lost", "Workers lost with a plugin call", self.lost.clone());
        registry.register("asp_worker_cpu_seconds", "CPU time of plugin calls", self.cpu_seconds.clone());
        registry.register("asp_worker_received_bytes", "Bytes sent to workers", self.bytes_in.clone());
        registry.register("asp_worker_sent_bytes", "Bytes received from workers", self.bytes_out.clone());
        registry.register(
            "asp_worker_call_rss_bytes",
            "Peak resident memory of the worker of the call that ended last",
            self.rss_max.clone(),
        );
    }
}

impl Default for Metrics {
    fn default() -> Metrics {
        let mut metrics = Metrics {
            registry: Registry::default(),
            primitives: Arc::default(),
            calls: Family::default(),
            durations: Family::new_with_constructor(|| Histogram::new(LATENCY)),
            refusals: Family::default(),
            stages: Family::new_with_constructor(|| Histogram::new(LATENCY)),
            limits: Family::default(),
            usual: CachedMetrics::default(),
            observed: Family::default(),
            workers: Workers::default(),
            plugins: Arc::default(),
            delegations: Delegations::default(),
            pushes: PushMetrics::default(),
            revocations: RevocationMetrics::default(),
            approvals: ApprovalMetrics::default(),
            upstreams: Arc::default(),
            audit_lost: Counter::default(),
            active: Gauge::default(),
            revision: Gauge::default(),
            snapshot_age: Gauge::default(),
            alone: Gauge::default(),
            fresh_at: Mutex::new(Instant::now()),
        };
        let registry = &mut metrics.registry;
        metrics.workers.register(registry);
        registry.register_collector(Box::new(Arc::clone(&metrics.plugins)));
        metrics.delegations.register(registry);
        metrics.pushes.register(registry);
        metrics.revocations.register(registry);
        metrics.approvals.register(registry);
        metrics.upstreams.register(registry);
        process_metrics::register(registry);
        metrics.register_decisions();
        metrics.register_calls();
        metrics.register_gauges();
        metrics
    }
}

impl Metrics {
    fn register_decisions(&mut self) {
        let registry = &mut self.registry;
        registry.register(
            "asp_edge_refusals",
            "Requests the gateway refused before a call began",
            self.refusals.clone(),
        );
        registry.register(
            "asp_stage_duration_seconds",
            "Time a call spent in one stage of the pipeline",
            self.stages.clone(),
        );
        registry.register(
            "asp_limit_decisions",
            "Decisions of the exact limits by the level that decided",
            self.limits.clone(),
        );
        registry.register(
            "asp_policy_observed",
            "Calls that an observed binding would have decided, by its effect and by the actual one",
            self.observed.clone(),
        );
        registry.register(
            "asp_audit_events_lost",
            "Events of calls that the audit log did not accept in time",
            self.audit_lost.clone(),
        );
    }

    /// Returns the registry, for metrics that others own.
    pub fn registry_mut(&mut self) -> &mut Registry {
        &mut self.registry
    }

    fn register_calls(&mut self) {
        let registry = &mut self.registry;
        registry.register_collector(Box::new(Arc::clone(&self.primitives)));
        // The names without a prefix are those of earlier versions (ADR 13).
        for name in ["asp_protocol_requests", "protocol_requests"] {
            registry.register(name, "Calls by protocol and outcome", self.calls.clone());
        }
        for name in ["asp_protocol_request_duration_seconds", "protocol_request_duration_seconds"] {
            registry.register(name, "Time from accepting a call to its outcome", self.durations.clone());
        }
    }

    fn register_gauges(&mut self) {
        let registry = &mut self.registry;
        registry.register("asp_calls_active", "Calls without an outcome yet", self.active.clone());
        registry.register("asp_snapshot_revision", "Revision of the applied snapshot", self.revision.clone());
        registry.register(
            "asp_snapshot_age_seconds",
            "Seconds since the followed control plane last reported that it was at most 3 s behind its store",
            self.snapshot_age.clone(),
        );
        registry.register(
            "asp_gateway_alone",
            "1 while this gateway keeps short tasks of A2A that only read in its memory, as the only one of its database",
            self.alone.clone(),
        );
    }

    pub fn call_began(&self) {
        self.active.inc();
    }

    /// Records a call's outcome.
    pub fn call_ended(&self, call: &Call, outcome: &Outcome) {
        let protocol = asp_snapshot::protocol::protocol_name(call.protocol);
        let reason = match outcome {
            Outcome::Done { output, .. } if output.is_error() => "tool_error",
            Outcome::Done { .. } => "ok",
            Outcome::Refused(refusal) => refusal.reason().as_str(),
        };
        self.active.dec();
        let labels = [("protocol", protocol), ("status", outcome.state().as_str()), ("reason", reason)];
        self.calls.get_or_create(&labels).inc();
        let took = Instant::now().saturating_duration_since(call.started);
        self.durations.get_or_create(&[("protocol", protocol)]).observe(took.as_secs_f64());
        self.primitives.ended(&call.server.message.name, &call.entry, outcome, took);
    }

    /// Records a request refused before a call began.
    pub fn refused(&self, reason: &'static str) {
        self.refusals.get_or_create(&[("reason", reason)]).inc();
    }

    /// Records the time since `started` that a call spent in `stage`.
    pub fn stage(&self, call: &Call, stage: Stage, started: Instant) {
        let now = Instant::now();
        if let Some(span) = &call.span {
            span.pass(stage.as_str(), started, now);
        }
        let seconds = now.saturating_duration_since(started).as_secs_f64();
        let Some(used) = self.usual.stages.get(stage as usize) else { return };
        let first = || self.stages.get_or_create_owned(&[("stage", stage.as_str())]);
        used.get_or_init(first).observe(seconds);
    }

    /// Records a decision of the exact limits; `refused` names the exhausted level.
    pub fn limited(&self, refused: Option<&'static str>) {
        match refused {
            None => {
                let labels = [("level", "all"), ("outcome", "granted")];
                self.usual.granted.get_or_init(|| self.limits.get_or_create_owned(&labels)).inc();
            }
            Some(level) => {
                self.limits.get_or_create(&[("level", level), ("outcome", "refused")]).inc();
            }
        }
    }

    /// Records that an observed limit of this level would have refused a call.
    pub fn would_limit(&self, level: &'static str) {
        self.limits.get_or_create(&[("level", level), ("outcome", "would_refuse")]).inc();
    }

    /// Records the decision that an observed binding would have made.
    pub fn observed(&self, would: Effect, did: Effect) {
        self.observed.get_or_create(&[("would", would.as_str()), ("did", did.as_str())]).inc();
    }

    /// Records the usage of a worker by a plugin call.
    pub fn worker_used(&self, language: &'static str, stats: &Stats) {
        let label = [("language", language)];
        self.workers.calls.get_or_create(&label).inc();
        self.workers.cpu_seconds.get_or_create(&label).inc_by(stats.cpu_ms / 1000.0);
        self.workers.bytes_in.get_or_create(&label).inc_by(stats.bytes_in as u64);
        self.workers.bytes_out.get_or_create(&label).inc_by(stats.bytes_out as u64);
        self.workers.rss_max.get_or_create(&label).set(stats.rss_max);
    }

    /// Records the loss of a worker during a call.
    pub fn worker_lost(&self, language: &'static str) {
        self.workers.lost.get_or_create(&[("language", language)]).inc();
    }

    pub fn applied(&self, revision: u64) {
        self.revision.set(i64::try_from(revision).unwrap_or(i64::MAX));
    }

    /// Records whether this gateway is the only one of its database.
    pub fn set_alone(&self, is_alone: bool) {
        self.alone.set(i64::from(is_alone));
    }

    /// Records that the control plane being followed is up to date.
    pub fn control_is_fresh(&self) {
        *self.fresh_at.lock() = Instant::now();
    }

    /// Returns the metrics in the Prometheus text format.
    pub fn encode(&self) -> String {
        let age = self.fresh_at.lock().elapsed().as_secs();
        self.snapshot_age.set(i64::try_from(age).unwrap_or(i64::MAX));
        let mut text = String::new();
        match prometheus_client::encoding::text::encode(&mut text, &self.registry) {
            Ok(()) => text,
            Err(_) => String::new(),
        }
    }
}

/// The metrics of delegations.
pub struct Delegations {
    /// Ended delegations by answerer (`client`, `model`, `primitive` or `nobody`) and outcome (`ok`, or the reason why
    /// there is no answer).
    ended: Family<Labels<2>, Counter>,
    seconds: Family<Labels<1>, Histogram, fn() -> Histogram>,
    tokens: Family<Labels<1>, Counter>,
}

impl Default for Delegations {
    fn default() -> Delegations {
        Delegations {
            ended: Family::default(),
            seconds: Family::new_with_constructor(|| Histogram::new(DELEGATION_SECONDS)),
            tokens: Family::default(),
        }
    }
}

impl Delegations {
    fn register(&self, registry: &mut Registry) {
        registry.register("asp_delegations", "Delegations by answerer and outcome", self.ended.clone());
        registry.register(
            "asp_delegation_duration_seconds",
            "Time from a plugin's question to its answer",
            self.seconds.clone(),
        );
        registry.register(
            "asp_delegation_tokens",
            "Tokens counted by the endpoints of the platform's models",
            self.tokens.clone(),
        );
    }

    /// Records the end of a delegation; `by` and `outcome` are from closed sets.
    pub fn ended(&self, by: &'static str, outcome: &'static str, took: Duration, usage: Usage) {
        self.ended.get_or_create(&[("by", by), ("outcome", outcome)]).inc();
        self.seconds.get_or_create(&[("by", by)]).observe(took.as_secs_f64());
        for (direction, tokens) in [("in", usage.tokens_in), ("out", usage.tokens_out)] {
            if tokens > 0 {
                self.tokens.get_or_create(&[("direction", direction)]).inc_by(tokens);
            }
        }
    }
}

/// The tokens of one answer as the endpoint counts them; 0 if it does not report them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub tokens_in: u64,
    pub tokens_out: u64,
}

/// Drift between the lists of upstream MCP servers and their accepted schemas.
#[derive(Default)]
pub struct UpstreamMetrics {
    drift: Family<Labels<1>, Gauge<i64, AtomicI64>>,
}

impl UpstreamMetrics {
    fn register(&self, registry: &mut Registry) {
        registry.register(
            "asp_upstream_drift",
            "Imported items whose upstream lists them differently than accepted",
            self.drift.clone(),
        );
    }

    /// Records the numbers of accepted items that have changed, have become incompatible, or are no longer listed.
    pub fn drifted(&self, changed: i64, incompatible: i64, removed: i64) {
        for (standing, count) in [("changed", changed), ("incompatible", incompatible), ("removed", removed)]
        {
            self.drift.get_or_create(&[("standing", standing)]).set(count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_age_of_the_snapshot_grows_until_an_up_to_date_control_plane_reports() {
        let metrics = Metrics::default();
        tokio::time::advance(Duration::from_secs(11)).await;
        assert!(metrics.encode().contains("\nasp_snapshot_age_seconds 11\n"), "{}", metrics.encode());
        metrics.control_is_fresh();
        assert!(metrics.encode().contains("\nasp_snapshot_age_seconds 0\n"), "{}", metrics.encode());
    }
}
