//! What goes into the judgement of one request, and what comes out of it.

use std::sync::Arc;

use crate::caller::Caller;
use crate::envelope::{Batches, Envelope};
use crate::path::Face;
use crate::reason::Era;
use crate::reply::{Reply, Voice};
use crate::trace::Trace;

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
    pub trace: Trace,
}

/// What to do after the headers.
pub enum Step {
    Decided(Verdict),
    /// Buffer the body, at most `Pending::max_body` bytes, then call [`crate::Edge::on_body`].
    NeedBody(Box<Pending>),
}

/// A request whose body is still to be scanned.
pub struct Pending {
    /// Largest accepted body in bytes; a longer one is refused with [`crate::Edge::body_too_large`].
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
    /// The issuer, by name, whose key the token names and nobody here has yet: the token is [`Admitted::unjudged`] until
    /// its keys were asked for anew.
    pub unknown_key_of: Option<String>,
    pub era: Era,
    /// The scan of a JSON-RPC body, when it was read here.
    pub envelope: Option<Envelope>,
    /// The request's Origin, when it has one and it is allowed: the response needs [`crate::reply::response_headers`].
    pub origin: Option<String>,
    /// Largest accepted request body in bytes, for faces whose body is not read here.
    pub max_body: usize,
    pub trace: Trace,
}

/// Header changes collected on the way.
#[derive(Default)]
pub(crate) struct Changes {
    pub(crate) remove: Vec<String>,
    pub(crate) set: Vec<(&'static str, String)>,
}
