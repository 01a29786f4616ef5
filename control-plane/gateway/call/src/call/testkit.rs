//! Callers for unit tests.

use asp_edge::Caller;

/// Returns a user of the org `acme`, with the token `t` of the issuer `dev`, at the client `cli`.
pub(crate) fn caller(user: &str) -> Caller {
    Caller {
        org: "acme".into(),
        user: user.into(),
        groups: Vec::new(),
        scopes: Vec::new(),
        client: "cli".into(),
        wcit: "t".into(),
        digest: [0; 32],
        issuer: "dev".into(),
        issued_at: 0,
        expires_at: 0,
    }
}
