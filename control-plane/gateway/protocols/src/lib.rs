//! The protocols: codecs around one Call (I-2). No policy, limit, validation, ledger or audit here.

use std::sync::Arc;

use asp_call::call::HeldMemory;
use asp_edge::{Caller, RequestFacts};
use asp_platform::secret::Secret;
use asp_snapshot::{Snapshot, VirtualServer};
use axum::body::Bytes;
use http::header::AUTHORIZATION;
use http::{HeaderMap, Method, Uri};

mod events;
pub mod login;
pub mod mcp;
mod memory;
pub mod registry;
pub mod replica;
pub mod request_state;
pub mod rest;
pub mod unserved;
pub mod wellknown;

use replica::Replica;

/// One admitted HTTP request from an authenticated caller.
pub struct ProtocolRequest {
    pub gateway: Arc<Replica>,
    pub snapshot: Arc<Snapshot>,
    pub server: Arc<VirtualServer>,
    pub caller: Arc<Caller>,
    pub admitted: RequestFacts,
    pub method: Method,
    pub uri: Uri,
    pub headers: HeaderMap,
    pub body: Bytes,
    /// Memory reserved for the request, at first for its body alone; `None` if it needs too little to be counted.
    pub memory: Option<HeldMemory>,
}

impl ProtocolRequest {
    /// Returns the caller's token if a backend of the server is called with a token exchanged for it.
    fn subject(&self) -> Option<Arc<Secret>> {
        if !self.server.exchanges {
            return None;
        }
        // The edge's code has already accepted it as a single bearer token (RFC 6750 section 2.1).
        let (scheme, token) = self.headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| Arc::new(token.trim_start_matches(' ').into()))
    }
}
