//! MCP 2025-03-26, 2025-06-18 and 2025-11-25: handshake, sealed session, one JSON-RPC message per POST (a batch in
//! 2025-03-26), DELETE.
//!
//! Keeps true: a session belongs to one principal and one server; a lost connection does not cancel a call,
//! `notifications/cancelled` does; a request whose id is still running in the session is refused.

use std::sync::Arc;

use asp_call::call::ClientAbilities;
use asp_call::call::authority::Attachment;
use asp_call::call::event::LogLevel;
use asp_edge::{Envelope, EnvelopeKind, Reason};
use asp_pipeline::sessions::{LegacySession, Profile, TooManyMessages};
use asp_proto::mcp_revision::{Feature, Revision};
use asp_proto::snapshot::Sessions as SessionMode;
use axum::response::Response;
use futures::future::join_all;
use http::{HeaderValue, StatusCode, header};
use serde_json::{Map, Value};

use super::all_servers;
use super::client_messages::{answer_found, deliver};
use super::codec::{self, Message, RpcFailure, RpcResponse, accepted};
use super::elsewhere;
use super::legacy_era::{LegacyEra, abilities, accepts_stream};
use super::questions;
use super::reconnection;
use super::requests;
use super::results;
use super::stream::{self, StreamView};
use super::subscriptions;
use super::{Context, RequestAnswer, json as json_response, lists, progress_token, trace_of};
use crate::ProtocolRequest;

/// Answers a single message.
pub(super) async fn post(request: ProtocolRequest, envelope: Envelope) -> Response {
    let Ok(message) = Message::read(&request.body) else {
        return RpcFailure::of(Reason::InvalidRequest)
            .respond(envelope.id.as_deref(), request.admitted.trace);
    };
    if envelope.kind == EnvelopeKind::Request && envelope.method == "initialize" {
        return initialize(&request, &message);
    }
    let session = match session(&request).await {
        Ok(session) => session,
        Err(failure) => return failure.respond(envelope.id.as_deref(), request.admitted.trace),
    };
    if envelope.kind == EnvelopeKind::Request {
        return handle(&request, &session, &message).await;
    }
    if let Err(too_many) = admit(&request, std::slice::from_ref(&message)) {
        return refused(&request, &too_many);
    }
    match route(&request, &session, &message).await {
        Ok(()) => accepted(),
        Err(failure) => failure.respond(None, request.admitted.trace),
    }
}

/// Answers a batch (2025-03-26 only): each message is handled on its own, and the answers form one array.
pub(super) async fn batch(request: ProtocolRequest) -> Response {
    let trace = request.admitted.trace;
    let session = match session(&request).await {
        Ok(session) if session.profile.revision.has(Feature::Batches) => session,
        Ok(_) => {
            return RpcFailure::with(Reason::InvalidRequest, "this version does not support batches")
                .respond(None, trace);
        }
        Err(failure) => return failure.respond(None, trace),
    };
    let messages = match Message::read_all(&request.body) {
        Ok(messages) => messages,
        Err(_) => return RpcFailure::of(Reason::InvalidRequest).respond(None, trace),
    };
    // Checked before any of it starts, so that the same batch can be sent again.
    if let Err(too_many) = admit(&request, &messages) {
        return refused(&request, &too_many);
    }
    let answers = join_all(messages.iter().map(|message| batched(&request, &session, message))).await;
    let texts: Vec<String> = answers.into_iter().flatten().map(|response| response.text).collect();
    if texts.is_empty() {
        return accepted();
    }
    json_response(RpcResponse { text: format!("[{}]", texts.join(",")) })
}

async fn batched(
    request: &ProtocolRequest,
    session: &Arc<LegacySession>,
    message: &Message,
) -> Option<RpcResponse> {
    let trace = trace_of(request, message);
    let Some(id) = message.id_text().filter(|_| message.method.is_some()) else {
        // A batch has no answer for a notification that cannot be forwarded; the failure is logged.
        let _ = route(request, session, message).await;
        return None;
    };
    if message.method.as_deref() == Some("initialize") {
        let failure = RpcFailure::with(Reason::InvalidRequest, "initialize must not be part of a batch");
        return Some(RpcResponse::failure(Some(id), &failure, trace));
    }
    // A batch's response carries only answers, so no questions can be asked.
    let answered = match simple(request, session, message, ClientAbilities::default()).await {
        Ok(RequestAnswer::Page(result) | RequestAnswer::Completion(result)) => {
            Ok(RpcResponse::result(id, &Value::Object(result)))
        }
        Ok(RequestAnswer::Call(call, asked)) => {
            results::of_outcome(&*call.finished().await, &call, asked, session.profile.revision)
                .map(|result| RpcResponse::result(id, &result))
        }
        Err(failure) => Err(failure),
    };
    Some(answered.unwrap_or_else(|failure| {
        if let Some(mark) = failure.mark(trace) {
            request.log_refusal(mark);
        }
        RpcResponse::failure(Some(id), &failure, trace)
    }))
}

