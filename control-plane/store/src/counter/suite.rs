//! Conformance suite of [`Counters`]. Uses real times, because not every backend has a clock to pause: buckets that
//! must stay empty refill within hours, those that must fill within milliseconds.

// Test code that other backends' crates call too: a failed expectation panics.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::{Bucket, BucketKind, Counters, DrawOutcome, UNCOUNTED};

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
    counts_in_windows(&*counters).await;
    holds_slots_until_they_are_given_back_or_their_lease_ends(&*counters).await;
    gives_back_what_a_refused_call_drew(&*counters).await;
    takes_several_at_once(&*counters).await;
}

fn of_kind(key: &str, capacity: u64, kind: BucketKind) -> Bucket {
    Bucket { key: key.into(), capacity, refill_per_second: SLOW, kind }
}

fn is_granted(drawn: DrawOutcome) -> bool {
    matches!(drawn, DrawOutcome::Granted { .. })
}

/// Windows are longer than the test, so that at most one of them begins meanwhile.
async fn counts_in_windows(counters: &dyn Counters) {
    const DAYS: u64 = 31;
    let longest_ms = 86_400_000;
    for kind in [BucketKind::Fixed { seconds: DAYS * 86_400 }, BucketKind::Sliding { seconds: DAYS * 86_400 }]
    {
        let window = [of_kind(&format!("{kind:?}"), 3, kind)];
        for remaining in [2, 1, 0] {
            assert_eq!(take(counters, &window).await, DrawOutcome::Granted { remaining });
        }
        let denied = take(counters, &window).await;
        assert!(
            matches!(denied, DrawOutcome::Denied { index: 0, retry_after_ms } if retry_after_ms <= longest_ms),
            "{denied:?}"
        );
    }
    // A caller that waits as told is admitted.
    for kind in [BucketKind::Fixed { seconds: 1 }, BucketKind::Sliding { seconds: 1 }] {
        let window = [of_kind(&format!("short {kind:?}"), 2, kind)];
        let mut granted = 0;
        while granted < 5 {
            match take(counters, &window).await {
                DrawOutcome::Granted { .. } => granted += 1,
                DrawOutcome::Denied { retry_after_ms, .. } => {
                    assert!((1..=1_100).contains(&retry_after_ms), "{retry_after_ms}");
                    tokio::time::sleep(Duration::from_millis(retry_after_ms + 1)).await;
                    assert!(is_granted(take(counters, &window).await), "it waited as told");
                    granted += 1;
                }
            }
        }
    }
}

async fn holds_slots_until_they_are_given_back_or_their_lease_ends(counters: &dyn Counters) {
    const LEASE_MS: u64 = 500;
    let slot = |holder: &str, lease_ms: u64| {
        [of_kind("slots", 2, BucketKind::Slots { holder: holder.into(), lease_ms })]
    };
    let long = 3_600_000;
    assert_eq!(take(counters, &slot("a", long)).await, DrawOutcome::Granted { remaining: UNCOUNTED });
    assert!(is_granted(take(counters, &slot("b", long)).await));
    assert!(matches!(take(counters, &slot("c", long)).await, DrawOutcome::Denied { index: 0, .. }));
    assert!(is_granted(take(counters, &slot("b", long)).await), "the same holder takes no second one");
    counters.give_back(TENANT, &slot("a", long), 0).await.unwrap();
    // This holder is lost when its lease ends.
    let begun = Instant::now();
    assert!(is_granted(take(counters, &slot("c", LEASE_MS)).await));
    let is_full = !is_granted(take(counters, &slot("d", long)).await);
    // On a busy machine the lease may end before the second draw.
    assert!(is_full || begun.elapsed() >= Duration::from_millis(LEASE_MS));
    tokio::time::sleep(Duration::from_millis(LEASE_MS + 50)).await;
    counters.renew(TENANT, &slot("b", long)).await.unwrap();
    assert!(is_granted(take(counters, &slot("d", long)).await));
    assert!(!is_granted(take(counters, &slot("e", long)).await), "one was renewed");
}

async fn gives_back_what_a_refused_call_drew(counters: &dyn Counters) {
    let both = [
        bucket("refunded", 2, SLOW),
        of_kind("refunded slot", 1, BucketKind::Slots { holder: "h".into(), lease_ms: 3_600_000 }),
    ];
    assert_eq!(take(counters, &both).await, DrawOutcome::Granted { remaining: 1 });
    counters.give_back(TENANT, &both, 0).await.unwrap();
    assert_eq!(take(counters, &both).await, DrawOutcome::Granted { remaining: 1 });
    counters.give_back(TENANT, &both, 0).await.unwrap();
    counters.give_back(TENANT, &both, 0).await.unwrap();
    assert_eq!(
        take(counters, &both[..1]).await,
        DrawOutcome::Granted { remaining: 1 },
        "never more than full"
    );
    // A draw of a window that has ended stays: the current window is another.
    let window = [of_kind("refunded window", 1, BucketKind::Fixed { seconds: 31 * 86_400 })];
    assert!(is_granted(take(counters, &window).await));
    counters.give_back(TENANT, &window, 0).await.unwrap();
    assert!(!is_granted(take(counters, &window).await));
}

async fn takes_several_at_once(counters: &dyn Counters) {
    let many = bucket("several", 10, SLOW);
    assert_eq!(counters.take_many(TENANT, &many, 4).await.unwrap(), 4);
    assert_eq!(counters.take_many(TENANT, &many, 100).await.unwrap(), 6);
    assert_eq!(counters.take_many(TENANT, &many, 1).await.unwrap(), 0);
    assert!(!is_granted(take(counters, std::slice::from_ref(&many)).await));
    let window = of_kind("several of a window", 5, BucketKind::Fixed { seconds: 31 * 86_400 });
    assert_eq!(counters.take_many(TENANT, &window, 3).await.unwrap(), 3);
    assert_eq!(counters.take_many(TENANT, &window, 3).await.unwrap(), 2);
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
