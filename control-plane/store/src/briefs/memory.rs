//! Records of one process, for tests only.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{BriefList, BriefQuotas, BriefRecord, BriefRecords, Result};
use crate::records::CallId;

/// Records kept until the process ends.
#[derive(Default)]
pub struct MemoryBriefs {
    quotas: BriefQuotas,
    orgs: Mutex<HashMap<[u8; 16], Vec<Entry>>>,
}

/// A record with its list and the time at which it expires. The entries of an org are in the order in which they came.
struct Entry {
    list: [u8; 16],
    record: BriefRecord,
    until: Instant,
}

impl Entry {
    fn is_listed(&self, list: [u8; 16]) -> bool {
        self.list == list && !self.record.sealed.is_empty()
    }
}

impl MemoryBriefs {
    /// Creates a store with other quotas.
    pub fn with_quotas(quotas: BriefQuotas) -> MemoryBriefs {
        MemoryBriefs { quotas, orgs: Mutex::default() }
    }
}

#[async_trait]
impl BriefRecords for MemoryBriefs {
    async fn put(
        &self,
        list: BriefList,
        record: BriefRecord,
        keep: Duration,
        replaces: bool,
    ) -> Result<bool> {
        let now = Instant::now();
        let mut orgs = self.orgs.lock();
        let entries = orgs.entry(list.org).or_default();
        entries.retain(|entry| entry.until > now && !(replaces && entry.record.call == record.call));
        if entries.iter().any(|entry| entry.record.call == record.call) {
            return Ok(false);
        }
        entries.push(Entry { list: list.list, record, until: now + keep });
        let BriefQuotas { listed, of_org } = self.quotas;
        if entries.iter().filter(|entry| entry.is_listed(list.list)).count() > listed as usize {
            let ended = entries.iter().filter(|entry| entry.is_listed(list.list));
            let first = ended.map(|entry| (entry.record.ended_ms, entry.record.call)).min();
            entries.retain(|entry| Some((entry.record.ended_ms, entry.record.call)) != first);
        }
        let bytes = |entries: &[Entry]| entries.iter().map(|entry| entry.record.sealed.len()).sum::<usize>();
        while entries.len() > of_org.keys as usize || bytes(entries) > of_org.bytes as usize {
            entries.remove(0);
        }
        Ok(true)
    }

    async fn find(&self, org: [u8; 16], call: CallId) -> Result<Option<Bytes>> {
        let orgs = self.orgs.lock();
        let mut entries = orgs.get(&org).into_iter().flatten();
        let kept = entries.find(|entry| entry.record.call == call && entry.until > Instant::now());
        Ok(kept.map(|entry| entry.record.sealed.clone()))
    }

    async fn list(
        &self,
        list: BriefList,
        before: Option<(i64, CallId)>,
        limit: u32,
    ) -> Result<Vec<BriefRecord>> {
        let orgs = self.orgs.lock();
        let place = |record: &BriefRecord| (record.ended_ms, record.call);
        let mut records: Vec<BriefRecord> = orgs
            .get(&list.org)
            .into_iter()
            .flatten()
            .filter(|entry| entry.is_listed(list.list) && entry.until > Instant::now())
            .map(|entry| entry.record.clone())
            .filter(|record| before.is_none_or(|before| place(record) < before))
            .collect();
        records.sort_by_key(|record| Reverse(place(record)));
        records.truncate(limit as usize);
        Ok(records)
    }
}

#[cfg(test)]
mod tests {
    use super::super::suite;
    use super::*;

    #[tokio::test]
    async fn the_memory_backend_passes_the_suite() {
        suite::run(&MemoryBriefs::default()).await;
        suite::keeps_to_its_quotas(&MemoryBriefs::with_quotas(suite::SMALL)).await;
    }
}
