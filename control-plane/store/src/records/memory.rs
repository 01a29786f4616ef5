//! Records of calls of one process, for tests only.

use std::collections::HashMap;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;

use super::{
    ALONE_AFTER, BELIEVED, CallId, CallQuota, CallQuotas, CallRecord, CallRecords, End, Lease, Listing,
    MAX_KEEP, NO_ROOM, NOBODY, Orphan, OwnerId, RecordError, RecordKey, Result, STEADY, Save, Stand, State,
};
use crate::clock::{milliseconds, now_ms};

/// Maximum number of records.
const MAX_RECORDS: usize = 10_000;

/// Records kept until the process ends.
#[derive(Default)]
pub struct MemoryRecords {
    bounds: CallQuotas,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    records: HashMap<CallId, CallRecord>,
    leases: HashMap<OwnerId, HeldLease>,
}

/// Lease of one owner, in Unix milliseconds.
#[derive(Clone, Copy)]
struct HeldLease {
    until: i64,
    /// Start of its uninterrupted validity.
    since: i64,
}

impl Inner {
    fn is_orphan(&self, record: &CallRecord, now: i64) -> bool {
        record.resumes && self.has_no_lease(record, now)
    }

    fn has_no_lease(&self, record: &CallRecord, now: i64) -> bool {
        let lease = |owner| self.leases.get(&owner);
        record.owner.is_some_and(|owner| lease(owner).is_none_or(|lease| lease.until <= now))
    }

    /// Returns the record of an orphan, if `owner` may take it over.
    fn takes(&mut self, orphan: &Orphan, owner: OwnerId, now: i64) -> Option<&mut CallRecord> {
        let record = self.records.get(&orphan.call)?;
        let is_orphan = record.owner == Some(orphan.owner) && self.is_orphan(record, now);
        if !is_orphan || !self.may_take(orphan.owner, owner, now) {
            return None;
        }
        self.records.get_mut(&orphan.call)
    }

    /// Whether `owner` may take over calls of `former`.
    fn may_take(&self, former: OwnerId, owner: OwnerId, now: i64) -> bool {
        let steady = |lease: &HeldLease| lease.until > now && lease.since <= now - milliseconds(STEADY);
        !self.leases.contains_key(&former) || self.leases.get(&owner).is_none_or(steady)
    }

    /// Returns the record with its current status.
    fn told(&self, record: &CallRecord, now: i64) -> CallRecord {
        let is_left = self.has_no_lease(record, now.saturating_sub(milliseconds(BELIEVED)));
        let is_retired = record.owner.is_some_and(|owner| !self.leases.contains_key(&owner));
        CallRecord { is_left, is_retired, ..record.clone() }
    }

    /// Deletes an expired record of another owner that no live gateway runs.
    fn forget_past(&mut self, call: CallId, owner: OwnerId) {
        let now = now_ms();
        let is_past = |record: &CallRecord| {
            record.owner != Some(owner)
                && record.expires_ms <= now
                && (record.owner.is_none() || self.has_no_lease(record, now))
        };
        if self.records.get(&call).is_some_and(is_past) {
            self.records.remove(&call);
        }
    }

    /// Whether another record fits, after deleting expired records and, if needed, the first that ended.
    fn has_room(&mut self) -> bool {
        if self.records.len() >= MAX_RECORDS {
            let now = now_ms();
            self.records.retain(|_, record| record.expires_ms > now);
        }
        if self.records.len() >= MAX_RECORDS {
            let ended = self.records.iter().filter(|(_, record)| record.owner.is_none());
            let first = ended.min_by_key(|(id, record)| (record.updated_ms, **id)).map(|(id, _)| *id);
            if let Some(first) = first {
                self.records.remove(&first);
            }
        }
        self.records.len() < MAX_RECORDS
    }

    /// Deletes the ended calls selected by `theirs` that exceed the quota.
    fn make_room(&mut self, share: CallQuota, theirs: impl Fn(&CallRecord) -> bool) {
        let mut theirs: Vec<(i64, CallId, usize)> = self
            .records
            .iter()
            .filter(|(_, record)| record.owner.is_none() && theirs(record))
            .map(|(id, record)| (record.updated_ms, *id, record.record.len() + record.outcome.len()))
            .collect();
        theirs.sort_unstable_by(|one, other| other.cmp(one));
        let mut total = 0_u64;
        for (place, (_, id, bytes)) in (1_u64..).zip(theirs) {
            total = total.saturating_add(u64::try_from(bytes).unwrap_or(u64::MAX));
            if place > u64::from(share.records) || total > u64::from(share.bytes) {
                self.records.remove(&id);
            }
        }
    }
}

impl MemoryRecords {
    /// Creates a store with other quotas.
    pub fn bounded(bounds: CallQuotas) -> MemoryRecords {
        MemoryRecords { bounds, inner: Mutex::default() }
    }

    fn change(&self, call: CallId, owner: OwnerId, change: impl FnOnce(&mut CallRecord) -> Save) -> Save {
        match self.inner.lock().records.get_mut(&call) {
            Some(record) if record.owner == Some(owner) => change(record),
            _ => Save::NotOwner,
        }
    }
}

