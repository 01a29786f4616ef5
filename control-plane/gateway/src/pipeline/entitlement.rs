//! Stage 3: may this caller call this primitive over this protocol (ADR 10).
//!
//! Keeps true: list and call agree (I-10), because both ask [`visible`]; a missing scope is different: the
//! primitive is listed and the call is answered with a challenge.

use asp_edge::Caller;
use asp_proto::snapshot::Protocol;

use crate::call::outcome::Refusal;
use asp_snapshot::policy::Ruling;
use asp_snapshot::{Entry, Live, ServerView};

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

/// Whether `caller` can see `entry` on `server` over `protocol`.
pub fn visible(live: &Live, server: &ServerView, caller: &Caller, entry: &Entry, protocol: Protocol) -> bool {
    hidden(live, server, caller, entry, protocol).is_none()
}

/// What of `entry` on `server` is hidden from `caller`; `None` when it is visible.
pub fn hidden(
    live: &Live,
    server: &ServerView,
    caller: &Caller,
    entry: &Entry,
    protocol: Protocol,
) -> Option<Hidden> {
    if !exposed(live, server, caller, protocol) {
        return Some(Hidden::Server);
    }
    let denied = matches!(live.policy.rule(caller, &entry.primitive, protocol), Ruling::Denied(_));
    denied.then_some(Hidden::Primitive)
}

/// Rules on a call.
pub fn entitle(
    live: &Live,
    server: &ServerView,
    caller: &Caller,
    entry: &Entry,
    protocol: Protocol,
) -> Result<Entitled, Refusal> {
    if !exposed(live, server, caller, protocol) {
        return Err(Refusal::Unknown);
    }
    let needs_approval = match live.policy.rule(caller, &entry.primitive, protocol) {
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

fn exposed(live: &Live, server: &ServerView, caller: &Caller, protocol: Protocol) -> bool {
    server.speaks(protocol) && live.edge.exposed(&server.message.name, &caller.org, protocol)
}
