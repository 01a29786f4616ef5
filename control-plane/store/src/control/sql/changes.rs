//! Changes since a revision: every write is audited at a revision of its own, with the name of its resource.
//!
//! Keeps true: an answer is consistent at one revision; if the audit does not cover every revision in between, because
//! older rows were pruned or another database was restored, the answer is everything.

use std::collections::BTreeSet;

use sqlx::{Any, Executor, Row};

use super::{
    SqlStore, Tx, bounds, certificates, issuers, machines, offers, placement, policy, revocations, rows,
    servers,
};
use crate::control::{
    Changed, ChangedRevocations, ControlState, Machines, OrgState, Position, Since, StoreError,
};

/// Number of changes beyond which reading everything costs less than reading each.
const MAX_CHANGES: u64 = 1_000;
/// Resource of writes of the revision itself.
pub(super) const REVISION: &str = "revision";

pub(super) async fn all(tx: &mut Tx) -> Result<ControlState, StoreError> {
    let Position { revision, stamp } = position(&mut **tx).await?;
    let (issuers, unreadable_issuers) = issuers::all(&mut **tx).await?;
    let Machines { keys, certificates, bounds, unreadable } = all_machines(tx).await?;
    Ok(ControlState {
        revision,
        stamp,
        servers: servers::all(tx).await?,
        offers: offers::all(&mut **tx).await?,
        exposure: policy::all_exposure(tx).await?,
        bindings: policy::all_bindings(tx).await?,
        limits: policy::all_limits(tx).await?,
        revocations: revocations::all(tx).await?,
        issuers,
        issuer_keys: issuers::all_keys(&mut **tx).await?,
        unreadable_issuers,
        machine_keys: keys,
        machine_certificates: certificates,
        machine_bounds: bounds,
        unreadable_machines: unreadable,
        placement: placement::all(tx).await?,
    })
}

async fn all_machines(tx: &mut Tx) -> Result<Machines, StoreError> {
    let (keys, mut unreadable) = machines::all(&mut **tx).await?;
    let (certificates, unreadable_certificates) = certificates::all(&mut **tx).await?;
    let (bounds, unreadable_bounds) = bounds::all(tx).await?;
    unreadable.extend(unreadable_certificates);
    unreadable.extend(unreadable_bounds);
    Ok(Machines { keys, certificates, bounds, unreadable })
}

/// Returns the current revision and its stamp.
pub(super) async fn position<'e>(
    executor: impl Executor<'e, Database = Any>,
) -> Result<Position, StoreError> {
    let row = sqlx::query("SELECT revision, stamp FROM control_revision WHERE id = 1").fetch_one(executor);
    let row = row.await?;
    Ok(Position { revision: rows::unsigned(&row, "revision")?, stamp: row.try_get("stamp")? })
}

/// Whether this database's history contains that revision, made by that write. Also `true` if the audit row was pruned
/// or written by an earlier version.
pub(super) async fn has(tx: &mut Tx, known: &Position) -> Result<bool, StoreError> {
    let current = position(&mut **tx).await?;
    if known.revision >= current.revision || known.revision == 0 {
        return Ok(known.revision == 0 || *known == current);
    }
    let of = sqlx::query("SELECT stamp FROM audit WHERE revision = $1").bind(rows::signed(known.revision)?);
    match of.fetch_optional(&mut **tx).await? {
        Some(row) => {
            let stamp: String = row.try_get("stamp")?;
            Ok(stamp.is_empty() || stamp == known.stamp)
        }
        None => Ok(true),
    }
}

pub(super) async fn since(store: &SqlStore, revision: u64) -> Result<Since, StoreError> {
    let mut tx = store.published_snapshot().await?;
    let Position { revision: current, stamp } = position(&mut *tx).await?;
    let wanted = current.checked_sub(revision).filter(|wanted| *wanted <= MAX_CHANGES);
    let Some(wanted) = wanted else {
        return Ok(Since::All(all(&mut tx).await?));
    };
    let rows =
        sqlx::query("SELECT resource, org, action, at FROM audit WHERE revision > $1 ORDER BY revision")
            .bind(rows::signed(revision)?)
            .fetch_all(&mut *tx)
            .await?;
    if u64::try_from(rows.len()).ok() != Some(wanted) {
        return Ok(Since::All(all(&mut tx).await?));
    }
    let mut touched = ChangedResources::default();
    for row in &rows {
        let resource: String = row.try_get("resource")?;
        if resource == REVISION {
            // Earlier rows may be from another database.
            return Ok(Since::All(all(&mut tx).await?));
        }
        let action: String = row.try_get("action")?;
        if resource == revocations::SEVERAL && action == revocations::ADD {
            touched.moments.insert(row.try_get("at")?);
            continue;
        }
        touched.add(&resource, row.try_get("org")?, &action);
    }
    Ok(Since::Changed(changed(&mut tx, Position { revision: current, stamp }, touched).await?))
}

