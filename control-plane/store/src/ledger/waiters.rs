//! Who waits for a key in this process, so that the end of its holder wakes them and nobody else.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::ledger::LedgerKey;

/// By key; an entry lives as long as somebody waits, so that there are no more than running calls.
#[derive(Default)]
pub(crate) struct Waiters {
    keys: Mutex<HashMap<LedgerKey, Arc<Notify>>>,
}

/// One that waits.
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

    /// The holder of the key has ended here.
    pub(crate) fn wake(&self, key: LedgerKey) {
        if let Some(ended) = self.keys.lock().get(&key) {
            ended.notify_waiters();
        }
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        let mut keys = self.waiters.keys.lock();
        // The table's own and this one: nobody else waits.
        if Arc::strong_count(&self.ended) == 2 {
            keys.remove(&self.key);
        }
    }
}
