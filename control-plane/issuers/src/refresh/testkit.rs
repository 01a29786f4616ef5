//! A wait for fetches, for tests.

use std::sync::Arc;

use super::{FetchState, Keeper};

impl Keeper {
    /// Waits until all due issuers have been fetched.
    pub async fn wait_until_fetched(&self) {
        // Lets the loop wake and its tasks take their locks.
        for _ in 0..4 {
            tokio::task::yield_now().await;
        }
        let asked: Vec<Arc<FetchState>> = self.known.lock().values().cloned().collect();
        for asked in asked {
            drop(asked.fetching.lock().await);
        }
    }
}
