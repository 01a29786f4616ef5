//! The audit log of calls: appended to in batches, read in pages, newest first; never read on the call path.

use std::time::Duration;

use async_trait::async_trait;

use crate::columns::Columns;

#[cfg(any(test, feature = "testing"))]
mod memory;

#[cfg(any(test, feature = "testing"))]
pub use memory::MemoryAudit;

/// Retention of call events.
pub(crate) const KEEP_EVENTS: Duration = Duration::from_secs(30 * 24 * 3600);
/// Maximum number of events in a page.
pub(crate) const MAX_PAGE: u32 = 1_000;

/// A start or finish event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallEvent {
    /// Unix milliseconds.
    pub at_ms: i64,
    pub org: String,
    /// A JSON object.
    pub event: String,
}

/// An event in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredEvent {
    /// Position in the log; later events have higher numbers.
    pub seq: i64,
    pub event: CallEvent,
}

/// Selection of events.
#[derive(Clone, Debug, Default)]
pub struct AuditQuery {
    /// Only events of this org.
    pub org: Option<String>,
    /// Only events with a lower number: the next page.
    pub before: Option<i64>,
    /// 1 to [`MAX_PAGE`]; values outside are clamped.
    pub limit: u32,
}

/// Reads an event from a row of any database whose columns are named like its fields.
pub(crate) fn stored(row: &impl Columns) -> sqlx::Result<StoredEvent> {
    let event = CallEvent { at_ms: row.number("at_ms")?, org: row.text("org")?, event: row.text("event")? };
    Ok(StoredEvent { seq: row.number("seq")?, event })
}

#[derive(Debug, thiserror::Error)]
#[error("audit log is not available: {0}")]
pub struct AuditError(pub String);

from_failure!(sqlx::Error => AuditError);

/// An audit log: keeps events durably until they are too old or too many.
#[async_trait]
pub trait AuditLog: Send + Sync {
    /// Appends all events or none; they are durable on return.
    async fn append(&self, events: &[CallEvent]) -> Result<(), AuditError>;

    /// Returns a page, newest first.
    async fn page(&self, query: &AuditQuery) -> Result<Vec<StoredEvent>, AuditError>;

    /// Whether nothing may run without this log; if false, read-only calls may.
    fn is_required(&self) -> bool {
        false
    }

    /// Whether new calls of this org may start as far as the log's capacity is concerned; one org's events do not use
    /// up the capacity of others.
    fn has_room(&self, _org: &str) -> bool {
        true
    }
}
