//! One request to a chat endpoint over HTTP, repeated only if the endpoint reports that it did not begin (429, 5xx).
//!
//! Keeps true: size and time are bounded; a redirect is not followed; the key is in one header and nowhere else; each
//! server pauses its requests to an endpoint that fails repeatedly.

use std::time::Duration;

use asp_outbound::{Destination, Outbound, OutboundError, Requester, retry_after};
use asp_platform::breaker::Outcome;
use asp_proto::snapshot::Upstream;
use asp_registry::origin_of;
use backon::{BackoffBuilder, ExponentialBuilder};
use http::HeaderValue;
use http::header::AUTHORIZATION;
use reqwest::Response;
use serde_json::Value;
use tokio::time::Instant;

use super::answer::DelegateAnswer;
use super::chat;
use super::endpoint::Endpoint;
use crate::delegate::delegation::DelegationFault;
use crate::outbound::breaker::{Breakers, FAIR_TIME};
use crate::outbound::refused::may_pass;

/// Maximum size of an accepted answer in bytes: a plugin's message contains it twice, as text and as its value.
const MAX_ANSWER: usize = 1 << 20;
/// Pauses between the requests of one delegation, four at most, if the endpoint states none: up to 250 ms before the
/// second one, doubling, half of it random.
const PAUSES: ExponentialBuilder =
    ExponentialBuilder::new().with_min_delay(Duration::from_millis(125)).with_max_times(3).with_jitter();

/// Request and endpoint.
pub(super) struct ChatRequest<'a> {
    pub endpoint: &'a Endpoint<'a>,
    pub body: Value,
    pub upstreams: &'a [Upstream],
    pub by: Requester<'a>,
    pub until: Instant,
}

/// Asks, within the time left. Dropping the future ends the request.
pub(super) async fn ask(
    outbound: &Outbound,
    breakers: &Breakers,
    asked: &ChatRequest<'_>,
) -> Result<DelegateAnswer, DelegationFault> {
    let endpoint = asked.endpoint;
    if endpoint.lacks_key {
        let Requester { server, primitive } = asked.by;
        tracing::warn!(
            list = "ASP_DELEGATE_KEYS",
            entry = endpoint.key_name,
            primitive = format!("{server}/{primitive}"),
            url = endpoint.url,
            "request refused by an operator list: no entry of this name is for this address and this primitive"
        );
        return Err(DelegationFault::Refused);
    }
    let destination = destination(outbound, asked)?;
    let is_fair = asked.until.saturating_duration_since(Instant::now()) >= FAIR_TIME;
    let permit = breakers
        .enter(asked.by.server, origin_of(endpoint.url), is_fair.then_some(asked.until))
        .map_err(|_| DelegationFault::Unavailable)?;
    let answered = tokio::time::timeout_at(asked.until, requests(&destination, asked))
        .await
        .map_err(|_| DelegationFault::Expired)?;
    permit.settle(match answered {
        Err(DelegationFault::Unavailable) => Outcome::Failure,
        _ => Outcome::Success,
    });
    answered
}

/// Returns the endpoint's address, if the operator lets the primitive use it.
fn destination<'o>(
    outbound: &'o Outbound,
    asked: &ChatRequest<'_>,
) -> Result<Destination<'o>, DelegationFault> {
    let url = asked.endpoint.url;
    let found = if asked.endpoint.is_operators {
        outbound.trusted(url)
    } else {
        outbound.destination(url, asked.upstreams, asked.by)
    };
    found.map_err(|error| match error {
        // The operator list has logged it. Asking again does not help.
        OutboundError::NotServed | OutboundError::Path => DelegationFault::Refused,
        OutboundError::Client(_) | OutboundError::Url | OutboundError::Denied => {
            tracing::warn!(url, %error, "request to a delegate's endpoint was not sent, because its address is not allowed; the plugin gets the error unavailable");
            DelegationFault::Unavailable
        }
    })
}

async fn requests(
    destination: &Destination<'_>,
    asked: &ChatRequest<'_>,
) -> Result<DelegateAnswer, DelegationFault> {
    let mut pauses = PAUSES.build();
    loop {
        let response = send(destination, asked).await?;
        let status = response.status();
        if status.is_success() {
            let body =
                asp_outbound::body(response, MAX_ANSWER).await.map_err(|_| DelegationFault::Unavailable)?;
            return chat::read(&body);
        }
        if !may_pass(status) {
            // The endpoint's text may quote the input: only the status is kept.
            tracing::warn!(
                url = asked.endpoint.url,
                status = status.as_u16(),
                "a delegate's endpoint refused a request; check its key, model and quota"
            );
            return Err(DelegationFault::Refused);
        }
        let pause = pauses.next().map(|pause| retry_after(response.headers()).unwrap_or(pause));
        let pause = pause.filter(|pause| Instant::now() + *pause < asked.until);
        tokio::time::sleep(pause.ok_or(DelegationFault::Unavailable)?).await;
    }
}

async fn send(destination: &Destination<'_>, asked: &ChatRequest<'_>) -> Result<Response, DelegationFault> {
    let Endpoint { key, headers, .. } = *asked.endpoint;
    let Destination { client, url } = destination;
    let mut url = url.clone();
    url.path_segments_mut()
        .map_err(|()| DelegationFault::Unavailable)?
        .pop_if_empty()
        .extend(["chat", "completions"]);
    let mut request = client.post(url).header("accept", "application/json").json(&asked.body);
    for (name, value) in headers.into_iter().flatten() {
        request = request.header(name, value);
    }
    if let Some(key) = key {
        let bearer = format!("Bearer {}", key.expose());
        let mut value = HeaderValue::try_from(bearer).map_err(|_| DelegationFault::Unavailable)?;
        value.set_sensitive(true);
        request = request.header(AUTHORIZATION, value);
    }
    request.send().await.map_err(|error| {
        tracing::debug!(error = %error.without_url(), "a delegate's endpoint did not answer");
        DelegationFault::Unavailable
    })
}
