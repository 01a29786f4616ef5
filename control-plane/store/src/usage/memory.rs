//! Usage of one process, for tests only.

use std::collections::BTreeMap;

use async_trait::async_trait;
use parking_lot::Mutex;

use super::{
    DAY_MS, KEEP_DAYS, UsageBatch, UsageCounts, UsageDimension, UsageError, UsageGroup, UsageKey, UsageQuery,
    UsageStore,
};
use crate::clock::now_ms;

/// Usage in memory.
#[derive(Default)]
pub struct MemoryUsage(Mutex<Tables>);

#[derive(Default)]
struct Tables {
    rows: BTreeMap<UsageKey, UsageCounts>,
    entries: BTreeMap<(String, i64), i64>,
    writers: BTreeMap<[u8; 16], i64>,
}

impl Tables {
    fn add(&mut self, key: &UsageKey, counts: &UsageCounts) {
        let entries = self.entries.entry((key.org.clone(), key.day)).or_default();
        for (key, most) in key.candidates() {
            if let Some(row) = self.rows.get_mut(&key) {
                row.add(counts);
                return;
            }
            if *entries < most {
                *entries += 1;
                self.rows.insert(key, *counts);
                return;
            }
        }
    }
}

#[async_trait]
impl UsageStore for MemoryUsage {
    async fn add_usage(&self, batch: &UsageBatch) -> Result<(), UsageError> {
        let mut tables = self.0.lock();
        let last = tables.writers.entry(batch.writer).or_default();
        if *last >= batch.number {
            return Ok(());
        }
        *last = batch.number;
        for (key, counts) in &batch.rows {
            tables.add(key, counts);
        }
        Ok(())
    }

    async fn usage(&self, query: &UsageQuery) -> Result<Vec<UsageGroup>, UsageError> {
        let tables = self.0.lock();
        let is = |wanted: &Option<String>, found: &str| wanted.as_ref().is_none_or(|wanted| wanted == found);
        let (first, last) = query.days;
        let mut groups: BTreeMap<(String, String), UsageCounts> = BTreeMap::new();
        for (key, counts) in &tables.rows {
            let is_wanted = is(&query.org, &key.org)
                && (first..=last).contains(&key.day)
                && is(&query.user, &key.user)
                && is(&query.server, &key.server)
                && is(&query.primitive, &key.primitive);
            if is_wanted {
                let (name, issuer) = match query.by {
                    UsageDimension::Org => (key.org.clone(), String::new()),
                    UsageDimension::User => (key.user.clone(), key.issuer.clone()),
                    UsageDimension::Server => (key.server.clone(), String::new()),
                    UsageDimension::Primitive => (key.primitive.clone(), String::new()),
                    UsageDimension::ServerPrimitive => (key.primitive.clone(), key.server.clone()),
                    UsageDimension::Day => (key.day.to_string(), String::new()),
                };
                groups.entry((name, issuer)).or_default().add(counts);
            }
        }
        let group = |((name, issuer), counts)| UsageGroup { name, issuer, counts };
        let mut groups: Vec<UsageGroup> = groups.into_iter().map(group).collect();
        match query.by {
            UsageDimension::Day => {
                groups.sort_by_key(|group| std::cmp::Reverse(group.name.parse::<i64>().unwrap_or_default()));
            }
            _ => groups.sort_by_key(|group| std::cmp::Reverse(group.counts.calls)),
        }
        groups.truncate(usize::try_from(query.limit.clamp(1, query.by.most())).unwrap_or_default());
        Ok(groups)
    }

    async fn first_usage_day(&self, org: Option<&str>) -> Result<Option<i64>, UsageError> {
        let tables = self.0.lock();
        let keys = tables.rows.keys().filter(|key| org.is_none_or(|org| key.org == org));
        Ok(keys.map(|key| key.day).min())
    }

    async fn sweep_usage(&self, today: i64) -> Result<(), UsageError> {
        let mut tables = self.0.lock();
        let first = today.min(now_ms() / DAY_MS) - KEEP_DAYS;
        tables.rows.retain(|key, _| key.day >= first);
        tables.entries.retain(|(_, day), _| *day >= first);
        Ok(())
    }
}