/// Returns the supported HTTP methods: GET and DELETE require sessions.
pub(super) fn methods(request: &ProtocolRequest) -> &'static str {
    match request.server.sessions() {
        SessionMode::Stateless => "POST",
        _ => "GET, POST, DELETE",
    }
}

/// Opens the session's stream of messages that belong to no request (2025-11-25 transports, listening for messages).
pub(super) async fn listen(request: &ProtocolRequest) -> Response {
    let trace = request.admitted.trace;
    if request.server.sessions() == SessionMode::Stateless {
        return codec::method_not_allowed(methods(request));
    }
    if !accepts_stream(request) {
        return RpcFailure::with(Reason::InvalidRequest, "a GET must accept text/event-stream")
            .status(StatusCode::NOT_ACCEPTABLE)
            .respond(None, trace);
    }
    let opened = match session(request).await {
        Ok(session) if session.is_persistent() => {
            let opened = open(request, &session).await;
            // A DELETE processed in between did not end this stream.
            self::session(request).await.and(opened)
        }
        Ok(_) => Err(RpcFailure::of(Reason::SessionMissing)),
        Err(failure) => Err(failure),
    };
    opened.unwrap_or_else(|failure| failure.respond(None, trace))
}

/// Resumes the stream that the client names, or opens another one.
async fn open(request: &ProtocolRequest, session: &Arc<LegacySession>) -> Result<Response, RpcFailure> {
    if let Some(last) = request.headers.get("last-event-id") {
        return reconnection::reconnect(request, session, last).await;
    }
    let listening = subscriptions::open(request, session, None)?;
    Ok(subscriptions::of_session(request, session, listening))
}

/// Ends a session and its streams.
pub(super) async fn delete(request: &ProtocolRequest) -> Response {
    let trace = request.admitted.trace;
    if request.server.sessions() == SessionMode::Stateless {
        return codec::method_not_allowed(methods(request));
    }
    let Some(id) = codec::header(&request.headers, "mcp-session-id") else {
        return RpcFailure::of(Reason::SessionMissing).respond(None, trace);
    };
    let session = match session(request).await {
        Ok(session) => session,
        Err(failure) => return failure.respond(None, trace),
    };
    match request.gateway.sessions.delete(id, &request.server.message.name, &request.caller).await {
        Ok(()) => {
            elsewhere::end(&request.gateway, &session);
            codec::status(StatusCode::OK)
        }
        Err(reason @ Reason::RateLimited) => RpcFailure::with(
            reason,
            "too many sessions were ended here within a day, by this user or in this org: the session \
             stays until it expires by itself",
        )
        .respond(None, trace),
        Err(reason) => RpcFailure::of(reason).respond(None, trace),
    }
}

fn initialize(request: &ProtocolRequest, message: &Message) -> Response {
    let trace = trace_of(request, message);
    let Some(id) = message.id_text() else {
        return RpcFailure::of(Reason::InvalidRequest).respond(None, trace);
    };
    let Some(asked) = message.text_param("protocolVersion") else {
        return RpcFailure::with(Reason::InvalidParams, "params.protocolVersion must be a string")
            .respond(Some(id), trace);
    };
    let revision = served(asked).unwrap_or(Revision::LATEST_LEGACY);
    let abilities = questions::abilities(message.param("capabilities"), revision);
    let profile = Profile { revision, abilities };
    let mut result = Map::new();
    result.insert("protocolVersion".into(), revision.as_str().into());
    let listens = request.server.sessions() != SessionMode::Stateless;
    result.insert("capabilities".into(), lists::capabilities(request, listens));
    result.insert("serverInfo".into(), results::server_info(&request.server, revision));
    if !request.server.message.instructions.is_empty() {
        result.insert("instructions".into(), request.server.message.instructions.clone().into());
    }
    let mut response = json_response(RpcResponse::result(id, &Value::Object(result)));
    if request.server.sessions() != SessionMode::Stateless
        && let Err(failure) = open_session(request, profile, &mut response)
    {
        return failure.respond(Some(id), trace);
    }
    response
}

