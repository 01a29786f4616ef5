//! The port suites on a real Redis and on a Redis Cluster, and what only a server that may be away has to hold.

// Test code may fail loudly; Clippy sees only the `#[test]`s themselves.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::sync::Arc;
use std::time::Duration;

use asp_e2e::stores::Redis as Server;
use asp_e2e::wait;
use asp_store::bus::{self, Bus};
use asp_store::counter::{self, Bucket, Counters, Taken, WithFallback};
use asp_store::records::OwnerId;
use asp_store::redis::{ANSWER_WITHIN, Redis, RedisBus, RedisCounters, RedisDirectory};
use asp_store::sessions;
use bytes::Bytes;
use tokio::time::Instant;

/// One gateway's counters.
fn counters(server: &Server) -> RedisCounters {
    RedisCounters::new(Redis::open(&server.url()).unwrap())
}

fn bucket(key: &str, capacity: u64, refill_per_second: f64) -> Bucket {
    Bucket { key: key.into(), capacity, refill_per_second }
}

async fn take(counters: &dyn Counters, bucket: Bucket) -> Taken {
    counters.take("acme", &[bucket]).await.unwrap()
}

#[tokio::test]
async fn counters_do_what_every_backend_must() {
    let server = Server::start().await.unwrap();
    counter::suite::run(Arc::new(counters(&server))).await;
}

#[tokio::test]
async fn counters_do_so_in_a_cluster_where_what_is_taken_together_is_in_one_slot() {
    let server = Server::start_cluster().await.unwrap();
    counter::suite::run(Arc::new(counters(&server))).await;
}

#[tokio::test]
async fn a_limit_is_one_for_all_gateways() {
    let server = Server::start().await.unwrap();
    let gateways = [counters(&server), counters(&server), counters(&server)].map(Arc::new);
    let calls = (0..300).map(|n| {
        let gateway = gateways[n % gateways.len()].clone();
        tokio::spawn(async move { take(&*gateway, bucket("k", 40, 1e-6)).await })
    });
    let taken = futures::future::join_all(calls).await;
    let granted = taken.iter().filter(|taken| matches!(taken, Ok(Taken::Granted { .. }))).count();
    assert_eq!(granted, 40);
}

/// Invariant I-4: what is full again is forgotten.
#[tokio::test]
async fn only_buckets_that_are_not_full_are_kept() {
    let server = Server::start().await.unwrap();
    let counters = counters(&server);
    for n in 0..100 {
        take(&counters, bucket(&format!("fast {n}"), 5, 100.0)).await;
    }
    take(&counters, bucket("slow", 5, 0.001)).await;
    let one = wait::until("the fast ones are forgotten", wait::START, || async {
        server.ask("DBSIZE").await.ok().filter(|answer| answer == ":1")
    });
    one.await.unwrap();
    // So slow that it is never full: it is kept for a year, as long as any.
    take(&counters, bucket("slowest", 5, f64::MIN_POSITIVE)).await;
    let kept = server.ask("EVAL \"local l = 0 for _, k in ipairs(redis.call('KEYS', '*')) do l = math.max(l, redis.call('PTTL', k)) end return l\" 0");
    let kept: u64 = kept.await.unwrap().trim_start_matches(':').parse().unwrap();
    assert!(kept <= 366 * 86_400_000 && kept > 364 * 86_400_000, "{kept}");
}

