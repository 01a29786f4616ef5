//! Counters of one process.
//!
//! Keeps true: the table is bounded, and no tenant uses up the guaranteed capacity of another; only full buckets are forgotten;
//! the buckets of a tenant without capacity are counted as one, which admits no more than each of them would; no call
//! holds the table for longer than it takes to forget a bounded number of buckets.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::state::{Now, State, seconds_of, tokens_left};
use super::{Bucket, BucketKind, CounterError, Counters, DrawOutcome, UNCOUNTED, milliseconds};

/// Buckets guaranteed to each tenant: more than one call draws from.
const OWN: usize = 16;
/// Buckets guaranteed to each of the first [`MAX_SHARES`] tenants that need more than [`OWN`]: a bucket for each of many users.
const SHARE: usize = 1_000;
/// Maximum number of tenants with a share: orgs with many users at one gateway without Redis.
const MAX_SHARES: usize = 100;
/// Maximum number of further buckets of all tenants together.
const MAX_SHARED: usize = 100_000;
/// Maximum number of buckets of one tenant: a quarter of the shared ones, for limits with a bucket per user or token.
const MAX_OF_TENANT: usize = MAX_SHARED / 4;
/// Maximum number of buckets outside of shares: the shared ones and the guaranteed ones of 10,000 tenants. With all shares it is
/// 360,000 buckets, about 120 MB.
const MAX_REST: usize = MAX_SHARED + 10_000 * OWN;
/// Maximum number of tenants, each with at least the level of its merged buckets.
const MAX_TENANTS: usize = 100_000;
/// Maximum number of full buckets that a call forgets if it finds no capacity: more than it draws from.
const MAX_FORGOTTEN: usize = 64;

/// Counters of one process.
#[derive(Default)]
pub struct MemoryCounters {
    table: Mutex<BucketTable>,
    clock: WindowClock,
}

/// The process's clock, with the time of day at which it was read first: no step of the system's clock moves windows.
struct WindowClock {
    began: Instant,
    began_ms: u64,
}

impl Default for WindowClock {
    fn default() -> WindowClock {
        WindowClock { began: Instant::now(), began_ms: asp_platform::clock::now_ms() }
    }
}

impl WindowClock {
    fn now(&self) -> Now {
        let instant = Instant::now();
        let passed = instant.saturating_duration_since(self.began).as_millis();
        let passed = u64::try_from(passed).unwrap_or(u64::MAX);
        Now { instant, unix_ms: self.began_ms.saturating_add(passed) }
    }
}

#[derive(Default)]
struct BucketTable {
    tenants: HashMap<Arc<str>, Tenant>,
    /// Times at which buckets, by key, and the merged buckets of a tenant are full and can be forgotten.
    full: BTreeSet<(Instant, Arc<str>, Option<Arc<str>>)>,
    /// Number of buckets of all tenants.
    count: usize,
    /// Number of buckets beyond the guaranteed ones of each tenant.
    shared: usize,
    /// Number of tenants with a share.
    shares: usize,
    /// Number of buckets within shares.
    in_shares: usize,
}

/// Buckets of one tenant.
#[derive(Default)]
struct Tenant {
    /// Levels by bucket key.
    levels: HashMap<Arc<str>, Level>,
    /// Time at which the merged buckets, for which there was no capacity, are full. A draw from one of them is a draw
    /// from all, so that each admits at most what it would alone.
    merged_until: Option<Instant>,
    /// Whether the first [`SHARE`] buckets are guaranteed, until there are no more than [`OWN`].
    has_share: bool,
}

impl Tenant {
    /// Returns how many of so many buckets are beyond the guaranteed ones.
    fn beyond(&self, count: usize) -> usize {
        count.saturating_sub(if self.has_share { SHARE } else { OWN })
    }
}

struct Level {
    state: State,
    /// Time at which the bucket is full, so that forgetting it changes nothing.
    full_at: Instant,
}

impl MemoryCounters {
    /// Draws from each bucket that has room, by itself.
    pub(super) fn draw_each(&self, tenant: &str, buckets: &[Bucket]) {
        let now = self.clock.now();
        let mut table = self.table.lock();
        for bucket in buckets {
            let one = std::slice::from_ref(bucket);
            if table.room(tenant, bucket, now).is_ok() && table.makes_room(tenant, one, now.instant) {
                table.draw(tenant, bucket, true, now);
            }
        }
    }

