//! Where what must survive a process is kept: SQLite files below the state directory for one machine, PostgreSQL for
//! several.
//!
//! Owns opening and sweeping. A control plane needs the database to start; a gateway alone starts without one that is away.
//! Keeps true: control store, calls and audit of a process are all of one kind, so that what
//! one of them refers to is where the others are; audit events that PostgreSQL does not take while it is away wait in a file
//! of this machine.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use asp_store::audit::AuditLog;
use asp_store::audit::spool::SpooledAudit;
use asp_store::audit::sqlite::SqliteAudit;
use asp_store::calls::SqliteCalls;
use asp_store::control::ControlStore;
use asp_store::control::sql::SqlStore;
use asp_store::heard_gateways::HeardGateways;
use asp_store::ledger::{Budget, Ledger};
use asp_store::postgres::{Postgres, PostgresAudit, PostgresCalls};
use asp_store::published_keys::PublishedKeys;
use asp_store::records::{CallQuotas, CallRecords};

use crate::settings::Settings;
use crate::settings::database::{Database, Server};

/// Ledger and running calls, below the state directory; the leases of gateways are beside it.
pub(crate) const CALLS_FILE: &str = "calls.db";
/// The audit log of calls, below the state directory.
pub(crate) const AUDIT_FILE: &str = "audit.db";
/// Audit events that wait for PostgreSQL, below the state directory.
const AUDIT_SPOOL_FILE: &str = "audit-spool.db";
const SWEEP_EVERY: Duration = Duration::from_secs(600);
/// Context of an error of the operator's database.
const OPENING: &str = "open the database that ASP_DATABASE_URL names";

/// The open stores of a process. Every process reads or writes the audit log of calls.
pub(super) enum Stores {
    Files { audit: Arc<SqliteAudit> },
    Postgres { database: Postgres, audit: Arc<PostgresAudit>, spool_bytes: u64 },
}

/// What gateways keep of calls.
pub(super) enum Calls {
    Files(Arc<SqliteCalls>, Arc<SqliteAudit>),
    Postgres { calls: Arc<PostgresCalls>, audit: Arc<PostgresAudit>, spool: Arc<SpooledAudit> },
}

impl Stores {
    pub(super) async fn open(settings: &Settings) -> anyhow::Result<Stores> {
        let most = settings.calls.audit_max_bytes;
        match &settings.database {
            Database::Sqlite(_) | Database::Memory => {
                let file = settings.state_dir.join(AUDIT_FILE);
                let audit = SqliteAudit::open(&file, most).await;
                let audit = Arc::new(audit.with_context(|| format!("open {}", file.display()))?);
                Ok(Stores::Files { audit })
            }
            Database::Postgres(server) => {
                let database = match settings.roles.control {
                    true => connect(server).await?,
                    // A gateway has its snapshot from elsewhere.
                    false => start(server).await?,
                };
                let audit = Arc::new(database.audit(most));
                Ok(Stores::Postgres { database, audit, spool_bytes: server.spool_bytes })
            }
        }
    }

    pub(super) fn audit(&self) -> Arc<dyn AuditLog> {
        match self {
            Stores::Files { audit } => audit.clone(),
            Stores::Postgres { audit, .. } => audit.clone(),
        }
    }

    /// The database of several machines, where there is one.
    pub(super) fn postgres(&self) -> Option<&Postgres> {
        match self {
            Stores::Files { .. } => None,
            Stores::Postgres { database, .. } => Some(database),
        }
    }

    /// The control plane's.
    pub(super) async fn control(&self, settings: &Settings) -> anyhow::Result<Arc<dyn ControlStore>> {
        let store = match (self, &settings.database) {
            (Stores::Postgres { database, .. }, _) => {
                if let Some(why) = database.may_lose_commits().await.context("ask how commits are kept")? {
                    tracing::warn!(
                        why,
                        "a failover or a crash of the database may lose what was acknowledged, revocations and results \
                         among it (docs/databases.md)"
                    );
                }
                database.control().await.context("open the store in PostgreSQL")?
            }
            (Stores::Files { .. }, Database::Sqlite(path)) => SqlStore::file(path).await?,
            (Stores::Files { .. }, _) => SqlStore::in_memory().await.context("open the store in memory")?,
        };
        Ok(Arc::new(store))
    }

