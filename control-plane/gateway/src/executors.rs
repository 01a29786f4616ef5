//! What runs a call: built-in code, static content, other people's services, and plugins.
//!
//! Keeps true: an executor sees the call and its arguments, never the client's token (I-8); a mode that this
//! build cannot run is a clear refusal, not a silent success.

use std::sync::Arc;

use asp_proto::snapshot::Primitive;
use asp_proto::snapshot::runtime::Mode;
use asp_snapshot::{Snapshot, artifact};
use async_trait::async_trait;

use crate::call::Aim;
use crate::call::outcome::{Output, Refusal};
use crate::execution::{Availability, Execution, Executor, Following, SessionNote, Subscribed};
use crate::executors::outbound::client::OutboundError;
use crate::telemetry::metrics::upstreams::UpstreamMetrics;

pub mod accepted;
pub mod artifacts;
pub mod builtin;
pub mod conversation;
mod counts;
pub mod delegate;
pub mod hosted;
pub mod outbound;
pub mod plugin;
pub mod proxy;
pub mod static_content;

use artifacts::Artifacts;
use delegate::Delegates;
use hosted::Calls;
use outbound::auth::Authorizer;
use outbound::breaker::Breakers;
use outbound::client::Outbound;
use plugin::Plugins;
use proxy::Proxy;

/// The executors of one gateway.
pub struct Executors {
    builtin: builtin::Builtins,
    proxy: Proxy,
    plugins: Plugins,
    hosted: Calls,
    artifacts: Artifacts,
}

impl Executors {
    pub fn new(
        plugins: Plugins,
        artifacts: Artifacts,
        delegates: Arc<Delegates>,
        metrics: Arc<UpstreamMetrics>,
        authorizer: Arc<Authorizer>,
    ) -> Result<Executors, OutboundError> {
        let outbound = Arc::new(Outbound::new()?);
        let breakers = Arc::<Breakers>::default();
        let proxy = Proxy::new(outbound.clone(), breakers.clone(), metrics, authorizer.clone())?;
        Ok(Executors {
            builtin: builtin::Builtins::default(),
            hosted: Calls::new(outbound, breakers, delegates, authorizer),
            plugins: plugins.with_pins(proxy.pinned()),
            proxy,
            artifacts,
        })
    }
}

#[async_trait]
impl Executor for Executors {
    fn runs(&self, primitive: &Primitive) -> bool {
        match primitive.runtime.as_ref().and_then(|runtime| runtime.mode.as_ref()) {
            Some(Mode::Plugin(_) | Mode::McpStdio(_)) => self.plugins.offers(primitive),
            Some(Mode::ProxyCalls(_)) => true,
            _ => false,
        }
    }

    fn offers(&self, server: &str, primitive: &Primitive) -> bool {
        self.plugins.offers(primitive)
            && self.proxy.offers(server, primitive)
            && self.builtin.offers(primitive)
    }

    fn offers_changed(&self) -> u64 {
        // All only grow, so that their sum changes with each.
        let upstreams = self.proxy.offers_changed();
        self.plugins.offers_changed().wrapping_add(upstreams).wrapping_add(self.builtin.offers_changed())
    }

    fn follow(&self, subscribed: Subscribed<'_>) -> Option<Following> {
        match subscribed.primitive.runtime.as_ref()?.mode.as_ref()? {
            Mode::Plugin(_) => self.plugins.follow(subscribed),
            _ => self.proxy.follow(subscribed),
        }
    }

    fn heard(&self, session: &str, said: SessionNote) {
        self.proxy.heard(session, said);
    }

    fn availability(&self, primitive: &Primitive) -> Option<Availability> {
        self.plugins.availability(primitive)
    }

    fn prepare(&self, snapshot: &Snapshot) {
        self.proxy.prepare(snapshot);
        self.plugins.prepare(&snapshot.primitives().collect::<Vec<_>>());
    }

    async fn drained(&self) {
        self.proxy.drained().await;
        self.hosted.drained().await;
        self.plugins.drained().await;
    }

    async fn run(&self, execution: Execution) -> Result<Output, Refusal> {
        let call = execution.call.clone();
        let mode = call.entry.primitive.runtime.as_ref().and_then(|runtime| runtime.mode.as_ref());
        if matches!(mode, Some(Mode::Builtin(_) | Mode::Static(_))) {
            // Every other one marks the call when something of it leaves the gateway.
            execution.started().sent();
        }
        match mode {
            Some(mode) if !may_be_asked(&call.aim, mode) => {
                Err(Refusal::Internal(format!("primitive {} has nobody to ask", call.entry.primitive.id)))
            }
            Some(Mode::Builtin(builtin)) if builtin.entrypoint == artifact::ENTRYPOINT => {
                self.artifacts.read(&execution).await
            }
            Some(Mode::Builtin(builtin)) => self.builtin.run(&builtin.entrypoint, execution).await,
            Some(Mode::Static(content)) => static_content::run(&content.json, &execution),
            Some(Mode::ProxyHttp(mapping)) => self.proxy.http(mapping, &execution).await,
            Some(Mode::ProxyMcp(target)) => self.proxy.mcp(target, &execution).await,
            Some(Mode::ProxyCalls(target)) => self.hosted.run(target, &execution).await,
            Some(Mode::Plugin(plugin)) => self.plugins.plugin(plugin, &execution).await,
            Some(Mode::McpStdio(target)) => self.plugins.stdio(target, &execution).await,
            // What answers delegations; nobody calls it.
            Some(Mode::ProxyOpenai(_) | Mode::Primitive(_)) => {
                Err(Refusal::Internal(format!("primitive {} is a delegate", call.entry.primitive.id)))
            }
            None => Err(Refusal::Internal(format!("primitive {} has no runtime", call.entry.primitive.id))),
        }
    }
}

/// Whether what runs a primitive can answer more than calls: what may stand for an argument, what is behind a template.
fn may_be_asked(aim: &Aim, mode: &Mode) -> bool {
    match aim {
        Aim::Done => true,
        Aim::Completed(_) => matches!(mode, Mode::Plugin(_) | Mode::ProxyMcp(_)),
        Aim::Listed => matches!(mode, Mode::Plugin(_)),
    }
}
