//! Routes, regions and homes.

use sqlx::Row;
use sqlx::any::{AnyExecutor, AnyRow};

use super::{ControlStore, Tx, detail, rows};
use crate::control::{
    AtRevision, Change, Commit, HomeRecord, MAX_HOMES, MAX_REGIONS, MAX_ROUTES, Placement, RegionRecord,
    Result, RouteRecord, StoreError,
};

/// Resources of the two lists.
pub(super) const ROUTES: &str = "routes";
pub(super) const REGIONS: &str = "regions";
/// First part of a home's resource name; a slash and the org follow.
pub(super) const HOME: &str = "home";
/// Queries for conflicting writes of other resources since a revision (`Write::unmoved`).
const BESIDE_ROUTES: &str = "SELECT name FROM resources WHERE name LIKE 'server/%' AND revision > $1 LIMIT 1";
const BESIDE_REGIONS: &str = "SELECT name FROM resources WHERE name LIKE 'home/%' AND revision > $1 LIMIT 1";
const BESIDE_HOME: &str =
    "SELECT name FROM resources WHERE (name LIKE 'home/%' OR name = 'regions') AND revision > $1 LIMIT 1";

pub(super) async fn all(tx: &mut Tx) -> Result<Placement> {
    Ok(Placement {
        routes: all_routes(&mut **tx).await?,
        regions: all_regions(&mut **tx).await?,
        homes: all_homes(&mut **tx).await?,
    })
}

/// Sorts by bytes, independently of the database's collation.
fn sorted<T: Ord>(mut list: Vec<T>) -> Vec<T> {
    list.sort();
    list
}

async fn all_routes<'e>(from: impl AnyExecutor<'e>) -> Result<Vec<RouteRecord>> {
    let rows = sqlx::query("SELECT server, method, primitive, pool FROM routes").fetch_all(from).await?;
    let record = |row: &AnyRow| {
        Ok(RouteRecord {
            server: row.try_get("server")?,
            method: row.try_get("method")?,
            primitive: row.try_get("primitive")?,
            pool: row.try_get("pool")?,
        })
    };
    rows.iter().map(record).collect::<Result<_>>().map(sorted)
}

async fn all_regions<'e>(from: impl AnyExecutor<'e>) -> Result<Vec<RegionRecord>> {
    let rows = sqlx::query("SELECT name, cluster FROM regions").fetch_all(from).await?;
    let record =
        |row: &AnyRow| Ok(RegionRecord { name: row.try_get("name")?, cluster: row.try_get("cluster")? });
    rows.iter().map(record).collect::<Result<_>>().map(sorted)
}

async fn all_homes<'e>(from: impl AnyExecutor<'e>) -> Result<Vec<HomeRecord>> {
    let rows = sqlx::query("SELECT org, region FROM homes").fetch_all(from).await?;
    let record = |row: &AnyRow| Ok(HomeRecord { org: row.try_get("org")?, region: row.try_get("region")? });
    rows.iter().map(record).collect::<Result<_>>().map(sorted)
}

impl ControlStore {
    pub async fn routes(&self) -> Result<AtRevision<Vec<RouteRecord>>> {
        self.within(async {
            let (mut tx, revision) = self.snapshot_of(ROUTES).await?;
            Ok(AtRevision { revision, value: all_routes(&mut *tx).await? })
        })
        .await
    }

    /// Replaces the whole list; an empty one deletes it.
    pub async fn put_routes(&self, change: &Change, list: &[RouteRecord]) -> Result<Commit> {
        self.within(async {
            if list.len() > MAX_ROUTES {
                return Err(StoreError::Full { what: "routes", bound: MAX_ROUTES });
            }
            let mut write = self.write(change, ROUTES.to_owned()).await?;
            write.unmoved(BESIDE_ROUTES).await?;
            let before = all_routes(&mut *write.tx).await?;
            let after = sorted(list.to_vec());
            if before == after {
                return write.unchanged().await;
            }
            sqlx::query("DELETE FROM routes").execute(&mut *write.tx).await?;
            for some in after.chunks(rows::MAX_ROWS) {
                let values = rows::values(some.len(), 4);
                let statement = format!("INSERT INTO routes (server, method, primitive, pool) {values}");
                let mut insert = sqlx::query(sqlx::AssertSqlSafe(statement));
                for route in some {
                    let RouteRecord { server, method, primitive, pool } = route;
                    insert = insert.bind(server).bind(method).bind(primitive).bind(pool);
                }
                insert.execute(&mut *write.tx).await?;
            }
            write.stamp(!after.is_empty()).await?;
            let action = if after.is_empty() { "routes.delete" } else { "routes.put" };
            let shown = |route: &RouteRecord| {
                let RouteRecord { server, method, primitive, pool } = route;
                format!("server={server} method={method} primitive={primitive} pool={pool}")
            };
            write.commit(action, &detail::difference("routes", &before, &after, shown)).await
        })
        .await
    }

