//! Forwards calls to other people's services: HTTP/JSON by mapping, upstream MCP servers, and services that
//! host calls over HTTP/JSON.
//!
//! Keeps true: the client's token is never forwarded (I-8); a private address is reached only through an
//! entry of the snapshot's allow-list; one dead upstream has its own breaker and never slows its neighbours.

use std::sync::Arc;

use asp_proto::snapshot::{ProxyHttp, ProxyMcp};

use crate::call::outcome::{Output, Refusal};
use crate::execution::Execution;
use crate::executors::outbound::breaker::{Breakers, patience};
use crate::executors::outbound::client::Outbound;
use crate::executors::outbound::upstream::origin;

mod http;
pub mod mcp;

/// The proxy executor of one gateway.
pub struct Proxy {
    outbound: Arc<Outbound>,
    breakers: Arc<Breakers>,
    upstreams: mcp::McpUpstreams,
}

impl Proxy {
    pub fn new(outbound: Arc<Outbound>, breakers: Arc<Breakers>) -> Proxy {
        Proxy { upstreams: mcp::McpUpstreams::new(outbound.clone()), breakers, outbound }
    }

    /// One HTTP/JSON request.
    pub async fn http(&self, mapping: &ProxyHttp, execution: &Execution) -> Result<Output, Refusal> {
        let permit = self.breakers.enter(&origin(&mapping.url), patience(&execution.call))?;
        let result = http::run(&self.outbound, mapping, execution).await;
        permit.leave(&result);
        result
    }

    /// One request to an upstream MCP server.
    pub async fn mcp(&self, target: &ProxyMcp, execution: &Execution) -> Result<Output, Refusal> {
        let permit = self.breakers.enter(&origin(&target.url), patience(&execution.call))?;
        let result = self.upstreams.run(target, execution).await;
        permit.leave(&result);
        result
    }

    /// Returns when nothing of an ended call is left to be said.
    pub async fn drained(&self) {
        self.upstreams.drained().await;
    }
}
