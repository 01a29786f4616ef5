//! Stage 1: the caller. The edge's code has evaluated the token already; what it forwards unverified is evaluated here.
//!
//! Keeps true: a request that the edge could not evaluate is never trusted (I-1).

use std::sync::Arc;

use asp_edge::{Caller, Reason, RequestFacts};
use asp_proto::snapshot::AuthScheme;
use asp_snapshot::{Snapshot, VirtualServer};

/// The user name of callers of a server whose scheme is `none` (development only).
pub const ANONYMOUS: &str = "anonymous";

/// Credential of a machine.
#[derive(Clone, Copy)]
pub enum MachineCredential<'a> {
    /// A key, sent as a bearer credential.
    Key(&'a str),
    /// A certificate that the client presented to an Envoy of the platform.
    Certificate {
        /// SHA-256 of its DER.
        fingerprint: [u8; 32],
        /// Its only URI.
        uri: Option<&'a str>,
        all_uris: &'a [String],
    },
}

/// Returns the machine of a credential, if the server accepts credentials of its scheme. The edge's code has yet to
/// evaluate the machine as the caller of the request ([`asp_edge::Edge::admit`]).
pub fn machine(
    snapshot: &Snapshot,
    server: &VirtualServer,
    credential: MachineCredential<'_>,
) -> Option<Caller> {
    match credential {
        MachineCredential::Key(key) if server.accepts(AuthScheme::Psk) => snapshot.machines.caller(key),
        MachineCredential::Certificate { fingerprint, uri, all_uris } if server.accepts(AuthScheme::Mtls) => {
            snapshot.machines.caller_with(fingerprint, uri, all_uris)
        }
        MachineCredential::Key(_) | MachineCredential::Certificate { .. } => None,
    }
}

/// Returns the caller of an admitted request, or the reason for a 401.
pub fn identify(admitted: &RequestFacts, server: &VirtualServer) -> Result<Arc<Caller>, Reason> {
    if let Some(caller) = &admitted.caller {
        return Ok(caller.clone());
    }
    if !admitted.unverified && server.accepts(AuthScheme::None) {
        return Ok(Arc::new(anonymous()));
    }
    // An opaque token, or a machine's key or certificate, identified no caller (`http::proof`).
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
