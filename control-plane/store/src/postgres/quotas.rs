//! Deletion of records of ended calls beyond the quotas of a user or an org.
//!
//! Keeps true: one transaction at a time deletes rows of an org, and no call waits for it.

use sqlx::{PgExecutor, PgPool};

use super::calls::PostgresCalls;
use super::{SWEEP_ROWS, within};
use crate::calls::QuotaHolder;
use crate::columns::Columns;
use crate::records::RecordKey;

/// Distinguishes the locks of this purpose from others of the database.
const ROOM_LOCK: i64 = 0x61_73_70;

impl PostgresCalls {
    /// Deletes ended calls of the record's user and org beyond their quotas, outside the path of the call.
    pub(super) fn make_room_later(&self, key: &RecordKey) {
        let holders = QuotaHolder::of(key, self.bounds);
        let pool = self.pool.clone();
        let org = key.org.clone();
        let longest = self.longest;
        self.making_room.spawn(async move {
            if let Err(error) = within(longest, Box::pin(delete_excess(&pool, &org, &holders))).await {
                // The next call that ends tries again.
                tracing::debug!(%error, "records of ended calls beyond their quota could not be deleted yet");
            }
        });
    }
}

async fn delete_excess(pool: &PgPool, org: &str, holders: &[QuotaHolder; 2]) -> sqlx::Result<()> {
    let [user, of_org] = holders;
    loop {
        if !is_over(pool, user).await? && !is_over(pool, of_org).await? {
            return Ok(());
        }
        let mut alone = pool.begin().await?;
        let lock = sqlx::query_scalar("SELECT pg_try_advisory_xact_lock(hashtextextended($1, $2))")
            .bind(org.to_owned())
            .bind(ROOM_LOCK);
        let is_mine: bool = lock.fetch_one(&mut *alone).await?;
        if !is_mine {
            // The process that has the lock checks again when it is done.
            return Ok(());
        }
        let mut gone = 0;
        for holder in holders {
            // Checked again: others may have deleted rows since.
            if is_over(&mut *alone, holder).await? {
                let deletion = holder.deletion(SWEEP_ROWS).postgres();
                gone += deletion.execute(&mut *alone).await?.rows_affected();
            }
        }
        alone.commit().await?;
        if gone == 0 {
            return Ok(());
        }
    }
}

async fn is_over<'e>(database: impl PgExecutor<'e>, holder: &QuotaHolder) -> sqlx::Result<bool> {
    holder.excess().postgres().fetch_one(database).await?.flag("is_over")
}
