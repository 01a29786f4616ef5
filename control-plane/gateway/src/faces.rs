//! The protocol faces: codecs around one Call (I-2). No policy, limit, validation, ledger or audit here.

use std::sync::Arc;

use asp_edge::{Admitted, Caller};
use asp_snapshot::{Snapshot, VirtualServer};
use axum::body::Bytes;
use http::header::AUTHORIZATION;
use http::{HeaderMap, Method, Uri};
use secrecy::SecretString;

use crate::call::HeldMemory;
use crate::gateway::Gateway;

mod events;
pub mod login;
pub mod mcp;
mod memory;
pub mod registry;
pub mod rest;
pub mod unserved;
pub mod wellknown;

/// One admitted HTTP request of a known caller.
pub struct FaceRequest {
    pub gateway: Arc<Gateway>,
    pub snapshot: Arc<Snapshot>,
    pub server: Arc<VirtualServer>,
    pub caller: Arc<Caller>,
    pub admitted: Admitted,
    pub method: Method,
    pub uri: Uri,
    pub headers: HeaderMap,
    pub body: Bytes,
    /// What was taken for it, at first for its body alone; `None` where that is little.
    pub memory: Option<HeldMemory>,
}

impl FaceRequest {
    /// The caller's token, where something of its server is called with one that its issuer gives for it.
    fn subject(&self) -> Option<Arc<SecretString>> {
        if !self.server.exchanges {
            return None;
        }
        // The edge's code has taken it for one bearer token by now (RFC 6750 section 2.1).
        let (scheme, token) = self.headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| Arc::new(token.trim_start_matches(' ').into()))
    }
}
