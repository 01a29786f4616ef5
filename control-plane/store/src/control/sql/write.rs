//! The shape of every write: its turn, the number, the precondition, the change, the audit.
//!
//! Keeps true: who writes a resource sees what the write before it made of it; numbers become visible in their order; a write
//! that is dropped has changed nothing, and one that is committed is audited in the same transaction (I-5, I-6).
//! Mostly the first statement takes the number, and with it the lock of all writes. An org's policy, which may be long and is
//! written often, takes it at its end where several machines write ([`SqlStore::write_of_org`]): until then it has the lock of
//! its resource alone. Nothing of this version that takes the number first touches such a resource or its rows, so the two locks
//! are never taken in the other order. A control plane of the version before does, without the lock: so the resource is read
//! again once the number is taken, and a write that a deadlock ends is tried again ([`SqlStore::policy_write`]).

use sqlx::{Any, Transaction};

use super::queue::{Rank, WriteTurn};
use super::{SqlStore, resource_revision, rows};
use crate::control::{Change, Precondition, StoreError, Written};

/// Takes the resource until the transaction ends.
const LOCK_RESOURCE: &str =
    "SELECT CAST(1 AS BIGINT) AS taken FROM pg_advisory_xact_lock(hashtextextended($1, 0))";
const TAKE_NUMBER: &str =
    "UPDATE control_revision SET revision = revision + 1, stamp = $1 WHERE id = 1 RETURNING revision";
/// [`Write::stamp`] and the audit, if the resource is still of revision $10 (0: absent): others wait for this and for the commit.
const FINISH: &str = "WITH unmoved AS ( \
         SELECT 1 AS yes WHERE COALESCE((SELECT revision FROM resources WHERE name = $5), 0) = $10 \
     ), gone AS ( \
         DELETE FROM resources WHERE name = $5 AND $8 = 0 AND EXISTS (SELECT 1 FROM unmoved) \
     ), stamped AS ( \
         INSERT INTO resources (name, revision) SELECT $5, $9 FROM unmoved WHERE $8 = 1 \
         ON CONFLICT (name) DO UPDATE SET revision = excluded.revision \
     ) \
     INSERT INTO audit (revision, at, actor, action, resource, org, detail, stamp) \
     SELECT $9, $2, $3, $4, $5, $6, $7, $1 FROM unmoved RETURNING revision";

impl SqlStore {
    /// Starts a write on `resource`: takes the number, then checks the precondition.
    pub(super) async fn write<'c>(
        &self,
        change: &'c Change,
        resource: String,
    ) -> Result<Write<'c>, StoreError> {
        self.write_as(Rank::Other, change, resource).await
    }

    /// The same before or after others.
    pub(super) async fn write_as<'c>(
        &self,
        rank: Rank,
        change: &'c Change,
        resource: String,
    ) -> Result<Write<'c>, StoreError> {
        let mut write = self.begin(rank, change, resource).await?;
        let row = sqlx::query(TAKE_NUMBER).bind(&write.stamp).fetch_one(&mut *write.tx).await?;
        write.revision = rows::unsigned(&row, "revision")?;
        write.checked().await
    }

    /// Starts a write on a part of one org's policy. What it is judged by is that resource alone, so that writes of other
    /// resources need not wait for it: [`Write::revision`] is 0 until the end where it is no file.
    pub(super) async fn write_of_org<'c>(
        &self,
        change: &'c Change,
        resource: String,
    ) -> Result<Write<'c>, StoreError> {
        if self.longest.is_none() {
            // One writes a file at a time, whatever it writes.
            return self.write(change, resource).await;
        }
        let mut write = self.begin(Rank::Other, change, resource).await?;
        write.exists = Some(true);
        // A statement of its own: the next one sees what was committed while this one waited.
        sqlx::query(LOCK_RESOURCE).bind(&write.resource).fetch_one(&mut *write.tx).await?;
        write.checked().await
    }

    async fn begin<'c>(
        &self,
        rank: Rank,
        change: &'c Change,
        resource: String,
    ) -> Result<Write<'c>, StoreError> {
        let (queue, pool) = match rank {
            Rank::Revocation => (&self.revokers, &self.revoking),
            Rank::Other => (&self.writers, &self.pool),
        };
        // Who waits for its turn has no connection.
        let turn = queue.turn(rank).await?;
        let tx = pool.begin_with(self.writing).await?;
        let stamp = format!("{:032x}", rand::random::<u128>());
        Ok(Write {
            tx,
            revision: 0,
            stamp,
            exists: None,
            current: None,
            resource,
            change,
            org: String::new(),
            _turn: turn,
        })
    }
}

