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
use crate::live::Dependency;

pub mod artifacts;
pub mod builtin;
pub mod fixed;
pub mod plugin;
pub mod proxy;

use artifacts::Artifacts;
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
}

/// The executors of one gateway.
pub struct Executors {
    builtin: builtin::Builtins,
    proxy: Proxy,
    plugins: Plugins,
    artifacts: Artifacts,
}

impl Executors {
    pub fn new(plugins: Plugins, artifacts: Artifacts) -> Result<Executors, OutboundError> {
        Ok(Executors { builtin: builtin::Builtins, proxy: Proxy::new()?, plugins, artifacts })
    }

    /// Prepares what the primitives of a new snapshot run on.
    pub fn prepare(&self, primitives: &[Primitive]) {
        self.plugins.prepare(primitives);
    }

    /// Returns when nothing of an ended call is left to do; the end of a shutdown.
    pub async fn drained(&self) {
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
            Some(Mode::Plugin(plugin)) => self.plugins.plugin(plugin, &execution).await,
            Some(Mode::McpStdio(target)) => self.plugins.stdio(target, &execution).await,
            None => Err(Refusal::Internal(format!("primitive {} has no runtime", call.entry.primitive.id))),
        }
    }
}
