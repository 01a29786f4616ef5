//! Running calls whose linked account was removed, by whichever gateway or control plane: the store is asked.

use std::collections::HashMap;

use asp_store::linked_accounts::{LinkKey, LinkedAccountsError};

use super::{GivenLink, LinkedTokens};

impl LinkedTokens {
    /// Returns the active calls of the latest [`super::REMEMBERED`] whose link has ended since they got its token. A link that its
    /// user has replaced has not ended. One query for each link of an active call, one at a time.
    pub async fn calls_without_link(
        &self,
        is_active: impl Fn([u8; 16]) -> bool + Send,
    ) -> Result<Vec<[u8; 16]>, LinkedAccountsError> {
        let given: Vec<GivenLink> =
            self.given.lock().iter().filter(|given| is_active(given.call)).cloned().collect();
        let mut known: HashMap<LinkKey, bool> = HashMap::new();
        let mut ended = Vec::new();
        for GivenLink { call, key, .. } in given {
            let is_there = match known.get(&key) {
                Some(is_there) => *is_there,
                None => {
                    let is_there = self.store.link(&key).await?.is_some();
                    known.insert(key, is_there);
                    is_there
                }
            };
            if !is_there && !ended.contains(&call) {
                ended.push(call);
            }
        }
        Ok(ended)
    }
}
