//! A2A, in both versions and over JSON-RPC, REST and gRPC: calls as tasks, and skills as what a message starts.
//!
//! Owns: the way from a message to a call, and from a call to a task with its events. The wire is `asp-a2a`; what a call may, how often
//! and with what is decided in the pipeline (I-2). One layer of operations (`operations`) knows no binding; `jsonrpc`, `rest`
//! and `grpc` are codecs before it. Keeps true: another caller's task is reported like an unknown one (I-10); the method or the
//! path decides the version, and the version header is checked afterwards.

use asp_edge::PathKind;
use axum::response::Response;

use crate::ProtocolRequest;

pub mod card;
mod extensions;
mod found;
mod grpc;
mod history;
mod ids;
mod jsonrpc;
mod list;
mod message;
mod modes;
mod operations;
mod parts;
pub mod push;
mod reading;
mod refused;
mod rest;
mod send;
mod sse;
mod stream;
mod task;
mod version;

use refused::RefusedRequest;

/// Answers one request below `/<server>/a2a`, or to a method of gRPC.
pub async fn serve(mut request: ProtocolRequest) -> Response {
    if request.admitted.path_kind == PathKind::A2aGrpc {
        return grpc::serve(request).await;
    }
    let refused = request.hold().err().map(|fault| RefusedRequest::of_memory_fault(&fault));
    match (request.admitted.path_kind, refused) {
        (PathKind::A2a, None) => jsonrpc::serve(&request).await,
        (PathKind::A2a, Some(refused)) => {
            let envelope = request.admitted.envelope.as_ref();
            jsonrpc::refuse(&request, envelope.and_then(|envelope| envelope.id.as_deref()), refused)
        }
        (_, None) => rest::serve(&request, below(&request)).await,
        (_, Some(refused)) => rest::refuse(&request, below(&request), refused),
    }
}

/// Returns the part of the path below the agent's. The edge has checked the rest.
fn below(request: &ProtocolRequest) -> &str {
    let path = request.uri.path().strip_prefix('/').unwrap_or_default();
    let path = path.strip_prefix(request.server.message.name.as_str()).unwrap_or_default();
    path.strip_prefix("/a2a").unwrap_or_default()
}
