//! Requests of a stdio server to its client within a call: they become questions of the call, as for an upstream over
//! HTTP.
//!
//! Refuses: such requests from a plugin, and more than 16 at a time. Keeps true: the server gets one answer to each;
//! a request that it withdraws, or that outlives its worker, is closed.

use std::future::ready;
use std::sync::Arc;

use asp_json::held;
use asp_mcp_client::client::downstream::RpcError;
use asp_mcp_client::client::open_requests::{OpenRequests, UpstreamRequest};
use asp_proto::plugin::{DeliverMcpAnswer, Json, McpRequested};
use serde_json::json;

use super::job::Job;
use super::reference::STDIO;
use crate::conversation::downstream::Clients;

/// Open requests of one worker.
pub(super) struct RelayedRequests {
    /// `None` if the worker is not an MCP server.
    clients: Option<Arc<Clients>>,
    open: OpenRequests<String, Option<DeliverMcpAnswer>>,
}

/// A violation of the protocol by the worker.
#[derive(Debug)]
pub(super) struct RelayFault(pub &'static str);

impl RelayedRequests {
    pub(super) fn of(job: &Job<'_>) -> RelayedRequests {
        RelayedRequests {
            clients: (job.language == STDIO).then(|| job.clients.clone()),
            open: OpenRequests::default(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Opens a request, or withdraws one.
    pub(super) fn take(&mut self, asked: McpRequested) -> Result<(), RelayFault> {
        let clients = self.clients.clone().ok_or(RelayFault("a plugin asks as an MCP server"))?;
        if asked.withdrawn {
            self.open.take_back(&asked.correlation_id);
            return Ok(());
        }
        if self.open.is_full() {
            return Err(RelayFault("too many requests are open"));
        }
        if self.open.contains(&asked.correlation_id) {
            return Err(RelayFault("the same request twice at once"));
        }
        let params = params(asked.params.as_ref());
        let McpRequested { request_id, correlation_id, method, .. } = asked;
        let request = UpstreamRequest { downstream: clients, method, params };
        self.open.begin(correlation_id.clone(), request, move |answer| {
            ready(answer.map(|answer| delivery(request_id, correlation_id, answer)))
        });
        Ok(())
    }

    /// Waits for the next answer to the worker; `None` for a request that was withdrawn.
    pub(super) async fn next(&mut self) -> Option<DeliverMcpAnswer> {
        self.open.next().await.flatten()
    }
}

/// Parses the parameters. A value that is not an object becomes an empty one, and the request is refused for its
/// missing members.
fn params(json: Option<&Json>) -> asp_json::Json {
    let json = json.filter(|json| !held::is_too_much(&json.value));
    let params = json.and_then(|json| asp_json::Json::parse(&json.value).ok());
    params.filter(|params| params.is_object()).unwrap_or_else(|| json!({}).into())
}

fn delivery(
    request_id: String,
    correlation_id: String,
    answer: Result<asp_json::Json, RpcError>,
) -> DeliverMcpAnswer {
    let empty = DeliverMcpAnswer { request_id, correlation_id, ..DeliverMcpAnswer::default() };
    match answer {
        Ok(result) => {
            DeliverMcpAnswer { result: Some(Json { value: result.text().as_bytes().to_vec() }), ..empty }
        }
        Err(RpcError { code, message }) => {
            DeliverMcpAnswer { error_code: code, error_message: message.into_owned(), ..empty }
        }
    }
}
