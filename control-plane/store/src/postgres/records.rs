//! [`CallRecords`] on PostgreSQL, and the leases of the gateways.
//!
//! Keeps true: a lease is judged by the database's clock while its row is locked, so that a gateway whose renewal
//! reports that the lease had held has lost no record, regardless of other gateways' clocks; leases have connections of
//! their own, so that no load delays a renewal; a gateway whose own lease has just lapsed takes over nothing.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::{Postgres, Row};

use super::PostgresCalls;
use crate::clock::milliseconds;
use crate::columns::{blob, id};
use crate::records::{
    BELIEVED, CallId, CallRecord, CallRecords, End, Lease, Listing, MAX_KEEP, NO_ROOM, NOBODY, Orphan,
    OwnerId, RecordError, RecordKey, STEADY, Saved, Stand, State,
};

/// Returns the columns for the status of the call in row `r`.
fn stand_columns() -> String {
    format!(
        "r.principal, r.server, r.state, r.updated_ms, r.owner, r.owner IS NOT NULL AND NOT EXISTS \
         (SELECT 1 FROM gateways g WHERE g.owner = r.owner AND g.lease_ms + {} > now_ms()) AS is_left, \
         r.owner IS NOT NULL AND NOT EXISTS \
         (SELECT 1 FROM gateways g WHERE g.owner = r.owner AND g.lease_ms > 0) AS is_retired, \
         r.resumable",
        BELIEVED.as_millis()
    )
}

/// Returns all columns of a row `r`.
fn columns() -> String {
    format!(
        "{}, r.org, r.user_digest, r.plugin, r.context, r.created_ms, r.expires_ms, \
         r.record, r.seq, r.capsule, r.memory, r.outcome",
        stand_columns()
    )
}

/// Condition that the lease of the owner of row `r` is valid.
const LIVES: &str = "EXISTS (SELECT 1 FROM gateways g WHERE g.owner = r.owner AND g.lease_ms > now_ms())";
/// Resumable records of owners without a lease. Reads one index entry per owner, and more only for owners whose lease
/// has expired. $1 is the limit. The owner is compared as a range: with an equality PostgreSQL may instead read all
/// records in the order of their expiry and filter them.
const ORPHANS: &str = "WITH RECURSIVE owners AS (\
    (SELECT owner FROM call_records WHERE owner IS NOT NULL AND resumable ORDER BY owner LIMIT 1) \
    UNION ALL SELECT (SELECT r.owner FROM call_records r WHERE r.owner > o.owner AND r.resumable \
    ORDER BY r.owner LIMIT 1) FROM owners o WHERE o.owner IS NOT NULL), \
    gone AS MATERIALIZED (SELECT o.owner FROM owners o WHERE o.owner IS NOT NULL \
    AND NOT EXISTS (SELECT 1 FROM gateways g WHERE g.owner = o.owner AND g.lease_ms > now_ms())) \
    SELECT r.call_id, g.owner FROM gone g CROSS JOIN LATERAL \
    (SELECT r.call_id, r.expires_ms FROM call_records r WHERE r.owner >= g.owner AND r.owner <= g.owner AND r.resumable \
    AND r.expires_ms > now_ms() ORDER BY r.owner, r.expires_ms LIMIT $1) r \
    ORDER BY r.expires_ms LIMIT $1";
/// The current time. Unlike the start of the statement, it is right after a wait for a lock.
const CLOCK: &str = "CAST(FLOOR(EXTRACT(EPOCH FROM clock_timestamp()) * 1000) AS BIGINT)";

/// Returns the condition that the lease of the owner in `parameter`, if it has one, is old enough to judge other
/// owners.
pub(super) fn steady(parameter: &str) -> String {
    format!(
        "NOT EXISTS (SELECT 1 FROM gateways me WHERE me.owner = {parameter} \
         AND (me.lease_ms <= now_ms() OR me.since_ms > now_ms() - {}))",
        STEADY.as_millis()
    )
}

/// Returns the update of an orphan's row that the gateway in $1 may take over; $2 is its call, $3 its owner. A single
/// statement, so that a process that freezes holds no lock. A renewal in progress finishes first, and the next one
/// waits until this has ended.
fn of_orphan(sets: &str) -> String {
    format!(
        "WITH former AS MATERIALIZED (SELECT lease_ms FROM gateways WHERE owner = $3 FOR SHARE), \
         lapsed AS (SELECT COALESCE(MAX(lease_ms), 0) AS lease_ms FROM former) \
         UPDATE call_records AS r SET {sets} FROM lapsed WHERE r.call_id = $2 AND r.owner = $3 \
         AND r.resumable AND lapsed.lease_ms <= {CLOCK} AND (lapsed.lease_ms = 0 OR {})",
        steady("$1")
    )
}

