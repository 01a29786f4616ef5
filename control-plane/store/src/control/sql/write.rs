//! The shape of every write: its turn, the revision, the precondition, the change, the audit.
//!
//! Keeps true: a write of a resource sees the result of the previous one; revisions become visible in order; a dropped
//! write has changed nothing, and a committed one is audited in the same transaction (I-5, I-6).
//! Most writes take the revision in their first statement, and with it the lock of all writes. A write of an org's
//! policy, which may be long and is frequent, takes it at the end if several machines write
//! ([`ControlStore::write_of_org`]); until then it holds only the lock of its resource. No write of this version that
//! takes the revision first touches such a resource or its rows, so the two locks are never taken in the opposite
//! order. A control plane of the previous version does, without the lock of the resource: therefore the resource is read
//! again once the revision is taken, and a write aborted by a deadlock is retried ([`ControlStore::policy_write`]).

use super::queue::{Rank, WriteTurn};
use super::{ControlStore, Tx, resource_revision, rows};
use crate::control::{Change, Commit, Precondition, Result, StoreError};

/// Locks the resource until the transaction ends.
const LOCK_RESOURCE: &str =
    "SELECT CAST(1 AS BIGINT) AS taken FROM pg_advisory_xact_lock(hashtextextended($1, 0))";
const TAKE_NUMBER: &str =
    "UPDATE control_revision SET revision = revision + 1, stamp = $1 WHERE id = 1 RETURNING revision";
/// [`Write::stamp`] and the audit, if the resource still has revision $10 (0: absent). One statement, because others
/// wait for it and for the commit.
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

impl ControlStore {
    /// Starts a write on `resource`: takes the revision, then checks the precondition.
    pub(super) async fn write<'c>(&self, change: &'c Change, resource: String) -> Result<Write<'c>> {
        self.write_as(Rank::Other, change, resource).await
    }

    /// Starts a write of the given rank.
    pub(super) async fn write_as<'c>(
        &self,
        rank: Rank,
        change: &'c Change,
        resource: String,
    ) -> Result<Write<'c>> {
        let mut write = self.begin(rank, change, resource).await?;
        let row = sqlx::query(TAKE_NUMBER).bind(&write.stamp).fetch_one(&mut *write.tx).await?;
        write.revision = rows::unsigned(&row, "revision")?;
        write.checked().await
    }

    /// Starts a write on a part of one org's policy. It depends on that resource only, so that writes of other
    /// resources need not wait for it. Except on a file, [`Write::revision`] is 0 until the end.
    pub(super) async fn write_of_org<'c>(
        &self,
        change: &'c Change,
        part: &str,
        org: &str,
    ) -> Result<Write<'c>> {
        let resource = format!("{part}/{org}");
        if self.timeouts.is_none() {
            // Only one write runs on a file at a time.
            return Ok(Write { org: org.to_owned(), ..self.write(change, resource).await? });
        }
        let mut write = self.begin(Rank::Other, change, resource).await?;
        write.org = org.to_owned();
        write.exists = Some(true);
        // A separate statement, so that the next one sees what was committed while this one waited.
        sqlx::query(LOCK_RESOURCE).bind(&write.resource).fetch_one(&mut *write.tx).await?;
        write.checked().await
    }

    async fn begin<'c>(&self, rank: Rank, change: &'c Change, resource: String) -> Result<Write<'c>> {
        let (queue, pool) = match rank {
            Rank::Revocation => (&self.revokers, &self.revoking),
            Rank::Other => (&self.writers, &self.pool),
        };
        // A waiting write has no connection.
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

/// A write in progress. Dropping it without [`Write::commit`] changes nothing.
pub(super) struct Write<'c> {
    pub(super) tx: Tx,
    /// Revision made by this write.
    pub(super) revision: u64,
    /// See [`crate::control::Position::stamp`].
    stamp: String,
    /// Whether the resource exists after a write that takes its revision last; `None` for other writes.
    exists: Option<bool>,
    /// Revision of the resource before the write.
    pub(super) current: Option<u64>,
    pub(super) resource: String,
    pub(super) change: &'c Change,
    /// Org of the audit row.
    pub(super) org: String,
    /// Dropped after the transaction.
    _turn: WriteTurn,
}

impl<'c> Write<'c> {
    /// Reads the resource's revision and checks the precondition.
    async fn checked(mut self) -> Result<Write<'c>> {
        self.current = resource_revision(&mut self.tx, &self.resource).await?;
        let holds = match self.change.precondition {
            Precondition::None => true,
            Precondition::At(expected) => self.current == Some(expected),
            Precondition::Exists => self.current.is_some(),
            Precondition::Absent => self.current.is_none(),
        };
        if holds { Ok(self) } else { Err(StoreError::Conflict { current: self.current }) }
    }

    /// Ends a write that has nothing to change.
    pub(super) async fn unchanged(self) -> Result<Commit> {
        self.tx.rollback().await?;
        Ok(Commit { revision: self.current.unwrap_or(0), changed: false })
    }

    /// Fails if a record that the write was evaluated against has changed. `written_since` finds writes after a
    /// revision; deleted records only free capacity, so they do not conflict.
    pub(super) async fn unmoved(&mut self, written_since: &'static str) -> Result<()> {
        let Some(based_on) = self.change.based_on else { return Ok(()) };
        let moved =
            sqlx::query(written_since).bind(rows::signed(based_on)?).fetch_optional(&mut *self.tx).await?;
        if moved.is_some() { Err(StoreError::Stale) } else { Ok(()) }
    }

    /// Records the resource's new revision, or its absence.
    pub(super) async fn stamp(&mut self, exists: bool) -> Result<()> {
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
    pub(super) async fn commit(mut self, action: &str, detail: &str) -> Result<Commit> {
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
        Ok(Commit { revision: self.revision, changed: true })
    }

    /// Takes the revision, checks that the resource is unchanged since it was read, records its revision, audits and
    /// commits.
    async fn finish(mut self, exists: bool, action: &str, detail: &str) -> Result<Commit> {
        let row = sqlx::query(TAKE_NUMBER).bind(&self.stamp).fetch_one(&mut *self.tx).await?;
        self.revision = rows::unsigned(&row, "revision")?;
        // A separate statement, so that it sees what was committed while this one waited for the revision.
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
            return Err(self.conflict_error().await?);
        }
        self.tx.commit().await?;
        Ok(Commit { revision: self.revision, changed: true })
    }

    /// Returns the error of a write whose resource was written without its lock since it was read.
    async fn conflict_error(&mut self) -> Result<StoreError> {
        if matches!(self.change.precondition, Precondition::None) {
            let error = format!("{} was written at the same time; try again", self.resource);
            return Ok(StoreError::Busy(error));
        }
        Ok(StoreError::Conflict { current: resource_revision(&mut self.tx, &self.resource).await? })
    }
}
