//! Sums of ended calls by org, day, caller, server and primitive, and their way to the store in batches.
//!
//! Keeps true: a batch that the store may have added is sent again under its number, so that it counts once; nothing is lost at
//! a stop that the store answers; at most [`MAX_PENDING`] subjects wait, of one org at most [`MAX_ENTRIES`], and beyond that one for
//! each org and day.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use asp_store::usage::{
    DAY_MS, MAX_BATCH, MAX_ENTRIES, UsageBatch, UsageCounts, UsageError, UsageKey, UsageStore,
};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::call::outcome::{Outcome, Refusal};
use crate::call::{Call, State};
use crate::clock::unix_ms;

/// Interval between two writes: sums of the last interval are lost if the process is killed.
const WRITE_EVERY: Duration = Duration::from_secs(5);
/// Maximum number of subjects that wait for the store.
const MAX_PENDING: usize = 20_000;
/// Maximum number of tokens of one answer that count; no model answers with so many.
const MAX_TOKENS: u64 = 1_000_000_000;
/// Tokens that a price is for.
const PRICED_TOKENS: u64 = 1_000_000;

/// Price of a model's tokens, in millionths of the operator's currency for a million tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenPrice {
    pub input: u64,
    pub output: u64,
}

impl TokenPrice {
    /// Returns the price of tokens in and out.
    fn of(self, tokens_in: u64, tokens_out: u64) -> u64 {
        let input = tokens_in.saturating_mul(self.input) / PRICED_TOKENS;
        let output = tokens_out.saturating_mul(self.output) / PRICED_TOKENS;
        input.saturating_add(output)
    }
}

/// Meter of the calls of one gateway.
pub struct UsageMeter {
    store: Arc<dyn UsageStore>,
    /// This run of the gateway.
    writer: [u8; 16],
    price: TokenPrice,
    pending: Mutex<PendingUsage>,
    outgoing: tokio::sync::Mutex<OutgoingBatch>,
    is_failing: AtomicBool,
}

/// Sums that wait for the store.
#[derive(Default)]
struct PendingUsage {
    rows: BTreeMap<UsageKey, UsageCounts>,
    /// Number of rows of each org.
    of_org: HashMap<String, i64>,
}

impl PendingUsage {
    fn add(&mut self, key: UsageKey, counts: &UsageCounts) {
        if let Some(sum) = self.rows.get_mut(&key) {
            return sum.add(counts);
        }
        let own = self.of_org.get(&key.org).copied().unwrap_or_default();
        let has_room = self.rows.len() < MAX_PENDING && own < MAX_ENTRIES;
        let key = if has_room { key } else { key.rest() };
        if !self.rows.contains_key(&key) {
            *self.of_org.entry(key.org.clone()).or_default() += 1;
        }
        self.rows.entry(key).or_default().add(counts);
    }

    /// Takes the first row.
    fn pop(&mut self) -> Option<(UsageKey, UsageCounts)> {
        let (key, counts) = self.rows.pop_first()?;
        if let Some(own) = self.of_org.get_mut(&key.org) {
            *own -= 1;
            if *own == 0 {
                self.of_org.remove(&key.org);
            }
        }
        Some((key, counts))
    }
}

/// The batch being sent.
#[derive(Default)]
struct OutgoingBatch {
    /// Number of the last batch.
    number: i64,
    /// Batch that the store has not confirmed.
    batch: Option<UsageBatch>,
}

impl UsageMeter {
    pub fn new(store: Arc<dyn UsageStore>, price: TokenPrice) -> UsageMeter {
        UsageMeter {
            store,
            writer: rand::random(),
            price,
            pending: Mutex::default(),
            outgoing: tokio::sync::Mutex::default(),
            is_failing: AtomicBool::new(false),
        }
    }

    /// Counts a call that ended.
    pub fn call_ended(&self, call: &Call, outcome: &Outcome) {
        let is_error = match outcome {
            Outcome::Done { output, .. } => output.is_error(),
            Outcome::Refused(_) => true,
        };
        let is_limited = matches!(outcome, Outcome::Refused(Refusal::Limited { .. }));
        let refused = u64::from(outcome.state() == State::Rejected);
        let latency = Instant::now().saturating_duration_since(call.started);
        let counts = UsageCounts { refused, ..UsageCounts::of_call(latency, is_error, is_limited) };
        self.add(key(call), &counts);
    }

    /// Adds the CPU time of a plugin's worker, which may be known after the call has ended.
    pub fn cpu_used(&self, call: &Call, cpu: Duration) {
        let cpu_us = u64::try_from(cpu.as_micros()).unwrap_or(u64::MAX);
        self.add(key(call), &UsageCounts { cpu_us, ..UsageCounts::default() });
    }

    /// Adds the tokens of a model that a call asked.
    pub fn add_model_tokens(&self, call: &Call, tokens_in: u64, tokens_out: u64) {
        let tokens_in = tokens_in.min(MAX_TOKENS);
        let tokens_out = tokens_out.min(MAX_TOKENS);
        let cost_micros = self.price.of(tokens_in, tokens_out);
        let counts = UsageCounts { tokens_in, tokens_out, cost_micros, ..UsageCounts::default() };
        self.add(key(call), &counts);
    }

    fn add(&self, key: UsageKey, counts: &UsageCounts) {
        self.pending.lock().add(key, counts);
    }

