//! Revocations: written durably before they are announced (invariant I-6).

use std::collections::HashMap;

use sqlx::Row;
use sqlx::any::{AnyExecutor, AnyRow};

use super::write::{Rank, Write};
use super::{ControlStore, Tx, rows};
use crate::control::{
    Change, Commit, ListChange, ListDifference, MAX_REVOCATIONS, MAX_REVOCATIONS_AT_ONCE,
    MAX_REVOCATIONS_PER_ORG, Precondition, Result, RevocationEvent, RevocationPage, RevocationRecord,
    StoreError,
};

/// Resource of writes of several revocations.
pub(super) const SEVERAL: &str = "revocation/*";
/// Action of a write that adds one or several revocations.
pub(super) const ADD: &str = "revocation.add";
/// Action of a write that lifts one or several revocations.
const DELETE: &str = "revocation.delete";
/// Maximum number of revocations read by [`ControlStore::revoked_since`]: more than one write adds, so that every page
/// makes progress.
const MAX_SINCE: usize = 2 * MAX_REVOCATIONS_AT_ONCE;

const SELECT_ALL: &str = "SELECT id, kind, org, target, issuer, reason, created_at, until_at, by_platform FROM revocations \
     ORDER BY created_at, id";
const SELECT_PAGE: &str = "SELECT id, kind, org, target, issuer, reason, created_at, until_at, by_platform FROM revocations \
     WHERE $1 = '' OR org = $1 ORDER BY created_at DESC, id DESC LIMIT $2";
const SELECT_ONE: &str = "SELECT id, kind, org, target, issuer, reason, created_at, until_at, by_platform FROM revocations \
     WHERE id = $1";
/// Blocks of users and orgs.
const SELECT_BLOCKS: &str = "SELECT id, kind, org, target, issuer, reason, created_at, until_at, by_platform FROM revocations \
     WHERE kind IN ('block_user', 'block_org') AND ($1 = '' OR org = $1) ORDER BY created_at DESC, id DESC LIMIT $2";
const SELECT_AT: &str = "SELECT id, kind, org, target, issuer, reason, created_at, until_at, by_platform FROM revocations \
     WHERE created_at = $1";
/// Revocations that were added according to the audit and still exist: a single one by its name (`revocation/<id>`), a
/// batch by its time and its revision. Two batches may have the same time; if each matched both, no page could end
/// between them.
const SELECT_SINCE: &str = "SELECT a.revision AS revision, r.id AS id, r.kind AS kind, r.org AS org, r.target AS target, \
     r.issuer AS issuer, r.reason AS reason, r.created_at AS created_at, r.until_at AS until_at, r.by_platform AS by_platform \
     FROM audit a JOIN revocations r ON r.id = SUBSTR(a.resource, 12) \
     WHERE a.revision > $1 AND a.action = 'revocation.add' AND a.resource <> 'revocation/*' \
     UNION ALL SELECT a.revision, r.id, r.kind, r.org, r.target, r.issuer, r.reason, r.created_at, r.until_at, r.by_platform \
     FROM audit a JOIN revocations r ON r.created_at = a.at \
     JOIN resources s ON s.name = 'revocation/' || r.id AND s.revision = a.revision \
     WHERE a.revision > $1 AND a.action = 'revocation.add' AND a.resource = 'revocation/*' \
     ORDER BY 1 LIMIT $2";

pub(super) async fn all(tx: &mut Tx) -> Result<Vec<RevocationRecord>> {
    let rows = sqlx::query(SELECT_ALL).fetch_all(&mut **tx).await?;
    rows.iter().map(record).collect()
}

impl ControlStore {
    pub async fn revocation(&self, id: &str) -> Result<Option<RevocationRecord>> {
        self.within(one(&self.revoking, id)).await
    }

    /// Returns at most `limit` revocations of one org or of all, newest first.
    pub async fn revocations(&self, org: Option<&str>, limit: u32) -> Result<Vec<RevocationRecord>> {
        self.within(async {
            let page = query!(SELECT_PAGE, org.unwrap_or(""), i64::from(limit));
            page.fetch_all(&self.revoking).await?.iter().map(record).collect()
        })
        .await
    }

    /// Returns at most `limit` blocks of one org or of all, newest first.
    pub async fn blocks(&self, org: Option<&str>, limit: u32) -> Result<Vec<RevocationRecord>> {
        self.within(async {
            let page = query!(SELECT_BLOCKS, org.unwrap_or(""), i64::from(limit));
            page.fetch_all(&self.revoking).await?.iter().map(record).collect()
        })
        .await
    }

