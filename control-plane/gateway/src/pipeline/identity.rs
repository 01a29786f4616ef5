//! Stage 1: who calls. The edge's code has evaluated the token already; what it passes on unjudged is evaluated here.
//!
//! Keeps true: a request the edge could not evaluate is never taken as trusted (I-1).

use std::sync::Arc;

use asp_edge::{Admitted, Caller, Reason};
use asp_proto::snapshot::AuthScheme;
use asp_snapshot::VirtualServer;

/// The user name of callers of a server whose scheme is `none` (development only).
pub const ANONYMOUS: &str = "anonymous";

/// Returns the caller of an admitted request, or the reason for a 401.
pub fn identify(admitted: &Admitted, server: &VirtualServer) -> Result<Arc<Caller>, Reason> {
    if let Some(caller) = &admitted.caller {
        return Ok(caller.clone());
    }
    if !admitted.unjudged && server.accepts(AuthScheme::None) {
        return Ok(Arc::new(anonymous()));
    }
    // Nobody was found by an opaque token, or a machine's key or certificate (`http::proof`).
    Err(Reason::TokenInvalid)
}

fn anonymous() -> Caller {
    Caller {
        org: String::new(),
        user: ANONYMOUS.into(),
        groups: Vec::new(),
        scopes: Vec::new(),
        client: String::new(),
        wcit: String::new(),
        digest: [0; 32],
        issuer: String::new(),
        issued_at: 0,
        expires_at: u64::MAX,
    }
}
