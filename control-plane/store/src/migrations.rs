//! Schemas of the stores. Each has a baseline, a path from the tables of commit 03f3e640 to it, and the migrations
//! since.
//!
//! Refuses: any other history, before anything is changed. Keeps true: a published migration is never edited; the path
//! and each migration run in one transaction with their row of the history; a process uses newer tables only if every
//! migration unknown to it names its version, or an older one, as compatible.

use std::ops::RangeInclusive;

use sha2::{Digest, Sha256};
use sqlx::SqlSafeStr;
use sqlx::migrate::{AppliedMigration, Migrate, MigrateError, Migration, MigrationType};

use crate::hex::hex;

/// Table of the history.
const HISTORY: &str = "_sqlx_migrations";
/// Version of this process.
const OWN: &str = env!("CARGO_PKG_VERSION");
/// First line of a migration after the baseline, followed by the oldest version that can use its tables.
const COMPATIBLE: &str = "-- compatible with: ";
/// Length of the SHA-384 of a migration's statements. In the history, the oldest compatible version follows it, for
/// processes that do not know the migration.
const CHECKSUM_BYTES: usize = 48;

/// Number, name and statements of a migration.
type MigrationSource = (i64, &'static str, &'static str);

/// The schema of one store.
#[derive(Clone)]
pub(crate) struct Schema {
    /// Name of the store in errors.
    store: &'static str,
    /// Numbers of its migrations; in PostgreSQL two stores share one history.
    numbers: RangeInclusive<i64>,
    /// Creates all tables of a new database.
    baseline: MigrationSource,
    /// Statements that bring the tables of commit 03f3e640 to the baseline.
    path: &'static str,
    /// [`digest`] of the history of commit 03f3e640.
    previous: &'static str,
    /// Migrations since the baseline, oldest first.
    later: &'static [MigrationSource],
}

/// The control plane's store, on SQLite and PostgreSQL.
pub(crate) static CONTROL: Schema = Schema {
    store: "control",
    numbers: i64::MIN..=999,
    baseline: (100, "control", include_str!("../migrations/control/0100_control.sql")),
    path: include_str!("../migrations/control/from_03f3e640.sql"),
    previous: "453ac4fe7c34ad9ba1373edfa9c1621e9e613176140727fbbd65c8ec00d4541f",
    later: &[
        (101, "published forms", include_str!("../migrations/control/0101_published_forms.sql")),
        (102, "revocations created", include_str!("../migrations/control/0102_revocations_created.sql")),
        (103, "a2a confirmed", include_str!("../migrations/control/0103_a2a_confirmed.sql")),
        (104, "undo", include_str!("../migrations/control/0104_undo.sql")),
        (105, "disabled", include_str!("../migrations/control/0105_disabled.sql")),
        (106, "observed limits", include_str!("../migrations/control/0106_observed_limits.sql")),
        (107, "approvals", include_str!("../migrations/control/0107_approvals.sql")),
        (109, "limit kinds", include_str!("../migrations/control/0109_limit_kinds.sql")),
        (120, "revocation events", include_str!("../migrations/control/0120_revocation_events.sql")),
        (121, "link endings", include_str!("../migrations/control/0121_link_endings.sql")),
    ],
};

/// The audit log of calls, on SQLite.
pub(crate) static AUDIT: Schema = Schema {
    store: "audit",
    numbers: i64::MIN..=i64::MAX,
    baseline: (100, "audit", include_str!("../migrations/audit/0100_audit.sql")),
    path: include_str!("../migrations/audit/from_03f3e640.sql"),
    previous: "2600a01bac0cbfcbc76ffa9a4dface667ecd7fc07bed1244b30f1aa396bab195",
    later: &[
        (101, "audit search", include_str!("../migrations/audit/0101_audit_search.sql")),
        (102, "usage", include_str!("../migrations/audit/0102_usage.sql")),
        (103, "refused usage", include_str!("../migrations/audit/0103_refused_usage.sql")),
    ],
};

