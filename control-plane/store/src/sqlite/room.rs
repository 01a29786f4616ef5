//! Quotas of the records of ended calls.
//!
//! Keeps true: the usage of a user and an org is known without counting rows; at the quota, the calls that ended first
//! are deleted, by statements that delete few rows and read no others (I-4).

use sqlx::{Encode, Sqlite, Type};

use super::calls::{SWEEP_ROWS, SqliteCalls};
use crate::records::{CallQuota, RecordError, RecordKey};

/// Returns the deletion of the earliest ended records of $1 beyond $2 records and $3 bytes, at most $4 of them.
fn deletion(column: &str) -> String {
    format!(
        "DELETE FROM active_calls WHERE call_id IN (SELECT call_id FROM (\
         SELECT call_id, ROW_NUMBER() OVER earliest AS place, SUM(bytes) OVER earliest - bytes AS earlier \
         FROM (SELECT call_id, updated_ms, bytes FROM active_calls WHERE {column} = $1 AND owner IS NULL \
         ORDER BY updated_ms, call_id LIMIT $4) WINDOW earliest AS (ORDER BY updated_ms, call_id)), \
         (SELECT records AS kept, bytes AS held FROM record_usage WHERE holder = $1) \
         WHERE place <= kept - $2 OR earlier < held - $3)"
    )
}

const OF_USER: &str = "user_digest";
const OF_ORG: &str = "org";

impl SqliteCalls {
    /// Deletes ended calls of the record's user and org beyond their quotas; writes only if there are any.
    pub(super) async fn make_room(&self, key: &RecordKey) -> Result<(), RecordError> {
        self.keep_to(OF_USER, key.user.to_vec(), self.bounds.of_user).await?;
        self.keep_to(OF_ORG, key.org.clone(), self.bounds.of_org).await
    }

    async fn keep_to<H>(&self, column: &str, holder: H, share: CallQuota) -> Result<(), RecordError>
    where
        H: for<'q> Encode<'q, Sqlite> + Type<Sqlite> + Clone + Send + Sync + 'static,
    {
        let unavailable = |error: sqlx::Error| RecordError::Unavailable(error.to_string());
        loop {
            let is_over: Option<bool> =
                sqlx::query_scalar("SELECT records > $2 OR bytes > $3 FROM record_usage WHERE holder = $1")
                    .bind(holder.clone())
                    .bind(i64::from(share.records))
                    .bind(i64::from(share.bytes))
                    .fetch_optional(&self.read)
                    .await
                    .map_err(unavailable)?;
            if is_over != Some(true) {
                return Ok(());
            }
            let deleted = sqlx::query(sqlx::AssertSqlSafe(deletion(column)))
                .bind(holder.clone())
                .bind(i64::from(share.records))
                .bind(i64::from(share.bytes))
                .bind(SWEEP_ROWS)
                .execute(&self.write)
                .await
                .map_err(unavailable)?;
            if deleted.rows_affected() == 0 {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use sqlx::Row;

    use super::*;
    use crate::sqlite::records::ORPHANS;

    /// Returns SQLite's query plan of a statement.
    async fn plan(calls: &SqliteCalls, statement: &str) -> String {
        let explain = sqlx::AssertSqlSafe(format!("EXPLAIN QUERY PLAN {statement}"));
        let rows = sqlx::query(explain).fetch_all(&calls.read).await.unwrap();
        rows.iter().map(|row| row.get::<String, _>("detail")).collect::<Vec<_>>().join("\n")
    }

    #[tokio::test]
    async fn what_ends_often_is_looked_for_in_an_index_of_its_own_and_in_no_row() {
        let directory = tempfile::tempdir().unwrap();
        let calls = SqliteCalls::open(&directory.path().join("calls.db")).await.unwrap();
        for (statement, index) in [
            (ORPHANS.to_owned(), "active_calls_of_owner"),
            (deletion(OF_USER), "active_calls_ended_of_user"),
            (deletion(OF_ORG), "active_calls_ended_of_org"),
        ] {
            let plan = plan(&calls, &statement).await;
            assert!(plan.contains(&format!(" USING COVERING INDEX {index} ")), "{plan}");
            assert!(!plan.contains(" USING INDEX active_calls"), "{plan}");
            assert!(!plan.contains("SCAN active_calls") && !plan.contains("SCAN a "), "{plan}");
        }
    }
}
