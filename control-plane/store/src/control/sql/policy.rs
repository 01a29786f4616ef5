//! Policy of an org: exposure exceptions, bindings and rate limits.
//!
//! Each of the three is one resource of the org with one ETag.

use sqlx::Row;
use sqlx::any::AnyRow;

use super::{ControlStore, Tx, check_bound, count, detail, rows};
use crate::control::{
    AtRevision, BindingRecord, Change, Commit, ExposureRecord, LimitRecord, ListChange, ListDifference,
    MAX_BINDINGS_PER_ORG, MAX_EXPOSURE_PER_ORG, MAX_LIMITS_PER_ORG, MAX_RULES_PER_ORG, Result, StoreError,
};
use crate::database_error::has_code;

/// Attempts of a write of an org's policy. A control plane of the previous version takes its locks in the opposite
/// order, so that the two may deadlock; a retried write waits before it holds any lock.
const POLICY_ATTEMPTS: u32 = 4;
/// Error code of PostgreSQL.
const UNIQUE_VIOLATION: &str = "23505";
const COUNT_EXPOSURE: &str = "SELECT COUNT(*) FROM exposure WHERE org = $1";
const COUNT_BINDINGS: &str = "SELECT COUNT(*) FROM bindings WHERE org = $1";
const COUNT_RULES: &str = "SELECT COUNT(*) FROM bindings WHERE org = $1 \
     AND (observed = 1 OR approval = 1 OR conditions <> '' OR approvers <> '')";

// === exposure ===

pub(super) async fn all_exposure(tx: &mut Tx) -> Result<Vec<ExposureRecord>> {
    let rows =
        sqlx::query("SELECT org, server, protocol, enabled FROM exposure ORDER BY org, server, protocol")
            .fetch_all(&mut **tx)
            .await?;
    rows.iter().map(exposure_record).collect()
}

pub(super) async fn exposure_of(tx: &mut Tx, org: &str) -> Result<Vec<ExposureRecord>> {
    let of_org =
        "SELECT org, server, protocol, enabled FROM exposure WHERE org = $1 ORDER BY server, protocol";
    query!(of_org, org).fetch_all(&mut **tx).await?.iter().map(exposure_record).collect()
}

impl ControlStore {
    /// Runs a write of an org's policy, and retries it if the database aborted it because of another write.
    async fn policy_write<F>(&self, write: impl Fn() -> F + Send + Sync) -> Result<Commit>
    where
        F: Future<Output = Result<Commit>> + Send,
    {
        self.within(async {
            for _ in 1..POLICY_ATTEMPTS {
                match write().await {
                    Err(StoreError::Aborted(error)) => {
                        tracing::debug!(%error, "a policy write is retried");
                    }
                    done => return done,
                }
            }
            write().await
        })
        .await
    }

    pub async fn exposure(&self, org: &str) -> Result<AtRevision<Vec<ExposureRecord>>> {
        self.within(async {
            let (mut tx, revision) = self.snapshot_of(&format!("exposure/{org}")).await?;
            Ok(AtRevision { revision, value: exposure_of(&mut tx, org).await? })
        })
        .await
    }

    /// Inserts or replaces by key.
    pub async fn put_exposure(&self, change: &Change, record: &ExposureRecord) -> Result<Commit> {
        let ExposureRecord { org, server, protocol, enabled } = record;
        self.policy_write(|| async {
            let mut write = self.write_of_org(change, "exposure", org).await?;
            let sql = "SELECT enabled FROM exposure WHERE org = $1 AND server = $2 AND protocol = $3";
            let stored = query!(sql, org, server, protocol).fetch_optional(&mut *write.tx).await?;
            let stored = stored.map(|row| rows::get::<bool>(&row, "enabled")).transpose()?;
            match stored {
                Some(stored) if stored == *enabled => return write.unchanged().await,
                Some(_) => {}
                None => {
                    let what = "exposure exceptions of an org";
                    check_bound(&mut write.tx, (COUNT_EXPOSURE, org), what, MAX_EXPOSURE_PER_ORG).await?;
                }
            }
            insert_exposure(&mut write.tx, record).await?;
            write.stamp(true).await?;
            let before = stored.map(|enabled| ExposureRecord { enabled, ..record.clone() });
            write.keep(&ListChange::Exposure(ListDifference::of(before, [record.clone()])));
            write.commit("exposure.put", &format!("{server} {protocol} enabled={enabled}")).await
        })
        .await
    }

