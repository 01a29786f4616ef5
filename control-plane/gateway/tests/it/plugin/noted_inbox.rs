//! Inboxes of tests, which may be away and note what is asked of them.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use asp_store::inbox::{EntryName, Inbox, InboxError, InboxId, MemoryInbox, Put};
use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;

/// Inboxes that may be away, and note what was put into them.
#[derive(Default)]
pub(super) struct Noted {
    pub(super) inbox: MemoryInbox,
    pub(super) is_away: AtomicBool,
    /// Puts are never answered.
    pub(super) is_stuck: AtomicBool,
    /// Number of puts, with those that failed.
    pub(super) tried: AtomicUsize,
    pub(super) stored: Mutex<Vec<InboxId>>,
    /// Time for which the first entry was to be kept.
    pub(super) kept: Mutex<Option<Duration>>,
    /// Nothing is removed.
    pub(super) removes_nothing: AtomicBool,
    /// Number of removals, with those that failed.
    pub(super) removals: AtomicUsize,
}

impl Noted {
    fn check(&self) -> Result<(), InboxError> {
        match self.is_away.load(Ordering::SeqCst) {
            true => Err(InboxError::Unavailable("connection refused".into())),
            false => Ok(()),
        }
    }

    pub(super) fn has_stored(&self) -> bool {
        !self.stored.lock().is_empty()
    }

    /// Number of puts that were answered.
    pub(super) fn puts(&self) -> usize {
        self.stored.lock().len()
    }

    pub(super) async fn is_empty(&self) -> bool {
        let id = self.stored.lock()[0];
        self.inbox.read(id).await.unwrap().is_empty()
    }
}

#[async_trait]
impl Inbox for Noted {
    async fn put(
        &self,
        inbox: InboxId,
        name: EntryName,
        entry: Bytes,
        keep: Duration,
    ) -> Result<Put, InboxError> {
        self.tried.fetch_add(1, Ordering::SeqCst);
        if self.is_stuck.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        self.check()?;
        let put = self.inbox.put(inbox, name, entry, keep).await;
        self.kept.lock().get_or_insert(keep);
        self.stored.lock().push(inbox);
        put
    }

    async fn read(&self, inbox: InboxId) -> Result<Vec<(EntryName, Bytes)>, InboxError> {
        self.check()?;
        self.inbox.read(inbox).await
    }

    async fn remove(&self, inbox: InboxId, names: &[EntryName]) -> Result<(), InboxError> {
        self.removals.fetch_add(1, Ordering::SeqCst);
        self.check()?;
        if self.removes_nothing.load(Ordering::SeqCst) {
            return Err(InboxError::Unavailable("connection refused".into()));
        }
        self.inbox.remove(inbox, names).await
    }
}
