//! What becomes of one request, at the edge and at the gateway.

use asp_edge::Reason;

/// Outcome of a request at the edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Passage {
    Refused(Reason),
    /// Forwarded unauthenticated, because only the gateway knows machines.
    Unjudged,
    Admitted,
}

/// What a caller may do with a primitive, by the gateway's entitlement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// The server does not exist for the caller.
    NoServer,
    /// The primitive does not exist for the caller.
    Hidden,
    LacksScopes,
    NeedsApproval,
    Allowed,
}

/// Outcome of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) edge: Passage,
    /// The gateway evaluates the request again, as if it had not passed the edge.
    pub(crate) gateway: Result<(), Reason>,
    /// Access to the server's primitives, also if the caller was refused for the server's sake: entitlement trusts no
    /// evaluation before it. `None` if nobody has proved who calls, or there is no such server.
    pub(crate) primitives: Option<[Access; 2]>,
}
