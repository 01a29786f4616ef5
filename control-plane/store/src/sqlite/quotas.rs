//! Deletion of records of ended calls beyond the quotas of a user or an org.
//!
//! Keeps true: one task of a process deletes, and no call waits for it; calls that end within a tenth of a second share a
//! deletion, because at its quota an org would need one for each.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sqlx::SqlitePool;
use tokio::sync::Notify;
use tokio_util::task::TaskTracker;

use super::SWEEP_ROWS;
use crate::calls::QuotaHolder;
use crate::columns::Columns;
use crate::records::{CallQuotas, Principal, RecordKey};

/// Time for which ends of calls are gathered before a deletion.
const GATHER: Duration = Duration::from_millis(100);

/// The deletions of one file.
pub(super) struct ExcessDeletion {
    read: SqlitePool,
    write: SqlitePool,
    quotas: CallQuotas,
    due: Arc<DueHolders>,
    tasks: TaskTracker,
}

/// Holders that may be beyond their quotas.
#[derive(Default)]
struct DueHolders {
    /// `None` while no task deletes.
    holders: Mutex<Option<HolderTable>>,
    /// Notified to delete at once.
    hurry: Notify,
}

#[derive(Default)]
struct HolderTable {
    users: HashMap<Principal, QuotaHolder>,
    orgs: HashMap<String, QuotaHolder>,
}

impl ExcessDeletion {
    pub(super) fn new(read: &SqlitePool, write: &SqlitePool, quotas: CallQuotas) -> ExcessDeletion {
        let due = Arc::default();
        let tasks = TaskTracker::new();
        ExcessDeletion { read: read.clone(), write: write.clone(), quotas, due, tasks }
    }

    /// Deletes soon what user and org of a record have beyond their quotas.
    pub(super) fn request(&self, key: &RecordKey) {
        if self.due.add(key, self.quotas) {
            self.tasks.spawn(delete_due(self.read.clone(), self.write.clone(), self.due.clone()));
        }
    }

    /// Waits until all that was requested is deleted.
    pub(super) async fn done(&self) {
        self.due.hurry.notify_one();
        self.tasks.close();
        self.tasks.wait().await;
        self.tasks.reopen();
    }
}

impl DueHolders {
    /// Adds the holders of a record; returns whether no task deletes yet.
    fn add(&self, key: &RecordKey, quotas: CallQuotas) -> bool {
        let mut holders = self.holders.lock();
        let is_first = holders.is_none();
        let HolderTable { users, orgs } = holders.get_or_insert_default();
        if !users.contains_key(&key.user) || !orgs.contains_key(&key.org) {
            let [user, org] = QuotaHolder::of(key, quotas);
            users.insert(key.user, user);
            orgs.insert(key.org.clone(), org);
        }
        is_first
    }

    fn take(&self) -> Vec<QuotaHolder> {
        let taken = self.holders.lock().as_mut().map(std::mem::take).unwrap_or_default();
        taken.users.into_values().chain(taken.orgs.into_values()).collect()
    }

    /// Ends the task if nothing was added since; returns whether it ends.
    fn stop(&self) -> bool {
        let mut holders = self.holders.lock();
        let is_idle = holders.as_ref().is_none_or(|table| table.users.is_empty());
        if is_idle {
            *holders = None;
        }
        is_idle
    }
}

async fn delete_due(read: SqlitePool, write: SqlitePool, due: Arc<DueHolders>) {
    loop {
        // An error means that the time is over.
        let _ = tokio::time::timeout(GATHER, due.hurry.notified()).await;
        for holder in due.take() {
            if let Err(error) = delete_excess(&read, &write, &holder).await {
                // The next call that ends tries again.
                tracing::debug!(%error, "records of ended calls beyond their quota could not be deleted yet");
            }
        }
        if due.stop() {
            return;
        }
    }
}

async fn delete_excess(read: &SqlitePool, write: &SqlitePool, holder: &QuotaHolder) -> sqlx::Result<()> {
    while holder.excess().sqlite().fetch_one(read).await?.flag("is_over")? {
        if holder.deletion(SWEEP_ROWS).sqlite().execute(write).await?.rows_affected() == 0 {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::suite;

    #[test]
    fn calls_that_end_together_share_a_deletion() {
        let due = DueHolders::default();
        let add = || due.add(&suite::key(1), CallQuotas::default());
        assert!(add() && !add(), "one task deletes");
        assert_eq!(due.take().len(), 2, "a user and an org");
        assert!(!add() && !due.stop(), "the task goes on with what came since");
        assert_eq!(due.take().len(), 2);
        assert!(due.stop() && add(), "the next end needs a task again");
    }
}
