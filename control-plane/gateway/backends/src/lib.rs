//! Backends that run calls: built-in code, static content, external services, and plugins.
//!
//! Owns: the table of backends, one for each runtime mode. Keeps true: a backend gets the call and its arguments,
//! never the client's token (I-8); a mode that this build cannot run is a clear refusal, not a silent success.

use std::sync::Arc;

use asp_call::call::outcome::{Output, Refusal};
use asp_call::execution::{
    Availability, Backends, Execution, ResourceSubscription, SessionNote, SubscriptionGuard,
};
use asp_call::telemetry::metrics::UpstreamMetrics;
use asp_outbound::Outbound;
pub use asp_outbound::OutboundError;
use asp_proto::snapshot::Primitive;
use asp_proto::snapshot::runtime::Mode;
use asp_snapshot::Snapshot;
use async_trait::async_trait;

pub mod accepted;
pub mod artifacts;
mod backend;
pub mod builtin;
pub mod conversation;
pub mod delegate;
pub mod hosted;
pub mod outbound;
pub mod plugin;
pub mod proxy;
pub mod static_content;

use accepted::DriftedItem;
use artifacts::Artifacts;
use backend::{Backend, mode};
use builtin::BuiltinBackend;
use delegate::Delegates;
use hosted::HostedBackend;
use outbound::auth::Authorizer;
use outbound::breaker::{Breakers, UpstreamFailure};
use plugin::{PluginBackend, StdioBackend};
use proxy::{A2aBackend, HttpBackend, McpBackend};
use static_content::StaticBackend;

/// The backends of one gateway.
pub struct BackendTable {
    builtin: BuiltinBackend,
    content: StaticBackend,
    http: HttpBackend,
    mcp: McpBackend,
    a2a: A2aBackend,
    hosted: HostedBackend,
    plugin: Arc<PluginBackend>,
    stdio: StdioBackend,
    breakers: Arc<Breakers>,
}

impl BackendTable {
    pub fn new(
        plugins: PluginBackend,
        artifacts: Artifacts,
        delegates: Arc<Delegates>,
        metrics: Arc<UpstreamMetrics>,
        authorizer: Arc<Authorizer>,
    ) -> Result<BackendTable, OutboundError> {
        let outbound = Arc::new(Outbound::new()?);
        let breakers = Arc::<Breakers>::default();
        let mcp = McpBackend::new(breakers.clone(), metrics, authorizer.clone())?;
        let a2a = A2aBackend::new(breakers.clone(), authorizer.clone(), mcp.pinned())?;
        let plugins = Arc::new(plugins.with_pins(mcp.pinned()));
        Ok(BackendTable {
            builtin: BuiltinBackend::new(artifacts.clone(), delegates.clone()),
            content: StaticBackend,
            http: HttpBackend::new(outbound.clone(), breakers.clone(), authorizer.clone(), artifacts),
            mcp,
            a2a,
            hosted: HostedBackend::new(outbound, breakers.clone(), delegates, authorizer),
            plugin: plugins.clone(),
            stdio: StdioBackend(plugins),
            breakers,
        })
    }

    /// Returns the services with a failure in the last ten minutes, the latest first.
    pub fn failing_upstreams(&self) -> Vec<UpstreamFailure> {
        self.breakers.failing()
    }

    /// Returns the accepted items that their upstreams list otherwise, by upstream and name.
    pub fn drifted_items(&self) -> Vec<DriftedItem> {
        self.mcp.pinned().drifted()
    }

    /// Returns the backend of a primitive; `None` if it has no runtime, or only answers delegations, so that it is
    /// never called.
    fn backend(&self, primitive: &Primitive) -> Option<&dyn Backend> {
        let plugin: &PluginBackend = &self.plugin;
        let backend: &dyn Backend = match mode(primitive)? {
            Mode::Builtin(_) => &self.builtin,
            Mode::Static(_) => &self.content,
            Mode::ProxyHttp(_) => &self.http,
            Mode::ProxyMcp(_) => &self.mcp,
            Mode::ProxyA2a(_) => &self.a2a,
            Mode::ProxyCalls(_) => &self.hosted,
            Mode::Plugin(_) => plugin,
            Mode::McpStdio(_) => &self.stdio,
            Mode::ProxyOpenai(_) | Mode::Primitive(_) => return None,
        };
        Some(backend)
    }

    /// Returns all backends, in the order in which they are prepared and drained.
    fn all(&self) -> [&dyn Backend; 8] {
        let plugin: &PluginBackend = &self.plugin;
        [&self.builtin, &self.content, &self.http, &self.mcp, &self.a2a, &self.hosted, plugin, &self.stdio]
    }
}

#[async_trait]
impl Backends for BackendTable {
    async fn run(&self, execution: Execution) -> Result<Output, Refusal> {
        let primitive = &execution.call.entry.primitive;
        let Some(backend) = self.backend(primitive) else {
            return Err(Refusal::Internal(format!("primitive {} has no backend", primitive.id)));
        };
        if !backend.answers(&execution.call.kind) {
            return Err(Refusal::Internal(format!("primitive {} has nobody to ask", primitive.id)));
        }
        // Names in specs may have servers that do not answer.
        asp_outbound::run_for(&execution.call.caller.org, backend.run(&execution)).await
    }

    fn runs(&self, primitive: &Primitive) -> bool {
        self.backend(primitive).is_some_and(|backend| backend.continues(primitive))
    }

    fn offers(&self, server: &str, primitive: &Primitive) -> bool {
        // The toggles of built-in functions hide static prompts too.
        self.builtin.offers(server, primitive)
            && self.backend(primitive).is_none_or(|backend| backend.offers(server, primitive))
    }

    fn offers_changed(&self) -> u64 {
        // Each number only grows, so their sum changes with each of them.
        self.all().iter().fold(0_u64, |sum, backend| sum.wrapping_add(backend.offers_changed()))
    }

    fn follow(&self, subscribed: ResourceSubscription<'_>) -> Option<SubscriptionGuard> {
        self.backend(subscribed.primitive)?.watch(subscribed)
    }

    fn handle_session_note(&self, session: &str, said: SessionNote) {
        self.all().iter().for_each(|backend| backend.handle_session_note(session, said));
    }

    fn availability(&self, primitive: &Primitive) -> Option<Availability> {
        self.backend(primitive)?.availability(primitive)
    }

    fn prepare(&self, snapshot: &Snapshot) {
        self.all().iter().for_each(|backend| backend.prepare(snapshot));
    }

    async fn drained(&self) {
        for backend in self.all() {
            backend.drained().await;
        }
    }
}
