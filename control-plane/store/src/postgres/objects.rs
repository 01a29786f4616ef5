//! Rows of the objects in an object store.
//!
//! Owns: quotas, the index of objects, and the list of those to delete. Keeps true: a quota is enforced, for all
//! processes on this database, by the statement that reserves capacity; an object has a row before its bytes are in the
//! store and until they are gone; one statement deletes a row and releases its capacity.

use std::time::Duration;

use sqlx::PgPool;
use sqlx::postgres::PgRow;

use super::{Postgres, within};
use crate::clock::milliseconds;
use crate::columns::Columns;

/// Time without progress after which the writer of an object is considered gone.
const PATIENCE: Duration = Duration::from_secs(2 * 3_600);
/// Time within which a deletion must complete before another process repeats it.
const DELETED_WITHIN: Duration = Duration::from_secs(60);

/// Name of an object in the store: random, so that no name is ever reused.
pub(crate) type ObjectId = [u8; 16];

/// Kind of objects; the numbers are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Artifact = 1,
    Package = 2,
}

/// Quota of one holder.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ObjectQuota {
    pub bytes: u64,
    pub objects: u64,
}

/// Objects of one kind.
#[derive(Clone)]
pub(crate) struct Objects {
    pool: PgPool,
    longest: Duration,
    kind: Kind,
    quota: ObjectQuota,
}

/// The outcome of a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reservation {
    Taken,
    Full,
    /// The object is no longer being written.
    Gone,
}

/// The outcome of making an object visible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ShowOutcome {
    There,
    /// Another object has the name.
    Known,
    /// The object is no longer being written.
    Gone,
}

/// Record of an object whose bytes are complete.
#[derive(Clone, Debug)]
pub(crate) struct StoredObject {
    pub object: ObjectId,
    pub size: u64,
    pub sha256: Vec<u8>,
    pub description: String,
}

impl Postgres {
    pub(crate) fn objects(&self, kind: Kind, quota: ObjectQuota) -> Objects {
        Objects { pool: self.pool.clone(), longest: self.longest, kind, quota }
    }
}

impl Objects {
    pub(crate) fn quota(&self) -> ObjectQuota {
        self.quota
    }

    /// Starts an object and charges `counted` bytes; returns `false` if the quota is used up.
    pub(crate) async fn begin(&self, object: ObjectId, holder: &str, counted: u64) -> sqlx::Result<bool> {
        if counted > self.quota.bytes || self.quota.objects == 0 {
            return Ok(false);
        }
        let begun = "WITH room AS (INSERT INTO object_usage AS u (kind, holder, objects, bytes) VALUES ($2, $3, 1, $4) \
             ON CONFLICT (kind, holder) DO UPDATE SET objects = u.objects + 1, bytes = u.bytes + excluded.bytes \
             WHERE u.objects + 1 <= $5 AND u.bytes + excluded.bytes <= $6 RETURNING 1) \
             INSERT INTO objects (object, kind, holder, state, counted, until_ms) \
             SELECT $1, $2, $3, 0, $4, now_ms() + $7 FROM room";
        let most_objects = signed(self.quota.objects);
        let most_bytes = signed(self.quota.bytes);
        let begun = query!(begun, object.to_vec(), self.kind as i64, holder, signed(counted));
        let begun = begun.bind(most_objects).bind(most_bytes).bind(milliseconds(PATIENCE));
        Ok(within(self.longest, begun.execute(&self.pool)).await?.rows_affected() == 1)
    }

    /// Reserves more bytes for an object that is being written.
    pub(crate) async fn take(&self, object: ObjectId, bytes: u64) -> sqlx::Result<Reservation> {
        let taken = "WITH mine AS (SELECT holder FROM objects WHERE object = $1 AND state = 0 FOR UPDATE), \
             room AS (UPDATE object_usage u SET bytes = u.bytes + $3 FROM mine \
             WHERE u.kind = $2 AND u.holder = mine.holder AND u.bytes + $3 <= $4 RETURNING 1), \
             taken AS (UPDATE objects SET counted = counted + $3, until_ms = now_ms() + $5 \
             WHERE object = $1 AND EXISTS (SELECT 1 FROM room) RETURNING 1) \
             SELECT EXISTS (SELECT 1 FROM mine) AS mine, EXISTS (SELECT 1 FROM taken) AS taken";
        let taken = query!(taken, object.to_vec(), self.kind as i64, signed(bytes), signed(self.quota.bytes));
        let taken = taken.bind(milliseconds(PATIENCE));
        let row = within(self.longest, taken.fetch_one(&self.pool)).await?;
        Ok(match (row.flag("mine")?, row.flag("taken")?) {
            (_, true) => Reservation::Taken,
            (true, false) => Reservation::Full,
            (false, false) => Reservation::Gone,
        })
    }

