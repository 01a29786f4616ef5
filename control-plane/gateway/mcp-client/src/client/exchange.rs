//! Messages of an upstream until it has answered one request: events, its own requests, the result.
//!
//! Keeps true: requests of the upstream are answered while reading continues, so that neither waits for the other;
//! its silence is bounded, unless it waits for our client; a stream that ends before its result is resumed if the
//! server has given an event id.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use asp_json::Json;
use reqwest::Response;
use serde_json::json;
use tokio::time::Instant;

use super::downstream::{Downstream, RpcError};
use super::open_requests::{OpenRequests, UpstreamRequest};
use super::reading::{Messages, loss};
use super::session::SessionHeaders;
use super::{Client, ClientFault, Exchange, SILENCE};
use crate::message::{self, Message, UpstreamObject};

/// Maximum number of an upstream's open requests in one stream, including those that are answered at once, pings and
/// refusals; further ones are not answered.
const MOST_REPLIES: usize = 64;
/// Pause before a stream is resumed if the server states none, and the shortest that it can ask for.
const RETRY: Duration = Duration::from_secs(1);
const MIN_RETRY: Duration = Duration::from_millis(100);
/// Longest pause that a server can ask for within a call.
const MAX_RETRY: Duration = Duration::from_secs(30);
/// Maximum number of consecutive tries without a new event, or without an answer, and of all tries.
const TRIES: u32 = 3;
const ALL_TRIES: u32 = 1000;

/// Returns the result of `exchange`, whose response begins with `messages`.
pub(super) async fn answered(
    client: &Client,
    at: &SessionHeaders,
    mut messages: Messages,
    exchange: &Exchange<'_>,
) -> Result<UpstreamObject, ClientFault> {
    let mut asks = StreamRequests::of(client.clone(), at.clone());
    let mut place = None;
    let mut tries = 0;
    let mut all_tries = 0;
    loop {
        let broken = match until_answered(&mut messages, &mut asks, exchange.id, exchange).await {
            Err(fault @ ClientFault::Lost(_)) => fault,
            answered => return answered,
        };
        // The missing messages can still be fetched, if the server keeps them (2025-11-25, resumability).
        let Some((id, pause)) = messages.resumable() else { return Err(broken) };
        tries = if place.as_ref() == Some(&id) { tries + 1 } else { 1 };
        all_tries += 1;
        if tries > TRIES || all_tries > ALL_TRIES {
            return Err(broken);
        }
        let pause = pause.unwrap_or(RETRY).clamp(MIN_RETRY, MAX_RETRY);
        let response = asks.deliver_until(further(client, at, &id, pause)).await?;
        messages = messages.go_on(response)?;
        place = Some(id);
    }
}

/// Resumes a stream after the event with this id. A failing server, such as one that is being restarted, may soon
/// answer.
async fn further(
    client: &Client,
    at: &SessionHeaders,
    id: &str,
    pause: Duration,
) -> Result<Response, ClientFault> {
    for _ in 0..TRIES {
        tokio::time::sleep(pause).await;
        match client.get(at, Some(id)).await {
            Ok(response) => return Ok(response),
            Err(ClientFault::Refused { .. } | ClientFault::NotDelivered | ClientFault::Lost(_)) => {}
            Err(_) => break,
        }
    }
    Err(loss("the service's answer was interrupted"))
}

