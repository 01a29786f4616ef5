//! The request state machine as its hosts see it: `on_headers → (on_body) → Verdict`.
//!
//! Owns the types that go in and out, and what outlives a request. What is judged, and in which order, is in
//! `judgement`.

use std::sync::Arc;

use crate::coarse::Buckets;
use crate::envelope::{Batches, Envelope};
use crate::judgement::{Changes, Judgement};
use crate::path::Face;
use crate::reason::{Era, Reason};
use crate::reply::{Reply, Voice};
use crate::snapshot::Snapshot;
use crate::token::{Caller, Tokens};

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
    pub(crate) role: Role,
    pub(crate) tokens: Tokens,
    pub(crate) buckets: Buckets,
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
    pub(crate) voice: Voice,
    pub(crate) changes: Changes,
    pub(crate) batches: Batches,
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

/// What the judgement established about a request it let through.
#[derive(Clone, Debug)]
pub struct Admitted {
    pub face: Face,
    /// The server's name; empty for root paths.
    pub server: String,
    /// The caller, when a token was judged here; `None` for schemes the edge cannot judge and for `none`.
    pub caller: Option<Arc<Caller>>,
    /// The server wants a credential, and only the gateway can judge the one that came (opaque token,
    /// pre-shared key, client certificate). Exposure, scopes and revocation of its owner are unjudged too.
    pub unjudged: bool,
    pub era: Era,
    /// The scan of a JSON-RPC body, when it was read here.
    pub envelope: Option<Envelope>,
    /// The request's Origin, when it has one and it is allowed: the response needs [`crate::cors::response_headers`].
    pub origin: Option<String>,
    /// Largest accepted request body in bytes, for faces whose body is not read here.
    pub max_body: usize,
}

impl Edge {
    pub fn new(role: Role) -> Edge {
        Edge { role, tokens: Tokens::default(), buckets: Buckets::default() }
    }

    /// Judges the headers.
    pub fn on_headers(
        &self,
        snapshot: &Snapshot,
        headers: &[Header],
        end_of_stream: bool,
        env: &Env,
    ) -> Step {
        let judged = Judgement { edge: self, snapshot, env }.headers(headers, end_of_stream);
        judged.unwrap_or_else(|reply| Step::Decided(Verdict::Reply(reply)))
    }

    /// Judges the whole body of a request for which [`Edge::on_headers`] asked for it.
    pub fn on_body(&self, snapshot: &Snapshot, pending: Pending, body: &[u8], env: &Env) -> Verdict {
        let judged = Judgement { edge: self, snapshot, env }.body(pending, body);
        judged.unwrap_or_else(Verdict::Reply)
    }

    /// The refusal of a body longer than `Pending::max_body`.
    pub fn body_too_large(&self, pending: &Pending) -> Reply {
        pending.voice.refuse(Reason::BodyTooLarge)
    }
}

#[cfg(test)]
mod tests;
