//! Runs calls on plugins: allocates a worker from one of the language's runtimes, carries the call through its
//! tunnel, and turns the worker's messages into events and the result of the call.
//!
//! Owns: the life of one plugin call across the workers and runtimes it needs. Refuses: anything that the primitive
//! does not declare; the client's token is never passed on (I-8). Keeps true: a call that was delivered to a worker
//! is run again only if its plugin resumes or repeating it is harmless; otherwise its outcome is unknown.

use std::sync::Arc;

use asp_call::call::CallKind;
use asp_call::call::outcome::{Output, Refusal};
use asp_call::execution::{Availability, Execution, ResourceSubscription, SubscriptionGuard};
use asp_call::telemetry::log_limit::LogLimit;
use asp_call::telemetry::metrics::Metrics;
use asp_proto::plugin::Resume;
use asp_proto::snapshot::runtime::Mode;
use asp_proto::snapshot::{Kind, Primitive, RiskClass};
use asp_proto::supervisor::{PluginRef, RuntimeHints};
use asp_runtime_client::admission::{Rejection, UsageRecorder};
use asp_runtime_client::runtimes::{Fleet, Runtime, Runtimes};
use asp_runtime_client::tunnel::{OpenFault, Tunnel, TunnelContext};
use asp_snapshot::Snapshot;
use async_trait::async_trait;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use crate::accepted::pinned::{self, PinnedItems};
use crate::accepted::watching::{Upstream, Watches};
use crate::backend::{Backend, misplaced, mode};
use crate::conversation::downstream::Clients;
use crate::outbound::auth::AuthFault;

mod admission;
mod artifacts;
mod asking;
mod attempt_state;
mod availability;
mod charge;
mod credential_lease;
mod dependencies;
mod following;
mod former;
mod job;
mod listing;
mod packages;
mod prepare;
mod reads;
mod recovery;
mod reference;
mod relayed;
pub(super) mod results;
mod saved;
mod session;
mod state_encoding;
mod storage;
mod tunnel_events;
mod watch;

pub use dependencies::{LogListener, PluginDeps, SavedCalls};
pub use reference::plugin_language;

use attempt_state::AttemptState;
use availability::PluginLocation;
use credential_lease::LeasedCredential;
use following::Followings;
use former::{FormerRuntimes, StillRuns};
use job::Job;
use packages::Package;
use prepare::Preparation;
use recovery::{AttemptOutcome, Next, Recovery, Round};
use reference::{STDIO, language_name, plugin_ref, run_by, stdio_ref};

/// Maximum number of gateways that may continue a call one after the other without a checkpoint in between.
const MAX_TAKEN: u32 = 8;

/// The backend of plugins. It prepares and drains what stdio MCP servers run on, too.
pub struct PluginBackend {
    runtimes: Arc<Runtimes>,
    metrics: Arc<Metrics>,
    closing: TunnelContext,
    deps: PluginDeps,
    preparing: Preparation,
    /// Watches over the lists of stdio packages.
    packages: Arc<Watches>,
    followings: Followings,
    /// Rate limit of the warning that too many resources are followed.
    crowded: LogLimit,
    _watching: AbortOnDropHandle<()>,
}

/// Runtimes that are involved in a call.
#[derive(Default)]
struct Places {
    /// The runtime that the next attempt prefers, as long as it takes calls.
    own: Option<Arc<Runtime>>,
    former: FormerRuntimes,
}

/// Returns the recorder of the usage of workers in the metrics.
fn usage_recorder(metrics: Arc<Metrics>) -> UsageRecorder {
    Arc::new(move |language, stats| metrics.worker_used(language, stats))
}

impl PluginBackend {
    pub fn new(runtimes: Arc<Runtimes>, metrics: Arc<Metrics>, deps: PluginDeps) -> PluginBackend {
        let preparing = Preparation::default();
        let _watching = watch::begin(&runtimes, &metrics.plugins, &preparing.known);
        let closing = TunnelContext { tasks: TaskTracker::new(), usage: usage_recorder(metrics.clone()) };
        PluginBackend {
            runtimes,
            metrics,
            closing,
            deps,
            preparing,
            packages: packages::watches(Arc::default()),
            followings: Followings::default(),
            crowded: LogLimit::default(),
            _watching,
        }
    }

    /// Sets the accepted items of stdio packages.
    pub(super) fn with_pins(self, items: Arc<PinnedItems>) -> PluginBackend {
        PluginBackend { packages: packages::watches(items), ..self }
    }

