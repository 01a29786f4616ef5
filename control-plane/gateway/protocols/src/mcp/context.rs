//! The context that both eras pass to the handlers of their shared requests, and the answers of these.

use std::sync::Arc;

use asp_call::call::{Call, ClientAbilities};
use asp_edge::Trace;
use asp_proto::mcp_revision::Revision;
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
