//! Routes, regions and homes.

use sqlx::AssertSqlSafe;
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
/// Query for conflicting writes of other resources since a revision (`Write::unmoved`).
const BESIDE_HOME: &str =
    "SELECT name FROM resources WHERE (name LIKE 'home/%' OR name = 'regions') AND revision > $1 LIMIT 1";
const SELECT_HOME: &str = "SELECT org, region FROM homes WHERE org = $1";

/// A list that is one resource, in a table of the same name.
struct RecordList<T> {
    name: &'static str,
    bound: usize,
    /// Like [`BESIDE_HOME`].
    beside: &'static str,
    columns: &'static [&'static str],
    read: fn(&AnyRow) -> Result<T>,
    values: fn(&T) -> Vec<&str>,
    /// Describes a record in the audit row.
    describe: fn(&T) -> String,
}

const ROUTE_LIST: RecordList<RouteRecord> = RecordList {
    name: ROUTES,
    bound: MAX_ROUTES,
    beside: "SELECT name FROM resources WHERE name LIKE 'server/%' AND revision > $1 LIMIT 1",
    columns: &["server", "method", "primitive", "pool"],
    read: |row| record!(row, RouteRecord { server, method, primitive, pool }),
    values: |route| vec![&route.server, &route.method, &route.primitive, &route.pool],
    describe: |RouteRecord { server, method, primitive, pool }| {
        format!("server={server} method={method} primitive={primitive} pool={pool}")
    },
};
const REGION_LIST: RecordList<RegionRecord> = RecordList {
    name: REGIONS,
    bound: MAX_REGIONS,
    beside: "SELECT name FROM resources WHERE name LIKE 'home/%' AND revision > $1 LIMIT 1",
    columns: &["name", "cluster"],
    read: |row| record!(row, RegionRecord { name, cluster }),
    values: |region| vec![&region.name, &region.cluster],
    describe: |RegionRecord { name, cluster }| match cluster.as_str() {
        "" => format!("{name} here"),
        cluster => format!("{name} cluster={cluster}"),
    },
};

impl<T: Ord> RecordList<T> {
    async fn all<'e>(&self, from: impl AnyExecutor<'e>) -> Result<Vec<T>> {
        let select = format!("SELECT {} FROM {}", self.columns.join(", "), self.name);
        let rows = sqlx::query(AssertSqlSafe(select)).fetch_all(from).await?;
        rows.iter().map(self.read).collect::<Result<_>>().map(sorted)
    }
}

pub(super) async fn all(tx: &mut Tx) -> Result<Placement> {
    Ok(Placement {
        routes: ROUTE_LIST.all(&mut **tx).await?,
        regions: REGION_LIST.all(&mut **tx).await?,
        homes: all_homes(&mut **tx).await?,
    })
}

/// Sorts by bytes, independently of the database's collation.
fn sorted<T: Ord>(mut list: Vec<T>) -> Vec<T> {
    list.sort();
    list
}

fn home(row: &AnyRow) -> Result<HomeRecord> {
    record!(row, HomeRecord { org, region })
}

async fn all_homes<'e>(from: impl AnyExecutor<'e>) -> Result<Vec<HomeRecord>> {
    let rows = sqlx::query("SELECT org, region FROM homes").fetch_all(from).await?;
    rows.iter().map(home).collect::<Result<_>>().map(sorted)
}

impl ControlStore {
    pub async fn routes(&self) -> Result<AtRevision<Vec<RouteRecord>>> {
        self.records(&ROUTE_LIST).await
    }

    /// Replaces the whole list; an empty one deletes it.
    pub async fn put_routes(&self, change: &Change, list: &[RouteRecord]) -> Result<Commit> {
        self.put_records(change, &ROUTE_LIST, list).await
    }

    pub async fn regions(&self) -> Result<AtRevision<Vec<RegionRecord>>> {
        self.records(&REGION_LIST).await
    }