    /// Whether a runtime may run the primitive, if it needs one: a runtime for its language is configured, and at
    /// least one of those that have answered did not report it as impossible.
    fn has_runtime(&self, primitive: &Primitive) -> bool {
        let Some(language) = plugin_language(primitive) else { return true };
        let plugin = || run_by(primitive).map(|(plugin, _)| plugin);
        self.runtimes.get(language).is_some() && !self.preparing.known.is_impossible(plugin)
    }

    /// Returns where the workers of a language are.
    fn location(
        &self,
        fleet: &Arc<Fleet>,
        language: &'static str,
        hints: RuntimeHints,
        fresh: bool,
    ) -> PluginLocation {
        PluginLocation {
            fleet: fleet.clone(),
            known: self.preparing.known.clone(),
            language,
            hints,
            fresh,
            closing: self.closing.clone(),
        }
    }

    async fn run_plugin(
        &self,
        execution: &Execution,
        (plugin, hints): (PluginRef, RuntimeHints),
        primitive: String,
        package: Option<String>,
    ) -> Result<Output, Refusal> {
        let fleet = self.runtimes.get(&plugin.language).cloned();
        let (Some(fleet), Some(language)) = (fleet, language_name(&plugin.language)) else {
            return Err(Refusal::Upstream(format!(
                "no runtime for {} plugins is configured",
                plugin.language
            )));
        };
        let authorizer = &self.deps.authorizer;
        let unproved = |unproved: AuthFault| match execution.resume_state {
            // Another gateway may have begun the call.
            Some(_) => execution.call.unanswered(unproved.refusal),
            None => unproved.refusal,
        };
        authorizer.check_plugin_token(&execution.call).map_err(unproved)?;
        let exchanged = authorizer.exchanged(&execution.call, &execution.snapshot).await;
        let exchanged = exchanged.map_err(unproved)?;
        let lease = LeasedCredential::of(authorizer, &execution.call).await.map_err(unproved)?;
        let clients = Arc::new(Clients::of(execution.call.clone(), &[]));
        let job = Job {
            deps: &self.deps,
            watches: &self.packages,
            execution,
            plugin,
            language,
            primitive,
            hints,
            fleet,
            exchanged,
            lease,
            clients,
            package,
        };
        let mut attempt_state = AttemptState::default();
        let mut recovery = Recovery::default();
        if let Some(resume_state) = &execution.resume_state {
            attempt_state = AttemptState::restored(&resume_state.state, resume_state.seq);
            if attempt_state.taken > MAX_TAKEN {
                tracing::error!(call = %execution.call.id, trace = %execution.call.trace, plugin = %job.plugin.id, "a plugin call was taken over by eight gateways without a checkpoint in between and is not run again; its outcome is unknown");
                return Err(Refusal::OutcomeUnknown);
            }
            self.deps.saved.save_takeover(&job, &mut attempt_state).await;
            if let Next::Done(result) = recovery.taken_over(&execution.call, &attempt_state) {
                return result;
            }
        }
        self.attempts(&job, &mut attempt_state, recovery).await
    }

    async fn attempts(
        &self,
        job: &Job<'_>,
        attempt_state: &mut AttemptState,
        mut recovery: Recovery,
    ) -> Result<Output, Refusal> {
        let execution = job.execution;
        let mut places = Places::default();
        if execution.resume_state.is_some() {
            places.former = FormerRuntimes::anywhere(&job.fleet);
        }
        loop {
            attempt_state.next_attempt();
            let ended = match self.attempt(job, attempt_state, &mut places).await {
                AttemptOutcome::Asked(asked) => {
                    asking::all(job, attempt_state, asked).await?;
                    continue;
                }
                ended => ended,
            };
            if matches!(ended, AttemptOutcome::Lost { delivered: true, .. }) {
                attempt_state.lost += 1;
                self.metrics.worker_lost(job.language);
            }
            match recovery.after(&execution.call, attempt_state, ended) {
                Next::Done(result) => return result,
                Next::Again { at } => {
                    tracing::info!(call = %execution.call.id, trace = %execution.call.trace, plugin = %job.plugin.id, lost = attempt_state.lost, "plugin call continues with another worker");
                    tokio::select! {
                        () = tokio::time::sleep_until(at.max(job.fleet.retry_at().unwrap_or(at))) => {}
                        () = execution.call.cancelled() => return Err(Refusal::Cancelled),
                        () = execution.call.ownership.preempted(), if execution.call.ownership.resumes.is_set() => {
                            execution.call.ownership.passed_on.set();
                            return Err(Refusal::Upstream("the gateway ends".into()));
                        }
                    }
                    // The gateway that took the call over may have ended its execution here: another one would end its own.
                    if !self.deps.saved.active.is_ours(&execution.call).await {
                        return Err(Refusal::Upstream("another gateway continues this call".into()));
                    }
                }
            }
        }
    }

