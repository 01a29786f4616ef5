//! Storage for what must survive a process: SQLite files below the state directory for one machine, PostgreSQL for several.
//!
//! Owns opening and sweeping. A control plane needs the database to start; a gateway without the control role starts even if
//! the database is unreachable. Keeps true: control store, calls and audit of a process are of one kind, so that references
//! between them resolve; audit events that PostgreSQL does not accept while it is unreachable wait in a file on this machine,
//! and those of a process that is killed are in its journal there.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use asp_platform::clock;
use asp_store::approvals::ApprovalStore;
use asp_store::audit::AuditLog;
use asp_store::control::sql::ControlStore;
use asp_store::gateway_registry::GatewayRegistry;
use asp_store::ledger::{Budget, Ledger};
use asp_store::linked_accounts::LinkedAccounts;
use asp_store::live::LiveStore;
use asp_store::plugin_storage::PluginStorage;
use asp_store::postgres::{Postgres, PostgresAudit, PostgresCalls};
use asp_store::published_keys::PublishedKeys;
use asp_store::push::PushStore;
use asp_store::records::{CallQuotas, CallRecords};
use asp_store::sqlite::{SpooledAudit, SqliteAudit, SqliteCalls};
use asp_store::usage::{DAY_MS, UsageStore};

use crate::settings::Settings;
use crate::settings::database::{Database, Server};

/// File of the ledger and the running calls, below the state directory; the leases of gateways are next to it.
pub(crate) const CALLS_FILE: &str = "calls.db";
/// File of the audit log of calls, below the state directory.
pub(crate) const AUDIT_FILE: &str = "audit.db";
/// File of audit events that wait for PostgreSQL, below the state directory.
const AUDIT_SPOOL_FILE: &str = "audit-spool.db";
/// Directory of the events that are in no database yet, below the state directory.
const AUDIT_JOURNALS: &str = "audit-journal";
const SWEEP_EVERY: Duration = Duration::from_secs(600);
/// Context of an error from the operator's database.
const OPENING: &str = "open the database that ASP_DATABASE_URL names";

/// Open stores of a process. Every process reads or writes the audit log of calls.
pub(super) enum Stores {
    Files { audit: Arc<SqliteAudit> },
    Postgres { database: Postgres, audit: Arc<PostgresAudit>, spool_bytes: u64 },
}

/// A database of calls, whichever kind it is of.
pub(super) trait CallDatabase:
    Ledger + CallRecords + PublishedKeys + PushStore + PluginStorage + ApprovalStore + LinkedAccounts
{
}
impl<T> CallDatabase for T where
    T: Ledger + CallRecords + PublishedKeys + PushStore + PluginStorage + ApprovalStore + LinkedAccounts
{
}

/// A gateway's stores for calls.
pub(super) enum CallStores {
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
                let audit = audit.with_context(|| format!("open {}", file.display()))?;
                let audit = audit.capturing(settings.audit_capture.to_vec());
                let audit = Arc::new(audit.journaled(settings.state_dir.join(AUDIT_JOURNALS)));
                Ok(Stores::Files { audit })
            }
            Database::Postgres(server) => {
                let database = match settings.roles.control {
                    true => connect(server).await?,
                    // A gateway gets its snapshot from elsewhere, so it can start without the database.
                    false => start(server).await?,
                };
                let captured = settings.audit_capture.to_vec();
                let audit = Arc::new(database.audit(most).capturing(captured));
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

    /// Returns the store of usage, next to the audit log.
    pub(super) fn usage(&self) -> Arc<dyn UsageStore> {
        match self {
            Stores::Files { audit } => audit.clone(),
            Stores::Postgres { audit, .. } => audit.clone(),
        }
    }

    /// Returns the reports of running calls and sessions, next to the audit log.
    pub(super) fn live(&self) -> Arc<dyn LiveStore> {
        match self {
            Stores::Files { audit } => audit.clone(),
            Stores::Postgres { audit, .. } => audit.clone(),
        }
    }

    /// Returns the database that several machines share, if there is one.
    pub(super) fn postgres(&self) -> Option<&Postgres> {
        match self {
            Stores::Files { .. } => None,
            Stores::Postgres { database, .. } => Some(database),
        }
    }

    /// Opens the control plane's store.
    pub(super) async fn control(&self, settings: &Settings) -> anyhow::Result<Arc<ControlStore>> {
        let store = match (self, &settings.database) {
            (Stores::Postgres { database, .. }, _) => {
                if let Some(why) =
                    database.may_lose_commits().await.context("read the durability settings")?
                {
                    tracing::warn!(
                        why,
                        "a failover or crash of the database may lose acknowledged writes, including revocations and results \
                         (docs/databases.md)"
                    );
                }
                database.control().await.context("open the store in PostgreSQL")?
            }
            (Stores::Files { .. }, Database::Sqlite(path)) => ControlStore::file(path).await?,
            (Stores::Files { .. }, _) => {
                ControlStore::in_memory().await.context("open the store in memory")?
            }
        };
        Ok(Arc::new(store))
    }

    /// Returns the list of connected gateways that control planes share; `None`: there is only one control plane.
    pub(super) fn connected_gateways(&self) -> Option<Arc<dyn GatewayRegistry>> {
        match self {
            Stores::Files { .. } => None,
            Stores::Postgres { database, .. } => Some(Arc::new(database.gateway_registry())),
        }
    }

    /// Returns the database of calls for admins, with push notifications, approvals and linked accounts: the one of the gateway's stores, if
    /// this process has some.
    pub(super) async fn call_database(
        &self,
        settings: &Settings,
        calls: Option<&CallStores>,
    ) -> anyhow::Result<Arc<dyn CallDatabase>> {
        let database: Arc<dyn CallDatabase> = match (calls, self) {
            (Some(calls), _) => calls.calls(),
            (None, Stores::Postgres { database, .. }) => {
                Arc::new(database.calls(Budget::default(), CallQuotas::default()))
            }
            (None, Stores::Files { .. }) => {
                let file = settings.state_dir.join(CALLS_FILE);
                let calls = SqliteCalls::open(&file).await;
                Arc::new(calls.with_context(|| format!("open {}", file.display()))?)
            }
        };
        Ok(database)
    }

    /// Opens a gateway's stores.
    pub(super) async fn calls(&self, settings: &Settings) -> anyhow::Result<CallStores> {
        match self {
            Stores::Files { audit } => {
                let file = settings.state_dir.join(CALLS_FILE);
                let calls =
                    SqliteCalls::open(&file).await.with_context(|| format!("open {}", file.display()))?;
                Ok(CallStores::Files(Arc::new(calls), audit.clone()))
            }
            Stores::Postgres { database, audit, spool_bytes } => {
                let calls = Arc::new(database.calls(Budget::default(), CallQuotas::default()));
                let file = settings.state_dir.join(AUDIT_SPOOL_FILE);
                let spool = SpooledAudit::open(audit.clone(), &file, *spool_bytes).await;
                let spool = spool.with_context(|| format!("open {}", file.display()))?;
                let spool = spool.journaled(settings.state_dir.join(AUDIT_JOURNALS));
                Ok(CallStores::Postgres { calls, audit: audit.clone(), spool: Arc::new(spool) })
            }
        }
    }
}