/// Ledger and records of calls, on SQLite.
pub(crate) static CALLS: Schema = Schema {
    store: "calls",
    numbers: i64::MIN..=i64::MAX,
    baseline: (100, "calls", include_str!("../migrations/calls/0100_calls.sql")),
    path: include_str!("../migrations/calls/from_03f3e640.sql"),
    previous: "3d556111586c085730f94de09e15c8c726a11c8b85f374e3149292904f661e5f",
    later: &[
        (101, "push", include_str!("../migrations/calls/0101_push.sql")),
        (102, "plugin storage", include_str!("../migrations/calls/0102_plugin_storage.sql")),
        (103, "takeovers", include_str!("../migrations/calls/0103_takeovers.sql")),
        (104, "pushed calls", include_str!("../migrations/calls/0104_pushed_calls.sql")),
        (105, "approvals", include_str!("../migrations/calls/0105_approvals.sql")),
        (106, "linked accounts", include_str!("../migrations/calls/0106_linked_accounts.sql")),
    ],
};

/// Leases and published keys of gateways, on SQLite.
pub(crate) static LEASES: Schema = Schema {
    store: "leases",
    numbers: i64::MIN..=i64::MAX,
    baseline: (100, "leases", include_str!("../migrations/leases/0100_leases.sql")),
    path: include_str!("../migrations/leases/from_03f3e640.sql"),
    previous: "38c8bd50a447fc5750c42eff4dae0375beb56a837598c18dc03b42ff30d09aab",
    later: &[],
};

/// All data of the gateways on PostgreSQL.
pub(crate) static POSTGRES: Schema = Schema {
    store: "PostgreSQL",
    numbers: 1000..=i64::MAX,
    baseline: (1100, "gateways", include_str!("../migrations/postgres/1100_postgres.sql")),
    path: include_str!("../migrations/postgres/from_03f3e640.sql"),
    previous: "22b91eecbf705474b2e53e567b32f89b5fe73f1daa0752b3bc0877297918557e",
    later: &[
        (1101, "audit partitions", include_str!("../migrations/postgres/1101_audit_partitions.sql")),
        (1102, "gateway streams", include_str!("../migrations/postgres/1102_gateway_streams.sql")),
        (1103, "push", include_str!("../migrations/postgres/1103_push.sql")),
        (1104, "plugin storage", include_str!("../migrations/postgres/1104_plugin_storage.sql")),
        (1105, "takeovers", include_str!("../migrations/postgres/1105_takeovers.sql")),
        (1106, "pushed calls", include_str!("../migrations/postgres/1106_pushed_calls.sql")),
        (1107, "approvals", include_str!("../migrations/postgres/1107_approvals.sql")),
        (1108, "audit search", include_str!("../migrations/postgres/1108_audit_search.sql")),
        (1109, "linked accounts", include_str!("../migrations/postgres/1109_linked_accounts.sql")),
        (1110, "usage", include_str!("../migrations/postgres/1110_usage.sql")),
        (1111, "refused usage", include_str!("../migrations/postgres/1111_refused_usage.sql")),
    ],
};

/// Failure to bring the tables up to date.
#[derive(Debug, thiserror::Error)]
pub enum SchemaError {
    #[error(
        "the tables of the {store} store are from a newer version of asp (migration {number}) that is not compatible with \
         this one: run that version, or use another database"
    )]
    Newer { store: &'static str, number: i64 },
    #[error(
        "the tables of the {store} store are from an unreleased version of asp (migration {number}) that cannot be upgraded, \
         and were not changed: move their content as docs/upgrade.md describes under \"Unreleased versions\""
    )]
    Unknown { store: &'static str, number: i64 },
    #[error("the tables cannot be brought up to date: {0}")]
    Failed(MigrateError),
}

impl From<sqlx::Error> for SchemaError {
    fn from(error: sqlx::Error) -> SchemaError {
        SchemaError::Failed(error.into())
    }
}