    /// Records the state of the plugin at a runtime that a rejection reveals.
    fn note(&self, job: &Job<'_>, runtime: &Runtime, rejection: &Rejection) {
        job.execution.call.note_failure_cause(format_args!("runtime {}: {rejection}", runtime.name()));
        if let Rejection::Impossible(reason) = rejection {
            self.preparing.refused(runtime, &job.plugin, reason);
        }
    }

    /// Runs one attempt at the first runtime that takes the call; a runtime that rejects it has not begun it.
    async fn attempt(
        &self,
        job: &Job<'_>,
        attempt_state: &mut AttemptState,
        places: &mut Places,
    ) -> AttemptOutcome {
        let call = &job.execution.call;
        let resume = match attempt_state.succession() {
            None => None,
            Some(resume) => match self.deps.saved.with_capsule(job, resume).await {
                Ok(resume) => Some(resume),
                Err(error) => {
                    tracing::warn!(call = %call.id, trace = %call.trace, error = %error, "a call waits until its last checkpoint can be read from the store");
                    return AttemptOutcome::Rejected(Rejection::Unreachable);
                }
            },
        };
        let had_begun = call.was_handed_over();
        let mut round = Round::default();
        loop {
            let known = &self.preparing.known;
            let Some(taken) = known.choose(&job.fleet, &job.plugin, places.own.as_ref(), round.refused())
            else {
                return AttemptOutcome::Rejected(round.rejection());
            };
            let ended = tokio::select! {
                ended = places.former.end(&taken, call) => ended,
                () = call.cancelled() => return AttemptOutcome::cancelled(),
            };
            if let Err(StillRuns) = ended {
                return AttemptOutcome::Rejected(Rejection::StillEnding);
            }
            match self.attempt_at(&taken, job, attempt_state, resume.clone()).await {
                AttemptOutcome::Rejected(rejection) => {
                    self.note(job, &taken, &rejection);
                    // A call whose previous execution has not ended there continues there.
                    places.own = (rejection == Rejection::StillEnding).then(|| Arc::clone(&taken));
                    // Once a runtime was given the work, no other one is given it as new, whatever the first one
                    // reports.
                    let has_begun = call.was_handed_over() && !had_begun;
                    if has_begun || !rejection.allows_other_runtime() || !job.fleet.has_several() {
                        return AttemptOutcome::Rejected(rejection);
                    }
                    if matches!(rejection, Rejection::Unusable(_)) {
                        tracing::warn!(call = %call.id, trace = %call.trace, plugin = %job.plugin.id, version = %job.plugin.version, runtime = taken.name(), %rejection, "a runtime rejected a call, because its plugin cannot run as it is installed or configured there; the call is sent to another one");
                    } else {
                        tracing::debug!(call = %call.id, trace = %call.trace, plugin = %job.plugin.id, runtime = taken.name(), %rejection, "a runtime rejected a call, which is sent to another one");
                    }
                    round.add(Arc::clone(&taken), rejection);
                }
                ended => {
                    let goes_on = matches!(ended, AttemptOutcome::Lost { .. } | AttemptOutcome::Asked(_));
                    places.own = goes_on.then(|| Arc::clone(&taken));
                    if matches!(ended, AttemptOutcome::Lost { delivered: true, .. }) {
                        places.former.is_at(&taken);
                    }
                    return ended;
                }
            }
        }
    }

    /// Runs the call at one runtime.
    async fn attempt_at(
        &self,
        runtime: &Arc<Runtime>,
        job: &Job<'_>,
        attempt_state: &mut AttemptState,
        resume: Option<Resume>,
    ) -> AttemptOutcome {
        let call = &job.execution.call;
        let account = charge::to_call(self.closing.account(job.language), job.execution);
        let messages = [job.init(), job.work(attempt_state, resume)];
        let opening = Tunnel::open(runtime.clone(), account, job.allocation(), messages, Some(job.mark()));
        let opened = tokio::select! {
            opened = opening => opened,
            () = call.cancelled() => return AttemptOutcome::cancelled(),
        };
        let (mut tunnel, place) = match opened {
            Ok(opened) => opened,
            Err(OpenFault::Rejected(rejection)) => return AttemptOutcome::Rejected(rejection),
            Err(OpenFault::Lost(status)) => return AttemptOutcome::of_loss(call, status.message()),
        };
        if let Some(lease) = &job.lease {
            tunnel.renews(|sender| lease.follow(sender));
        }
        if let Some(place) = place {
            admission::tell_queued(call, place);
        }
        match call.entry.primitive.kind() {
            Kind::Resource | Kind::ResourceTemplate | Kind::Prompt if job.language != STDIO => {
                reads::run(job, tunnel).await
            }
            _ => session::run(job, attempt_state, tunnel).await,
        }
    }
}

