//! State that several machines share, on PostgreSQL.
//!
//! Owns the connections, the migrations and what a statement may take. Keeps true: the schema only goes forward, and one that
//! a newer version made is refused; time that decides about leases is the database's; no statement and no lock waits for
//! ever, so a database that hangs is an error and not a gateway that hangs.

pub(crate) mod audit;
mod keys;
mod ledger;
mod records;
mod room;

use std::str::FromStr;
use std::time::Duration;

use sqlx::any::{AnyConnectOptions, AnyPoolOptions};
use sqlx::migrate::MigrateError;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AnyPool, Executor, PgPool};

use crate::control::StoreError;
use crate::control::sql::{self, SqlStore};
use crate::ledger::Budget;
use crate::ledger::waiters::Waiters;
use crate::migrations::{Numbered, migrator};
use crate::records::Bounds;

pub use audit::PostgresAudit;

/// Settings of a session: the longest that a statement runs, and that it waits for a lock; a transaction whose process is
/// gone, or hangs, holds its locks no longer than the last says.
type Session = [(&'static str, &'static str); 3];
/// Of calls: gateways wait 2 s for a statement.
const CALLS: Session =
    [("statement_timeout", "5s"), ("lock_timeout", "1500ms"), ("idle_in_transaction_session_timeout", "10s")];
/// Of the control plane, which reads all that there is and writes one change after the other.
const CONTROL: Session =
    [("statement_timeout", "60s"), ("lock_timeout", "5s"), ("idle_in_transaction_session_timeout", "60s")];
/// How long whoever wants a connection waits for one.
const ACQUIRE: Duration = Duration::from_secs(5);
/// A connection is made anew after this long, so that a database behind a changed name is found.
const LIFETIME: Duration = Duration::from_secs(1800);
/// Of the control plane.
const CONTROL_CONNECTIONS: u32 = 4;
/// Most rows that one statement of a sweep deletes.
const SWEEP_ROWS: i64 = 500;
/// How long a sweep leaves the database to others between two statements.
const SWEEP_REST: Duration = Duration::from_millis(20);

/// The migrations of what is the gateways', oldest first, beside those of the control store. A published one is never
/// edited.
const MIGRATIONS: [Numbered; 2] = [
    (1001, "calls", include_str!("../migrations/postgres/1001_calls.sql")),
    (1002, "keys", include_str!("../migrations/postgres/1002_keys.sql")),
];

/// The database could not be reached or brought up to date. Never says the URL, which may hold a password.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error("the URL is none of a PostgreSQL database: {0}")]
    Url(String),
    #[error("the database cannot be reached: {0}")]
    Unreachable(String),
    #[error(
        "the database's schema is of a newer version of asp than this one: run that version, or a database of its own"
    )]
    Newer,
    #[error("the database's schema cannot be brought up to date: {0}")]
    Migrate(String),
}

/// A database.
#[derive(Clone)]
pub struct Postgres {
    pool: PgPool,
    /// How connections for portable statements are made.
    portable: AnyConnectOptions,
}

impl Postgres {
    /// Connects with at most `connections` at a time, and brings the schema up to date. `url` is
    /// `postgres://user[:password]@host[:port]/database[?sslmode=…]`.
    pub async fn connect(url: &str, connections: u32) -> Result<Postgres, ConnectError> {
        // The error of the parser does not repeat what it was given.
        let misread = |error: sqlx::Error| ConnectError::Url(error.to_string());
        let options = PgConnectOptions::from_str(url).map_err(misread)?;
        let portable = AnyConnectOptions::from_str(url).map_err(misread)?;
        let options = options.application_name("asp").options(CALLS);
        let pool = PgPoolOptions::new()
            .max_connections(connections)
            .acquire_timeout(ACQUIRE)
            .max_lifetime(LIFETIME)
            .connect_with(options)
            .await
            .map_err(|error| ConnectError::Unreachable(error.to_string()))?;
        migrate(&pool).await?;
        Ok(Postgres { pool, portable })
    }

    /// Connections for the control plane, whose statements every database takes.
    pub(crate) async fn portable(&self, connections: u32) -> Result<AnyPool, sqlx::Error> {
        sqlx::any::install_default_drivers();
        AnyPoolOptions::new()
            .max_connections(connections)
            .acquire_timeout(ACQUIRE)
            .max_lifetime(LIFETIME)
            .after_connect(|connection, _| {
                Box::pin(async move {
                    for (name, value) in CONTROL {
                        let set = sqlx::query("SELECT set_config($1, $2, FALSE)").bind(name).bind(value);
                        connection.execute(set).await?;
                    }
                    Ok(())
                })
            })
            .connect_with(self.portable.clone())
            .await
    }

    /// The control plane's store.
    pub async fn control(&self) -> Result<SqlStore, StoreError> {
        Ok(SqlStore::of_postgres(self.portable(CONTROL_CONNECTIONS).await?))
    }

    /// Ledger and records of calls, with these bounds of what they keep.
    pub fn calls(&self, budget: Budget, bounds: Bounds) -> PostgresCalls {
        PostgresCalls { pool: self.pool.clone(), waiters: Waiters::default(), budget, bounds }
    }

    /// The audit log of calls, whose events may take about `max_bytes`.
    pub fn audit(&self, max_bytes: u64) -> PostgresAudit {
        PostgresAudit::new(self.pool.clone(), max_bytes)
    }

    /// Ends the connections; statements under way finish first.
    pub async fn close(&self) {
        self.pool.close().await;
    }
}

/// Several processes may start at once: the migrator takes a lock of the database.
async fn migrate(pool: &PgPool) -> Result<(), ConnectError> {
    let all: Vec<Numbered> = sql::MIGRATIONS.iter().chain(&MIGRATIONS).copied().collect();
    migrator(&all).run(pool).await.map_err(|error| match error {
        MigrateError::VersionMissing(_) | MigrateError::VersionTooNew(..) => ConnectError::Newer,
        other => ConnectError::Migrate(other.to_string()),
    })
}

/// Ledger and records of calls, and of the gateways their leases and published keys.
pub struct PostgresCalls {
    pool: PgPool,
    /// Those of this process who wait for a key.
    waiters: Waiters,
    budget: Budget,
    /// Of the records of ended calls.
    bounds: Bounds,
}

/// Whether it is this process's turn to do for the next `length` what one does for all.
async fn has_turn(pool: &PgPool, name: &str, length: Duration) -> Result<bool, sqlx::Error> {
    let turn = sqlx::query(
        "INSERT INTO turns (name, until_ms) VALUES ($1, now_ms() + $2) \
         ON CONFLICT (name) DO UPDATE SET until_ms = excluded.until_ms WHERE turns.until_ms <= now_ms()",
    );
    let turn = turn.bind(name).bind(crate::clock::milliseconds(length)).execute(pool).await?;
    Ok(turn.rows_affected() == 1)
}
