//! Errors of databases by their codes.

/// Whether the database failed with one of these codes.
pub(crate) fn has_code(error: &sqlx::Error, codes: &[&str]) -> bool {
    let sqlx::Error::Database(error) = error else { return false };
    error.code().is_some_and(|code| codes.contains(&&*code))
}
