//! Events of a topic that became revocations, and messages of it that did not.
//!
//! Keeps true: an event is recorded in the transaction of its revocation, so that none is lost and none counts twice.

use sqlx::any::AnyRow;

use super::write::{Rank, Write};
use super::{ControlStore, check_bound, rows};
use crate::control::{KEEP_PARKED, MAX_PARKED, MAX_REVOCATION_EVENTS, ParkedEvent, Result, RevocationEvent};

const COUNT: &str = "SELECT COUNT(*) FROM revocation_events WHERE id <> $1";
const SELECT_PARKED: &str = "SELECT id, parked_at, fault, payload FROM parked_events \
     WHERE $1 = '' OR id = $1 ORDER BY parked_at DESC, id DESC LIMIT $2";
/// Deletes all but the newest.
const DELETE_SURPLUS: &str = "DELETE FROM parked_events WHERE id IN \
     (SELECT id FROM parked_events ORDER BY parked_at DESC, id DESC LIMIT $2 OFFSET $1)";

impl ControlStore {
    /// Whether an event became a revocation.
    pub async fn has_revocation_event(&self, id: &str) -> Result<bool> {
        self.within(async {
            let found = query!("SELECT id FROM revocation_events WHERE id = $1", id);
            Ok(found.fetch_optional(&self.revoking).await?.is_some())
        })
        .await
    }

    /// Parks a message, unless it is parked already. Returns the number of older ones that were deleted for it.
    pub async fn park_event(&self, parked: &ParkedEvent) -> Result<u64> {
        self.within(async {
            let _turn = self.writers.turn(Rank::Other).await?;
            let insert = "INSERT INTO parked_events (id, parked_at, fault, payload) VALUES ($1, $2, $3, $4) \
                 ON CONFLICT (id) DO NOTHING";
            let ParkedEvent { id, parked_at, fault, payload } = parked;
            query!(insert, id, rows::signed(*parked_at)?, fault, payload).execute(&self.pool).await?;
            let bound = i64::try_from(MAX_PARKED).unwrap_or(i64::MAX);
            let surplus = query!(DELETE_SURPLUS, bound, i64::MAX).execute(&self.pool).await?;
            Ok(surplus.rows_affected())
        })
        .await
    }

    /// Returns at most `limit` parked messages, newest first.
    pub async fn parked_events(&self, limit: u32) -> Result<Vec<ParkedEvent>> {
        self.within(parked(self, "", limit)).await
    }

    pub async fn parked_event(&self, id: &str) -> Result<Option<ParkedEvent>> {
        self.within(async { Ok(parked(self, id, 1).await?.pop()) }).await
    }

    /// Deletes a parked message; `false` if there is none.
    pub async fn delete_parked_event(&self, id: &str) -> Result<bool> {
        self.within(async {
            let _turn = self.writers.turn(Rank::Other).await?;
            let delete = query!("DELETE FROM parked_events WHERE id = $1", id);
            Ok(delete.execute(&self.pool).await?.rows_affected() > 0)
        })
        .await
    }
}

async fn parked(store: &ControlStore, id: &str, limit: u32) -> Result<Vec<ParkedEvent>> {
    let page = query!(SELECT_PARKED, id, i64::from(limit));
    page.fetch_all(&store.pool).await?.iter().map(record).collect()
}

/// Records an event; `false` if it was recorded before.
pub(super) async fn take(write: &mut Write<'_>, event: &RevocationEvent) -> Result<bool> {
    check_bound(&mut write.tx, (COUNT, &event.id), "events of revocations", MAX_REVOCATION_EVENTS).await?;
    let insert = "INSERT INTO revocation_events (id, until_at) VALUES ($1, $2) ON CONFLICT (id) DO NOTHING";
    let insert = query!(insert, &event.id, rows::signed(event.until)?);
    Ok(insert.execute(&mut *write.tx).await?.rows_affected() > 0)
}

/// Deletes what is too old.
pub(super) async fn prune(store: &ControlStore, now: u64) -> Result<()> {
    let _turn = store.writers.turn(Rank::Other).await?;
    let events = query!("DELETE FROM revocation_events WHERE until_at <= $1", rows::signed(now)?);
    events.execute(&store.pool).await?;
    let parked_until = rows::signed(now.saturating_sub(KEEP_PARKED))?;
    query!("DELETE FROM parked_events WHERE parked_at <= $1", parked_until).execute(&store.pool).await?;
    Ok(())
}

fn record(row: &AnyRow) -> Result<ParkedEvent> {
    record! { row, ParkedEvent { id, parked_at, fault, payload } }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::Change;

    #[tokio::test]
    async fn parked_messages_are_deleted_after_their_time() {
        let store = ControlStore::in_memory().await.unwrap();
        let parked =
            ParkedEvent { id: "t:0:1".into(), parked_at: 7, fault: String::new(), payload: String::new() };
        store.park_event(&parked).await.unwrap();
        for (at, left) in [(KEEP_PARKED + 6, 1), (KEEP_PARKED + 7, 0)] {
            store.prune(&Change::unconditional("retention", at), 1_000).await.unwrap();
            assert_eq!(store.parked_events(9).await.unwrap().len(), left, "{at}");
        }
    }
}
