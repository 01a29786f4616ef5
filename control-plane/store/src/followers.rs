//! The gateways at which clients follow a call that another gateway runs.
//!
//! Owns: the [`Followers`] port. Refuses: to count clients, which each gateway does for its own. Keeps true: an entry that its
//! gateway does not renew ends by itself, so that a gateway that is gone follows nothing; a call has one entry for each gateway,
//! and none once its last one has ended (I-4).

use std::time::Duration;

use async_trait::async_trait;

use crate::records::{CallId, OwnerId};

mod memory;
#[cfg(any(test, feature = "testing"))]
pub mod suite;

pub use memory::MemoryFollowers;

#[derive(Debug, thiserror::Error)]
#[error("the followers of calls are not available: {0}")]
pub struct FollowersError(pub String);

/// Remembers at which gateways a call is followed.
#[async_trait]
pub trait Followers: Send + Sync {
    /// Notes that clients follow the call at this gateway, for `keep` from now on.
    async fn enter(&self, call: CallId, gateway: OwnerId, keep: Duration) -> Result<(), FollowersError>;

    /// Notes that no client follows the call at this gateway any more.
    async fn leave(&self, call: CallId, gateway: OwnerId) -> Result<(), FollowersError>;

    /// Returns whether clients follow the call at any gateway that has entered.
    async fn any(&self, call: CallId) -> Result<bool, FollowersError>;
}
