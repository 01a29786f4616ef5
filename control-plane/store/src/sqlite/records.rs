//! [`CallRecords`] on SQLite. The table and some columns are named from the time when it held running calls only.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use sqlx::Row;
use sqlx::sqlite::SqliteRow;

use super::SqliteCalls;
use crate::clock::{milliseconds, now_ms};
use crate::columns::{blob, id};
use crate::records::{
    BELIEVED, CallId, CallRecord, CallRecords, End, Lease, Listing, MAX_KEEP, NO_ROOM, NOBODY, Orphan,
    OwnerId, RecordError, RecordKey, STEADY, Saved, Stand, State,
};

/// Returns the columns for the status of a row's call. $1 is the time.
fn stand_columns() -> String {
    format!(
        "principal, server, state, updated_ms, owner, \
         owner IS NOT NULL AND owner NOT IN (SELECT owner FROM leases.owners WHERE lease_ms + {} > $1) AS is_left, \
         owner IS NOT NULL AND owner NOT IN (SELECT owner FROM leases.owners WHERE lease_ms > 0) AS is_retired, \
         resumable",
        BELIEVED.as_millis()
    )
}

/// Returns the columns of a whole record. $1 is the time.
fn columns() -> String {
    format!(
        "{}, org, user_digest, plugin, context, created_ms, expires_ms, record, seq, capsule, answers, outcome",
        stand_columns()
    )
}

/// Resumable records of owners without a lease. Reads one index entry per owner, and more only for owners whose lease
/// has expired. $1 is the time, $2 the limit.
pub(super) const ORPHANS: &str = "WITH RECURSIVE owners (owner) AS (\
    SELECT MIN(owner) FROM active_calls WHERE owner IS NOT NULL AND resumable = 1 \
    UNION ALL SELECT (SELECT MIN(a.owner) FROM active_calls a WHERE a.owner > o.owner AND a.owner IS NOT NULL \
    AND a.resumable = 1) FROM owners o WHERE o.owner IS NOT NULL) \
    SELECT a.call_id, a.owner FROM owners o CROSS JOIN active_calls a ON a.owner = o.owner \
    WHERE o.owner IS NOT NULL AND a.owner IS NOT NULL AND a.resumable = 1 AND a.expires_ms > $1 \
    AND o.owner NOT IN (SELECT owner FROM leases.owners WHERE lease_ms > $1) ORDER BY a.expires_ms LIMIT $2";
/// Returns the condition that the lease of the owner in `parameter`, if it has one, is old enough to judge other
/// owners; `now` is the parameter of the time.
pub(super) fn steady(parameter: &str, now: &str) -> String {
    format!(
        "NOT EXISTS (SELECT 1 FROM leases.owners me WHERE me.owner = {parameter} \
         AND (me.lease_ms <= {now} OR me.since_ms > {now} - {}))",
        STEADY.as_millis()
    )
}

fn unavailable(error: sqlx::Error) -> RecordError {
    RecordError::Unavailable(error.to_string())
}

#[async_trait]
impl CallRecords for SqliteCalls {
    async fn put(
        &self,
        key: &RecordKey,
        owner: OwnerId,
        state: State,
        record: Bytes,
    ) -> Result<Saved, RecordError> {
        let mut stored = self.upsert(key, owner, state, &record).await.map_err(unavailable)?;
        if !stored && self.forget_past(key.call).await.map_err(unavailable)? {
            stored = self.upsert(key, owner, state, &record).await.map_err(unavailable)?;
        }
        Ok(if stored { Saved::Stored } else { Saved::NotOwner })
    }

    async fn save_capsule(
        &self,
        call: CallId,
        owner: OwnerId,
        (seq, capsule): (u64, Bytes),
        memory: Bytes,
    ) -> Result<Saved, RecordError> {
        let changed = sqlx::query(
            "UPDATE active_calls SET seq = $1, capsule = $2, answers = $3 \
             WHERE call_id = $4 AND owner = $5 AND seq < $1",
        )
        .bind(i64::try_from(seq).unwrap_or(i64::MAX))
        .bind(capsule.as_ref())
        .bind(memory.as_ref())
        .bind(call.as_slice())
        .bind(owner.0.as_slice())
        .execute(&self.write)
        .await
        .map_err(unavailable)?;
        if changed.rows_affected() == 1 {
            return Ok(Saved::Stored);
        }
        // Only the plugin's message depends on which of the two it was.
        let row = self.stand(call).await?;
        Ok(if row.is_some_and(|row| row.owner == Some(owner)) { Saved::Stale } else { Saved::NotOwner })
    }