/// Returns the record of a running call.
fn running(key: &RecordKey, owner: OwnerId, state: State, record: Bytes) -> CallRecord {
    CallRecord {
        org: key.org.clone(),
        principal: key.principal,
        user: key.user,
        server: key.server.clone(),
        plugin: key.plugin.clone(),
        context: key.context.clone(),
        state,
        created_ms: key.created_ms,
        updated_ms: now_ms(),
        expires_ms: key.expires_ms,
        owner: Some(owner),
        is_left: false,
        is_retired: false,
        resumes: key.resumes,
        takeovers: 0,
        record,
        seq: 0,
        capsule: Bytes::new(),
        memory: Bytes::new(),
        outcome: Bytes::new(),
    }
}

#[async_trait]
impl CallRecords for MemoryRecords {
    async fn put(&self, key: &RecordKey, owner: OwnerId, state: State, record: Bytes) -> Result<Save> {
        let mut inner = self.inner.lock();
        inner.forget_past(key.call, owner);
        if let Some(known) = inner.records.get_mut(&key.call) {
            if known.owner != Some(owner) {
                return Ok(Save::NotOwner);
            }
            if key.resumes || !known.resumes {
                known.record = record;
            }
            known.resumes |= key.resumes;
            known.created_ms = key.created_ms;
            known.state = state;
            known.updated_ms = now_ms();
            known.expires_ms = known.expires_ms.max(key.expires_ms);
            return Ok(Save::Stored);
        }
        if !inner.has_room() {
            return Err(RecordError::Full);
        }
        inner.records.insert(key.call, running(key, owner, state, record));
        Ok(Save::Stored)
    }

    async fn save_capsule(
        &self,
        call: CallId,
        owner: OwnerId,
        (seq, capsule): (u64, Bytes),
        memory: Bytes,
    ) -> Result<Save> {
        Ok(self.change(call, owner, |record| {
            if seq <= record.seq {
                return Save::Stale;
            }
            record.seq = seq;
            record.capsule = capsule;
            record.memory = memory;
            Save::Stored
        }))
    }

    async fn save_memory(&self, call: CallId, owner: OwnerId, memory: Bytes) -> Result<Save> {
        Ok(self.change(call, owner, |record| {
            record.memory = memory;
            Save::Stored
        }))
    }

    async fn find(&self, call: CallId) -> Result<Option<CallRecord>> {
        let inner = self.inner.lock();
        Ok(inner.records.get(&call).map(|record| inner.told(record, now_ms())))
    }

    async fn stand(&self, call: CallId) -> Result<Option<Stand>> {
        // Cloning large fields only copies references.
        Ok(self.find(call).await?.map(|record| record.stand()))
    }

    async fn list(&self, listing: &Listing<'_>) -> Result<Vec<(CallId, CallRecord)>> {
        let now = now_ms();
        let inner = self.inner.lock();
        let asked = |(id, record): &(&CallId, &CallRecord)| {
            record.principal == listing.principal
                && record.server == listing.server
                && record.expires_ms > now
                && listing.before.is_none_or(|before| (record.time(listing.order), **id) < before)
        };
        let mut found: Vec<(&CallId, &CallRecord)> = inner.records.iter().filter(asked).collect();
        found.sort_unstable_by_key(|(id, record)| std::cmp::Reverse((record.time(listing.order), **id)));
        found.truncate(usize::try_from(listing.limit).unwrap_or(usize::MAX));
        let listed = |(id, record): (&CallId, &CallRecord)| {
            let [capsule, memory, outcome] = [const { Bytes::new() }; 3];
            (*id, CallRecord { capsule, memory, outcome, ..inner.told(record, now) })
        };
        Ok(found.into_iter().map(listed).collect())
    }

    async fn finish(&self, key: &RecordKey, owner: OwnerId, end: End) -> Result<Save> {
        let mut inner = self.inner.lock();
        inner.forget_past(key.call, owner);
        let known = inner.records.get(&key.call);
        let takeovers = known.map_or(0, |record| record.takeovers);
        if known.is_some_and(|record| record.owner != Some(owner)) {
            return Ok(Save::NotOwner);
        }
        if known.is_none() && !inner.has_room() {
            return Err(RecordError::Full);
        }
        let now = now_ms();
        let expires_ms = now.saturating_add(milliseconds(end.keep.min(MAX_KEEP)));
        let key = RecordKey { expires_ms, resumes: false, ..key.clone() };
        let told = running(&key, owner, end.state, end.record);
        let ended = CallRecord { owner: None, updated_ms: now, takeovers, outcome: end.outcome, ..told };
        inner.records.insert(key.call, ended);
        inner.make_room(self.bounds.of_user, |record| record.user == key.user);
        inner.make_room(self.bounds.of_org, |record| record.org == key.org);
        Ok(Save::Stored)
    }

    async fn drop_record(&self, call: CallId, created_ms: i64, owner: OwnerId) -> Result<bool> {
        let mut inner = self.inner.lock();
        let is_it = |record: &CallRecord| record.owner == Some(owner) && record.created_ms == created_ms;
        let is_owners = inner.records.get(&call).is_some_and(is_it);
        if is_owners {
            inner.records.remove(&call);
        }
        Ok(is_owners)
    }

