//! Inboxes of one process, for tests only.

use std::collections::HashMap;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

use super::{EntryName, Inbox, InboxError, InboxId, MAX_BYTES, MAX_ENTRIES, MAX_ORG_BYTES, Put, check};

/// Inboxes kept until the process ends.
pub struct MemoryInbox {
    org_bytes: usize,
    rows: Mutex<HashMap<InboxId, InboxRow>>,
}

struct InboxRow {
    entries: HashMap<EntryName, Bytes>,
    until: Instant,
}

impl InboxRow {
    fn bytes(&self) -> usize {
        self.entries.values().map(Bytes::len).sum()
    }
}

impl Default for MemoryInbox {
    fn default() -> MemoryInbox {
        MemoryInbox::with_org_bytes(MAX_ORG_BYTES)
    }
}

impl MemoryInbox {
    /// Creates inboxes with another limit for each org.
    pub fn with_org_bytes(org_bytes: usize) -> MemoryInbox {
        MemoryInbox { org_bytes, rows: Mutex::default() }
    }

    /// Removes expired inboxes and returns the others.
    fn rows(&self) -> MutexGuard<'_, HashMap<InboxId, InboxRow>> {
        let now = Instant::now();
        let mut rows = self.rows.lock();
        rows.retain(|_, row| row.until > now);
        rows
    }
}

#[async_trait]
impl Inbox for MemoryInbox {
    async fn put(
        &self,
        inbox: InboxId,
        name: EntryName,
        entry: Bytes,
        keep: Duration,
    ) -> Result<Put, InboxError> {
        check(&entry)?;
        let until = Instant::now() + keep;
        let mut rows = self.rows();
        let of_org: usize =
            rows.iter().filter(|(id, _)| id.org == inbox.org).map(|(_, row)| row.bytes()).sum();
        let row = rows.get(&inbox);
        if row.is_some_and(|row| row.entries.contains_key(&name)) {
            return Ok(Put::Exists);
        }
        let entries = row.map_or(0, |row| row.entries.len()) + 1;
        let bytes = row.map_or(0, InboxRow::bytes) + entry.len();
        if entries > MAX_ENTRIES || bytes > MAX_BYTES || of_org + entry.len() > self.org_bytes {
            return Ok(Put::Full);
        }
        let row = rows.entry(inbox).or_insert_with(|| InboxRow { entries: HashMap::new(), until });
        row.entries.insert(name, entry);
        row.until = row.until.max(until);
        Ok(Put::Stored)
    }

    async fn read(&self, inbox: InboxId) -> Result<Vec<(EntryName, Bytes)>, InboxError> {
        let rows = self.rows();
        let entries = rows.get(&inbox).into_iter().flat_map(|row| &row.entries);
        Ok(entries.map(|(name, entry)| (*name, entry.clone())).collect())
    }

    async fn remove(&self, inbox: InboxId, names: &[EntryName]) -> Result<(), InboxError> {
        if let Some(row) = self.rows().get_mut(&inbox) {
            row.entries.retain(|name, _| !names.contains(name));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::suite;
    use super::*;

    #[tokio::test]
    async fn does_what_every_inbox_must() {
        suite::run(&MemoryInbox::default()).await;
        suite::keeps_to_the_bytes_of_an_org(&MemoryInbox::with_org_bytes(suite::FEW)).await;
    }
}
