//! The audit log of calls: append in batches, read by nobody on the call path.

use async_trait::async_trait;
use parking_lot::Mutex;
use sqlx::Row;

use super::SqliteCalls;

/// One start or finish event.
#[derive(Clone, Debug, PartialEq)]
pub struct CallEvent {
    /// Unix milliseconds.
    pub at_ms: i64,
    pub org: String,
    /// A JSON object (design §6 stage 10).
    pub event: String,
}

#[derive(Debug, thiserror::Error)]
#[error("audit log is not available: {0}")]
pub struct AuditError(pub String);

/// Takes events for good.
#[async_trait]
pub trait AuditLog: Send + Sync {
    /// Appends all of them or none; on return they are durable.
    async fn append(&self, events: &[CallEvent]) -> Result<(), AuditError>;
}

#[async_trait]
impl AuditLog for SqliteCalls {
    async fn append(&self, events: &[CallEvent]) -> Result<(), AuditError> {
        let failed = |error: sqlx::Error| AuditError(error.to_string());
        let mut transaction = self.pool.begin().await.map_err(failed)?;
        for event in events {
            sqlx::query("INSERT INTO call_events (at_ms, org, event) VALUES ($1, $2, $3)")
                .bind(event.at_ms)
                .bind(&event.org)
                .bind(&event.event)
                .execute(&mut *transaction)
                .await
                .map_err(failed)?;
        }
        transaction.commit().await.map_err(failed)
    }
}

impl SqliteCalls {
    /// The newest events of an org, newest first; at most `limit`.
    pub async fn events(&self, org: &str, limit: u32) -> Result<Vec<CallEvent>, AuditError> {
        let failed = |error: sqlx::Error| AuditError(error.to_string());
        let rows = sqlx::query(
            "SELECT at_ms, org, event FROM call_events WHERE org = $1 ORDER BY seq DESC LIMIT $2",
        )
        .bind(org)
        .bind(i64::from(limit))
        .fetch_all(&self.pool)
        .await
        .map_err(failed)?;
        let mut events = Vec::with_capacity(rows.len());
        for row in rows {
            events.push(CallEvent {
                at_ms: row.try_get("at_ms").map_err(failed)?,
                org: row.try_get("org").map_err(failed)?,
                event: row.try_get("event").map_err(failed)?,
            });
        }
        Ok(events)
    }
}

/// An audit log that lives with its process, for tests and for a gateway without a state directory. Keeps
/// the newest events only.
#[derive(Default)]
pub struct MemoryAudit {
    events: Mutex<std::collections::VecDeque<CallEvent>>,
}

/// Most events [`MemoryAudit`] keeps.
const MAX_KEPT: usize = 10_000;

impl MemoryAudit {
    /// The kept events, oldest first.
    pub fn events(&self) -> Vec<CallEvent> {
        self.events.lock().iter().cloned().collect()
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
            kept.push_back(event.clone());
        }
        Ok(())
    }
}
