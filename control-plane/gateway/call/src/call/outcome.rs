//! The end of a call: an output or a refusal, each independent of any protocol.

use asp_edge::{Reason, RevocationNotice};
use asp_json::{Json, Members, held};
use asp_registry::uri_template::ExpandFault;
use asp_snapshot::limits::Level;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::State;
use super::page::{self, Visit};
use crate::call::Call;

mod stored;

/// The one end of a call.
#[derive(Debug)]
pub enum Outcome {
    /// The call was executed. `replayed`: this is the stored answer of an earlier execution.
    Done {
        output: Output,
        replayed: bool,
    },
    Refused(Refusal),
}

impl Outcome {
    /// Returns the outcome after the task that ran the call has vanished.
    pub fn unknown() -> Outcome {
        Outcome::Refused(Refusal::OutcomeUnknown)
    }

    /// Returns the state of a call with this outcome.
    pub fn state(&self) -> State {
        match self {
            Outcome::Done { .. } => State::Completed,
            Outcome::Refused(refusal) => refusal.state(),
        }
    }
}

/// `_meta` member of an answer that replaces one that was not kept.
const NOT_KEPT: &str = "asp/answerNotKept";

/// The output of a backend. JSON of a service or plugin keeps its text (I-14).
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// Output of a tool or task: MCP content blocks and, if the primitive has an output schema, a value.
    /// `more` are members of an upstream's result that MCP does not define, here and below.
    Tool { content: Vec<Json>, structured: Option<Json>, is_error: bool, meta: Members, more: Members },
    /// Output of a resource: MCP resource contents.
    Contents { contents: Vec<Json>, meta: Members, more: Members },
    /// Output of a prompt: MCP prompt messages.
    Messages { description: Option<String>, messages: Vec<Json>, meta: Members, more: Members },
    /// Completions of an argument, best first, with their total if that is known.
    Completion { values: Vec<String>, total: Option<u32>, has_more: bool },
}

impl Output {
    /// Returns a structured result, with its JSON text as the content that older clients read.
    pub fn structured(value: impl Into<Json>) -> Output {
        let value = value.into();
        Output::of_tool(text_block(value.text()), Some(value), false)
    }

    /// Returns the output of a tool with one content block.
    pub fn of_tool(block: Value, structured: Option<Json>, is_error: bool) -> Output {
        Output::Tool {
            content: vec![block.into()],
            structured,
            is_error,
            meta: Members::default(),
            more: Members::default(),
        }
    }

    /// Returns the contents of a resource.
    pub fn contents(contents: Vec<Json>) -> Output {
        Output::Contents { contents, meta: Members::default(), more: Members::default() }
    }

    /// Returns the messages of a prompt.
    pub fn messages(description: Option<String>, messages: Vec<Json>) -> Output {
        Output::Messages { description, messages, meta: Members::default(), more: Members::default() }
    }

    /// Returns text for the model.
    pub fn text(text: &str) -> Output {
        Output::of_tool(text_block(text), None, false)
    }

    /// Returns an error that the model should see, such as a failed upstream call.
    pub fn tool_error(text: &str) -> Output {
        Output::of_tool(text_block(text), None, true)
    }

    /// Returns values for an argument; a total that is less than their number is left out.
    pub fn completion(values: Vec<String>, total: Option<u32>, has_more: bool) -> Output {
        let total = total.filter(|total| usize::try_from(*total).is_ok_and(|total| total >= values.len()));
        Output::Completion { values, total, has_more }
    }

    /// Adds a member to the `_meta` of a tool's output.
    pub(super) fn with_meta(mut self, name: &str, value: impl Into<Json>) -> Output {
        if let Output::Tool { meta, .. } = &mut self {
            meta.insert(name, value);
        }
        self
    }

    /// Returns a replacement for an answer that is gone. An error, because the result that the tool's schema promises
    /// is missing.
    pub fn too_large() -> Output {
        let output = Output::tool_error(
            "The first request of this call was completed and took effect. Its answer was too large to store \
             and is no longer available. Do not repeat the call under another key; read its effect instead.",
        );
        output.with_meta(NOT_KEPT, true)
    }

    /// Returns the approximate size of the output on the wire in bytes, for audit.
    pub fn size(&self) -> usize {
        let mut written = Count(0);
        serde_json::to_writer(&mut written, self).map_or(0, |()| written.0)
    }

