//! The protocol faces: codecs around one Call (I-2). No policy, limit, validation, ledger or audit here.

use std::sync::Arc;

use asp_edge::{Admitted, Caller};
use asp_snapshot::{Snapshot, VirtualServer};
use axum::body::Bytes;
use http::{HeaderMap, Method, Uri};

use crate::gateway::Gateway;

mod events;
pub mod login;
pub mod mcp;
pub mod registry;
pub mod rest;
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
}