    /// Changes the states of known buckets.
    fn change(&self, tenant: &str, buckets: &[Bucket], change: impl Fn(&mut State, &Bucket, Now)) {
        let now = self.clock.now();
        let mut table = self.table.lock();
        for bucket in buckets {
            table.change(tenant, bucket, now, &change);
        }
    }
}

#[async_trait]
impl Counters for MemoryCounters {
    async fn take(&self, tenant: &str, buckets: &[Bucket]) -> Result<DrawOutcome, CounterError> {
        let now = self.clock.now();
        let mut table = self.table.lock();
        let mut remaining = UNCOUNTED;
        let mut empty: Option<(usize, f64)> = None;
        for (index, bucket) in buckets.iter().enumerate() {
            match table.room(tenant, bucket, now) {
                Ok(_) if bucket.is_slots() => {}
                Ok(left) => remaining = remaining.min(left),
                Err(wait) if empty.is_none_or(|(_, longest)| wait > longest) => empty = Some((index, wait)),
                Err(_) => {}
            }
        }
        if let Some((index, wait)) = empty {
            return Ok(DrawOutcome::Denied { index, retry_after_ms: milliseconds(wait) });
        }
        let fits = table.makes_room(tenant, buckets, now.instant);
        // Only token buckets can be merged with others.
        let mergeable = buckets.iter().all(|bucket| bucket.kind == BucketKind::Tokens);
        if !(fits || mergeable && table.has_tenant(tenant)) {
            return Ok(DrawOutcome::Denied { index: 0, retry_after_ms: 1000 });
        }
        for bucket in buckets {
            table.draw(tenant, bucket, fits, now);
        }
        Ok(DrawOutcome::Granted { remaining })
    }

    async fn give_back(&self, tenant: &str, buckets: &[Bucket], drawn_ms: u64) -> Result<(), CounterError> {
        self.change(tenant, buckets, |state, bucket, now| state.give_back(bucket, drawn_ms, now));
        Ok(())
    }

    fn give_back_now(&self, tenant: &str, buckets: &[Bucket]) -> bool {
        self.change(tenant, buckets, |state, bucket, now| {
            if bucket.is_slots() {
                state.give_back(bucket, now.unix_ms, now);
            }
        });
        true
    }

    async fn renew(&self, tenant: &str, buckets: &[Bucket]) -> Result<(), CounterError> {
        self.change(tenant, buckets, |state, bucket, now| state.renew(bucket, now));
        Ok(())
    }

    async fn take_many(&self, tenant: &str, bucket: &Bucket, count: u64) -> Result<u64, CounterError> {
        let one = std::slice::from_ref(bucket);
        let mut taken = 0;
        while taken < count && matches!(self.take(tenant, one).await?, DrawOutcome::Granted { .. }) {
            taken += 1;
        }
        Ok(taken)
    }
}

impl BucketTable {
    fn level(&self, tenant: &str, key: &str) -> Option<&Level> {
        self.tenants.get(tenant)?.levels.get(key)
    }

    /// Returns how many draws remain after one now, or the seconds to wait for one.
    fn room(&self, tenant: &str, bucket: &Bucket, now: Now) -> Result<u64, f64> {
        match self.level(tenant, &bucket.key) {
            Some(level) => level.state.room(bucket, now),
            None if bucket.kind == BucketKind::Tokens => {
                tokens_left(self.unknown_tokens(tenant, bucket, now), bucket)
            }
            None => State::new(bucket, 0.0, now).room(bucket, now),
        }
    }

    /// Returns the tokens of an unknown bucket: it counts as if all draws from the merged ones had been from it.
    fn unknown_tokens(&self, tenant: &str, bucket: &Bucket, now: Now) -> f64 {
        let full = self.tenants.get(tenant).and_then(|known| known.merged_until);
        let wait = full.map_or(Duration::ZERO, |full| full.saturating_duration_since(now.instant));
        bucket.capacity as f64 - wait.as_secs_f64() * bucket.refill_per_second
    }

