//! Requests to a service for one call, over HTTP, and their answers.
//!
//! Keeps true: the client's token is never sent (I-8); every answer is bounded; every request except a cancel counts
//! in the breaker of its server and origin, and none is sent while that is open.

use std::sync::Arc;
use std::time::Duration;

use asp_call::call::Call;
use asp_call::call::outcome::Refusal;
use asp_call::execution::Execution;
use asp_json::Json;
use asp_outbound::retry_after;
use asp_platform::breaker::Outcome;
use asp_proto::snapshot::ProxyCalls;
use asp_registry::origin_of;
use asp_snapshot::Snapshot;
use reqwest::header::{
    ACCEPT, CONTENT_TYPE, ETAG, HeaderMap, HeaderName, HeaderValue, IF_MATCH, IF_NONE_MATCH,
};
use reqwest::{Client, Method, RequestBuilder, StatusCode, Url};
use tokio::time::Instant;

use super::HostedBackend;
use crate::outbound::auth::{AuthFault, Authorizer};
use crate::outbound::breaker::{Breakers, patience};
use crate::outbound::upstream::{deadline_ms, idempotency_key, requested_by};

/// Maximum size of an accepted response body in bytes.
const MAX_RESPONSE: usize = 10 << 20;
/// Timeout of one request. A service should answer at once and work afterwards; one that works within the request gets
/// the request again, with the same call id.
const MAX_REQUEST: Duration = Duration::from_secs(30);
/// Maximum length of an etag that is sent back, in bytes.
const MAX_ETAG: usize = 256;

const JSON: &str = "application/json";
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const DEADLINE_MS: HeaderName = HeaderName::from_static("x-deadline-ms");

/// Destination of one call.
#[derive(Clone)]
pub(super) struct Service {
    client: Client,
    /// Validated base URL.
    base: Url,
    tool: String,
    call: Arc<Call>,
    headers: HeaderMap,
    breakers: Arc<Breakers>,
    authorizer: Arc<Authorizer>,
    snapshot: Arc<Snapshot>,
    origin: String,
}

/// Response of the service, whatever its status.
pub(super) struct ServiceResponse {
    pub status: StatusCode,
    pub etag: Option<HeaderValue>,
    pub retry_after: Option<Duration>,
    pub content_type: Option<String>,
    pub body: Vec<u8>,
}

/// Reason why there is no response.
#[derive(Debug)]
pub(super) enum ServiceFault {
    /// The origin's breaker is open; nothing was sent.
    Paused(Refusal),
    /// The call has no valid credentials; nothing was sent.
    Unproved(AuthFault),
    /// The request was certainly not delivered.
    NotDelivered,
    /// The request may have been delivered.
    Lost(&'static str),
}

impl Service {
    pub(super) fn new(
        calls: &HostedBackend,
        target: &ProxyCalls,
        execution: &Execution,
    ) -> Result<Service, Refusal> {
        let destination = calls
            .outbound
            .destination(&target.url, &execution.snapshot.upstreams, requested_by(&execution.call))
            .map_err(|error| Refusal::Upstream(error.to_string()))?;
        Ok(Service {
            client: destination.client.clone(),
            base: destination.url,
            tool: target.tool.clone(),
            call: execution.call.clone(),
            headers: headers(&execution.call),
            breakers: calls.breakers.clone(),
            authorizer: calls.authorizer.clone(),
            snapshot: execution.snapshot.clone(),
            origin: origin_of(&target.url).to_owned(),
        })
    }

    /// Creates the call, or finds it: the id and the key are the same each time.
    pub(super) async fn put(&self, arguments: &Json) -> Result<ServiceResponse, ServiceFault> {
        let url = self.call_url(None)?;
        self.exchange((Method::PUT, url, JSON), |request| request.json(arguments.raw())).await
    }

    /// Reads the call; `known` is the state that need not be sent again.
    pub(super) async fn get(&self, known: Option<&HeaderValue>) -> Result<ServiceResponse, ServiceFault> {
        let url = self.call_url(None)?;
        let dressed = |request: RequestBuilder| match known {
            Some(etag) => request.header(IF_NONE_MATCH, etag),
            None => request,
        };
        self.exchange((Method::GET, url, JSON), dressed).await
    }

    /// Sends the answer to a question that was asked in the state `etag`.
    pub(super) async fn advance(
        &self,
        etag: Option<&HeaderValue>,
        body: Vec<u8>,
    ) -> Result<ServiceResponse, ServiceFault> {
        let url = self.call_url(Some("advance"))?;
        let dressed = |request: RequestBuilder| {
            let request = match etag {
                Some(etag) => request.header(IF_MATCH, etag),
                None => request,
            };
            request.header(CONTENT_TYPE, JSON).body(body.clone())
        };
        self.exchange((Method::POST, url, JSON), dressed).await
    }

    /// Asks the service to stop. Sent in every state of the breaker, and also after the deadline and the cancel.
    pub(super) async fn cancel(&self, longest: Duration) -> Option<StatusCode> {
        let url = self.call_url(Some("cancel")).ok()?;
        let proof =
            tokio::time::timeout(longest, self.authorizer.cancel_auth(&self.call, &self.snapshot, &url));
        let proof = proof.await.ok()??;
        let request = self.asking((Method::POST, url, JSON), proof).timeout(longest);
        request.send().await.ok().map(|response| response.status())
    }