/// Applies the missing migrations of the schemas, which together make up the database. If one of them refuses the
/// history, nothing is applied.
pub(crate) async fn bring_up_to_date(
    connection: &mut (dyn Migrate + Send),
    schemas: &[&Schema],
) -> Result<(), SchemaError> {
    let pending = pending(&mut *connection, schemas).await?;
    apply(connection, &pending).await
}

/// Returns the missing migrations of the schemas, which together make up the database. Only creates the table of the
/// history.
pub(crate) async fn pending(
    connection: &mut (dyn Migrate + Send),
    schemas: &[&Schema],
) -> Result<Vec<Migration>, SchemaError> {
    connection.ensure_migrations_table(HISTORY).await.map_err(SchemaError::Failed)?;
    let history = connection.list_applied_migrations(HISTORY).await.map_err(SchemaError::Failed)?;
    let mut pending = Vec::new();
    for schema in schemas {
        pending.extend(schema.pending(&history)?);
    }
    Ok(pending)
}

/// Applies migrations in order.
pub(crate) async fn apply(
    connection: &mut (dyn Migrate + Send),
    pending: &[Migration],
) -> Result<(), SchemaError> {
    for migration in pending {
        connection.apply(HISTORY, migration).await.map_err(SchemaError::Failed)?;
    }
    Ok(())
}

impl Schema {
    /// Returns the migrations that a database with this history lacks.
    fn pending(&self, history: &[AppliedMigration]) -> Result<Vec<Migration>, SchemaError> {
        let applied: Vec<&AppliedMigration> =
            history.iter().filter(|row| self.numbers.contains(&row.version)).collect();
        let mut known: Vec<Migration> =
            std::iter::once(&self.baseline).chain(self.later).map(migration).collect();
        let Some(last) = applied.last() else { return Ok(known) };
        let (store, number) = (self.store, last.version);
        if digest(&applied) == self.previous {
            // In the history the path counts as the baseline.
            if let Some(baseline) = known.first_mut() {
                baseline.sql = self.path.into_sql_str();
            }
            return Ok(known);
        }
        let mut both = applied.iter().zip(&known);
        if !both.all(|(row, known)| row.version == known.version && row.checksum == known.checksum) {
            return Err(SchemaError::Unknown { store, number });
        }
        let newer = applied.get(known.len()..).unwrap_or_default();
        if !newer.iter().all(|row| is_compatible(&row.checksum)) {
            return Err(SchemaError::Newer { store, number });
        }
        Ok(known.split_off(applied.len().min(known.len())))
    }
}

fn migration(&(number, name, sql): &MigrationSource) -> Migration {
    let mut migration = Migration::new(number, name.into(), MigrationType::Simple, sql.into_sql_str(), false);
    if let Some(oldest) = oldest_compatible(sql) {
        migration.checksum.to_mut().extend_from_slice(oldest.as_bytes());
    }
    migration
}

/// Returns the version that a migration names as compatible.
fn oldest_compatible(sql: &str) -> Option<&str> {
    sql.strip_prefix(COMPATIBLE)?.lines().next()
}

/// Whether this process can use the tables of a migration that it does not know.
fn is_compatible(checksum: &[u8]) -> bool {
    let oldest = checksum.get(CHECKSUM_BYTES..).and_then(|version| std::str::from_utf8(version).ok());
    oldest.and_then(parsed).zip(parsed(OWN)).is_some_and(|(oldest, own)| oldest <= own)
}

/// Parses major, minor and patch version.
fn parsed(version: &str) -> Option<[u32; 3]> {
    let mut parts = version.split('.').map(|part| part.parse::<u32>().ok());
    let parsed = [parts.next()??, parts.next()??, parts.next()??];
    parts.next().is_none().then_some(parsed)
}

/// Returns the SHA-256 of the numbers and checksums of a history, in hex.
fn digest(history: &[&AppliedMigration]) -> String {
    let mut digest = Sha256::new();
    for row in history {
        digest.update(row.version.to_be_bytes());
        digest.update(&row.checksum);
    }
    hex(&digest.finalize())
}

#[cfg(test)]
mod tests;