    pub async fn regions(&self) -> Result<AtRevision<Vec<RegionRecord>>> {
        self.within(async {
            let (mut tx, revision) = self.snapshot_of(REGIONS).await?;
            Ok(AtRevision { revision, value: all_regions(&mut *tx).await? })
        })
        .await
    }

    /// Replaces the whole list; an empty one deletes it.
    pub async fn put_regions(&self, change: &Change, list: &[RegionRecord]) -> Result<Commit> {
        self.within(async {
            if list.len() > MAX_REGIONS {
                return Err(StoreError::Full { what: "regions", bound: MAX_REGIONS });
            }
            let mut write = self.write(change, REGIONS.to_owned()).await?;
            write.unmoved(BESIDE_REGIONS).await?;
            let before = all_regions(&mut *write.tx).await?;
            let after = sorted(list.to_vec());
            if before == after {
                return write.unchanged().await;
            }
            sqlx::query("DELETE FROM regions").execute(&mut *write.tx).await?;
            for some in after.chunks(rows::MAX_ROWS) {
                let values = rows::values(some.len(), 2);
                let mut insert =
                    sqlx::query(sqlx::AssertSqlSafe(format!("INSERT INTO regions (name, cluster) {values}")));
                for region in some {
                    insert = insert.bind(&region.name).bind(&region.cluster);
                }
                insert.execute(&mut *write.tx).await?;
            }
            write.stamp(!after.is_empty()).await?;
            let action = if after.is_empty() { "regions.delete" } else { "regions.put" };
            let shown = |region: &RegionRecord| match region.cluster.as_str() {
                "" => format!("{} here", region.name),
                cluster => format!("{} cluster={cluster}", region.name),
            };
            write.commit(action, &detail::difference("regions", &before, &after, shown)).await
        })
        .await
    }

    pub async fn homes(&self) -> Result<Vec<HomeRecord>> {
        self.within(all_homes(&self.pool)).await
    }

    pub async fn home(&self, org: &str) -> Result<Option<AtRevision<HomeRecord>>> {
        self.within(async {
            let (mut tx, revision) = self.snapshot_of(&resource(org)).await?;
            let row = sqlx::query("SELECT region FROM homes WHERE org = $1")
                .bind(org)
                .fetch_optional(&mut *tx)
                .await?;
            let Some(row) = row else { return Ok(None) };
            let value = HomeRecord { org: org.to_owned(), region: row.try_get("region")? };
            Ok(Some(AtRevision { revision, value }))
        })
        .await
    }

    /// Inserts or replaces by org.
    pub async fn put_home(&self, change: &Change, record: &HomeRecord) -> Result<Commit> {
        self.within(async {
            let mut write = self.write(change, resource(&record.org)).await?;
            write.unmoved(BESIDE_HOME).await?;
            write.org = of_org(&record.org);
            let stored = sqlx::query("SELECT region FROM homes WHERE org = $1")
                .bind(&record.org)
                .fetch_optional(&mut *write.tx)
                .await?;
            match stored {
                Some(row) if row.try_get::<String, _>("region")? == record.region => return write.unchanged().await,
                Some(_) => {}
                None => {
                    let all = ("SELECT COUNT(*) FROM homes WHERE org <> $1", "");
                    super::check_bound(&mut write.tx, all, "homes of orgs", MAX_HOMES).await?;
                }
            }
            sqlx::query(
                "INSERT INTO homes (org, region) VALUES ($1, $2) ON CONFLICT (org) DO UPDATE SET region = excluded.region",
            )
            .bind(&record.org)
            .bind(&record.region)
            .execute(&mut *write.tx)
            .await?;
            write.stamp(true).await?;
            write.commit("home.put", &record.region).await
        })
        .await
    }

    pub async fn delete_home(&self, change: &Change, org: &str) -> Result<Commit> {
        self.within(async {
            let mut write = self.write(change, resource(org)).await?;
            write.org = of_org(org);
            let deleted =
                sqlx::query("DELETE FROM homes WHERE org = $1").bind(org).execute(&mut *write.tx).await?;
            if deleted.rows_affected() == 0 {
                return Err(StoreError::NotFound);
            }
            write.stamp(false).await?;
            write.commit("home.delete", "").await
        })
        .await
    }
}

fn resource(org: &str) -> String {
    format!("{HOME}/{org}")
}

/// Returns the org of the audit row; empty for a pattern, which concerns the platform only.
fn of_org(org: &str) -> String {
    if org.ends_with('*') { String::new() } else { org.to_owned() }
}
