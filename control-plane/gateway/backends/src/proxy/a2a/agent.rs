//! Requests to one interface of a remote agent, and their answers.
//!
//! Keeps true: the client's token is never sent (I-8); an answer, an event and the silence of a stream are bounded; each
//! request has credentials that are valid now, and is repeated once if the agent rejects them and there are others; no id, which is
//! the agent's or its card's word, leads out of the path of the interface.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use asp_a2a::jsonrpc::{self, AnswerFault};
use asp_a2a::rest;
use asp_a2a::version::VERSION_HEADER;
use asp_a2a::{
    A2aAnswer, A2aError, A2aFailure, Generation, Operation, OperationKind, Request, SendResult, StreamEvent,
};
use asp_call::call::Call;
use asp_call::call::outcome::Refusal;
use asp_call::execution::Execution;
use asp_json::{held, unmarked};
use asp_mcp_client::client::is_event_stream;
use asp_outbound::{Outbound, OutboundError, is_below, retry_after};
use asp_platform::event_stream::Frames;
use asp_proto::snapshot::ProxyA2a;
use asp_proto::snapshot::proxy_a2a::Binding;
use asp_snapshot::Snapshot;
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap};
use reqwest::{Client, Method, RequestBuilder, Response, StatusCode, Url};
use tokio::time::{Instant, timeout_at};

use crate::outbound::auth::Authorizer;
use crate::outbound::upstream::{deadline_ms, requested_by};

/// Maximum size of an answer, and of one event of a stream, in bytes.
const MAX_ANSWER: usize = 16 << 20;
/// Timeout of a request that starts nothing.
const MAX_REQUEST: Duration = Duration::from_secs(30);
/// Maximum time until the head of the answer to a message that may be a stream: an agent may send it with its first event.
const MAX_HEAD: Duration = Duration::from_secs(300);
/// Longest silence of a stream. Agents send comments between events; without them the task is looked at.
const MAX_SILENCE: Duration = Duration::from_secs(60);
/// Id of each JSON-RPC request: every one has a connection's exchange to itself.
const RPC_ID: u64 = 1;
const JSON: &str = "application/json";
const TOO_MANY_VALUES: &str = "the agent's answer holds too many JSON values";

/// One interface of an agent, for one call.
#[derive(Clone)]
pub(super) struct Agent {
    http: Client,
    /// Validated URL.
    url: Url,
    binding: Binding,
    generation: Generation,
    tenant: Option<String>,
    call: Arc<Call>,
    snapshot: Arc<Snapshot>,
    authorizer: Arc<Authorizer>,
}

/// The reason why there is no answer.
#[derive(Debug)]
pub(super) enum AgentFault {
    /// The request was certainly not delivered.
    NotSent(Refusal),
    /// The agent, or a proxy before it, refused the request.
    Refused { failure: A2aFailure, wait: Option<Duration> },
    /// The request may have been delivered. The text has no addresses (I-11).
    Lost(String),
}

/// Answer to a message or a subscription that may be a stream.
pub(super) enum StreamAnswer {
    Events(EventStream),
    Whole(SendResult),
}

fn loss(why: &str) -> AgentFault {
    AgentFault::Lost(why.to_owned())
}

impl Agent {
    pub(super) fn new(
        outbound: &Outbound,
        authorizer: &Arc<Authorizer>,
        target: &ProxyA2a,
        execution: &Execution,
    ) -> Result<Agent, Refusal> {
        let by = requested_by(&execution.call);
        let destination = outbound.destination(&target.url, &execution.snapshot.upstreams, by);
        let destination = destination.map_err(|error| Refusal::Upstream(error.to_string()))?;
        let generation = match target.version.as_str() {
            "" => Generation::V10,
            version => Generation::parse(version).ok_or_else(|| {
                Refusal::Internal(format!("this build does not speak version {version} of A2A"))
            })?,
        };
        Ok(Agent {
            http: destination.client.clone(),
            url: destination.url,
            binding: target.binding(),
            generation,
            tenant: Some(target.tenant.clone()).filter(|tenant| !tenant.is_empty()),
            call: execution.call.clone(),
            snapshot: execution.snapshot.clone(),
            authorizer: authorizer.clone(),
        })
    }

    /// Sends a request that is answered as a whole.
    pub(super) async fn ask(&self, operation: Operation) -> Result<A2aAnswer, AgentFault> {
        let left = self.call.deadline().saturating_duration_since(Instant::now());
        let longest = match operation.kind() {
            // An agent may answer a message only when its task ends.
            OperationKind::Send => left,
            _ => left.min(MAX_REQUEST),
        };
        let kind = operation.kind();
        let response = self.exchange(operation, Some(longest)).await?;
        self.answer(kind, response).await
    }

