//! The audit trail: listed and pruned here, written by every [`super::Write`].

use sqlx::any::AnyRow;

use super::write::Rank;
use super::{ControlStore, rows};
use crate::control::{AuditQuery, AuditRecord, Change, Commit, ListChange, Note, Result, UNDOABLE_PER_ORG};

const MAX_PAGE: u32 = 1_000;
/// Columns of [`AuditRecord`].
const COLUMNS: &str = "revision, at, actor, action, resource, org, detail, \
     CAST(CASE WHEN undo = '' THEN 0 ELSE 1 END AS BIGINT) AS undoable";

impl ControlStore {
    /// Deletes expired revocations, versions of servers deleted long ago, forms of parts that are no longer stored, and
    /// audit rows beyond `keep_audit`. What has expired by the change's time but not by the clock of a database that
    /// several machines share stays. Audit rows are taken from the orgs that have the most, oldest first, so that no
    /// org's changes evict those of another. Returns the number of deleted revocations; makes a revision only if there
    /// were any.
    pub async fn prune(&self, change: &Change, keep_audit: u64) -> Result<u64> {
        let at = self.within(self.not_after_database(change.at)).await?;
        let change = Change { at, ..change.clone() };
        self.within(prune(self, keep_audit)).await?;
        self.within(super::servers::prune(self, at)).await?;
        self.within(super::forms::prune(self)).await?;
        self.within(super::events::prune(self, at)).await?;
        self.within(super::revocations::prune(self, &change)).await
    }

    /// Audits a change of something that is stored elsewhere.
    pub async fn note(&self, change: &Change, note: Note<'_>) -> Result<Commit> {
        self.within(async {
            let mut write = self.write(change, note.resource.to_owned()).await?;
            write.org = note.org.to_owned();
            write.commit(note.action, note.detail).await
        })
        .await
    }

    pub async fn audit(&self, query: &AuditQuery) -> Result<Vec<AuditRecord>> {
        self.within(async {
            let before = match query.before {
                Some(revision) => rows::signed(revision)?,
                None => i64::MAX,
            };
            let of_resources = resources(query.resources.len());
            let page = format!(
                "SELECT {COLUMNS} FROM audit WHERE revision < $1 AND ($2 = '' OR org = $2) \
                 AND ($4 = '' OR actor = $4 OR SUBSTR(actor, 1, LENGTH($4) + 1) = $4 || '@') \
                 AND ($5 = '' OR action = $5) AND at >= $6 AND at < $7{of_resources} \
                 ORDER BY revision DESC LIMIT $3"
            );
            let limit = i64::from(query.limit.clamp(1, MAX_PAGE));
            let page = sqlx::query(sqlx::AssertSqlSafe(page));
            let page = page.bind(before).bind(query.org.as_deref().unwrap_or("")).bind(limit);
            let page = page.bind(query.actor.as_deref().unwrap_or(""));
            let page = page.bind(query.action.as_deref().unwrap_or(""));
            let mut page = page.bind(query.from.unwrap_or(i64::MIN)).bind(query.to.unwrap_or(i64::MAX));
            for resource in query.resources {
                page = page.bind(format!("{resource}%"));
            }
            page.fetch_all(&self.pool).await?.iter().map(record).collect()
        })
        .await
    }

    /// Returns a change with what it removed and stored, if it kept that.
    pub async fn audited(&self, revision: u64) -> Result<Option<(AuditRecord, Option<ListChange>)>> {
        self.within(async {
            let Ok(revision) = rows::signed(revision) else { return Ok(None) };
            let one = format!("SELECT {COLUMNS}, undo FROM audit WHERE revision = $1");
            let row = sqlx::query(sqlx::AssertSqlSafe(one)).bind(revision).fetch_optional(&self.pool).await?;
            let Some(row) = row else { return Ok(None) };
            let undo: String = rows::get(&row, "undo")?;
            Ok(Some((record(&row)?, ListChange::read(&undo))))
        })
        .await
    }
}

/// Returns the condition for as many beginnings of resources' names, whose parameters are `$8` and following.
fn resources(count: usize) -> String {
    let each: Vec<String> = (0..count).map(|place| format!("resource LIKE ${}", place + 8)).collect();
    if each.is_empty() { String::new() } else { format!(" AND ({})", each.join(" OR ")) }
}

/// Removes what older changes of an org keep for their undo.
async fn forget_undo(store: &ControlStore, org: &str) -> Result<()> {
    let _turn = store.writers.turn(Rank::Other).await?;
    let forget = "UPDATE audit SET undo = '' WHERE org = $1 AND undo <> '' AND revision <= \
         (SELECT revision FROM audit WHERE org = $1 ORDER BY revision DESC LIMIT 1 OFFSET $2)";
    query!(forget, org, i64::try_from(UNDOABLE_PER_ORG).unwrap_or(i64::MAX)).execute(&store.pool).await?;
    Ok(())
}

