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

    /// Whether an org may write so many bytes more; they count from then on.
    pub(super) fn allows(&self, org: &str, bytes: usize) -> bool {
        let now = Instant::now();
        let mut written = self.written.lock();
        if !written.contains_key(org) {
            written.retain(|_, other| now < other.since + self.window);
            written.insert(org.to_owned(), Written { since: now, bytes: 0 });
        }
        let Some(own) = written.get_mut(org) else { return false };
        if now >= own.since + self.window {
            *own = Written { since: now, bytes: 0 };
        }
        let allows = own.bytes.saturating_add(bytes) <= MAX_BYTES;
        if allows {
            own.bytes += bytes;
        }
        allows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_org_fills_its_own_share_and_has_it_again_later() {
        let window = Duration::from_secs(180);
        let shares = EventShares::within(window);
        assert!(shares.allows("acme", MAX_BYTES));
        assert!(!shares.allows("acme", 1));
        assert!(shares.allows("other", MAX_BYTES) && !shares.allows("other", 1));
        tokio::time::advance(window).await;
        assert!(shares.allows("acme", 1));
        assert!(shares.allows("third", 1));
        assert_eq!(shares.written.lock().len(), 2, "what is past is forgotten");
    }
}
