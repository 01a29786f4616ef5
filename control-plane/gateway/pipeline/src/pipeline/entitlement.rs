//! Stage 3: decides whether this caller may call this primitive over this protocol (ADR 10).
//!
//! Keeps true: list and call agree (I-10), because both use the same policy; a missing scope is different: the
//! primitive is listed and the call is answered with a challenge.

use asp_edge::Caller;
use asp_proto::snapshot::Protocol;
use asp_snapshot::policy::{Evaluation, Ruling};
use asp_snapshot::{ListedPrimitive, Snapshot, VirtualServer};

use asp_call::call::outcome::Refusal;

/// Decision of the stage on a call that may continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entitlement {
    /// Whether a human must approve before execution.
    pub needs_approval: bool,
}

/// Part that is hidden from a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HiddenPart {
    /// The whole server, over this protocol.
    Server,
    Primitive,
}

/// Visibility of one server to one caller over one protocol: the caller is matched to the policy once, for any number
/// of primitives.
pub struct ServerView<'a> {
    /// `None` if the server itself is hidden.
    policy: Option<Evaluation<'a>>,
}

impl ServerView<'_> {
    pub fn of<'a>(
        snapshot: &'a Snapshot,
        server: &VirtualServer,
        caller: &Caller,
        protocol: Protocol,
    ) -> ServerView<'a> {
        let is_exposed = exposed(snapshot, server, caller, protocol);
        ServerView { policy: is_exposed.then(|| snapshot.policy.evaluation(caller, protocol)) }
    }

    /// Returns which entries of its org's policy match the caller: callers of one org with the same matches see the
    /// same of a server. `None` if the server itself is hidden.
    pub fn targets(&self) -> Option<Vec<usize>> {
        self.policy.as_ref().map(Evaluation::targets)
    }

    /// Whether the caller can see `entry`.
    pub fn shows(&mut self, entry: &ListedPrimitive) -> bool {
        self.hidden(entry).is_none()
    }

    /// Returns the part of `entry` that is hidden; `None` if it is visible.
    pub fn hidden(&mut self, entry: &ListedPrimitive) -> Option<HiddenPart> {
        let Some(policy) = &mut self.policy else { return Some(HiddenPart::Server) };
        matches!(policy.rule(&entry.primitive), Ruling::Denied(_)).then_some(HiddenPart::Primitive)
    }
}

/// Decides on a call.
pub fn entitle(
    snapshot: &Snapshot,
    server: &VirtualServer,
    caller: &Caller,
    entry: &ListedPrimitive,
    protocol: Protocol,
) -> Result<Entitlement, Refusal> {
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
    Ok(Entitlement { needs_approval })
}

fn exposed(snapshot: &Snapshot, server: &VirtualServer, caller: &Caller, protocol: Protocol) -> bool {
    server.speaks(protocol) && snapshot.edge.exposed(&server.message.name, &caller.org, protocol)
}
