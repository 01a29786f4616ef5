//! The [`CallRecords`] of several processes.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use super::{CallStatement, CallsDatabase, changes, row};
use crate::columns::Columns;
use crate::records::{
    ALONE_AFTER, BELIEVED, CallId, CallRecord, CallRecords, End, Lease, ListOrder, Listing, MAX_KEEP,
    NO_ROOM, NOBODY, Orphan, OwnerId, RecordError, RecordKey, Result, Save, Stand, State,
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
    format!("{}, r.capsule, r.memory, r.outcome, r.takeovers", listed_columns())
}

/// Returns the columns of a row `r` but those that may be large.
fn listed_columns() -> String {
    format!(
        "{}, r.org, r.user_digest, r.plugin, r.context, r.created_ms, r.expires_ms, r.record, r.seq",
        stand_columns()
    )
}

from_failure!(sqlx::Error => RecordError::Unavailable);

#[async_trait]
impl<D: CallsDatabase> CallRecords for D {
    async fn put(&self, key: &RecordKey, owner: OwnerId, state: State, record: Bytes) -> Result<Save> {
        Ok(save(self, key.call, || running(key, owner, state, &record)).await?)
    }

    async fn save_capsule(
        &self,
        call: CallId,
        owner: OwnerId,
        (seq, capsule): (u64, Bytes),
        memory: Bytes,
    ) -> Result<Save> {
        let statement = "UPDATE call_records SET seq = $1, capsule = $2, memory = $3 \
             WHERE call_id = $4 AND owner = $5 AND seq < $1";
        let seq = i64::try_from(seq).unwrap_or(i64::MAX);
        let save = statement!(statement, seq, &capsule, &memory, call, owner.0);
        if changes(self, save).await? {
            return Ok(Save::Stored);
        }
        // Only the plugin's message depends on which of the two it was.
        let row = self.stand(call).await?;
        Ok(if row.is_some_and(|row| row.owner == Some(owner)) { Save::Stale } else { Save::NotOwner })
    }

    async fn save_memory(&self, call: CallId, owner: OwnerId, memory: Bytes) -> Result<Save> {
        let statement = "UPDATE call_records SET memory = $1 WHERE call_id = $2 AND owner = $3";
        let save = statement!(statement, &memory, call, owner.0);
        Ok(if changes(self, save).await? { Save::Stored } else { Save::NotOwner })
    }

    async fn find(&self, call: CallId) -> Result<Option<CallRecord>> {
        let statement = format!("SELECT {} FROM call_records r WHERE r.call_id = $1", columns());
        let row = row(self, CallStatement::new(statement).bind(call)).await?;
        Ok(row.as_ref().map(read).transpose()?)
    }

    async fn stand(&self, call: CallId) -> Result<Option<Stand>> {
        let statement = format!("SELECT {} FROM call_records r WHERE r.call_id = $1", stand_columns());
        let row = row(self, CallStatement::new(statement).bind(call)).await?;
        Ok(row.as_ref().map(read_stand).transpose()?)
    }

    async fn list(&self, listing: &Listing<'_>) -> Result<Vec<(CallId, CallRecord)>> {
        let Listing { principal, server, order, before, limit } = *listing;
        let time = match order {
            ListOrder::Created => "created_ms",
            ListOrder::Updated => "updated_ms",
        };
        // The ids are sorted first: without an index, all that is selected would be.
        let statement = format!(
            "SELECT r.call_id, {}, CAST(NULL AS BYTEA) AS capsule, CAST(NULL AS BYTEA) AS memory, \
             CAST(NULL AS BYTEA) AS outcome, CAST(0 AS BIGINT) AS takeovers FROM call_records r WHERE r.call_id IN \
             (SELECT i.call_id FROM call_records i WHERE i.principal = $1 AND i.server = $2 \
             AND ($3 IS NULL OR (i.{time}, i.call_id) < ($3, $4)) AND i.expires_ms > now_ms() \
             ORDER BY i.{time} DESC, i.call_id DESC LIMIT $5) ORDER BY r.{time} DESC, r.call_id DESC",
            listed_columns()
        );
        let (time_ms, call) = before.unzip();
        let rows = self.rows(statement!(statement, principal, server, time_ms, call, limit)).await?;
        let record = |row: &D::Row| Ok((row.id("call_id")?, read(row)?));
        Ok(rows.iter().map(record).collect::<sqlx::Result<_>>()?)
    }

