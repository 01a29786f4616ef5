//! Usage in the file of the audit log.

use async_trait::async_trait;

use super::SqliteAudit;
use crate::usage::sql::usage_store;
use crate::usage::{UsageBatch, UsageError, UsageGroup, UsageQuery, UsageStore};

// Immediate: no other process can write between the read of a count and its update.
usage_store!(SqliteAudit, sqlite, write, read, "BEGIN IMMEDIATE");

#[async_trait]
impl UsageStore for SqliteAudit {
    async fn add_usage(&self, batch: &UsageBatch) -> Result<(), UsageError> {
        Ok(self.add_batch(batch).await?)
    }

    async fn usage(&self, query: &UsageQuery) -> Result<Vec<UsageGroup>, UsageError> {
        Ok(self.usage_groups(query).await?)
    }

    async fn first_usage_day(&self, org: Option<&str>) -> Result<Option<i64>, UsageError> {
        Ok(self.oldest_usage_day(org).await?)
    }

    async fn sweep_usage(&self, today: i64) -> Result<(), UsageError> {
        Ok(self.delete_expired_usage(today).await?)
    }
}
