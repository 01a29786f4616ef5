//! The control store on SQL: one SQLite file (WAL) or memory for a single machine, PostgreSQL for several.
//!
//! Owns the connections and the shape of a write (`Write`). The statements are portable: `$n`
//! parameters, TEXT and BIGINT, milliseconds, no functions of one database.
//! Keeps true: a write's first statement bumps the revision, so that writers queue on that row, each sees what the one
//! before it wrote, and on SQLite a read lock is never upgraded (which is refused with "busy"); what is read together is
//! one picture.

mod audit;
mod bounds;
mod certificates;
mod changes;
mod detail;
mod issuers;
mod machines;
mod offers;
mod placement;
mod policy;
mod primitives;
mod revocations;
mod rows;
mod servers;
mod write;

use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use async_trait::async_trait;
use sqlx::any::{AnyConnectOptions, AnyPoolOptions};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{Any, AnyPool, ConnectOptions, Executor, Row, Transaction};
use tokio::time::timeout;

use crate::control::{
    AuditQuery, AuditRecord, BindingRecord, CertificateName, Change, ControlState, ControlStore,
    ExposureRecord, HomeRecord, IssuerKeysRecord, IssuerRecord, LimitRecord, MachineBound,
    MachineCertificateRecord, MachineKeyRecord, Note, OfferRecord, Position, PrimitiveServer, RegionRecord,
    RevocationRecord, RouteRecord, ServerIds, ServerRecord, ServerVersion, Side, Since, SourceFile,
    StoreError, Versioned, Written,
};
use crate::migrations;
use crate::private;
use write::Write;

/// Reads run beside the single writer; more connections only cost memory.
const MAX_CONNECTIONS: u32 = 4;
/// A file that survives a power loss: revocations and policy must (I-6). SQLite waits 5 s for another process's write,
/// longer than any takes.
const OF_A_FILE: [&str; 2] = ["PRAGMA journal_mode = WAL", "PRAGMA synchronous = FULL"];
/// Begins a transaction that sees one picture of what is stored.
const SNAPSHOT: &str = "BEGIN";
const SNAPSHOT_OF_POSTGRES: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";

/// The control store on a SQL database.
pub struct SqlStore {
    pool: AnyPool,
    /// For what is published.
    publishing: AnyPool,
    /// For revocations, so that they wait for no other write's connection.
    revoking: AnyPool,
    snapshot: &'static str,
    /// Time limits of operations; `None` for a file, which always answers.
    longest: Option<Longest>,
}

/// Time limits of operations in this process. They exceed the database's own limits and end a wait for a database that is gone
/// without closing its connections.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Longest {
    /// The look whether there is something new.
    pub look: Duration,
    pub operation: Duration,
}

/// The connections to a database of several machines.
pub(crate) struct Pools {
    pub all_else: AnyPool,
    pub publishing: AnyPool,
    pub revoking: AnyPool,
}

impl SqlStore {
    /// Opens or creates the SQLite file and brings its schema up to date.
    pub async fn file(path: &Path) -> Result<SqlStore, StoreError> {
        let failed = |error: String| StoreError::Backend(format!("open {}: {error}", path.display()));
        private::database(path).map_err(|error| failed(format!("make it private: {error}")))?;
        let whole = std::path::absolute(path).map_err(|error| failed(error.to_string()))?;
        let url = SqliteConnectOptions::new().filename(whole).to_url_lossy();
        SqlStore::sqlite(AnyConnectOptions::from_url(&url)?, MAX_CONNECTIONS, &OF_A_FILE).await
    }

    /// A store that lives as long as the value.
    pub async fn in_memory() -> Result<SqlStore, StoreError> {
        // Every connection would see a database of its own.
        SqlStore::sqlite(AnyConnectOptions::from_str("sqlite::memory:")?, 1, &[]).await
    }