    /// Reads a resource as bytes.
    pub(super) async fn read(&self, query: &[(String, String)]) -> Result<ServiceResponse, ServiceFault> {
        let mut url = self.url(&["resources", &self.tool])?;
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        self.exchange((Method::GET, url, "*/*"), |request| request).await
    }

    /// Gets a prompt.
    pub(super) async fn prompt(&self, arguments: &Json) -> Result<ServiceResponse, ServiceFault> {
        let url = self.url(&["prompts", &self.tool])?;
        self.exchange((Method::POST, url, JSON), |request| request.json(arguments.raw())).await
    }

    fn call_url(&self, verb: Option<&str>) -> Result<Url, ServiceFault> {
        let id = self.call.id.to_string();
        let path = ["tools", &self.tool, "calls", &id];
        self.url(&[&path[..], verb.as_slice()].concat())
    }

    fn asking(&self, (method, url, accept): (Method, Url, &str), proof: HeaderMap) -> RequestBuilder {
        let request = self.client.request(method, url).headers(self.headers.clone()).headers(proof);
        request.header(ACCEPT, accept)
    }

    /// Returns the base URL with these segments, each encoded.
    fn url(&self, segments: &[&str]) -> Result<Url, ServiceFault> {
        let mut url = self.base.clone();
        match url.path_segments_mut() {
            Ok(mut path) => drop(path.pop_if_empty().extend(segments)),
            Err(()) => return Err(ServiceFault::NotDelivered),
        }
        Ok(url)
    }

    /// Sends a request with credentials that are valid now, since a call may last longer than a token; repeats it
    /// once if the service rejects the credentials and there are others.
    async fn exchange(
        &self,
        (method, url, accept): (Method, Url, &str),
        dressed: impl Fn(RequestBuilder) -> RequestBuilder + Send + Sync,
    ) -> Result<ServiceResponse, ServiceFault> {
        let mut is_first = true;
        loop {
            let proof = self.authorizer.headers(&self.call, &self.snapshot, &url).await;
            let proof = proof.map_err(ServiceFault::Unproved)?;
            let request = self.asking((method.clone(), url.clone(), accept), proof);
            let answer = self.once(dressed(request)).await?;
            let is_refused = self.authorizer.is_rejection(&self.call, answer.status);
            // Also the second rejection is reported: a linked account is dead since then.
            if !is_refused || !self.authorizer.refused(&self.call, &self.snapshot).await || !is_first {
                return Ok(answer);
            }
            is_first = false;
        }
    }

    async fn once(&self, request: RequestBuilder) -> Result<ServiceResponse, ServiceFault> {
        let server = &self.call.server.message.name;
        let permit = self.breakers.enter(server, &self.origin, patience(&self.call));
        let permit = permit.map_err(ServiceFault::Paused)?;
        let left = self.call.deadline().saturating_duration_since(Instant::now());
        let answered = answer(request.timeout(left.min(MAX_REQUEST))).await;
        match &answered {
            Ok(answer) if !answer.status.is_server_error() => permit.settle(Outcome::Success),
            // The request's own time limit was not reached: the permit decides whether the service failed.
            Err(_) if Instant::now() >= self.call.deadline() => drop(permit),
            Ok(_) | Err(_) => permit.settle(Outcome::Failure),
        }
        answered
    }
}

async fn answer(request: RequestBuilder) -> Result<ServiceResponse, ServiceFault> {
    let response = request.send().await.map_err(|error| match error.is_connect() || error.is_builder() {
        true => ServiceFault::NotDelivered,
        false => ServiceFault::Lost("the service did not answer"),
    })?;
    let status = response.status();
    let headers = response.headers().clone();
    let body = asp_outbound::body(response, MAX_RESPONSE).await.map_err(ServiceFault::Lost)?;
    let text = |name: &HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    Ok(ServiceResponse {
        status,
        etag: headers.get(ETAG).filter(|etag| etag.len() <= MAX_ETAG).cloned(),
        retry_after: retry_after(&headers),
        content_type: text(&CONTENT_TYPE).map(str::to_owned),
        body,
    })
}

/// Builds the headers that all requests of a call have in common.
fn headers(call: &Call) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in [(IDEMPOTENCY_KEY, idempotency_key(call)), (DEADLINE_MS, deadline_ms(call))] {
        if let Ok(value) = HeaderValue::from_str(&value)
            && !value.is_empty()
        {
            headers.insert(name, value);
        }
    }
    headers
}

/// Returns an etag in the form of a header: the body's in quotes, or else the header's.
pub(super) fn etag(written: Option<&str>, header: Option<HeaderValue>) -> Option<HeaderValue> {
    let Some(text) = written else { return header };
    let quoted = text.starts_with('"') || text.starts_with("W/\"");
    HeaderValue::from_str(&if quoted { text.to_owned() } else { format!("\"{text}\"") }).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_etag_is_quoted_once_and_never_breaks_a_header() {
        let header = HeaderValue::from_static("\"h\"");
        assert_eq!(etag(Some("v1"), Some(header.clone())).unwrap(), "\"v1\"");
        assert_eq!(etag(Some("\"v1\""), None).unwrap(), "\"v1\"");
        assert_eq!(etag(Some("W/\"v1\""), None).unwrap(), "W/\"v1\"");
        assert_eq!(etag(None, Some(header.clone())), Some(header));
        assert_eq!(etag(Some("a\r\nx: y"), None), None);
    }
}
