//! Migration of a PostgreSQL database's tables.
//!
//! Keeps true: if several processes start at once, one migrates and the others wait for it; no migration waits for a
//! lock for longer than the statements that queue behind it; a database whose machine has vanished delays a start only
//! during a migration.

use std::time::Duration;

use sqlx::migrate::{Migrate, MigrateError};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{Connection, PgConnection};
use tokio::time::{Instant, sleep};

use super::{CONTROL, ConnectError, GIVEN_BACK_WITHIN, IS_STANDBY, has_code, primary_only, within};
use crate::clock::milliseconds;
use crate::migrations::{self, SchemaError};

/// Timeout for another process's migration.
const MIGRATED_WITHIN: Duration = Duration::from_secs(900);
/// Lock timeout of a migration. Statements on the table queue behind it, and a call's statement fails after 1.5 s
/// ([`super::Waits`]).
const LOCK: Duration = Duration::from_secs(1);

/// Limits of a migration that finds the lock or its tables in use.
#[derive(Clone, Copy)]
struct Attempts {
    limit: u32,
    /// Pause between two attempts, in which statements that queued behind the migration complete.
    pause: Duration,
    /// Lock timeout of one wait for another process's migration. The wait is repeated, because only an answer
    /// distinguishes a database that makes it wait from one whose machine is gone.
    turn: Duration,
    /// Timeout of a query about the tables; longer than `turn`.
    look: Duration,
}

/// SQLSTATE of a lock timeout.
const LOCKED: [&str; 1] = ["55P03"];
/// SQLSTATEs of a server that ends its sessions, or does not accept any yet.
const SHUT_DOWN: [&str; 3] = ["57P01", "57P02", "57P03"];

/// About five minutes, well within the time that other processes wait.
const ATTEMPTS: Attempts = Attempts {
    limit: 60,
    pause: Duration::from_secs(4),
    turn: Duration::from_secs(10),
    look: Duration::from_secs(15),
};

/// Applies the migrations that the database lacks.
pub(super) async fn bring_up_to_date(options: &PgConnectOptions) -> Result<(), ConnectError> {
    migrate(options, ATTEMPTS).await
}

/// Migrates on a connection of its own, because a migration of large tables takes longer than a call may.
async fn migrate(options: &PgConnectOptions, attempts: Attempts) -> Result<(), ConnectError> {
    let failed = |error: sqlx::Error| ConnectError::of(&error);
    let lock = milliseconds(attempts.turn).to_string();
    let options = options.clone().options([("statement_timeout", "0"), ("lock_timeout", lock.as_str())]);
    let pool =
        PgPoolOptions::new().max_connections(1).acquire_timeout(CONTROL.acquire).connect_with(options).await;
    let pool = pool.map_err(failed)?;
    let mut connection = pool.acquire().await.map_err(failed)?.detach();
    let is_standby = sqlx::query_scalar(IS_STANDBY).fetch_one(&mut connection);
    within(attempts.look, is_standby).await.and_then(primary_only).map_err(failed)?;
    let migrated = alone(&mut connection, attempts).await;
    // Ignored: the lock ends with the session, which may have ended already.
    let _ = within(GIVEN_BACK_WITHIN, connection.close()).await;
    migrated
}

/// Migrates while no other process does.
async fn alone(connection: &mut PgConnection, attempts: Attempts) -> Result<(), ConnectError> {
    take_turn(connection, attempts).await.map_err(failure)?;
    let limit = sqlx::query("SELECT set_config('lock_timeout', $1, FALSE)");
    let limit = limit.bind(milliseconds(LOCK).to_string());
    let limited = within(attempts.look, limit.execute(&mut *connection)).await;
    limited.map_err(|error| failure(error.into()))?;
    for _ in 0..attempts.limit {
        match apply_pending(connection, attempts.look).await {
            Err(SchemaError::Failed(error)) if is_in_use(&error) => {
                tracing::warn!(%error, "migration waits for tables that another session uses");
                sleep(attempts.pause).await;
            }
            done => return done.map_err(failure),
        }
    }
    Err(ConnectError::InUse)
}