    pub async fn add_revocation(&self, change: &Change, new: &RevocationRecord) -> Result<Commit> {
        self.add_revocation_of(change, new, None).await
    }

    /// Adds a revocation, for an event of a topic if there is one. An event that became a revocation before changes
    /// nothing, whatever happened to that revocation since.
    pub async fn add_revocation_of(
        &self,
        change: &Change,
        new: &RevocationRecord,
        event: Option<&RevocationEvent>,
    ) -> Result<Commit> {
        self.within(async {
            // Counted before the lock of all writes, so that concurrent additions may exceed a limit by their number.
            let full = full(self, new, 1).await?;
            let mut write = self.write_as(Rank::Revocation, change, format!("revocation/{}", new.id)).await?;
            write.org = new.org.clone();
            if write.current.is_some() {
                return write.unchanged().await;
            }
            if let Some(event) = event
                && !super::events::take(self, &mut write, event).await?
            {
                return write.unchanged().await;
            }
            if let Some(full) = full {
                return Err(full);
            }
            let hit_until = super::machines::hit_until(&mut write.tx, new).await?;
            let until = rows::signed(new.until)?.max(hit_until);
            insert(&mut write, &[(new, until)]).await?;
            super::link_endings::add(&mut write, std::slice::from_ref(new)).await?;
            write.stamp(true).await?;
            write.keep(&ListChange::Revocations(ListDifference::of([], [new.clone()])));
            write.commit(ADD, &format!("{} {}", new.kind, new.target)).await
        })
        .await
    }

    /// Adds several revocations in one write, at one revision. All must be of tokens (`token`, `token_hash`) of one
    /// org, made at the time of the change, with new ids. [`StoreError::Full`] beyond [`MAX_REVOCATIONS_AT_ONCE`].
    pub async fn add_revocations(&self, change: &Change, new: &[RevocationRecord]) -> Result<Commit> {
        self.within(async {
            let Some(first) = new.first() else { return Ok(Commit { revision: 0, changed: false }) };
            if new.len() > MAX_REVOCATIONS_AT_ONCE {
                return Err(StoreError::Full { what: "revocations at once", bound: MAX_REVOCATIONS_AT_ONCE });
            }
            let is_alike = |record: &RevocationRecord| {
                record.org == first.org
                    && record.created_at == change.at
                    && matches!(record.kind.as_str(), "token" | "token_hash")
            };
            if !new.iter().all(is_alike) {
                return Err(StoreError::Backend("revocations that do not belong in one write".into()));
            }
            if let Some(full) = full(self, first, new.len()).await? {
                return Err(full);
            }
            let mut write = self.write_as(Rank::Revocation, change, SEVERAL.to_owned()).await?;
            write.org = first.org.clone();
            let credentials = CredentialExpiries::of(&mut write.tx, &first.org).await?;
            let kept = new.iter().map(|record| {
                let until = rows::signed(record.until)?.max(credentials.until(record));
                Ok((record, until))
            });
            let kept = kept.collect::<Result<Vec<(&RevocationRecord, i64)>>>()?;
            insert(&mut write, &kept).await?;
            super::link_endings::add(&mut write, new).await?;
            stamp(&mut write, new).await?;
            write.keep(&ListChange::Revocations(ListDifference::of([], new.to_vec())));
            write.commit(ADD, &format!("{} tokens", new.len())).await
        })
        .await
    }

    /// Returns the revocations added after `revision`, oldest first and about 2,000 at most.
    pub async fn revoked_since(&self, revision: u64) -> Result<RevocationPage> {
        self.within(async {
            let mut tx = self.published_snapshot().await?;
            let now = super::position(&mut *tx).await?.revision;
            let limit = i64::try_from(MAX_SINCE).unwrap_or(i64::MAX);
            let rows = query!(SELECT_SINCE, rows::signed(revision)?, limit).fetch_all(&mut *tx).await?;
            let is_whole = rows.len() < MAX_SINCE;
            let newest = rows.last().map_or(Ok(now), |last| rows::get(last, "revision"))?;
            // The last write may be incomplete.
            let through = if is_whole { now } else { newest.saturating_sub(1) };
            let records = rows.iter().map(record).collect::<Result<Vec<_>, _>>()?;
            Ok(RevocationPage { through, newest: newest.min(through), is_whole, records })
        })
        .await
    }

