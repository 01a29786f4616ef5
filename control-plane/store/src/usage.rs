//! Usage: sums of calls by org, day, caller, server and primitive, added to in batches and kept for [`KEEP_DAYS`].
//!
//! Owns the port and the bounds. Keeps true: a batch counts once, however often it is sent; an org has at most
//! [`MAX_ENTRIES`] rows a day for callers, [`MAX_PRIMITIVE_ENTRIES`] more for primitives without callers, and one for
//! everything else, so that sums stay complete where details are not.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;

use crate::columns::Columns;

#[cfg(any(test, feature = "testing"))]
mod memory;
pub(crate) mod sql;
/// Conformance suite of the port; every backend passes it.
#[cfg(any(test, feature = "testing"))]
pub mod suite;

#[cfg(any(test, feature = "testing"))]
pub use memory::MemoryUsage;

/// Retention of usage in days.
pub const KEEP_DAYS: i64 = 400;
/// Maximum rows of an org and day that name their caller.
pub const MAX_ENTRIES: i64 = 5_000;
/// Maximum rows of an org and day that name a primitive but not the caller.
pub const MAX_PRIMITIVE_ENTRIES: i64 = 1_000;
/// Maximum rows of a batch.
pub const MAX_BATCH: usize = 500;
/// Maximum number of groups in an answer.
pub const MAX_GROUPS: u32 = 10_000;
/// Maximum number of primitives in an answer that names each with its server.
pub const MAX_PRIMITIVES: u32 = 50_000;
/// Maximum that one batch adds to a sum of a row: sums stay within what a database can hold, whatever a model's endpoint reports.
pub(crate) const MOST_AT_ONCE: u64 = 1 << 48;
/// Name in rows that stand for everything beyond the bounds; no user, server or primitive has it.
pub const OTHER: &str = "*";
/// Bytes of the audit log's limit for each row: a row takes about 400 bytes with its indexes, and all of them a quarter of the
/// limit.
pub(crate) const BYTES_PER_ROW: i64 = 1_600;
/// Retention of the numbers of batches; a batch is repeated within minutes.
pub(crate) const KEEP_WRITERS: Duration = Duration::from_secs(7 * 24 * 3600);
/// Milliseconds of a day.
pub const DAY_MS: i64 = 24 * 3600 * 1000;

/// Number of latency buckets.
pub const BUCKETS: usize = 16;
/// Upper bounds of the latency buckets but the last, in milliseconds.
pub const LATENCY_MS: [u64; BUCKETS - 1] =
    [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 60_000, 600_000];

/// Subject of a row.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct UsageKey {
    pub org: String,
    /// Days since 1970-01-01, UTC.
    pub day: i64,
    pub user: String,
    /// Name of the user's issuer in the snapshot.
    pub issuer: String,
    pub server: String,
    /// Id of the primitive, without its version.
    pub primitive: String,
}

impl UsageKey {
    /// Returns the subjects that a row is counted under, the most precise first.
    pub(crate) fn candidates(&self) -> [(UsageKey, i64); 3] {
        let other = || OTHER.to_owned();
        let of_primitive = UsageKey { user: other(), issuer: other(), ..self.clone() };
        let rest = UsageKey { server: other(), primitive: other(), ..of_primitive.clone() };
        let all = MAX_ENTRIES + MAX_PRIMITIVE_ENTRIES;
        [(self.clone(), MAX_ENTRIES), (of_primitive, all), (rest, i64::MAX)]
    }

    /// Returns the subject of everything else of this org and day.
    pub fn rest(&self) -> UsageKey {
        let [_, _, (rest, _)] = self.candidates();
        rest
    }
}

/// Sums of calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UsageCounts {
    /// Calls that ended.
    pub calls: u64,
    /// Calls without a good result, refused ones included.
    pub errors: u64,
    /// Calls that a limit refused.
    pub limited: u64,
    /// Calls that were not admitted: by policy, a limit, their arguments or an approval.
    pub refused: u64,
    /// Time from request to end.
    pub latency_us: u64,
    /// CPU time of plugins' workers.
    pub cpu_us: u64,
    /// Tokens of models that the calls asked, as the endpoints report them.
    pub tokens_in: u64,
    pub tokens_out: u64,
    /// Price of these tokens in millionths of the operator's currency.
    pub cost_micros: u64,
    /// Calls by latency: up to each of [`LATENCY_MS`], and above.
    pub latency: [u64; BUCKETS],
}

