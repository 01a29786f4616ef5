//! Storage for what must survive the process, and the timeouts of its use.

use std::path::{Path, PathBuf};
use std::time::Duration;

use asp_platform::secret::Secret;
use asp_store::postgres::Waits;
use clap::Args;

use super::source::Checks;
use super::values::number;

pub const ENV_DATABASE_URL: &str = "ASP_DATABASE_URL";

/// Bounds of a timeout in milliseconds.
const LEAST_WAIT: u64 = 50;
const MOST_WAIT: u64 = 600_000;
/// Default and bounds of the audit spool in bytes: some 200,000 events.
const SPOOL: u64 = 64 << 20;
const LEAST_SPOOL: u64 = 1 << 20;
const MOST_SPOOL: u64 = 1 << 36;

/// Storage of the control plane's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Database {
    Sqlite(PathBuf),
    Memory,
    /// PostgreSQL for several machines; also stores the ledger, records and audit of calls.
    Postgres(Server),
}

/// A PostgreSQL database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// May contain a password.
    pub url: Secret,
    /// Maximum connections of this process for calls; the control plane has a few more.
    pub connections: u32,
    /// Timeouts of calls.
    pub waits: Waits,
    /// Maximum size in bytes of the file that holds audit events while the database is unreachable.
    pub spool_bytes: u64,
}

/// Location that a URL names.
#[derive(Clone, Debug)]
enum Location {
    File(PathBuf),
    Memory,
    Server(Secret),
}

/// Settings of the database
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Database")]
pub struct DatabaseArgs {
    /// Database: `sqlite:<path>`, `sqlite::memory:`, or for several machines
    /// `postgres://<user>[:<password>]@<host>/<database>`, which also stores calls and their audit
    /// [default: `asp.db` in the state directory]
    #[arg(long, env = ENV_DATABASE_URL, hide_env_values = true, value_parser = location)]
    database_url: Option<Location>,
    /// Maximum connections to PostgreSQL for calls, per process
    #[arg(long, env = "ASP_DATABASE_CONNECTIONS", default_value_t = 16, value_parser = number(1..=1_000_u32))]
    database_connections: u32,
    /// Timeout of one statement of a call, in milliseconds
    #[arg(long, env = "ASP_DATABASE_STATEMENT_TIMEOUT_MS", default_value = "5000", value_parser = wait)]
    statement_timeout: Duration,
    /// Timeout for a lock, in milliseconds; below that of a statement
    #[arg(long, env = "ASP_DATABASE_LOCK_TIMEOUT_MS", default_value = "1500", value_parser = wait)]
    lock_timeout: Duration,
    /// Timeout for a connection from the pool, in milliseconds
    #[arg(long, env = "ASP_DATABASE_POOL_TIMEOUT_MS", default_value = "5000", value_parser = wait)]
    pool_timeout: Duration,
    /// Space in bytes for audit events in the state directory while PostgreSQL is unreachable; once it is half full, one org may
    /// use a tenth of it; calls that do not fit are refused
    #[arg(long, env = "ASP_AUDIT_SPOOL_BYTES", default_value_t = SPOOL, value_parser = number(LEAST_SPOOL..=MOST_SPOOL))]
    spool_bytes: u64,
}

impl DatabaseArgs {
    /// Checks the timeouts and returns the database, by default one in the state directory.
    pub(super) fn database(&self, checks: &mut Checks<'_>, state_dir: &Path) -> Database {
        let lock = self.lock_timeout;
        let statement = self.statement_timeout;
        if lock >= statement {
            let message = format!(
                "must be below ASP_DATABASE_STATEMENT_TIMEOUT_MS: {} is not below {}",
                lock.as_millis(),
                statement.as_millis()
            );
            checks.fault("ASP_DATABASE_LOCK_TIMEOUT_MS", message);
        }
        match &self.database_url {
            None => Database::Sqlite(state_dir.join("asp.db")),
            Some(Location::File(path)) => Database::Sqlite(path.clone()),
            Some(Location::Memory) => Database::Memory,
            Some(Location::Server(url)) => Database::Postgres(Server {
                url: url.clone(),
                connections: self.database_connections,
                waits: Waits { statement, lock, acquire: self.pool_timeout, ..Waits::default() },
                spool_bytes: self.spool_bytes,
            }),
        }
    }
}

/// Parses the database's URL, which may contain a password, so that no error repeats it.
fn location(text: &str) -> Result<Location, &'static str> {
    if text.starts_with("postgres://") || text.starts_with("postgresql://") {
        return Ok(Location::Server(Secret::new(text.to_owned())));
    }
    match text.strip_prefix("sqlite:").map(|rest| rest.trim_start_matches("//")) {
        Some(":memory:") => Ok(Location::Memory),
        Some(path) if !path.is_empty() => Ok(Location::File(PathBuf::from(path))),
        _ => Err("must be sqlite:<path>, sqlite::memory: or postgres://user@host/database"),
    }
}

/// Parses milliseconds.
fn wait(text: &str) -> Result<Duration, String> {
    number(LEAST_WAIT..=MOST_WAIT)(text).map(Duration::from_millis)
}