/// Reads messages up to the answer to the request of this id, which sends `exchange`.
pub(super) async fn until_answered(
    messages: &mut Messages,
    asks: &mut StreamRequests,
    id: u64,
    exchange: &Exchange<'_>,
) -> Result<UpstreamObject, ClientFault> {
    let mut waits_since = Instant::now();
    loop {
        let silent_at = messages.last_arrival().max(waits_since) + SILENCE;
        let message = tokio::select! {
            message = messages.next() => message?,
            () = asks.next(), if !asks.is_empty() => {
                waits_since = Instant::now();
                continue;
            }
            () = tokio::time::sleep_until(silent_at), if asks.is_empty() => {
                // A comment also counts as activity.
                if messages.last_arrival() + SILENCE > silent_at {
                    continue;
                }
                return Err(loss("the service did not answer"));
            }
        };
        match message {
            None => return Err(loss("the service ended its stream without a result")),
            Some(Message::Answer { id: of, outcome }) if of == id => {
                return outcome.map_err(ClientFault::from);
            }
            Some(Message::Unaddressed(failure)) => return Err(failure.into()),
            Some(Message::Answer { .. }) => {}
            Some(Message::Request { id, method, params }) => {
                asks.begin(Some(exchange.downstream.clone()), id, method, params);
            }
            Some(Message::Notification { method, params }) if method == CANCELLED => asks.take_back(&params),
            Some(Message::Notification { method, params }) => {
                if let Some(visit) = message::visited(&method, &params) {
                    exchange.downstream.visited(visit);
                }
                // The progress of another request is handled where that request is read.
                if let Some((token, event)) = message::event(&method, &params)
                    && token.is_none_or(|token| token == exchange.id)
                {
                    exchange.downstream.receive_event(event);
                }
            }
        }
    }
}

/// Notification with which an upstream withdraws a request of its own.
pub(super) const CANCELLED: &str = "notifications/cancelled";

/// Open requests of an upstream in one stream.
#[derive(Default)]
pub(super) struct StreamRequests {
    /// Sender of the answers. If absent, requests are ignored, because their era has no way to answer one.
    to: Option<(Client, SessionHeaders)>,
    open: OpenRequests<Json, ()>,
}

impl StreamRequests {
    pub(super) fn of(client: Client, at: SessionHeaders) -> StreamRequests {
        StreamRequests { to: Some((client, at)), open: OpenRequests::default() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Starts to answer a request; without `downstream` it belongs to no call and is refused.
    pub(super) fn begin(
        &mut self,
        downstream: Option<Arc<dyn Downstream>>,
        id: Json,
        method: String,
        params: UpstreamObject,
    ) {
        // Above the limit the upstream does not accept answers, so another one is useless.
        let Some((client, at)) = self.to.clone().filter(|_| self.open.len() < MOST_REPLIES) else { return };
        let to = id.clone();
        let at_once = match downstream {
            _ if method == "ping" => Ok(json!({}).into()),
            Some(downstream) if !self.open.is_full() => {
                let request = UpstreamRequest { downstream, method, params: params.sent };
                return self.open.begin(id, request, move |answer| async move {
                    if let Some(answer) = answer {
                        reply(&client, &at, &to, answer).await;
                    }
                });
            }
            Some(_) => refused("too many requests are open"),
            None => refused("no running call matches this request"),
        };
        self.open.wait_for(id, async move { reply(&client, &at, &to, at_once).await });
    }

    /// Waits for another future and delivers answers until then: an upstream may send nothing before it has them.
    async fn deliver_until<T>(&mut self, other: impl Future<Output = T>) -> T {
        let mut other = pin!(other);
        loop {
            tokio::select! {
                done = &mut other => return done,
                () = self.next(), if !self.is_empty() => {}
            }
        }
    }

    /// Waits until one more request is answered.
    pub(super) async fn next(&mut self) {
        self.open.next().await;
    }

    /// Withdraws a request of the upstream.
    pub(super) fn take_back(&self, params: &UpstreamObject) {
        if let Some(id) = params.sent.member("requestId") {
            self.open.take_back(&id);
        }
    }
}

const fn refused(message: &'static str) -> Result<Json, RpcError> {
    // JSON-RPC 2.0: implementation-defined server errors.
    Err(RpcError { code: -32000, message: std::borrow::Cow::Borrowed(message) })
}

async fn reply(client: &Client, at: &SessionHeaders, id: &Json, answer: Result<Json, RpcError>) {
    let outcome = match answer {
        Ok(result) => format!(r#""result":{result}"#),
        Err(RpcError { code, message }) => {
            format!(r#""error":{}"#, json!({"code": code, "message": message}))
        }
    };
    let reply = format!(r#"{{"jsonrpc":"2.0","id":{id},{outcome}}}"#);
    if client.post_text(at, reply).await.is_err() {
        tracing::debug!("an upstream MCP server did not accept the answer to its request and must ask again");
    }
}