/// A write under way. Dropped without [`Write::commit`], nothing has happened.
pub(super) struct Write<'c> {
    pub(super) tx: Transaction<'static, Any>,
    /// The revision this write makes.
    pub(super) revision: u64,
    /// As [`crate::control::Position::stamp`].
    stamp: String,
    /// Whether the resource exists after a write that takes its number last; `None` of another one.
    exists: Option<bool>,
    /// The resource's revision before.
    pub(super) current: Option<u64>,
    pub(super) resource: String,
    pub(super) change: &'c Change,
    /// For the audit row.
    pub(super) org: String,
    /// Ends after the transaction.
    _turn: WriteTurn,
}

impl<'c> Write<'c> {
    /// Reads the resource's revision and checks the precondition.
    async fn checked(mut self) -> Result<Write<'c>, StoreError> {
        self.current = resource_revision(&mut self.tx, &self.resource).await?;
        let holds = match self.change.precondition {
            Precondition::None => true,
            Precondition::At(expected) => self.current == Some(expected),
            Precondition::Exists => self.current.is_some(),
            Precondition::Absent => self.current.is_none(),
        };
        if holds { Ok(self) } else { Err(StoreError::Conflict { current: self.current }) }
    }

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
        if let Some(last) = &mut self.exists {
            *last = exists;
            return Ok(());
        }
        let recorded = if exists {
            sqlx::query(
                "INSERT INTO resources (name, revision) VALUES ($1, $2) \
                 ON CONFLICT (name) DO UPDATE SET revision = excluded.revision",
            )
            .bind(&self.resource)
            .bind(rows::signed(self.revision)?)
        } else {
            sqlx::query("DELETE FROM resources WHERE name = $1").bind(&self.resource)
        };
        recorded.execute(&mut *self.tx).await?;
        Ok(())
    }

    /// Audits and commits.
    pub(super) async fn commit(mut self, action: &str, detail: &str) -> Result<Written, StoreError> {
        if let Some(exists) = self.exists {
            return self.finish(exists, action, detail).await;
        }
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

    /// Takes the number, checks that the resource is as it was read, records its revision, audits and commits.
    async fn finish(mut self, exists: bool, action: &str, detail: &str) -> Result<Written, StoreError> {
        let row = sqlx::query(TAKE_NUMBER).bind(&self.stamp).fetch_one(&mut *self.tx).await?;
        self.revision = rows::unsigned(&row, "revision")?;
        // A statement of its own: it sees what was committed while the number was waited for.
        let finished = sqlx::query(FINISH)
            .bind(&self.stamp)
            .bind(rows::signed(self.change.at)?)
            .bind(&self.change.actor)
            .bind(action)
            .bind(&self.resource)
            .bind(&self.org)
            .bind(detail)
            .bind(i64::from(exists))
            .bind(rows::signed(self.revision)?)
            .bind(rows::signed(self.current.unwrap_or(0))?)
            .fetch_optional(&mut *self.tx)
            .await?;
        if finished.is_none() {
            return Err(self.overtaken().await?);
        }
        self.tx.commit().await?;
        Ok(Written { revision: self.revision, changed: true })
    }

    /// The error of a write whose resource was written without the resource's lock since it was read.
    async fn overtaken(&mut self) -> Result<StoreError, StoreError> {
        if matches!(self.change.precondition, Precondition::None) {
            let error = format!("{} was written at the same time; try again", self.resource);
            return Ok(StoreError::Busy(error));
        }
        Ok(StoreError::Conflict { current: resource_revision(&mut self.tx, &self.resource).await? })
    }
}
