//! MCP: Streamable HTTP for every revision from 2025-03-26 to 2026-07-28 on one URL.
//!
//! Owns: the shape of every message. The legacy and the modern half share lists, calls and streams, and differ in
//! handshake and envelope; the evaluation of the request has chosen the era (MCP 2026-07-28, "Versioning").

use asp_edge::{EnvelopeKind, Era, Reason};
use axum::response::Response;
use http::Method;

use crate::ProtocolRequest;

mod client_messages;
pub mod codec;
mod completion;
mod context;
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

use codec::{RpcFailure, RpcResponse};

/// Answers one request.
pub async fn serve(request: ProtocolRequest) -> Response {
    match request.method {
        Method::POST => post(request).await,
        Method::DELETE => legacy::delete(&request).await,
        // Legacy sessions only: 2026-07-28 has `subscriptions/listen` instead.
        Method::GET if request.admitted.era == Era::Legacy => legacy::listen(&request).await,
        _ => codec::method_not_allowed(legacy::methods(&request)),
    }
}

async fn post(mut request: ProtocolRequest) -> Response {
    let Some(envelope) = request.admitted.envelope.clone() else {
        return RpcFailure::of(Reason::InvalidRequest).respond(None, request.admitted.trace);
    };
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
