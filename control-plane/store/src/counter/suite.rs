//! Conformance suite of [`Counters`]. Uses real times, because not every backend has a clock to pause: buckets that
//! must stay empty refill within hours, those that must fill within milliseconds.

// Test code that other backends' crates call too: a failed expectation panics.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::{Bucket, Counters, DrawOutcome};

const TENANT: &str = "acme";
/// Tokens per second of a bucket that stays empty.
const SLOW: f64 = 0.001;
/// A hang guard, not an expectation.
const LONG: Duration = Duration::from_secs(30);

fn bucket(key: &str, capacity: u64, refill_per_second: f64) -> Bucket {
    Bucket { key: key.into(), capacity, refill_per_second, ..Bucket::default() }
}

async fn take(counters: &dyn Counters, buckets: &[Bucket]) -> DrawOutcome {
    counters.take(TENANT, buckets).await.unwrap()
}

/// Runs the suite against counters without state.
pub async fn run(counters: Arc<dyn Counters>) {
    admits_the_capacity_and_says_when_to_come_back(&*counters).await;
    admits_again_what_came_back(&*counters).await;
    takes_from_all_or_from_none(&*counters).await;
    reports_the_longest_wait_of_several_empty_buckets(&*counters).await;
    knows_names_of_any_form_apart(&*counters).await;
    follows_a_limit_that_changes(&*counters).await;
    admits_nobody_twice(&counters).await;
}

async fn admits_the_capacity_and_says_when_to_come_back(counters: &dyn Counters) {
    let buckets = [bucket("capacity", 2, SLOW)];
    assert_eq!(take(counters, &buckets).await, DrawOutcome::Granted { remaining: 1 });
    assert_eq!(take(counters, &buckets).await, DrawOutcome::Granted { remaining: 0 });
    let DrawOutcome::Denied { index: 0, retry_after_ms } = take(counters, &buckets).await else {
        panic!("the third of two was granted")
    };
    // A thousand seconds, minus the time since the first draw.
    assert!((900_000..=1_000_000).contains(&retry_after_ms), "{retry_after_ms}");
    // A refill too slow for milliseconds is capped at a day.
    let buckets = [bucket("never", 1, f64::MIN_POSITIVE)];
    assert_eq!(take(counters, &buckets).await, DrawOutcome::Granted { remaining: 0 });
    assert_eq!(take(counters, &buckets).await, DrawOutcome::Denied { index: 0, retry_after_ms: 86_400_000 });
}

async fn admits_again_what_came_back(counters: &dyn Counters) {
    let buckets = [bucket("comes back", 1, 20.0)];
    let begun = Instant::now();
    let mut granted = 0;
    while granted < 4 {
        assert!(begun.elapsed() < LONG, "nothing comes back");
        match take(counters, &buckets).await {
            DrawOutcome::Granted { remaining: 0 } => granted += 1,
            DrawOutcome::Granted { remaining } => panic!("{remaining} of 1 remain after one was taken"),
            DrawOutcome::Denied { retry_after_ms, .. } => {
                assert!((1..=50).contains(&retry_after_ms), "{retry_after_ms}");
                // Like a caller that respects `retry_after_ms`.
                tokio::time::sleep(Duration::from_millis(retry_after_ms)).await;
            }
        }
    }
    // The first token was there; each of the others took a twentieth of a second.
    assert!(begun.elapsed() >= Duration::from_millis(145), "{:?}", begun.elapsed());
}

async fn takes_from_all_or_from_none(counters: &dyn Counters) {
    let wide = bucket("wide", 10, SLOW);
    let narrow = bucket("narrow", 1, SLOW);
    let both = [wide.clone(), narrow];
    assert_eq!(take(counters, &both).await, DrawOutcome::Granted { remaining: 0 });
    for _ in 0..5 {
        assert!(matches!(take(counters, &both).await, DrawOutcome::Denied { index: 1, .. }));
    }
    assert_eq!(take(counters, &[wide]).await, DrawOutcome::Granted { remaining: 8 });
}

async fn reports_the_longest_wait_of_several_empty_buckets(counters: &dyn Counters) {
    let sooner = bucket("sooner", 1, 10.0 * SLOW);
    let both = [sooner.clone(), bucket("later", 1, SLOW)];
    assert_eq!(take(counters, &both).await, DrawOutcome::Granted { remaining: 0 });
    let DrawOutcome::Denied { index: 1, retry_after_ms } = take(counters, &both).await else {
        panic!("a caller that waits for the first bucket is refused by the second")
    };
    assert!((900_000..=1_000_000).contains(&retry_after_ms), "{retry_after_ms}");
    let alike = [sooner, bucket("as soon", 1, 10.0 * SLOW)];
    let denied = take(counters, &alike).await;
    assert!(
        matches!(denied, DrawOutcome::Denied { index: 0, retry_after_ms: 90_000..=100_000 }),
        "{denied:?}"
    );
}

async fn knows_names_of_any_form_apart(counters: &dyn Counters) {
    let names = ["a", "A", "a\0b", "a\0b\0", "{a}", "{b}a", "", "a b", "ä", "a\r\nb", &"x".repeat(5000)];
    for name in names {
        assert_eq!(
            take(counters, &[bucket(&format!("n|{name}"), 1, SLOW)]).await,
            DrawOutcome::Granted { remaining: 0 }
        );
    }
    for tenant in ["other", "", "{acme}", "a}b", "ä\0"] {
        let taken = counters.take(tenant, &[bucket(&format!("{tenant}|t"), 1, SLOW)]).await.unwrap();
        assert_eq!(taken, DrawOutcome::Granted { remaining: 0 }, "{tenant:?}");
    }
}

async fn follows_a_limit_that_changes(counters: &dyn Counters) {
    assert_eq!(take(counters, &[bucket("changes", 10, SLOW)]).await, DrawOutcome::Granted { remaining: 9 });
    assert_eq!(take(counters, &[bucket("changes", 3, SLOW)]).await, DrawOutcome::Granted { remaining: 2 });
    // Tokens lost to a smaller limit do not return with a larger one.
    assert_eq!(take(counters, &[bucket("changes", 10, SLOW)]).await, DrawOutcome::Granted { remaining: 1 });
}

/// Invariant I-4: no limit admits more than its capacity, even to concurrent callers.
async fn admits_nobody_twice(counters: &Arc<dyn Counters>) {
    let tasks = (0..200).map(|_| {
        let counters = counters.clone();
        tokio::spawn(
            async move { take(&*counters, &[bucket("many", 50, 1e-6), bucket("more", 500, 1e-6)]).await },
        )
    });
    let taken = futures::future::join_all(tasks).await;
    let granted = taken.into_iter().filter(|taken| matches!(taken, Ok(DrawOutcome::Granted { .. }))).count();
    assert_eq!(granted, 50);
    assert_eq!(
        take(&**counters, &[bucket("more", 500, 1e-6)]).await,
        DrawOutcome::Granted { remaining: 449 }
    );
}