impl UsageCounts {
    /// Returns the counts of one call.
    pub fn of_call(latency: Duration, is_error: bool, is_limited: bool) -> UsageCounts {
        let latency_us = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
        let above = |bound: &u64| latency_us > bound.saturating_mul(1_000);
        let place = LATENCY_MS.iter().take_while(|bound| above(bound)).count();
        let mut counts = UsageCounts {
            calls: 1,
            errors: u64::from(is_error),
            limited: u64::from(is_limited),
            latency_us,
            ..UsageCounts::default()
        };
        if let Some(bucket) = counts.latency.get_mut(place) {
            *bucket = 1;
        }
        counts
    }

    /// Returns the number of calls that were admitted, whatever their end.
    pub fn admitted(&self) -> u64 {
        self.calls.saturating_sub(self.refused)
    }

    /// Adds other counts.
    pub fn add(&mut self, other: &UsageCounts) {
        let sums = self.sums_mut();
        for (sum, added) in sums.into_iter().zip(other.sums()) {
            *sum = sum.saturating_add(added);
        }
        for (bucket, added) in self.latency.iter_mut().zip(other.latency) {
            *bucket = bucket.saturating_add(added);
        }
    }

    /// Returns the latency that a share of the calls did not exceed, in microseconds: interpolated within its bucket, and
    /// the lower bound of the last bucket for calls in it. `None` without calls.
    pub fn latency_percentile_us(&self, percent: u64) -> Option<u64> {
        let all: u64 = self.latency.iter().sum();
        let wanted = all.saturating_mul(percent).div_ceil(100).max(1);
        let mut seen = 0_u64;
        let mut lower = 0_u64;
        for (place, count) in self.latency.iter().enumerate() {
            let upper = LATENCY_MS.get(place).copied().unwrap_or(lower);
            if *count > 0 && seen + count >= wanted {
                let inside = (upper - lower).saturating_mul(1_000).saturating_mul(wanted - seen) / count;
                return Some(lower.saturating_mul(1_000) + inside);
            }
            seen += count;
            lower = upper;
        }
        None
    }

    /// Returns the sums in the order of [`SUMS`].
    pub(crate) fn sums(&self) -> [u64; 9] {
        let UsageCounts {
            calls,
            errors,
            limited,
            refused,
            latency_us,
            cpu_us,
            tokens_in,
            tokens_out,
            cost_micros,
            latency: _,
        } = *self;
        [calls, errors, limited, refused, latency_us, cpu_us, tokens_in, tokens_out, cost_micros]
    }

    fn sums_mut(&mut self) -> [&mut u64; 9] {
        let UsageCounts {
            calls,
            errors,
            limited,
            refused,
            latency_us,
            cpu_us,
            tokens_in,
            tokens_out,
            cost_micros,
            latency: _,
        } = self;
        [calls, errors, limited, refused, latency_us, cpu_us, tokens_in, tokens_out, cost_micros]
    }

    /// Reads counts from a row whose columns are named like those of the table.
    fn read(row: &impl Columns) -> sqlx::Result<UsageCounts> {
        let mut counts = UsageCounts::default();
        let of = |name: &str| row.number(name).map(|number| u64::try_from(number).unwrap_or_default());
        for (sum, name) in counts.sums_mut().into_iter().zip(SUMS) {
            *sum = of(name)?;
        }
        for (place, bucket) in counts.latency.iter_mut().enumerate() {
            *bucket = of(&format!("l{place}"))?;
        }
        Ok(counts)
    }
}

/// Columns of the sums.
pub(crate) const SUMS: [&str; 9] = [
    "calls",
    "errors",
    "limited",
    "refused",
    "latency_us",
    "cpu_us",
    "tokens_in",
    "tokens_out",
    "cost_micros",
];