    async fn save_memory(&self, call: CallId, owner: OwnerId, memory: Bytes) -> Result<Saved, RecordError> {
        let changed = sqlx::query("UPDATE active_calls SET answers = $1 WHERE call_id = $2 AND owner = $3")
            .bind(memory.as_ref())
            .bind(call.as_slice())
            .bind(owner.0.as_slice())
            .execute(&self.write)
            .await
            .map_err(unavailable)?;
        Ok(if changed.rows_affected() == 1 { Saved::Stored } else { Saved::NotOwner })
    }

    async fn find(&self, call: CallId) -> Result<Option<CallRecord>, RecordError> {
        let statement = format!("SELECT {} FROM active_calls WHERE call_id = $2", columns());
        let row = sqlx::query(sqlx::AssertSqlSafe(statement))
            .bind(now_ms())
            .bind(call.as_slice())
            .fetch_optional(&self.read)
            .await
            .map_err(unavailable)?;
        row.as_ref().map(read).transpose().map_err(unavailable)
    }

    async fn stand(&self, call: CallId) -> Result<Option<Stand>, RecordError> {
        let columns = stand_columns();
        let statement = format!("SELECT {columns} FROM active_calls WHERE call_id = $2");
        let row = sqlx::query(sqlx::AssertSqlSafe(statement))
            .bind(now_ms())
            .bind(call.as_slice())
            .fetch_optional(&self.read)
            .await
            .map_err(unavailable)?;
        row.as_ref().map(read_stand).transpose().map_err(unavailable)
    }

    async fn list(&self, listing: &Listing<'_>) -> Result<Vec<(CallId, CallRecord)>, RecordError> {
        let statement = format!(
            "SELECT call_id, {} FROM active_calls WHERE principal = $2 AND server = $3 \
             AND ($4 IS NULL OR (created_ms, call_id) < ($4, $5)) AND expires_ms > $1 \
             ORDER BY created_ms DESC, call_id DESC LIMIT $6",
            columns()
        );
        let rows = sqlx::query(sqlx::AssertSqlSafe(statement))
            .bind(now_ms())
            .bind(listing.principal.to_vec())
            .bind(listing.server.to_owned())
            .bind(listing.before.map(|(created_ms, _)| created_ms))
            .bind(listing.before.map(|(_, call)| call.to_vec()))
            .bind(i64::from(listing.limit))
            .fetch_all(&self.read)
            .await
            .map_err(unavailable)?;
        let record = |row: &SqliteRow| Ok((id(row, "call_id")?, read(row)?));
        rows.iter().map(record).collect::<Result<_, sqlx::Error>>().map_err(unavailable)
    }

    async fn finish(&self, key: &RecordKey, owner: OwnerId, end: End) -> Result<Saved, RecordError> {
        let mut stored = self.upsert_ended(key, owner, &end).await.map_err(unavailable)?;
        if !stored && self.forget_past(key.call).await.map_err(unavailable)? {
            stored = self.upsert_ended(key, owner, &end).await.map_err(unavailable)?;
        }
        if !stored {
            return Ok(Saved::NotOwner);
        }
        self.make_room(key).await?;
        Ok(Saved::Stored)
    }

    async fn drop_record(&self, call: CallId, created_ms: i64, owner: OwnerId) -> Result<bool, RecordError> {
        let dropped =
            sqlx::query("DELETE FROM active_calls WHERE call_id = $1 AND owner = $2 AND created_ms = $3")
                .bind(call.as_slice())
                .bind(owner.0.as_slice())
                .bind(created_ms)
                .execute(&self.write)
                .await
                .map_err(unavailable)?;
        Ok(dropped.rows_affected() == 1)
    }

    async fn renew(&self, owner: OwnerId, lease: Duration) -> Result<Lease, RecordError> {
        let renewed = self.leases.renew(owner, lease).await.map_err(unavailable)?;
        if renewed == Lease::Lapsed {
            // A take-over that saw the lapsed lease is the current writer or was an earlier one. It has finished once
            // this write is done, which deletes nothing, so later reads see the rows that it took.
            let write = sqlx::query("DELETE FROM active_calls WHERE call_id = x''");
            write.execute(&self.write).await.map_err(unavailable)?;
        }
        Ok(renewed)
    }

    async fn retire(&self, owner: OwnerId) -> Result<(), RecordError> {
        self.leases.retire(owner).await
    }

