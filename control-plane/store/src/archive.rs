//! Export and import of a whole database as lines of JSON, between SQLite and PostgreSQL in any direction.
//!
//! Owns the format (`lines.rs`), the list of tables (`tables.rs`) and the checks. Refuses: a database that is not
//! empty, an archive that is truncated or changed, and one with the tables of another version. Keeps true: an import
//! into PostgreSQL is all or nothing, one into SQLite is all or nothing for each file; imported rows are read back, and
//! every table has the checksum from the archive.
//!
//! Stop the processes that write before an export: each SQLite file is read in one transaction, but not all three at
//! the same moment.

mod lines;
mod tables;

use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::StreamExt;
use serde_json::Value;
use sqlx::any::{AnyConnectOptions, AnyPoolOptions, AnyRow};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{Any, AnyConnection, AssertSqlSafe, ConnectOptions, Row, Transaction};

use crate::control::sql::ControlStore;
use crate::control::{Change, StoreError};
use crate::postgres::{Postgres, former_events};
use crate::sqlite::{SqliteAudit, SqliteCalls};

use lines::{ArchiveReader, ArchiveWriter, Rows, TableLine};
use tables::{ArchiveTable, Dialect, Kind, SqliteFile, TABLES};

/// Limit for the events of a file while it is brought up to date, in bytes: none are removed.
const NO_BOUND: u64 = u64::MAX;

#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    #[error("database: {0}")]
    Database(String),
    #[error("the archive cannot be read or written: {0}")]
    Io(#[from] std::io::Error),
    #[error("line {line} of the archive: {fault}")]
    Malformed { line: u64, fault: String },
    #[error("the database is not empty: the table {0} has rows. Import into an empty one")]
    NotEmpty(&'static str),
    #[error(
        "the table {table} has the checksum {found} after the import and {expected} in the archive: a PostgreSQL database \
         is unchanged, SQLite files must be deleted"
    )]
    Differs { table: &'static str, expected: String, found: String },
}

/// Result of an operation on an archive.
type Result<T, E = ArchiveError> = std::result::Result<T, E>;

from_failure!(sqlx::Error => ArchiveError::Database);

/// Revisions added if no past revision is given: more than a database changes within the age of a backup.
const FAR: u64 = 1_000_000;

/// Moves the numbers of later deliveries past the imported ones.
const NUMBER_DELIVERIES: &str = "SELECT setval(pg_get_serial_sequence('push_deliveries', 'seq'), \
     COALESCE(MAX(seq), 0) + 1, FALSE) FROM push_deliveries";
/// Moves the numbers of later approvals past the imported ones.
const NUMBER_APPROVALS: &str = "SELECT setval(pg_get_serial_sequence('approvals', 'seq'), \
     COALESCE(MAX(seq), 0) + 1, FALSE) FROM approvals";

/// A database: SQLite's three files, or PostgreSQL.
pub enum ArchiveDatabase {
    Files { control: PathBuf, calls: PathBuf, audit: PathBuf },
    Postgres(Postgres),
}

/// Number and checksum of a table's rows, as found, exported or imported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    pub table: &'static str,
    pub rows: u64,
    /// SHA-256 of the rows in hex, the same in every database; empty if the rows were only counted.
    pub sha256: String,
}

/// Brings the tables up to date.
pub async fn migrate(source: &ArchiveDatabase) -> Result<()> {
    match source {
        // Opening it migrates it.
        ArchiveDatabase::Postgres(_) => Ok(()),
        ArchiveDatabase::Files { control, calls, audit } => bring_up_to_date(control, calls, audit).await,
    }
}

/// Counts the rows of each table.
pub async fn count(source: &ArchiveDatabase) -> Result<Vec<Summary>> {
    let mut open = OpenDatabase::of(source).await?;
    let mut counted = Vec::new();
    for table in &TABLES {
        counted.push(Summary { table: table.name, rows: open.count(table).await?, sha256: String::new() });
    }
    Ok(counted)
}