    pub async fn delete_revocation(&self, change: &Change, id: &str) -> Result<Commit> {
        self.within(async {
            let mut write = self.write_as(Rank::Revocation, change, format!("revocation/{id}")).await?;
            let stored = query!(SELECT_ONE, id).fetch_optional(&mut *write.tx).await?;
            let gone = record(&stored.ok_or(StoreError::NotFound)?)?;
            write.org.clone_from(&gone.org);
            query!("DELETE FROM revocations WHERE id = $1", id).execute(&mut *write.tx).await?;
            write.stamp(false).await?;
            let detail = format!("{} {}", gone.kind, gone.target);
            write.keep(&ListChange::Revocations(ListDifference::of([gone], [])));
            write.commit(DELETE, &detail).await
        })
        .await
    }

    /// Deletes several revocations of one org in one write; [`StoreError::NotFound`] if one of them does not exist.
    pub async fn delete_revocations(&self, change: &Change, ids: &[String]) -> Result<Commit> {
        self.within(async {
            let mut write = self.write_as(Rank::Revocation, change, SEVERAL.to_owned()).await?;
            let these = rows::parameters(ids.len());
            let mut delete = sqlx::query(sqlx::AssertSqlSafe(format!(
                "DELETE FROM revocations WHERE id IN ({these}) \
                 RETURNING id, kind, org, target, issuer, reason, created_at, until_at, by_platform"
            )));
            let mut resources =
                sqlx::query(sqlx::AssertSqlSafe(format!("DELETE FROM resources WHERE name IN ({these})")));
            for id in ids {
                delete = delete.bind(id);
                resources = resources.bind(format!("revocation/{id}"));
            }
            let gone = delete.fetch_all(&mut *write.tx).await?;
            let gone = gone.iter().map(record).collect::<Result<Vec<_>>>()?;
            resources.execute(&mut *write.tx).await?;
            let Some(first) = gone.first().filter(|_| gone.len() == ids.len()) else {
                return Err(StoreError::NotFound);
            };
            write.org.clone_from(&first.org);
            let detail = format!("{} tokens", gone.len());
            write.keep(&ListChange::Revocations(ListDifference::of(gone, [])));
            write.commit(DELETE, &detail).await
        })
        .await
    }
}

pub(super) async fn one<'e>(from: impl AnyExecutor<'e>, id: &'e str) -> Result<Option<RevocationRecord>> {
    query!(SELECT_ONE, id).fetch_optional(from).await?.as_ref().map(record).transpose()
}

/// Returns the revocations of one point in time: those of one write, and possibly others.
pub(super) async fn of_moment(tx: &mut Tx, at: i64) -> Result<Vec<RevocationRecord>> {
    query!(SELECT_AT, at).fetch_all(&mut **tx).await?.iter().map(record).collect()
}

/// Inserts records, each with the time until which it is kept.
async fn insert(write: &mut Write<'_>, new: &[(&RevocationRecord, i64)]) -> Result<()> {
    let statement = format!(
        "INSERT INTO revocations (id, kind, org, target, issuer, reason, created_at, until_at, by_platform) {}",
        rows::values(new.len(), 9)
    );
    let mut insert = sqlx::query(sqlx::AssertSqlSafe(statement));
    for (record, until) in new {
        let RevocationRecord { id, kind, org, target, issuer, reason, .. } = record;
        for text in [id, kind, org, target, issuer, reason] {
            insert = insert.bind(text);
        }
        for number in [rows::signed(record.created_at)?, *until, i64::from(record.by_platform)] {
            insert = insert.bind(number);
        }
    }
    insert.execute(&mut *write.tx).await?;
    Ok(())
}

/// Records the revision of each revocation.
async fn stamp(write: &mut Write<'_>, new: &[RevocationRecord]) -> Result<()> {
    let revision = rows::signed(write.revision)?;
    let statement = format!("INSERT INTO resources (name, revision) {}", rows::values(new.len(), 2));
    let mut insert = sqlx::query(sqlx::AssertSqlSafe(statement));
    for record in new {
        insert = insert.bind(format!("revocation/{}", record.id)).bind(revision);
    }
    insert.execute(&mut *write.tx).await?;
    Ok(())
}

/// Expiry of the keys and certificates of an org's machines, by the ids and hashes that revocations of tokens name.
struct CredentialExpiries {
    by_id: HashMap<String, i64>,
    by_hash: HashMap<String, i64>,
    /// Latest expiry of a certificate registered by URI, to which any hash may belong.
    of_uris: i64,
}