/// Returns the revision with this date, if it is served with a handshake.
fn served(date: &str) -> Option<Revision> {
    Revision::parse(date).filter(|revision| revision.is_served() && !revision.is_modern())
}

/// Mints the session and its affinity cookie (ADR 2).
fn open_session(
    request: &ProtocolRequest,
    profile: Profile,
    response: &mut Response,
) -> Result<(), RpcFailure> {
    let hint = codec::header(&request.headers, "x-asp-affinity");
    let minted = request
        .gateway
        .sessions
        .create(hint, &request.server.message.name, &request.caller, profile)
        .map_err(|_| RpcFailure::of(Reason::Internal))?;
    let secure = if request.gateway.config.public_url.starts_with("https:") { "; Secure" } else { "" };
    let cookie = format!("asp-affinity={}; HttpOnly; SameSite=Lax; Path=/{secure}", minted.affinity);
    for (name, value) in
        [(header::HeaderName::from_static("mcp-session-id"), minted.token), (header::SET_COOKIE, cookie)]
    {
        let value = HeaderValue::try_from(value).map_err(|_| RpcFailure::of(Reason::Internal))?;
        response.headers_mut().insert(name, value);
    }
    Ok(())
}

/// Returns the session of a request; an ephemeral one if the server allows requests without a session.
async fn session(request: &ProtocolRequest) -> Result<Arc<LegacySession>, RpcFailure> {
    let revision = match codec::header(&request.headers, "mcp-protocol-version") {
        None => None,
        Some(text) => {
            let failure = || RpcFailure::of(Reason::UnsupportedVersion);
            Some(served(text).ok_or_else(failure)?)
        }
    };
    match (codec::header(&request.headers, "mcp-session-id"), request.server.sessions()) {
        (Some(id), SessionMode::Stateful | SessionMode::Both | SessionMode::Unspecified) => {
            let found =
                request.gateway.sessions.find(id, &request.server.message.name, &request.caller).await;
            let session = found.map_err(RpcFailure::of)?;
            // The negotiated revision counts. A header that names the revision of requests without it is taken for none:
            // release 0.1 of the official suite sends it.
            let negotiated = session.profile.revision;
            let says_nothing = |named: Revision| named == negotiated || named == Revision::WITHOUT_HEADER;
            if revision.is_none_or(says_nothing) { Ok(session) } else { Err(another(negotiated)) }
        }
        (None, SessionMode::Stateful | SessionMode::Unspecified) => {
            Err(RpcFailure::of(Reason::SessionMissing))
        }
        (_, SessionMode::Stateless) | (None, SessionMode::Both) => {
            let profile = Profile {
                revision: revision.unwrap_or(Revision::WITHOUT_HEADER),
                abilities: ClientAbilities::default(),
            };
            Ok(Arc::new(LegacySession::ephemeral(profile)))
        }
    }
}

fn another(negotiated: Revision) -> RpcFailure {
    let message =
        format!("header MCP-Protocol-Version must be what this session negotiated: {}", negotiated.as_str());
    RpcFailure::with(Reason::UnsupportedVersion, &message)
}

async fn handle(request: &ProtocolRequest, session: &Arc<LegacySession>, message: &Message) -> Response {
    let trace = trace_of(request, message);
    let Some(id) = message.id_text() else {
        return RpcFailure::of(Reason::InvalidRequest).respond(None, trace);
    };
    let abilities = abilities(request, session);
    match simple(request, session, message, abilities).await {
        Ok(RequestAnswer::Page(result) | RequestAnswer::Completion(result)) => {
            json_response(RpcResponse::result(id, &Value::Object(result)))
        }
        Err(failure) => failure.respond(Some(id), trace),
        Ok(RequestAnswer::Call(call, asked)) => {
            stream::respond(StreamView {
                attachment: Attachment::to(call, abilities),
                asked,
                revision: session.profile.revision,
                id: id.into(),
                progress_token: progress_token(message),
                log_level: Some(session.log_level()),
                accepts_stream: accepts_stream(request),
                from_event: 0,
                era: Box::new(LegacyEra::of(request, session)),
            })
            .await
        }
    }
}

