//! The shape of every write: the revision, the precondition, the change, the audit.
//!
//! Keeps true: the first statement bumps the revision, so that writers queue on that row; a write that is dropped has
//! changed nothing, and one that is committed is audited in the same transaction (I-5, I-6).

use sqlx::{Any, AnyPool, Transaction};

use super::{SqlStore, resource_revision, rows};
use crate::control::{Change, Precondition, StoreError, Written};

impl SqlStore {
    /// Starts a write on `resource`: bumps the revision, then checks the precondition.
    pub(super) async fn write<'c>(
        &self,
        change: &'c Change,
        resource: String,
    ) -> Result<Write<'c>, StoreError> {
        self.write_by(&self.pool, change, resource).await
    }

    /// The same over connections of one kind.
    pub(super) async fn write_by<'c>(
        &self,
        pool: &AnyPool,
        change: &'c Change,
        resource: String,
    ) -> Result<Write<'c>, StoreError> {
        let mut tx = pool.begin().await?;
        let stamp = format!("{:032x}", rand::random::<u128>());
        let bump =
            "UPDATE control_revision SET revision = revision + 1, stamp = $1 WHERE id = 1 RETURNING revision";
        let row = sqlx::query(bump).bind(&stamp).fetch_one(&mut *tx).await?;
        let revision = rows::unsigned(&row, "revision")?;
        let current = resource_revision(&mut tx, &resource).await?;
        let holds = match change.precondition {
            Precondition::None => true,
            Precondition::At(expected) => current == Some(expected),
            Precondition::Exists => current.is_some(),
            Precondition::Absent => current.is_none(),
        };
        if !holds {
            return Err(StoreError::Conflict { current });
        }
        Ok(Write { tx, revision, stamp, current, resource, change, org: String::new() })
    }
}

/// A write under way. Dropped without [`Write::commit`], nothing has happened.
pub(super) struct Write<'c> {
    pub(super) tx: Transaction<'static, Any>,
    /// The revision this write makes.
    pub(super) revision: u64,
    /// As [`crate::control::Position::stamp`].
    stamp: String,
    /// The resource's revision before.
    pub(super) current: Option<u64>,
    pub(super) resource: String,
    pub(super) change: &'c Change,
    /// For the audit row.
    pub(super) org: String,
}

impl Write<'_> {
    /// Ends a write that found nothing to change.
    pub(super) async fn unchanged(self) -> Result<Written, StoreError> {
        self.tx.rollback().await?;
        Ok(Written { revision: self.current.unwrap_or(0), changed: false })
    }

    /// Whether what the write was evaluated beside is as it was then. `written_since` finds what was written after a
    /// revision; what is gone since takes no room.
    pub(super) async fn unmoved(&mut self, written_since: &'static str) -> Result<(), StoreError> {
        let Some(evaluated_at) = self.change.evaluated_at else { return Ok(()) };
        let moved = sqlx::query(written_since)
            .bind(rows::signed(evaluated_at)?)
            .fetch_optional(&mut *self.tx)
            .await?;
        if moved.is_some() { Err(StoreError::Moved) } else { Ok(()) }
    }

    /// Records the resource's new revision, or its absence.
    pub(super) async fn stamp(&mut self, exists: bool) -> Result<(), StoreError> {
        sqlx::query("DELETE FROM resources WHERE name = $1")
            .bind(&self.resource)
            .execute(&mut *self.tx)
            .await?;
        if exists {
            sqlx::query("INSERT INTO resources (name, revision) VALUES ($1, $2)")
                .bind(&self.resource)
                .bind(rows::signed(self.revision)?)
                .execute(&mut *self.tx)
                .await?;
        }
        Ok(())
    }

    /// Audits and commits.
    pub(super) async fn commit(mut self, action: &str, detail: &str) -> Result<Written, StoreError> {
        sqlx::query(
            "INSERT INTO audit (revision, at, actor, action, resource, org, detail, stamp) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
        )
        .bind(rows::signed(self.revision)?)
        .bind(rows::signed(self.change.at)?)
        .bind(&self.change.actor)
        .bind(action)
        .bind(&self.resource)
        .bind(&self.org)
        .bind(detail)
        .bind(&self.stamp)
        .execute(&mut *self.tx)
        .await?;
        self.tx.commit().await?;
        Ok(Written { revision: self.revision, changed: true })
    }
}