#[tokio::test]
async fn while_redis_is_away_a_gateway_counts_by_itself_and_it_is_used_again_when_it_is_back() {
    let mut server = Server::start().await.unwrap();
    let shared = Arc::new(counters(&server));
    let gateways = [WithFallback::new(shared.clone()), WithFallback::new(Arc::new(counters(&server)))];
    for gateway in &gateways {
        take(gateway, bucket("k", 3, 1e-6)).await;
    }
    assert!(matches!(take(&gateways[0], bucket("k", 3, 1e-6)).await, Taken::Granted { remaining: 0 }));
    assert!(matches!(take(&gateways[1], bucket("k", 3, 1e-6)).await, Taken::Denied { .. }));

    server.process.stop().await.unwrap();
    for gateway in &gateways {
        for left in [2, 1, 0] {
            let begun = Instant::now();
            assert_eq!(take(gateway, bucket("k", 3, 1e-6)).await, Taken::Granted { remaining: left });
            assert!(begun.elapsed() < ANSWER_WITHIN + Duration::from_secs(5), "a hang guard");
        }
        assert!(matches!(take(gateway, bucket("k", 3, 1e-6)).await, Taken::Denied { .. }));
    }

    server.start_again().await.unwrap();
    // It has kept nothing: the two share a full bucket again.
    let one = wait::until("Redis counts again", wait::START, || async {
        for gateway in &gateways {
            take(gateway, bucket("other", 1000, 1e-6)).await;
        }
        let probe = shared.take("acme", &[bucket("other", 1000, 1e-6)]).await;
        matches!(probe, Ok(Taken::Granted { remaining }) if remaining < 998).then_some(())
    });
    one.await.unwrap();
}

#[tokio::test]
async fn a_gateway_starts_while_redis_is_away() {
    let directory = tempfile::tempdir().unwrap();
    let nobody = format!("unix://{}", directory.path().join("redis.sock").display());
    let counters = RedisCounters::new(Redis::open(&nobody).unwrap());
    let error = counters.take("acme", &[bucket("k", 1, 1.0)]).await.unwrap_err();
    assert!(error.to_string().contains("Redis"), "{error}");
    let counters = WithFallback::new(Arc::new(counters));
    assert_eq!(take(&counters, bucket("k", 1, 1e-6)).await, Taken::Granted { remaining: 0 });
}

#[tokio::test]
async fn the_directory_of_sessions_and_the_bus_do_what_every_backend_must() {
    for server in [Server::start().await.unwrap(), Server::start_cluster().await.unwrap()] {
        let redis = Redis::open(&server.url()).unwrap();
        sessions::suite::run(&RedisDirectory::new(redis.clone())).await;
        bus::suite::run(&RedisBus::new(redis)).await;
    }
}

#[tokio::test]
async fn a_gateway_listens_again_when_redis_is_back() {
    let mut server = Server::start().await.unwrap();
    let bus = RedisBus::new(Redis::open(&server.url()).unwrap());
    let gateway = OwnerId([1; 16]);
    let mut heard = bus::suite::listening(&bus, gateway).await;
    server.process.stop().await.unwrap();
    assert!(bus.tell(gateway, Bytes::from_static(b"lost")).await.is_err());
    server.start_again().await.unwrap();
    let again = async {
        loop {
            // Refused, or lost, until it is back.
            let _ = bus.tell(gateway, Bytes::from_static(b"again")).await;
            let heard = tokio::time::timeout(Duration::from_millis(50), bus::suite::next(&mut heard)).await;
            if let Ok(message) = heard {
                return message;
            }
        }
    };
    assert_eq!(tokio::time::timeout(wait::CONVERGE, again).await.unwrap(), "again");
}

/// Its client gives up by itself where it is not let in, as when passwords change here and there one after the other.
#[tokio::test]
async fn a_redis_that_let_nobody_in_for_a_while_is_used_again() {
    let server = Server::start().await.unwrap();
    let counters = counters(&server);
    take(&counters, bucket("k", 9, 1.0)).await;
    server.ask("ACL SETUSER admin on nopass ~* &* +@all").await.unwrap();
    server.ask("ACL SETUSER default resetpass >secret").await.unwrap();
    server.ask("AUTH admin any\r\nCLIENT KILL TYPE normal").await.unwrap();
    let refused = wait::until("it lets nobody in, and its client gives up", wait::CONVERGE, || async {
        let refused = counters.take("acme", &[bucket("k", 9, 1.0)]).await.err()?;
        refused.to_string().to_lowercase().contains("auth").then_some(())
    });
    refused.await.unwrap();
    server.ask("AUTH admin any\r\nACL SETUSER default nopass").await.unwrap();
    let again = wait::until("it is used again", wait::CONVERGE, || async {
        counters.take("acme", &[bucket("k", 9, 1.0)]).await.ok()
    });
    again.await.unwrap();
}
