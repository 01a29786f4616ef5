//! What the halves of the two eras tell those who answer the requests that both share, and what those answer.

use std::sync::Arc;

use asp_edge::Trace;
use asp_snapshot::mcp_revision::Revision;
use serde_json::{Map, Value};

use super::codec::Message;
use super::results::Asked;
use crate::call::{Call, ClientAbilities};
use crate::faces::FaceRequest;

/// What the era's half knows about a request.
pub(super) struct Context {
    pub revision: Revision,
    pub abilities: ClientAbilities,
    /// The legacy session's id, else empty.
    pub session: String,
    /// What plugins list themselves, where the request is for the list that has it.
    pub listed: Vec<Value>,
}

/// A request is answered at once or by a call.
pub(super) enum Answer {
    Page(Map<String, Value>),
    /// No list: nobody keeps it.
    Completion(Map<String, Value>),
    Call(Arc<Call>, Asked),
}

/// The trace of one message: what its `_meta` says (SEP-414) comes before the request's.
pub(super) fn trace_of(request: &FaceRequest, message: &Message) -> Trace {
    let own = message.meta("traceparent").and_then(Value::as_str);
    own.and_then(|text| Trace::parse(text.as_bytes())).unwrap_or(request.admitted.trace)
}
