//! Shared state of a legacy session that its sealed id does not contain: whether it has ended, its client's settings,
//! and its gateways.
//!
//! Owns: the [`SessionDirectory`] port. Refuses: to decide who may use a session, which the sealed id proves. Keeps
//! true: an ended session stays ended for as long as its id could be used; nothing is kept for longer than that; the
//! state of a session is bounded (I-4).

use std::time::Duration;

use async_trait::async_trait;

use crate::records::OwnerId;

#[cfg(any(test, feature = "testing"))]
mod memory;
#[cfg(any(test, feature = "testing"))]
pub mod suite;

#[cfg(any(test, feature = "testing"))]
pub use memory::MemoryDirectory;

/// Id of a session, within the sealed one.
pub type SessionId = [u8; 16];

/// Maximum number of gateways kept per session, the latest ones; a session moves when a gateway starts or ends.
pub const MAX_GATEWAYS: usize = 8;

/// State of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionEntry {
    Open(OpenSession),
    /// Ended by its client.
    Ended,
}

/// State of a session that has not ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenSession {
    /// Log level set by the client, as numbered by the gateway.
    pub log_level: Option<u8>,
    /// Other gateways that may still serve the session, at most [`MAX_GATEWAYS`].
    pub gateways: Vec<OwnerId>,
}

#[derive(Debug, thiserror::Error)]
#[error("the directory of sessions is not available: {0}")]
pub struct DirectoryError(pub String);

/// Result of an operation on the directory.
pub type Result<T, E = DirectoryError> = std::result::Result<T, E>;

/// Directory of sessions. `left` is the remaining lifetime of the session's id.
#[async_trait]
pub trait SessionDirectory: Send + Sync {
    /// Records that `gateway` serves the session from now on, too.
    async fn enter(&self, session: SessionId, gateway: OwnerId, left: Duration) -> Result<SessionEntry>;

    /// Stores the log level that the client set; no effect once the session has ended.
    async fn set_log_level(&self, session: SessionId, level: u8, left: Duration) -> Result<()>;

    /// Ends the session; returns the gateways that served it.
    async fn end(&self, session: SessionId, left: Duration) -> Result<Vec<OwnerId>>;
}
