//! How much of what gateways share for events one org may fill from here (I-4).

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Most bytes that calls of one org write within the time for which they are kept; at most twice as much is there.
const MAX_BYTES: usize = 64 << 20;

/// What each org has written lately.
pub(super) struct EventShares {
    window: Duration,
    written: Mutex<HashMap<String, Written>>,
}

struct Written {
    since: Instant,
    bytes: usize,
}

impl EventShares {
    pub(super) fn within(window: Duration) -> EventShares {
        EventShares { window, written: Mutex::default() }
    }

    /// Takes so many bytes of what an org may write; `Err`: it may write no more before that moment.
    pub(super) fn take(&self, org: &str, bytes: usize) -> Result<(), Instant> {
        let now = Instant::now();
        let mut written = self.written.lock();
        if !written.contains_key(org) {
            written.retain(|_, other| now < other.since + self.window);
        }
        let own = written.entry(org.to_owned()).or_insert(Written { since: now, bytes: 0 });
        if now >= own.since + self.window {
            *own = Written { since: now, bytes: 0 };
        }
        if own.bytes.saturating_add(bytes) > MAX_BYTES {
            return Err(own.since + self.window);
        }
        own.bytes += bytes;
        Ok(())
    }

    /// Gives back what was taken and not written.
    pub(super) fn give_back(&self, org: &str, bytes: usize) {
        if let Some(own) = self.written.lock().get_mut(org) {
            own.bytes = own.bytes.saturating_sub(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_org_fills_its_own_share_and_has_it_again_later() {
        let window = Duration::from_secs(180);
        let shares = EventShares::within(window);
        let free_at = Instant::now() + window;
        assert_eq!(shares.take("acme", MAX_BYTES), Ok(()));
        assert_eq!(shares.take("acme", 1), Err(free_at));
        assert_eq!((shares.take("other", MAX_BYTES), shares.take("other", 1)), (Ok(()), Err(free_at)));
        tokio::time::advance(window).await;
        assert_eq!(shares.take("acme", 1), Ok(()));
        assert_eq!(shares.take("third", 1), Ok(()));
        assert_eq!(shares.written.lock().len(), 2, "what is past is forgotten");
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_store_did_not_take_counts_for_nothing() {
        let shares = EventShares::within(Duration::from_secs(180));
        for _ in 0..100 {
            assert_eq!(shares.take("acme", MAX_BYTES), Ok(()), "as often as the store is asked in vain");
            shares.give_back("acme", MAX_BYTES);
        }
        assert_eq!(shares.take("acme", MAX_BYTES), Ok(()));
        assert!(shares.take("acme", 1).is_err());
    }
}