    /// Writes periodically; never returns.
    pub async fn keep_writing(&self) {
        let mut ticks = tokio::time::interval(WRITE_EVERY);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.flush().await;
        }
    }

    /// Writes everything that waits, unless the store fails.
    pub async fn flush(&self) {
        match self.write().await {
            Ok(()) => {
                if self.is_failing.swap(false, Ordering::AcqRel) {
                    tracing::info!("usage of calls is stored again; none of it was lost");
                }
            }
            Err(error) if !self.is_failing.swap(true, Ordering::AcqRel) => tracing::warn!(
                %error,
                "usage of calls could not be stored; it waits in memory and calls are not affected"
            ),
            Err(_) => {}
        }
    }

    async fn write(&self) -> Result<(), UsageError> {
        let mut outgoing = self.outgoing.lock().await;
        loop {
            if outgoing.batch.is_none() {
                let rows = self.take();
                if rows.is_empty() {
                    return Ok(());
                }
                outgoing.number += 1;
                let number = outgoing.number;
                outgoing.batch = Some(UsageBatch { writer: self.writer, number, rows });
            }
            if let Some(batch) = &outgoing.batch {
                self.store.add_usage(batch).await?;
            }
            outgoing.batch = None;
        }
    }

    /// Takes the rows of the next batch.
    fn take(&self) -> BTreeMap<UsageKey, UsageCounts> {
        let mut pending = self.pending.lock();
        let mut rows = BTreeMap::new();
        while rows.len() < MAX_BATCH
            && let Some((key, counts)) = pending.pop()
        {
            rows.insert(key, counts);
        }
        rows
    }
}

/// Returns the subject that a call is counted under today.
fn key(call: &Call) -> UsageKey {
    UsageKey {
        org: call.caller.org.clone(),
        day: i64::try_from(unix_ms()).unwrap_or(i64::MAX) / DAY_MS,
        user: call.caller.user.clone(),
        issuer: call.caller.issuer.clone(),
        server: call.server.message.name.clone(),
        primitive: call.entry.primitive.id.clone(),
    }
}

#[cfg(test)]
mod tests {
    use asp_store::usage::{MemoryUsage, UsageDimension, UsageGroup, UsageQuery};
    use async_trait::async_trait;

    use super::*;

    /// A store that adds a batch and fails to say so, as often as `silent` says.
    struct Silent {
        store: MemoryUsage,
        silent: Mutex<u32>,
    }

    #[async_trait]
    impl UsageStore for Silent {
        async fn add_usage(&self, batch: &UsageBatch) -> Result<(), UsageError> {
            self.store.add_usage(batch).await?;
            let mut silent = self.silent.lock();
            if *silent == 0 {
                return Ok(());
            }
            *silent -= 1;
            Err(UsageError("the connection is gone".into()))
        }

        async fn usage(&self, query: &UsageQuery) -> Result<Vec<UsageGroup>, UsageError> {
            self.store.usage(query).await
        }

        async fn first_usage_day(&self, org: Option<&str>) -> Result<Option<i64>, UsageError> {
            self.store.first_usage_day(org).await
        }

        async fn sweep_usage(&self, today: i64) -> Result<(), UsageError> {
            self.store.sweep_usage(today).await
        }
    }

    fn subject(n: usize) -> UsageKey {
        UsageKey { org: "acme".into(), day: 1, user: format!("u{n}"), ..UsageKey::default() }
    }

    fn one() -> UsageCounts {
        UsageCounts::of_call(Duration::from_millis(1), false, false)
    }

    async fn total(store: &Silent) -> u64 {
        let query = UsageQuery {
            org: None,
            days: (0, 2),
            user: None,
            server: None,
            primitive: None,
            by: UsageDimension::Org,
            limit: 10,
        };
        store.usage(&query).await.unwrap().iter().map(|group| group.counts.calls).sum()
    }

    #[tokio::test]
    async fn a_batch_whose_answer_was_lost_counts_once() {
        let store = Arc::new(Silent { store: MemoryUsage::default(), silent: Mutex::new(2) });
        let meter = UsageMeter::new(store.clone(), TokenPrice::default());
        for n in 0..MAX_BATCH + 3 {
            meter.add(subject(n), &one());
        }
        meter.flush().await;
        meter.add(subject(0), &one());
        meter.flush().await;
        meter.flush().await;
        assert_eq!(total(&store).await, MAX_BATCH as u64 + 4);
        let pending = meter.pending.lock();
        assert!(pending.rows.is_empty() && pending.of_org.is_empty());
    }

    #[test]
    fn subjects_beyond_the_bound_are_counted_together() {
        let meter = UsageMeter::new(Arc::new(MemoryUsage::default()), TokenPrice::default());
        let most = usize::try_from(MAX_ENTRIES).unwrap();
        let of_org = |org: usize, n: usize| UsageKey { org: format!("o{org}"), ..subject(n) };
        for n in 0..most + 5 {
            meter.add(of_org(0, n), &one());
        }
        {
            let pending = meter.pending.lock();
            assert_eq!(pending.rows.len(), most + 1, "one org leaves room for others");
            assert_eq!(pending.rows[&of_org(0, 0).rest()].calls, 5);
        }
        for org in 1..=MAX_PENDING / most {
            (0..most).for_each(|n| meter.add(of_org(org, n), &one()));
        }
        let orgs = MAX_PENDING / most + 1;
        let pending = meter.pending.lock();
        assert!(pending.rows.len() <= MAX_PENDING + orgs, "{}", pending.rows.len());
        let calls: u64 = pending.rows.values().map(|counts| counts.calls).sum();
        assert_eq!(calls, (orgs * most + 5) as u64, "none is lost");
    }

    #[test]
    fn tokens_cost_what_the_operator_says() {
        let price = TokenPrice { input: 2_500_000, output: 10_000_000 };
        assert_eq!(price.of(1_000, 500), 2_500 + 5_000);
        assert_eq!(TokenPrice::default().of(u64::MAX, u64::MAX), 0);
    }
}