    /// Returns the size in memory, in bytes.
    pub(super) fn held_bytes(&self) -> usize {
        match self {
            Output::Tool { content, structured, meta, more, .. } => {
                let structured = structured.as_ref().map_or(0, held::of_json);
                held::of_all_json(content) + structured + held_by(meta) + held_by(more)
            }
            Output::Contents { contents, meta, more } => {
                held::of_all_json(contents) + held_by(meta) + held_by(more)
            }
            Output::Messages { description, messages, meta, more } => {
                let description = description.as_ref().map_or(0, String::len);
                description + held::of_all_json(messages) + held_by(meta) + held_by(more)
            }
            Output::Completion { values, .. } => values.iter().map(String::len).sum(),
        }
    }

    pub fn is_error(&self) -> bool {
        matches!(self, Output::Tool { is_error: true, .. })
    }
}

fn held_by(members: &Members) -> usize {
    members.iter().map(|(name, value)| name.len() + held::of_json(value)).sum()
}

/// A writer that counts bytes and discards them.
struct Count(usize);

impl std::io::Write for Count {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Returns an MCP text content block.
pub fn text_block(text: &str) -> Value {
    serde_json::json!({"type": "text", "text": text})
}

/// Reason why a call was not done. Protocols translate it to their own errors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, thiserror::Error)]
pub enum Refusal {
    /// The primitive is hidden or unknown, which look the same to the caller (I-10).
    #[error("no such primitive")]
    Unknown,
    /// The resource does not exist, or not for this caller.
    #[error("unknown resource: {uri}")]
    UnknownResource { uri: String },
    #[error("scopes are missing: {}", required.join(" "))]
    MissingScopes { required: Vec<String> },
    /// Abilities that the client lacks, by the names of MCP's client capabilities, and `tasks`.
    #[error("the client cannot do what this needs: {}", required.join(", "))]
    MissingCapabilities { required: Vec<String> },
    #[error("limit {limit} is used up")]
    Limited {
        /// Name of the limit, one of a closed set; not stored.
        #[serde(skip, default = "some_limit")]
        limit: &'static str,
        retry_after_ms: u64,
    },
    #[error("{}", misfit(pointer, message))]
    InvalidArguments { pointer: String, message: String },
    #[error("idempotency key was used for another request")]
    KeyConflict,
    /// The earlier request may run at another gateway, or may never have started because its gateway could not reach
    /// the store.
    #[error(
        "an earlier request with this id may still run, and its outcome is not known here: send it again later"
    )]
    DuplicateId,
    /// JSON-RPC ids are unique in a session (MCP 2025-11-25, base protocol), so the client means another call.
    #[error("this id was already used in this session: send the request with a new id")]
    IdUsed,
    #[error("the first request with this idempotency key is still running")]
    InFlight,
    #[error("the call needs an approval that {0}")]
    NotApproved(Disapproval),
    #[error("a question to the user was not answered in time")]
    InputExpired,
    #[error("the deadline has passed")]
    Deadline,
    #[error("cancelled")]
    Cancelled,
    /// The caller has lost the right to the call.
    #[error("{0}")]
    Withdrawn(Withdrawal),
    /// The service failed, and repeating the call is safe.
    #[error("{0}")]
    Upstream(String),
    /// The service declined the call, and certainly did nothing.
    #[error("{0}")]
    Declined(String),
    /// An upstream's own protocol error.
    #[error("{message}")]
    Relayed {
        code: i64,
        message: String,
        #[serde(default, skip_serializing_if = "Option::is_none", serialize_with = "asp_json::raw_option")]
        data: Option<Json>,
    },
    /// The service did nothing, and will do it once its user has visited these pages (MCP 2025-11-25, URL elicitation
    /// required).
    #[error(
        "the service requires its user to visit a page first; then call again: {}",
        page::described(pages)
    )]
    PagesFirst { pages: Vec<Visit> },
    /// A rule denies the arguments: nothing was done.
    #[error("this is not allowed here: {0}")]
    Barred(String),
    #[error("the call may or may not have taken effect")]
    OutcomeUnknown,
    #[error("{}", misfit_of_result(pointer, message))]
    InvalidOutput { pointer: String, message: String },
    #[error("{0}")]
    Internal(String),
}