    /// Sends a request that may be answered by a stream. The time until the answer begins is bounded, that of a stream is not.
    pub(super) async fn stream(&self, operation: Operation) -> Result<StreamAnswer, AgentFault> {
        let kind = operation.kind();
        let longest = if kind == OperationKind::Subscribe { MAX_REQUEST } else { MAX_HEAD };
        let until = Instant::now() + longest;
        let late = |_| loss("the agent did not answer");
        let response = timeout_at(until, self.exchange(operation, None)).await.map_err(late)??;
        if response.status().is_success() && is_event_stream(&response) {
            return Ok(StreamAnswer::Events(EventStream {
                response,
                frames: Frames::bounded(MAX_ANSWER),
                ready: VecDeque::new(),
                binding: self.binding,
                generation: self.generation,
            }));
        }
        match timeout_at(until, self.answer(kind, response)).await.map_err(late)?? {
            A2aAnswer::Sent(result) => Ok(StreamAnswer::Whole(result)),
            _ => Err(loss("the agent's answer is neither a task nor a message")),
        }
    }

    /// Asks the agent to cancel a task, also after the deadline; returns whether it has decided on that.
    pub(super) async fn cancel(&self, task: &str, longest: Duration) -> bool {
        let cancelling = async {
            let proof = self.authorizer.cancel_auth(&self.call, &self.snapshot, &self.url).await?;
            let operation = Operation::CancelTask { id: task.to_owned(), metadata: None };
            let request = self.request(operation).ok()?.headers(proof);
            let response = request.send().await.ok()?;
            Some(!response.status().is_server_error())
        };
        tokio::time::timeout(longest, cancelling).await.ok().flatten().unwrap_or(false)
    }

    async fn exchange(
        &self,
        operation: Operation,
        longest: Option<Duration>,
    ) -> Result<Response, AgentFault> {
        let mut is_first = true;
        loop {
            let mut request = self.request(operation.clone())?;
            if let Some(longest) = longest {
                request = request.timeout(longest);
            }
            let proof = self.authorizer.headers(&self.call, &self.snapshot, &self.url).await;
            let proof: HeaderMap = proof.map_err(|unproved| AgentFault::NotSent(unproved.refusal))?;
            let sent = request.headers(proof).send().await;
            let response = sent.map_err(|error| match error.is_connect() || error.is_builder() {
                true => AgentFault::NotSent(Refusal::Upstream("the agent could not be reached".into())),
                false => loss("the agent did not answer"),
            })?;
            let is_refused = self.authorizer.is_rejection(&self.call, response.status());
            // Also the second rejection is reported: a linked account is dead since then.
            if !is_refused || !self.authorizer.refused(&self.call, &self.snapshot).await || !is_first {
                return Ok(response);
            }
            is_first = false;
        }
    }

    fn request(&self, operation: Operation) -> Result<RequestBuilder, AgentFault> {
        let accept =
            if operation.kind().is_streaming() { "text/event-stream, application/json" } else { JSON };
        let request = Request { generation: self.generation, tenant: self.tenant.clone(), operation };
        let unsupported =
            || AgentFault::Refused { failure: A2aError::UnsupportedOperation.into(), wait: None };
        let (builder, body) = match self.binding {
            Binding::Rest => {
                let written = rest::encode_request(&request).ok_or_else(unsupported)?;
                let method = if written.method == "GET" { Method::GET } else { Method::POST };
                (self.http.request(method, self.below(&written.target)?), written.body)
            }
            Binding::Unspecified | Binding::Jsonrpc => {
                let body = jsonrpc::encode_request(RPC_ID, &request).ok_or_else(unsupported)?;
                (self.http.post(self.url.clone()), Some(body))
            }
        };
        let builder = builder
            .header(ACCEPT, accept)
            .header(VERSION_HEADER, self.generation.as_str())
            .header("x-deadline-ms", deadline_ms(&self.call));
        Ok(match body {
            Some(body) => builder.header(CONTENT_TYPE, JSON).body(body),
            None => builder,
        })
    }

