//! Forwards calls to other people's services: HTTP/JSON by mapping, upstream MCP servers, and services that
//! host calls over HTTP/JSON.
//!
//! Keeps true: the client's token is never forwarded (I-8); a private address is reached only through an
//! entry of the snapshot's allow-list; one dead upstream has its own breaker and never slows its neighbours.

use std::sync::Arc;

use asp_proto::snapshot::{ProxyCalls, ProxyHttp, ProxyMcp};
use tokio::time::Instant;

use super::Execution;
use crate::call::Call;
use crate::call::outcome::{Output, Refusal};
use crate::clock::since_epoch;

pub(in crate::executors) mod breaker;
pub mod calls;
mod http;
pub mod mcp;
pub mod outbound;
pub(in crate::executors) mod refused;
pub(in crate::executors) mod said;

use breaker::{Breakers, patience};
use calls::Calls;
use outbound::{Outbound, OutboundError};

/// The proxy executor of one gateway.
pub struct Proxy {
    outbound: Arc<Outbound>,
    breakers: Arc<Breakers>,
    upstreams: mcp::McpUpstreams,
    calls: Calls,
}

impl Proxy {
    pub fn new() -> Result<Proxy, OutboundError> {
        let (outbound, breakers) = (Arc::new(Outbound::new()?), Arc::<Breakers>::default());
        Ok(Proxy {
            upstreams: mcp::McpUpstreams::new(outbound.clone()),
            calls: Calls::new(outbound.clone(), breakers.clone()),
            breakers,
            outbound,
        })
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

    /// One call that its service hosts. Each request of it counts in the breaker, not the call.
    pub async fn calls(&self, target: &ProxyCalls, execution: &Execution) -> Result<Output, Refusal> {
        self.calls.run(target, execution).await
    }

    /// Returns when nothing of an ended call is left to be said.
    pub async fn drained(&self) {
        tokio::join!(self.calls.drained(), self.upstreams.drained());
    }
}

/// Scheme and authority of a URL or URL template, as the breaker's key.
pub(in crate::executors) fn origin(url: &str) -> String {
    let end = url.find("://").and_then(|at| Some(at + 3 + url.get(at + 3..)?.find('/')?));
    url.get(..end.unwrap_or(url.len())).unwrap_or(url).to_owned()
}

/// The call's absolute deadline as Unix milliseconds (ADR 6).
fn deadline_ms(call: &Call) -> String {
    let left = call.deadline().saturating_duration_since(Instant::now());
    (since_epoch() + left).as_millis().to_string()
}

/// A request that may have been delivered and got no answer.
fn lost(call: &Call, why: &str) -> Refusal {
    call.unanswered(Refusal::Upstream(why.into()))
}

/// Why a request got no answer. Says nothing of addresses (I-11).
fn refusal_of(call: &Call, error: &reqwest::Error) -> Refusal {
    if error.is_connect() || error.is_builder() {
        Refusal::Upstream("the service could not be reached".into())
    } else {
        lost(call, "the service did not answer")
    }
}

#[cfg(test)]
mod tests {
    use super::origin;

    #[test]
    fn the_breaker_is_kept_per_origin() {
        assert_eq!(origin("https://a.example.com/x/{id}?q=1"), "https://a.example.com");
        assert_eq!(origin("http://a.example.com:8080"), "http://a.example.com:8080");
    }
}