/// Returns the reason for an upstream's own error, by its JSON-RPC code (JSON-RPC 2.0, section 5.1; MCP 2025-11-25 has
/// -32002 for a resource that does not exist). A message that does not parse (-32700) or is not a request (-32600) was
/// written here: the caller cannot fix it.
const fn relayed(code: i64) -> Reason {
    match code {
        -32602 => Reason::InvalidParams,
        -32601 => Reason::UnknownMethod,
        -32002 => Reason::UnknownPrimitive,
        _ => Reason::UpstreamUnavailable,
    }
}

/// Returns a misfit as a sentence; a message that begins with a verb needs no colon.
fn misfit(pointer: &str, message: &str) -> String {
    let says_what_it_is = ["is ", "has ", "fits "].iter().any(|verb| message.starts_with(verb));
    match (pointer, says_what_it_is) {
        ("", true) => format!("the argument object {message}"),
        ("", false) => format!("arguments: {message}"),
        (_, true) => format!("argument {pointer} {message}"),
        (_, false) => format!("argument {pointer}: {message}"),
    }
}

/// Beginning of the message about a result that is too large.
const SIZE: &str = "the result has ";

/// Returns the misfit of a result as a sentence; a message about the whole result is one already.
fn misfit_of_result(pointer: &str, message: &str) -> String {
    match pointer {
        "" if message.starts_with("the result ") => message.to_owned(),
        "" => format!("the result does not fit the output schema: {message}"),
        _ => {
            // Shims begin the message with the place.
            let message =
                message.strip_prefix(pointer).and_then(|rest| rest.strip_prefix(": ")).unwrap_or(message);
            format!("the result does not fit the output schema at {pointer}: {message}")
        }
    }
}

/// Name of a limit that was read from a store, where it is not kept.
const fn some_limit() -> &'static str {
    "calls"
}

/// Reason why a running call is withdrawn from its caller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Withdrawal {
    #[error("the token it was called with has been revoked")]
    TokenRevoked,
    /// The token was revoked, or its user or org blocked, at a known time or with a reason.
    #[error("{0}")]
    Revoked(RevocationNotice),
    #[error("the token it was called with has expired")]
    TokenExpired,
    #[error("the server is no longer available to the caller")]
    ServerDisabled,
    #[error("the caller may no longer call this")]
    Denied,
}

impl Withdrawal {
    /// Returns the withdrawal for a revocation.
    pub fn of_revocation(notice: RevocationNotice) -> Withdrawal {
        if notice.is_plain() { Withdrawal::TokenRevoked } else { Withdrawal::Revoked(notice) }
    }

    /// Returns the details of a revocation, if any are known.
    pub const fn notice(&self) -> Option<&RevocationNotice> {
        match self {
            Withdrawal::Revoked(notice) => Some(notice),
            _ => None,
        }
    }

    pub const fn reason(&self) -> Reason {
        match self {
            Withdrawal::TokenRevoked => Reason::TokenRevoked,
            Withdrawal::Revoked(notice) => notice.reason(),
            Withdrawal::TokenExpired => Reason::TokenExpired,
            Withdrawal::ServerDisabled => Reason::UnknownServer,
            Withdrawal::Denied => Reason::UnknownPrimitive,
        }
    }
}

/// Reason for a missing approval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Disapproval {
    #[error("this client cannot ask for")]
    CannotAsk,
    #[error("was declined")]
    Declined,
    #[error("only a person can give, and the caller is a machine")]
    ByMachine,
    #[error("was denied by the person who was asked")]
    Denied,
    #[error("is void, because the policy has changed since it was requested: call again")]
    Outdated,
    #[error("is void, because the person who gave it has been blocked or revoked since: call again")]
    ApproverRevoked,
}

impl Refusal {
    /// Returns the refusal of an argument that is not allowed where a URI template puts it.
    pub fn misplaced(fault: &ExpandFault) -> Refusal {
        let escaped = fault.argument().replace('~', "~0").replace('/', "~1");
        Refusal::InvalidArguments { pointer: format!("/{escaped}"), message: fault.to_string() }
    }

