//! Groups and scopes that machines of an org may have.

use std::collections::BTreeMap;

use sqlx::Row;
use sqlx::any::AnyRow;

use super::machines::texts;
use super::{ControlStore, Tx, rows};
use crate::control::{AtRevision, Change, Commit, MachineBound, Result, UnreadableMachine};

/// First part of the resource's name.
pub(super) const KIND: &str = "machine_bound";

/// Bounds by org, and rows that this version cannot read.
type BoundRows = (BTreeMap<String, MachineBound>, Vec<UnreadableMachine>);

/// Reads the bounds of all orgs. An unreadable bound counts as empty: the org's machines may have nothing.
pub(super) async fn all(tx: &mut Tx) -> Result<BoundRows> {
    read(&sqlx::query("SELECT org, groups, scopes FROM machine_bounds").fetch_all(&mut **tx).await?)
}

/// Reads the bound of one org, like [`all`].
pub(super) async fn published(tx: &mut Tx, org: &str) -> Result<BoundRows> {
    let bound = query!("SELECT org, groups, scopes FROM machine_bounds WHERE org = $1", org);
    read(&bound.fetch_all(&mut **tx).await?)
}

fn read(rows: &[AnyRow]) -> Result<BoundRows> {
    let (mut all, mut unreadable): BoundRows = Default::default();
    for row in rows {
        let org: String = row.try_get("org")?;
        if let Err(error) = add(all.entry(org.clone()).or_default(), row) {
            unreadable.push(UnreadableMachine {
                org,
                kind: "bound",
                id: String::new(),
                fault: error.to_string(),
            });
        }
    }
    Ok((all, unreadable))
}

pub(super) async fn of_org(tx: &mut Tx, org: &str) -> Result<MachineBound> {
    let (mut bounds, _) = published(tx, org).await?;
    Ok(bounds.remove(org).unwrap_or_default())
}

impl ControlStore {
    /// Returns the bound of an org's machines; empty if none is stored.
    pub async fn machine_bound(&self, org: &str) -> Result<AtRevision<MachineBound>> {
        self.within(async {
            let (mut tx, revision) = self.snapshot_of(&format!("{KIND}/{org}")).await?;
            Ok(AtRevision { revision, value: of_org(&mut tx, org).await? })
        })
        .await
    }

    /// Replaces an org's bound; an empty one deletes it.
    pub async fn put_machine_bound(
        &self,
        change: &Change,
        org: &str,
        bound: &MachineBound,
    ) -> Result<Commit> {
        self.within(async {
            let mut write = self.write(change, format!("{KIND}/{org}")).await?;
            write.org = org.to_owned();
            if of_org(&mut write.tx, org).await? == *bound {
                return write.unchanged().await;
            }
            query!("DELETE FROM machine_bounds WHERE org = $1", org).execute(&mut *write.tx).await?;
            let [groups, scopes] =
                [&bound.groups, &bound.scopes].map(|set| Vec::from_iter(set.iter().cloned()));
            let is_empty = groups.is_empty() && scopes.is_empty();
            if !is_empty {
                let insert = "INSERT INTO machine_bounds (org, groups, scopes) VALUES ($1, $2, $3)";
                let insert = query!(insert, org, texts(&groups)?, texts(&scopes)?);
                insert.execute(&mut *write.tx).await?;
            }
            write.stamp(!is_empty).await?;
            let detail = format!("groups={} scopes={}", groups.join(","), scopes.join(","));
            write.commit(if is_empty { "machine_bound.delete" } else { "machine_bound.put" }, &detail).await
        })
        .await
    }
}

fn add(bound: &mut MachineBound, row: &AnyRow) -> Result<()> {
    let groups: Vec<String> = rows::get(row, "groups")?;
    let scopes: Vec<String> = rows::get(row, "scopes")?;
    bound.groups.extend(groups);
    bound.scopes.extend(scopes);
    Ok(())
}