    async fn orphans(&self, limit: u32) -> Result<Vec<Orphan>, RecordError> {
        let orphans = sqlx::query(ORPHANS).bind(now_ms()).bind(i64::from(limit));
        let rows = orphans.fetch_all(&self.read).await.map_err(unavailable)?;
        let orphan =
            |row: &SqliteRow| Ok(Orphan { call: id(row, "call_id")?, owner: OwnerId(id(row, "owner")?) });
        rows.iter().map(orphan).collect::<Result<_, sqlx::Error>>().map_err(unavailable)
    }

    async fn take(&self, orphan: &Orphan, owner: OwnerId) -> Result<bool, RecordError> {
        let statement = format!(
            "UPDATE active_calls SET owner = $1 WHERE call_id = $2 AND owner = $3 AND resumable = 1 \
             AND owner NOT IN (SELECT owner FROM leases.owners WHERE lease_ms > $4) \
             AND (owner NOT IN (SELECT owner FROM leases.owners WHERE lease_ms > 0) OR {})",
            steady("$1", "$4")
        );
        let taken = sqlx::query(sqlx::AssertSqlSafe(statement))
            .bind(owner.0.as_slice())
            .bind(orphan.call.as_slice())
            .bind(orphan.owner.0.as_slice())
            .bind(now_ms())
            .execute(&self.write)
            .await
            .map_err(unavailable)?;
        Ok(taken.rows_affected() == 1)
    }

    async fn give_up(&self, orphan: &Orphan, owner: OwnerId, keep: Duration) -> Result<bool, RecordError> {
        let now = now_ms();
        let statement = format!(
            "UPDATE active_calls SET owner = $5, resumable = 0, state = $6, updated_ms = $4, \
             expires_ms = MAX(expires_ms, $7), capsule = NULL, answers = NULL \
             WHERE call_id = $2 AND owner = $3 AND resumable = 1 \
             AND NOT EXISTS (SELECT 1 FROM leases.owners n WHERE n.owner = $8 AND n.lease_ms > $4) \
             AND owner NOT IN (SELECT owner FROM leases.owners WHERE lease_ms > $4) \
             AND (owner NOT IN (SELECT owner FROM leases.owners WHERE lease_ms > 0) OR {})",
            steady("$1", "$4")
        );
        let given_up = sqlx::query(sqlx::AssertSqlSafe(statement))
            .bind(owner.0.as_slice())
            .bind(orphan.call.as_slice())
            .bind(orphan.owner.0.as_slice())
            .bind(now)
            .bind(NOBODY.0.as_slice())
            .bind(State::Failed.as_str())
            .bind(now.saturating_add(milliseconds(keep.min(MAX_KEEP))))
            .bind(NO_ROOM.0.as_slice())
            .execute(&self.write)
            .await
            .map_err(unavailable)?;
        Ok(given_up.rows_affected() == 1)
    }
}

impl SqliteCalls {
    /// Writes the record of a running call; returns false if the row belongs to another owner or to none.
    async fn upsert(
        &self,
        key: &RecordKey,
        owner: OwnerId,
        state: State,
        record: &Bytes,
    ) -> Result<bool, sqlx::Error> {
        let changed = sqlx::query(
            "INSERT INTO active_calls (call_id, org, principal, user_digest, server, plugin, context, created_ms, \
             expires_ms, resumable, state, updated_ms, record, owner, seq) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, 0) \
             ON CONFLICT (call_id) DO UPDATE SET created_ms = excluded.created_ms, state = excluded.state, \
             updated_ms = excluded.updated_ms, expires_ms = MAX(active_calls.expires_ms, excluded.expires_ms), \
             record = CASE WHEN excluded.resumable >= active_calls.resumable THEN excluded.record \
             ELSE active_calls.record END, \
             resumable = CASE WHEN excluded.resumable = 1 THEN 1 ELSE active_calls.resumable END \
             WHERE active_calls.owner = excluded.owner",
        );
        let changed = bound(changed, key)
            .bind(state.as_str())
            .bind(now_ms())
            .bind(record.to_vec())
            .bind(owner.0.to_vec())
            .execute(&self.write)
            .await?;
        Ok(changed.rows_affected() == 1)
    }