    /// Returns the normalized reason for metrics, audit and every protocol.
    pub const fn reason(&self) -> Reason {
        match self {
            Refusal::Unknown | Refusal::UnknownResource { .. } => Reason::UnknownPrimitive,
            Refusal::MissingScopes { .. } | Refusal::NotApproved(_) => Reason::InsufficientScope,
            Refusal::MissingCapabilities { .. } => Reason::MissingCapability,
            Refusal::Limited { .. } => Reason::RateLimited,
            Refusal::InvalidArguments { .. } | Refusal::KeyConflict => Reason::InvalidParams,
            Refusal::IdUsed => Reason::InvalidRequest,
            Refusal::InFlight | Refusal::InputExpired | Refusal::Deadline | Refusal::Cancelled => {
                Reason::Deadline
            }
            Refusal::Withdrawn(why) => why.reason(),
            Refusal::DuplicateId
            | Refusal::Upstream(_)
            | Refusal::Declined(_)
            | Refusal::PagesFirst { .. } => Reason::UpstreamUnavailable,
            Refusal::Relayed { code, .. } => relayed(*code),
            Refusal::Barred(_) => Reason::ContentRefused,
            Refusal::OutcomeUnknown => Reason::OutcomeUnknown,
            Refusal::InvalidOutput { .. } | Refusal::Internal(_) => Reason::Internal,
        }
    }

    /// Returns the members with which every protocol reports a revocation: its time and reason, as far as they are known.
    pub fn revocation_members(&self) -> impl Iterator<Item = (&'static str, String)> + use<> {
        let notice = match self {
            Refusal::Withdrawn(why) => why.notice(),
            _ => None,
        };
        notice.map(RevocationNotice::members).into_iter().flatten()
    }

    /// Returns how many calls are left of the limit that refused; `None` if no limit of rates or running calls did.
    pub fn remaining_calls(&self) -> Option<u64> {
        match self {
            // A limit refuses only what it has no more of.
            Refusal::Limited { limit, .. } if Level::is_name(limit) => Some(0),
            _ => None,
        }
    }

    /// Returns the delay until the caller may retry, in whole seconds as in `Retry-After` (RFC 9110, 10.2.3); `None` if
    /// waiting does not help.
    pub fn retry_after_seconds(&self) -> Option<u64> {
        match self {
            Refusal::Limited { retry_after_ms, .. } => Some(retry_after_ms.div_ceil(1000).max(1)),
            Refusal::Upstream(_) | Refusal::InFlight => Some(1),
            _ => None,
        }
    }

    /// Returns the message for the caller. Internal causes stay in the log (I-11).
    pub fn public_message(&self) -> String {
        match self {
            Refusal::Internal(_) => Reason::Internal.message().into(),
            // Its size, for which the schema is not the reason.
            Refusal::InvalidOutput { pointer, message }
                if pointer.is_empty() && message.starts_with(SIZE) =>
            {
                format!("the call was completed, but {message}")
            }
            Refusal::InvalidOutput { .. } => {
                "the call was completed, but its result does not match its output schema".into()
            }
            other => other.to_string(),
        }
    }

    pub(crate) const fn state(&self) -> State {
        match self {
            Refusal::Cancelled | Refusal::Withdrawn(_) => State::Cancelled,
            Refusal::Unknown
            | Refusal::UnknownResource { .. }
            | Refusal::MissingScopes { .. }
            | Refusal::MissingCapabilities { .. }
            | Refusal::Limited { .. }
            | Refusal::InvalidArguments { .. }
            | Refusal::KeyConflict
            | Refusal::DuplicateId
            | Refusal::IdUsed
            | Refusal::InFlight
            | Refusal::NotApproved(_)
            | Refusal::Barred(_) => State::Rejected,
            Refusal::InputExpired
            | Refusal::Deadline
            | Refusal::Upstream(_)
            | Refusal::Declined(_)
            | Refusal::Relayed { .. }
            | Refusal::PagesFirst { .. }
            | Refusal::OutcomeUnknown
            | Refusal::InvalidOutput { .. }
            | Refusal::Internal(_) => State::Failed,
        }
    }
}

/// Returns the end of a call that was stopped.
pub fn after_handover(call: &Call, stopped: Refusal) -> Refusal {
    match stopped {
        Refusal::Cancelled => Refusal::Cancelled,
        stopped if !call.was_handed_over() => stopped,
        stopped => call.unanswered(stopped),
    }
}