    /// Where control planes tell each other which gateways they hear; `None`: there is one control plane.
    pub(super) fn heard_gateways(&self) -> Option<Arc<dyn HeardGateways>> {
        match self {
            Stores::Files { .. } => None,
            Stores::Postgres { database, .. } => Some(Arc::new(database.heard_gateways())),
        }
    }

    /// A gateway's.
    pub(super) async fn calls(&self, settings: &Settings) -> anyhow::Result<Calls> {
        match self {
            Stores::Files { audit } => {
                let file = settings.state_dir.join(CALLS_FILE);
                let calls =
                    SqliteCalls::open(&file).await.with_context(|| format!("open {}", file.display()))?;
                Ok(Calls::Files(Arc::new(calls), audit.clone()))
            }
            Stores::Postgres { database, audit, spool_bytes } => {
                let calls = Arc::new(database.calls(Budget::default(), CallQuotas::default()));
                let file = settings.state_dir.join(AUDIT_SPOOL_FILE);
                let spool = SpooledAudit::open(audit.clone(), &file, *spool_bytes).await;
                let spool = spool.with_context(|| format!("open {}", file.display()))?;
                Ok(Calls::Postgres { calls, audit: audit.clone(), spool: Arc::new(spool) })
            }
        }
    }
}

/// Opens the operator's database. Its errors never say the URL, which may hold a password.
pub(crate) async fn connect(server: &Server) -> anyhow::Result<Postgres> {
    Postgres::connect_with(server.url.expose(), server.connections, server.waits).await.context(OPENING)
}

/// The same where it may be away: then [`Postgres::keep_opening`] opens it.
async fn start(server: &Server) -> anyhow::Result<Postgres> {
    Postgres::start(server.url.expose(), server.connections, server.waits).await.context(OPENING)
}

impl Calls {
    pub(super) fn ledger(&self) -> Arc<dyn Ledger> {
        match self {
            Calls::Files(calls, _) => calls.clone(),
            Calls::Postgres { calls, .. } => calls.clone(),
        }
    }

    pub(super) fn records(&self) -> Arc<dyn CallRecords> {
        match self {
            Calls::Files(calls, _) => calls.clone(),
            Calls::Postgres { calls, .. } => calls.clone(),
        }
    }

    /// Where gateways publish the keys of their tokens.
    pub(super) fn published_keys(&self) -> Arc<dyn PublishedKeys> {
        match self {
            Calls::Files(calls, _) => calls.clone(),
            Calls::Postgres { calls, .. } => calls.clone(),
        }
    }

    /// Where the events of calls go.
    pub(super) fn audit(&self) -> Arc<dyn AuditLog> {
        match self {
            Calls::Files(_, audit) => audit.clone(),
            Calls::Postgres { spool, .. } => spool.clone(),
        }
    }

    /// Does what is to be done from time to time; never ends.
    pub(super) async fn keep(self) {
        match &self {
            Calls::Files(..) => self.keep_sweeping().await,
            Calls::Postgres { audit, spool, .. } => {
                tokio::join!(self.keep_sweeping(), audit.keep_sweeping(), spool.keep_moving());
            }
        }
    }

    /// Deletes what is past its retention, now and from time to time; never ends.
    async fn keep_sweeping(&self) {
        let mut ticks = tokio::time::interval(SWEEP_EVERY);
        loop {
            ticks.tick().await;
            for swept in self.sweep().await {
                if let Err(error) = swept {
                    tracing::warn!(%error, "what is past its retention stays for now");
                }
            }
        }
    }

    async fn sweep(&self) -> Vec<anyhow::Result<()>> {
        match self {
            Calls::Files(calls, audit) => {
                take_over(calls, audit).await;
                vec![calls.sweep().await.map_err(Into::into), audit.sweep().await.map_err(Into::into)]
            }
            Calls::Postgres { calls, .. } => vec![calls.sweep().await.map_err(Into::into)],
        }
    }
}

/// Brings the audit events of an earlier version to the others.
async fn take_over(calls: &SqliteCalls, audit: &SqliteAudit) {
    match audit.take_over(calls).await {
        Ok(0) => {}
        Ok(events) => tracing::info!(events, "audit events of an earlier version are in {AUDIT_FILE} now"),
        Err(error) => {
            tracing::warn!(%error, "audit events of an earlier version stay in {CALLS_FILE} for now");
        }
    }
}
