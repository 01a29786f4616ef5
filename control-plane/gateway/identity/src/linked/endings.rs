//! Running calls whose linked account was removed, by whichever gateway or control plane: the store is asked.
//!
//! Keeps true: only a removal ends a call. A link that expires ends none: its user has withdrawn nothing, and the call got the
//! token in time; its further requests for a token are refused.

use std::collections::HashMap;
use std::time::Duration;

use asp_store::linked_accounts::{LinkKey, LinkedAccountsError};
use tokio::time::Instant;

use super::{GivenLink, LinkedTokens};

/// Time before its expiry from which on a link that is gone counts as expired: the clocks of store and gateway run apart a little.
const DRIFT: Duration = Duration::from_secs(2);

impl LinkedTokens {
    /// Returns the active calls of the latest [`super::REMEMBERED`] whose link was removed since they got its token. A link that its
    /// user has replaced was not removed, and one that has expired neither. One query for each link of an active call, one at a time.
    pub async fn calls_without_link(
        &self,
        is_active: impl Fn([u8; 16]) -> bool + Send,
    ) -> Result<Vec<[u8; 16]>, LinkedAccountsError> {
        let given: Vec<GivenLink> =
            self.given.lock().iter().filter(|given| is_active(given.call)).cloned().collect();
        let mut known: HashMap<LinkKey, bool> = HashMap::new();
        let mut ended = Vec::new();
        for GivenLink { call, key, ends, .. } in given {
            let is_there = match known.get(&key) {
                Some(is_there) => *is_there,
                None => {
                    let is_there = self.store.link(&key).await?.is_some();
                    known.insert(key, is_there);
                    is_there
                }
            };
            if !is_there && !has_expired(ends, Instant::now()) && !ended.contains(&call) {
                ended.push(call);
            }
        }
        Ok(ended)
    }
}

/// Whether a link that is gone has ended by itself.
fn has_expired(ends: Instant, now: Instant) -> bool {
    ends.saturating_duration_since(now) <= DRIFT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_counts_as_expired_from_shortly_before_its_end() {
        let now = Instant::now();
        for (left, expired) in [(0, true), (1, true), (2, true), (3, false), (3_600, false)] {
            assert_eq!(has_expired(now + Duration::from_secs(left), now), expired, "{left} s");
        }
        assert!(has_expired(now, now + Duration::from_secs(60)));
    }
}
