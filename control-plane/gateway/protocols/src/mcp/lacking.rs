//! Errors for requests whose client lacks scopes, which it can step up to, or capabilities.

use asp_call::call::Call;
use asp_call::call::outcome::Refusal;
use asp_edge::{Reason, reply};
use asp_pipeline::pipeline::entitlement::entitle;
use asp_proto::mcp_revision::Revision;
use asp_proto::snapshot::Protocol;
use asp_snapshot::ListedPrimitive;
use http::StatusCode;
use serde_json::{Map, Value, json};

use super::codec::RpcFailure;
use crate::ProtocolRequest;

/// The tasks extension, as clients and servers declare it.
pub(super) const TASKS_EXTENSION: &str = "io.modelcontextprotocol/tasks";
/// The extension's name among client abilities in a refusal.
pub(super) const TASKS: &str = "tasks";

/// Returns a 403 challenge with every scope of the operation, so that the client can step up (MCP authorization, scope
/// challenge handling).
pub(super) fn step_up(request: &ProtocolRequest, required: &[String]) -> RpcFailure {
    let mut failure = RpcFailure::of(Reason::InsufficientScope).status(StatusCode::FORBIDDEN);
    failure.challenge = Some(reply::challenge(
        Reason::InsufficientScope,
        &request.gateway.config.public_url,
        // The address of the request, which may stand for several servers.
        &request.admitted.server,
        required,
    ));
    failure
}

/// Checks that a returning caller has the scopes that the call requires; the pipeline checks whether the caller can see
/// the call.
pub(super) fn has_scopes(request: &ProtocolRequest, call: &Call) -> Result<(), RpcFailure> {
    has_scopes_of(request, &call.entry)
}

/// Checks the same by the primitive of a call.
pub(super) fn has_scopes_of(request: &ProtocolRequest, entry: &ListedPrimitive) -> Result<(), RpcFailure> {
    match entitle(&request.snapshot, &request.server, &request.caller, entry, Protocol::Mcp) {
        Err(Refusal::MissingScopes { required }) => Err(step_up(request, &required)),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Returns the error that lists the missing capabilities in the form a client declares them; revisions with a handshake
/// have no error code for it.
pub(super) fn incapable(required: &[String], revision: Revision) -> RpcFailure {
    let message = Refusal::MissingCapabilities { required: required.to_vec() }.public_message();
    let mut capabilities = Map::new();
    for name in required {
        match (name.as_str(), name.split_once('.')) {
            (TASKS, _) => {
                capabilities.insert("extensions".into(), json!({TASKS_EXTENSION: {}}));
            }
            // A part of a capability, such as a mode of elicitation.
            (_, Some((whole, part))) => {
                let whole = capabilities.entry(whole).or_insert_with(|| json!({}));
                if let Some(whole) = whole.as_object_mut() {
                    whole.insert(part.into(), json!({}));
                }
            }
            (name, None) => {
                capabilities.insert(name.into(), json!({}));
            }
        }
    }
    let failure = RpcFailure::with(Reason::MissingCapability, &message)
        .data("requiredCapabilities", Value::Object(capabilities));
    if revision.is_modern() {
        return failure;
    }
    RpcFailure { code: Reason::InvalidRequest.jsonrpc_code(), ..failure }.in_call()
}
