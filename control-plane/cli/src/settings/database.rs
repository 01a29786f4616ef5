//! Storage for what must survive the process, and the timeouts of its use.

use std::path::{Path, PathBuf};
use std::time::Duration;

use asp_platform::secret::Secret;
use asp_store::postgres::Waits;

use super::source::Reader;

pub const ENV_DATABASE_URL: &str = "ASP_DATABASE_URL";
pub const ENV_DATABASE_CONNECTIONS: &str = "ASP_DATABASE_CONNECTIONS";
pub const ENV_DATABASE_STATEMENT: &str = "ASP_DATABASE_STATEMENT_TIMEOUT_MS";
pub const ENV_DATABASE_LOCK: &str = "ASP_DATABASE_LOCK_TIMEOUT_MS";
pub const ENV_DATABASE_POOL: &str = "ASP_DATABASE_POOL_TIMEOUT_MS";
pub const ENV_AUDIT_SPOOL: &str = "ASP_AUDIT_SPOOL_BYTES";

/// Default number of connections for calls: a call uses one a few times, for milliseconds.
const CONNECTIONS: u32 = 16;
/// Bounds of a timeout in milliseconds.
const LEAST_WAIT: u64 = 50;
const MOST_WAIT: u64 = 600_000;
/// Default and bounds of the audit spool in bytes, used while the database is unreachable: some 200,000 events.
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

pub(super) fn read(reader: &mut Reader<'_>, state_dir: &Path) -> Database {
    let connections = reader.number(ENV_DATABASE_CONNECTIONS, CONNECTIONS, 1..=1_000);
    let waits = waits(reader);
    let spool_bytes = reader.number(ENV_AUDIT_SPOOL, SPOOL, LEAST_SPOOL..=MOST_SPOOL);
    let Some(url) = reader.shared(ENV_DATABASE_URL) else {
        return Database::Sqlite(state_dir.join("asp.db"));
    };
    if url.starts_with("postgres://") || url.starts_with("postgresql://") {
        return Database::Postgres(Server { url: Secret::new(url), connections, waits, spool_bytes });
    }
    match url.strip_prefix("sqlite:").map(|rest| rest.trim_start_matches("//")) {
        Some(":memory:") => Database::Memory,
        Some(path) if !path.is_empty() => Database::Sqlite(PathBuf::from(path)),
        _ => {
            // The URL may contain a password, so it is not repeated.
            let must = "must be sqlite:<path>, sqlite::memory: or postgres://user@host/database";
            reader.fault(ENV_DATABASE_URL, must);
            Database::Memory
        }
    }
}

fn waits(reader: &mut Reader<'_>) -> Waits {
    let default = Waits::default();
    let mut wait = |name: &str, default: Duration| {
        let milliseconds = u64::try_from(default.as_millis()).unwrap_or(MOST_WAIT);
        Duration::from_millis(reader.number(name, milliseconds, LEAST_WAIT..=MOST_WAIT))
    };
    let waits = Waits {
        statement: wait(ENV_DATABASE_STATEMENT, default.statement),
        lock: wait(ENV_DATABASE_LOCK, default.lock),
        acquire: wait(ENV_DATABASE_POOL, default.acquire),
        ..default
    };
    if waits.lock >= waits.statement {
        let lock = waits.lock.as_millis();
        let statement = waits.statement.as_millis();
        let must = format!("must be below {ENV_DATABASE_STATEMENT}: {lock} is not below {statement}");
        reader.fault(ENV_DATABASE_LOCK, must);
    }
    waits
}
