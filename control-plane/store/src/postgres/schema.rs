//! Brings the tables of a PostgreSQL database up to date.
//!
//! Keeps true: of several processes that start at once one migrates, and the others wait for it; no migration waits for a lock
//! for longer than the statements that queue behind it.

use std::time::Duration;

use sqlx::PgConnection;
use sqlx::migrate::{Migrate, MigrateError};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use tokio::time::sleep;

use super::audit::has_code;
use super::{CONTROL, ConnectError};
use crate::clock::milliseconds;
use crate::migrations::{self, SchemaError};

/// How long a process waits for another one's migration.
const MIGRATED_WITHIN: Duration = Duration::from_secs(900);
/// How long a migration waits for a lock. Whatever uses the table queues behind it, and a call's statement fails after 1.5 s
/// ([`super::Waits`]).
const LOCK: Duration = Duration::from_secs(1);

/// How often a migration is tried that found its tables in use.
#[derive(Clone, Copy)]
struct Attempts {
    limit: u32,
    /// Between two of them: what queued behind the migration is done by then.
    pause: Duration,
}

/// SQLSTATEs of a server that ends its sessions, or takes none yet.
const SHUT_DOWN: [&str; 3] = ["57P01", "57P02", "57P03"];

/// Some five minutes, well within the time that other processes wait.
const ATTEMPTS: Attempts = Attempts { limit: 60, pause: Duration::from_secs(4) };

/// Applies the migrations that the database lacks.
pub(super) async fn bring_up_to_date(options: &PgConnectOptions) -> Result<(), ConnectError> {
    migrate(options, ATTEMPTS).await
}

/// On a connection of its own, because a migration of large tables takes longer than a call may.
async fn migrate(options: &PgConnectOptions, attempts: Attempts) -> Result<(), ConnectError> {
    let failed = |error: sqlx::Error| ConnectError::of(&error);
    let lock = milliseconds(MIGRATED_WITHIN).to_string();
    let options = options.clone().options([("statement_timeout", "0"), ("lock_timeout", lock.as_str())]);
    let pool =
        PgPoolOptions::new().max_connections(1).acquire_timeout(CONTROL.acquire).connect_with(options).await;
    let pool = pool.map_err(failed)?;
    let mut connection = pool.acquire().await.map_err(failed)?;
    let migrated = alone(&mut connection, attempts).await;
    drop(connection);
    // The lock ends with the session.
    pool.close().await;
    migrated
}

/// Migrates while no other process does.
async fn alone(connection: &mut PgConnection, attempts: Attempts) -> Result<(), ConnectError> {
    connection.lock().await.map_err(|error| failure(SchemaError::Failed(error)))?;
    let limit = sqlx::query("SELECT set_config('lock_timeout', $1, FALSE)");
    let limited = limit.bind(milliseconds(LOCK).to_string()).execute(&mut *connection).await;
    limited.map_err(|error| failure(SchemaError::Failed(error.into())))?;
    for _ in 0..attempts.limit {
        let stores = [&migrations::CONTROL, &migrations::POSTGRES];
        match migrations::bring_up_to_date(&mut *connection, &stores).await {
            Err(SchemaError::Failed(error)) if is_in_use(&error) => {
                tracing::warn!(%error, "migration waits for tables that another session uses");
                sleep(attempts.pause).await;
            }
            done => return done.map_err(failure),
        }
    }
    Err(ConnectError::InUse)
}

/// The error of tables that could not be brought up to date; a database that went away meanwhile says nothing of them.
fn failure(error: SchemaError) -> ConnectError {
    let SchemaError::Failed(MigrateError::Execute(cause) | MigrateError::ExecuteMigration(cause, _)) = &error
    else {
        return ConnectError::Schema(error);
    };
    if matches!(cause, sqlx::Error::Io(_)) || has_code(cause, &SHUT_DOWN) {
        return ConnectError::Unreachable(error.to_string());
    }
    ConnectError::Schema(error)
}

/// Whether another session kept a migration from its tables: `lock_not_available` or `deadlock_detected`.
fn is_in_use(error: &MigrateError) -> bool {
    let MigrateError::ExecuteMigration(sqlx::Error::Database(error), _) = error else { return false };
    matches!(error.code().as_deref(), Some("55P03" | "40P01"))
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::str::FromStr;

    use asp_e2e::stores::Postgres as Server;
    use sqlx::PgPool;
    use sqlx::migrate::Migrator;

    use super::*;

    #[tokio::test]
    async fn a_migration_gives_up_while_a_reader_stays_and_is_done_when_it_is_gone() {
        let server = Server::start().await.unwrap();
        let pool = PgPool::connect(&server.url()).await.unwrap();
        let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/03f3e640");
        for store in ["control", "postgres"] {
            let mut former = Migrator::new(data.join(store)).await.unwrap();
            former.set_ignore_missing(true).run(&pool).await.unwrap();
        }
        let mut reader = pool.begin().await.unwrap();
        sqlx::query("SELECT COUNT(*) FROM call_records").execute(&mut *reader).await.unwrap();
        let options = PgConnectOptions::from_str(&server.url()).unwrap();
        let twice = Attempts { limit: 2, pause: Duration::from_millis(10) };
        let refused = migrate(&options, twice).await;
        assert!(matches!(refused, Err(ConnectError::InUse)), "{refused:?}");
        reader.rollback().await.unwrap();
        migrate(&options, twice).await.unwrap();
    }
}
