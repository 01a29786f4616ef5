//! Any interleaving of gateways on a paused clock: no limit admits more than its stated bound.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::time::Instant;

use super::*;
use crate::availability::PROBE_EVERY;

/// Shared counters that can be away.
struct Link {
    shared: Arc<MemoryCounters>,
    is_away: Arc<AtomicBool>,
}

impl Link {
    fn check(&self) -> Result<(), CounterError> {
        match self.is_away.load(Ordering::Relaxed) {
            true => Err(CounterError("away".into())),
            false => Ok(()),
        }
    }
}

#[async_trait]
impl Counters for Link {
    async fn take(&self, tenant: &str, buckets: &[Bucket]) -> Result<DrawOutcome, CounterError> {
        self.check()?;
        self.shared.take(tenant, buckets).await
    }

    async fn give_back(&self, tenant: &str, buckets: &[Bucket], drawn_ms: u64) -> Result<(), CounterError> {
        self.check()?;
        self.shared.give_back(tenant, buckets, drawn_ms).await
    }

    async fn take_many(&self, tenant: &str, bucket: &Bucket, count: u64) -> Result<u64, CounterError> {
        self.check()?;
        self.shared.take_many(tenant, bucket, count).await
    }
}

/// Gateways that share counters.
struct Fleet {
    gateways: Vec<Arc<WithFallback>>,
    is_away: Arc<AtomicBool>,
}

impl Fleet {
    fn of(gateways: u64) -> Fleet {
        let is_away = Arc::new(AtomicBool::new(false));
        let shared = Arc::new(MemoryCounters::default());
        let gateway = |rank: u64| {
            let link = Link { shared: shared.clone(), is_away: is_away.clone() };
            let gateway = WithFallback::new(Arc::new(link));
            gateway.set_share(GatewayShare { gateways, rank });
            Arc::new(gateway)
        };
        Fleet { gateways: (0..gateways).map(gateway).collect(), is_away: is_away.clone() }
    }

    fn toggle(&self) {
        self.is_away.fetch_xor(true, Ordering::Relaxed);
    }
}

/// Checks every period between two admissions against `bound`, given its length in seconds and the changes of availability in it.
fn check(admitted: &[Instant], changes: &[Instant], bound: impl Fn(f64, f64) -> f64, about: &str) {
    for (first, from) in admitted.iter().enumerate() {
        for (last, to) in admitted.iter().enumerate().skip(first) {
            let seconds = (*to - *from).as_secs_f64();
            // A gateway notices a change at its next call after a probe.
            let within = changes.iter().filter(|at| **at + PROBE_EVERY >= *from && *at <= to).count();
            let count = last - first + 1;
            assert!(
                count as f64 <= bound(seconds, within as f64) + 1e-6,
                "{count} calls in {seconds} s with {within} changes: {about}"
            );
        }
    }
}

/// Draws from one bucket at random gateways and times; returns when calls were admitted, and when availability changed.
async fn run(random: &mut StdRng, bucket: &Bucket, outages: bool) -> (Vec<Instant>, Vec<Instant>) {
    let fleet = Fleet::of(random.random_range(1..=4));
    let mut admitted = Vec::new();
    let mut changes = Vec::new();
    for _ in 0..300 {
        match random.random_range(0..20) {
            0 if outages => {
                fleet.toggle();
                changes.push(Instant::now());
            }
            0..6 => tokio::time::advance(Duration::from_millis(random.random_range(0..400))).await,
            _ => {
                let gateway = random.random_range(0..fleet.gateways.len());
                let drawn = fleet.gateways[gateway].take("t", std::slice::from_ref(bucket)).await.unwrap();
                if matches!(drawn, DrawOutcome::Granted { .. }) {
                    admitted.push(Instant::now());
                }
            }
        }
    }
    (admitted, changes)
}