/// Raises the published revision past `past`, or far past the current one if `None`. Needed after the restore of an
/// older database, because edges and gateways have seen later revisions. Returns the revision before and after. `at`:
/// Unix milliseconds.
pub async fn raise_revision(source: &ArchiveDatabase, past: Option<u64>, at: u64) -> Result<(u64, u64)> {
    let failed = |error: StoreError| ArchiveError::Database(error.to_string());
    let store = match source {
        ArchiveDatabase::Postgres(database) => database.control().await.map_err(failed)?,
        ArchiveDatabase::Files { control, .. } => ControlStore::file(control).await.map_err(failed)?,
    };
    let before = store.revision().await.map_err(failed)?;
    let to = past.map_or(before.saturating_add(FAR), |past| past.saturating_add(1));
    let change = Change::unconditional("asp db raise-revision", at);
    let raised = store.raise_revision(&change, to).await.map_err(failed)?;
    store.close().await;
    Ok((before, raised.revision))
}

/// Writes all tables to `out`.
pub async fn export(source: &ArchiveDatabase, out: impl Write) -> Result<Vec<Summary>> {
    let mut open = OpenDatabase::of(source).await?;
    let mut writer = ArchiveWriter::new(out)?;
    let mut written = Vec::new();
    for table in &TABLES {
        writer.table(table)?;
        let summary = open.read(table, |row| writer.row(row)).await?.summary(table);
        writer.end_of(&summary)?;
        written.push(summary);
    }
    writer.finish()?;
    Ok(written)
}

/// Imports an archive into an empty database.
pub async fn import(source: &ArchiveDatabase, archive: impl BufRead) -> Result<Vec<Summary>> {
    let mut open = OpenDatabase::of(source).await?;
    for table in &TABLES {
        let least = u64::from(table.seeded);
        if open.count(table).await? > least || (table.seeded && open.revision().await? != 0) {
            return Err(ArchiveError::NotEmpty(table.name));
        }
    }
    let mut reader = ArchiveReader::new(archive)?;
    let mut came = Vec::new();
    for table in &TABLES {
        if table.seeded {
            open.clear(table).await?;
        }
        let insert: Arc<str> = table.insert(open.dialect).into();
        let expected = loop {
            match reader.next(table)? {
                TableLine::Row(values) => open.write(table, &insert, values).await?,
                TableLine::End(summary) => break summary,
            }
        };
        let found = open.read(table, |_| Ok(())).await?.summary(table);
        if found != expected {
            let (expected, found) = (expected.sha256, found.sha256);
            return Err(ArchiveError::Differs { table: table.name, expected, found });
        }
        came.push(found);
    }
    reader.finish()?;
    open.commit().await?;
    Ok(came)
}

/// A database being read or written, with one transaction for each of its files.
struct OpenDatabase {
    dialect: Dialect,
    /// One for PostgreSQL; control, calls and audit for SQLite.
    parts: Vec<Transaction<'static, Any>>,
}

impl OpenDatabase {
    async fn of(source: &ArchiveDatabase) -> Result<OpenDatabase> {
        match source {
            ArchiveDatabase::Postgres(database) => {
                let pool = database.portable(1).await?;
                let mut begun = pool.begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ").await?;
                // The time needed depends on the number of rows.
                for unbounded in ["statement_timeout", "idle_in_transaction_session_timeout"] {
                    let set = sqlx::query("SELECT set_config($1, '0', TRUE)").bind(unbounded);
                    set.execute(&mut *begun).await?;
                }
                Ok(OpenDatabase { dialect: Dialect::Postgres, parts: vec![begun] })
            }
            ArchiveDatabase::Files { control, calls, audit } => {
                bring_up_to_date(control, calls, audit).await?;
                let mut parts = Vec::new();
                for path in [control, calls, audit] {
                    let whole = std::path::absolute(path)?;
                    let url = SqliteConnectOptions::new().filename(whole).to_url_lossy();
                    let pool = AnyPoolOptions::new().max_connections(1);
                    let pool = pool.connect_with(AnyConnectOptions::from_url(&url)?).await?;
                    parts.push(pool.begin().await?);
                }
                Ok(OpenDatabase { dialect: Dialect::Sqlite, parts })
            }
        }
    }