async fn simple(
    request: &ProtocolRequest,
    session: &Arc<LegacySession>,
    message: &Message,
    abilities: ClientAbilities,
) -> Result<RequestAnswer, RpcFailure> {
    let (revision, key) = (session.profile.revision, session.key());
    // Runs before the request's id is reserved, because a reservation must always be released.
    let listed = requests::listed_by_plugins(request, message, revision, &key).await;
    let context = Context { revision, abilities, session: key, listed };
    let done = RequestAnswer::Page(Map::new());
    match message.method.as_deref() {
        Some("ping") => Ok(done),
        Some("logging/setLevel") => {
            let level = message.text_param("level").and_then(LogLevel::parse).ok_or_else(|| {
                RpcFailure::with(Reason::InvalidParams, "params.level is not a log level").in_call()
            })?;
            request.gateway.sessions.set_log_level(session, level).await;
            Ok(done)
        }
        Some(method @ ("resources/subscribe" | "resources/unsubscribe"))
            if session.is_persistent() && lists::has_resources(&request.server) =>
        {
            subscriptions::change(request, session, message, method == "resources/subscribe")?;
            Ok(done)
        }
        _ => dispatch(request, session, message, &context),
    }
}

/// Handles a request that both eras share; refuses an id that is still running in the session.
fn dispatch(
    request: &ProtocolRequest,
    session: &LegacySession,
    message: &Message,
    context: &Context,
) -> Result<RequestAnswer, RpcFailure> {
    let id = message.id_text().unwrap_or_default();
    if !session.reserve(id) {
        let failure = RpcFailure::with(Reason::InvalidRequest, "a request with this id is still running");
        return Err(failure.in_call());
    }
    let handled = match all_servers::route(request, message) {
        Some((request, message)) => requests::dispatch(&request, &message, context),
        None => requests::dispatch(request, message, context),
    };
    let handled = handled.unwrap_or_else(|| Err(RpcFailure::of(Reason::UnknownMethod)));
    match &handled {
        Ok(RequestAnswer::Call(call, _)) => session.track(id, call),
        _ => session.free(id),
    }
    handled
}

/// Charges the messages that are not requests and cause work.
fn admit(request: &ProtocolRequest, messages: &[Message]) -> Result<(), TooManyMessages> {
    let count = messages.iter().filter(|message| is_counted(message)).count();
    request.gateway.sessions.admit_messages(&request.caller, count)
}

/// Returns the refusal of such messages. As they have no answer in the protocol, it is an HTTP error with a JSON-RPC
/// error without an id (2025-03-26 transports, sending messages to the server).
fn refused(request: &ProtocolRequest, too_many: &TooManyMessages) -> Response {
    request.gateway.metrics().refused(Reason::RateLimited.as_str());
    let failure = RpcFailure::with(
        Reason::RateLimited,
        "this user sends too many answers and cancels: nothing was done for this message; send it again later",
    );
    let failure =
        failure.data("retryAfterMs", too_many.retry_after_ms.into()).data("limit", "messages".into());
    let mut response = failure.respond(None, request.admitted.trace);
    let seconds = too_many.retry_after_ms.div_ceil(1000);
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    response
}

/// Whether a message counts: answers, and notifications that cause work.
fn is_counted(message: &Message) -> bool {
    match message.method.as_deref() {
        None => true,
        Some("notifications/cancelled" | "notifications/roots/list_changed") => message.id.is_none(),
        Some(_) => false,
    }
}

/// Handles a notification or an answer: here, for a call that is found as in every protocol, or at the gateways that have
/// the session.
async fn route(
    request: &ProtocolRequest,
    session: &LegacySession,
    message: &Message,
) -> Result<(), RpcFailure> {
    let gateway = &request.gateway;
    let is_taken = deliver(gateway, session, message).await.map_err(RpcFailure::of_input_fault)?
        // Boxed: nearly every message is for a call or session here.
        || Box::pin(answer_found(request, session, message)).await.map_err(RpcFailure::of_input_fault)?;
    if is_taken { Ok(()) } else { elsewhere::pass_on(gateway, session, message).await }
}