    async fn finish(&self, key: &RecordKey, owner: OwnerId, end: End) -> Result<Save> {
        let saved = save(self, key.call, || ended(key, owner, &end)).await?;
        if saved == Save::Stored {
            self.make_room(key);
        }
        Ok(saved)
    }

    async fn drop_record(&self, call: CallId, created_ms: i64, owner: OwnerId) -> Result<bool> {
        let statement = "DELETE FROM call_records WHERE call_id = $1 AND owner = $2 AND created_ms = $3";
        Ok(changes(self, statement!(statement, call, owner.0, created_ms)).await?)
    }

    async fn renew(&self, owner: OwnerId, lease: Duration) -> Result<Lease> {
        Ok(self.renew_lease(owner, lease).await?)
    }

    async fn is_alone(&self, owner: OwnerId) -> Result<bool> {
        let statement = "SELECT COUNT(*) AS others FROM gateways g \
             WHERE g.owner <> $1 AND g.owner <> $2 AND g.lease_ms > 0 AND g.lease_ms + $3 > now_ms()";
        let counted = row(self, statement!(statement, owner.0, NO_ROOM.0, ALONE_AFTER)).await?;
        Ok(counted.map(|counted| counted.number("others")).transpose()? == Some(0))
    }

    async fn owners(&self, calls: &[CallId]) -> Result<Vec<(CallId, Option<OwnerId>)>> {
        Ok(self.find_owners(calls).await?)
    }

    async fn continued(&self, calls: &[CallId]) -> Result<Vec<CallId>> {
        Ok(self.find_continued(calls).await?)
    }

    async fn retire(&self, owner: OwnerId) -> Result<()> {
        Ok(self.end_lease(owner).await?)
    }

    async fn orphans(&self, limit: u32) -> Result<Vec<Orphan>> {
        let rows = self.rows(CallStatement::new(D::ORPHANS).bind(limit).judging_leases()).await?;
        let orphan = |row: &D::Row| Ok(Orphan { call: row.id("call_id")?, owner: OwnerId(row.id("owner")?) });
        Ok(rows.iter().map(orphan).collect::<sqlx::Result<_>>()?)
    }

    async fn take(&self, orphan: &Orphan, owner: OwnerId) -> Result<bool> {
        let take = statement!(
            D::of_orphan("owner = $1, takeovers = r.takeovers + 1"),
            owner.0,
            orphan.call,
            orphan.owner.0
        );
        Ok(changes(self, take.judging_leases()).await?)
    }

    async fn give_up(&self, orphan: &Orphan, owner: OwnerId, keep: Duration) -> Result<bool> {
        let given_up = D::of_orphan(
            "owner = $4, resumable = FALSE, state = $5, updated_ms = now_ms(), \
             expires_ms = GREATEST(r.expires_ms, now_ms() + $6), capsule = NULL, memory = NULL",
        );
        let statement = format!(
            "{given_up} AND NOT EXISTS (SELECT 1 FROM gateways n WHERE n.owner = $7 AND n.lease_ms > {})",
            D::CLOCK
        );
        let Orphan { call, owner: former } = *orphan;
        let failed = State::Failed.as_str();
        let give_up =
            statement!(statement, owner.0, call, former.0, NOBODY.0, failed, keep.min(MAX_KEEP), NO_ROOM.0);
        Ok(changes(self, give_up.judging_leases()).await?)
    }

    async fn room_made(&self) {
        CallsDatabase::room_made(self).await;
    }
}

/// Writes a record. If the row belongs to another owner or to none and has expired, deletes it first, ahead of the
/// sweep, because a client may reuse an id that it chose.
async fn save<D: CallsDatabase>(
    database: &D,
    call: CallId,
    write: impl Fn() -> CallStatement + Send + Sync,
) -> sqlx::Result<Save> {
    let is_stored = changes(database, write()).await?
        || (changes(database, forget_past(call)).await? && changes(database, write()).await?);
    Ok(if is_stored { Save::Stored } else { Save::NotOwner })
}