/// Opens the operator's database. Its errors never contain the URL, which may hold a password.
pub(crate) async fn connect(server: &Server) -> anyhow::Result<Postgres> {
    Postgres::connect_with(server.url.expose(), server.connections, server.waits).await.context(OPENING)
}

/// Opens it for a process that may start while it is unreachable; [`Postgres::keep_opening`] then opens it.
async fn start(server: &Server) -> anyhow::Result<Postgres> {
    Postgres::start(server.url.expose(), server.connections, server.waits).await.context(OPENING)
}

impl CallStores {
    /// Returns the ledger and the records of calls with their push notifications, the published keys of tokens, and what plugins
    /// store.
    pub(super) fn calls(&self) -> Arc<dyn CallDatabase> {
        match self {
            CallStores::Files(calls, _) => calls.clone(),
            CallStores::Postgres { calls, .. } => calls.clone(),
        }
    }

    /// Returns the audit log of calls.
    pub(super) fn audit(&self) -> Arc<dyn AuditLog> {
        match self {
            CallStores::Files(_, audit) => audit.clone(),
            CallStores::Postgres { spool, .. } => spool.clone(),
        }
    }

    /// Returns the store of usage.
    pub(super) fn usage(&self) -> Arc<dyn UsageStore> {
        match self {
            CallStores::Files(_, audit) => audit.clone(),
            CallStores::Postgres { audit, .. } => audit.clone(),
        }
    }

    /// Returns the reports of running calls and sessions, next to the audit log.
    pub(super) fn live(&self) -> Arc<dyn LiveStore> {
        match self {
            CallStores::Files(_, audit) => audit.clone(),
            CallStores::Postgres { audit, .. } => audit.clone(),
        }
    }

    /// Runs the periodic work; never returns.
    pub(super) async fn keep(self) {
        match &self {
            CallStores::Files(..) => self.keep_sweeping().await,
            CallStores::Postgres { audit, spool, .. } => {
                tokio::join!(self.keep_sweeping(), audit.keep_sweeping(), spool.keep_moving());
            }
        }
    }

    /// Deletes expired records, now and periodically; never returns.
    async fn keep_sweeping(&self) {
        let mut ticks = tokio::time::interval(SWEEP_EVERY);
        loop {
            ticks.tick().await;
            for swept in self.sweep().await {
                if let Err(error) = swept {
                    tracing::warn!(%error, "expired records could not be deleted; they stay until the next sweep");
                }
            }
        }
    }

    async fn sweep(&self) -> Vec<anyhow::Result<()>> {
        let today = i64::try_from(clock::now_ms()).unwrap_or(i64::MAX) / DAY_MS;
        let of_usage = self.usage().sweep_usage(today).await.map_err(Into::into);
        let mut swept = match self {
            CallStores::Files(calls, audit) => {
                vec![calls.sweep().await.map_err(Into::into), audit.sweep().await.map_err(Into::into)]
            }
            CallStores::Postgres { calls, .. } => vec![calls.sweep().await.map_err(Into::into)],
        };
        swept.push(of_usage);
        swept.push(self.live().sweep_live().await.map_err(Into::into));
        swept
    }
}