    async fn renew(&self, owner: OwnerId, lease: Duration) -> Result<Lease> {
        let now = now_ms();
        let mut inner = self.inner.lock();
        let before = inner.leases.get(&owner).copied();
        let held = before.filter(|lease| lease.until > now);
        let until = now.saturating_add(milliseconds(lease));
        inner.leases.insert(owner, HeldLease { until, since: held.map_or(now, |lease| lease.since) });
        Ok(if before.is_some() && held.is_none() { Lease::Lapsed } else { Lease::Held })
    }

    async fn is_alone(&self, owner: OwnerId) -> Result<bool> {
        let latest = now_ms().saturating_sub(milliseconds(ALONE_AFTER));
        let inner = self.inner.lock();
        let mut others = inner.leases.iter().filter(|(other, _)| **other != owner && **other != NO_ROOM);
        Ok(!others.any(|(_, lease)| lease.until > latest))
    }

    async fn retire(&self, owner: OwnerId) -> Result<()> {
        self.inner.lock().leases.remove(&owner);
        Ok(())
    }

    async fn continued(&self, calls: &[CallId]) -> Result<Vec<CallId>> {
        let now = now_ms();
        let inner = self.inner.lock();
        let runs = |owner: OwnerId| inner.leases.get(&owner).is_some_and(|lease| lease.until > now);
        let is_continued = |record: &CallRecord| {
            record.owner.is_some_and(|owner| (record.resumes && record.expires_ms > now) || runs(owner))
        };
        let continued = calls.iter().filter(|call| inner.records.get(*call).is_some_and(is_continued));
        Ok(continued.copied().collect())
    }

    async fn orphans(&self, limit: u32) -> Result<Vec<Orphan>> {
        let now = now_ms();
        let inner = self.inner.lock();
        let left = inner
            .records
            .iter()
            .filter(|(_, record)| record.expires_ms > now && inner.is_orphan(record, now));
        let orphans =
            left.filter_map(|(call, record)| record.owner.map(|owner| Orphan { call: *call, owner }));
        Ok(orphans.take(usize::try_from(limit).unwrap_or(usize::MAX)).collect())
    }

    async fn take(&self, orphan: &Orphan, owner: OwnerId) -> Result<bool> {
        let mut inner = self.inner.lock();
        let Some(record) = inner.takes(orphan, owner, now_ms()) else { return Ok(false) };
        record.owner = Some(owner);
        record.takeovers += 1;
        Ok(true)
    }

    async fn give_up(&self, orphan: &Orphan, owner: OwnerId, keep: Duration) -> Result<bool> {
        let now = now_ms();
        let mut inner = self.inner.lock();
        if inner.leases.get(&NO_ROOM).is_some_and(|lease| lease.until > now) {
            return Ok(false);
        }
        let Some(record) = inner.takes(orphan, owner, now) else { return Ok(false) };
        (record.owner, record.resumes, record.state, record.updated_ms) =
            (Some(NOBODY), false, State::Failed, now);
        record.expires_ms = record.expires_ms.max(now.saturating_add(milliseconds(keep.min(MAX_KEEP))));
        (record.capsule, record.memory) = (Bytes::new(), Bytes::new());
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::super::suite;
    use super::*;

    #[tokio::test]
    async fn the_memory_backend_passes_the_suite() {
        suite::run(&MemoryRecords::default()).await;
        suite::keeps_to_its_bounds(&MemoryRecords::bounded(suite::SMALL)).await;
        suite::an_owner_is_alone_until_another_one_has_a_lease(&MemoryRecords::default()).await;
    }

    #[tokio::test]
    async fn the_memory_backend_is_bounded_and_makes_room_by_time() {
        let records = MemoryRecords::default();
        let key = |n: usize, expires_ms: i64| RecordKey {
            call: (n as u128).to_be_bytes(),
            expires_ms,
            ..suite::key(1)
        };
        let owner = OwnerId([1; 16]);
        let put =
            async |n, expires_ms| records.put(&key(n, expires_ms), owner, State::Working, Bytes::new()).await;
        for n in 0..MAX_RECORDS {
            put(n, if n == 0 { 0 } else { i64::MAX }).await.unwrap();
        }
        put(MAX_RECORDS, i64::MAX).await.unwrap();
        assert!(records.find(key(0, 0).call).await.unwrap().is_none());
        assert!(matches!(put(MAX_RECORDS + 1, i64::MAX).await, Err(RecordError::Full)));
        let end = End {
            state: State::Completed,
            record: Bytes::new(),
            outcome: Bytes::new(),
            keep: Duration::from_secs(60),
        };
        records.finish(&key(1, i64::MAX), owner, end).await.unwrap();
        put(MAX_RECORDS + 1, i64::MAX).await.unwrap();
        let first = records.find(key(1, 0).call).await.unwrap();
        assert!(first.is_none(), "what has ended makes room for what runs");
    }
}