    /// Draws from a bucket. An unknown bucket is stored if it `fits`, otherwise merged with the others that do not.
    fn draw(&mut self, tenant: &str, bucket: &Bucket, fits: bool, now: Now) {
        let tokens = self.unknown_tokens(tenant, bucket, now);
        let name = self.tenants.get_key_value(tenant).map(|(name, _)| Arc::clone(name));
        let name = name.unwrap_or_else(|| Arc::from(tenant));
        let known = self.tenants.entry(Arc::clone(&name)).or_default();
        let key = known.levels.get_key_value(bucket.key.as_str()).map(|(key, _)| Arc::clone(key));
        if key.is_none() && !fits {
            let from = known.merged_until.map_or(now.instant, |full| full.max(now.instant));
            let until = from + seconds_of(1.0, bucket);
            let before = known.merged_until.replace(until);
            return self.schedule((name, None), before, until);
        }
        let key = key.unwrap_or_else(|| Arc::from(bucket.key.as_str()));
        let is_new = !known.levels.contains_key(&key);
        let level = known
            .levels
            .entry(Arc::clone(&key))
            .or_insert_with(|| Level { state: State::new(bucket, tokens, now), full_at: now.instant });
        level.state.draw(bucket, now);
        let before = level.full_at;
        let full_at = level.state.full_at(bucket, now);
        level.full_at = full_at;
        if is_new {
            self.added(tenant);
        }
        self.schedule((name, Some(key)), (!is_new).then_some(before), full_at);
    }

    /// Counts a new bucket of a tenant, which gets a share with its first bucket beyond [`OWN`].
    fn added(&mut self, tenant: &str) {
        let Some(known) = self.tenants.get_mut(tenant) else { return };
        let count = known.levels.len();
        if count == OWN + 1 && self.shares < MAX_SHARES {
            known.has_share = true;
            self.shares += 1;
            self.in_shares += OWN;
        }
        self.count += 1;
        self.in_shares += usize::from(known.has_share && count <= SHARE);
        self.shared += usize::from(known.beyond(count) > 0);
    }

    /// Counts a removed bucket of a tenant, which has `left`.
    fn removed(&mut self, tenant: &str, left: usize) {
        let Some(known) = self.tenants.get_mut(tenant) else { return };
        self.count -= 1;
        self.in_shares -= usize::from(known.has_share && left < SHARE);
        self.shared -= usize::from(known.beyond(left + 1) > 0);
        if known.has_share && left <= OWN {
            known.has_share = false;
            self.shares -= 1;
            self.in_shares -= left;
        }
    }

    /// Changes the state of a bucket, if it is known.
    fn change(
        &mut self,
        tenant: &str,
        bucket: &Bucket,
        now: Now,
        change: &impl Fn(&mut State, &Bucket, Now),
    ) {
        let Some((name, _)) = self.tenants.get_key_value(tenant) else { return };
        let name = Arc::clone(name);
        let Some(known) = self.tenants.get_mut(tenant) else { return };
        let Some((key, _)) = known.levels.get_key_value(bucket.key.as_str()) else { return };
        let key = Arc::clone(key);
        let Some(level) = known.levels.get_mut(bucket.key.as_str()) else { return };
        change(&mut level.state, bucket, now);
        let before = level.full_at;
        let full_at = level.state.full_at(bucket, now);
        level.full_at = full_at;
        self.schedule((name, Some(key)), Some(before), full_at);
    }

    /// Schedules when a bucket, or the merged ones of a tenant, can be forgotten.
    fn schedule(
        &mut self,
        (tenant, key): (Arc<str>, Option<Arc<str>>),
        before: Option<Instant>,
        full_at: Instant,
    ) {
        let mut entry = (full_at, tenant, key);
        if let Some(before) = before {
            entry.0 = before;
            self.full.remove(&entry);
            entry.0 = full_at;
        }
        self.full.insert(entry);
    }

    /// Whether the unknown buckets can be stored. A bucket that is not full is never forgotten, because that would
    /// admit more than it allows.
    fn makes_room(&mut self, tenant: &str, buckets: &[Bucket], now: Instant) -> bool {
        let missing = buckets.iter().filter(|bucket| self.level(tenant, &bucket.key).is_none()).count();
        if self.has_room(tenant, missing) {
            return true;
        }
        self.forget_full(now);
        self.has_room(tenant, missing)
    }