    /// The store in a PostgreSQL database whose schema is up to date.
    pub(crate) fn of_postgres(pools: Pools, longest: Longest) -> SqlStore {
        let Pools { all_else, publishing, revoking } = pools;
        SqlStore {
            pool: all_else,
            publishing,
            revoking,
            snapshot: SNAPSHOT_OF_POSTGRES,
            longest: Some(longest),
        }
    }

    /// The result of an operation that is given up where the database does not answer.
    async fn within<T>(
        &self,
        operation: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        answered(self.longest.map(|longest| longest.operation), operation).await
    }

    async fn sqlite(
        options: AnyConnectOptions,
        connections: u32,
        settings: &'static [&'static str],
    ) -> Result<SqlStore, StoreError> {
        sqlx::any::install_default_drivers();
        let pool = AnyPoolOptions::new()
            // No `min_connections`: the pool would open one beside the first, and of two that bring a new file into
            // WAL mode at once SQLite turns one away, whatever the busy timeout says. What is open stays open.
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
        let (publishing, revoking) = (pool.clone(), pool.clone());
        Ok(SqlStore { pool, publishing, revoking, snapshot: SNAPSHOT, longest: None })
    }

    async fn raise(&self, change: &Change, to: u64) -> Result<Written, StoreError> {
        let mut write = self.write(change, changes::REVISION.to_owned()).await?;
        if write.revision > to {
            return Ok(Written { revision: write.revision - 1, ..write.unchanged().await? });
        }
        let from = write.revision - 1;
        sqlx::query("UPDATE control_revision SET revision = $1 WHERE id = 1")
            .bind(rows::signed(to)?)
            .execute(&mut *write.tx)
            .await?;
        write.revision = to;
        write.commit("revision.raise", &format!("from {from}")).await
    }

    /// A transaction in which everything read is of one moment.
    async fn snapshot(&self) -> Result<Transaction<'static, Any>, StoreError> {
        Ok(self.pool.begin_with(self.snapshot).await?)
    }

    /// The same for what is published.
    async fn published_snapshot(&self) -> Result<Transaction<'static, Any>, StoreError> {
        Ok(self.publishing.begin_with(self.snapshot).await?)
    }

    /// Closes the pool; pending writes finish first.
    pub async fn close(&self) {
        self.publishing.close().await;
        self.revoking.close().await;
        self.pool.close().await;
    }
}

async fn answered<T>(
    longest: Option<Duration>,
    operation: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    let Some(longest) = longest else { return operation.await };
    let late =
        |_| StoreError::Backend(format!("the database does not answer within {} s", longest.as_secs()));
    timeout(longest, operation).await.unwrap_or_else(|elapsed| Err(late(elapsed)))
}

async fn resource_revision(
    tx: &mut Transaction<'static, Any>,
    resource: &str,
) -> Result<Option<u64>, StoreError> {
    let row = sqlx::query("SELECT revision FROM resources WHERE name = $1")
        .bind(resource)
        .fetch_optional(&mut **tx)
        .await?;
    row.map(|row| rows::unsigned(&row, "revision")).transpose()
}

async fn current_revision(tx: &mut Transaction<'static, Any>) -> Result<u64, StoreError> {
    let row = sqlx::query("SELECT revision FROM control_revision WHERE id = 1").fetch_one(&mut **tx).await?;
    rows::unsigned(&row, "revision")
}

async fn count(
    tx: &mut Transaction<'static, Any>,
    sql: &'static str,
    key: &str,
) -> Result<usize, StoreError> {
    let row = sqlx::query(sql).bind(key).fetch_one(&mut **tx).await?;
    let count: i64 = row.try_get(0)?;
    Ok(usize::try_from(count).unwrap_or(usize::MAX))
}

impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> StoreError {
        StoreError::Backend(error.to_string())
    }
}