#[async_trait]
impl Backend for PluginBackend {
    async fn run(&self, execution: &Execution) -> Result<Output, Refusal> {
        let primitive = &execution.call.entry.primitive;
        let Some(Mode::Plugin(plugin)) = mode(primitive) else { return Err(misplaced(execution)) };
        self.run_plugin(execution, plugin_ref(primitive, plugin), primitive.id.clone(), None).await
    }

    fn answers(&self, _kind: &CallKind) -> bool {
        true
    }

    fn continues(&self, primitive: &Primitive) -> bool {
        self.has_runtime(primitive)
    }

    fn offers(&self, _server: &str, primitive: &Primitive) -> bool {
        self.has_runtime(primitive)
    }

    fn offers_changed(&self) -> u64 {
        self.preparing.known.changes()
    }

    fn availability(&self, primitive: &Primitive) -> Option<Availability> {
        let (plugin, _) = run_by(primitive)?;
        if self.runtimes.get(&plugin.language).is_none() {
            let reason = format!("language_absent: no runtime for {} is configured", plugin.language);
            return Some(Availability::Impossible(reason));
        }
        Some(self.preparing.known.state(&plugin))
    }

    /// Starts to prepare the plugins and packages of a new snapshot.
    fn prepare(&self, snapshot: &Snapshot) {
        let primitives = snapshot.primitives().collect::<Vec<_>>();
        self.followings.replace(&primitives);
        self.preparing.begin(&self.runtimes, &self.closing.tasks, &primitives);
    }

    /// Starts to report changes of a resource, if its plugin watches.
    fn watch(&self, subscribed: ResourceSubscription<'_>) -> Option<SubscriptionGuard> {
        let primitive = subscribed.primitive;
        if !primitive.watched_by_runtime {
            return None;
        }
        let (plugin, hints) = run_by(primitive)?;
        let fleet = self.runtimes.get(&plugin.language)?;
        let language = language_name(&plugin.language)?;
        let place = self.location(fleet, language, hints, primitive.risk_class() == RiskClass::High);
        let following = self.followings.follow(plugin, place, &subscribed);
        if following.is_none()
            && let Some(count) = self.crowded.count()
        {
            tracing::warn!(
                primitive = primitive.id,
                count,
                "clients are not notified when this resource changes: too many resources of plugins are followed, or its URI exceeds 4096 bytes"
            );
        }
        following.map(|following| Box::new(following) as SubscriptionGuard)
    }

    /// Returns once the tunnels of ended calls are closed.
    async fn drained(&self) {
        self.preparing.stop();
        self.packages.clear();
        self.followings.clear();
        self.closing.tasks.close();
        self.closing.tasks.wait().await;
        self.closing.tasks.reopen();
    }
}

/// The backend of stdio MCP servers in the sandbox, on the runtimes of plugins.
pub struct StdioBackend(pub(crate) Arc<PluginBackend>);

#[async_trait]
impl Backend for StdioBackend {
    async fn run(&self, execution: &Execution) -> Result<Output, Refusal> {
        let plugins = &self.0;
        let primitive = &execution.call.entry.primitive;
        let Some(Mode::McpStdio(target)) = mode(primitive) else { return Err(misplaced(execution)) };
        let (plugin, hints) = stdio_ref(primitive, target);
        let server = &execution.call.server.message.name;
        let name = pinned::package(server, primitive, target);
        if let Some(fleet) = plugins.runtimes.get(STDIO) {
            let upstream = Upstream { name: &name, place: &name, again: false };
            let poller = || {
                let place = plugins.location(fleet, STDIO, hints.clone(), false);
                Package::of(plugin.clone(), place, (server.clone(), primitive.id.clone()))
            };
            tokio::select! {
                () = plugins.packages.enter(upstream, poller) => {}
                () = execution.call.cancelled() => return Err(Refusal::Cancelled),
            }
            // A call that another gateway has begun was not refused there.
            if execution.resume_state.is_none() && !plugins.packages.items.offers(server, primitive) {
                // A tool that the package no longer lists is as unknown as one that was never here (I-10).
                return Err(Refusal::Unknown);
            }
        }
        plugins.run_plugin(execution, (plugin, hints), target.tool.clone(), Some(name)).await
    }

    fn continues(&self, primitive: &Primitive) -> bool {
        self.0.continues(primitive)
    }

    /// Hides items that their package no longer lists as they were accepted.
    fn offers(&self, server: &str, primitive: &Primitive) -> bool {
        self.0.offers(server, primitive) && self.0.packages.items.offers(server, primitive)
    }

    fn availability(&self, primitive: &Primitive) -> Option<Availability> {
        self.0.availability(primitive)
    }
}
