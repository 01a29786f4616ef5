//! The audit log of calls: appended to in batches, read in pages, newest first; never read on the call path.

use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;

use crate::columns::Columns;

pub mod journal;
#[cfg(any(test, feature = "testing"))]
mod memory;
pub mod replay;
pub mod search;
#[cfg(any(test, feature = "testing"))]
pub mod suite;

#[cfg(any(test, feature = "testing"))]
pub use memory::MemoryAudit;
use search::{AuditPage, AuditSearch};

/// Retention of call events.
pub(crate) const KEEP_EVENTS: Duration = Duration::from_secs(30 * 24 * 3600);
/// Maximum number of events in a page.
pub(crate) const MAX_PAGE: u32 = 1_000;

/// A start or finish event.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
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

/// The arguments or the result of a call, redacted, kept because the operator asks for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapturedBody {
    /// Unix milliseconds.
    pub at_ms: i64,
    pub org: String,
    /// The call's id.
    pub call: String,
    /// `arguments` or `result`
    pub part: String,
    /// Redacted text, at most [`MAX_BODY`] bytes.
    pub body: String,
}

/// Maximum length of a captured body in bytes.
pub const MAX_BODY: usize = 16 * 1024;

/// Returns the maximum number of captured bodies beside a log of so many bytes: a quarter of it, were all as long as they
/// may be.
pub(crate) fn max_bodies(log_bytes: i64) -> i64 {
    let body = i64::try_from(MAX_BODY).unwrap_or(i64::MAX);
    (log_bytes / 4 / body).clamp(100, 1_000_000)
}

/// A gateway whose calls may lack their last event, because it ended without writing them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostWriter {
    /// Id of the run of the gateway, as in the `gateway` member of its events.
    pub id: String,
    /// Time of its last renewal, by the database's clock.
    pub seen_ms: i64,
    /// Lower bound of the times of the first events of the calls that it was running.
    pub oldest_ms: i64,
    /// Number of times that others have appended events for it: a stale reader appends nothing.
    pub round: i64,
}

/// An audit log: keeps events durably until they are too old or too many.
#[async_trait]
pub trait AuditLog: Send + Sync {
    /// Appends all events or none; they are durable on return.
    async fn append(&self, events: &[CallEvent]) -> Result<(), AuditError>;

    /// Returns a page, newest first.
    async fn page(&self, query: &AuditQuery) -> Result<Vec<StoredEvent>, AuditError>;

    /// Returns the events that a search finds, in its order, and the position to continue from. Reads a bounded number of
    /// events, so that a page may have few or none and still not be the last one.
    async fn search(&self, _search: &AuditSearch) -> Result<AuditPage, AuditError> {
        Err(AuditError("it cannot be searched".to_owned()))
    }

    /// Records that a gateway writes to this log and runs calls, the oldest of which started at `oldest_ms`.
    async fn renew_writer(&self, _id: &str, _oldest_ms: i64) -> Result<(), AuditError> {
        Ok(())
    }

    /// Forgets a gateway that runs no calls.
    async fn release_writer(&self, _id: &str) -> Result<(), AuditError> {
        Ok(())
    }

    /// Returns at most 100 gateways that have not renewed their record for this time.
    async fn lost_writers(&self, _longest: Duration) -> Result<Vec<LostWriter>, AuditError> {
        Ok(Vec::new())
    }

    /// Appends the last events of calls of a lost gateway and, if `is_last`, forgets the gateway: all of that or nothing.
    /// Returns false, and changes nothing, if another process did so since the gateway was read, or if it returned.
    async fn finish_writer(
        &self,
        _lost: &LostWriter,
        _events: &[CallEvent],
        _is_last: bool,
    ) -> Result<bool, AuditError> {
        Ok(false)
    }

    /// Records that the events of a gateway that has ended are being appended: nobody else ends its calls for a while. Its
    /// oldest call started at `oldest_ms` or before.
    async fn return_writer(&self, _id: &str, _oldest_ms: i64) -> Result<(), AuditError> {
        Ok(())
    }

    /// Replaces an event, at its place in the log, if it still is as it was read; returns whether it was.
    async fn replace(&self, _stored: &StoredEvent, _event: &CallEvent) -> Result<bool, AuditError> {
        Ok(false)
    }

    /// Returns the directory of the journals in front of this log ([`journal::Journal`]); `None`: until events are appended,
    /// they are in memory only.
    fn journals(&self) -> Option<&Path> {
        None
    }

    /// Whether arguments and results of this server's calls are kept.
    fn captures(&self, _server: &str) -> bool {
        false
    }

    /// Stores bodies, in place of the oldest ones if there are too many.
    async fn capture(&self, _bodies: &[CapturedBody]) -> Result<(), AuditError> {
        Err(AuditError("it keeps no bodies".to_owned()))
    }

    /// Returns the bodies of a call, in the order in which they were stored; at most 100.
    async fn captured(&self, _call: &str) -> Result<Vec<CapturedBody>, AuditError> {
        Ok(Vec::new())
    }

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