#[async_trait]
impl ControlStore for SqlStore {
    async fn revision(&self) -> Result<u64, StoreError> {
        let look = async {
            let row = sqlx::query("SELECT revision FROM control_revision WHERE id = 1");
            rows::unsigned(&row.fetch_one(&self.publishing).await?, "revision")
        };
        answered(self.longest.map(|longest| longest.look), look).await
    }

    async fn position(&self) -> Result<Position, StoreError> {
        let longest = self.longest.map(|longest| longest.look);
        answered(longest, changes::position(&self.publishing)).await
    }

    async fn has(&self, known: &Position) -> Result<bool, StoreError> {
        self.within(async { changes::has(&mut self.published_snapshot().await?, known).await }).await
    }

    async fn raise_revision(&self, change: &Change, to: u64) -> Result<Written, StoreError> {
        self.within(self.raise(change, to)).await
    }

    async fn load(&self) -> Result<ControlState, StoreError> {
        self.within(async { changes::all(&mut self.published_snapshot().await?).await }).await
    }

    async fn since(&self, revision: u64) -> Result<Since, StoreError> {
        self.within(changes::since(self, revision)).await
    }

    async fn servers(&self) -> Result<Versioned<Vec<ServerRecord>>, StoreError> {
        self.within(async {
            let mut tx = self.snapshot().await?;
            let revision = current_revision(&mut tx).await?;
            Ok(Versioned { revision, value: servers::all(&mut tx).await? })
        })
        .await
    }

    async fn server(&self, name: &str) -> Result<Option<ServerRecord>, StoreError> {
        self.within(servers::one(&self.pool, name)).await
    }

    async fn server_versions(&self, name: &str) -> Result<Vec<ServerVersion>, StoreError> {
        self.within(servers::versions(self, name)).await
    }

    async fn server_version(&self, name: &str, revision: u64) -> Result<Option<ServerRecord>, StoreError> {
        self.within(servers::version(self, name, revision)).await
    }

    async fn register_server(
        &self,
        change: &Change,
        name: &str,
        files: &[SourceFile],
        content_hash: &str,
        ids: ServerIds<'_>,
    ) -> Result<Written, StoreError> {
        self.within(servers::put(self, change, name, (files, ids), content_hash)).await
    }

    async fn delete_server(&self, change: &Change, name: &str) -> Result<Written, StoreError> {
        self.within(servers::delete(self, change, name)).await
    }

    async fn primitive_servers(&self, id: &str) -> Result<Versioned<Vec<PrimitiveServer>>, StoreError> {
        self.within(primitives::of_id(self, id)).await
    }

    async fn take_primitives(
        &self,
        change: &Change,
        server: &str,
        ids: &[&str],
    ) -> Result<Written, StoreError> {
        self.within(primitives::take_stored(self, change, server, ids)).await
    }

    async fn grant_primitive(&self, change: &Change, id: &str, server: &str) -> Result<Written, StoreError> {
        self.within(primitives::grant(self, change, id, server)).await
    }

    async fn withdraw_primitive(
        &self,
        change: &Change,
        id: &str,
        server: &str,
    ) -> Result<Written, StoreError> {
        self.within(primitives::withdraw(self, change, id, server)).await
    }

    async fn offers(&self, server: &str) -> Result<Versioned<Vec<OfferRecord>>, StoreError> {
        self.within(offers::of_server(self, server)).await
    }

    async fn offers_to(&self, org: &str) -> Result<Vec<OfferRecord>, StoreError> {
        self.within(offers::to_org(self, org)).await
    }

    async fn offer_fits(&self, record: &OfferRecord) -> Result<(), StoreError> {
        self.within(offers::fits(self, record)).await
    }

    async fn put_offer(&self, change: &Change, record: &OfferRecord) -> Result<Written, StoreError> {
        self.within(offers::put(self, change, record)).await
    }

    async fn delete_offer(&self, change: &Change, record: &OfferRecord) -> Result<Written, StoreError> {
        self.within(offers::delete(self, change, record)).await
    }

