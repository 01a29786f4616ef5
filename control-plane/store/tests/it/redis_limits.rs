//! Limits of several gateways over a real Redis: under overload, at twice the limit, and while Redis is away.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use asp_e2e::stores::Redis as Server;
use asp_e2e::wait;
use asp_store::counter::{Bucket, BucketKind, Counters, DrawOutcome, Slices, WithFallback};
use asp_store::redis::{Redis, RedisCounters};
use tokio::time::Instant;

/// Hang guard for answers in tests that do not measure their latency.
const PATIENCE: Duration = Duration::from_secs(30);

fn bucket(key: &str, capacity: u64, refill_per_second: f64) -> Bucket {
    Bucket { key: key.into(), capacity, refill_per_second, ..Bucket::default() }
}

/// Starts so many gateways over one Redis, which know each other.
async fn gateways(server: &Server, count: u64) -> Vec<Arc<WithFallback>> {
    let mut gateways = Vec::new();
    for number in 0..count {
        let redis = Redis::open_within(&server.url(), PATIENCE).unwrap();
        let shared = Arc::new(RedisCounters::new(redis));
        let gateway = Arc::new(WithFallback::new(shared.clone()));
        gateway.join(shared, format!("gateway {number}"));
        gateways.push(gateway);
    }
    wait::until("all know each other", wait::CONVERGE, || async {
        gateways.iter().all(|gateway| gateway.share().gateways == count).then_some(())
    })
    .await
    .unwrap();
    gateways
}

async fn admits(gateway: &WithFallback, org: &str, bucket: &Bucket) -> bool {
    let drawn = gateway.take(org, std::slice::from_ref(bucket)).await.unwrap();
    matches!(drawn, DrawOutcome::Granted { .. })
}

/// Twenty clients at each gateway, each of which calls again at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_gateways_under_overload_admit_what_the_limit_says_and_others_are_unchanged() {
    const CAPACITY: u64 = 100;
    const RATE: f64 = 100.0;
    const ENOUGH: u64 = 20;
    let server = Server::start().await.unwrap();
    let gateways = gateways(&server, 4).await;
    let noisy = bucket("noisy", CAPACITY, RATE);
    let admitted = Arc::new(AtomicU64::new(0));
    let asked = Arc::new(AtomicU64::new(0));
    let is_over = Arc::new(AtomicBool::new(false));
    let begun = Instant::now();
    let clients = gateways.iter().flat_map(|gateway| (0..20).map(move |_| gateway.clone()));
    let clients: Vec<_> = clients
        .map(|gateway| {
            let admitted = admitted.clone();
            let asked = asked.clone();
            let is_over = is_over.clone();
            let noisy = noisy.clone();
            tokio::spawn(async move {
                while !is_over.load(Ordering::Relaxed) {
                    asked.fetch_add(1, Ordering::Relaxed);
                    admitted.fetch_add(u64::from(admits(&gateway, "noisy", &noisy).await), Ordering::Relaxed);
                }
            })
        })
        .collect();
    // Meanwhile another org uses up its own limit, of which nothing is missing.
    let quiet = bucket("quiet", 200, 1e-6);
    let mut others = 0;
    for turn in 0..300 {
        others += u64::from(admits(&gateways[turn % 4], "quiet", &quiet).await);
    }
    assert_eq!(others, 200);
    let overload = || async { (asked.load(Ordering::Relaxed) > ENOUGH * CAPACITY).then_some(()) };
    wait::until("twenty times as many calls", wait::START, overload).await.unwrap();
    is_over.store(true, Ordering::Relaxed);
    for client in clients {
        client.await.unwrap();
    }
    let bound = CAPACITY as f64 + RATE * begun.elapsed().as_secs_f64();
    let admitted = admitted.load(Ordering::Relaxed);
    assert!(admitted as f64 <= bound, "{admitted} of at most {bound}");
    assert!(admitted >= CAPACITY, "{admitted}");
}