/// Rows to add, in the order of their keys.
#[derive(Clone, Debug)]
pub struct UsageBatch {
    /// Run of the gateway that sends it.
    pub writer: [u8; 16],
    /// Number of the batch; a run numbers its batches upwards from 1 and sends one after the other.
    pub number: i64,
    /// Sums by subject, at most [`MAX_BATCH`].
    pub rows: BTreeMap<UsageKey, UsageCounts>,
}

/// Grouping of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UsageDimension {
    Org,
    User,
    Server,
    Primitive,
    /// Primitive of a server: the server is in the place of the issuer.
    ServerPrimitive,
    Day,
}

impl UsageDimension {
    /// Returns the maximum number of groups in an answer.
    pub(crate) const fn most(self) -> u32 {
        match self {
            UsageDimension::ServerPrimitive => MAX_PRIMITIVES,
            _ => MAX_GROUPS,
        }
    }
}

/// Selection of rows.
#[derive(Clone, Debug)]
pub struct UsageQuery {
    /// Only this org; all of them if it is `None`.
    pub org: Option<String>,
    /// First and last day.
    pub days: (i64, i64),
    pub user: Option<String>,
    pub server: Option<String>,
    pub primitive: Option<String>,
    pub by: UsageDimension,
    /// 1 to [`MAX_GROUPS`], or to [`MAX_PRIMITIVES`] of servers; values outside are clamped.
    pub limit: u32,
}

/// Sums of one group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageGroup {
    /// Name of the org, user, server or primitive, or number of the day; [`OTHER`] beyond the bounds.
    pub name: String,
    /// Issuer of a user, or server of a primitive by server; empty for other groups.
    pub issuer: String,
    pub counts: UsageCounts,
}

impl UsageGroup {
    /// Reads a group from a row of any database.
    pub(crate) fn read(row: &impl Columns) -> sqlx::Result<UsageGroup> {
        let name = row.text("name")?;
        let issuer = row.text("by_issuer")?;
        Ok(UsageGroup { name, issuer, counts: UsageCounts::read(row)? })
    }
}

#[derive(Debug, thiserror::Error)]
#[error("usage is not available: {0}")]
pub struct UsageError(pub String);

from_failure!(sqlx::Error => UsageError);

/// Store of usage.
#[async_trait]
pub trait UsageStore: Send + Sync {
    /// Adds the rows of a batch, all or none; durable on return. A batch that was added before changes nothing.
    async fn add_usage(&self, batch: &UsageBatch) -> Result<(), UsageError>;

    /// Returns the sums by group: days newest first, other groups by their number of calls.
    async fn usage(&self, query: &UsageQuery) -> Result<Vec<UsageGroup>, UsageError>;

    /// Returns the oldest day with usage, of an org or of all; `None` without usage.
    async fn first_usage_day(&self, org: Option<&str>) -> Result<Option<i64>, UsageError>;

    /// Deletes what is past its retention on `today`, and the oldest days beyond the limit of bytes.
    async fn sweep_usage(&self, today: i64) -> Result<(), UsageError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_lies_in_the_bucket_of_its_call() {
        let mut counts = UsageCounts::default();
        assert_eq!(counts.latency_percentile_us(50), None);
        for _ in 0..99 {
            counts.add(&UsageCounts::of_call(Duration::from_millis(15), false, false));
        }
        counts.add(&UsageCounts::of_call(Duration::from_secs(3_600), true, false));
        assert_eq!((counts.calls, counts.errors), (100, 1));
        let p50 = counts.latency_percentile_us(50).unwrap();
        assert!((10_000..=20_000).contains(&p50), "{p50}");
        assert_eq!(counts.latency_percentile_us(99), Some(20_000));
        assert_eq!(counts.latency_percentile_us(100), Some(600_000_000), "the last bound");
    }

    #[test]
    fn a_call_is_in_the_first_bucket_that_is_not_below_it() {
        let bucket = |latency: Duration| {
            let counts = UsageCounts::of_call(latency, false, true);
            counts.latency.iter().position(|count| *count == 1)
        };
        assert_eq!(bucket(Duration::ZERO), Some(0));
        assert_eq!(bucket(Duration::from_millis(1)), Some(0));
        assert_eq!(bucket(Duration::from_micros(1_001)), Some(1));
        assert_eq!(bucket(Duration::MAX), Some(BUCKETS - 1));
    }
}
