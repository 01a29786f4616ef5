//! Inputs and outputs of the evaluation of one request.

use std::sync::Arc;

use crate::caller::Caller;
use crate::envelope::{Binding, Envelope};
use crate::grpc::{self, TaskField};
use crate::headers::Headers;
use crate::modern;
use crate::path::{PathKind, RequestTarget};
use crate::reason::{Era, Reason};
use crate::reply::{ErrorForm, ErrorFormat, Reply};
use crate::trace::Trace;
use crate::unauthenticated::CredentialAttempt;

/// Header as the host provides it: lower-case name (including the pseudo-headers `:method`, `:path` and `:authority`)
/// and the raw value, which need not be UTF-8.
pub type Header = (String, Vec<u8>);

/// Process in which the evaluation runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EdgeRole {
    /// Envoy: coarse limits, affinity and routes; opaque schemes and modern bodies are forwarded unverified.
    Filter,
    /// Gateway: every body is scanned; no coarse limits, no affinity.
    Gateway,
}

/// Inputs from the host for one request.
pub struct Env {
    /// Wall clock, Unix milliseconds.
    pub now_ms: u64,
    /// Eight fresh random bytes for a new affinity key.
    pub random: [u8; 8],
    pub trace: Trace,
}

/// Next step after the headers.
pub enum Step {
    Decided(Verdict),
    /// The host buffers the body, at most `PendingBody::max_body` bytes, then calls [`crate::Edge::on_body`].
    NeedBody(Box<PendingBody>),
}

/// Request whose body is still to be scanned.
pub struct PendingBody {
    /// Maximum body size in bytes; a longer one is refused with [`crate::Edge::body_too_large`].
    pub max_body: usize,
    /// Facts established from the headers.
    pub admitted: RequestFacts,
    pub(crate) errors: ErrorFormat,
    pub(crate) changes: HeaderChanges,
    pub(crate) content: BodyContent,
}

/// Content of a body that is scanned.
#[derive(Clone, Copy)]
pub(crate) enum BodyContent {
    JsonRpc(Binding),
    /// Message of gRPC, in which only the task is looked for.
    Grpc(TaskField),
}

impl BodyContent {
    /// Returns the content that the process reads; `None` for a request whose body is not read.
    pub(crate) fn of(
        role: EdgeRole,
        target: &RequestTarget<'_>,
        headers: &Headers<'_>,
    ) -> Option<BodyContent> {
        let binding = match target.path_kind {
            PathKind::A2aGrpc if role == EdgeRole::Filter => {
                return grpc::task_field(headers.path).map(BodyContent::Grpc);
            }
            _ if headers.method != b"POST" => return None,
            PathKind::A2a => Binding::A2a,
            PathKind::Mcp if modern::may_batch(headers.protocol_version) => Binding::McpBatches,
            PathKind::Mcp => Binding::Mcp,
            PathKind::A2aRest
            | PathKind::A2aRestV03
            | PathKind::A2aGrpc
            | PathKind::Rest
            | PathKind::Public
            | PathKind::Health => return None,
        };
        Some(BodyContent::JsonRpc(binding))
    }
}

pub enum Verdict {
    Forward(Box<Forward>),
    Reply(Reply),
}

/// Permission to forward the request with these header changes.
pub struct Forward {
    /// Headers to remove, lower case, including every `x-asp-*` from the client.
    pub remove: Vec<String>,
    /// Headers to set after the removal.
    pub set: Vec<(&'static str, String)>,
    /// Whether a header in `set` chooses the route, so that Envoy's route cache must be cleared.
    pub clear_route: bool,
    pub admitted: RequestFacts,
}

/// Facts established about an admitted request.
#[derive(Clone, Debug)]
pub struct RequestFacts {
    pub path_kind: PathKind,
    /// Name of the server, for gRPC the one that the host means; empty for root paths.
    pub server: String,
    /// Caller, if a token was verified here; `None` for schemes that the edge cannot verify and for `none`.
    pub caller: Option<Arc<Caller>>,
    /// Whether the request carries a credential that only the gateway can verify (opaque token, pre-shared key, client
    /// certificate). Exposure, scopes and revocation are not checked yet either.
    pub unverified: bool,
    /// Name of the issuer whose key the token names, if that key is not known here yet: the token stays
    /// [`RequestFacts::unverified`] until the issuer's keys were fetched again.
    pub unknown_key_of: Option<String>,
    /// Credential that only the gateway can verify, at an edge: the response settles it ([`crate::Edge::settle`]).
    pub attempt: Option<CredentialAttempt>,
    pub era: Era,
    /// Result of scanning a JSON-RPC body, if it was read here.
    pub envelope: Option<Envelope>,
    /// Origin of the request, if present and allowed: the response needs [`crate::reply::response_headers`].
    pub origin: Option<String>,
    /// Maximum request body size in bytes, for protocols whose body is not read here.
    pub max_body: usize,
    pub trace: Trace,
}

impl RequestFacts {
    /// Returns what is established of a request by its path.
    pub(crate) fn of(target: &RequestTarget<'_>, errors: &ErrorFormat, max_body: usize) -> RequestFacts {
        RequestFacts {
            path_kind: target.path_kind,
            server: target.server.to_owned(),
            caller: None,
            unverified: false,
            unknown_key_of: None,
            attempt: None,
            era: errors.era,
            envelope: None,
            origin: errors.origin.clone(),
            max_body,
            trace: errors.trace,
        }
    }

    /// Returns the refusal of this request in the form of its protocol, with the headers that an allowed Origin needs.
    pub fn refuse(&self, reason: Reason) -> Reply {
        self.error_format().refuse(reason)
    }

    /// Returns the form of refusals in the protocol of this request.
    pub fn error_form(&self) -> ErrorForm {
        ErrorForm::of_admitted(self.path_kind)
    }

    pub(crate) fn error_format(&self) -> ErrorFormat {
        ErrorFormat { form: self.error_form(), era: self.era, origin: self.origin.clone(), trace: self.trace }
    }
}

/// Header changes collected during the evaluation.
#[derive(Default)]
pub(crate) struct HeaderChanges {
    pub(crate) remove: Vec<String>,
    pub(crate) set: Vec<(&'static str, String)>,
}
