//! Opening of the control plane's SQLite file, or of a database in memory, for its portable statements.

use std::path::Path;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};

use sqlx::any::{AnyConnectOptions, AnyPoolOptions};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AnyConnection, AnyPool, ConnectOptions, Connection, Executor};

use super::file::replacing_stuck;
use crate::control::StoreError;
use crate::control::sql::ControlStore;
use crate::{migrations, private};

/// Reads run in parallel with the single writer; more connections only cost memory.
const MAX_CONNECTIONS: u32 = 4;
/// Settings of a file that survives a power loss, as revocations and policy must (I-6). SQLite waits 5 s for another
/// process's write, longer than any takes.
const OF_A_FILE: [&str; 2] = ["PRAGMA journal_mode = WAL", "PRAGMA synchronous = FULL"];

impl ControlStore {
    /// Opens or creates the SQLite file and brings its schema up to date.
    pub async fn file(path: &Path) -> Result<ControlStore, StoreError> {
        let failed = |error: String| StoreError::Backend(format!("open {}: {error}", path.display()));
        private::database(path).map_err(|error| failed(format!("make it private: {error}")))?;
        let whole = std::path::absolute(path).map_err(|error| failed(error.to_string()))?;
        let url = SqliteConnectOptions::new().filename(whole).to_url_lossy();
        sqlx::any::install_default_drivers();
        let pool = opened(AnyConnectOptions::from_url(&url)?, MAX_CONNECTIONS, &OF_A_FILE).await?;
        Ok(ControlStore::of_sqlite(pool, None))
    }

    /// Creates a store in memory that lives as long as the value.
    pub async fn in_memory() -> Result<ControlStore, StoreError> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        // Connections share the database by its name.
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let url = format!("sqlite:file:asp-control-{number}?mode=memory");
        let options = AnyConnectOptions::from_str(&url)?;
        sqlx::any::install_default_drivers();
        let holder = AnyConnection::connect_with(&options).await?;
        // Two connections would lock each other's tables and fail at once, without waiting.
        let pool = opened(options, 1, &[]).await?;
        Ok(ControlStore::of_sqlite(pool, Some(holder)))
    }
}

/// Opens the database and brings its schema up to date.
async fn opened(
    options: AnyConnectOptions,
    connections: u32,
    settings: &'static [&'static str],
) -> Result<AnyPool, StoreError> {
    let pool = replacing_stuck(AnyPoolOptions::new())
        // No `min_connections`: the pool would open a second connection at the same time, and if two connections
        // switch a new file to WAL mode at once, SQLite rejects one of them, regardless of the busy timeout. Open
        // connections stay open.
        .max_connections(connections)
        .idle_timeout(None)
        .max_lifetime(None)
        .after_connect(move |connection, _| {
            Box::pin(async move {
                for setting in settings {
                    connection.execute(*setting).await?;
                }
                Ok(())
            })
        })
        .connect_with(options)
        .await?;
    let mut connection = pool.acquire().await?;
    let migrated = migrations::bring_up_to_date(&mut *connection, &[&migrations::CONTROL]).await;
    migrated.map_err(|e| StoreError::Backend(e.to_string()))?;
    drop(connection);
    Ok(pool)
}