type PgQuery<'q> = sqlx::query::Query<'q, Postgres, PgArguments>;

fn unavailable(error: sqlx::Error) -> RecordError {
    RecordError::Unavailable(error.to_string())
}

#[async_trait]
impl CallRecords for PostgresCalls {
    async fn put(
        &self,
        key: &RecordKey,
        owner: OwnerId,
        state: State,
        record: Bytes,
    ) -> Result<Saved, RecordError> {
        let mut stored = self.upsert(key, owner, state, &record).await?;
        if !stored && self.forget_past(key.call).await? {
            stored = self.upsert(key, owner, state, &record).await?;
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
        let saved = sqlx::query(
            "UPDATE call_records SET seq = $1, capsule = $2, memory = $3 \
             WHERE call_id = $4 AND owner = $5 AND seq < $1",
        )
        .bind(i64::try_from(seq).unwrap_or(i64::MAX))
        .bind(capsule.to_vec())
        .bind(memory.to_vec())
        .bind(call.to_vec())
        .bind(owner.0.to_vec());
        if self.changes(saved).await? {
            return Ok(Saved::Stored);
        }
        // Only the plugin's message depends on which of the two it was.
        let row = self.stand(call).await?;
        Ok(if row.is_some_and(|row| row.owner == Some(owner)) { Saved::Stale } else { Saved::NotOwner })
    }

    async fn save_memory(&self, call: CallId, owner: OwnerId, memory: Bytes) -> Result<Saved, RecordError> {
        let saved = sqlx::query("UPDATE call_records SET memory = $1 WHERE call_id = $2 AND owner = $3")
            .bind(memory.to_vec())
            .bind(call.to_vec())
            .bind(owner.0.to_vec());
        Ok(if self.changes(saved).await? { Saved::Stored } else { Saved::NotOwner })
    }

    async fn find(&self, call: CallId) -> Result<Option<CallRecord>, RecordError> {
        let statement = format!("SELECT {} FROM call_records r WHERE r.call_id = $1", columns());
        let row = sqlx::query(sqlx::AssertSqlSafe(statement))
            .bind(call.to_vec())
            .fetch_optional(&self.pool)
            .await
            .map_err(unavailable)?;
        row.as_ref().map(read).transpose().map_err(unavailable)
    }

    async fn stand(&self, call: CallId) -> Result<Option<Stand>, RecordError> {
        let statement = format!("SELECT {} FROM call_records r WHERE r.call_id = $1", stand_columns());
        let row = sqlx::query(sqlx::AssertSqlSafe(statement))
            .bind(call.to_vec())
            .fetch_optional(&self.pool)
            .await
            .map_err(unavailable)?;
        row.as_ref().map(read_stand).transpose().map_err(unavailable)
    }

    async fn list(&self, listing: &Listing<'_>) -> Result<Vec<(CallId, CallRecord)>, RecordError> {
        let statement = format!(
            "SELECT r.call_id, {} FROM call_records r WHERE r.principal = $1 AND r.server = $2 \
             AND ($3 IS NULL OR (r.created_ms, r.call_id) < ($3, $4)) AND r.expires_ms > now_ms() \
             ORDER BY r.created_ms DESC, r.call_id DESC LIMIT $5",
            columns()
        );
        let rows = sqlx::query(sqlx::AssertSqlSafe(statement))
            .bind(listing.principal.to_vec())
            .bind(listing.server.to_owned())
            .bind(listing.before.map(|(created_ms, _)| created_ms))
            .bind(listing.before.map(|(_, call)| call.to_vec()))
            .bind(i64::from(listing.limit))
            .fetch_all(&self.pool)
            .await
            .map_err(unavailable)?;
        let record = |row: &PgRow| Ok((id(row, "call_id")?, read(row)?));
        rows.iter().map(record).collect::<Result<_, sqlx::Error>>().map_err(unavailable)
    }

    async fn finish(&self, key: &RecordKey, owner: OwnerId, end: End) -> Result<Saved, RecordError> {
        let mut stored = self.upsert_ended(key, owner, &end).await?;
        if !stored && self.forget_past(key.call).await? {
            stored = self.upsert_ended(key, owner, &end).await?;
        }
        if !stored {
            return Ok(Saved::NotOwner);
        }
        self.make_room_later(key);
        Ok(Saved::Stored)
    }

    async fn drop_record(&self, call: CallId, created_ms: i64, owner: OwnerId) -> Result<bool, RecordError> {
        let dropped =
            sqlx::query("DELETE FROM call_records WHERE call_id = $1 AND owner = $2 AND created_ms = $3")
                .bind(call.to_vec())
                .bind(owner.0.to_vec())
                .bind(created_ms);
        self.changes(dropped).await
    }

    async fn renew(&self, owner: OwnerId, lease: Duration) -> Result<Lease, RecordError> {
        // A process that takes over a record of this owner holds the row until it has it. The row is locked before the
        // values are computed, so they are as of a time after that.
        let statement = format!(
            "INSERT INTO gateways AS g (owner, lease_ms, since_ms, held) VALUES ($1, {CLOCK} + $2, {CLOCK}, TRUE) \
             ON CONFLICT (owner) DO UPDATE SET lease_ms = {CLOCK} + $2, held = g.lease_ms > {CLOCK}, \
             since_ms = CASE WHEN g.lease_ms > {CLOCK} THEN LEAST(g.since_ms, {CLOCK}) ELSE {CLOCK} END \
             WHERE g.lease_ms > 0 RETURNING g.held"
        );
        let renewed = sqlx::query_scalar(sqlx::AssertSqlSafe(statement))
            .bind(owner.0.to_vec())
            .bind(milliseconds(lease))
            .fetch_optional(&self.leases);
        let held: Option<bool> = self.in_time(renewed).await.map_err(unavailable)?;
        Ok(if held == Some(true) { Lease::Held } else { Lease::Lapsed })
    }

    async fn owners(&self, calls: &[CallId]) -> Result<Vec<(CallId, Option<OwnerId>)>, RecordError> {
        let ids: Vec<Vec<u8>> = calls.iter().map(|call| call.to_vec()).collect();
        let found = sqlx::query("SELECT call_id, owner FROM call_records WHERE call_id = ANY($1)").bind(ids);
        let rows = self.in_time(found.fetch_all(&self.leases)).await.map_err(unavailable)?;
        let owner = |row: &PgRow| {
            let owner: Option<Vec<u8>> = row.try_get("owner")?;
            Ok((id(row, "call_id")?, owner.map(|_| id(row, "owner").map(OwnerId)).transpose()?))
        };
        rows.iter().map(owner).collect::<Result<_, sqlx::Error>>().map_err(unavailable)
    }

    async fn retire(&self, owner: OwnerId) -> Result<(), RecordError> {
        // The row stays for as long as the owner may hold keys.
        let statement =
            format!("UPDATE gateways SET lease_ms = 0, since_ms = {CLOCK}, held = FALSE WHERE owner = $1");
        let retired = sqlx::query(sqlx::AssertSqlSafe(statement)).bind(owner.0.to_vec());
        self.in_time(retired.execute(&self.leases)).await.map(drop).map_err(unavailable)
    }

    async fn orphans(&self, limit: u32) -> Result<Vec<Orphan>, RecordError> {
        let orphans = sqlx::query(ORPHANS).bind(i64::from(limit));
        let rows = self.in_time(orphans.fetch_all(&self.leases)).await.map_err(unavailable)?;
        let orphan =
            |row: &PgRow| Ok(Orphan { call: id(row, "call_id")?, owner: OwnerId(id(row, "owner")?) });
        rows.iter().map(orphan).collect::<Result<_, sqlx::Error>>().map_err(unavailable)
    }

    async fn take(&self, orphan: &Orphan, owner: OwnerId) -> Result<bool, RecordError> {
        let statement = of_orphan("owner = $1");
        let taken = sqlx::query(sqlx::AssertSqlSafe(statement))
            .bind(owner.0.to_vec())
            .bind(orphan.call.to_vec())
            .bind(orphan.owner.0.to_vec());
        let taken = self.in_time(taken.execute(&self.leases)).await.map_err(unavailable)?;
        Ok(taken.rows_affected() == 1)
    }

    async fn give_up(&self, orphan: &Orphan, owner: OwnerId, keep: Duration) -> Result<bool, RecordError> {
        let given_up = of_orphan(
            "owner = $4, resumable = FALSE, state = $5, updated_ms = now_ms(), \
             expires_ms = GREATEST(r.expires_ms, now_ms() + $6), capsule = NULL, memory = NULL",
        );
        let statement = format!(
            "{given_up} AND NOT EXISTS (SELECT 1 FROM gateways n WHERE n.owner = $7 AND n.lease_ms > {CLOCK})"
        );
        let given_up = sqlx::query(sqlx::AssertSqlSafe(statement))
            .bind(owner.0.to_vec())
            .bind(orphan.call.to_vec())
            .bind(orphan.owner.0.to_vec())
            .bind(NOBODY.0.to_vec())
            .bind(State::Failed.as_str())
            .bind(milliseconds(keep.min(MAX_KEEP)))
            .bind(NO_ROOM.0.to_vec());
        let given_up = self.in_time(given_up.execute(&self.leases)).await.map_err(unavailable)?;
        Ok(given_up.rows_affected() == 1)
    }

    async fn room_made(&self) {
        self.making_room.close();
        self.making_room.wait().await;
        self.making_room.reopen();
    }
}

impl PostgresCalls {
    /// Runs a statement; returns whether it changed its row.
    async fn changes(&self, statement: PgQuery<'_>) -> Result<bool, RecordError> {
        let changed = statement.execute(&self.pool).await.map_err(unavailable)?;
        Ok(changed.rows_affected() == 1)
    }