    fn has_room(&self, tenant: &str, missing: usize) -> bool {
        if missing == 0 {
            return true;
        }
        let known = self.tenants.get(tenant);
        let own = known.map_or(0, |known| known.levels.len());
        let all = own + missing;
        let gets_share = own <= OWN && all > OWN && self.shares < MAX_SHARES;
        let has_share = gets_share || known.is_some_and(|known| known.has_share);
        if has_share && all <= SHARE {
            return self.has_tenant(tenant);
        }
        let guaranteed = if has_share { SHARE } else { OWN };
        let beyond = all.saturating_sub(guaranteed.max(own));
        self.has_tenant(tenant)
            && self.count - self.in_shares + missing <= MAX_REST
            && (beyond == 0 || (all <= MAX_OF_TENANT && self.shared + beyond <= MAX_SHARED))
    }

    /// Whether the tenant is known or can be added.
    fn has_tenant(&self, tenant: &str) -> bool {
        self.tenants.len() < MAX_TENANTS || self.tenants.contains_key(tenant)
    }

    /// Forgets full buckets, starting with those that have been full for longest.
    fn forget_full(&mut self, now: Instant) {
        for _ in 0..MAX_FORGOTTEN {
            if self.full.first().is_none_or(|(full_at, ..)| *full_at > now) {
                return;
            }
            if let Some((_, tenant, key)) = self.full.pop_first() {
                self.forget(&tenant, key.as_deref());
            }
        }
    }

