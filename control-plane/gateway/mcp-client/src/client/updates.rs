//! Resources that a server reported as changed in one session, until they are taken.
//!
//! Bound: URIs by number and length; beyond it any resource may have changed.

use std::collections::HashSet;

use parking_lot::Mutex;
use tokio::sync::Notify;

/// Maximum number of URIs that wait.
const MAX_WAITING: usize = 1024;
/// Maximum length of a URI in bytes; no subscription here has a longer one.
const MAX_URI: usize = 48 << 10;

/// Changes reported since they were last taken.
#[derive(Default)]
pub struct Updates {
    waiting: Mutex<PendingUpdates>,
    said: Notify,
}

#[derive(Default)]
struct PendingUpdates {
    uris: HashSet<String>,
    is_any: bool,
}

/// Changed resources.
#[derive(Debug, PartialEq, Eq)]
pub enum ResourceChanges {
    These(HashSet<String>),
    /// Any resource may have changed.
    Any,
}

impl Updates {
    pub(super) fn hear(&self, uri: &str) {
        if uri.len() > MAX_URI {
            return;
        }
        let mut waiting = self.waiting.lock();
        if waiting.uris.len() < MAX_WAITING {
            waiting.uris.insert(uri.to_owned());
        } else {
            waiting.is_any = true;
        }
        drop(waiting);
        self.said.notify_one();
    }

    /// Records that a change may have been missed.
    pub(super) fn miss(&self) {
        self.waiting.lock().is_any = true;
        self.said.notify_one();
    }

    /// Waits for the next changes; for a single reader.
    pub async fn next(&self) -> ResourceChanges {
        loop {
            let PendingUpdates { uris, is_any } = std::mem::take(&mut *self.waiting.lock());
            if is_any {
                return ResourceChanges::Any;
            }
            if !uris.is_empty() {
                return ResourceChanges::These(uris);
            }
            self.said.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_too_much_to_be_kept_may_be_anything() {
        let updates = Updates::default();
        updates.hear("a");
        updates.hear("a");
        updates.hear(&"x".repeat(MAX_URI + 1));
        assert_eq!(updates.next().await, ResourceChanges::These(HashSet::from(["a".to_owned()])));
        (0..=MAX_WAITING).for_each(|number| updates.hear(&number.to_string()));
        assert_eq!(updates.next().await, ResourceChanges::Any);
    }
}
