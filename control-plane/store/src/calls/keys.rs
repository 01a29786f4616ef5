//! [`PublishedKeys`] of several processes.

use std::time::Duration;

use async_trait::async_trait;

use super::{CallStatement, CallsDatabase};
use crate::columns::Columns;
use crate::published_keys::{
    MAX_KEYS, MAX_OF_GATEWAY, PublicJwk, PublishError, PublishedKey, PublishedKeys, bounded, time_left,
};
use crate::records::OwnerId;

from_failure!(sqlx::Error => PublishError::Unavailable);

#[async_trait]
impl<D: CallsDatabase> PublishedKeys for D {
    async fn publish(&self, owner: OwnerId, key: &PublicJwk, lasts: Duration) -> Result<(), PublishError> {
        bounded(key)?;
        let past = CallStatement::new("DELETE FROM token_keys WHERE until_ms <= now_ms()");
        // A row that is replaced does not count against the limits.
        let statement = "INSERT INTO token_keys AS k (owner, kid, jwk, until_ms) SELECT $1, $2, $3, now_ms() + $4 \
             WHERE (SELECT COUNT(*) FROM token_keys WHERE owner = $1 AND kid <> $2) < $5 \
             AND (SELECT COUNT(*) FROM token_keys WHERE owner <> $1 OR kid <> $2) < $6 \
             ON CONFLICT (owner, kid) DO UPDATE SET until_ms = GREATEST(k.until_ms, excluded.until_ms)";
        let kid = key.kid.as_str();
        let jwk = key.jwk.as_str();
        let insert = statement!(statement, owner.0, kid, jwk, lasts, MAX_OF_GATEWAY, MAX_KEYS);
        if self.publish_key(past, insert).await? { Ok(()) } else { Err(PublishError::Full) }
    }

    async fn published(&self) -> Result<Vec<PublishedKey>, PublishError> {
        let statement = "SELECT owner, kid, jwk, until_ms, now_ms() AS now FROM token_keys \
             WHERE until_ms > now_ms() LIMIT $1";
        let rows = self.key_rows(CallStatement::new(statement).bind(MAX_KEYS)).await?;
        Ok(rows.iter().map(read).collect::<Result<_, _>>()?)
    }

    async fn withdraw(&self, owner: OwnerId, rest: Duration) -> Result<(), PublishError> {
        let statement =
            "UPDATE token_keys SET until_ms = now_ms() + $1 WHERE owner = $2 AND until_ms > now_ms() + $1";
        self.execute_on_keys(CallStatement::new(statement).bind(rest).bind(owner.0)).await?;
        Ok(())
    }
}

fn read(row: &impl Columns) -> sqlx::Result<PublishedKey> {
    Ok(PublishedKey {
        owner: OwnerId(row.id("owner")?),
        key: PublicJwk { kid: row.text("kid")?, jwk: row.text("jwk")? },
        left: time_left(row.number("until_ms")?, row.number("now")?),
    })
}