    /// Removes the exception with this key, regardless of `enabled`; [`StoreError::NotFound`] if there is none.
    pub async fn delete_exposure_of(&self, change: &Change, key: &ExposureRecord) -> Result<Commit> {
        let ExposureRecord { org, server, protocol, .. } = key;
        self.policy_write(|| async {
            let mut write = self.write_of_org(change, "exposure", org).await?;
            let sql =
                "DELETE FROM exposure WHERE org = $1 AND server = $2 AND protocol = $3 RETURNING enabled";
            let deleted = query!(sql, org, server, protocol).fetch_optional(&mut *write.tx).await?;
            let enabled: bool = rows::get(&deleted.ok_or(StoreError::NotFound)?, "enabled")?;
            let others = count(&mut write.tx, COUNT_EXPOSURE, org).await? > 0;
            write.stamp(others).await?;
            let gone = ExposureRecord { enabled, ..key.clone() };
            write.keep(&ListChange::Exposure(ListDifference::of([gone], [])));
            write.commit("exposure.delete", &format!("{server} {protocol} enabled={enabled}")).await
        })
        .await
    }

    /// Removes all of an org's exceptions.
    pub async fn delete_exposure(&self, change: &Change, org: &str) -> Result<Commit> {
        self.policy_write(|| async {
            let mut write = self.write_of_org(change, "exposure", org).await?;
            let delete = "DELETE FROM exposure WHERE org = $1 RETURNING org, server, protocol, enabled";
            let deleted = query!(delete, org).fetch_all(&mut *write.tx).await?;
            if deleted.is_empty() {
                return write.unchanged().await;
            }
            let gone = deleted.iter().map(exposure_record).collect::<Result<Vec<_>>>()?;
            write.stamp(false).await?;
            write.keep(&ListChange::Exposure(ListDifference::of(gone, [])));
            write.commit("exposure.delete", "").await
        })
        .await
    }

    /// Removes and stores exceptions of an org in one write.
    pub async fn replace_exposure(
        &self,
        change: &Change,
        org: &str,
        replaced: &ListDifference<ExposureRecord>,
    ) -> Result<Commit> {
        self.policy_write(|| async {
            let mut write = self.write_of_org(change, "exposure", org).await?;
            for ExposureRecord { server, protocol, .. } in &replaced.before {
                let delete = "DELETE FROM exposure WHERE org = $1 AND server = $2 AND protocol = $3";
                query!(delete, org, server, protocol).execute(&mut *write.tx).await?;
            }
            for record in &replaced.after {
                insert_exposure(&mut write.tx, record).await?;
            }
            let stored = count(&mut write.tx, COUNT_EXPOSURE, org).await?;
            if stored > MAX_EXPOSURE_PER_ORG {
                return Err(StoreError::Full {
                    what: "exposure exceptions of an org",
                    bound: MAX_EXPOSURE_PER_ORG,
                });
            }
            write.stamp(stored > 0).await?;
            write.keep(&ListChange::Exposure(replaced.clone()));
            write.commit("exposure.replace", &detail::exposure_replaced(replaced)).await
        })
        .await
    }
}

/// Inserts an exception, or replaces the one with its key.
async fn insert_exposure(tx: &mut Tx, record: &ExposureRecord) -> Result<()> {
    let ExposureRecord { org, server, protocol, enabled } = record;
    let sql = "INSERT INTO exposure (org, server, protocol, enabled) VALUES ($1, $2, $3, $4) \
               ON CONFLICT (org, server, protocol) DO UPDATE SET enabled = excluded.enabled";
    query!(sql, org, server, protocol, i64::from(*enabled)).execute(&mut **tx).await?;
    Ok(())
}

fn exposure_record(row: &AnyRow) -> Result<ExposureRecord> {
    record!(row, ExposureRecord { org, server, protocol, enabled })
}

// === bindings ===

