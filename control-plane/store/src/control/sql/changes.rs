//! Changes since a revision: every write is audited at a revision of its own, with the name of its resource.
//!
//! Keeps true: an answer is consistent at one revision; if the audit does not cover every revision in between, because
//! older rows were pruned or another database was restored, the answer is everything.

use std::collections::BTreeSet;

use sqlx::Row;

use super::{
    ControlStore, Tx, answered, bounds, certificates, issuers, machines, offers, placement, policy, position,
    revocations, rows, servers,
};
use crate::control::{
    Change, ChangedRevocations, Commit, ControlState, Machines, OrgState, Position, Result, StateDelta,
    StateUpdate,
};

/// Number of changes beyond which reading everything costs less than reading each.
const MAX_CHANGES: u64 = 1_000;
/// Resource of writes of the revision itself.
const REVISION: &str = "revision";

async fn all(tx: &mut Tx) -> Result<ControlState> {
    let Position { revision, stamp } = position(&mut **tx).await?;
    let (issuers, unreadable_issuers) = issuers::all(&mut **tx).await?;
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
        machines: all_machines(tx).await?,
        placement: placement::all(tx).await?,
    })
}

async fn all_machines(tx: &mut Tx) -> Result<Machines> {
    let (keys, mut unreadable) = machines::all(&mut **tx).await?;
    let (certificates, unreadable_certificates) = certificates::all(&mut **tx).await?;
    let (bounds, unreadable_bounds) = bounds::all(tx).await?;
    unreadable.extend(unreadable_certificates);
    unreadable.extend(unreadable_bounds);
    Ok(Machines { keys, certificates, bounds, unreadable })
}

impl ControlStore {
    /// Returns the revision of the last change; 0 before the first.
    pub async fn revision(&self) -> Result<u64> {
        Ok(self.position().await?.revision)
    }

    /// Returns the current revision with the stamp that distinguishes it from the same number in another history.
    pub async fn position(&self) -> Result<Position> {
        let longest = self.timeouts.map(|timeouts| timeouts.poll);
        answered(longest, position(&self.publishing)).await
    }

    /// Whether this database's history contains that revision, made by the same write. Also `true` if the audit row was
    /// pruned or written by an earlier version.
    pub async fn has(&self, known: &Position) -> Result<bool> {
        self.within(async {
            let mut tx = self.published_snapshot().await?;
            let current = position(&mut *tx).await?;
            if known.revision >= current.revision || known.revision == 0 {
                return Ok(known.revision == 0 || *known == current);
            }
            let of = sqlx::query("SELECT stamp FROM audit WHERE revision = $1");
            match of.bind(rows::signed(known.revision)?).fetch_optional(&mut *tx).await? {
                Some(row) => {
                    let stamp: String = row.try_get("stamp")?;
                    Ok(stamp.is_empty() || stamp == known.stamp)
                }
                None => Ok(true),
            }
        })
        .await
    }

    /// Raises the revision to `to` if it is lower. Subscribers that saw a later revision, from before a restore or a
    /// failover, accept nothing earlier. Afterwards [`ControlStore::since`] returns everything for an older revision.
    pub async fn raise_revision(&self, change: &Change, to: u64) -> Result<Commit> {
        self.within(async {
            let mut write = self.write(change, REVISION.to_owned()).await?;
            if write.revision > to {
                return Ok(Commit { revision: write.revision - 1, ..write.unchanged().await? });
            }
            let from = write.revision - 1;
            let raise = query!("UPDATE control_revision SET revision = $1 WHERE id = 1", rows::signed(to)?);
            raise.execute(&mut *write.tx).await?;
            write.revision = to;
            write.commit("revision.raise", &format!("from {from}")).await
        })
        .await
    }

    /// Returns all data of a snapshot at one revision; expired revocations are in it until they are deleted
    /// ([`ControlStore::prune`]).
    pub async fn load(&self) -> Result<ControlState> {
        self.within(async { all(&mut self.published_snapshot().await?).await }).await
    }

    /// Returns the issuers and their fetched keys, in a state that is otherwise empty.
    pub async fn issuers_of_now(&self) -> Result<ControlState> {
        Ok(match self.since(self.revision().await?).await? {
            StateUpdate::Changed(StateDelta { revision, issuers, issuer_keys, .. }) => {
                ControlState { revision, issuers, issuer_keys, ..ControlState::default() }
            }
            StateUpdate::All(state) => state,
        })
    }

    /// Returns the changes after `revision`, read at one revision.
    pub async fn since(&self, revision: u64) -> Result<StateUpdate> {
        self.within(async {
            let mut tx = self.published_snapshot().await?;
            let Position { revision: current, stamp } = position(&mut *tx).await?;
            let wanted = current.checked_sub(revision).filter(|wanted| *wanted <= MAX_CHANGES);
            let Some(wanted) = wanted else {
                return Ok(StateUpdate::All(all(&mut tx).await?));
            };
            let sql = "SELECT resource, org, action, at FROM audit WHERE revision > $1 ORDER BY revision";
            let rows = query!(sql, rows::signed(revision)?).fetch_all(&mut *tx).await?;
            if u64::try_from(rows.len()).ok() != Some(wanted) {
                return Ok(StateUpdate::All(all(&mut tx).await?));
            }
            let mut touched = ChangedResources::default();
            for row in &rows {
                let resource: String = row.try_get("resource")?;
                if resource == REVISION {
                    // Earlier rows may be from another database.
                    return Ok(StateUpdate::All(all(&mut tx).await?));
                }
                let action: String = row.try_get("action")?;
                if resource == revocations::SEVERAL && action == revocations::ADD {
                    touched.moments.insert(row.try_get("at")?);
                    continue;
                }
                touched.add(&resource, row.try_get("org")?, &action);
            }
            Ok(StateUpdate::Changed(changed(&mut tx, Position { revision: current, stamp }, touched).await?))
        })
        .await
    }
}

/// Reads the current state of the changed resources at `now`.
async fn changed(tx: &mut Tx, now: Position, touched: ChangedResources) -> Result<StateDelta> {
    let (issuers, unreadable_issuers) = issuers::all(&mut **tx).await?;
    let mut changed = StateDelta {
        revision: now.revision,
        stamp: now.stamp,
        issuers,
        unreadable_issuers,
        issuer_keys: issuers::all_keys(&mut **tx).await?,
        ..StateDelta::default()
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

async fn of_org(tx: &mut Tx, org: String) -> Result<OrgState> {
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
