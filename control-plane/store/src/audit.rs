//! The audit log of calls: appended to in batches, read page by page, newest first; nobody reads it on the call path.

use std::collections::VecDeque;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use sqlx::{ColumnIndex, Decode, Row, Type};

pub mod spool;
pub mod sqlite;

/// How long events of calls are kept.
pub(crate) const KEEP_EVENTS: Duration = Duration::from_secs(30 * 24 * 3600);
/// Most events of one page.
pub(crate) const MAX_PAGE: u32 = 1_000;

/// One start or finish event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallEvent {
    /// Unix milliseconds.
    pub at_ms: i64,
    pub org: String,
    /// A JSON object.
    pub event: String,
}

/// An event as the log has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredEvent {
    /// Its place in the log: later events have higher numbers.
    pub seq: i64,
    pub event: CallEvent,
}

/// Which events.
#[derive(Clone, Debug, Default)]
pub struct AuditQuery {
    /// Only this org's.
    pub org: Option<String>,
    /// Only those with a lower number: the next page.
    pub before: Option<i64>,
    /// 1 to [`MAX_PAGE`]; what lies outside is cut.
    pub limit: u32,
}

/// Reads an event from a row of any database, of columns named as its fields.
pub(crate) fn stored<R>(row: &R) -> Result<StoredEvent, sqlx::Error>
where
    R: Row,
    for<'c> &'c str: ColumnIndex<R>,
    for<'r> i64: Decode<'r, R::Database> + Type<R::Database>,
    for<'r> String: Decode<'r, R::Database> + Type<R::Database>,
{
    let event =
        CallEvent { at_ms: row.try_get("at_ms")?, org: row.try_get("org")?, event: row.try_get("event")? };
    Ok(StoredEvent { seq: row.try_get("seq")?, event })
}

#[derive(Debug, thiserror::Error)]
#[error("audit log is not available: {0}")]
pub struct AuditError(pub String);

impl From<sqlx::Error> for AuditError {
    fn from(error: sqlx::Error) -> AuditError {
        AuditError(error.to_string())
    }
}

/// Takes events for good, until they are too old or too many.
#[async_trait]
pub trait AuditLog: Send + Sync {
    /// Appends all of them or none; on return they are durable.
    async fn append(&self, events: &[CallEvent]) -> Result<(), AuditError>;

    /// One page, newest first.
    async fn page(&self, query: &AuditQuery) -> Result<Vec<StoredEvent>, AuditError>;

    /// Whether nothing at all may happen that it does not take; else what only reads may.
    fn is_required(&self) -> bool {
        false
    }

    /// Whether something may begin in this org that it has to take: one org's events do not use up the room of others.
    fn has_room(&self, _org: &str) -> bool {
        true
    }
}

/// An audit log that lives with its process, for tests and for a gateway without a state directory. Keeps
/// the newest events only.
#[derive(Default)]
pub struct MemoryAudit {
    events: Mutex<VecDeque<StoredEvent>>,
}

/// Most events [`MemoryAudit`] keeps.
const MAX_KEPT: usize = 10_000;

impl MemoryAudit {
    /// The kept events, oldest first.
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
}
