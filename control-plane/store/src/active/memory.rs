//! The active calls of one process.

use std::collections::HashMap;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;

use super::{ActiveCall, ActiveCalls, ActiveError, ActiveKey, CallId, Lease, Orphan, OwnerId, Saved};
use crate::clock::now_ms;

/// Most rows it keeps.
const MAX_ROWS: usize = 10_000;

/// Keeps rows until the process ends.
#[derive(Default)]
pub struct MemoryActive {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    /// With the end of each row's time in Unix milliseconds.
    rows: HashMap<CallId, (i64, ActiveCall)>,
    /// With the end of each lease in Unix milliseconds; those past it are forgotten.
    leases: HashMap<OwnerId, i64>,
}

impl Inner {
    fn is_orphan(&self, row: &ActiveCall, now: i64) -> bool {
        self.leases.get(&row.owner).is_none_or(|lease_ms| *lease_ms <= now)
    }
}

impl MemoryActive {
    fn change(&self, call: CallId, owner: OwnerId, change: impl FnOnce(&mut ActiveCall) -> Saved) -> Saved {
        match self.inner.lock().rows.get_mut(&call) {
            Some((_, row)) if row.owner == owner => change(row),
            _ => Saved::NotOwner,
        }
    }
}

#[async_trait]
impl ActiveCalls for MemoryActive {
    async fn put(&self, key: &ActiveKey, owner: OwnerId, record: Bytes) -> Result<Saved, ActiveError> {
        let mut inner = self.inner.lock();
        if let Some((_, row)) = inner.rows.get_mut(&key.call) {
            if row.owner != owner {
                return Ok(Saved::NotOwner);
            }
            row.record = record;
            return Ok(Saved::Stored);
        }
        if inner.rows.len() >= MAX_ROWS {
            let now = now_ms();
            inner.rows.retain(|_, (expires_ms, _)| *expires_ms > now);
        }
        if inner.rows.len() >= MAX_ROWS {
            return Err(ActiveError::Full);
        }
        let row = ActiveCall {
            org: key.org.clone(),
            plugin: key.plugin.clone(),
            owner,
            record,
            seq: 0,
            capsule: Bytes::new(),
            state: Bytes::new(),
        };
        inner.rows.insert(key.call, (key.expires_ms, row));
        Ok(Saved::Stored)
    }

    async fn save_capsule(
        &self,
        call: CallId,
        owner: OwnerId,
        (seq, capsule): (u64, Bytes),
        state: Bytes,
    ) -> Result<Saved, ActiveError> {
        Ok(self.change(call, owner, |row| {
            if seq <= row.seq {
                return Saved::Stale;
            }
            (row.seq, row.capsule, row.state) = (seq, capsule, state);
            Saved::Stored
        }))
    }

    async fn save_state(&self, call: CallId, owner: OwnerId, state: Bytes) -> Result<Saved, ActiveError> {
        Ok(self.change(call, owner, |row| {
            row.state = state;
            Saved::Stored
        }))
    }

    async fn find(&self, call: CallId) -> Result<Option<ActiveCall>, ActiveError> {
        Ok(self.inner.lock().rows.get(&call).map(|(_, row)| row.clone()))
    }

    async fn end(&self, call: CallId, owner: OwnerId) -> Result<(), ActiveError> {
        let mut inner = self.inner.lock();
        if inner.rows.get(&call).is_some_and(|(_, row)| row.owner == owner) {
            inner.rows.remove(&call);
        }
        Ok(())
    }

    async fn renew(&self, owner: OwnerId, lease: Duration) -> Result<Lease, ActiveError> {
        let now = now_ms();
        let mut inner = self.inner.lock();
        let until = now.saturating_add(i64::try_from(lease.as_millis()).unwrap_or(i64::MAX));
        let before = inner.leases.insert(owner, until);
        Ok(if before.is_some_and(|lease_ms| lease_ms <= now) { Lease::Lapsed } else { Lease::Held })
    }

    async fn retire(&self, owner: OwnerId) -> Result<(), ActiveError> {
        self.inner.lock().leases.remove(&owner);
        Ok(())
    }

    async fn orphans(&self, limit: u32) -> Result<Vec<Orphan>, ActiveError> {
        let now = now_ms();
        let inner = self.inner.lock();
        let left =
            inner.rows.iter().filter(|(_, (expires_ms, row))| *expires_ms > now && inner.is_orphan(row, now));
        let orphans = left.map(|(call, (_, row))| Orphan { call: *call, owner: row.owner });
        Ok(orphans.take(usize::try_from(limit).unwrap_or(usize::MAX)).collect())
    }

    async fn take(&self, orphan: &Orphan, owner: OwnerId) -> Result<bool, ActiveError> {
        let now = now_ms();
        let mut inner = self.inner.lock();
        let takes = match inner.rows.get(&orphan.call) {
            Some((_, row)) => row.owner == orphan.owner && inner.is_orphan(row, now),
            None => false,
        };
        if takes && let Some((_, row)) = inner.rows.get_mut(&orphan.call) {
            row.owner = owner;
        }
        Ok(takes)
    }
}

#[cfg(test)]
mod tests {
    use super::super::suite;
    use super::*;

    #[tokio::test]
    async fn the_memory_backend_passes_the_suite() {
        suite::run(&MemoryActive::default()).await;
    }

    #[tokio::test]
    async fn the_memory_backend_is_bounded_and_makes_room_by_time() {
        let active = MemoryActive::default();
        let key = |n: usize, expires_ms: i64| ActiveKey {
            call: (n as u128).to_be_bytes(),
            org: String::new(),
            plugin: String::new(),
            expires_ms,
        };
        let owner = OwnerId([1; 16]);
        for n in 0..MAX_ROWS {
            let expires_ms = if n == 0 { 0 } else { i64::MAX };
            active.put(&key(n, expires_ms), owner, Bytes::new()).await.unwrap();
        }
        active.put(&key(MAX_ROWS, i64::MAX), owner, Bytes::new()).await.unwrap();
        assert!(active.find(key(0, 0).call).await.unwrap().is_none());
        let refused = active.put(&key(MAX_ROWS + 1, i64::MAX), owner, Bytes::new()).await;
        assert!(matches!(refused, Err(ActiveError::Full)));
    }
}
