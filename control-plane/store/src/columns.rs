//! Columns of bytes, read the same way from every database.

use bytes::Bytes;
use sqlx::{ColumnIndex, Decode, Row, Type};

/// Reads bytes; empty for null.
pub(crate) fn blob<R>(row: &R, column: &str) -> Result<Bytes, sqlx::Error>
where
    R: Row,
    for<'c> &'c str: ColumnIndex<R>,
    for<'r> Vec<u8>: Decode<'r, R::Database> + Type<R::Database>,
{
    let bytes: Option<Vec<u8>> = row.try_get(column)?;
    Ok(Bytes::from(bytes.unwrap_or_default()))
}

/// Reads an id or a digest of 16 bytes.
pub(crate) fn id<R>(row: &R, column: &str) -> Result<[u8; 16], sqlx::Error>
where
    R: Row,
    for<'c> &'c str: ColumnIndex<R>,
    for<'r> Vec<u8>: Decode<'r, R::Database> + Type<R::Database>,
{
    let bytes: Vec<u8> = row.try_get(column)?;
    bytes.try_into().map_err(|_| sqlx::Error::Decode(format!("{column} is not 16 bytes long").into()))
}
