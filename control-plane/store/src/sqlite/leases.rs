//! Leases of the gateways and the keys that they publish, in a file of their own.
//!
//! Keeps true: a renewal waits for no write except another gateway's renewal or new key, and for no disk: a lease lost
//! in a power loss belonged to a process that the same power loss ended. A statement that writes `calls.db` and reads
//! both files sees the leases as of a moment after it became the writer.

use std::path::{Path, PathBuf};
use std::time::Duration;

use sqlx::sqlite::{SqlitePoolOptions, SqliteSynchronous};
use sqlx::{Executor, SqlitePool};

use super::OpenError;
use super::file::{self, FileSettings};
use crate::clock::{milliseconds, now_ms};
use crate::migrations;
use crate::records::{Lease, MAX_LEASE, OwnerId};

/// The file of leases.
pub(super) struct Leases {
    path: PathBuf,
    pool: SqlitePool,
}

impl Leases {
    /// Opens or creates the file that belongs to the calls in `calls`.
    pub(super) async fn open(calls: &Path) -> Result<Leases, OpenError> {
        let stem = calls.file_stem().unwrap_or_default().to_string_lossy();
        let path = calls.with_file_name(format!("{stem}-leases.db"));
        let opening = FileSettings {
            path: &path,
            synchronous: SqliteSynchronous::Normal,
            shrinks: false,
            busy_timeout: file::BUSY_TIMEOUT,
        };
        let pool = opening.pool(1).connect_with(opening.options()?).await?;
        file::migrate(&pool, &migrations::LEASES).await?;
        Ok(Leases { path, pool })
    }

    pub(super) async fn close(&self) {
        self.pool.close().await;
    }

    /// Returns the only connection to the file.
    pub(super) fn pool(&self) -> &SqlitePool {
        &self.pool
    }

    /// Returns connections to the calls that can read the leases as `leases.owners`.
    pub(super) fn attach_to(&self, pool: SqlitePoolOptions) -> SqlitePoolOptions {
        let path = self.path.clone();
        pool.after_connect(move |connection, _| {
            let path = path.clone();
            Box::pin(async move {
                let attach =
                    sqlx::query("ATTACH DATABASE $1 AS leases").bind(path.to_string_lossy().into_owned());
                connection.execute(attach).await?;
                Ok(())
            })
        })
    }

    /// Extends or restarts the owner's lease; returns whether it had lapsed.
    pub(super) async fn renew(&self, owner: OwnerId, lease: Duration) -> sqlx::Result<Lease> {
        let now = now_ms();
        let until = now.saturating_add(milliseconds(lease));
        let held = "UPDATE owners SET lease_ms = $1, since_ms = MIN(since_ms, $3) WHERE owner = $2 AND lease_ms > $3";
        let renewed = query!(held, until, owner.0.as_slice(), now).execute(&self.pool).await?;
        if renewed.rows_affected() == 1 {
            return Ok(Lease::Held);
        }
        let first = "INSERT INTO owners (owner, lease_ms, since_ms) VALUES ($1, $2, $3) ON CONFLICT (owner) DO NOTHING";
        let first = query!(first, owner.0.as_slice(), until, now).execute(&self.pool).await?;
        if first.rows_affected() == 1 {
            return Ok(Lease::Held);
        }
        // A retired owner stays retired.
        let restart = "UPDATE owners SET lease_ms = $1, since_ms = $3 WHERE owner = $2 AND lease_ms > 0";
        query!(restart, until, owner.0.as_slice(), now).execute(&self.pool).await?;
        Ok(Lease::Lapsed)
    }

    pub(super) async fn retire(&self, owner: OwnerId) -> sqlx::Result<()> {
        // The row stays for as long as the owner may hold keys.
        let retired = "UPDATE owners SET lease_ms = 0, since_ms = $1 WHERE owner = $2";
        query!(retired, now_ms(), owner.0.as_slice()).execute(&self.pool).await.map(drop)
    }

    /// Deletes leases that ended before `before`; there is one row per start of a gateway within a day. Shortens those
    /// that were written before the clock was set back.
    pub(super) async fn forget(&self, before: i64) -> Result<(), OpenError> {
        let latest = now_ms().saturating_add(milliseconds(MAX_LEASE));
        query!("UPDATE owners SET lease_ms = $1 WHERE lease_ms > $1", latest).execute(&self.pool).await?;
        let forgotten = query!("DELETE FROM owners WHERE lease_ms < $1 AND since_ms < $1", before);
        forgotten.execute(&self.pool).await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    const OWNER: OwnerId = OwnerId([1; 16]);

    #[tokio::test]
    async fn a_clock_that_is_set_back_neither_keeps_a_lease_nor_makes_it_new_for_long() {
        let directory = TempDir::new().unwrap();
        let leases = Leases::open(&directory.path().join("calls.db")).await.unwrap();
        leases.renew(OWNER, MAX_LEASE).await.unwrap();
        // As after a step back by an hour.
        sqlx::query("UPDATE owners SET lease_ms = lease_ms + 3600000, since_ms = since_ms + 3600000")
            .execute(&leases.pool)
            .await
            .unwrap();
        leases.forget(0).await.unwrap();
        let number = async |column: &str| -> i64 {
            let statement = sqlx::AssertSqlSafe(format!("SELECT {column} FROM owners"));
            sqlx::query_scalar(statement).fetch_one(&leases.pool).await.unwrap()
        };
        assert!(number("lease_ms").await <= now_ms() + milliseconds(MAX_LEASE));
        assert_eq!(leases.renew(OWNER, MAX_LEASE).await.unwrap(), Lease::Held);
        assert!(number("since_ms").await <= now_ms());
    }
}
