//! Statements on usage for both kinds of database.
//!
//! Keeps true: rows of one org and day are added under the lock of its count, in the order of their keys.

use super::{BUCKETS, KEEP_DAYS, MOST_AT_ONCE, SUMS, UsageCounts, UsageDimension, UsageKey, UsageQuery};
use crate::calls::CallStatement;
use crate::clock::milliseconds;

/// Returns a number as the database stores it.
fn stored(number: u64) -> i64 {
    i64::try_from(number.min(MOST_AT_ONCE)).unwrap_or(i64::MAX)
}

/// Columns of the counts.
fn columns() -> impl Iterator<Item = String> {
    SUMS.iter().map(|name| (*name).to_owned()).chain((0..BUCKETS).map(|place| format!("l{place}")))
}

fn bind_counts(statement: CallStatement, counts: &UsageCounts) -> CallStatement {
    let numbers = counts.sums().into_iter().chain(counts.latency);
    numbers.fold(statement, |statement, number| statement.bind(stored(number)))
}

fn bind_key(statement: CallStatement, key: &UsageKey) -> CallStatement {
    let UsageKey { org, day, user, issuer, server, primitive } = key;
    statement
        .bind(org.as_str())
        .bind(*day)
        .bind(user.as_str())
        .bind(issuer.as_str())
        .bind(server.as_str())
        .bind(primitive.as_str())
}

/// Records the number of a batch; changes no row if it was recorded before.
pub(crate) fn mark(writer: [u8; 16], number: i64) -> CallStatement {
    statement!(
        "INSERT INTO usage_writers (writer, batch, at_ms) VALUES ($1, $2, now_ms()) \
         ON CONFLICT (writer) DO UPDATE SET batch = excluded.batch, at_ms = excluded.at_ms \
         WHERE usage_writers.batch < excluded.batch",
        writer,
        number
    )
}

/// Locks the count of an org and day, and returns it.
pub(crate) fn lock_day(org: &str, day: i64) -> CallStatement {
    statement!(
        "INSERT INTO usage_days (day, org, entries) VALUES ($1, $2, 0) \
         ON CONFLICT (day, org) DO UPDATE SET entries = usage_days.entries RETURNING entries",
        day,
        org
    )
}

pub(crate) fn set_entries(org: &str, day: i64, entries: i64) -> CallStatement {
    statement!("UPDATE usage_days SET entries = $3 WHERE day = $1 AND org = $2", day, org, entries)
}

/// Adds counts to a row; changes none if there is none.
pub(crate) fn update(key: &UsageKey, counts: &UsageCounts) -> CallStatement {
    let sets: Vec<String> =
        columns().enumerate().map(|(place, name)| format!("{name} = {name} + ${}", place + 7)).collect();
    let text = format!(
        "UPDATE usage_rows SET {} WHERE org = $1 AND day = $2 AND user_name = $3 AND issuer = $4 AND server = $5 \
         AND primitive = $6",
        sets.join(", ")
    );
    bind_counts(bind_key(CallStatement::new(text), key), counts)
}

pub(crate) fn insert(key: &UsageKey, counts: &UsageCounts) -> CallStatement {
    let names: Vec<String> = columns().collect();
    let values: Vec<String> = (0..names.len() + 6).map(|place| format!("${}", place + 1)).collect();
    let text = format!(
        "INSERT INTO usage_rows (org, day, user_name, issuer, server, primitive, {}) VALUES ({})",
        names.join(", "),
        values.join(", ")
    );
    bind_counts(bind_key(CallStatement::new(text), key), counts)
}

/// Returns the query for groups.
pub(crate) fn groups(query: &UsageQuery) -> CallStatement {
    let (name, issuer, by) = match query.by {
        UsageDimension::Org => ("org", "''", "org"),
        UsageDimension::User => ("user_name", "issuer", "user_name, issuer"),
        UsageDimension::Server => ("server", "''", "server"),
        UsageDimension::Primitive => ("primitive", "''", "primitive"),
        UsageDimension::ServerPrimitive => ("primitive", "server", "server, primitive"),
        UsageDimension::Day => ("CAST(day AS TEXT)", "''", "day"),
    };
    let order = if query.by == UsageDimension::Day { "day DESC" } else { "calls DESC, name, by_issuer" };
    let sums: Vec<String> =
        columns().map(|column| format!("CAST(SUM({column}) AS BIGINT) AS {column}")).collect();
    let of_org = if query.org.is_some() { "org = $7 AND " } else { "" };
    let text = format!(
        "SELECT {name} AS name, {issuer} AS by_issuer, {} FROM usage_rows WHERE {of_org}day BETWEEN $1 AND $2 \
         AND ($3 = '' OR user_name = $3) AND ($4 = '' OR server = $4) AND ($5 = '' OR primitive = $5) \
         GROUP BY {by} ORDER BY {order} LIMIT $6",
        sums.join(", ")
    );
    let (first, last) = query.days;
    let limit = i64::from(query.limit.clamp(1, query.by.most()));
    let statement = CallStatement::new(text)
        .bind(first)
        .bind(last)
        .bind(query.user.as_deref().unwrap_or_default())
        .bind(query.server.as_deref().unwrap_or_default())
        .bind(query.primitive.as_deref().unwrap_or_default())
        .bind(limit);
    match query.org.as_deref() {
        Some(org) => statement.bind(org),
        None => statement,
    }
}

