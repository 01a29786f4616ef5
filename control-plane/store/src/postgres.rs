//! State that several machines share, on PostgreSQL.
//!
//! Owns the connections and what a statement may take; `schema.rs` brings the tables up to date, and `opening.rs` opens a database
//! that was away. Keeps true: time that decides about leases is the database's; no statement and no lock waits for ever, so a
//! database that hangs is an error and not a gateway that hangs; a connection whose machine is gone without a word gives its place
//! back.

mod audit;
pub(crate) mod former_events;
mod heard;
mod keys;
mod ledger;
#[cfg(feature = "s3")]
pub(crate) mod objects;
mod opening;
mod partitions;
mod records;
mod room;
mod schema;

use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sqlx::any::{AnyConnectOptions, AnyPoolOptions};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AnyPool, Connection, Executor, PgPool, Row};
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use crate::control::StoreError;
use crate::control::sql::{Longest, Pools, SqlStore};
use crate::ledger::Budget;
use crate::ledger::waiters::Waiters;
use crate::records::Bounds;

pub use crate::migrations::SchemaError;
pub use audit::PostgresAudit;
pub use heard::PostgresHeard;

/// How long the control plane's sessions wait: it reads all that there is and writes one change after the other.
const CONTROL: Waits = Waits {
    statement: Duration::from_secs(15),
    lock: Duration::from_secs(5),
    idle: Duration::from_secs(3),
    acquire: Duration::from_secs(3),
};
/// Time limits of the control plane's operations, which have several statements.
const CONTROL_LONGEST: Longest = Longest { look: Duration::from_secs(5), operation: Duration::from_secs(30) };
/// A connection is made anew after this long, so that a database behind a changed name is found.
const LIFETIME: Duration = Duration::from_secs(1800);
/// How long a connection that is given back may take to answer. Where its machine is gone the kernel waits for a quarter of an
/// hour, and so would its place.
const GIVEN_BACK_WITHIN: Duration = Duration::from_secs(5);
/// Beyond what the database itself lets a statement take, and what a connection is waited for.
const SLACK: Duration = Duration::from_secs(1);
/// Connections of the control plane. Publishing and revocations have connections of their own, so that they do not wait for other
/// writes and reads; two each, because one may lead to a machine that is gone.
const CONTROL_CONNECTIONS: u32 = 4;
const PUBLISHING_CONNECTIONS: u32 = 2;
const REVOKING_CONNECTIONS: u32 = 2;
/// Connections for the lease of one gateway and for calls of gateways that are gone.
const LEASE_CONNECTIONS: u32 = 2;
/// Most rows that one statement of a sweep deletes.
const SWEEP_ROWS: i64 = 500;
/// How long a sweep leaves the database to others between two statements.
const SWEEP_REST: Duration = Duration::from_millis(20);

/// How long what uses the database waits for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waits {
    /// The longest that a statement runs.
    pub statement: Duration,
    /// The longest that a statement waits for another's lock.
    pub lock: Duration,
    /// The longest that a transaction does nothing: one whose process is gone, or hangs, holds its locks no longer.
    pub idle: Duration,
    /// The longest that somebody waits for a connection.
    pub acquire: Duration,
}

/// Of calls: gateways give a statement up after 2 s.
impl Default for Waits {
    fn default() -> Waits {
        Waits {
            statement: Duration::from_secs(5),
            lock: Duration::from_millis(1500),
            idle: Duration::from_secs(2),
            acquire: Duration::from_secs(5),
        }
    }
}

impl Waits {
    /// Settings of a session.
    fn session(self) -> [(&'static str, String); 3] {
        let milliseconds = |length: Duration| format!("{}ms", length.as_millis());
        [
            ("statement_timeout", milliseconds(self.statement)),
            ("lock_timeout", milliseconds(self.lock)),
            ("idle_in_transaction_session_timeout", milliseconds(self.idle)),
        ]
    }
}

/// The database could not be reached or brought up to date. Never says the URL, which may hold a password.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error("the URL is none of a PostgreSQL database: {0}")]
    Url(String),
    #[error("the database cannot be reached: {0}")]
    Unreachable(String),
    #[error(
        "the database refuses this process: {0}; check the user, the password and the database's name in its URL"
    )]
    Refused(String),
    #[error(transparent)]
    Schema(#[from] SchemaError),
    #[error(
        "the tables cannot be brought up to date while another session uses them (a backup, a long transaction): wait for it or \
         end it, and start again"
    )]
    InUse,
}

/// SQLSTATEs of a database that refuses a session: the user or the password (class 28), the database's name, a permission.
const REFUSALS: [&str; 4] = ["28000", "28P01", "3D000", "42501"];