/// Returns the upsert of the record of a running call, which does not change a row of another owner or of none.
fn running(key: &RecordKey, owner: OwnerId, state: State, record: &Bytes) -> CallStatement {
    let statement = "INSERT INTO call_records AS r (call_id, org, principal, user_digest, server, plugin, context, \
         created_ms, resumable, state, updated_ms, expires_ms, record, owner, seq, bytes) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, now_ms(), $11, $12, $13, 0, 0) \
         ON CONFLICT (call_id) DO UPDATE SET created_ms = excluded.created_ms, state = excluded.state, \
         updated_ms = excluded.updated_ms, expires_ms = GREATEST(r.expires_ms, excluded.expires_ms), \
         record = CASE WHEN excluded.resumable OR NOT r.resumable THEN excluded.record ELSE r.record END, \
         resumable = excluded.resumable OR r.resumable \
         WHERE r.owner = excluded.owner";
    let running = bound(statement, key).bind(key.resumes).bind(state.as_str()).bind(key.expires_ms);
    running.bind(record).bind(owner.0)
}

/// Returns the upsert of the record of an ended call, under the same condition.
fn ended(key: &RecordKey, owner: OwnerId, end: &End) -> CallStatement {
    let bytes = end.record.len().saturating_add(end.outcome.len());
    let statement = "INSERT INTO call_records AS r (call_id, org, principal, user_digest, server, plugin, context, \
         created_ms, resumable, state, updated_ms, expires_ms, record, outcome, bytes, seq) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, FALSE, $9, now_ms(), now_ms() + $10, $11, $12, $13, 0) \
         ON CONFLICT (call_id) DO UPDATE SET user_digest = excluded.user_digest, created_ms = excluded.created_ms, \
         expires_ms = excluded.expires_ms, resumable = FALSE, state = excluded.state, \
         updated_ms = excluded.updated_ms, record = excluded.record, outcome = excluded.outcome, \
         bytes = excluded.bytes, owner = NULL, capsule = NULL, memory = NULL \
         WHERE r.owner = $14";
    let ended = bound(statement, key).bind(end.state.as_str()).bind(end.keep.min(MAX_KEEP));
    let ended = ended.bind(&end.record).bind(&end.outcome).bind(i64::try_from(bytes).unwrap_or(i64::MAX));
    ended.bind(owner.0)
}

/// Returns the deletion of an expired call that no live owner runs.
fn forget_past(call: CallId) -> CallStatement {
    let statement = "DELETE FROM call_records AS r WHERE r.call_id = $1 AND r.expires_ms <= now_ms() \
         AND (r.owner IS NULL OR NOT EXISTS \
         (SELECT 1 FROM gateways g WHERE g.owner = r.owner AND g.lease_ms > now_ms()))";
    CallStatement::new(statement).bind(call)
}

/// Binds the identity of the call in `key` as the first eight parameters.
fn bound(statement: &str, key: &RecordKey) -> CallStatement {
    let [org, server, plugin, context] =
        [&key.org, &key.server, &key.plugin, &key.context].map(String::as_str);
    statement!(statement, key.call, org, key.principal, key.user, server, plugin, context, key.created_ms)
}

fn read_stand(row: &impl Columns) -> sqlx::Result<Stand> {
    let state = row.text("state")?;
    Ok(Stand {
        principal: row.id("principal")?,
        server: row.text("server")?,
        state: State::parse(&state)
            .ok_or_else(|| sqlx::Error::Decode(format!("`{state}` is not a state").into()))?,
        updated_ms: row.number("updated_ms")?,
        owner: row.optional_id("owner")?.map(OwnerId),
        is_left: row.flag("is_left")?,
        is_retired: row.flag("is_retired")?,
        resumes: row.flag("resumable")?,
    })
}

fn read(row: &impl Columns) -> sqlx::Result<CallRecord> {
    let stand = read_stand(row)?;
    Ok(CallRecord {
        org: row.text("org")?,
        principal: stand.principal,
        user: row.id("user_digest")?,
        server: stand.server,
        plugin: row.text("plugin")?,
        context: row.text("context")?,
        state: stand.state,
        created_ms: row.number("created_ms")?,
        updated_ms: stand.updated_ms,
        expires_ms: row.number("expires_ms")?,
        owner: stand.owner,
        is_left: stand.is_left,
        is_retired: stand.is_retired,
        resumes: stand.resumes,
        takeovers: u32::try_from(row.number("takeovers")?).unwrap_or(u32::MAX),
        record: row.blob("record")?,
        seq: u64::try_from(row.number("seq")?).unwrap_or_default(),
        capsule: row.blob("capsule")?,
        memory: row.blob("memory")?,
        outcome: row.blob("outcome")?,
    })
}