/// Returns the query for the oldest day. Each is one search of an index.
pub(crate) fn first_day(org: Option<&str>) -> CallStatement {
    match org {
        Some(org) => {
            statement!("SELECT day FROM usage_rows WHERE org = $1 ORDER BY org, day LIMIT 1", org)
        }
        None => statement!("SELECT day FROM usage_rows ORDER BY day LIMIT 1"),
    }
}

/// Returns the query for one org and day to delete, the oldest: one before `first` and past its retention by the database's clock
/// too, because that of one gateway may be wrong; or one of the org with the most rows while
/// there are more than `most`, so that an org with many callers shortens no other's history.
pub(crate) fn expired_day(first: i64, most: i64) -> CallStatement {
    statement!(
        "SELECT day, org FROM usage_days \
         WHERE day < CASE WHEN $1 < now_ms() / 86400000 - $3 THEN $1 ELSE now_ms() / 86400000 - $3 END \
         OR ((SELECT CAST(COALESCE(SUM(d.entries), 0) AS BIGINT) FROM usage_days d) > $2 \
         AND org = (SELECT o.org FROM usage_days o GROUP BY o.org ORDER BY SUM(o.entries) DESC, o.org LIMIT 1)) \
         ORDER BY day, org LIMIT 1",
        first,
        most,
        KEEP_DAYS
    )
}

pub(crate) fn delete_rows(org: &str, day: i64) -> CallStatement {
    statement!("DELETE FROM usage_rows WHERE org = $1 AND day = $2", org, day)
}

pub(crate) fn delete_day(org: &str, day: i64) -> CallStatement {
    statement!("DELETE FROM usage_days WHERE org = $1 AND day = $2", org, day)
}

pub(crate) fn delete_writers() -> CallStatement {
    statement!("DELETE FROM usage_writers WHERE at_ms < now_ms() - $1", milliseconds(super::KEEP_WRITERS))
}

/// Implements the parts of [`super::UsageStore`] for a store: its statements in the words of `$words` (`sqlite` or
/// `postgres`), its pools for writes and reads, and the statement that begins a transaction.
macro_rules! usage_store {
    ($store:ty, $words:ident, $write:ident, $read:ident, $begin:literal) => {
        impl $store {
            async fn add_batch(&self, batch: &$crate::usage::UsageBatch) -> sqlx::Result<()> {
                use $crate::columns::Columns;
                use $crate::usage::sql;
                let mut transaction = self.$write.begin_with($begin).await?;
                let marked = sql::mark(batch.writer, batch.number).$words();
                if marked.execute(&mut *transaction).await?.rows_affected() == 0 {
                    return Ok(());
                }
                let mut rows = batch.rows.iter().peekable();
                while let Some((first, _)) = rows.peek() {
                    let org = first.org.clone();
                    let day = first.day;
                    let locked = sql::lock_day(&org, day).$words().fetch_one(&mut *transaction).await?;
                    let mut entries = locked.number("entries")?;
                    while let Some((key, counts)) = rows.next_if(|(key, _)| key.org == org && key.day == day)
                    {
                        for (key, most) in key.candidates() {
                            let updated = sql::update(&key, counts).$words();
                            if updated.execute(&mut *transaction).await?.rows_affected() > 0 {
                                break;
                            }
                            if entries < most {
                                sql::insert(&key, counts).$words().execute(&mut *transaction).await?;
                                entries += 1;
                                break;
                            }
                        }
                    }
                    sql::set_entries(&org, day, entries).$words().execute(&mut *transaction).await?;
                }
                transaction.commit().await
            }

            async fn usage_groups(
                &self,
                query: &$crate::usage::UsageQuery,
            ) -> sqlx::Result<Vec<$crate::usage::UsageGroup>> {
                let rows = $crate::usage::sql::groups(query).$words().fetch_all(&self.$read).await?;
                rows.iter().map($crate::usage::UsageGroup::read).collect()
            }

            async fn oldest_usage_day(&self, org: Option<&str>) -> sqlx::Result<Option<i64>> {
                use $crate::columns::Columns;
                let query = $crate::usage::sql::first_day(org).$words();
                let row = query.fetch_optional(&self.$read).await?;
                row.map(|row| row.number("day")).transpose()
            }

            async fn delete_expired_usage(&self, today: i64) -> sqlx::Result<()> {
                use $crate::columns::Columns;
                use $crate::usage::sql;
                loop {
                    let mut transaction = self.$write.begin_with($begin).await?;
                    let first = today.saturating_sub($crate::usage::KEEP_DAYS);
                    let most = self.max_bytes / $crate::usage::BYTES_PER_ROW;
                    let expired =
                        sql::expired_day(first, most).$words().fetch_optional(&mut *transaction).await?;
                    let Some(row) = expired else {
                        sql::delete_writers().$words().execute(&mut *transaction).await?;
                        return transaction.commit().await;
                    };
                    let org = row.text("org")?;
                    let day = row.number("day")?;
                    // First the count, whose lock rows are added under.
                    sql::delete_day(&org, day).$words().execute(&mut *transaction).await?;
                    sql::delete_rows(&org, day).$words().execute(&mut *transaction).await?;
                    transaction.commit().await?;
                }
            }
        }
    };
}

pub(crate) use usage_store;
