//! Stage 3: may this caller call this primitive over this protocol (ADR 10).
//!
//! Keeps true: list and call agree (I-10), because both ask the same policy; a missing scope is different: the
//! primitive is listed and the call is answered with a challenge.

use asp_edge::Caller;
use asp_proto::snapshot::Protocol;
use asp_snapshot::policy::{Evaluation, Ruling};
use asp_snapshot::{ListedPrimitive, Snapshot, VirtualServer};

use crate::call::outcome::Refusal;

/// What the stage says of a call that may go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entitled {
    /// A human must approve before execution.
    pub needs_approval: bool,
}

/// What a caller cannot see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hidden {
    /// The whole server, over this protocol.
    Server,
    Primitive,
}

/// What one caller can see of one server over one protocol: the caller is matched to policy once, for however many
/// primitives are asked.
pub struct View<'a> {
    /// `None` where the server itself is hidden.
    policy: Option<Evaluation<'a>>,
}

impl View<'_> {
    pub fn of<'a>(
        snapshot: &'a Snapshot,
        server: &VirtualServer,
        caller: &Caller,
        protocol: Protocol,
    ) -> View<'a> {
        let is_exposed = exposed(snapshot, server, caller, protocol);
        View { policy: is_exposed.then(|| snapshot.policy.evaluation(caller, protocol)) }
    }

    /// Which of its org's policy names the caller: callers of one org in whom that is the same see the same of a server.
    /// `None` where the server itself is hidden.
    pub fn targets(&self) -> Option<Vec<usize>> {
        self.policy.as_ref().map(Evaluation::targets)
    }

    /// Whether the caller can see `entry`.
    pub fn shows(&mut self, entry: &ListedPrimitive) -> bool {
        self.hidden(entry).is_none()
    }

    /// What of `entry` is hidden; `None` when it is visible.
    pub fn hidden(&mut self, entry: &ListedPrimitive) -> Option<Hidden> {
        let Some(policy) = &mut self.policy else { return Some(Hidden::Server) };
        matches!(policy.rule(&entry.primitive), Ruling::Denied(_)).then_some(Hidden::Primitive)
    }
}

/// Rules on a call.
pub fn entitle(
    snapshot: &Snapshot,
    server: &VirtualServer,
    caller: &Caller,
    entry: &ListedPrimitive,
    protocol: Protocol,
) -> Result<Entitled, Refusal> {
    if !exposed(snapshot, server, caller, protocol) {
        return Err(Refusal::Unknown);
    }
    let needs_approval = match snapshot.policy.rule(caller, &entry.primitive, protocol) {
        Ruling::Denied(_) => return Err(Refusal::Unknown),
        Ruling::Allowed(_) => false,
        Ruling::NeedsApproval => true,
    };
    let missing = entry.primitive.scopes.iter().any(|scope| !caller.scopes.contains(scope));
    if missing {
        // All scopes of the operation in one challenge, so that one step-up is enough.
        return Err(Refusal::MissingScopes { required: entry.primitive.scopes.clone() });
    }
    Ok(Entitled { needs_approval })
}

fn exposed(snapshot: &Snapshot, server: &VirtualServer, caller: &Caller, protocol: Protocol) -> bool {
    server.speaks(protocol) && snapshot.edge.exposed(&server.message.name, &caller.org, protocol)
}