impl ConnectError {
    /// The error of a connection that could not be made.
    fn of(error: &sqlx::Error) -> ConnectError {
        let is_refused = match error {
            sqlx::Error::Configuration(_) | sqlx::Error::Tls(_) => true,
            error => audit::has_code(error, &REFUSALS),
        };
        let text = error.to_string();
        if is_refused { ConnectError::Refused(text) } else { ConnectError::Unreachable(text) }
    }
}

/// Address of a database and the time limits of sessions there.
#[derive(Clone)]
struct SessionOptions {
    options: PgConnectOptions,
    /// Options of connections for portable statements.
    portable: AnyConnectOptions,
    waits: Waits,
}

impl SessionOptions {
    /// Reads a URL; its errors do not repeat it.
    fn read(url: &str, waits: Waits) -> Result<SessionOptions, ConnectError> {
        known_parameters(url)?;
        // The error of the parser does not repeat what it was given.
        let misread = |error: sqlx::Error| ConnectError::Url(error.to_string());
        let options = PgConnectOptions::from_str(url).map_err(misread)?.application_name("asp");
        let portable = AnyConnectOptions::from_str(url).map_err(misread)?;
        Ok(SessionOptions { options, portable, waits })
    }

    /// Options of the sessions of calls.
    fn session(&self) -> PgConnectOptions {
        self.options.clone().options(self.waits.session())
    }

    fn pool(&self, connections: u32) -> PgPoolOptions {
        PgPoolOptions::new()
            .max_connections(connections)
            .acquire_timeout(self.waits.acquire)
            .max_lifetime(LIFETIME)
            .after_release(|connection, _| Box::pin(answers(connection)))
    }
}

/// A database.
#[derive(Clone)]
pub struct Postgres {
    sessions: Arc<SessionOptions>,
    pool: PgPool,
    /// For the leases of gateways alone.
    leases: PgPool,
    /// How long a statement of a call is waited for: longer than the database lets it run.
    longest: Duration,
    /// Whether the tables were checked.
    is_open: Arc<AtomicBool>,
}

impl Postgres {
    /// Connects with at most `connections` at a time, and brings the schema up to date. `url` is
    /// `postgres://user[:password]@host[:port]/database[?sslmode=…]`.
    pub async fn connect(url: &str, connections: u32) -> Result<Postgres, ConnectError> {
        Postgres::connect_with(url, connections, Waits::default()).await
    }

    /// The same, and what calls do there waits so long.
    pub async fn connect_with(url: &str, connections: u32, waits: Waits) -> Result<Postgres, ConnectError> {
        let sessions = SessionOptions::read(url, waits)?;
        schema::bring_up_to_date(&sessions.options).await?;
        // Only those that renew leases open any of these.
        let leases = sessions.pool(LEASE_CONNECTIONS).connect_lazy_with(sessions.session());
        let pool = sessions.pool(connections).connect_with(sessions.session()).await;
        let pool = pool.map_err(|error| ConnectError::of(&error))?;
        let database = Postgres::of(sessions, pool, leases);
        database.is_open.store(true, Ordering::Release);
        Ok(database)
    }

    fn of(sessions: SessionOptions, pool: PgPool, leases: PgPool) -> Postgres {
        let Waits { acquire, lock, statement, .. } = sessions.waits;
        let longest = acquire + lock.max(statement) + SLACK;
        Postgres {
            sessions: Arc::new(sessions),
            pool,
            leases,
            longest,
            is_open: Arc::new(AtomicBool::new(false)),
        }
    }

    /// Connections for the control plane, whose statements every database takes.
    pub(crate) async fn portable(&self, connections: u32) -> Result<AnyPool, sqlx::Error> {
        sqlx::any::install_default_drivers();
        AnyPoolOptions::new()
            .max_connections(connections)
            .acquire_timeout(CONTROL.acquire)
            .max_lifetime(LIFETIME)
            .after_release(|connection, _| Box::pin(answers(connection)))
            .after_connect(|connection, _| {
                Box::pin(async move {
                    for (name, value) in CONTROL.session() {
                        let set = sqlx::query("SELECT set_config($1, $2, FALSE)").bind(name).bind(value);
                        connection.execute(set).await?;
                    }
                    Ok(())
                })
            })
            .connect_with(self.sessions.portable.clone())
            .await
    }

    /// The control plane's store.
    pub async fn control(&self) -> Result<SqlStore, StoreError> {
        let pools = Pools {
            all_else: self.portable(CONTROL_CONNECTIONS).await?,
            publishing: self.portable(PUBLISHING_CONNECTIONS).await?,
            revoking: self.portable(REVOKING_CONNECTIONS).await?,
        };
        Ok(SqlStore::of_postgres(pools, CONTROL_LONGEST))
    }