/// Waits until no other process migrates, for [`MIGRATED_WITHIN`] at most.
async fn take_turn(connection: &mut PgConnection, attempts: Attempts) -> Result<(), SchemaError> {
    let until = Instant::now() + MIGRATED_WITHIN;
    loop {
        match within(attempts.look, connection.lock()).await {
            Err(MigrateError::Execute(error)) if has_code(&error, &LOCKED) && Instant::now() < until => {}
            done => return done.map_err(SchemaError::Failed),
        }
    }
}

/// Applies the missing migrations. The query for them has a timeout, the migrations have none.
async fn apply_pending(connection: &mut PgConnection, look: Duration) -> Result<(), SchemaError> {
    let stores = [&migrations::CONTROL, &migrations::POSTGRES];
    let pending = within(look, migrations::pending(&mut *connection, &stores)).await?;
    migrations::apply(connection, &pending).await
}

/// Returns the error of a failed migration. A database that became unavailable says nothing about its tables.
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
    use std::collections::BTreeSet;
    use std::path::Path;
    use std::str::FromStr;

    use asp_e2e::stores::Postgres as Server;
    use sqlx::PgPool;
    use sqlx::migrate::Migrator;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio::time::timeout;

    use super::*;

    /// Longer than anything that must end takes.
    const HANG: Duration = Duration::from_secs(60);

    /// A database that accepts one session and answers none of its statements.
    async fn silent(listener: TcpListener) {
        const READY: &[u8] = b"Z\0\0\0\x05I";
        let (mut session, _) = listener.accept().await.unwrap();
        let mut message = [0; 8192];
        let started = session.read(&mut message).await.unwrap();
        assert!(started > 0, "the session begins");
        session.write_all(b"R\0\0\0\x08\0\0\0\0").await.unwrap();
        session.write_all(READY).await.unwrap();
        while let Ok(read @ 1..) = session.read(&mut message).await {
            // A pool checks whether a connection is alive by a `Sync`.
            if message[..read] == *b"S\0\0\0\x04" {
                session.write_all(READY).await.unwrap();
            }
        }
    }

    #[tokio::test]
    async fn a_database_that_goes_silent_after_the_connect_is_away() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let database = tokio::spawn(silent(listener));
        let url = format!("postgres://asp@127.0.0.1:{port}/asp?sslmode=disable");
        let options = PgConnectOptions::from_str(&url).unwrap();
        let soon = Attempts { look: Duration::from_millis(200), ..ATTEMPTS };
        let away = timeout(HANG, migrate(&options, soon)).await.unwrap();
        assert!(
            matches!(&away, Err(ConnectError::Unreachable(why)) if why.contains("does not answer")),
            "{away:?}"
        );
        timeout(HANG, database).await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_migration_of_another_process_is_waited_for_in_steps() {
        let server = Server::start().await.unwrap();
        let options = PgConnectOptions::from_str(&server.url()).unwrap();
        let mut other = PgConnection::connect_with(&options).await.unwrap();
        other.lock().await.unwrap();
        let short = Attempts { turn: Duration::from_millis(10), ..ATTEMPTS };
        let waiting = tokio::spawn(async move { migrate(&options, short).await });
        let statement = "SELECT MAX(query_start)::TEXT FROM pg_stat_activity WHERE wait_event = 'advisory'";
        let mut steps = BTreeSet::new();
        while steps.len() < 3 {
            assert!(!waiting.is_finished(), "it waits");
            let began: Option<String> = sqlx::query_scalar(statement).fetch_one(&mut other).await.unwrap();
            steps.extend(began);
        }
        other.unlock().await.unwrap();
        timeout(HANG, waiting).await.unwrap().unwrap().unwrap();
    }

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
        let twice = Attempts { limit: 2, pause: Duration::from_millis(10), ..ATTEMPTS };
        let refused = migrate(&options, twice).await;
        assert!(matches!(refused, Err(ConnectError::InUse)), "{refused:?}");
        reader.rollback().await.unwrap();
        migrate(&options, twice).await.unwrap();
    }
}
