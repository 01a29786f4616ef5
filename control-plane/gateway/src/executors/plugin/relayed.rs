//! What a stdio server asks of its client within a call: a question of the call, as an upstream's over HTTP is one.
//!
//! Refuses: what a plugin asks in this way, and more than 16 at a time. Keeps true: the server gets one answer to each;
//! a question that it takes back, or that outlives its worker, is open no longer.

use std::future::ready;
use std::sync::Arc;

use asp_proto::plugin::{DeliverMcpAnswer, Json, McpRequested};
use serde_json::json;

use super::job::Job;
use crate::call::held;
use crate::executors::conversation::downstream::{Clients, RpcError};
use crate::executors::conversation::relaying::{OpenRequests, UpstreamRequest};
use crate::executors::plugin::reference::STDIO;

/// The open requests of one worker.
pub(super) struct Relayed {
    /// `None`: the worker is no MCP server.
    clients: Option<Arc<Clients>>,
    open: OpenRequests<String, Option<DeliverMcpAnswer>>,
}

/// The worker broke the protocol.
#[derive(Debug)]
pub(super) struct Broken(pub &'static str);

impl Relayed {
    pub(super) fn of(job: &Job<'_>) -> Relayed {
        Relayed { clients: (job.language == STDIO).then(|| job.clients.clone()), open: OpenRequests::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Puts a question, or takes one back.
    pub(super) fn take(&mut self, asked: McpRequested) -> Result<(), Broken> {
        let clients = self.clients.clone().ok_or(Broken("a plugin asks as an MCP server"))?;
        if asked.withdrawn {
            self.open.take_back(&asked.correlation_id);
            return Ok(());
        }
        if self.open.is_full() {
            return Err(Broken("too many requests are open"));
        }
        if self.open.contains(&asked.correlation_id) {
            return Err(Broken("the same request twice at a time"));
        }
        let params = params(asked.params.as_ref());
        let McpRequested { request_id, correlation_id, method, .. } = asked;
        let request = UpstreamRequest { downstream: clients, method, params };
        self.open.begin(correlation_id.clone(), request, move |answer| {
            ready(answer.map(|answer| delivery(request_id, correlation_id, answer)))
        });
        Ok(())
    }

    /// The next answer for the worker; `None` for a question that was taken back.
    pub(super) async fn next(&mut self) -> Option<DeliverMcpAnswer> {
        self.open.next().await.flatten()
    }
}

/// What is no object has no member that a request needs, and is refused for that.
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
