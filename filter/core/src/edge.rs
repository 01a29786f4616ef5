//! The request state machine: `on_headers → (on_body) → Verdict`.

use std::sync::Arc;

use crate::reason::{Era, Reason};
use crate::snapshot::Snapshot;

/// One header as the host gave it: lower-case name (pseudo-headers included: `:method`, `:path`,
/// `:authority`) and the raw value, which need not be UTF-8.
pub type Header = (String, Vec<u8>);

/// Where the judgement runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// In Envoy: coarse limits, affinity and routes; opaque schemes and modern bodies pass on unjudged.
    Filter,
    /// In the gateway: every body is scanned; no coarse limits, no affinity.
    Gateway,
}

/// What the host supplies for one request.
pub struct Env {
    /// Wall clock, Unix milliseconds.
    pub now_ms: u64,
    /// Eight fresh random bytes for a new affinity key.
    pub random: [u8; 8],
}

/// Keeps what outlives a request: verified tokens and coarse buckets, both bounded. Shared by threads.
pub struct Edge {
    role: Role,
}

/// What to do after the headers.
pub enum Step {
    Decided(Verdict),
    /// Buffer the body, at most `Pending::max_body` bytes, then call [`Edge::on_body`].
    NeedBody(Box<Pending>),
}

/// A request whose body is still to be scanned.
pub struct Pending {
    /// Largest accepted body in bytes; a longer one is refused with [`Edge::body_too_large`].
    pub max_body: usize,
    /// What the headers established.
    pub admitted: Admitted,
}

pub enum Verdict {
    Forward(Box<Forward>),
    Reply(Reply),
}

/// Let the request through with these header changes.
pub struct Forward {
    /// Headers to remove, lower case (every `x-asp-*` of the client among them).
    pub remove: Vec<String>,
    /// Headers to set after the removal.
    pub set: Vec<(&'static str, String)>,
    /// Whether the route was chosen by a header in `set`, so that Envoy's route cache must be cleared.
    pub clear_route: bool,
    pub admitted: Admitted,
}

/// The part of the platform a path belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Face {
    Mcp,
    A2a,
    Rest,
    /// `/<server>/.well-known/…` and `/.well-known/*`: public, no token.
    WellKnown,
    /// `/healthz`
    Health,
}

/// What the judgement established about a request it let through.
#[derive(Clone, Debug)]
pub struct Admitted {
    pub face: Face,
    /// The server's name; empty for root paths.
    pub server: String,
    /// The caller, when a token was judged here; `None` for schemes the edge cannot judge and for `none`.
    pub caller: Option<Arc<Caller>>,
    pub era: Era,
    /// The scan of a JSON-RPC body, when it was read here.
    pub envelope: Option<Envelope>,
}

/// A caller proved by a verified token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    pub org: String,
    pub user: String,
    pub groups: Vec<String>,
    pub scopes: Vec<String>,
    /// `client_id` (RFC 9068) or `azp`; empty when the token names none.
    pub client: String,
    /// The token's id: `jti`, else the lower-case hex SHA-256 of the compact token.
    pub wcit: String,
    pub issuer: String,
    /// Unix seconds.
    pub issued_at: u64,
    /// Unix seconds.
    pub expires_at: u64,
}

/// What the bounded scan of a JSON-RPC body found. No DOM is built.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Envelope {
    pub kind: EnvelopeKind,
    pub method: String,
    /// The `id` exactly as written (JSON text), when there is one.
    pub id: Option<String>,
    /// `params.name` of tools/call and prompts/get, `params.uri` of resources/read.
    pub name: Option<String>,
    /// `params._meta["io.modelcontextprotocol/protocolVersion"]` when it is a string.
    pub meta_version: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EnvelopeKind {
    #[default]
    Request,
    Notification,
    Response,
    /// A batch of that many messages (2025-03-26 only).
    Batch(usize),
}

/// A refusal, ready to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    pub status: u16,
    pub headers: Vec<(&'static str, String)>,
    pub body: Vec<u8>,
    /// `None` for answers that are no refusal (`/healthz`, a CORS preflight).
    pub reason: Option<Reason>,
}

impl Edge {
    pub fn new(role: Role) -> Edge {
        Edge { role }
    }

    /// Judges the headers.
    pub fn on_headers(&self, snapshot: &Snapshot, headers: &[Header], end_of_stream: bool, env: &Env) -> Step {
        let _ = (self.role, snapshot, headers, end_of_stream, env);
        Step::Decided(Verdict::Reply(refuse(Reason::UpstreamUnavailable, Era::Legacy, None)))
    }

    /// Judges the whole body of a request for which [`Edge::on_headers`] asked for it.
    pub fn on_body(&self, snapshot: &Snapshot, pending: Pending, body: &[u8], env: &Env) -> Verdict {
        let _ = (snapshot, pending, body, env);
        Verdict::Reply(refuse(Reason::UpstreamUnavailable, Era::Legacy, None))
    }

    /// The refusal of a body longer than `Pending::max_body`.
    pub fn body_too_large(&self, pending: &Pending) -> Reply {
        refuse(Reason::BodyTooLarge, pending.admitted.era, None)
    }
}

/// A JSON-RPC refusal; `id` is JSON text, `None` leaves the member out.
pub fn refuse(reason: Reason, era: Era, id: Option<&str>) -> Reply {
    let _ = id;
    Reply {
        status: reason.http_status(era),
        headers: vec![("content-type", "application/json".into())],
        body: Vec::new(),
        reason: Some(reason),
    }
}
