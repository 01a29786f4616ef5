//! MCP: Streamable HTTP for every revision from 2025-03-26 to 2026-07-28 on one URL.
//!
//! Owns: the shape of every message. The legacy and the modern half share lists, calls and streams, and differ in
//! handshake and envelope; the evaluation of the request has chosen the era (MCP 2026-07-28, "Versioning").

use std::sync::Arc;

use asp_call::call::{Call, ClientAbilities, Invocation};
use asp_edge::{EnvelopeKind, Era, Reason, Trace};
use asp_json::Json;
use asp_proto::mcp_revision::Revision;
use asp_proto::snapshot::Protocol;
use asp_snapshot::ListedPrimitive;
use axum::response::Response;
use http::Method;
use serde_json::{Map, Value};

use crate::ProtocolRequest;

pub mod all_servers;
mod client_messages;
pub mod codec;
mod completion;
pub mod elsewhere;
mod events;
mod lacking;
mod legacy;
mod legacy_era;
mod lists;
mod modern;
pub(super) mod questions;
mod reconnection;
mod requests;
mod results;
mod resume;
mod stream;
mod subscriptions;
mod tasks;

use codec::{Message, RpcFailure, RpcResponse};
use results::RequestKind;

/// Answers one request.
pub async fn serve(request: ProtocolRequest) -> Response {
    match request.method {
        Method::POST => post(request).await,
        Method::DELETE => legacy::delete(&request).await,
        // Legacy sessions only: 2026-07-28 has `subscriptions/listen` instead. An unknown version is refused as such.
        Method::GET if !names_modern(&request) => legacy::listen(&request).await,
        _ => codec::method_not_allowed(legacy::methods(&request)),
    }
}

/// Whether the version header names a known revision without sessions, or nothing readable.
fn names_modern(request: &ProtocolRequest) -> bool {
    match codec::header(&request.headers, "mcp-protocol-version") {
        Some(version) => Revision::parse(version).is_some_and(Revision::is_modern),
        None => request.headers.contains_key("mcp-protocol-version"),
    }
}

async fn post(mut request: ProtocolRequest) -> Response {
    let Some(mut envelope) = request.admitted.envelope.clone() else {
        return RpcFailure::of(Reason::InvalidRequest).respond(None, request.admitted.trace);
    };
    if envelope.kind == EnvelopeKind::Response {
        // The refusal of a response has no id (2025-11-25 transports, sending messages to the server).
        envelope.id = None;
    }
    if let Err(fault) = request.hold() {
        let failure = RpcFailure::with(fault.reason(), &fault.message());
        return failure.respond(envelope.id.as_deref(), request.admitted.trace);
    }
    if request.admitted.era == Era::Modern {
        return modern::post(request, envelope).await;
    }
    match envelope.kind {
        EnvelopeKind::Batch(_) => legacy::batch(request).await,
        _ => legacy::post(request, envelope).await,
    }
}

/// Returns a JSON-RPC answer as one JSON body.
fn json(response: RpcResponse) -> Response {
    response.respond(http::StatusCode::OK)
}

/// Properties of a request that depend on its era.
struct Context {
    revision: Revision,
    abilities: ClientAbilities,
    /// Id of the legacy session, or empty.
    session: String,
    /// Entries listed by plugins themselves, if the request is for a list that includes them.
    listed: Vec<Value>,
}

/// The answer to a request: an immediate result or a call.
enum RequestAnswer {
    Page(Map<String, Value>),
    /// A result that must not be cached, unlike a list.
    Completion(Map<String, Value>),
    Call(Arc<Call>, RequestKind),
}

/// Returns the trace of one message: the one in its `_meta` (SEP-414), otherwise the request's.
fn trace_of(request: &ProtocolRequest, message: &Message) -> Trace {
    let own = message.meta("traceparent").and_then(Value::as_str);
    own.and_then(|text| Trace::parse(text.as_bytes())).unwrap_or(request.admitted.trace)
}

/// Returns the progress token of a request, a string or a number as the client wrote it.
fn progress_token(message: &Message) -> Option<Json> {
    message.meta("progressToken").filter(|token| token.is_string() || token.is_number())?;
    message.sent_param("_meta")?.member("progressToken")
}

/// Returns an invocation of a primitive by a message, in a legacy session or without one.
fn invocation(
    request: &ProtocolRequest,
    message: &Message,
    session: &str,
    (entry, arguments): (&Arc<ListedPrimitive>, Json),
) -> Invocation {
    let mut invocation = request.invocation(Protocol::Mcp, entry, arguments);
    invocation.request.protocol_request_id = message.id_text().unwrap_or_default().into();
    invocation.request.session = session.to_owned();
    invocation.request.trace = trace_of(request, message);
    invocation
}
