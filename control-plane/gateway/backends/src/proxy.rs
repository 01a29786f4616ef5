//! Forwards calls to external services: HTTP/JSON by mapping, and upstream MCP servers.
//!
//! Keeps true: the client's token is never forwarded (I-8); a private address is reached only through an entry of the
//! snapshot's allow-list; an upstream that is down is cut off by a breaker for each server and never slows others.

use std::sync::Arc;

use asp_call::call::outcome::{Output, Refusal};
use asp_call::call::{Call, CallKind};
use asp_call::execution::{Execution, ResourceSubscription, SessionNote, SubscriptionGuard};
use asp_call::telemetry::metrics::UpstreamMetrics;
use asp_outbound::{Outbound, OutboundError};
use asp_proto::snapshot::Primitive;
use asp_proto::snapshot::runtime::Mode;
use asp_snapshot::Snapshot;
use async_trait::async_trait;

use crate::accepted::pinned::PinnedItems;
use crate::backend::{Backend, misplaced, mode};
use crate::outbound::auth::Authorizer;
use crate::outbound::breaker::{Breakers, Permit, patience};
use crate::outbound::upstream::origin;

mod http;
pub mod mcp;

/// The backend of services over HTTP/JSON.
pub struct HttpBackend {
    outbound: Arc<Outbound>,
    breakers: Arc<Breakers>,
    authorizer: Arc<Authorizer>,
}

impl HttpBackend {
    pub(super) fn new(
        outbound: Arc<Outbound>,
        breakers: Arc<Breakers>,
        authorizer: Arc<Authorizer>,
    ) -> HttpBackend {
        HttpBackend { outbound, breakers, authorizer }
    }
}

#[async_trait]
impl Backend for HttpBackend {
    /// Sends one HTTP/JSON request. Its credentials are fetched before: a failing issuer is not a failure of the
    /// service.
    async fn run(&self, execution: &Execution) -> Result<Output, Refusal> {
        let call = &execution.call;
        let Some(Mode::ProxyHttp(mapping)) = mode(&call.entry.primitive) else {
            return Err(misplaced(execution));
        };
        let mut started = execution.started();
        let proof = match &call.entry.primitive.service_auth {
            None => self.authorizer.extra_headers(call),
            Some(_) => {
                let url = http::url(&self.outbound, mapping, execution)?;
                let proof = self.authorizer.headers(call, &execution.snapshot, &url).await;
                proof.map_err(|unproved| unproved.refusal)?
            }
        };
        // A refusal by the breaker is final: no other gateway is tried.
        started.mark_sent();
        let permit = enter(&self.breakers, &mapping.url, call)?;
        let by = (&*self.outbound, &*self.authorizer, &proof);
        let result = http::run(by, mapping, execution, &mut started).await;
        permit.leave(&result);
        result
    }
}

/// The backend of upstream MCP servers.
pub struct McpBackend {
    breakers: Arc<Breakers>,
    upstreams: mcp::McpUpstreams,
}

impl McpBackend {
    pub(super) fn new(
        breakers: Arc<Breakers>,
        metrics: Arc<UpstreamMetrics>,
        authorizer: Arc<Authorizer>,
    ) -> Result<McpBackend, OutboundError> {
        Ok(McpBackend { breakers, upstreams: mcp::McpUpstreams::new(metrics, authorizer)? })
    }

    /// The accepted items of upstream MCP servers, including those that a runtime runs.
    pub(super) fn pinned(&self) -> Arc<PinnedItems> {
        self.upstreams.pinned()
    }
}

#[async_trait]
impl Backend for McpBackend {
    /// Sends one request to an upstream MCP server.
    async fn run(&self, execution: &Execution) -> Result<Output, Refusal> {
        let call = &execution.call;
        let Some(Mode::ProxyMcp(target)) = mode(&call.entry.primitive) else {
            return Err(misplaced(execution));
        };
        let mut started = execution.started();
        let client = self.upstreams.proving(target, execution).await;
        let client = client.map_err(|unproved| unproved.refusal)?;
        // As for HTTP, a breaker's refusal is this gateway's answer.
        started.mark_sent();
        let permit = enter(&self.breakers, &target.url, call)?;
        let result = self.upstreams.run((&client, target), execution, &mut started).await;
        permit.leave(&result);
        result
    }

    fn answers(&self, kind: &CallKind) -> bool {
        !matches!(kind, CallKind::List)
    }

    /// Hides items that an upstream no longer lists as they were accepted.
    fn offers(&self, server: &str, primitive: &Primitive) -> bool {
        self.upstreams.offers(server, primitive)
    }

    fn offers_changed(&self) -> u64 {
        self.upstreams.offers_changed()
    }

    fn prepare(&self, snapshot: &Snapshot) {
        self.upstreams.prepare(snapshot);
    }

    fn watch(&self, subscribed: ResourceSubscription<'_>) -> Option<SubscriptionGuard> {
        match mode(subscribed.primitive)? {
            Mode::ProxyMcp(target) => self.upstreams.follow(target, subscribed),
            _ => None,
        }
    }

    fn handle_session_note(&self, session: &str, said: SessionNote) {
        self.upstreams.handle_session_note(session, said);
    }

    async fn drained(&self) {
        self.upstreams.drained().await;
    }
}

fn enter(breakers: &Breakers, url: &str, call: &Call) -> Result<Permit, Refusal> {
    breakers.enter(&call.server.message.name, &origin(url), patience(call))
}