    async fn exposure(&self, org: &str) -> Result<Versioned<Vec<ExposureRecord>>, StoreError> {
        self.within(policy::exposure(self, org)).await
    }

    async fn put_exposure(&self, change: &Change, record: &ExposureRecord) -> Result<Written, StoreError> {
        self.within(policy::put_exposure(self, change, record)).await
    }

    async fn delete_exposure_of(&self, change: &Change, key: &ExposureRecord) -> Result<Written, StoreError> {
        self.within(policy::delete_exposure_of(self, change, key)).await
    }

    async fn delete_exposure(&self, change: &Change, org: &str) -> Result<Written, StoreError> {
        self.within(policy::delete_exposure(self, change, org)).await
    }

    async fn bindings(&self, org: &str) -> Result<Versioned<Vec<BindingRecord>>, StoreError> {
        self.within(policy::bindings(self, org)).await
    }

    async fn put_binding(&self, change: &Change, record: &BindingRecord) -> Result<Written, StoreError> {
        self.within(policy::put_binding(self, change, record)).await
    }

    async fn delete_binding(&self, change: &Change, key: &BindingRecord) -> Result<Written, StoreError> {
        self.within(policy::delete_binding(self, change, key)).await
    }

    async fn delete_bindings(&self, change: &Change, org: &str) -> Result<Written, StoreError> {
        self.within(policy::delete_bindings(self, change, org)).await
    }

    async fn limits(&self, org: &str) -> Result<Versioned<Vec<LimitRecord>>, StoreError> {
        self.within(policy::limits(self, org)).await
    }

    async fn put_limits(
        &self,
        change: &Change,
        org: &str,
        list: &[LimitRecord],
    ) -> Result<Written, StoreError> {
        self.within(policy::put_limits(self, change, org, list)).await
    }

    async fn delete_limits(&self, change: &Change, org: &str) -> Result<Written, StoreError> {
        self.within(policy::put_limits(self, change, org, &[])).await
    }

    async fn machine_bound(&self, org: &str) -> Result<Versioned<MachineBound>, StoreError> {
        self.within(bounds::get(self, org)).await
    }

    async fn put_machine_bound(
        &self,
        change: &Change,
        org: &str,
        bound: &MachineBound,
    ) -> Result<Written, StoreError> {
        self.within(bounds::put(self, change, org, bound)).await
    }

    async fn machine_keys(&self, org: &str) -> Result<Vec<MachineKeyRecord>, StoreError> {
        self.within(async { Ok(machines::of_org(&self.pool, org).await?.0) }).await
    }

    async fn add_machine_key(
        &self,
        change: &Change,
        record: &MachineKeyRecord,
    ) -> Result<Written, StoreError> {
        self.within(machines::add(self, change, record)).await
    }

    async fn delete_machine_key(&self, change: &Change, org: &str, id: &str) -> Result<Written, StoreError> {
        self.within(machines::delete(self, change, org, id)).await
    }

    async fn machine_certificates(&self, org: &str) -> Result<Vec<MachineCertificateRecord>, StoreError> {
        self.within(async { Ok(certificates::of_org(&self.pool, org).await?.0) }).await
    }

    async fn machine_certificate_named(
        &self,
        name: &CertificateName,
    ) -> Result<Option<MachineCertificateRecord>, StoreError> {
        self.within(certificates::named(&self.pool, name)).await
    }

    async fn put_machine_certificate(
        &self,
        change: &Change,
        record: &MachineCertificateRecord,
    ) -> Result<(String, Written), StoreError> {
        self.within(certificates::put(self, change, record)).await
    }

    async fn delete_machine_certificate(
        &self,
        change: &Change,
        org: &str,
        id: &str,
    ) -> Result<Written, StoreError> {
        self.within(certificates::delete(self, change, org, id)).await
    }

    async fn issuers(&self) -> Result<Vec<IssuerRecord>, StoreError> {
        self.within(async { Ok(issuers::all(&self.pool).await?.0) }).await
    }