    /// Replaces the whole list; an empty one deletes it.
    pub async fn put_regions(&self, change: &Change, list: &[RegionRecord]) -> Result<Commit> {
        self.put_records(change, &REGION_LIST, list).await
    }

    async fn records<T>(&self, list: &RecordList<T>) -> Result<AtRevision<Vec<T>>>
    where
        T: Ord + Send + 'static,
    {
        self.within(async {
            let (mut tx, revision) = self.snapshot_of(list.name).await?;
            Ok(AtRevision { revision, value: list.all(&mut *tx).await? })
        })
        .await
    }

    async fn put_records<T>(&self, change: &Change, list: &RecordList<T>, records: &[T]) -> Result<Commit>
    where
        T: Ord + Clone + Send + Sync + 'static,
    {
        self.within(async {
            if records.len() > list.bound {
                return Err(StoreError::Full { what: list.name, bound: list.bound });
            }
            let mut write = self.write(change, list.name.to_owned()).await?;
            write.unmoved(list.beside).await?;
            let before = list.all(&mut *write.tx).await?;
            let after = sorted(records.to_vec());
            if before == after {
                return write.unchanged().await;
            }
            let delete = format!("DELETE FROM {}", list.name);
            sqlx::query(AssertSqlSafe(delete)).execute(&mut *write.tx).await?;
            for some in after.chunks(rows::MAX_ROWS) {
                let values = rows::values(some.len(), list.columns.len());
                let insert = format!("INSERT INTO {} ({}) {values}", list.name, list.columns.join(", "));
                let mut insert = sqlx::query(AssertSqlSafe(insert));
                for record in some {
                    for value in (list.values)(record) {
                        insert = insert.bind(value);
                    }
                }
                insert.execute(&mut *write.tx).await?;
            }
            write.stamp(!after.is_empty()).await?;
            let action = if after.is_empty() { "delete" } else { "put" };
            let detail = detail::difference(list.name, &before, &after, list.describe);
            write.commit(&format!("{}.{action}", list.name), &detail).await
        })
        .await
    }

    pub async fn homes(&self) -> Result<Vec<HomeRecord>> {
        self.within(all_homes(&self.pool)).await
    }

    pub async fn home(&self, org: &str) -> Result<Option<AtRevision<HomeRecord>>> {
        self.within(async {
            let (mut tx, revision) = self.snapshot_of(&resource(org)).await?;
            let stored = query!(SELECT_HOME, org).fetch_optional(&mut *tx).await?;
            stored.map(|row| Ok(AtRevision { revision, value: home(&row)? })).transpose()
        })
        .await
    }

    /// Inserts or replaces by org.
    pub async fn put_home(&self, change: &Change, record: &HomeRecord) -> Result<Commit> {
        self.within(async {
            let mut write = self.write(change, resource(&record.org)).await?;
            write.unmoved(BESIDE_HOME).await?;
            write.org = of_org(&record.org);
            let stored = query!(SELECT_HOME, &record.org).fetch_optional(&mut *write.tx).await?;
            match stored.as_ref().map(home).transpose()? {
                Some(stored) if stored == *record => return write.unchanged().await,
                Some(_) => {}
                None => {
                    let all = ("SELECT COUNT(*) FROM homes WHERE org <> $1", "");
                    super::check_bound(&mut write.tx, all, "homes of orgs", MAX_HOMES).await?;
                }
            }
            let put = "INSERT INTO homes (org, region) VALUES ($1, $2) ON CONFLICT (org) DO UPDATE SET region = excluded.region";
            query!(put, &record.org, &record.region).execute(&mut *write.tx).await?;
            write.stamp(true).await?;
            write.commit("home.put", &record.region).await
        })
        .await
    }

    pub async fn delete_home(&self, change: &Change, org: &str) -> Result<Commit> {
        self.within(async {
            let mut write = self.write(change, resource(org)).await?;
            write.org = of_org(org);
            let deleted = query!("DELETE FROM homes WHERE org = $1", org).execute(&mut *write.tx).await?;
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