    /// Forgets a bucket, or the merged ones of a tenant; removes a tenant without any.
    fn forget(&mut self, tenant: &str, key: Option<&str>) {
        let Some(known) = self.tenants.get_mut(tenant) else { return };
        let removed = match key {
            Some(key) => known.levels.remove(key).is_some(),
            None => {
                known.merged_until = None;
                false
            }
        };
        let left = known.levels.len();
        let is_empty = left == 0 && known.merged_until.is_none();
        if removed {
            self.removed(tenant, left);
        }
        if is_empty {
            self.tenants.remove(tenant);
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    use super::*;

    fn bucket(key: &str, capacity: u64, refill_per_second: f64) -> Bucket {
        Bucket { key: key.into(), capacity, refill_per_second, ..Bucket::default() }
    }

    #[tokio::test(start_paused = true)]
    async fn a_bucket_admits_its_capacity_and_then_its_refill() {
        let counters = MemoryCounters::default();
        let buckets = [bucket("a", 2, 1.0)];
        assert_eq!(counters.take("t", &buckets).await.unwrap(), DrawOutcome::Granted { remaining: 1 });
        assert_eq!(counters.take("t", &buckets).await.unwrap(), DrawOutcome::Granted { remaining: 0 });
        assert_eq!(
            counters.take("t", &buckets).await.unwrap(),
            DrawOutcome::Denied { index: 0, retry_after_ms: 1000 }
        );
        tokio::time::advance(Duration::from_millis(1000)).await;
        assert_eq!(counters.take("t", &buckets).await.unwrap(), DrawOutcome::Granted { remaining: 0 });
    }

    #[tokio::test(start_paused = true)]
    async fn a_denied_check_takes_nothing_from_the_other_buckets() {
        let counters = MemoryCounters::default();
        let both = [bucket("wide", 10, 0.001), bucket("narrow", 1, 0.001)];
        assert!(matches!(counters.take("t", &both).await.unwrap(), DrawOutcome::Granted { .. }));
        for _ in 0..5 {
            assert!(matches!(counters.take("t", &both).await.unwrap(), DrawOutcome::Denied { index: 1, .. }));
        }
        let wide = [bucket("wide", 10, 0.001)];
        assert_eq!(counters.take("t", &wide).await.unwrap(), DrawOutcome::Granted { remaining: 8 });
    }

    #[tokio::test]
    async fn it_does_what_every_backend_must() {
        super::super::suite::run(std::sync::Arc::new(MemoryCounters::default())).await;
    }

    /// Draws from buckets of one token each that stay empty; returns how many were granted.
    async fn fill(counters: &MemoryCounters, tenant: &str, buckets: std::ops::Range<usize>) -> usize {
        let mut granted = 0;
        for n in buckets {
            let taken = counters.take(tenant, &[bucket(&format!("k{n}"), 1, SLOW)]).await.unwrap();
            granted += usize::from(matches!(taken, DrawOutcome::Granted { .. }));
        }
        granted
    }

    /// One token in ten days.
    const SLOW: f64 = 1e-6;

    /// Invariant I-4: one tenant's tokens, each with a bucket, use no capacity of another tenant.
    #[tokio::test(start_paused = true)]
    async fn a_tenant_with_many_buckets_takes_no_room_from_others() {
        let counters = MemoryCounters::default();
        let granted = fill(&counters, "many", 0..100_000).await;
        assert_eq!(granted, MAX_OF_TENANT + 1, "all others share the token of the first that found no room");
        assert_eq!(counters.table.lock().count, MAX_OF_TENANT);
        let first = [bucket("org", 500, 0.3), bucket("user", 20, 5.0), bucket("token", 1, SLOW)];
        assert_eq!(counters.take("few", &first).await.unwrap(), DrawOutcome::Granted { remaining: 0 });
        assert_eq!(fill(&counters, "few", 0..1_000).await, 1_000);
    }

    /// Invariant I-4 for tables of limits.
    #[tokio::test(start_paused = true)]
    async fn a_tenant_has_some_buckets_of_its_own_where_several_others_have_used_up_what_is_shared() {
        let counters = MemoryCounters::default();
        for tenant in ["a", "b", "c", "d"] {
            assert_eq!(fill(&counters, tenant, 0..MAX_OF_TENANT).await, MAX_OF_TENANT, "{tenant}");
        }
        assert_eq!(fill(&counters, "e", 0..SHARE).await, SHARE, "a share is its own");
        for n in 5..MAX_SHARES {
            fill(&counters, &format!("t{n}"), 0..OWN + 1).await;
        }
        // Guaranteed buckets do not count as shared.
        let left = MAX_SHARED - 4 * (MAX_OF_TENANT - SHARE);
        assert_eq!(fill(&counters, "e", SHARE..6_000).await, left + 1);
        assert_eq!(fill(&counters, "late", 0..1_000).await, OWN + 1, "all shares are taken");
        assert_eq!(fill(&counters, "t5", 0..SHARE + 1).await, SHARE - OWN);
        let table = counters.table.lock();
        assert_eq!((table.shared, table.shares), (MAX_SHARED, MAX_SHARES));
        assert_eq!(table.in_shares, 6 * SHARE + (MAX_SHARES - 6) * (OWN + 1));
        assert_eq!(table.count, table.in_shares + table.shared + OWN);
    }

    /// Tenants that need no share are bounded while shares are free.
    #[tokio::test(start_paused = true)]
    async fn free_shares_give_no_room_to_a_tenant_that_needs_none() {
        let counters = MemoryCounters::default();
        counters.table.lock().count = MAX_REST;
        assert_eq!(fill(&counters, "t", 0..OWN).await, 1, "all draw from the merged buckets");
        assert_eq!(counters.table.lock().count, MAX_REST);
    }

    /// A share ends with the buckets that need it.
    #[tokio::test(start_paused = true)]
    async fn a_share_is_free_again_once_its_tenant_needs_it_no_more() {
        let counters = MemoryCounters::default();
        for n in 0..OWN + 2 {
            counters.take("t", &[bucket(&format!("k{n}"), 1, 1.0)]).await.unwrap();
        }
        let counts = || {
            let table = counters.table.lock();
            (table.shares, table.in_shares, table.shared, table.count)
        };
        assert_eq!(counts(), (1, OWN + 2, 0, OWN + 2));
        tokio::time::advance(Duration::from_secs(2)).await;
        counters.table.lock().forget_full(Instant::now());
        assert_eq!(counts(), (0, 0, 0, 0));
    }

    /// Invariant I-4: within its share a tenant is answered as if it were alone, whatever others do before and meanwhile.
    #[tokio::test(start_paused = true)]
    async fn no_keys_of_others_change_the_answers_to_a_tenant_within_its_share() {
        let crowded = MemoryCounters::default();
        let alone = MemoryCounters::default();
        for tenant in ["a", "b", "c", "d"] {
            fill(&crowded, tenant, 0..MAX_OF_TENANT).await;
        }
        fill(&crowded, "e", 0..MAX_OF_TENANT).await;
        assert_eq!(crowded.table.lock().shared, MAX_SHARED, "all that is shared is taken");
        for seed in 0..4 {
            let mut dice = StdRng::seed_from_u64(seed);
            for step in 0..5_000 {
                let number = dice.random_range(0..SHARE);
                let refill = [SLOW, 0.5, 16.0][number % 3];
                let capacity = 1 + u64::try_from(number % 4).unwrap();
                let own = [bucket(&format!("k{number}"), capacity, refill)];
                let expected = alone.take("own", &own).await.unwrap();
                assert_eq!(crowded.take("own", &own).await.unwrap(), expected, "seed {seed}, step {step}");
                let other = ["a", "e", "f", "g", "h"][dice.random_range(0..5)];
                fill(&crowded, other, step..step + dice.random_range(1..5)).await;
                // Fractions of two, so that sums are exact.
                tokio::time::advance(Duration::from_millis(125 * dice.random_range(0..3))).await;
            }
        }
        let table = crowded.table.lock();
        assert!(table.tenants["own"].levels.len() > SHARE / 4 && table.shared == MAX_SHARED);
    }

    #[tokio::test(start_paused = true)]
    async fn merged_buckets_admit_no_more_than_each_of_them_and_so_does_one_that_finds_room_again() {
        let counters = MemoryCounters::default();
        for n in 0..MAX_OF_TENANT {
            counters.take("t", &[bucket(&format!("k{n}"), 1, 1.0)]).await.unwrap();
        }
        let (slow, quick) = (bucket("slow", 2, 0.01), bucket("quick", 400, 1.0));
        let take = async |bucket: &Bucket| counters.take("t", std::slice::from_ref(bucket)).await.unwrap();
        assert_eq!(take(&slow).await, DrawOutcome::Granted { remaining: 1 });
        assert_eq!(take(&quick).await, DrawOutcome::Granted { remaining: 299 });
        assert!(
            matches!(take(&slow).await, DrawOutcome::Denied { index: 0, .. }),
            "the quick one drew from it too"
        );
        // A second later both fit, and neither starts with the tokens that it has already spent.
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(take(&slow).await, DrawOutcome::Granted { remaining: 0 });
        assert!(counters.table.lock().level("t", "slow").is_some());
        let DrawOutcome::Denied { retry_after_ms, .. } = take(&slow).await else {
            panic!("more than it allows")
        };
        tokio::time::advance(Duration::from_millis(retry_after_ms)).await;
        assert_eq!(take(&slow).await, DrawOutcome::Granted { remaining: 0 });
    }

    #[tokio::test(start_paused = true)]
    async fn only_full_buckets_are_forgotten_and_so_many_at_a_time() {
        let counters = MemoryCounters::default();
        counters.take("t", &[bucket("slow", 1, SLOW)]).await.unwrap();
        for n in 1..MAX_OF_TENANT {
            counters.take("t", &[bucket(&format!("k{n}"), 1, 1.0)]).await.unwrap();
        }
        tokio::time::advance(Duration::from_secs(2)).await;
        let new = counters.take("t", &[bucket("new", 1, 1.0)]).await.unwrap();
        assert!(matches!(new, DrawOutcome::Granted { .. }));
        assert_eq!(counters.table.lock().count, MAX_OF_TENANT - MAX_FORGOTTEN + 1);
        for n in 0..MAX_OF_TENANT {
            counters.take("t", &[bucket(&format!("n{n}"), 1, SLOW)]).await.unwrap();
        }
        {
            let table = counters.table.lock();
            assert_eq!(table.count, MAX_OF_TENANT, "those that were full have made room");
            assert!(!table.tenants["t"].levels.keys().any(|key| key.starts_with('k')));
            assert_eq!(table.full.len(), table.count + 1, "the merged ones too");
        }
        let again = counters.take("t", &[bucket("slow", 1, SLOW)]).await.unwrap();
        assert!(matches!(again, DrawOutcome::Denied { .. }));
    }

    #[tokio::test(start_paused = true)]
    async fn tenants_are_bounded_and_those_whose_buckets_are_full_make_room() {
        let counters = MemoryCounters::default();
        for n in 0..MAX_TENANTS {
            counters.take(&format!("t{n}"), &[bucket("k", 1, 1.0)]).await.unwrap();
        }
        let one_more = async || counters.take("new", &[bucket("k", 1, 1.0)]).await.unwrap();
        assert_eq!(one_more().await, DrawOutcome::Denied { index: 0, retry_after_ms: 1000 });
        tokio::time::advance(Duration::from_secs(2)).await;
        assert!(matches!(one_more().await, DrawOutcome::Granted { .. }));
        let table = counters.table.lock();
        assert_eq!(table.tenants.len(), MAX_TENANTS - MAX_FORGOTTEN + 1);
        assert_eq!((table.full.len(), table.count), (table.tenants.len(), table.tenants.len()));
    }
}
