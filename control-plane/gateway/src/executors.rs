//! What runs a call: built-in code, static content, other people's services, and plugins.
//!
//! Keeps true: an executor sees the call and its arguments, never the client's token (I-8); a mode that this
//! build cannot run is a clear refusal, not a silent success.

use std::collections::HashMap;
use std::sync::Arc;

use asp_proto::snapshot::runtime::Mode;
use asp_proto::snapshot::{Primitive, Upstream};
use serde_json::Value;

use crate::call::Call;
use crate::call::outcome::{Output, Refusal};
use crate::call::pipeline::Pipeline;
use crate::live::{Dependency, Live};

pub mod artifacts;
pub mod builtin;
pub mod delegate;
pub mod fixed;
pub mod plugin;
pub mod proxy;

use artifacts::Artifacts;
use delegate::Delegates;
use delegate::endpoint::Endpoints;
use plugin::Plugins;
use proxy::Proxy;
use proxy::outbound::OutboundError;

/// The builtin that reads artifacts. It judges the owner itself, so that a spec that names it gains nothing.
pub const ARTIFACT: &str = "asp.artifact";

/// One execution of a call.
pub struct Execution {
    pub call: Arc<Call>,
    /// Complete with defaults and checked against the input schema.
    pub arguments: Value,
    /// Calls left in the tightest rate limit; `None` without one.
    pub budget: Option<u64>,
    /// The hosts that may be reached although they are private (the snapshot's allow-list).
    pub upstreams: Arc<Vec<Upstream>>,
    /// What primitives may ask, by id.
    pub dependencies: Arc<HashMap<String, Dependency>>,
    /// The snapshot and the pipeline it runs in, for the calls it makes.
    pub live: Arc<Live>,
    pub pipeline: Arc<Pipeline>,
    /// What it had come to on a gateway that is gone; `None` for a call that begins.
    pub former: Option<Former>,
}

/// What a call had come to.
pub struct Former {
    /// The number of its last checkpoint; 0 without one.
    pub seq: u64,
    /// As the executor stored it; empty where it stored nothing.
    pub state: Vec<u8>,
}

/// The executors of one gateway.
pub struct Executors {
    builtin: builtin::Builtins,
    proxy: Proxy,
    plugins: Plugins,
    artifacts: Artifacts,
    pub delegates: Delegates,
}

impl Executors {
    pub fn new(
        plugins: Plugins,
        artifacts: Artifacts,
        endpoints: Endpoints,
    ) -> Result<Executors, OutboundError> {
        let (proxy, delegates) = (Proxy::new()?, Delegates::new(endpoints)?);
        Ok(Executors { builtin: builtin::Builtins, proxy, plugins, artifacts, delegates })
    }

    /// Whether a call that was left behind by another gateway can go on here.
    pub fn runs(&self, primitive: &Primitive) -> bool {
        match primitive.runtime.as_ref().and_then(|runtime| runtime.mode.as_ref()) {
            Some(Mode::Plugin(plugin)) => self.plugins.speaks(&plugin.language),
            Some(Mode::McpStdio(_)) => self.plugins.speaks("mcp-stdio"),
            Some(Mode::ProxyCalls(_)) => true,
            _ => false,
        }
    }

    /// Prepares what the primitives of a new snapshot run on.
    pub fn prepare(&self, primitives: &[Primitive]) {
        self.plugins.prepare(primitives);
    }

    /// Returns when nothing of an ended call is left to do; the end of a shutdown.
    pub async fn drained(&self) {
        self.proxy.drained().await;
        self.plugins.drained().await;
    }

    /// Runs the call on the executor its primitive names.
    pub async fn run(&self, execution: Execution) -> Result<Output, Refusal> {
        let call = execution.call.clone();
        let mode = call.entry.primitive.runtime.as_ref().and_then(|runtime| runtime.mode.as_ref());
        if !matches!(mode, Some(Mode::Plugin(_) | Mode::McpStdio(_))) {
            // A plugin's call is handed over when its worker gets it.
            call.hand_over();
        }
        match mode {
            Some(Mode::Builtin(builtin)) if builtin.entrypoint == ARTIFACT => {
                self.artifacts.read(&execution).await
            }
            Some(Mode::Builtin(builtin)) => self.builtin.run(&builtin.entrypoint, execution).await,
            Some(Mode::Static(content)) => fixed::run(&content.json, &execution),
            Some(Mode::ProxyHttp(mapping)) => self.proxy.http(mapping, &execution).await,
            Some(Mode::ProxyMcp(target)) => self.proxy.mcp(target, &execution).await,
            Some(Mode::ProxyCalls(target)) => self.proxy.calls(target, &execution).await,
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