pub(super) async fn all_bindings(tx: &mut Tx) -> Result<Vec<BindingRecord>> {
    let rows = sqlx::query(
        "SELECT org, target_type, target, issuer, primitive, protocol, name, allowed, observed, approval, conditions, \
         approvers, approvers_issuer \
         FROM bindings ORDER BY org, target_type, target, issuer, primitive, protocol, name",
    )
    .fetch_all(&mut **tx)
    .await?;
    rows.iter().map(binding_record).collect()
}

pub(super) async fn bindings_of(tx: &mut Tx, org: &str) -> Result<Vec<BindingRecord>> {
    let of_org = "SELECT org, target_type, target, issuer, primitive, protocol, name, allowed, observed, approval, conditions, \
         approvers, approvers_issuer \
         FROM bindings WHERE org = $1 ORDER BY target_type, target, issuer, primitive, protocol, name";
    query!(of_org, org).fetch_all(&mut **tx).await?.iter().map(binding_record).collect()
}

impl ControlStore {
    pub async fn bindings(&self, org: &str) -> Result<AtRevision<Vec<BindingRecord>>> {
        self.within(async {
            let (mut tx, revision) = self.snapshot_of(&format!("bindings/{org}")).await?;
            Ok(AtRevision { revision, value: bindings_of(&mut tx, org).await? })
        })
        .await
    }

    /// Inserts or replaces by key.
    pub async fn put_binding(&self, change: &Change, record: &BindingRecord) -> Result<Commit> {
        let org = record.org.as_str();
        self.policy_write(|| async {
            let mut write = self.write_of_org(change, "bindings", org).await?;
            let mut stored = sqlx::query(
                "SELECT org, target_type, target, issuer, primitive, protocol, name, allowed, observed, approval, conditions, \
         approvers, approvers_issuer \
                 FROM bindings WHERE org = $1 AND target_type = $2 AND target = $3 \
                 AND issuer = $4 AND primitive = $5 AND protocol = $6 AND name = $7",
            );
            for part in record.key() {
                stored = stored.bind(part);
            }
            let stored = stored.fetch_optional(&mut *write.tx).await?;
            let stored = stored.as_ref().map(binding_record).transpose()?;
            if record.is_rule() && !stored.as_ref().is_some_and(BindingRecord::is_rule) {
                let what = "bindings of an org with `when`, `approval` or `observe`";
                check_bound(&mut write.tx, (COUNT_RULES, org), what, MAX_RULES_PER_ORG).await?;
            }
            match &stored {
                Some(stored) if stored == record => return write.unchanged().await,
                Some(_) => {}
                None => {
                    let what = "bindings of an org";
                    check_bound(&mut write.tx, (COUNT_BINDINGS, org), what, MAX_BINDINGS_PER_ORG).await?;
                }
            }
            insert_bindings(&mut write.tx, std::slice::from_ref(record)).await?;
            write.stamp(true).await?;
            write.keep(&ListChange::Bindings(ListDifference::of(stored, [record.clone()])));
            write.commit("binding.put", &detail::binding(record)).await
        })
        .await
    }

    /// Removes the binding with this key, regardless of `allowed`; [`StoreError::NotFound`] if there is none.
    pub async fn delete_binding(&self, change: &Change, key: &BindingRecord) -> Result<Commit> {
        let org = key.org.as_str();
        self.policy_write(|| async {
            let mut write = self.write_of_org(change, "bindings", org).await?;
            let mut deleted = sqlx::query(
                "DELETE FROM bindings WHERE org = $1 AND target_type = $2 AND target = $3 \
                 AND issuer = $4 AND primitive = $5 AND protocol = $6 AND name = $7 \
                 RETURNING org, target_type, target, issuer, primitive, protocol, name, allowed, observed, approval, conditions, approvers, approvers_issuer",
            );
            for part in key.key() {
                deleted = deleted.bind(part);
            }
            let deleted = deleted.fetch_optional(&mut *write.tx).await?;
            let gone = binding_record(&deleted.ok_or(StoreError::NotFound)?)?;
            let others = count(&mut write.tx, COUNT_BINDINGS, org).await? > 0;
            write.stamp(others).await?;
            let detail = detail::binding(&gone);
            write.keep(&ListChange::Bindings(ListDifference::of([gone], [])));
            write.commit("binding.delete", &detail).await
        })
        .await
    }

