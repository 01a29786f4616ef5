//! Interface of the evaluation to its hosts: `on_headers → (on_body) → Verdict`.
//!
//! Owns the state that outlives a request. Inputs and outputs are in `verdict`; the checks and their order are in
//! `evaluation`.

use std::sync::Arc;

use crate::caller::Caller;
use crate::coarse::Buckets;
use crate::evaluation::Evaluation;
use crate::headers::Headers;
use crate::reason::Reason;
use crate::reply::Reply;
use crate::snapshot::Snapshot;
use crate::token::{Hashing, Tokens};
use crate::verdict::{EdgeRole, Env, PendingBody, RequestFacts, Step, Verdict};

/// State that outlives a request: verified tokens and coarse buckets, both bounded. Threads may share it.
pub struct Edge {
    role: EdgeRole,
    tokens: Tokens,
    buckets: Buckets,
}

impl Edge {
    pub fn new(role: EdgeRole) -> Edge {
        let hashing = match role {
            EdgeRole::Filter => Hashing::WhenAsked,
            // The gateway evaluates running calls again, after further revocations.
            EdgeRole::Gateway => Hashing::Always,
        };
        Edge { role, tokens: Tokens::new(hashing), buckets: Buckets::default() }
    }

    /// Evaluates the headers: the name (see [`crate::Header`]) and value of each, owned or borrowed.
    pub fn on_headers<N: AsRef<str>, V: AsRef<[u8]>>(
        &self,
        snapshot: &Snapshot,
        headers: &[(N, V)],
        end_of_stream: bool,
        env: &Env,
    ) -> Step {
        let judged = self.evaluation(snapshot, env).headers(&Headers::read(headers), end_of_stream);
        judged.unwrap_or_else(|reply| Step::Decided(Verdict::Reply(reply)))
    }

    /// Evaluates the whole body of a request for which [`Edge::on_headers`] asked for it.
    pub fn on_body(&self, snapshot: &Snapshot, pending: PendingBody, body: &[u8], env: &Env) -> Verdict {
        let judged = self.evaluation(snapshot, env).body(pending, body);
        judged.unwrap_or_else(Verdict::Reply)
    }

    /// Continues a request that was forwarded unverified ([`crate::RequestFacts::unverified`]) with the caller that the
    /// gateway found: checks revocation, time, exposure and scopes as for a token that is evaluated here.
    pub fn admit(
        &self,
        snapshot: &Snapshot,
        admitted: RequestFacts,
        caller: Arc<Caller>,
        env: &Env,
    ) -> Result<RequestFacts, Reply> {
        self.evaluation(snapshot, env).admit(admitted, caller)
    }

    /// Returns the refusal of a request that was forwarded unverified and for which no caller was found; `reason` says
    /// whether it carried a credential ([`Reason::TokenInvalid`]) or none ([`Reason::TokenMissing`]).
    pub fn unproved(&self, snapshot: &Snapshot, admitted: &RequestFacts, reason: Reason, env: &Env) -> Reply {
        self.evaluation(snapshot, env).unproved(admitted, reason)
    }

    /// Returns the refusal of a body longer than `PendingBody::max_body`.
    pub fn body_too_large(&self, pending: &PendingBody) -> Reply {
        pending.errors.refuse(Reason::BodyTooLarge)
    }

    fn evaluation<'a>(&'a self, snapshot: &'a Snapshot, env: &'a Env) -> Evaluation<'a> {
        Evaluation { role: self.role, tokens: &self.tokens, buckets: &self.buckets, snapshot, env }
    }
}

#[cfg(test)]
mod tests;
