//! The audit log of one process, for tests only.

use std::collections::VecDeque;

use async_trait::async_trait;
use parking_lot::Mutex;

use super::search::{AuditFound, AuditSearch, EventPosition, SearchOrder};
use super::{AuditError, AuditLog, AuditQuery, CallEvent, MAX_PAGE, StoredEvent};

/// An audit log in memory. Keeps only the newest events.
#[derive(Default)]
pub struct MemoryAudit {
    events: Mutex<VecDeque<StoredEvent>>,
}

/// Maximum number of events in a [`MemoryAudit`].
const MAX_KEPT: usize = 10_000;

impl MemoryAudit {
    /// Returns the kept events, oldest first.
    pub fn events(&self) -> Vec<CallEvent> {
        self.events.lock().iter().map(|stored| stored.event.clone()).collect()
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

    async fn search(&self, search: &AuditSearch) -> Result<AuditFound, AuditError> {
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
        Ok(AuditFound::of(found, search.page_limit(), None))
    }
}
