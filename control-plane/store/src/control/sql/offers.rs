//! Stored offers of servers to orgs, in addition to those in the servers' own files.
//!
//! The offers of a server are one resource with one ETag. They are deleted with the server, so that a later server of
//! the same name is not offered to anyone by them.

use sqlx::any::{AnyExecutor, AnyRow};

use super::write::Write;
use super::{ControlStore, Tx, rows};
use crate::control::{
    AtRevision, Change, Commit, FEW_OFFERS, ListChange, ListDifference, MAX_OFFERS, MAX_OFFERS_PER_SERVER,
    OfferRecord, RESERVED_OFFERS, Result, StoreError,
};

/// First part of the resource's name; a slash and the server follow.
pub(super) const OFFERS: &str = "offers";

pub(super) async fn all<'e>(from: impl AnyExecutor<'e>) -> Result<Vec<OfferRecord>> {
    let rows = sqlx::query("SELECT server, org FROM offers").fetch_all(from).await?;
    records(&rows)
}

impl ControlStore {
    /// Returns the offers of a server, by org.
    pub async fn offers(&self, server: &str) -> Result<AtRevision<Vec<OfferRecord>>> {
        self.within(async {
            let (mut tx, revision) = self.snapshot_of(&resource(server)).await?;
            let offers = query!("SELECT server, org FROM offers WHERE server = $1", server);
            Ok(AtRevision { revision, value: records(&offers.fetch_all(&mut *tx).await?)? })
        })
        .await
    }

    /// Returns the offers to an org, by server.
    pub async fn offers_to(&self, org: &str) -> Result<Vec<OfferRecord>> {
        self.within(async {
            let offers = query!("SELECT server, org FROM offers WHERE org = $1", org);
            records(&offers.fetch_all(&self.pool).await?)
        })
        .await
    }

    /// Fails with [`StoreError::Full`] if [`ControlStore::put_offer`] would exceed a limit.
    pub async fn offer_fits(&self, record: &OfferRecord) -> Result<()> {
        self.within(async {
            let mut tx = self.snapshot().await?;
            if is_stored(&mut tx, record).await? {
                return Ok(());
            }
            has_room(&mut tx, &record.server).await
        })
        .await
    }

    /// Stores an offer; [`StoreError::NotFound`] if the server does not exist.
    pub async fn put_offer(&self, change: &Change, record: &OfferRecord) -> Result<Commit> {
        self.within(async {
            let mut write = self.write(change, resource(&record.server)).await?;
            write.org = record.org.clone();
            // Within the write, because the server's deletion deletes its offers.
            let sql = "SELECT COUNT(*) FROM servers WHERE name = $1";
            if super::count(&mut write.tx, sql, &record.server).await? == 0 {
                return Err(StoreError::NotFound);
            }
            if is_stored(&mut write.tx, record).await? {
                return write.unchanged().await;
            }
            has_room(&mut write.tx, &record.server).await?;
            let insert = "INSERT INTO offers (server, org) VALUES ($1, $2)";
            query!(insert, &record.server, &record.org).execute(&mut *write.tx).await?;
            write.stamp(true).await?;
            write.keep(&ListChange::Offers(ListDifference::of([], [record.clone()])));
            write.commit("offer.put", &format!("{} to {}", record.server, record.org)).await
        })
        .await
    }

    /// Deletes an offer; [`StoreError::NotFound`] if it does not exist.
    pub async fn delete_offer(&self, change: &Change, record: &OfferRecord) -> Result<Commit> {
        self.within(async {
            let mut write = self.write(change, resource(&record.server)).await?;
            write.org = record.org.clone();
            let delete = "DELETE FROM offers WHERE server = $1 AND org = $2";
            let deleted = query!(delete, &record.server, &record.org).execute(&mut *write.tx).await?;
            if deleted.rows_affected() == 0 {
                return Err(StoreError::NotFound);
            }
            let sql = "SELECT COUNT(*) FROM offers WHERE server = $1";
            let others = super::count(&mut write.tx, sql, &record.server).await? > 0;
            write.stamp(others).await?;
            write.keep(&ListChange::Offers(ListDifference::of([record.clone()], [])));
            write.commit("offer.delete", &format!("{} to {}", record.server, record.org)).await
        })
        .await
    }
}

/// Fails if the limits of the server or of all servers do not allow another offer.
async fn has_room(tx: &mut Tx, server: &str) -> Result<()> {
    let own = super::count(tx, "SELECT COUNT(*) FROM offers WHERE server = $1", server).await?;
    if own >= MAX_OFFERS_PER_SERVER {
        return Err(StoreError::Full { what: "offers of one server", bound: MAX_OFFERS_PER_SERVER });
    }
    let bound = MAX_OFFERS - if own < FEW_OFFERS { 0 } else { RESERVED_OFFERS };
    let all = ("SELECT COUNT(*) FROM offers WHERE server <> $1", "");
    super::check_bound(tx, all, "offers of servers", bound).await
}

/// Deletes the offers of a deleted server.
pub(super) async fn go_with(write: &mut Write<'_>, server: &str) -> Result<()> {
    query!("DELETE FROM offers WHERE server = $1", server).execute(&mut *write.tx).await?;
    query!("DELETE FROM resources WHERE name = $1", resource(server)).execute(&mut *write.tx).await?;
    Ok(())
}

async fn is_stored(tx: &mut Tx, record: &OfferRecord) -> Result<bool> {
    let select = "SELECT org FROM offers WHERE server = $1 AND org = $2";
    Ok(query!(select, &record.server, &record.org).fetch_optional(&mut **tx).await?.is_some())
}

/// Reads the rows and sorts them by bytes, independently of the database's collation.
fn records(rows: &[AnyRow]) -> Result<Vec<OfferRecord>> {
    let record = |row: &AnyRow| record!(row, OfferRecord { server, org });
    let mut list = rows.iter().map(record).collect::<Result<Vec<_>>>()?;
    list.sort();
    Ok(list)
}

fn resource(server: &str) -> String {
    format!("{OFFERS}/{server}")
}
