//! Conversions between SQL columns and the types of records: signed and unsigned integers, flags, JSON lists.

use sqlx::Row;
use sqlx::any::AnyRow;

use crate::control::{Result, StoreError, UnreadableMachine};

/// A value of a record, as a column holds it.
pub(super) trait Column: Sized {
    fn read(row: &AnyRow, column: &'static str) -> Result<Self>;
}

impl Column for String {
    fn read(row: &AnyRow, column: &'static str) -> Result<String> {
        Ok(row.try_get(column)?)
    }
}

/// A BIGINT that is never negative.
impl Column for u64 {
    fn read(row: &AnyRow, column: &'static str) -> Result<u64> {
        let value: i64 = row.try_get(column)?;
        u64::try_from(value).map_err(|_| StoreError::Backend(format!("column {column} is negative: {value}")))
    }
}

/// A boolean stored as 0 or 1.
impl Column for bool {
    fn read(row: &AnyRow, column: &'static str) -> Result<bool> {
        Ok(row.try_get::<i64, _>(column)? != 0)
    }
}

/// A JSON array of strings.
impl Column for Vec<String> {
    fn read(row: &AnyRow, column: &'static str) -> Result<Vec<String>> {
        let text: String = row.try_get(column)?;
        serde_json::from_str(&text).map_err(|error| StoreError::Backend(format!("column {column}: {error}")))
    }
}

/// Reads a value from a column.
pub(super) fn get<T: Column>(row: &AnyRow, column: &'static str) -> Result<T> {
    T::read(row, column)
}

/// Converts a value to BIGINT.
pub(super) fn signed(value: u64) -> Result<i64> {
    i64::try_from(value).map_err(|_| StoreError::Backend(format!("{value} does not fit a BIGINT")))
}

/// Reads each row separately, so that one that this version cannot read does not hide the others; `unread` describes
/// it.
pub(super) fn each<T, U>(
    rows: &[AnyRow],
    read: impl Fn(&AnyRow) -> Result<T>,
    unread: impl Fn(&AnyRow, &StoreError) -> Result<U>,
) -> Result<(Vec<T>, Vec<U>)> {
    let (mut known, mut unknown) = (Vec::with_capacity(rows.len()), Vec::new());
    for row in rows {
        match read(row) {
            Ok(record) => known.push(record),
            Err(error) => unknown.push(unread(row, &error)?),
        }
    }
    Ok((known, unknown))
}

/// Describes an unreadable row about an org's machines.
pub(super) fn unreadable_machine(
    row: &AnyRow,
    kind: &'static str,
    error: &StoreError,
) -> Result<UnreadableMachine> {
    let (org, id) = (row.try_get("org")?, row.try_get("id")?);
    Ok(UnreadableMachine { org, kind, id, fault: error.to_string() })
}

/// Maximum number of rows of one statement: SQLite accepts 32,766 parameters.
pub(super) const MAX_ROWS: usize = 1_000;

/// Returns `$1, $2` for the given number of parameters.
pub(super) fn parameters(count: usize) -> String {
    let all: Vec<String> = (1..=count).map(|parameter| format!("${parameter}")).collect();
    all.join(", ")
}

/// Returns `VALUES ($1, $2), ($3, $4)` for the given number of rows.
pub(super) fn values(rows: usize, columns: usize) -> String {
    let row = |row: usize| {
        let parameters: Vec<String> =
            (1..=columns).map(|column| format!("${}", row * columns + column)).collect();
        format!("({})", parameters.join(", "))
    };
    let rows: Vec<String> = (0..rows).map(row).collect();
    format!("VALUES {}", rows.join(", "))
}