/// Reads the current state of the changed resources at `now`.
async fn changed(tx: &mut Tx, now: Position, touched: ChangedResources) -> Result<Changed, StoreError> {
    let (issuers, unreadable_issuers) = issuers::all(&mut **tx).await?;
    let mut changed = Changed {
        revision: now.revision,
        stamp: now.stamp,
        issuers,
        unreadable_issuers,
        issuer_keys: issuers::all_keys(&mut **tx).await?,
        ..Changed::default()
    };
    for name in touched.servers {
        let record = servers::one(&mut **tx, &name).await?;
        changed.servers.push((name, record));
    }
    for org in touched.orgs {
        changed.orgs.push(of_org(tx, org).await?);
    }
    if touched.machines {
        changed.machines = Some(all_machines(tx).await?);
    }
    if touched.offers {
        changed.offers = Some(offers::all(&mut **tx).await?);
    }
    if touched.placement {
        changed.placement = Some(placement::all(tx).await?);
    }
    changed.revocations = match touched.all_revocations {
        true => ChangedRevocations::All(revocations::all(tx).await?),
        false => {
            let mut these = Vec::with_capacity(touched.revocations.len());
            for id in touched.revocations {
                let record = revocations::one(&mut **tx, &id).await?;
                these.push((id, record));
            }
            for at in touched.moments {
                let added = revocations::of_moment(tx, at).await?;
                these.extend(added.into_iter().map(|record| (record.id.clone(), Some(record))));
            }
            ChangedRevocations::These(these)
        }
    };
    Ok(changed)
}

/// Changed resources, by the names in the audit.
#[derive(Default)]
struct ChangedResources {
    servers: BTreeSet<String>,
    orgs: BTreeSet<String>,
    machines: bool,
    placement: bool,
    offers: bool,
    revocations: BTreeSet<String>,
    /// Times at which one write added several revocations.
    moments: BTreeSet<i64>,
    all_revocations: bool,
}

impl ChangedResources {
    fn add(&mut self, resource: &str, org: String, action: &str) {
        let (kind, name) = resource.split_once('/').unwrap_or((resource, ""));
        match kind {
            "server" => {
                self.servers.insert(name.to_owned());
                // Its offers were deleted with it.
                self.offers |= action == servers::DELETED;
            }
            offers::OFFERS => self.offers = true,
            "exposure" | "bindings" | "limits" | bounds::KIND => drop(self.orgs.insert(name.to_owned())),
            "machine_key" | "machine_certificate" => {
                self.orgs.insert(org);
                self.machines = true;
                // A new one extends the retention of revocations.
                self.all_revocations |= !action.ends_with(".delete");
            }
            placement::ROUTES | placement::REGIONS | placement::HOME => self.placement = true,
            "revocation" if name == "*" => self.all_revocations = true,
            "revocation" => drop(self.revocations.insert(name.to_owned())),
            // Issuers are always read, and notes are about things stored elsewhere.
            _ => {}
        }
    }
}

async fn of_org(tx: &mut Tx, org: String) -> Result<OrgState, StoreError> {
    let (machine_keys, mut unreadable_machines) = machines::of_org(&mut **tx, &org).await?;
    let (machine_certificates, unreadable) = certificates::of_org(&mut **tx, &org).await?;
    unreadable_machines.extend(unreadable);
    let (mut bounds, unreadable) = bounds::published(tx, &org).await?;
    unreadable_machines.extend(unreadable);
    Ok(OrgState {
        exposure: policy::exposure_of(tx, &org).await?,
        bindings: policy::bindings_of(tx, &org).await?,
        limits: policy::limits_of(tx, &org).await?,
        machine_keys,
        machine_certificates,
        machine_bound: bounds.remove(&org).unwrap_or_default(),
        unreadable_machines,
        org,
    })
}