#[tokio::test(start_paused = true)]
async fn a_token_bucket_admits_its_capacity_and_refill_and_a_change_at_most_one_capacity_more() {
    for seed in 0..200 {
        let mut random = StdRng::seed_from_u64(seed);
        let capacity = random.random_range(1..12);
        let refill_per_second = random.random_range(0.1..6.0);
        let bucket = Bucket { key: "k".into(), capacity, refill_per_second, ..Bucket::default() };
        let outages = seed % 2 == 0;
        let (admitted, changes) = run(&mut random, &bucket, outages).await;
        assert!(!admitted.is_empty());
        let probe = PROBE_EVERY.as_secs_f64();
        let bound = |seconds: f64, changes: f64| {
            capacity as f64 * (1.0 + changes) + refill_per_second * (seconds + changes * probe)
        };
        check(&admitted, &changes, bound, &format!("seed {seed}: {bucket:?}"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_sliding_window_admits_its_capacity_in_any_period() {
    for seed in 0..100 {
        let mut random = StdRng::seed_from_u64(seed);
        let capacity = random.random_range(1..12);
        let seconds = random.random_range(1..5);
        let kind = BucketKind::Sliding { seconds };
        let bucket = Bucket { key: "k".into(), capacity, kind, ..Bucket::default() };
        let (admitted, changes) = run(&mut random, &bucket, false).await;
        let windows = |length: f64| 1.0 + (length / seconds as f64).floor();
        let bound = |length: f64, _: f64| capacity as f64 * windows(length);
        check(&admitted, &changes, bound, &format!("seed {seed}: {bucket:?}"));
    }
}

#[tokio::test(start_paused = true)]
async fn slots_are_never_held_by_more_calls_than_there_are() {
    for seed in 0..100 {
        let mut random = StdRng::seed_from_u64(seed);
        let fleet = Fleet::of(random.random_range(1..=4));
        let capacity = random.random_range(1..6);
        let mut held: Vec<(usize, Bucket)> = Vec::new();
        let mut was_full = false;
        for call in 0..300 {
            if random.random_bool(0.4) && !held.is_empty() {
                let (gateway, bucket) = held.swap_remove(random.random_range(0..held.len()));
                fleet.gateways[gateway].give_back("t", &[bucket], 0).await.unwrap();
                continue;
            }
            let kind = BucketKind::Slots { holder: format!("call {call}"), lease_ms: 3_600_000 };
            let bucket = Bucket { key: "k".into(), capacity, kind, ..Bucket::default() };
            let gateway = random.random_range(0..fleet.gateways.len());
            match fleet.gateways[gateway].take("t", std::slice::from_ref(&bucket)).await.unwrap() {
                DrawOutcome::Granted { .. } => held.push((gateway, bucket)),
                DrawOutcome::Denied { .. } => {
                    assert_eq!(held.len() as u64, capacity, "seed {seed}: refused although one is free");
                    was_full = true;
                }
            }
            assert!(held.len() as u64 <= capacity, "seed {seed}");
        }
        assert!(was_full || capacity > 4, "seed {seed}");
    }
}

/// Level by level: a call draws from all or from none, so that no level counts calls that another refused.
#[tokio::test(start_paused = true)]
async fn every_level_keeps_its_own_bound_and_refused_calls_draw_from_none() {
    for seed in 0..100 {
        let mut random = StdRng::seed_from_u64(seed);
        let fleet = Fleet::of(3);
        let level = |key: String, capacity: u64| Bucket {
            key,
            capacity,
            refill_per_second: 1e-9,
            ..Bucket::default()
        };
        let mut granted = [0_u64; 3];
        for _ in 0..200 {
            let user = random.random_range(0..3);
            let levels = [level(format!("user {user}"), 20), level("org".into(), 40)];
            let gateway = random.random_range(0..3);
            match fleet.gateways[gateway].take("t", &levels).await.unwrap() {
                DrawOutcome::Granted { .. } => granted[user] += 1,
                DrawOutcome::Denied { index, .. } => {
                    let all: u64 = granted.iter().sum();
                    assert!(granted[user] == 20 || all == 40, "seed {seed}: refused by level {index}");
                }
            }
        }
        assert!(granted.iter().all(|count| *count <= 20));
        assert_eq!(granted.iter().sum::<u64>(), 40, "seed {seed}");
    }
}
