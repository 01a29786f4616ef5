//! The context that both eras pass to the handlers of their shared requests, and the answers of these; what a message
//! says about its call.

use std::sync::Arc;

use asp_call::call::{Call, ClientAbilities, Invocation};
use asp_edge::Trace;
use asp_json::Json;
use asp_proto::mcp_revision::Revision;
use asp_proto::snapshot::Protocol;
use asp_snapshot::ListedPrimitive;
use serde_json::{Map, Value};

use super::codec::Message;
use super::results::RequestKind;
use crate::ProtocolRequest;

/// Properties of a request that depend on its era.
pub(super) struct Context {
    pub revision: Revision,
    pub abilities: ClientAbilities,
    /// Id of the legacy session, or empty.
    pub session: String,
    /// Entries listed by plugins themselves, if the request is for a list that includes them.
    pub listed: Vec<Value>,
}

/// The answer to a request: an immediate result or a call.
pub(super) enum RequestAnswer {
    Page(Map<String, Value>),
    /// A result that must not be cached, unlike a list.
    Completion(Map<String, Value>),
    Call(Arc<Call>, RequestKind),
}

/// Returns the trace of one message: the one in its `_meta` (SEP-414), otherwise the request's.
pub(super) fn trace_of(request: &ProtocolRequest, message: &Message) -> Trace {
    let own = message.meta("traceparent").and_then(Value::as_str);
    own.and_then(|text| Trace::parse(text.as_bytes())).unwrap_or(request.admitted.trace)
}

/// Number of phase steps per unit of progress: a change of phase adds a thousandth, which no percentage shows.
const PHASE_STEPS: f64 = 1000.0;

/// Returns the next thousandth above `last`.
pub(super) fn next_phase(last: f64) -> f64 {
    ((last * PHASE_STEPS).floor() + 1.0) / PHASE_STEPS
}

/// Returns the progress token of a request, a string or a number as the client wrote it.
pub(super) fn progress_token(message: &Message) -> Option<Json> {
    message.meta("progressToken").filter(|token| token.is_string() || token.is_number())?;
    message.sent_param("_meta")?.member("progressToken")
}

/// Returns an invocation of a primitive by a message, in a legacy session or without one.
pub(super) fn invocation(
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
