//! What a stdio server asks of its client within a call: a question of the call, as an upstream's over HTTP is one.
//!
//! Refuses: what a plugin asks in this way, and more than 16 at a time. Keeps true: the server gets one answer to each;
//! a question that it takes back, or that outlives its worker, is open no longer.

use std::collections::HashMap;
use std::sync::Arc;

use asp_proto::plugin::{DeliverMcpAnswer, Json, McpRequested};
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::job::Job;
use crate::call::held;
use crate::executors::conversation::downstream::{Clients, Downstream, RpcError};
use crate::executors::plugin::reference::STDIO;

/// Most that are open in one call (plugin.proto).
const MAX_OPEN: usize = 16;

/// The open requests of one worker.
pub(super) struct Relayed {
    /// `None`: the worker is no MCP server.
    clients: Option<Arc<Clients>>,
    waiting: FuturesUnordered<BoxFuture<'static, (String, Option<DeliverMcpAnswer>)>>,
    open: HashMap<String, CancellationToken>,
}

/// The worker broke the protocol.
#[derive(Debug)]
pub(super) struct Broken(pub &'static str);

impl Relayed {
    pub(super) fn of(job: &Job<'_>) -> Relayed {
        Relayed {
            clients: (job.language == STDIO).then(|| job.clients.clone()),
            waiting: FuturesUnordered::new(),
            open: HashMap::new(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Puts a question, or takes one back.
    pub(super) fn take(&mut self, asked: McpRequested) -> Result<(), Broken> {
        let clients = self.clients.clone().ok_or(Broken("a plugin asks as an MCP server"))?;
        if asked.withdrawn {
            self.open.get(&asked.correlation_id).into_iter().for_each(CancellationToken::cancel);
            return Ok(());
        }
        if self.open.len() >= MAX_OPEN {
            return Err(Broken("too many requests are open"));
        }
        let taken_back = CancellationToken::new();
        if self.open.insert(asked.correlation_id.clone(), taken_back.clone()).is_some() {
            return Err(Broken("the same request twice at a time"));
        }
        let params = params(asked.params.as_ref());
        let McpRequested { request_id, correlation_id, method, .. } = asked;
        self.waiting.push(Box::pin(async move {
            let answer = tokio::select! {
                answer = clients.asked(&method, &params) => answer,
                () = taken_back.cancelled() => return (correlation_id, None),
            };
            (correlation_id.clone(), Some(delivery(request_id, correlation_id, answer)))
        }));
        Ok(())
    }

    /// The next answer for the worker; `None` for a question that was taken back.
    pub(super) async fn next(&mut self) -> Option<DeliverMcpAnswer> {
        let (id, answer) = self.waiting.next().await?;
        self.open.remove(&id);
        answer
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
