//! [`PublishedKeys`] on SQLite, in the file of the leases.

use std::time::Duration;

use async_trait::async_trait;
use sqlx::Row;
use sqlx::sqlite::SqliteRow;

use super::SqliteCalls;
use crate::clock::{milliseconds, now_ms};
use crate::columns::id;
use crate::published_keys::{
    MAX_KEYS, MAX_OF_GATEWAY, PublicJwk, PublishError, PublishedKey, PublishedKeys, bounded, left,
};
use crate::records::OwnerId;

fn unavailable(error: sqlx::Error) -> PublishError {
    PublishError::Unavailable(error.to_string())
}

#[async_trait]
impl PublishedKeys for SqliteCalls {
    async fn publish(&self, owner: OwnerId, key: &PublicJwk, lasts: Duration) -> Result<(), PublishError> {
        bounded(key)?;
        let now = now_ms();
        let pool = self.leases.pool();
        let past = sqlx::query("DELETE FROM token_keys WHERE until_ms <= $1").bind(now);
        past.execute(pool).await.map_err(unavailable)?;
        // A row that is replaced does not count against the limits.
        let published = sqlx::query(
            "INSERT INTO token_keys (owner, kid, jwk, until_ms) SELECT $1, $2, $3, $4 \
             WHERE (SELECT COUNT(*) FROM token_keys WHERE owner = $1 AND kid <> $2) < $5 \
             AND (SELECT COUNT(*) FROM token_keys WHERE owner <> $1 OR kid <> $2) < $6 \
             ON CONFLICT (owner, kid) DO UPDATE SET until_ms = MAX(until_ms, excluded.until_ms)",
        )
        .bind(owner.0.as_slice())
        .bind(&key.kid)
        .bind(&key.jwk)
        .bind(now.saturating_add(milliseconds(lasts)))
        .bind(i64::from(MAX_OF_GATEWAY))
        .bind(i64::from(MAX_KEYS))
        .execute(pool)
        .await
        .map_err(unavailable)?;
        if published.rows_affected() == 1 { Ok(()) } else { Err(PublishError::Full) }
    }

    async fn published(&self) -> Result<Vec<PublishedKey>, PublishError> {
        let now = now_ms();
        let rows =
            sqlx::query("SELECT owner, kid, jwk, until_ms FROM token_keys WHERE until_ms > $1 LIMIT $2")
                .bind(now)
                .bind(i64::from(MAX_KEYS))
                .fetch_all(self.leases.pool())
                .await
                .map_err(unavailable)?;
        let published = |row: &SqliteRow| {
            Ok(PublishedKey {
                owner: OwnerId(id(row, "owner")?),
                key: PublicJwk { kid: row.try_get("kid")?, jwk: row.try_get("jwk")? },
                left: left(row.try_get("until_ms")?, now),
            })
        };
        rows.iter().map(published).collect::<Result<_, sqlx::Error>>().map_err(unavailable)
    }

    async fn withdraw(&self, owner: OwnerId, rest: Duration) -> Result<(), PublishError> {
        let until = now_ms().saturating_add(milliseconds(rest));
        let withdrawn = sqlx::query("UPDATE token_keys SET until_ms = $1 WHERE owner = $2 AND until_ms > $1");
        let withdrawn = withdrawn.bind(until).bind(owner.0.as_slice());
        withdrawn.execute(self.leases.pool()).await.map(drop).map_err(unavailable)
    }
}