/// Keeps about `keep` rows, the newest of each org; deletes rows of the orgs that have the most.
async fn prune(store: &ControlStore, keep: u64) -> Result<()> {
    let rows =
        sqlx::query("SELECT org, COUNT(*) AS rows FROM audit GROUP BY org").fetch_all(&store.pool).await?;
    let mut counts = Vec::with_capacity(rows.len());
    for row in &rows {
        counts.push((rows::get(row, "rows")?, rows::get::<String>(row, "org")?));
    }
    let share = share(counts.iter().map(|(count, _)| *count).collect(), keep);
    for (_, org) in counts.iter().filter(|(count, _)| *count > share) {
        let _turn = store.writers.turn(Rank::Other).await?;
        let surplus = "DELETE FROM audit WHERE org = $1 AND revision <= \
             (SELECT revision FROM audit WHERE org = $1 ORDER BY revision DESC LIMIT 1 OFFSET $2)";
        query!(surplus, org, rows::signed(share)?).execute(&store.pool).await?;
    }
    let many = u64::try_from(UNDOABLE_PER_ORG).unwrap_or(u64::MAX);
    for (_, org) in counts.iter().filter(|(count, _)| *count > many) {
        forget_undo(store, org).await?;
    }
    Ok(())
}

/// Returns the maximum that each org may keep so that all together keep at most `whole`; orgs with fewer keep all.
fn share(mut counts: Vec<u64>, whole: u64) -> u64 {
    counts.sort_unstable();
    let mut left = whole;
    for (place, count) in counts.iter().enumerate() {
        let others = u64::try_from(counts.len() - place).unwrap_or(u64::MAX);
        if *count > left / others {
            return left / others;
        }
        left -= count;
    }
    u64::MAX
}

fn record(row: &AnyRow) -> Result<AuditRecord> {
    record!(row, AuditRecord { revision, at, actor, action, resource, org, detail, undoable })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::ExposureRecord;

    #[test]
    fn a_share_is_what_the_largest_keep_once_the_small_ones_have_all_of_theirs() {
        assert_eq!(share(vec![1, 9, 3], 13), u64::MAX);
        assert_eq!(share(vec![1, 9, 3], 10), 6);
        assert_eq!(share(vec![9, 9, 1], 11), 5);
        assert_eq!(share(vec![5, 5, 5], 2), 0);
        assert_eq!(share(vec![], 2), u64::MAX);
    }

    #[tokio::test]
    async fn an_org_that_changes_all_the_time_pushes_out_its_own_audit_and_no_others() {
        let store = ControlStore::in_memory().await.unwrap();
        let change = Change::unconditional("test", 1);
        let orgs = ["", "other"].into_iter().chain(std::iter::repeat_n("noisy", 20));
        for org in orgs {
            let note = Note { action: "noted", resource: "r", org, detail: "" };
            store.note(&change, note).await.unwrap();
        }
        store.prune(&change, 7).await.unwrap();
        let query = AuditQuery { limit: 100, ..AuditQuery::default() };
        let kept = store.audit(&query).await.unwrap();
        let of =
            |org: &str| kept.iter().filter(|row| row.org == org).map(|row| row.revision).collect::<Vec<_>>();
        assert_eq!((of(""), of("other")), (vec![1], vec![2]));
        assert_eq!(of("noisy"), [22, 21, 20, 19, 18], "the newest of its own");
    }

    #[tokio::test]
    async fn only_the_newest_changes_of_an_org_keep_what_an_undo_needs() {
        let store = ControlStore::in_memory().await.unwrap();
        let change = Change::unconditional("test", 1);
        let put = async |org: &str, enabled| {
            let org = org.to_owned();
            let server = "demo".to_owned();
            let protocol = "mcp".to_owned();
            let record = ExposureRecord { org, server, protocol, enabled };
            store.put_exposure(&change, &record).await.unwrap()
        };
        put("other", true).await;
        for number in 0..=UNDOABLE_PER_ORG {
            put("noisy", number % 2 == 0).await;
        }
        let undoable = async |org: &str| {
            let query = AuditQuery { org: Some(org.to_owned()), limit: 1_000, ..AuditQuery::default() };
            let rows = store.audit(&query).await.unwrap();
            rows.iter().filter(|row| row.undoable).count()
        };
        store.prune(&change, 1_000_000).await.unwrap();
        assert_eq!((undoable("other").await, undoable("noisy").await), (1, UNDOABLE_PER_ORG));
        let oldest = store.audited(2).await.unwrap().unwrap();
        assert_eq!((oldest.0.undoable, oldest.1), (false, None));
    }
}