#[tokio::test]
async fn of_a_user_at_twice_the_limit_over_three_gateways_half_is_refused() {
    const RATE: f64 = 200.0;
    const CALLS: u32 = 1_200;
    const CAPACITY: u64 = 2_000;
    let server = Server::start().await.unwrap();
    let gateways = gateways(&server, 3).await;
    // What comes back while this test waits for the machine is not lost.
    let limit = bucket("user", CAPACITY, RATE);
    let emptied = Instant::now();
    assert_eq!(gateways[0].take_many("acme", &limit, CAPACITY).await.unwrap(), CAPACITY);
    let begun = Instant::now();
    // What may have come back before the first call.
    let before = RATE * (begun - emptied).as_secs_f64();
    let mut sent = 0_u32;
    let mut admitted = 0_u32;
    // A plain bucket at the times of the calls: on a busy machine they come late, and fewer than half are too many.
    let mut tokens = 0.0;
    let mut filled = 0.0;
    let mut expected = 0_u32;
    while sent < CALLS {
        let now = begun.elapsed().as_secs_f64();
        if f64::from(sent) >= 2.0 * RATE * now {
            tokio::time::sleep(Duration::from_millis(1)).await;
            continue;
        }
        tokens += RATE * (now - filled);
        filled = now;
        if tokens >= 1.0 {
            tokens -= 1.0;
            expected += 1;
        }
        admitted += u32::from(admits(&gateways[sent as usize % 3], "acme", &limit).await);
        sent += 1;
    }
    let difference = f64::from(admitted.abs_diff(expected));
    assert!(
        difference <= before + 0.02 * f64::from(CALLS),
        "{admitted} of {CALLS} were admitted, not {expected}"
    );
}

#[tokio::test]
async fn while_redis_is_away_shares_are_the_limit_and_calls_are_refused_only_where_a_share_is_missing() {
    let mut server = Server::start().await.unwrap();
    let gateways = gateways(&server, 4).await;
    server.process.stop().await.unwrap();
    let even = bucket("even", 40, 1e-6);
    for turn in 0..40 {
        assert!(admits(&gateways[turn % 4], "acme", &even).await, "evenly spread, none is refused");
    }
    for gateway in &gateways {
        assert!(!admits(gateway, "acme", &even).await, "the limit holds");
    }
    let single = bucket("single", 40, 1e-6);
    let mut admitted = 0;
    for _ in 0..40 {
        admitted += u32::from(admits(&gateways[0], "acme", &single).await);
    }
    assert_eq!(admitted, 10, "at one gateway, the shares of the others are missing");
    let slots: Vec<Bucket> = (0..8)
        .map(|holder| {
            let kind = BucketKind::Slots { holder: format!("call {holder}"), lease_ms: 3_600_000 };
            Bucket { key: "slots".into(), capacity: 4, kind, ..Bucket::default() }
        })
        .collect();
    let mut running = 0;
    for (turn, slot) in slots.iter().enumerate() {
        running += u32::from(admits(&gateways[turn % 4], "acme", slot).await);
    }
    assert_eq!(running, 4, "one at each");

    server.start_again().await.unwrap();
    let fresh = bucket("fresh", 1_000_000, 1e-6);
    wait::until("limits count together again", wait::START, || async {
        let mut left = u64::MAX;
        for gateway in &gateways {
            let drawn = gateway.take("acme", std::slice::from_ref(&fresh)).await.ok()?;
            let DrawOutcome::Granted { remaining } = drawn else { return None };
            left = left.min(remaining);
        }
        // A share is a quarter.
        (left > 900_000).then_some(())
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn a_limit_of_all_orgs_is_leased_in_slices_and_admits_no_more() {
    for server in [Server::start().await.unwrap(), Server::start_cluster().await.unwrap()] {
        let gateways = gateways(&server, 3).await;
        let slices: Vec<Slices> =
            gateways.iter().map(|gateway| Slices::new(gateway.clone() as Arc<dyn Counters>)).collect();
        let limit = bucket("every org", 4_800, 1e-6);
        let mut admitted = 0_u64;
        let mut refused = 0;
        while refused < 30 {
            refused += 1;
            for slices in &slices {
                while matches!(
                    slices.take(std::slice::from_ref(&limit)).await.unwrap(),
                    DrawOutcome::Granted { .. }
                ) {
                    admitted += 1;
                    refused = 0;
                }
            }
        }
        assert!((4_500..=4_800).contains(&admitted), "{admitted}");
    }
}
