//! Events of a topic that became revocations, and messages of it that did not.
//!
//! Keeps true: an event is recorded in the transaction of its revocation, so that none is lost and none counts twice.

use std::sync::atomic::Ordering;

use sqlx::Row;
use sqlx::any::AnyRow;

use super::write::{Rank, Write};
use super::{ControlStore, rows};
use crate::control::{
    KEEP_PARKED, MAX_PARKED, MAX_REVOCATION_EVENTS, ParkedEvent, Result, RevocationEvent, StoreError,
};

/// Number of events that a process records between two counts of all events, which read every entry of an index. Several
/// processes may exceed [`MAX_REVOCATION_EVENTS`] by this number each.
const COUNT_EVERY: usize = 1_000;
const COUNT: &str = "SELECT COUNT(*) FROM revocation_events";
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
pub(super) async fn take(
    store: &ControlStore,
    write: &mut Write<'_>,
    event: &RevocationEvent,
) -> Result<bool> {
    let insert = "INSERT INTO revocation_events (id, until_at) VALUES ($1, $2) ON CONFLICT (id) DO NOTHING";
    let insert = query!(insert, &event.id, rows::signed(event.until)?);
    if insert.execute(&mut *write.tx).await?.rows_affected() == 0 {
        return Ok(false);
    }
    let one_less = |room: usize| room.checked_sub(1);
    if store.event_room.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok() {
        return Ok(true);
    }
    // With this one; a refusal rolls it back.
    let counted: i64 = sqlx::query(COUNT).fetch_one(&mut *write.tx).await?.try_get(0)?;
    let counted = usize::try_from(counted).unwrap_or(usize::MAX);
    let Some(room) = MAX_REVOCATION_EVENTS.checked_sub(counted) else {
        return Err(StoreError::Full { what: "events of revocations", bound: MAX_REVOCATION_EVENTS });
    };
    store.event_room.store(room.min(COUNT_EVERY), Ordering::Relaxed);
    Ok(true)
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
    use crate::control::{Change, RevocationRecord};

    /// Records an event that revokes a user with a revocation of this id; returns whether it was new.
    async fn add(store: &ControlStore, event: &str, id: &str) -> Result<bool> {
        let new = RevocationRecord {
            id: id.into(),
            kind: "user".into(),
            org: "acme".into(),
            target: id.into(),
            issuer: String::new(),
            reason: String::new(),
            created_at: 1,
            until: 9_000,
            by_platform: false,
        };
        let event = RevocationEvent { id: event.into(), until: 9_000 };
        let added = store.add_revocation_of(&Change::unconditional("kafka", 1), &new, Some(&event)).await?;
        Ok(added.changed)
    }

    /// Invariant I-4.
    #[tokio::test]
    async fn events_are_bounded_and_seldom_counted() {
        let store = ControlStore::in_memory().await.unwrap();
        assert!(add(&store, "first", "r-1").await.unwrap());
        assert_eq!(store.event_room.load(Ordering::Relaxed), COUNT_EVERY);
        assert!(!add(&store, "first", "r-2").await.unwrap(), "a repetition needs no room");
        assert!(add(&store, "second", "r-3").await.unwrap());
        assert_eq!(store.event_room.load(Ordering::Relaxed), COUNT_EVERY - 1);
        // All but one of the places are taken by another process.
        let fill = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < $1) \
             INSERT INTO revocation_events (id, until_at) SELECT 'other-' || i, 5000 FROM n";
        let others = i64::try_from(MAX_REVOCATION_EVENTS - 3).unwrap();
        query!(fill, others).execute(&store.pool).await.unwrap();
        store.event_room.store(0, Ordering::Relaxed);
        assert!(add(&store, "last", "r-4").await.unwrap());
        let refused = add(&store, "more", "r-5").await;
        assert!(matches!(refused, Err(StoreError::Full { bound: MAX_REVOCATION_EVENTS, .. })), "{refused:?}");
        assert!(!store.has_revocation_event("more").await.unwrap());
        assert!(!add(&store, "last", "r-6").await.unwrap(), "a repetition is not refused");
        store.prune(&Change::unconditional("retention", 5_000), u64::MAX).await.unwrap();
        assert!(add(&store, "more", "r-5").await.unwrap());
    }

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