    /// Removes all of an org's bindings.
    pub async fn delete_bindings(&self, change: &Change, org: &str) -> Result<Commit> {
        self.policy_write(|| async {
            let mut write = self.write_of_org(change, "bindings", org).await?;
            let delete = "DELETE FROM bindings WHERE org = $1 \
                 RETURNING org, target_type, target, issuer, primitive, protocol, name, allowed, observed, approval, conditions, approvers, approvers_issuer";
            let deleted = query!(delete, org).fetch_all(&mut *write.tx).await?;
            if deleted.is_empty() {
                return write.unchanged().await;
            }
            let gone = deleted.iter().map(binding_record).collect::<Result<Vec<_>>>()?;
            write.stamp(false).await?;
            let detail = detail::bindings_gone(&gone);
            write.keep(&ListChange::Bindings(ListDifference::of(gone, [])));
            write.commit("bindings.delete", &detail).await
        })
        .await
    }

    /// Removes and stores bindings of an org in one write.
    pub async fn replace_bindings(
        &self,
        change: &Change,
        org: &str,
        replaced: &ListDifference<BindingRecord>,
    ) -> Result<Commit> {
        self.policy_write(|| async {
            let mut write = self.write_of_org(change, "bindings", org).await?;
            for record in &replaced.before {
                let mut delete = sqlx::query(
                    "DELETE FROM bindings WHERE org = $1 AND target_type = $2 AND target = $3 \
                     AND issuer = $4 AND primitive = $5 AND protocol = $6 AND name = $7",
                );
                for part in record.key() {
                    delete = delete.bind(part);
                }
                delete.execute(&mut *write.tx).await?;
            }
            insert_bindings(&mut write.tx, &replaced.after).await?;
            let stored = count(&mut write.tx, COUNT_BINDINGS, org).await?;
            if stored > MAX_BINDINGS_PER_ORG {
                return Err(StoreError::Full { what: "bindings of an org", bound: MAX_BINDINGS_PER_ORG });
            }
            if count(&mut write.tx, COUNT_RULES, org).await? > MAX_RULES_PER_ORG {
                let what = "bindings of an org with `when`, `approval` or `observe`";
                return Err(StoreError::Full { what, bound: MAX_RULES_PER_ORG });
            }
            write.stamp(stored > 0).await?;
            write.keep(&ListChange::Bindings(replaced.clone()));
            write.commit("bindings.replace", &detail::bindings_replaced(replaced)).await
        })
        .await
    }
}

/// Inserts bindings; each replaces the one with its key.
async fn insert_bindings(tx: &mut Tx, records: &[BindingRecord]) -> Result<()> {
    for some in records.chunks(rows::MAX_ROWS) {
        let statement = format!(
            "INSERT INTO bindings \
             (org, target_type, target, issuer, primitive, protocol, name, allowed, observed, approval, conditions, \
             approvers, approvers_issuer) {} \
             ON CONFLICT (org, target_type, target, issuer, primitive, protocol, name) DO UPDATE SET \
             allowed = excluded.allowed, observed = excluded.observed, approval = excluded.approval, \
             conditions = excluded.conditions, approvers = excluded.approvers, \
             approvers_issuer = excluded.approvers_issuer",
            rows::values(some.len(), 13)
        );
        let mut insert = sqlx::query(sqlx::AssertSqlSafe(statement));
        for record in some {
            for part in record.key() {
                insert = insert.bind(part);
            }
            // An earlier version, which knows no approvers, reads a denial.
            let (allowed, approval) = match record.approvers.is_empty() {
                true => (record.allowed, record.approval),
                false => (false, false),
            };
            for flag in [allowed, record.observed, approval] {
                insert = insert.bind(i64::from(flag));
            }
            insert = insert.bind(&record.when).bind(&record.approvers).bind(&record.approvers_issuer);
        }
        insert.execute(&mut **tx).await?;
    }
    Ok(())
}

fn binding_record(row: &AnyRow) -> Result<BindingRecord> {
    let read: Result<BindingRecord> = record! { row, BindingRecord {
        org, target_type, target, issuer, primitive, protocol, name, allowed, observed, approval, when: "conditions",
        approvers, approvers_issuer,
    } };
    let mut read = read?;
    read.approval |= !read.approvers.is_empty();
    Ok(read)
}