    /// Returns the URL of a path with its query below the agent's; refuses one that a service may take for another path.
    fn below(&self, target: &str) -> Result<Url, AgentFault> {
        let (path, query) =
            target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)));
        let mut url = self.url.clone();
        let base = url.path().trim_end_matches('/').to_owned();
        url.set_path(&format!("{base}{path}"));
        if !is_below(url.path(), &base) {
            return Err(AgentFault::NotSent(Refusal::Upstream(OutboundError::Path.to_string())));
        }
        if query.is_some() {
            url.set_query(query);
        }
        Ok(url)
    }

    async fn answer(&self, kind: OperationKind, response: Response) -> Result<A2aAnswer, AgentFault> {
        let status = response.status();
        let wait = retry_after(response.headers());
        let body = asp_outbound::body(response, MAX_ANSWER).await.map_err(loss)?;
        if held::is_too_much(&body) {
            return Err(loss(TOO_MANY_VALUES));
        }
        let decoded = match self.binding {
            Binding::Rest => rest::decode_answer(kind, self.generation, status.as_u16(), &body),
            Binding::Unspecified | Binding::Jsonrpc => rpc_answer(kind, self.generation, status, &body),
        };
        decoded.map_err(|fault| match fault {
            AnswerFault::Refused(failure) => AgentFault::Refused { failure, wait },
            AnswerFault::Invalid(_) => AgentFault::Lost(fault.to_string()),
        })
    }
}

/// Reads a JSON-RPC response. A status of whoever stands before the agent says more than a body that is none, and than an error
/// to whose code A2A gives no meaning.
fn rpc_answer(
    kind: OperationKind,
    generation: Generation,
    status: StatusCode,
    body: &[u8],
) -> Result<A2aAnswer, AnswerFault> {
    let by_status = || AnswerFault::Refused(A2aFailure::read("", Some(status.as_u16())));
    let is_about_access =
        matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::TOO_MANY_REQUESTS);
    match jsonrpc::decode_answer(kind, generation, body) {
        Err(AnswerFault::Refused(mut failure)) if !is_about_access => {
            // Without a status, such an error counts as this one.
            if failure.error == A2aError::Unavailable && status.is_client_error() {
                failure.error = A2aError::of_http(status.as_u16());
            }
            Err(AnswerFault::Refused(failure))
        }
        _ if !status.is_success() => Err(by_status()),
        decoded => decoded,
    }
}

/// The events of one response.
pub(super) struct EventStream {
    response: Response,
    frames: Frames,
    ready: VecDeque<Result<StreamEvent, AgentFault>>,
    binding: Binding,
    generation: Generation,
}

impl EventStream {
    /// Waits for the next event; `None` at the end. Cancel-safe.
    pub(super) async fn next(&mut self) -> Result<Option<StreamEvent>, AgentFault> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return event.map(Some);
            }
            let chunk = tokio::time::timeout(MAX_SILENCE, self.response.chunk()).await;
            let chunk = chunk.map_err(|_| loss("the agent did not answer"))?;
            let chunk = chunk.map_err(|_| loss("the agent's answer was interrupted"))?;
            let Some(chunk) = chunk else { return Ok(None) };
            let events = self.frames.push(&chunk).map_err(|_| loss("the agent's answer is too large"))?;
            for text in events.iter().filter(|text| !text.trim().is_empty()) {
                let event = self.read(text);
                self.ready.push_back(event);
            }
        }
    }

    fn read(&self, text: &str) -> Result<StreamEvent, AgentFault> {
        let text = unmarked(text.as_bytes());
        if held::is_too_much(text) {
            return Err(loss(TOO_MANY_VALUES));
        }
        let decoded = match self.binding {
            Binding::Rest => rest::decode_event(self.generation, text),
            Binding::Unspecified | Binding::Jsonrpc => jsonrpc::decode_event(self.generation, text),
        };
        decoded.map_err(|fault| match fault {
            AnswerFault::Refused(failure) => AgentFault::Refused { failure, wait: None },
            AnswerFault::Invalid(_) => AgentFault::Lost(fault.to_string()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The error for a server that does not exist is not the agent's being unavailable.
    #[test]
    fn a_status_says_what_an_error_without_a_code_of_a2a_means() {
        let read = |status: u16, code: i32| {
            let body = format!(r#"{{"jsonrpc":"2.0","id":null,"error":{{"code":{code},"message":"m"}}}}"#);
            let status = StatusCode::from_u16(status).unwrap();
            match rpc_answer(OperationKind::Send, Generation::V10, status, body.as_bytes()) {
                Err(AnswerFault::Refused(failure)) => failure.error,
                other => panic!("{status} {code}: {other:?}"),
            }
        };
        for (status, code, expected) in [
            (404, -32000, A2aError::TaskNotFound),
            (401, -32000, A2aError::Unauthenticated),
            (403, -32603, A2aError::PermissionDenied),
            (404, -32602, A2aError::InvalidParams),
            (503, -32000, A2aError::Unavailable),
            (200, -32000, A2aError::Unavailable),
            (200, -32001, A2aError::TaskNotFound),
        ] {
            assert_eq!(read(status, code), expected, "{status} {code}");
        }
    }
}
