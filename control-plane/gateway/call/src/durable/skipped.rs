//! Calls of lost gateways that this gateway cannot run at present.
//!
//! Keeps true: a call that cannot run does not hide one that can; it is read from time to time and logged once; the
//! time since when no gateway has taken it is known; the number of calls is bounded (I-4).

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use asp_store::records::{CallId, Orphan};
use parking_lot::Mutex;
use tokio::time::Instant;

/// Time for which such a call is not checked again: a runtime may start.
const FOR: Duration = Duration::from_secs(10);
/// Maximum number of calls that are remembered.
const MAX: usize = 32_768;

/// The calls that are skipped.
#[derive(Default)]
pub struct SkippedCalls {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    revision: u64,
    calls: HashMap<CallId, SkippedCall>,
}

#[derive(Clone, Copy)]
struct SkippedCall {
    found: Instant,
    /// Time of the last check under the current snapshot.
    checked: Option<Instant>,
}

impl SkippedCalls {
    /// Starts a scan under the snapshot of this revision, and returns the number of calls that are remembered.
    pub fn begin(&self, revision: u64) -> usize {
        let mut inner = self.inner.lock();
        if inner.revision != revision {
            inner.revision = revision;
            inner.calls.values_mut().for_each(|call| call.checked = None);
        }
        inner.calls.len()
    }

    /// Returns the orphans to check, those that were never checked first. If `are_all`, the orphans are complete, and
    /// other calls are forgotten.
    pub fn due(&self, mut orphans: Vec<Orphan>, are_all: bool) -> Vec<Orphan> {
        let mut inner = self.inner.lock();
        if are_all {
            let there: HashSet<CallId> = orphans.iter().map(|orphan| orphan.call).collect();
            inner.calls.retain(|call, _| there.contains(call));
        }
        let rests = |orphan: &Orphan| {
            let checked = inner.calls.get(&orphan.call).and_then(|call| call.checked);
            checked.is_some_and(|checked| checked.elapsed() < FOR)
        };
        orphans.retain(|orphan| !rests(orphan));
        // All gateways find the same calls: each starts with another one.
        orphans.sort_by_cached_key(|orphan| (inner.calls.contains_key(&orphan.call), rand::random::<u64>()));
        orphans
    }

    /// Skips a call for a while. Returns the time since it was first skipped; `None` if that is now.
    pub fn add(&self, call: CallId) -> Option<Duration> {
        let now = Instant::now();
        let mut inner = self.inner.lock();
        if let Some(known) = inner.calls.get_mut(&call) {
            known.checked = Some(now);
            return Some(now.duration_since(known.found));
        }
        if inner.calls.len() >= MAX {
            return Some(Duration::ZERO);
        }
        inner.calls.insert(call, SkippedCall { found: now, checked: Some(now) });
        None
    }
}

#[cfg(test)]
mod tests {
    use asp_store::records::OwnerId;

    use super::*;

    fn orphan(n: u8) -> Orphan {
        Orphan { call: [n; 16], owner: OwnerId([9; 16]) }
    }

    fn due(skipped: &SkippedCalls, orphans: &[u8], are_all: bool) -> Vec<u8> {
        let orphans = orphans.iter().map(|n| orphan(*n)).collect();
        skipped.due(orphans, are_all).iter().map(|orphan| orphan.call[0]).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_is_skipped_for_a_while_and_it_is_known_since_when() {
        let skipped = SkippedCalls::default();
        assert_eq!(skipped.begin(1), 0);
        assert_eq!(skipped.add([1; 16]), None, "it is new");
        assert_eq!(skipped.begin(1), 1);
        assert_eq!(due(&skipped, &[1, 2], true), [2]);
        tokio::time::advance(FOR).await;
        for _ in 0..20 {
            assert_eq!(due(&skipped, &[1, 2], true), [2, 1], "those that were never looked at come first");
        }
        assert_eq!(skipped.add([1; 16]), Some(FOR));
        assert_eq!(due(&skipped, &[1], true), Vec::<u8>::new());
        skipped.begin(2);
        assert_eq!(due(&skipped, &[1], true), [1], "another snapshot may have it");
        assert_eq!(skipped.add([1; 16]), Some(FOR), "and it was found when it was found");
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_waits_no_more_is_forgotten_and_those_that_are_remembered_are_bounded() {
        let skipped = SkippedCalls::default();
        skipped.add([1; 16]);
        due(&skipped, &[2], false);
        assert_eq!(skipped.begin(1), 1, "there may be more");
        due(&skipped, &[2], true);
        assert_eq!(skipped.begin(1), 0);
        for n in 0..MAX {
            assert_eq!(skipped.add((n as u128).to_be_bytes()), None);
        }
        assert_eq!(skipped.add([255; 16]), Some(Duration::ZERO), "it is neither logged nor counted");
        assert_eq!(skipped.begin(1), MAX);
    }
}