    fn part(&mut self, table: &ArchiveTable) -> Result<&mut AnyConnection> {
        let place = match (self.dialect, table.home) {
            (Dialect::Postgres, _) | (_, SqliteFile::Control) => 0,
            (_, SqliteFile::Calls) => 1,
            (_, SqliteFile::Audit) => 2,
        };
        let part = self.parts.get_mut(place);
        part.map(|part| &mut **part).ok_or_else(|| ArchiveError::Database("a file is not open".into()))
    }

    async fn count(&mut self, table: &ArchiveTable) -> Result<u64> {
        let statement = table.count(self.dialect);
        let row = sqlx::query(AssertSqlSafe(statement)).fetch_one(self.part(table)?).await?;
        Ok(u64::try_from(row.try_get::<i64, _>(0)?).unwrap_or_default())
    }

    async fn revision(&mut self) -> Result<i64> {
        let [table, ..] = &TABLES;
        let row = sqlx::query("SELECT revision FROM control_revision").fetch_one(self.part(table)?).await?;
        Ok(row.try_get(0)?)
    }

    async fn clear(&mut self, table: &ArchiveTable) -> Result<()> {
        let statement = table.clear(self.dialect);
        sqlx::query(AssertSqlSafe(statement)).execute(self.part(table)?).await?;
        Ok(())
    }

    /// Passes every row of a table to `take`, in order.
    async fn read(
        &mut self,
        table: &ArchiveTable,
        mut take: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<Rows> {
        let statement = table.select(self.dialect);
        let mut stored = sqlx::query(AssertSqlSafe(statement)).fetch(self.part(table)?);
        let mut rows = Rows::default();
        while let Some(row) = stored.next().await {
            let line = lines::row(&values(table, &row?)?)?;
            rows.take(&line);
            take(&line)?;
        }
        Ok(rows)
    }

    async fn write(&mut self, table: &ArchiveTable, statement: &Arc<str>, values: Vec<Value>) -> Result<()> {
        let mut insert = sqlx::query(AssertSqlSafe(Arc::clone(statement)));
        for (column, value) in table.columns.iter().zip(values) {
            insert = match column.kind {
                Kind::Text => insert.bind(value.as_str().map(str::to_owned)),
                Kind::Integer | Kind::Flag => insert.bind(value.as_i64()),
                Kind::Bytes => insert.bind(lines::bytes(&value)),
            };
        }
        insert.execute(self.part(table)?).await?;
        Ok(())
    }

    async fn commit(mut self) -> Result<()> {
        if self.dialect == Dialect::Postgres {
            let [first, ..] = self.parts.as_mut_slice() else { return Ok(()) };
            for statement in former_events::after_import() {
                sqlx::query(AssertSqlSafe(statement)).execute(&mut **first).await?;
            }
            sqlx::query(NUMBER_DELIVERIES).execute(&mut **first).await?;
            sqlx::query(NUMBER_APPROVALS).execute(&mut **first).await?;
        }
        for part in self.parts {
            part.commit().await?;
        }
        Ok(())
    }
}

/// Returns a row's values in the order of the table's columns.
fn values(table: &ArchiveTable, row: &AnyRow) -> sqlx::Result<Vec<Value>> {
    let read = |(place, kind): (usize, Kind)| -> sqlx::Result<Value> {
        Ok(match kind {
            Kind::Text => row.try_get::<Option<String>, _>(place)?.into(),
            Kind::Integer | Kind::Flag => row.try_get::<Option<i64>, _>(place)?.into(),
            Kind::Bytes => row.try_get::<Option<Vec<u8>>, _>(place)?.map(|bytes| lines::text(&bytes)).into(),
        })
    };
    table.columns.iter().map(|column| column.kind).enumerate().map(read).collect()
}

/// Brings the tables of the files up to date.
async fn bring_up_to_date(control: &Path, calls: &Path, audit: &Path) -> Result<()> {
    let failed = |error: &dyn std::fmt::Display| ArchiveError::Database(error.to_string());
    let store = ControlStore::file(control).await.map_err(|error| failed(&error))?;
    store.close().await;
    let calls = SqliteCalls::open(calls).await.map_err(|error| failed(&error))?;
    let audit = SqliteAudit::open(audit, NO_BOUND).await.map_err(|error| failed(&error))?;
    audit.close().await;
    calls.close().await;
    Ok(())
}
