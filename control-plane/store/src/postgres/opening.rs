//! Opening of a database, after which statements are sent to it.
//!
//! Keeps true: no statement is sent before the tables were checked and brought up to date; a database that answers but
//! refuses is distinguished from one that is unavailable.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::sleep;

use super::{ConnectError, LEASE_CONNECTIONS, Postgres, SessionOptions, Waits, schema};

/// Pause between two attempts to open a database.
const OPEN_EVERY: Duration = Duration::from_secs(1);
/// Socket directory for connections before the opening: it does not exist, so that each attempt fails at once.
const NOWHERE: &str = "/nonexistent/asp";

impl Postgres {
    /// Opens the database like [`Postgres::connect_with`]. If it is unavailable, every statement fails until
    /// [`Postgres::keep_opening`] has opened it.
    pub async fn start(url: &str, connections: u32, waits: Waits) -> Result<Postgres, ConnectError> {
        let sessions = SessionOptions::read(url, waits)?;
        let nowhere = sessions.options.clone().socket(NOWHERE);
        let lazy = |connections| sessions.pool(connections).connect_lazy_with(nowhere.clone());
        let (pool, leases) = (lazy(connections), lazy(LEASE_CONNECTIONS));
        let database = Postgres::of(sessions, pool, leases);
        match database.open().await {
            Err(ConnectError::Unreachable(error)) => {
                tracing::warn!(
                    %error,
                    "the database is unavailable: this process starts without it, and refuses requests that must be stored until it answers"
                );
                Ok(database)
            }
            opened => opened.map(|()| database),
        }
    }

    /// Whether the database is open for statements.
    pub fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Acquire)
    }

    /// Tries to open the database until it is open. Reports to `set_refused` whether it answers but refuses this
    /// process.
    pub async fn keep_opening(&self, set_refused: impl Fn(bool)) {
        let mut reported = None;
        while !self.is_open() {
            sleep(OPEN_EVERY).await;
            let refusal = match self.open().await {
                Ok(()) => {
                    tracing::info!("the database answers, and its tables are up to date");
                    None
                }
                Err(ConnectError::Unreachable(error)) => {
                    tracing::debug!(%error, "the database is still unavailable");
                    None
                }
                Err(error) => Some(error.to_string()),
            };
            set_refused(refusal.is_some());
            if let Some(error) = &refusal
                && refusal != reported
            {
                tracing::error!(
                    %error,
                    "the database answers and this process cannot use it: it is not ready, and refuses requests that must be stored"
                );
            }
            reported = refusal;
        }
    }

    /// Checks the tables, brings them up to date and opens the database for statements.
    async fn open(&self) -> Result<(), ConnectError> {
        schema::bring_up_to_date(&self.sessions.options).await?;
        let session = self.sessions.session();
        self.leases.set_connect_options(session.clone());
        self.pool.set_connect_options(session);
        self.is_open.store(true, Ordering::Release);
        Ok(())
    }
}