impl CredentialExpiries {
    /// Reads the credentials of an org; those of all orgs for "".
    async fn of(tx: &mut Tx, org: &str) -> Result<CredentialExpiries> {
        let mut credentials =
            CredentialExpiries { by_id: HashMap::new(), by_hash: HashMap::new(), of_uris: 0 };
        let select = "SELECT id, hash AS name, 'key' AS kind, expires_at FROM machine_keys WHERE $1 = '' OR org = $1 \
             UNION ALL SELECT id, name, kind, expires_at FROM machine_certificates WHERE $1 = '' OR org = $1";
        for row in &query!(select, org).fetch_all(&mut **tx).await? {
            let until: i64 = row.try_get("expires_at")?;
            credentials.by_id.insert(row.try_get("id")?, until);
            match row.try_get::<String, _>("kind")?.as_str() {
                "uri" => credentials.of_uris = credentials.of_uris.max(until),
                _ => drop(credentials.by_hash.insert(row.try_get("name")?, until)),
            }
        }
        Ok(credentials)
    }

    /// Returns the same as [`super::machines::hit_until`].
    fn until(&self, revocation: &RevocationRecord) -> i64 {
        let of = |map: &HashMap<String, i64>| map.get(&revocation.target).copied().unwrap_or(0);
        if revocation.kind == "token" { of(&self.by_id) } else { of(&self.by_hash).max(self.of_uris) }
    }
}

/// Returns the error if `more` revocations like `new` would exceed a limit.
async fn full(store: &ControlStore, new: &RevocationRecord, more: usize) -> Result<Option<StoreError>> {
    let live = "SELECT COUNT(*) FROM revocations WHERE id <> $1";
    let of_org = "SELECT COUNT(*) FROM revocations WHERE org = $1";
    let count = async |sql: &'static str, key: &str| {
        let counted: i64 = query!(sql, key).fetch_one(&store.revoking).await?.try_get(0)?;
        Ok::<usize, StoreError>(usize::try_from(counted).unwrap_or(usize::MAX))
    };
    if count(live, &new.id).await?.saturating_add(more) > MAX_REVOCATIONS {
        return Ok(Some(StoreError::Full { what: "live revocations", bound: MAX_REVOCATIONS }));
    }
    if !new.org.is_empty() && count(of_org, &new.org).await?.saturating_add(more) > MAX_REVOCATIONS_PER_ORG {
        let what = "live revocations of an org";
        return Ok(Some(StoreError::Full { what, bound: MAX_REVOCATIONS_PER_ORG }));
    }
    Ok(None)
}

/// Deletes revocations that no valid token can match any more.
pub(super) async fn prune(store: &ControlStore, change: &Change) -> Result<u64> {
    let now = rows::signed(change.at)?;
    // Checks without the write lock first: most runs find nothing.
    let due = query!("SELECT COUNT(*) FROM revocations WHERE until_at <= $1", now);
    if due.fetch_one(&store.revoking).await?.try_get::<i64, _>(0)? == 0 {
        return Ok(0);
    }
    let change = Change { precondition: Precondition::None, ..change.clone() };
    let mut write = store.write_as(Rank::Revocation, &change, SEVERAL.to_owned()).await?;
    let resources = "DELETE FROM resources WHERE name IN (SELECT 'revocation/' || id FROM revocations WHERE until_at <= $1)";
    query!(resources, now).execute(&mut *write.tx).await?;
    let pruned = query!("DELETE FROM revocations WHERE until_at <= $1", now);
    let pruned = pruned.execute(&mut *write.tx).await?.rows_affected();
    write.commit("revocation.prune", &format!("{pruned} expired")).await?;
    Ok(pruned)
}

fn record(row: &AnyRow) -> Result<RevocationRecord> {
    record! { row, RevocationRecord {
        id, kind, org, target, issuer, reason, created_at, until: "until_at", by_platform,
    } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn revocations_of_a_moment_and_the_newest_ones_are_found_by_an_index() {
        let store = ControlStore::in_memory().await.unwrap();
        for statement in [SELECT_AT, SELECT_PAGE, SELECT_BLOCKS, SELECT_ALL] {
            let plan = sqlx::AssertSqlSafe(format!("EXPLAIN QUERY PLAN {statement}"));
            let rows = sqlx::query(plan).fetch_all(&store.pool).await.unwrap();
            let steps: Vec<String> = rows.iter().map(|row| row.try_get("detail").unwrap()).collect();
            assert!(
                steps.iter().all(|step| step.contains("USING INDEX revocations_created")),
                "{statement}: {steps:?}"
            );
        }
    }
}