    /// Writes the record of a running call; returns false if the row belongs to another owner or to none.
    async fn upsert(
        &self,
        key: &RecordKey,
        owner: OwnerId,
        state: State,
        record: &Bytes,
    ) -> Result<bool, RecordError> {
        let upsert = sqlx::query(
            "INSERT INTO call_records AS r (call_id, org, principal, user_digest, server, plugin, context, \
             created_ms, resumable, state, updated_ms, expires_ms, record, owner, seq, bytes) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, now_ms(), $11, $12, $13, 0, 0) \
             ON CONFLICT (call_id) DO UPDATE SET created_ms = excluded.created_ms, state = excluded.state, \
             updated_ms = excluded.updated_ms, expires_ms = GREATEST(r.expires_ms, excluded.expires_ms), \
             record = CASE WHEN excluded.resumable OR NOT r.resumable THEN excluded.record ELSE r.record END, \
             resumable = excluded.resumable OR r.resumable \
             WHERE r.owner = excluded.owner",
        );
        let upsert = bound(upsert, key)
            .bind(key.resumes)
            .bind(state.as_str())
            .bind(key.expires_ms)
            .bind(record.to_vec())
            .bind(owner.0.to_vec());
        self.changes(upsert).await
    }

    /// Writes the record of an ended call, under the same condition.
    async fn upsert_ended(&self, key: &RecordKey, owner: OwnerId, end: &End) -> Result<bool, RecordError> {
        let bytes = end.record.len().saturating_add(end.outcome.len());
        let upsert = sqlx::query(
            "INSERT INTO call_records AS r (call_id, org, principal, user_digest, server, plugin, context, \
             created_ms, resumable, state, updated_ms, expires_ms, record, outcome, bytes, seq) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, FALSE, $9, now_ms(), now_ms() + $10, $11, $12, $13, 0) \
             ON CONFLICT (call_id) DO UPDATE SET user_digest = excluded.user_digest, created_ms = excluded.created_ms, expires_ms = excluded.expires_ms, \
             resumable = FALSE, state = excluded.state, updated_ms = excluded.updated_ms, record = excluded.record, \
             outcome = excluded.outcome, bytes = excluded.bytes, owner = NULL, capsule = NULL, memory = NULL \
             WHERE r.owner = $14",
        );
        let upsert = bound(upsert, key)
            .bind(end.state.as_str())
            .bind(milliseconds(end.keep.min(MAX_KEEP)))
            .bind(end.record.to_vec())
            .bind(end.outcome.to_vec())
            .bind(i64::try_from(bytes).unwrap_or(i64::MAX))
            .bind(owner.0.to_vec());
        self.changes(upsert).await
    }

