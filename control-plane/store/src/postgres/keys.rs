//! [`PublishedKeys`] on PostgreSQL.
//!
//! Keeps true: the expiry of a key is judged by the database's clock.

use std::time::Duration;

use async_trait::async_trait;
use sqlx::Row;
use sqlx::postgres::PgRow;

use super::PostgresCalls;
use crate::clock::milliseconds;
use crate::columns::id;
use crate::published_keys::{
    MAX_KEYS, MAX_OF_GATEWAY, PublicJwk, PublishError, PublishedKey, PublishedKeys, bounded, left,
};
use crate::records::OwnerId;

fn unavailable(error: sqlx::Error) -> PublishError {
    PublishError::Unavailable(error.to_string())
}

#[async_trait]
impl PublishedKeys for PostgresCalls {
    async fn publish(&self, owner: OwnerId, key: &PublicJwk, lasts: Duration) -> Result<(), PublishError> {
        bounded(key)?;
        let mut transaction = self.pool.begin().await.map_err(unavailable)?;
        // Gateways publish every half hour; that they wait for each other makes the counts below exact.
        let alone = sqlx::query("LOCK TABLE token_keys IN SHARE ROW EXCLUSIVE MODE");
        alone.execute(&mut *transaction).await.map_err(unavailable)?;
        let past = sqlx::query("DELETE FROM token_keys WHERE until_ms <= now_ms()");
        past.execute(&mut *transaction).await.map_err(unavailable)?;
        // A row that is replaced does not count against the limits.
        let published = sqlx::query(
            "INSERT INTO token_keys AS k (owner, kid, jwk, until_ms) SELECT $1, $2, $3, now_ms() + $4 \
             WHERE (SELECT COUNT(*) FROM token_keys WHERE owner = $1 AND kid <> $2) < $5 \
             AND (SELECT COUNT(*) FROM token_keys WHERE owner <> $1 OR kid <> $2) < $6 \
             ON CONFLICT (owner, kid) DO UPDATE SET until_ms = GREATEST(k.until_ms, excluded.until_ms)",
        )
        .bind(owner.0.to_vec())
        .bind(key.kid.clone())
        .bind(key.jwk.clone())
        .bind(milliseconds(lasts))
        .bind(i64::from(MAX_OF_GATEWAY))
        .bind(i64::from(MAX_KEYS))
        .execute(&mut *transaction)
        .await
        .map_err(unavailable)?;
        transaction.commit().await.map_err(unavailable)?;
        if published.rows_affected() == 1 { Ok(()) } else { Err(PublishError::Full) }
    }

    async fn published(&self) -> Result<Vec<PublishedKey>, PublishError> {
        let rows = sqlx::query(
            "SELECT owner, kid, jwk, until_ms, now_ms() AS now FROM token_keys WHERE until_ms > now_ms() LIMIT $1",
        )
        .bind(i64::from(MAX_KEYS))
        .fetch_all(&self.pool)
        .await
        .map_err(unavailable)?;
        let published = |row: &PgRow| {
            Ok(PublishedKey {
                owner: OwnerId(id(row, "owner")?),
                key: PublicJwk { kid: row.try_get("kid")?, jwk: row.try_get("jwk")? },
                left: left(row.try_get("until_ms")?, row.try_get("now")?),
            })
        };
        rows.iter().map(published).collect::<Result<_, sqlx::Error>>().map_err(unavailable)
    }

    async fn withdraw(&self, owner: OwnerId, rest: Duration) -> Result<(), PublishError> {
        let withdrawn = sqlx::query(
            "UPDATE token_keys SET until_ms = now_ms() + $1 WHERE owner = $2 AND until_ms > now_ms() + $1",
        );
        let withdrawn = withdrawn.bind(milliseconds(rest)).bind(owner.0.to_vec());
        withdrawn.execute(&self.pool).await.map(drop).map_err(unavailable)
    }
}
