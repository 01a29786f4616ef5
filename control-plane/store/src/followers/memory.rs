//! Followers of one process's calls, for tests only.

use std::collections::HashMap;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

use super::{Followers, FollowersError};
use crate::records::{CallId, OwnerId};

/// Followers kept until the process ends.
#[derive(Default)]
pub struct MemoryFollowers {
    /// Expiry of each entry.
    entries: Mutex<HashMap<(CallId, OwnerId), Instant>>,
}

impl MemoryFollowers {
    /// Removes expired entries and returns the others.
    fn entries(&self) -> MutexGuard<'_, HashMap<(CallId, OwnerId), Instant>> {
        let now = Instant::now();
        let mut entries = self.entries.lock();
        entries.retain(|_, until| *until > now);
        entries
    }
}

#[async_trait]
impl Followers for MemoryFollowers {
    async fn enter(&self, call: CallId, gateway: OwnerId, keep: Duration) -> Result<(), FollowersError> {
        self.entries().insert((call, gateway), Instant::now() + keep);
        Ok(())
    }

    async fn leave(&self, call: CallId, gateway: OwnerId) -> Result<(), FollowersError> {
        self.entries().remove(&(call, gateway));
        Ok(())
    }

    async fn any(&self, call: CallId) -> Result<bool, FollowersError> {
        Ok(self.entries().keys().any(|(followed, _)| *followed == call))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn does_what_every_backend_must() {
        super::super::suite::run(&MemoryFollowers::default()).await;
    }
}
