//! The one place where SQL's columns meet the records' types: signed integers unsigned ones, JSON lists.

use sqlx::Row;
use sqlx::any::AnyRow;

use crate::control::{StoreError, UnreadableMachine};

/// Reads a BIGINT that is never negative.
pub(super) fn unsigned(row: &AnyRow, column: &'static str) -> Result<u64, StoreError> {
    let value: i64 = row.try_get(column)?;
    u64::try_from(value).map_err(|_| StoreError::Backend(format!("column {column} is negative: {value}")))
}

/// Reads a boolean kept as 0 or 1.
pub(super) fn flag(row: &AnyRow, column: &'static str) -> Result<bool, StoreError> {
    let value: i64 = row.try_get(column)?;
    Ok(value != 0)
}

/// Makes a value fit BIGINT.
pub(super) fn signed(value: u64) -> Result<i64, StoreError> {
    i64::try_from(value).map_err(|_| StoreError::Backend(format!("{value} does not fit a BIGINT")))
}

/// Reads a JSON array of texts.
pub(super) fn texts(row: &AnyRow, column: &'static str) -> Result<Vec<String>, StoreError> {
    let text: String = row.try_get(column)?;
    serde_json::from_str(&text).map_err(|error| StoreError::Backend(format!("column {column}: {error}")))
}

/// Reads each row by itself, so that one which this version cannot read keeps none of the others from being read; `unread`
/// names it.
pub(super) fn each<T, U>(
    rows: &[AnyRow],
    read: impl Fn(&AnyRow) -> Result<T, StoreError>,
    unread: impl Fn(&AnyRow, &StoreError) -> Result<U, StoreError>,
) -> Result<(Vec<T>, Vec<U>), StoreError> {
    let (mut known, mut unknown) = (Vec::with_capacity(rows.len()), Vec::new());
    for row in rows {
        match read(row) {
            Ok(record) => known.push(record),
            Err(error) => unknown.push(unread(row, &error)?),
        }
    }
    Ok((known, unknown))
}

/// Names a row about an org's machines that cannot be read.
pub(super) fn unreadable_machine(
    row: &AnyRow,
    kind: &'static str,
    error: &StoreError,
) -> Result<UnreadableMachine, StoreError> {
    let (org, id) = (row.try_get("org")?, row.try_get("id")?);
    Ok(UnreadableMachine { org, kind, id, fault: error.to_string() })
}

/// Most rows of one statement: SQLite takes 32,766 parameters.
pub(super) const MAX_ROWS: usize = 1_000;

/// `VALUES ($1, $2), ($3, $4)` for so many rows.
pub(super) fn values(rows: usize, columns: usize) -> String {
    let row = |row: usize| {
        let parameters: Vec<String> =
            (1..=columns).map(|column| format!("${}", row * columns + column)).collect();
        format!("({})", parameters.join(", "))
    };
    let rows: Vec<String> = (0..rows).map(row).collect();
    format!("VALUES {}", rows.join(", "))
}
