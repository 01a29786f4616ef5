//! Usage in PostgreSQL.

use async_trait::async_trait;

use super::{PostgresAudit, within};
use crate::usage::sql::usage_store;
use crate::usage::{UsageBatch, UsageError, UsageGroup, UsageQuery, UsageStore};

usage_store!(PostgresAudit, postgres, pool, pool, "BEGIN");

#[async_trait]
impl UsageStore for PostgresAudit {
    async fn add_usage(&self, batch: &UsageBatch) -> Result<(), UsageError> {
        Ok(within(self.longest, Box::pin(self.add_batch(batch))).await?)
    }

    async fn usage(&self, query: &UsageQuery) -> Result<Vec<UsageGroup>, UsageError> {
        Ok(within(self.longest, self.usage_groups(query)).await?)
    }

    async fn first_usage_day(&self, org: Option<&str>) -> Result<Option<i64>, UsageError> {
        Ok(within(self.longest, self.oldest_usage_day(org)).await?)
    }

    async fn sweep_usage(&self, today: i64) -> Result<(), UsageError> {
        Ok(self.delete_expired_usage(today).await?)
    }
}