// === rate limits ===

pub(super) async fn all_limits(tx: &mut Tx) -> Result<Vec<(String, LimitRecord)>> {
    let rows = sqlx::query(
        "SELECT org, server, primitive, user_id, wcit, issuer, machine, capacity, refill, observe, \
         caller_group, kind, window_seconds FROM limits ORDER BY org, position",
    )
    .fetch_all(&mut **tx)
    .await?;
    rows.iter().map(|row| Ok((row.try_get("org")?, limit_record(row)?))).collect()
}

impl ControlStore {
    pub async fn limits(&self, org: &str) -> Result<AtRevision<Vec<LimitRecord>>> {
        self.within(async {
            let (mut tx, revision) = self.snapshot_of(&format!("limits/{org}")).await?;
            Ok(AtRevision { revision, value: limits_of(&mut tx, org).await? })
        })
        .await
    }

    /// Replaces the org's list; an empty one deletes the resource.
    pub async fn put_limits(&self, change: &Change, org: &str, list: &[LimitRecord]) -> Result<Commit> {
        if list.len() > MAX_LIMITS_PER_ORG {
            return Err(StoreError::Full { what: "rate limits of an org", bound: MAX_LIMITS_PER_ORG });
        }
        self.policy_write(|| async {
            let mut write = self.write_of_org(change, "limits", org).await?;
            let before = limits_of(&mut write.tx, org).await?;
            if before == list {
                return write.unchanged().await;
            }
            query!("DELETE FROM limits WHERE org = $1", org).execute(&mut *write.tx).await?;
            // One statement for many rows: every write of the platform waits for this one.
            let numbered: Vec<(i64, &LimitRecord)> = (0..).zip(list).collect();
            for some in numbered.chunks(rows::MAX_ROWS) {
                let statement = format!(
                    "INSERT INTO limits \
                     (org, position, server, primitive, user_id, wcit, issuer, machine, capacity, refill, observe, \
                      caller_group, kind, window_seconds) {}",
                    rows::values(some.len(), 14)
                );
                let mut insert = sqlx::query(sqlx::AssertSqlSafe(statement));
                for (position, limit) in some {
                    let LimitRecord { server, primitive, user, wcit, issuer, machine, capacity, refill, observe, .. } = limit;
                    insert = insert.bind(org).bind(position);
                    for text in [server, primitive, user, wcit, issuer, machine] {
                        insert = insert.bind(text);
                    }
                    insert = insert.bind(rows::signed(*capacity)?).bind(refill).bind(i64::from(*observe));
                    insert = insert.bind(&limit.group).bind(&limit.kind).bind(rows::signed(limit.window_seconds)?);
                }
                insert.execute(&mut *write.tx).await.map_err(busy_error)?;
            }
            write.stamp(!list.is_empty()).await?;
            write.keep(&ListChange::Limits(ListDifference::between(&before, list)));
            let action = if list.is_empty() { "limits.delete" } else { "limits.put" };
            write.commit(action, &detail::limits(&before, list)).await
        })
        .await
    }
}

/// Returns the error for a list whose positions a control plane of the previous version filled after they were deleted:
/// it does not lock the resource.
fn busy_error(error: sqlx::Error) -> StoreError {
    if has_code(&error, &[UNIQUE_VIOLATION]) { StoreError::Busy(error.to_string()) } else { error.into() }
}

pub(super) async fn limits_of(tx: &mut Tx, org: &str) -> Result<Vec<LimitRecord>> {
    let of_org = "SELECT server, primitive, user_id, wcit, issuer, machine, capacity, refill, observe, \
         caller_group, kind, window_seconds FROM limits WHERE org = $1 ORDER BY position";
    query!(of_org, org).fetch_all(&mut **tx).await?.iter().map(limit_record).collect()
}

fn limit_record(row: &AnyRow) -> Result<LimitRecord> {
    record!(
        row,
        LimitRecord {
            server,
            primitive,
            user: "user_id",
            wcit,
            issuer,
            machine,
            capacity,
            refill,
            observe,
            group: "caller_group",
            kind,
            window_seconds,
        }
    )
}
