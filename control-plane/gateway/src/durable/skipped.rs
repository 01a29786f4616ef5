//! Calls of gateways that are gone which this gateway cannot run as things stand.
//!
//! Keeps true: what cannot run hides nothing that can, is read once in a while and is logged once; their number is bounded (I-4).

use std::collections::HashSet;
use std::time::Duration;

use asp_store::records::CallId;
use parking_lot::Mutex;
use tokio::time::Instant;

/// The time for which such a call is not looked at again: a runtime may come.
const FOR: Duration = Duration::from_secs(10);
/// Most calls that are remembered.
const MAX: usize = 4_096;

/// The calls that are skipped.
#[derive(Default)]
pub struct SkippedCalls {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    revision: u64,
    since: Option<Instant>,
    calls: HashSet<CallId>,
    logged: HashSet<CallId>,
}

impl SkippedCalls {
    /// Begins a look under the snapshot of this revision, and returns how many calls it skips.
    pub fn begin(&self, revision: u64) -> usize {
        let mut inner = self.inner.lock();
        if inner.revision != revision {
            *inner = Inner { revision, ..Inner::default() };
        }
        if inner.since.is_none_or(|since| since.elapsed() >= FOR) {
            inner.since = Some(Instant::now());
            inner.calls.clear();
        }
        inner.calls.len()
    }

    pub fn skips(&self, call: &CallId) -> bool {
        self.inner.lock().calls.contains(call)
    }

    /// Skips a call; true if that is to be logged.
    pub fn add(&self, call: CallId) -> bool {
        let mut inner = self.inner.lock();
        if inner.calls.len() < MAX {
            inner.calls.insert(call);
        }
        inner.logged.len() < MAX && inner.logged.insert(call)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_call_is_skipped_for_a_while_and_logged_once_for_each_snapshot() {
        let skipped = SkippedCalls::default();
        assert_eq!(skipped.begin(1), 0);
        assert!(skipped.add([1; 16]));
        assert_eq!((skipped.begin(1), skipped.skips(&[1; 16]), skipped.skips(&[2; 16])), (1, true, false));
        tokio::time::advance(FOR).await;
        assert_eq!((skipped.begin(1), skipped.skips(&[1; 16])), (0, false));
        assert!(!skipped.add([1; 16]), "it was logged");
        assert_eq!(skipped.begin(2), 0);
        assert!(skipped.add([1; 16]));
    }
}
