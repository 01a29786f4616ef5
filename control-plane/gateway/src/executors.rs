//! What runs a call: built-in code, static content, other people's services, and plugins.
//!
//! Keeps true: an executor sees the call and its arguments, never the client's token (I-8); a mode that this
//! build cannot run is a clear refusal, not a silent success.

use std::sync::Arc;

use asp_proto::snapshot::Upstream;
use asp_proto::snapshot::runtime::Mode;
use serde_json::Value;

use crate::call::Call;
use crate::call::outcome::{Output, Refusal};

pub mod builtin;
pub mod fixed;
pub mod proxy;

use proxy::Proxy;
use proxy::outbound::OutboundError;

/// One execution of a call.
pub struct Execution {
    pub call: Arc<Call>,
    /// Complete with defaults and checked against the input schema.
    pub arguments: Value,
    /// Calls left in the tightest rate limit; `None` without one.
    pub budget: Option<u64>,
    /// The hosts that may be reached although they are private (the snapshot's allow-list).
    pub upstreams: Arc<Vec<Upstream>>,
}

/// The executors of one gateway.
pub struct Executors {
    builtin: builtin::Builtins,
    proxy: Proxy,
}

impl Executors {
    pub fn new() -> Result<Executors, OutboundError> {
        Ok(Executors { builtin: builtin::Builtins, proxy: Proxy::new()? })
    }

    /// Runs the call on the executor its primitive names.
    pub async fn run(&self, execution: Execution) -> Result<Output, Refusal> {
        let call = execution.call.clone();
        match call.entry.primitive.runtime.as_ref().and_then(|runtime| runtime.mode.as_ref()) {
            Some(Mode::Builtin(builtin)) => self.builtin.run(&builtin.entrypoint, execution).await,
            Some(Mode::Static(content)) => fixed::run(&content.json, &execution),
            Some(Mode::ProxyHttp(mapping)) => self.proxy.http(mapping, &execution).await,
            Some(Mode::ProxyMcp(target)) => self.proxy.mcp(target, &execution).await,
            Some(Mode::Plugin(_) | Mode::McpStdio(_)) => {
                Err(Refusal::Upstream("no plugin runtime is configured".into()))
            }
            None => Err(Refusal::Internal(format!("primitive {} has no runtime", call.entry.primitive.id))),
        }
    }
}
