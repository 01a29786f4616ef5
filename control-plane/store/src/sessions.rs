//! What the gateways of a cluster must know of a legacy session beside its sealed id, which says the rest: whether it has
//! ended, what its client set, and at which gateways it is.
//!
//! Owns: the [`SessionDirectory`] port. Refuses: who may use a session, which the sealed id proves. Keeps true: a session that
//! has ended stays so for as long as its id could be used; nothing is kept for longer than that; what is kept of a session
//! is bounded (I-4).

use std::time::Duration;

use async_trait::async_trait;

use crate::records::OwnerId;

mod memory;
#[cfg(any(test, feature = "testing"))]
pub mod suite;

pub use memory::MemoryDirectory;

/// A session's own id, within the sealed one.
pub type SessionId = [u8; 16];

/// Most gateways of a session that are remembered, those that came to it last: it moves when one of them ends or is new.
pub const MAX_GATEWAYS: usize = 8;

/// What is kept of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    Open(Open),
    /// Its client has ended it.
    Ended,
}

/// What is kept of a session that has not ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Open {
    /// The level of log messages that its client set, as the gateway numbers them.
    pub log_level: Option<u8>,
    /// The other gateways that it was at and may still be at, at most [`MAX_GATEWAYS`].
    pub gateways: Vec<OwnerId>,
}

#[derive(Debug, thiserror::Error)]
#[error("the directory of sessions is not available: {0}")]
pub struct DirectoryError(pub String);

/// Keeps what is known of sessions. `left` is for how much longer the session's id could be used.
#[async_trait]
pub trait SessionDirectory: Send + Sync {
    /// The session is at `gateway` from now on, too.
    async fn enter(
        &self,
        session: SessionId,
        gateway: OwnerId,
        left: Duration,
    ) -> Result<Entry, DirectoryError>;

    /// Its client set the level of log messages. Nothing comes of it once it has ended.
    async fn set_log_level(
        &self,
        session: SessionId,
        level: u8,
        left: Duration,
    ) -> Result<(), DirectoryError>;

    /// It has ended; at which gateways it was.
    async fn end(&self, session: SessionId, left: Duration) -> Result<Vec<OwnerId>, DirectoryError>;
}
