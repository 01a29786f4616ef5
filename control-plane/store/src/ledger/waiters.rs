//! Calls of this process that wait for a key, so that the end of its holder wakes only them.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::ledger::LedgerKey;

/// Notifications by key. An entry lives as long as a call waits, so there are no more than running calls.
#[derive(Default)]
pub(crate) struct Waiters {
    keys: Mutex<HashMap<LedgerKey, Arc<Notify>>>,
}

/// A call that waits for a key.
pub(crate) struct Waiter<'a> {
    waiters: &'a Waiters,
    key: LedgerKey,
    pub ended: Arc<Notify>,
}

impl Waiters {
    pub(crate) fn of(&self, key: LedgerKey) -> Waiter<'_> {
        let ended = self.keys.lock().entry(key).or_default().clone();
        Waiter { waiters: self, key, ended }
    }

    /// Wakes the calls that wait for a key whose holder has ended in this process.
    pub(crate) fn wake(&self, key: LedgerKey) {
        if let Some(ended) = self.keys.lock().get(&key) {
            ended.notify_waiters();
        }
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        let mut keys = self.waiters.keys.lock();
        // One reference in the table and this one: no other call waits.
        if Arc::strong_count(&self.ended) == 2 {
            keys.remove(&self.key);
        }
    }
}
