//! Forwards calls to other people's services: HTTP/JSON by mapping, upstream MCP servers, and services that
//! host calls over HTTP/JSON.
//!
//! Keeps true: the client's token is never forwarded (I-8); a private address is reached only through an
//! entry of the snapshot's allow-list; one dead upstream has a breaker for each server and never slows its neighbours.

use std::sync::Arc;

use asp_proto::snapshot::runtime::Mode;
use asp_proto::snapshot::{Primitive, ProxyHttp, ProxyMcp};
use asp_snapshot::Snapshot;

use crate::call::Call;
use crate::call::outcome::{Output, Refusal};
use crate::execution::{Execution, Following, SessionNote, Subscribed};
use crate::executors::accepted::pinned::PinnedItems;
use crate::executors::outbound::auth::Authorizer;
use crate::executors::outbound::breaker::{Breakers, Permit, patience};
use crate::executors::outbound::client::{Outbound, OutboundError};
use crate::executors::outbound::upstream::origin;
use crate::telemetry::metrics::upstreams::UpstreamMetrics;

mod http;
pub mod mcp;

/// The proxy executor of one gateway.
pub struct Proxy {
    outbound: Arc<Outbound>,
    breakers: Arc<Breakers>,
    authorizer: Arc<Authorizer>,
    upstreams: mcp::McpUpstreams,
}

impl Proxy {
    pub fn new(
        outbound: Arc<Outbound>,
        breakers: Arc<Breakers>,
        metrics: Arc<UpstreamMetrics>,
        authorizer: Arc<Authorizer>,
    ) -> Result<Proxy, OutboundError> {
        let upstreams = mcp::McpUpstreams::new(metrics, authorizer.clone())?;
        Ok(Proxy { upstreams, breakers, authorizer, outbound })
    }

    /// A snapshot is in force.
    pub fn prepare(&self, snapshot: &Snapshot) {
        self.upstreams.prepare(snapshot);
    }

    /// What was accepted of upstream MCP servers, those that a runtime runs among them.
    pub(super) fn pinned(&self) -> Arc<PinnedItems> {
        self.upstreams.pinned()
    }

    /// Whether the service behind a primitive of a server still offers what was accepted of it.
    pub fn offers(&self, server: &str, primitive: &Primitive) -> bool {
        self.upstreams.offers(server, primitive)
    }

    /// Changes whenever [`Proxy::offers`] answers otherwise than before.
    pub fn offers_changed(&self) -> u64 {
        self.upstreams.offers_changed()
    }

    /// Learns from now on when a resource of an upstream MCP server changes.
    pub fn follow(&self, subscribed: Subscribed<'_>) -> Option<Following> {
        match subscribed.primitive.runtime.as_ref()?.mode.as_ref()? {
            Mode::ProxyMcp(target) => self.upstreams.follow(target, subscribed),
            _ => None,
        }
    }

    /// A client says something of its session.
    pub fn heard(&self, session: &str, said: SessionNote) {
        self.upstreams.heard(session, said);
    }

    /// One HTTP/JSON request. What proves it is had before: an issuer that fails is no failure of the service.
    pub async fn http(&self, mapping: &ProxyHttp, execution: &Execution) -> Result<Output, Refusal> {
        let call = &execution.call;
        let mut started = execution.started();
        let proof = match &call.entry.primitive.service_auth {
            None => self.authorizer.told(call),
            Some(_) => {
                let url = http::url(&self.outbound, mapping, execution)?;
                let proof = self.authorizer.headers(call, &execution.snapshot, &url).await;
                proof.map_err(|unproved| unproved.refusal)?
            }
        };
        // A breaker's refusal is this gateway's answer, too: no other gateway is asked for one.
        started.sent();
        let permit = self.enter(&mapping.url, call)?;
        let by = (&*self.outbound, &*self.authorizer, &proof);
        let result = http::run(by, mapping, execution, &mut started).await;
        permit.leave(&result);
        result
    }

    /// One request to an upstream MCP server.
    pub async fn mcp(&self, target: &ProxyMcp, execution: &Execution) -> Result<Output, Refusal> {
        let call = &execution.call;
        let mut started = execution.started();
        let client = self.upstreams.proving(target, execution).await;
        let client = client.map_err(|unproved| unproved.refusal)?;
        started.sent();
        let permit = self.enter(&target.url, call)?;
        let result = self.upstreams.run((&client, target), execution, &mut started).await;
        permit.leave(&result);
        result
    }

    fn enter(&self, url: &str, call: &Call) -> Result<Permit, Refusal> {
        self.breakers.enter(&call.server.message.name, &origin(url), patience(call))
    }

    /// Returns when nothing of an ended call is left to be said.
    pub async fn drained(&self) {
        self.upstreams.drained().await;
    }
}