    /// Why a commit that was acknowledged may be lost, if the server is set up so that one may: by a crash, or by a failover to a
    /// standby that it does not wait for.
    pub async fn may_lose_commits(&self) -> Result<Option<&'static str>, StoreError> {
        let asked = sqlx::query(
            "SELECT current_setting('synchronous_commit') AS waits, \
             current_setting('synchronous_standby_names') = '' AS names_none, \
             EXISTS (SELECT FROM pg_stat_replication) AS streams",
        );
        let row = asked.fetch_one(&self.pool).await?;
        let waits: String = row.try_get("waits")?;
        let waits_for_none = waits == "local" || row.try_get("names_none")?;
        Ok(match waits.as_str() {
            "off" => Some("commits do not wait for the disk: synchronous_commit is off"),
            _ if waits_for_none && row.try_get("streams")? => {
                Some("a standby streams that commits do not wait for: set synchronous_standby_names")
            }
            _ => None,
        })
    }

    /// Ledger and records of calls, with these bounds of what they keep.
    pub fn calls(&self, budget: Budget, bounds: Bounds) -> PostgresCalls {
        let waiters = Waiters::default();
        PostgresCalls {
            pool: self.pool.clone(),
            leases: self.leases.clone(),
            waiters,
            budget,
            bounds,
            longest: self.longest,
            making_room: TaskTracker::new(),
        }
    }

    /// The audit log of calls, whose events may take about `max_bytes`.
    pub fn audit(&self, max_bytes: u64) -> PostgresAudit {
        PostgresAudit::new(self.pool.clone(), max_bytes, self.longest)
    }

    /// What control planes hear of gateways.
    pub fn heard_gateways(&self) -> PostgresHeard {
        PostgresHeard { pool: self.pool.clone(), longest: self.longest }
    }

    /// Ends the connections; statements under way finish first.
    pub async fn close(&self) {
        self.leases.close().await;
        self.pool.close().await;
    }
}

/// Parameters of the URL that the driver knows: it would pass over any other and log it with its value, which may be secret.
const PARAMETERS: [&str; 18] = [
    "sslmode",
    "ssl-mode",
    "sslrootcert",
    "ssl-root-cert",
    "ssl-ca",
    "sslcert",
    "ssl-cert",
    "sslkey",
    "ssl-key",
    "statement-cache-capacity",
    "host",
    "hostaddr",
    "port",
    "dbname",
    "user",
    "password",
    "application_name",
    "options",
];

fn known_parameters(url: &str) -> Result<(), ConnectError> {
    let query = url.split_once('?').map_or("", |(_, query)| query);
    let query = query.split('#').next().unwrap_or_default();
    let mut keys = query.split('&').filter(|pair| !pair.is_empty()).map(|pair| pair.split('=').next());
    if keys.all(|key| key.is_some_and(|key| PARAMETERS.contains(&key) || key.starts_with("options["))) {
        return Ok(());
    }
    // Not which: in a password, a question mark that is not encoded begins the parameters.
    Err(ConnectError::Url(format!("it has a parameter that is none of {}", PARAMETERS.join(", "))))
}

/// Ledger and records of calls, and of the gateways their leases and published keys.
pub struct PostgresCalls {
    pool: PgPool,
    leases: PgPool,
    /// Those of this process who wait for a key.
    waiters: Waiters,
    budget: Budget,
    /// Of the records of ended calls.
    bounds: Bounds,
    longest: Duration,
    /// Deletions of what is over the bounds.
    making_room: TaskTracker,
}

impl PostgresCalls {
    async fn in_time<T>(
        &self,
        answer: impl Future<Output = Result<T, sqlx::Error>>,
    ) -> Result<T, sqlx::Error> {
        within(self.longest, answer).await
    }
}

/// The answer of a database that is there. One whose machine is gone without a word gives none, and is not waited for.
async fn within<T, E: From<sqlx::Error>>(
    longest: Duration,
    answer: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    timeout(longest, answer).await.unwrap_or_else(|_| {
        let why = format!("the database does not answer within {} s", longest.as_secs());
        Err(sqlx::Error::Io(std::io::Error::new(std::io::ErrorKind::TimedOut, why)).into())
    })
}

/// Whether a connection that is given back can be used again; one that cannot is closed without a word.
async fn answers<C: Connection>(connection: &mut C) -> Result<bool, sqlx::Error> {
    within(GIVEN_BACK_WITHIN, connection.ping()).await.map(|()| true)
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
