//! What the hosts of the judgement hold: `on_headers → (on_body) → Verdict`.
//!
//! Owns what outlives a request. What goes in and comes out is in `verdict`; what is judged, and in which
//! order, in `judgement`.

use std::sync::Arc;

use crate::caller::Caller;
use crate::coarse::Buckets;
use crate::headers::Headers;
use crate::judgement::Judgement;
use crate::reason::Reason;
use crate::reply::Reply;
use crate::snapshot::Snapshot;
use crate::token::{Hashing, Tokens};
use crate::verdict::{Admitted, Env, Pending, Role, Step, Verdict};

/// Keeps what outlives a request: verified tokens and coarse buckets, both bounded. Shared by threads.
pub struct Edge {
    role: Role,
    tokens: Tokens,
    buckets: Buckets,
}

impl Edge {
    pub fn new(role: Role) -> Edge {
        let hashing = match role {
            Role::Filter => Hashing::WhenAsked,
            // It judges running calls again.
            Role::Gateway => Hashing::Always,
        };
        Edge { role, tokens: Tokens::new(hashing), buckets: Buckets::default() }
    }

    /// Judges the headers: the name (see [`crate::Header`]) and value of each, owned or borrowed.
    pub fn on_headers<N: AsRef<str>, V: AsRef<[u8]>>(
        &self,
        snapshot: &Snapshot,
        headers: &[(N, V)],
        end_of_stream: bool,
        env: &Env,
    ) -> Step {
        let judged = self.judgement(snapshot, env).headers(&Headers::read(headers), end_of_stream);
        judged.unwrap_or_else(|reply| Step::Decided(Verdict::Reply(reply)))
    }

    /// Judges the whole body of a request for which [`Edge::on_headers`] asked for it.
    pub fn on_body(&self, snapshot: &Snapshot, pending: Pending, body: &[u8], env: &Env) -> Verdict {
        let judged = self.judgement(snapshot, env).body(pending, body);
        judged.unwrap_or_else(Verdict::Reply)
    }

    /// Goes on with a request that was passed on unjudged ([`crate::Admitted::unjudged`]), for the caller that the gateway
    /// has found: revocation, time, exposure and scopes, as for a token that is judged here.
    pub fn found(
        &self,
        snapshot: &Snapshot,
        admitted: Admitted,
        caller: Arc<Caller>,
        env: &Env,
    ) -> Result<Admitted, Reply> {
        self.judgement(snapshot, env).found(admitted, caller)
    }

    /// The refusal of a request that was passed on unjudged, and whose caller nobody could find; `reason` says whether it
    /// offered anything ([`Reason::TokenInvalid`]) or nothing ([`Reason::TokenMissing`]).
    pub fn unproved(&self, snapshot: &Snapshot, admitted: &Admitted, reason: Reason, env: &Env) -> Reply {
        self.judgement(snapshot, env).unproved(admitted, reason)
    }

    /// The refusal of a body longer than `Pending::max_body`.
    pub fn body_too_large(&self, pending: &Pending) -> Reply {
        pending.voice.refuse(Reason::BodyTooLarge)
    }

    fn judgement<'a>(&'a self, snapshot: &'a Snapshot, env: &'a Env) -> Judgement<'a> {
        Judgement { role: self.role, tokens: &self.tokens, buckets: &self.buckets, snapshot, env }
    }
}

#[cfg(test)]
mod tests;
