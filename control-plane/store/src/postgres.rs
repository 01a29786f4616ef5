//! State that several machines share, on PostgreSQL.
//!
//! Owns the connections and the timeouts of statements; `schema.rs` brings the tables up to date, and `opening.rs`
//! opens a database that was unavailable. Keeps true: leases are judged by the database's clock; no statement and no
//! lock waits for ever, so that a hanging database causes errors and not a hanging gateway; a connection to a vanished
//! machine is removed from its pool; no statement runs on a standby.

mod audit;
mod calls;
pub(crate) mod former_events;
mod gateway_registry;
mod live;
#[cfg(feature = "s3")]
pub(crate) mod objects;
mod opening;
mod partitions;
mod quotas;
mod schema;
mod usage;

use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sqlx::any::{AnyConnectOptions, AnyPoolOptions};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AnyPool, Connection, Executor, PgPool, Row};
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use crate::calls::SWEEP_REST;
use crate::control::StoreError;
use crate::control::sql::{ControlStore, OperationTimeouts, Pools};
use crate::database_error::has_code;
use crate::ledger::Budget;
use crate::ledger::waiters::Waiters;
use crate::records::CallQuotas;

pub use crate::migrations::SchemaError;
pub use audit::PostgresAudit;
pub use calls::PostgresCalls;
pub use gateway_registry::PostgresGateways;

/// Timeouts of the control plane's sessions, which read everything and write one change after the other.
const CONTROL: Waits = Waits {
    statement: Duration::from_secs(15),
    lock: Duration::from_secs(5),
    idle: Duration::from_secs(3),
    acquire: Duration::from_secs(3),
};
/// Timeouts of the control plane's operations, which have several statements.
const CONTROL_TIMEOUTS: OperationTimeouts =
    OperationTimeouts { poll: Duration::from_secs(5), operation: Duration::from_secs(30) };
/// Lifetime of a connection, after which a database behind a changed name is found.
const LIFETIME: Duration = Duration::from_secs(1800);
/// Timeout of the check of a released connection. If its machine is gone, the kernel waits for a quarter of an hour,
/// and the connection would occupy its slot for as long.
const GIVEN_BACK_WITHIN: Duration = Duration::from_secs(5);
/// Time added to the database's own timeouts and to the wait for a connection.
const SLACK: Duration = Duration::from_secs(1);
/// Connections of the control plane. Publishing and revocations have connections of their own, so that they do not wait
/// for other writes and reads; two each, because one may lead to a machine that is gone.
const CONTROL_CONNECTIONS: u32 = 4;
const PUBLISHING_CONNECTIONS: u32 = 2;
const REVOKING_CONNECTIONS: u32 = 2;
/// Connections for the lease of one gateway and for calls of gateways that are gone.
const LEASE_CONNECTIONS: u32 = 2;
/// Query whether the server of a new connection is a standby.
const IS_STANDBY: &str = "SELECT pg_is_in_recovery()";
/// Maximum rows that one statement of a sweep deletes.
const SWEEP_ROWS: i64 = 500;

/// Timeouts of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waits {
    /// Maximum duration of a statement.
    pub statement: Duration,
    /// Maximum wait of a statement for another's lock.
    pub lock: Duration,
    /// Maximum idle time within a transaction: if its process is gone or hangs, its locks are released after it.
    pub idle: Duration,
    /// Maximum wait for a connection.
    pub acquire: Duration,
}

/// Timeouts for calls; gateways give up on a statement after 2 s.
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
    /// Returns the settings of a session.
    fn session(self) -> [(&'static str, String); 3] {
        let milliseconds = |length: Duration| format!("{}ms", length.as_millis());
        [
            ("statement_timeout", milliseconds(self.statement)),
            ("lock_timeout", milliseconds(self.lock)),
            ("idle_in_transaction_session_timeout", milliseconds(self.idle)),
        ]
    }
}

/// Failure to reach the database or to bring it up to date. Never includes the URL, which may hold a password.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error("the URL is not one of a PostgreSQL database: {0}")]
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

/// SQLSTATEs of a database that refuses a session: the user or the password (class 28), the database's name, a
/// permission.
const REFUSALS: [&str; 4] = ["28000", "28P01", "3D000", "42501"];

impl ConnectError {
    /// Returns the error of a failed connection.
    fn of(error: &sqlx::Error) -> ConnectError {
        let is_refused = match error {
            sqlx::Error::Configuration(_) | sqlx::Error::Tls(_) => true,
            error => has_code(error, &REFUSALS),
        };
        let text = error.to_string();
        if is_refused { ConnectError::Refused(text) } else { ConnectError::Unreachable(text) }
    }
}

/// Address of a database and timeouts of sessions there.
#[derive(Clone)]
struct SessionOptions {
    options: PgConnectOptions,
    /// Options of connections for portable statements.
    portable: AnyConnectOptions,
    waits: Waits,
}

impl SessionOptions {
    /// Parses a URL; its errors do not repeat it.
    fn read(url: &str, waits: Waits) -> Result<SessionOptions, ConnectError> {
        known_parameters(url)?;
        // The parser's error does not repeat its input.
        let misread = |error: sqlx::Error| ConnectError::Url(error.to_string());
        let options = PgConnectOptions::from_str(url).map_err(misread)?.application_name("asp");
        let portable = AnyConnectOptions::from_str(url).map_err(misread)?;
        Ok(SessionOptions { options, portable, waits })
    }

    /// Returns the options of the sessions of calls.
    fn session(&self) -> PgConnectOptions {
        self.options.clone().options(self.waits.session())
    }

