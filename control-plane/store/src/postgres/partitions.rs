//! Start and end of the audit log's partitions.
//!
//! Keeps true: few partitions, because every reader locks each of them and its indexes: one per day, and sixteen for
//! the limit of bytes.

use std::time::Duration;

use sqlx::Row;
use tokio::time::sleep;

use super::audit::PostgresAudit;
use super::{SWEEP_REST, has_code, has_turn, within};
use crate::audit::KEEP_EVENTS;
use crate::clock::milliseconds;

/// Time after the start of a sweep in which no other process sweeps. Shorter than the interval, because that is
/// measured by another clock.
const TURN: Duration = Duration::from_secs(20);
/// Age at which a partition is full.
const LONGEST: Duration = Duration::from_secs(24 * 3600);
/// Fraction of the log's limit at which a partition is full.
const PARTS: i64 = 16;
/// Attempts in one sweep to drop a partition that another session reads. Each delays appends by at most 50 ms per lock.
const DROP_ATTEMPTS: u32 = 4;
/// SQLSTATEs of a drop that another session prevented: `lock_not_available` and `deadlock_detected`.
const IN_USE: [&str; 2] = ["55P03", "40P01"];

#[derive(Clone, Copy, Debug)]
struct Partition {
    number: i64,
    /// Time since it was added, by the database's clock.
    age_ms: i64,
    /// Size on disk, with its indexes.
    bytes: i64,
}

/// Returns the size of all partitions on disk.
fn bytes(partitions: &[Partition]) -> i64 {
    partitions.iter().map(|partition| partition.bytes).sum()
}

/// Returns the number of partitions to drop, counted from the oldest; never the newest.
fn surplus(partitions: &[Partition], max_bytes: i64) -> usize {
    let mut held = bytes(partitions);
    let mut surplus = 0;
    for pair in partitions.windows(2) {
        let [oldest, next] = pair else { break };
        // All of its events are older than the next partition.
        if held <= max_bytes && next.age_ms <= milliseconds(KEEP_EVENTS) {
            break;
        }
        held -= oldest.bytes;
        surplus += 1;
    }
    surplus
}

fn is_full(partition: &Partition, max_bytes: i64) -> bool {
    partition.bytes > max_bytes / PARTS || partition.age_ms > milliseconds(LONGEST)
}

impl PostgresAudit {
    /// Starts a new partition if the newest is full, and drops partitions past the retention or beyond the limit,
    /// unless another process did so within the last seconds. A partition that another session reads stays until a
    /// later sweep.
    pub async fn sweep(&self) -> sqlx::Result<()> {
        // Processes of the previous version sweep under another name.
        if !within(self.longest, has_turn(&self.pool, "audit partitions", TURN)).await? {
            return Ok(());
        }
        let partitions = self.partitions().await?;
        self.begin_next(&partitions).await?;
        // The former table has the oldest events, which are removed first.
        let bytes = bytes(&partitions);
        let former = Box::pin(self.remove_former(self.max_bytes.saturating_sub(bytes))).await?;
        self.drop_surplus(&partitions, self.max_bytes.saturating_sub(former)).await?;
        within(self.longest, self.delete_expired_bodies()).await
    }

    /// Returns all partitions, oldest first.
    async fn partitions(&self) -> sqlx::Result<Vec<Partition>> {
        let listed = sqlx::query(
            "SELECT number, now_ms() - since_ms AS age_ms, \
             COALESCE(pg_total_relation_size(to_regclass('call_audit_' || number)), 0) AS bytes \
             FROM call_audit_partitions ORDER BY number",
        );
        let rows = within(self.longest, listed.fetch_all(&self.pool)).await?;
        let read = |row: &sqlx::postgres::PgRow| -> sqlx::Result<Partition> {
            let [number, age_ms, bytes] =
                [row.try_get("number")?, row.try_get("age_ms")?, row.try_get("bytes")?];
            Ok(Partition { number, age_ms, bytes })
        };
        rows.iter().map(read).collect()
    }

    /// Directs appends to a new partition if the newest is full.
    async fn begin_next(&self, partitions: &[Partition]) -> sqlx::Result<()> {
        let Some(newest) = partitions.last() else { return Ok(()) };
        let asked = sqlx::query(
            "SELECT undrawn / call_audit_width() AS number, undrawn % call_audit_width() > 0 AS is_used \
             FROM (SELECT call_audit_next() AS undrawn) AS drawing",
        );
        let row = within(self.longest, asked.fetch_one(&self.pool)).await?;
        let (current, is_used): (i64, bool) = (row.try_get("number")?, row.try_get("is_used")?);
        if current < newest.number {
            // The process that added it ended before it directed appends there.
            return self.with_partition("SELECT enter_call_audit_partition($1)", newest.number).await;
        }
        if current == newest.number && is_used && is_full(newest, self.max_bytes) {
            let next = newest.number + 1;
            self.with_partition("SELECT add_call_audit_partition($1)", next).await?;
            self.with_partition("SELECT enter_call_audit_partition($1)", next).await?;
        }
        Ok(())
    }

    /// Drops partitions past their retention or beyond `max_bytes`, unless another session reads them.
    async fn drop_surplus(&self, partitions: &[Partition], max_bytes: i64) -> sqlx::Result<()> {
        for partition in partitions.iter().take(surplus(partitions, max_bytes)) {
            if !self.drop_partition(partition.number).await? {
                tracing::info!("audit partitions are kept while another session reads them");
                break;
            }
        }
        Ok(())
    }

    /// Drops a partition; returns false if another session reads it.
    async fn drop_partition(&self, number: i64) -> sqlx::Result<bool> {
        for _ in 0..DROP_ATTEMPTS {
            match self.with_partition("SELECT drop_call_audit_partition($1)", number).await {
                Err(error) if has_code(&error, &IN_USE) => sleep(SWEEP_REST).await,
                done => return done.map(|()| true),
            }
        }
        Ok(false)
    }

    async fn with_partition(&self, statement: &'static str, number: i64) -> sqlx::Result<()> {
        let statement = sqlx::query(statement).bind(number);
        within(self.longest, statement.execute(&self.pool)).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR_MS: i64 = 3_600_000;

    fn partitions(ages_and_bytes: &[(i64, i64)]) -> Vec<Partition> {
        let each = (1..).zip(ages_and_bytes);
        each.map(|(number, &(hours, bytes))| Partition { number, age_ms: hours * HOUR_MS, bytes }).collect()
    }

    #[test]
    fn a_partition_goes_when_its_last_event_is_too_old_or_the_bytes_are_too_many() {
        let days = |days: i64| days * 24;
        let of_age = partitions(&[(days(33), 10), (days(32), 10), (days(31), 10), (days(29), 10), (1, 10)]);
        assert_eq!(surplus(&of_age, 100), 2, "the third has events of 29 days");
        assert_eq!(surplus(&of_age, 21), 3);
        assert_eq!(surplus(&of_age, 20), 3);
        assert_eq!(surplus(&of_age, 19), 4);
        assert_eq!(surplus(&of_age, 0), 4, "the newest stays");
        assert_eq!(surplus(&partitions(&[(days(99), 10)]), 0), 0);
        assert_eq!(surplus(&[], 0), 0);
    }

    #[test]
    fn a_partition_is_full_after_a_day_or_a_sixteenth_of_the_bytes() {
        let is_full =
            |hours: i64, bytes| is_full(&Partition { number: 1, age_ms: hours * HOUR_MS, bytes }, 16 * 10);
        assert!(!is_full(24, 10));
        assert!(is_full(25, 0));
        assert!(is_full(0, 11));
    }
}
