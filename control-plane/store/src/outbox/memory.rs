//! The outbox of one process, for tests only.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

use super::{
    AppendOutcome, Batch, LogId, MAX_BYTES, MAX_ENTRIES, MAX_PINNED, Outbox, OutboxError, StoredEvents, count,
};
use crate::records::{CallId, OwnerId};

/// Events kept until the process ends.
#[derive(Default)]
pub struct MemoryOutbox {
    rows: Mutex<HashMap<CallId, OutboxRow>>,
}

struct OutboxRow {
    owner: OwnerId,
    log: Option<Log>,
    until: Instant,
}

struct Log {
    id: LogId,
    /// Number of the next entry.
    next: u64,
    entries: VecDeque<Bytes>,
    /// Bytes of all entries.
    bytes: usize,
    /// Open entries from before those.
    pinned: BTreeMap<u64, Bytes>,
}

impl Log {
    /// Creates a log without entries that starts at the batch.
    fn begun(batch: Batch<'_>) -> Log {
        let pinned = BTreeMap::new();
        let mut log = Log { id: batch.log, next: batch.first, entries: VecDeque::new(), bytes: 0, pinned };
        for (number, entry) in batch.pinned {
            log.pin(*number, entry.clone());
        }
        log
    }

    fn pin(&mut self, number: u64, entry: Bytes) {
        let bytes = self.pinned.values().map(Bytes::len).sum();
        if fits(self.pinned.len(), bytes, &entry) {
            self.pinned.insert(number, entry);
        }
    }

    /// Whether the batch follows the stored entries without a gap.
    fn reaches(&self, batch: Batch<'_>) -> bool {
        self.id == batch.log && batch.first <= self.next
    }

    fn append(&mut self, batch: Batch<'_>) {
        self.pinned.retain(|number, _| batch.open.contains(number));
        let there = usize::try_from(self.next.saturating_sub(batch.first)).unwrap_or(usize::MAX);
        for entry in batch.entries.iter().skip(there) {
            self.next += 1;
            self.bytes += entry.len();
            self.entries.push_back(entry.clone());
        }
        while self.entries.len() > 1 && (self.entries.len() > MAX_ENTRIES || self.bytes > MAX_BYTES) {
            let number = self.next - count(self.entries.len());
            let Some(oldest) = self.entries.pop_front() else { break };
            self.bytes -= oldest.len();
            if batch.open.contains(&number) {
                self.pin(number, oldest);
            }
        }
    }

    fn kept(&self, from: u64) -> StoredEvents {
        let oldest = self.next - count(self.entries.len());
        let first = from.clamp(oldest, self.next);
        let before = usize::try_from(first - oldest).unwrap_or(usize::MAX);
        let pinned = self.pinned.iter().filter(|_| from < oldest);
        StoredEvents {
            log: self.id,
            first,
            entries: self.entries.iter().skip(before).cloned().collect(),
            pinned: pinned.map(|(number, entry)| (*number, entry.clone())).collect(),
        }
    }
}

impl MemoryOutbox {
    /// Removes expired rows and returns the others.
    fn rows(&self) -> MutexGuard<'_, HashMap<CallId, OutboxRow>> {
        let now = Instant::now();
        let mut rows = self.rows.lock();
        rows.retain(|_, row| row.until > now);
        rows
    }
}

#[async_trait]
impl Outbox for MemoryOutbox {
    async fn append(
        &self,
        call: CallId,
        owner: OwnerId,
        batch: Batch<'_>,
        keep: Duration,
    ) -> Result<AppendOutcome, OutboxError> {
        batch.check()?;
        let until = Instant::now() + keep;
        let mut rows = self.rows();
        match rows.get(&call) {
            Some(row) if row.owner != owner => return Ok(AppendOutcome::NotOwner),
            None if !batch.reset => return Ok(AppendOutcome::Missing),
            Some(_) | None => {}
        }
        let row = rows.entry(call).or_insert_with(|| OutboxRow { owner, log: None, until });
        if batch.reset {
            row.log = Some(Log::begun(batch));
        }
        match &mut row.log {
            Some(log) if log.reaches(batch) => log.append(batch),
            Some(_) | None => return Ok(AppendOutcome::Missing),
        }
        row.until = row.until.max(until);
        Ok(AppendOutcome::Stored)
    }

    async fn take(
        &self,
        call: CallId,
        owner: OwnerId,
        keep: Duration,
    ) -> Result<Option<StoredEvents>, OutboxError> {
        let until = Instant::now() + keep;
        let mut rows = self.rows();
        let row = rows.entry(call).or_insert_with(|| OutboxRow { owner, log: None, until });
        row.owner = owner;
        row.until = row.until.max(until);
        Ok(row.log.as_ref().map(|log| StoredEvents { pinned: Vec::new(), ..log.kept(0) }))
    }

    async fn read(&self, call: CallId, from: u64) -> Result<Option<StoredEvents>, OutboxError> {
        let rows = self.rows();
        let log = rows.get(&call).and_then(|row| row.log.as_ref());
        Ok(log.map(|log| log.kept(from)))
    }
}

/// Whether an open entry fits in addition to the pinned ones.
fn fits(pinned: usize, bytes: usize, entry: &Bytes) -> bool {
    pinned < MAX_PINNED && bytes.saturating_add(entry.len()) <= MAX_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn does_what_every_outbox_must() {
        super::super::suite::run(&MemoryOutbox::default()).await;
    }
}
