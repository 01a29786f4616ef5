//! A store of records that fails where a test wants it to; all else reaches the real one.

use std::time::Duration;

use asp_store::records::{
    CallId, CallRecord, CallRecords, End, Lease, Listing, Orphan, OwnerId, RecordError, RecordKey, Save,
    Stand, State,
};
use async_trait::async_trait;
use bytes::Bytes;

/// Modification of a store by a test.
#[async_trait]
pub(crate) trait Faults: Send + Sync {
    fn store(&self) -> &dyn CallRecords;

    async fn put(
        &self,
        key: &RecordKey,
        owner: OwnerId,
        state: State,
        record: Bytes,
    ) -> Result<Save, RecordError> {
        self.store().put(key, owner, state, record).await
    }

    /// Asked before a lease is renewed.
    fn renews(&self) -> Result<(), RecordError> {
        Ok(())
    }

    /// Asked before the memory of a call is stored.
    fn saves_memory(&self) -> Result<(), RecordError> {
        Ok(())
    }

    /// Asked before a record is looked for, or where its call stands.
    fn finds(&self) -> Result<(), RecordError> {
        Ok(())
    }

    /// Told before a record is read, `whole` or only where its call stands.
    fn reads(&self, _whole: bool) {}

    /// Returns the record to report for one that was found.
    fn found(&self, record: CallRecord) -> CallRecord {
        record
    }

    /// Awaited after records were listed.
    async fn has_listed(&self) {}

    async fn take(&self, orphan: &Orphan, owner: OwnerId) -> Result<bool, RecordError> {
        self.store().take(orphan, owner).await
    }

    /// Asked before a record is told that its call has ended.
    async fn learns_ends(&self) -> Result<(), RecordError> {
        Ok(())
    }
}

pub(crate) struct FaultyRecords<F>(pub(crate) F);

#[async_trait]
impl<F: Faults> CallRecords for FaultyRecords<F> {
    async fn put(
        &self,
        key: &RecordKey,
        owner: OwnerId,
        state: State,
        record: Bytes,
    ) -> Result<Save, RecordError> {
        self.0.put(key, owner, state, record).await
    }

    async fn save_capsule(
        &self,
        call: CallId,
        owner: OwnerId,
        capsule: (u64, Bytes),
        memory: Bytes,
    ) -> Result<Save, RecordError> {
        self.0.store().save_capsule(call, owner, capsule, memory).await
    }

    async fn save_memory(&self, call: CallId, owner: OwnerId, memory: Bytes) -> Result<Save, RecordError> {
        self.0.saves_memory()?;
        self.0.store().save_memory(call, owner, memory).await
    }

    async fn find(&self, call: CallId) -> Result<Option<CallRecord>, RecordError> {
        self.0.finds()?;
        self.0.reads(true);
        Ok(self.0.store().find(call).await?.map(|record| self.0.found(record)))
    }

    async fn stand(&self, call: CallId) -> Result<Option<Stand>, RecordError> {
        self.0.finds()?;
        self.0.reads(false);
        Ok(self.0.store().find(call).await?.map(|record| self.0.found(record).stand()))
    }

    async fn list(&self, listing: &Listing<'_>) -> Result<Vec<(CallId, CallRecord)>, RecordError> {
        let listed = self.0.store().list(listing).await;
        self.0.has_listed().await;
        listed
    }

    async fn finish(&self, key: &RecordKey, owner: OwnerId, end: End) -> Result<Save, RecordError> {
        self.0.learns_ends().await?;
        self.0.store().finish(key, owner, end).await
    }

    async fn drop_record(&self, call: CallId, created_ms: i64, owner: OwnerId) -> Result<bool, RecordError> {
        self.0.learns_ends().await?;
        self.0.store().drop_record(call, created_ms, owner).await
    }

    async fn renew(&self, owner: OwnerId, lease: Duration) -> Result<Lease, RecordError> {
        self.0.renews()?;
        self.0.store().renew(owner, lease).await
    }

    async fn is_alone(&self, owner: OwnerId) -> Result<bool, RecordError> {
        self.0.store().is_alone(owner).await
    }

    async fn continued(&self, calls: &[CallId]) -> Result<Vec<CallId>, RecordError> {
        self.0.store().continued(calls).await
    }

    async fn retire(&self, owner: OwnerId) -> Result<(), RecordError> {
        self.0.store().retire(owner).await
    }

    async fn orphans(&self, limit: u32) -> Result<Vec<Orphan>, RecordError> {
        self.0.store().orphans(limit).await
    }

    async fn take(&self, orphan: &Orphan, owner: OwnerId) -> Result<bool, RecordError> {
        self.0.take(orphan, owner).await
    }

    async fn give_up(&self, orphan: &Orphan, owner: OwnerId, keep: Duration) -> Result<bool, RecordError> {
        self.0.store().give_up(orphan, owner, keep).await
    }
}
