//! The audit log of one process, for tests only.

use std::collections::VecDeque;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;

use super::search::{AuditPage, AuditSearch, EventPosition, SearchOrder};
use super::{AuditError, AuditLog, AuditQuery, CallEvent, CapturedBody, LostWriter, MAX_PAGE, StoredEvent};
use crate::clock::{milliseconds, now_ms};

/// An audit log in memory. Keeps only the newest events.
#[derive(Default)]
pub struct MemoryAudit {
    events: Mutex<VecDeque<StoredEvent>>,
    writers: Mutex<Vec<LostWriter>>,
    bodies: Mutex<Vec<CapturedBody>>,
}

/// The server whose bodies a [`MemoryAudit`] keeps.
const CAPTURED: &str = "captured";
/// Maximum number of events in a [`MemoryAudit`].
const MAX_KEPT: usize = 20_000;

impl MemoryAudit {
    /// Returns the kept events, oldest first.
    pub fn events(&self) -> Vec<CallEvent> {
        self.events.lock().iter().map(|stored| stored.event.clone()).collect()
    }

    /// Makes the records of all gateways as old as they can be: all of them are lost.
    pub fn lose_writers(&self) {
        self.writers.lock().iter_mut().for_each(|writer| writer.seen_ms = 0);
    }
}

#[async_trait]
impl AuditLog for MemoryAudit {
    async fn append(&self, events: &[CallEvent]) -> Result<(), AuditError> {
        let mut kept = self.events.lock();
        for event in events {
            if kept.len() == MAX_KEPT {
                kept.pop_front();
            }
            let seq = kept.back().map_or(1, |last| last.seq + 1);
            kept.push_back(StoredEvent { seq, event: event.clone() });
        }
        Ok(())
    }

    async fn page(&self, query: &AuditQuery) -> Result<Vec<StoredEvent>, AuditError> {
        let wanted = |stored: &&StoredEvent| {
            query.before.is_none_or(|before| stored.seq < before)
                && query.org.as_ref().is_none_or(|org| stored.event.org == *org)
        };
        let limit = usize::try_from(query.limit.clamp(1, MAX_PAGE)).unwrap_or_default();
        Ok(self.events.lock().iter().rev().filter(wanted).take(limit).cloned().collect())
    }

    async fn search(&self, search: &AuditSearch) -> Result<AuditPage, AuditError> {
        let mut found: Vec<StoredEvent> =
            self.events.lock().iter().filter(|stored| search.passes(stored)).cloned().collect();
        match search.order {
            SearchOrder::Newest => found.sort_by_key(|stored| std::cmp::Reverse(EventPosition::of(stored))),
            SearchOrder::Oldest => found.sort_by_key(EventPosition::of),
            SearchOrder::Arrival => found.sort_by_key(|stored| stored.seq),
        }
        if let Some(after) = search.after {
            found.retain(|stored| match search.order {
                SearchOrder::Newest => EventPosition::of(stored) < after,
                SearchOrder::Oldest => EventPosition::of(stored) > after,
                SearchOrder::Arrival => stored.seq > after.seq,
            });
        }
        found.truncate(usize::try_from(search.page_limit()).unwrap_or_default());
        Ok(AuditPage::of(found, search.page_limit(), None))
    }

    fn captures(&self, server: &str) -> bool {
        server == CAPTURED
    }

    async fn capture(&self, bodies: &[CapturedBody]) -> Result<(), AuditError> {
        self.bodies.lock().extend_from_slice(bodies);
        Ok(())
    }

    async fn captured(&self, call: &str) -> Result<Vec<CapturedBody>, AuditError> {
        Ok(self.bodies.lock().iter().filter(|body| body.call == call).cloned().collect())
    }

    async fn renew_writer(&self, id: &str, oldest_ms: i64) -> Result<(), AuditError> {
        let mut writers = self.writers.lock();
        let round = writers.iter().find(|writer| writer.id == id).map_or(0, |writer| writer.round);
        writers.retain(|writer| writer.id != id);
        writers.push(LostWriter { id: id.to_owned(), seen_ms: now_ms(), oldest_ms, round });
        Ok(())
    }

    async fn release_writer(&self, id: &str) -> Result<(), AuditError> {
        self.writers.lock().retain(|writer| writer.id != id);
        Ok(())
    }

    async fn lost_writers(&self, longest: Duration) -> Result<Vec<LostWriter>, AuditError> {
        let before = now_ms() - milliseconds(longest);
        Ok(self.writers.lock().iter().filter(|writer| writer.seen_ms < before).cloned().collect())
    }

    async fn finish_writer(
        &self,
        lost: &LostWriter,
        events: &[CallEvent],
        is_last: bool,
    ) -> Result<bool, AuditError> {
        {
            let mut writers = self.writers.lock();
            let Some(writer) = writers.iter_mut().find(|writer| *writer == lost) else { return Ok(false) };
            writer.round += 1;
            if is_last {
                writers.retain(|writer| writer.id != lost.id);
            }
        }
        self.append(events).await?;
        Ok(true)
    }

    async fn return_writer(&self, id: &str, oldest_ms: i64) -> Result<(), AuditError> {
        let mut writers = self.writers.lock();
        let former = writers.iter().find(|writer| writer.id == id);
        let oldest_ms = former.map_or(oldest_ms, |writer| writer.oldest_ms.min(oldest_ms));
        let round = former.map_or(0, |writer| writer.round + 1);
        writers.retain(|writer| writer.id != id);
        writers.push(LostWriter { id: id.to_owned(), seen_ms: now_ms(), oldest_ms, round });
        Ok(())
    }

    async fn replace(&self, stored: &StoredEvent, event: &CallEvent) -> Result<bool, AuditError> {
        let mut kept = self.events.lock();
        let Some(found) = kept.iter_mut().find(|found| **found == *stored) else { return Ok(false) };
        found.event = event.clone();
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_log_of_tests_behaves_like_the_others() {
        crate::audit::suite::run(&MemoryAudit::default()).await;
        crate::audit::suite::replays(&MemoryAudit::default()).await;
    }
}