    async fn issuer(&self, side: Side, name: &str) -> Result<Option<IssuerRecord>, StoreError> {
        self.within(issuers::one(self, side, name)).await
    }

    async fn put_issuer(
        &self,
        change: &Change,
        side: Side,
        name: &str,
        document: &str,
    ) -> Result<Written, StoreError> {
        self.within(issuers::put(self, change, (side, name), document)).await
    }

    async fn delete_issuer(&self, change: &Change, side: Side, name: &str) -> Result<Written, StoreError> {
        self.within(issuers::delete(self, change, side, name)).await
    }

    async fn former_iss(&self, side: Side, name: &str) -> Result<Option<String>, StoreError> {
        self.within(issuers::former_iss(self, side, name)).await
    }

    async fn issuer_keys(&self) -> Result<Vec<IssuerKeysRecord>, StoreError> {
        self.within(issuers::all_keys(&self.pool)).await
    }

    async fn put_issuer_keys(
        &self,
        change: &Change,
        record: &IssuerKeysRecord,
    ) -> Result<Written, StoreError> {
        self.within(issuers::put_keys(self, change, record)).await
    }

    async fn routes(&self) -> Result<Versioned<Vec<RouteRecord>>, StoreError> {
        self.within(placement::routes(self)).await
    }

    async fn put_routes(&self, change: &Change, list: &[RouteRecord]) -> Result<Written, StoreError> {
        self.within(placement::put_routes(self, change, list)).await
    }

    async fn regions(&self) -> Result<Versioned<Vec<RegionRecord>>, StoreError> {
        self.within(placement::regions(self)).await
    }

    async fn put_regions(&self, change: &Change, list: &[RegionRecord]) -> Result<Written, StoreError> {
        self.within(placement::put_regions(self, change, list)).await
    }

    async fn homes(&self) -> Result<Vec<HomeRecord>, StoreError> {
        self.within(placement::homes(self)).await
    }

    async fn home(&self, org: &str) -> Result<Option<Versioned<HomeRecord>>, StoreError> {
        self.within(placement::home(self, org)).await
    }

    async fn put_home(&self, change: &Change, record: &HomeRecord) -> Result<Written, StoreError> {
        self.within(placement::put_home(self, change, record)).await
    }

    async fn delete_home(&self, change: &Change, org: &str) -> Result<Written, StoreError> {
        self.within(placement::delete_home(self, change, org)).await
    }

    async fn revocations(&self, org: Option<&str>, limit: u32) -> Result<Vec<RevocationRecord>, StoreError> {
        self.within(revocations::list(self, org, limit)).await
    }

    async fn revocation(&self, id: &str) -> Result<Option<RevocationRecord>, StoreError> {
        self.within(revocations::one(&self.revoking, id)).await
    }

    async fn add_revocation(
        &self,
        change: &Change,
        record: &RevocationRecord,
    ) -> Result<Written, StoreError> {
        self.within(revocations::add(self, change, record)).await
    }

    async fn delete_revocation(&self, change: &Change, id: &str) -> Result<Written, StoreError> {
        self.within(revocations::delete(self, change, id)).await
    }

    async fn prune(&self, change: &Change, keep_audit: u64) -> Result<u64, StoreError> {
        self.within(audit::prune(self, keep_audit)).await?;
        self.within(servers::prune(self, change.at)).await?;
        self.within(revocations::prune(self, change)).await
    }

    async fn note(&self, change: &Change, note: Note<'_>) -> Result<Written, StoreError> {
        self.within(async {
            let mut write = self.write(change, note.resource.to_owned()).await?;
            write.org = note.org.to_owned();
            write.commit(note.action, note.detail).await
        })
        .await
    }

    async fn audit(&self, query: &AuditQuery) -> Result<Vec<AuditRecord>, StoreError> {
        self.within(audit::list(self, query)).await
    }
}

#[cfg(test)]
mod tests;
