//! Gateways at which clients follow a call that another gateway runs.
//!
//! Owns: the [`Followers`] port. Refuses: to count clients, which each gateway does for its own. Keeps true: an entry
//! that its gateway does not renew expires, so that a stopped gateway follows nothing; a call has one entry per
//! gateway, and none once the last one has left (I-4).

use std::time::Duration;

use async_trait::async_trait;

use crate::records::{CallId, OwnerId};

#[cfg(any(test, feature = "testing"))]
mod memory;
#[cfg(any(test, feature = "testing"))]
pub mod suite;

#[cfg(any(test, feature = "testing"))]
pub use memory::MemoryFollowers;

#[derive(Debug, thiserror::Error)]
#[error("the followers of calls are not available: {0}")]
pub struct FollowersError(pub String);

/// Registry of the gateways at which calls are followed.
#[async_trait]
pub trait Followers: Send + Sync {
    /// Records that clients follow the call at this gateway, for `keep` from now on.
    async fn enter(&self, call: CallId, gateway: OwnerId, keep: Duration) -> Result<(), FollowersError>;

    /// Records that no client follows the call at this gateway any more.
    async fn leave(&self, call: CallId, gateway: OwnerId) -> Result<(), FollowersError>;

    /// Returns whether clients follow the call at any gateway that has entered.
    async fn any(&self, call: CallId) -> Result<bool, FollowersError>;
}