    /// Writes the record of an ended call, under the same condition.
    async fn upsert_ended(&self, key: &RecordKey, owner: OwnerId, end: &End) -> Result<bool, sqlx::Error> {
        let now = now_ms();
        let bytes = end.record.len().saturating_add(end.outcome.len());
        let finished = sqlx::query(
            "INSERT INTO active_calls (call_id, org, principal, user_digest, server, plugin, context, created_ms, \
             expires_ms, resumable, state, updated_ms, record, outcome, bytes, seq) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, 0) \
             ON CONFLICT (call_id) DO UPDATE SET user_digest = excluded.user_digest, created_ms = excluded.created_ms, expires_ms = excluded.expires_ms, resumable = 0, \
             state = excluded.state, updated_ms = excluded.updated_ms, record = excluded.record, \
             outcome = excluded.outcome, bytes = excluded.bytes, owner = NULL, capsule = NULL, answers = NULL \
             WHERE active_calls.owner = $16",
        );
        let expires_ms = now.saturating_add(milliseconds(end.keep.min(MAX_KEEP)));
        let ended = RecordKey { expires_ms, resumes: false, ..key.clone() };
        let finished = bound(finished, &ended)
            .bind(end.state.as_str())
            .bind(now)
            .bind(end.record.to_vec())
            .bind(end.outcome.to_vec())
            .bind(i64::try_from(bytes).unwrap_or(i64::MAX))
            .bind(owner.0.to_vec())
            .execute(&self.write)
            .await?;
        Ok(finished.rows_affected() == 1)
    }

    /// Deletes the row of an expired call that no live owner runs, ahead of the sweep, because a client may reuse an id
    /// that it chose. Returns whether there was one.
    async fn forget_past(&self, call: CallId) -> Result<bool, sqlx::Error> {
        let forgotten = sqlx::query(
            "DELETE FROM active_calls WHERE call_id = $1 AND expires_ms <= $2 \
             AND (owner IS NULL OR owner NOT IN (SELECT owner FROM leases.owners WHERE lease_ms > $2))",
        )
        .bind(call.as_slice())
        .bind(now_ms())
        .execute(&self.write)
        .await?;
        Ok(forgotten.rows_affected() == 1)
    }
}

type SqliteQuery<'q> = sqlx::query::Query<'q, sqlx::Sqlite, sqlx::sqlite::SqliteArguments>;

/// Binds the fields of `key` as the first ten parameters.
fn bound<'q>(statement: SqliteQuery<'q>, key: &RecordKey) -> SqliteQuery<'q> {
    statement
        .bind(key.call.to_vec())
        .bind(key.org.clone())
        .bind(key.principal.to_vec())
        .bind(key.user.to_vec())
        .bind(key.server.clone())
        .bind(key.plugin.clone())
        .bind(key.context.clone())
        .bind(key.created_ms)
        .bind(key.expires_ms)
        .bind(i64::from(key.resumes))
}

/// Reads the status of a call.
fn read_stand(row: &SqliteRow) -> Result<Stand, sqlx::Error> {
    let resumable: i64 = row.try_get("resumable")?;
    let state: String = row.try_get("state")?;
    let owner: Option<Vec<u8>> = row.try_get("owner")?;
    Ok(Stand {
        principal: id(row, "principal")?,
        server: row.try_get("server")?,
        state: State::parse(&state)
            .ok_or_else(|| sqlx::Error::Decode(format!("`{state}` is not a state").into()))?,
        updated_ms: row.try_get("updated_ms")?,
        owner: owner.map(|_| id(row, "owner").map(OwnerId)).transpose()?,
        is_left: row.try_get("is_left")?,
        is_retired: row.try_get("is_retired")?,
        resumes: resumable != 0,
    })
}

fn read(row: &SqliteRow) -> Result<CallRecord, sqlx::Error> {
    let stand = read_stand(row)?;
    let seq: i64 = row.try_get("seq")?;
    Ok(CallRecord {
        org: row.try_get("org")?,
        principal: stand.principal,
        user: id(row, "user_digest")?,
        server: stand.server,
        plugin: row.try_get("plugin")?,
        context: row.try_get("context")?,
        state: stand.state,
        created_ms: row.try_get("created_ms")?,
        updated_ms: stand.updated_ms,
        expires_ms: row.try_get("expires_ms")?,
        owner: stand.owner,
        is_left: stand.is_left,
        is_retired: stand.is_retired,
        resumes: stand.resumes,
        record: blob(row, "record")?,
        seq: u64::try_from(seq).unwrap_or_default(),
        capsule: blob(row, "capsule")?,
        memory: blob(row, "answers")?,
        outcome: blob(row, "outcome")?,
    })
}