    /// Deletes the row of an expired call that no live owner runs, ahead of the sweep, because a client may reuse an id
    /// that it chose. Returns whether there was one.
    async fn forget_past(&self, call: CallId) -> Result<bool, RecordError> {
        let statement = format!(
            "DELETE FROM call_records AS r WHERE r.call_id = $1 AND r.expires_ms <= now_ms() \
             AND (r.owner IS NULL OR NOT {LIVES})"
        );
        self.changes(sqlx::query(sqlx::AssertSqlSafe(statement)).bind(call.to_vec())).await
    }
}

/// Binds the identity of the call in `key` as the first eight parameters.
fn bound<'q>(statement: PgQuery<'q>, key: &RecordKey) -> PgQuery<'q> {
    statement
        .bind(key.call.to_vec())
        .bind(key.org.clone())
        .bind(key.principal.to_vec())
        .bind(key.user.to_vec())
        .bind(key.server.clone())
        .bind(key.plugin.clone())
        .bind(key.context.clone())
        .bind(key.created_ms)
}

fn read_stand(row: &PgRow) -> Result<Stand, sqlx::Error> {
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
        resumes: row.try_get("resumable")?,
    })
}

fn read(row: &PgRow) -> Result<CallRecord, sqlx::Error> {
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
        memory: blob(row, "memory")?,
        outcome: blob(row, "outcome")?,
    })
}