    /// Makes an object visible whose bytes are in the store, until a time.
    pub(crate) async fn show(
        &self,
        name: &str,
        found: &StoredObject,
        until_ms: i64,
    ) -> sqlx::Result<ShowOutcome> {
        let shown = "UPDATE objects SET state = 1, name = $2, size = $3, sha256 = $4, description = $5, until_ms = $6 \
             WHERE object = $1 AND state = 0";
        let StoredObject { object, size, sha256, description } = found;
        let shown = query!(shown, object.to_vec(), name, signed(*size), sha256, description, until_ms);
        match within(self.longest, shown.execute(&self.pool)).await {
            Ok(done) if done.rows_affected() == 1 => Ok(ShowOutcome::There),
            Ok(_) => Ok(ShowOutcome::Gone),
            Err(sqlx::Error::Database(error)) if error.is_unique_violation() => Ok(ShowOutcome::Known),
            Err(error) => Err(error),
        }
    }

    /// Returns a visible object of one holder or of any.
    pub(crate) async fn find(&self, holder: Option<&str>, name: &str) -> sqlx::Result<Option<StoredObject>> {
        let found = "SELECT object, size, sha256, description FROM objects \
             WHERE kind = $1 AND name = $2 AND ($3::TEXT IS NULL OR holder = $3) AND state = 1 AND until_ms > now_ms() \
             ORDER BY holder LIMIT 1";
        let found = query!(found, self.kind as i64, name, holder);
        let row = within(self.longest, found.fetch_optional(&self.pool)).await?;
        row.as_ref().map(found_in).transpose()
    }

    /// Returns the descriptions of all visible objects of one holder or of all.
    pub(crate) async fn list(&self, holder: Option<&str>) -> sqlx::Result<Vec<String>> {
        let all = sqlx::query_scalar(
            "SELECT description FROM objects \
             WHERE kind = $1 AND ($2::TEXT IS NULL OR holder = $2) AND state = 1 AND until_ms > now_ms()",
        )
        .bind(self.kind as i64)
        .bind(holder);
        within(self.longest, all.fetch_all(&self.pool)).await
    }

    /// Hides an object; the caller must delete its bytes.
    pub(crate) async fn hide(&self, holder: &str, name: &str) -> sqlx::Result<Option<ObjectId>> {
        let hidden = "UPDATE objects SET state = 2, until_ms = now_ms() + $4 \
             WHERE kind = $1 AND name = $2 AND holder = $3 AND state = 1 RETURNING object";
        let hidden = query!(hidden, self.kind as i64, name, holder, milliseconds(DELETED_WITHIN));
        let row = within(self.longest, hidden.fetch_optional(&self.pool)).await?;
        row.map(|row| row.id("object")).transpose()
    }

    /// Abandons an object that is being written and whose bytes may still reach the store; a sweep deletes them after a
    /// minute.
    pub(crate) async fn give_up(&self, object: ObjectId) -> sqlx::Result<()> {
        let given_up =
            "UPDATE objects SET state = 2, until_ms = now_ms() + $2 WHERE object = $1 AND state = 0";
        let given_up = query!(given_up, object.to_vec(), milliseconds(DELETED_WITHIN));
        within(self.longest, given_up.execute(&self.pool)).await.map(drop)
    }

    /// Deletes the row of an object whose bytes are not in the store, and releases its capacity. A visible object
    /// stays.
    pub(crate) async fn forget(&self, object: ObjectId) -> sqlx::Result<()> {
        let forgotten = sqlx::query(
            "WITH gone AS (DELETE FROM objects WHERE object = $1 AND state <> 1 RETURNING kind, holder, counted) \
             UPDATE object_usage u SET objects = u.objects - 1, bytes = u.bytes - gone.counted FROM gone \
             WHERE u.kind = gone.kind AND u.holder = gone.holder",
        );
        within(self.longest, forgotten.bind(object.to_vec()).execute(&self.pool)).await.map(drop)
    }

    /// Returns some expired objects; no other process gets them for a minute.
    pub(crate) async fn past(&self, most: i64) -> sqlx::Result<Vec<ObjectId>> {
        let past = "UPDATE objects SET state = 2, until_ms = now_ms() + $3 WHERE object IN (SELECT object FROM objects \
             WHERE kind = $1 AND until_ms <= now_ms() ORDER BY until_ms LIMIT $2 FOR UPDATE SKIP LOCKED) \
             RETURNING object";
        let past = query!(past, self.kind as i64, most, milliseconds(DELETED_WITHIN));
        let rows = within(self.longest, past.fetch_all(&self.pool)).await?;
        rows.iter().map(|row| row.id("object")).collect()
    }

    /// Deletes the rows of holders without objects.
    pub(crate) async fn forget_holders(&self) -> sqlx::Result<()> {
        let none = sqlx::query("DELETE FROM object_usage WHERE kind = $1 AND objects <= 0");
        within(self.longest, none.bind(self.kind as i64).execute(&self.pool)).await.map(drop)
    }
}

fn found_in(row: &PgRow) -> sqlx::Result<StoredObject> {
    Ok(StoredObject {
        object: row.id("object")?,
        size: row.number("size")?.unsigned_abs(),
        sha256: row.bytes("sha256")?.unwrap_or_default(),
        description: row.text("description")?,
    })
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
