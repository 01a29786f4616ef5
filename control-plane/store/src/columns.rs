//! Columns of rows, read the same way from every database.

use bytes::Bytes;
use sqlx::{ColumnIndex, Decode, Row, Type};

/// A row of any database.
pub(crate) trait Columns {
    fn bytes(&self, column: &str) -> sqlx::Result<Option<Vec<u8>>>;

    fn text(&self, column: &str) -> sqlx::Result<String>;

    fn number(&self, column: &str) -> sqlx::Result<i64>;

    fn flag(&self, column: &str) -> sqlx::Result<bool>;

    /// Reads bytes; empty for null.
    fn blob(&self, column: &str) -> sqlx::Result<Bytes> {
        Ok(Bytes::from(self.bytes(column)?.unwrap_or_default()))
    }

    /// Reads an id or a digest of 16 bytes, if there is one.
    fn optional_id(&self, column: &str) -> sqlx::Result<Option<[u8; 16]>> {
        let Some(bytes) = self.bytes(column)? else { return Ok(None) };
        let id: Result<[u8; 16], Vec<u8>> = bytes.try_into();
        id.map(Some).map_err(|_| sqlx::Error::Decode(format!("{column} is not 16 bytes long").into()))
    }

    /// Reads an id or a digest of 16 bytes.
    fn id(&self, column: &str) -> sqlx::Result<[u8; 16]> {
        let missing = || sqlx::Error::Decode(format!("{column} is null").into());
        self.optional_id(column)?.ok_or_else(missing)
    }
}

impl<R> Columns for R
where
    R: Row,
    for<'c> &'c str: ColumnIndex<R>,
    for<'r> Vec<u8>: Decode<'r, R::Database> + Type<R::Database>,
    for<'r> String: Decode<'r, R::Database> + Type<R::Database>,
    for<'r> i64: Decode<'r, R::Database> + Type<R::Database>,
    for<'r> bool: Decode<'r, R::Database> + Type<R::Database>,
{
    fn bytes(&self, column: &str) -> sqlx::Result<Option<Vec<u8>>> {
        self.try_get(column)
    }

    fn text(&self, column: &str) -> sqlx::Result<String> {
        self.try_get(column)
    }

    fn number(&self, column: &str) -> sqlx::Result<i64> {
        self.try_get(column)
    }

    fn flag(&self, column: &str) -> sqlx::Result<bool> {
        self.try_get(column)
    }
}