    fn pool(&self, connections: u32) -> PgPoolOptions {
        PgPoolOptions::new()
            .max_connections(connections)
            .acquire_timeout(self.waits.acquire)
            .max_lifetime(LIFETIME)
            .after_connect(|connection, _| {
                Box::pin(
                    async move { primary_only(sqlx::query_scalar(IS_STANDBY).fetch_one(connection).await?) },
                )
            })
            .after_release(|connection, _| Box::pin(answers(connection)))
    }
}

/// A database.
#[derive(Clone)]
pub struct Postgres {
    sessions: Arc<SessionOptions>,
    pool: PgPool,
    /// Pool for the leases of gateways only.
    leases: PgPool,
    /// Timeout for a statement of a call; longer than the database lets it run.
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

    /// Connects like [`Postgres::connect`], with other timeouts for calls.
    pub async fn connect_with(url: &str, connections: u32, waits: Waits) -> Result<Postgres, ConnectError> {
        let sessions = SessionOptions::read(url, waits)?;
        schema::bring_up_to_date(&sessions.options).await?;
        // Opened only by processes that renew leases.
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

    /// Opens connections for the control plane's portable statements.
    pub(crate) async fn portable(&self, connections: u32) -> sqlx::Result<AnyPool> {
        sqlx::any::install_default_drivers();
        AnyPoolOptions::new()
            .max_connections(connections)
            .acquire_timeout(CONTROL.acquire)
            .max_lifetime(LIFETIME)
            .after_release(|connection, _| Box::pin(answers(connection)))
            .after_connect(|connection, _| {
                Box::pin(async move {
                    primary_only(sqlx::query_scalar(IS_STANDBY).fetch_one(&mut *connection).await?)?;
                    for (name, value) in CONTROL.session() {
                        let set = query!("SELECT set_config($1, $2, FALSE)", name, value);
                        connection.execute(set).await?;
                    }
                    Ok(())
                })
            })
            .connect_with(self.sessions.portable.clone())
            .await
    }

    /// Returns the control plane's store.
    pub async fn control(&self) -> Result<ControlStore, StoreError> {
        let pools = Pools {
            all_else: self.portable(CONTROL_CONNECTIONS).await?,
            publishing: self.portable(PUBLISHING_CONNECTIONS).await?,
            revoking: self.portable(REVOKING_CONNECTIONS).await?,
        };
        Ok(ControlStore::of_postgres(pools, CONTROL_TIMEOUTS))
    }

    /// Returns the reason why an acknowledged commit may be lost, if the server's settings allow that: in a crash, or
    /// in a failover to a standby that commits do not wait for.
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

    /// Returns the ledger and records of calls, with the given limits.
    pub fn calls(&self, budget: Budget, bounds: CallQuotas) -> PostgresCalls {
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

    /// Returns the audit log of calls, whose events may take about `max_bytes`.
    pub fn audit(&self, max_bytes: u64) -> PostgresAudit {
        PostgresAudit::new(self.pool.clone(), max_bytes, self.longest)
    }

    /// Returns the registry of the gateways that are connected to control planes.
    pub fn gateway_registry(&self) -> PostgresGateways {
        PostgresGateways { pool: self.pool.clone(), longest: self.longest }
    }

    /// Closes the connections after the current statements.
    pub async fn close(&self) {
        self.leases.close().await;
        self.pool.close().await;
    }
}

/// Parameters of the URL that the driver knows. It would ignore any other and log it with its value, which may be
/// secret.
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
    // Without naming it: an unencoded question mark in a password would start the parameters.
    Err(ConnectError::Url(format!("it has a parameter other than {}", PARAMETERS.join(", "))))
}

/// Waits for the answer of a database; fails after `longest`, because a vanished machine never answers.
async fn within<T, E: From<sqlx::Error>>(
    longest: Duration,
    answer: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    timeout(longest, answer).await.unwrap_or_else(|_| {
        let why = format!("the database does not answer within {} s", longest.as_secs());
        Err(sqlx::Error::Io(std::io::Error::new(std::io::ErrorKind::TimedOut, why)).into())
    })
}

/// Rejects a connection to a standby, to which a name may still lead after a failover. It would stay in its pool for
/// [`LIFETIME`], fail every write, and return an old state to the control plane.
fn primary_only(is_standby: bool) -> sqlx::Result<()> {
    if is_standby {
        let why = "the server is a standby, which accepts no writes; its name must lead to the primary";
        return Err(sqlx::Error::Io(std::io::Error::other(why)));
    }
    Ok(())
}

/// Whether a released connection can be reused; otherwise it is dropped without notice to the database.
async fn answers<C: Connection>(connection: &mut C) -> sqlx::Result<bool> {
    within(GIVEN_BACK_WITHIN, connection.ping()).await.map(|()| true)
}

/// Whether this process may run, for the next `length`, a task that one process does for all.
async fn has_turn(pool: &PgPool, name: &str, length: Duration) -> sqlx::Result<bool> {
    // A turn that ends far later than a new one is from before the clock was set back.
    let turn = "INSERT INTO turns (name, until_ms) VALUES ($1, now_ms() + $2) \
         ON CONFLICT (name) DO UPDATE SET until_ms = excluded.until_ms \
         WHERE turns.until_ms <= now_ms() OR turns.until_ms > excluded.until_ms + $2";
    let turn = query!(turn, name, crate::clock::milliseconds(length)).execute(pool).await?;
    Ok(turn.rows_affected() == 1)
}
