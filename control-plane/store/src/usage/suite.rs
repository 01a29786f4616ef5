//! Conformance suite of [`UsageStore`].

// Test code that other backends' crates call too: a failed expectation panics.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::collections::BTreeMap;
use std::time::Duration;

use super::{
    DAY_MS, KEEP_DAYS, MAX_BATCH, MAX_ENTRIES, MAX_PRIMITIVE_ENTRIES, OTHER, UsageBatch, UsageCounts,
    UsageDimension, UsageGroup, UsageKey, UsageQuery, UsageStore,
};

const DAY: i64 = 20_000;

fn key(user: &str, server: &str, primitive: &str) -> UsageKey {
    let [org, issuer] = ["acme", "login"].map(str::to_owned);
    UsageKey { org, day: DAY, user: user.into(), issuer, server: server.into(), primitive: primitive.into() }
}

fn call(milliseconds: u64, is_error: bool) -> UsageCounts {
    UsageCounts::of_call(Duration::from_millis(milliseconds), is_error, false)
}

fn batch(writer: u8, number: i64, rows: impl IntoIterator<Item = (UsageKey, UsageCounts)>) -> UsageBatch {
    let mut sums: BTreeMap<UsageKey, UsageCounts> = BTreeMap::new();
    for (key, counts) in rows {
        sums.entry(key).or_default().add(&counts);
    }
    UsageBatch { writer: [writer; 16], number, rows: sums }
}

fn by(by: UsageDimension) -> UsageQuery {
    UsageQuery {
        org: Some("acme".into()),
        days: (DAY, DAY),
        user: None,
        server: None,
        primitive: None,
        by,
        limit: 100,
    }
}

/// Adds rows in as many batches as they need.
async fn add_all<S: UsageStore>(store: &S, writer: u8, rows: impl Iterator<Item = (UsageKey, UsageCounts)>) {
    let rows: Vec<_> = rows.collect();
    for (number, rows) in (1_i64..).zip(rows.chunks(MAX_BATCH)) {
        store.add_usage(&batch(writer, number, rows.iter().cloned())).await.unwrap();
    }
}

async fn calls<S: UsageStore>(store: &S, query: &UsageQuery) -> Vec<(String, u64)> {
    let groups = store.usage(query).await.unwrap();
    groups.into_iter().map(|UsageGroup { name, counts, .. }| (name, counts.calls)).collect()
}

fn named(groups: &[(&str, u64)]) -> Vec<(String, u64)> {
    groups.iter().map(|(name, calls)| ((*name).to_owned(), *calls)).collect()
}

/// Runs the suite against an empty store.
pub async fn run<S: UsageStore>(store: &S) {
    rows_are_summed_by_each_group(store).await;
    a_batch_counts_once(store).await;
    details_are_bounded_and_sums_are_not(store).await;
    numbers_that_no_database_can_hold_stop_no_batch(store).await;
    days_past_their_retention_are_deleted(store).await;
}

async fn rows_are_summed_by_each_group<S: UsageStore>(store: &S) {
    let other_issuer = UsageKey { issuer: "partner".into(), ..key("ann", "shop", "pay") };
    let yesterday = UsageKey { day: DAY - 1, ..key("ann", "shop", "pay") };
    let globex = UsageKey { org: "globex".into(), ..key("ann", "shop", "pay") };
    let used =
        UsageCounts { refused: 1, cpu_us: 5, tokens_in: 7, tokens_out: 9, cost_micros: 11, ..call(3, true) };
    let rows = [
        (key("ann", "shop", "pay"), call(15, false)),
        (key("ann", "shop", "pay"), used),
        (key("bob", "shop", "list"), call(1, false)),
        (other_issuer, call(1, false)),
        (yesterday, call(1, false)),
        (globex, call(1, false)),
    ];
    store.add_usage(&batch(1, 1, rows)).await.unwrap();
    let whole = store.usage(&by(UsageDimension::Org)).await.unwrap();
    let [acme] = whole.as_slice() else { panic!("{whole:?}") };
    let mut expected = UsageCounts::default();
    [call(15, false), used, call(1, false), call(1, false)].iter().for_each(|counts| expected.add(counts));
    assert_eq!((acme.name.as_str(), acme.counts), ("acme", expected));
    assert_eq!((acme.counts.refused, acme.counts.admitted()), (1, 3));
    let users = store.usage(&by(UsageDimension::User)).await.unwrap();
    let users: Vec<_> =
        users.iter().map(|group| (&*group.name, &*group.issuer, group.counts.calls)).collect();
    assert_eq!(users[0], ("ann", "login", 2));
    assert!(users.contains(&("ann", "partner", 1)) && users.contains(&("bob", "login", 1)), "{users:?}");
    assert_eq!(calls(store, &by(UsageDimension::Primitive)).await, named(&[("pay", 3), ("list", 1)]));
    let both = UsageQuery { days: (DAY - 5, DAY), ..by(UsageDimension::Day) };
    assert_eq!(calls(store, &both).await, named(&[("20000", 4), ("19999", 1)]));
    let everywhere = UsageQuery { org: None, ..by(UsageDimension::Org) };
    assert_eq!(calls(store, &everywhere).await, named(&[("acme", 4), ("globex", 1)]));
    let bobs =
        UsageQuery { user: Some("bob".into()), server: Some("shop".into()), ..by(UsageDimension::Server) };
    assert_eq!(calls(store, &bobs).await, named(&[("shop", 1)]));
    let none = UsageQuery { primitive: Some("other".into()), ..by(UsageDimension::Server) };
    assert_eq!(calls(store, &none).await, named(&[]));
    let listed = store.usage(&by(UsageDimension::ServerPrimitive)).await.unwrap();
    let listed: Vec<_> =
        listed.iter().map(|group| (&*group.issuer, &*group.name, group.counts.calls)).collect();
    assert_eq!(listed, [("shop", "pay", 3), ("shop", "list", 1)]);
    assert_eq!(store.first_usage_day(None).await.unwrap(), Some(DAY - 1));
    assert_eq!(store.first_usage_day(Some("acme")).await.unwrap(), Some(DAY - 1));
    assert_eq!(store.first_usage_day(Some("globex")).await.unwrap(), Some(DAY));
    assert_eq!(store.first_usage_day(Some("nobody")).await.unwrap(), None);
    let one = UsageQuery { limit: 1, ..by(UsageDimension::Primitive) };
    assert_eq!(calls(store, &one).await, named(&[("pay", 3)]));
}

async fn a_batch_counts_once<S: UsageStore>(store: &S) {
    let before = calls(store, &by(UsageDimension::Org)).await[0].1;
    let sent = batch(2, 1, [(key("ann", "shop", "pay"), call(1, false))]);
    store.add_usage(&sent).await.unwrap();
    store.add_usage(&sent).await.unwrap();
    assert_eq!(calls(store, &by(UsageDimension::Org)).await[0].1, before + 1);
    store.add_usage(&UsageBatch { number: 2, ..sent.clone() }).await.unwrap();
    store.add_usage(&UsageBatch { number: 1, ..sent.clone() }).await.unwrap();
    store.add_usage(&UsageBatch { writer: [3; 16], ..sent }).await.unwrap();
    assert_eq!(calls(store, &by(UsageDimension::Org)).await[0].1, before + 3);
}

async fn details_are_bounded_and_sums_are_not<S: UsageStore>(store: &S) {
    let many = MAX_ENTRIES + 2;
    let row = |user: i64| {
        let key = UsageKey { day: DAY + 1, ..key(&format!("u{user:06}"), "shop", "pay") };
        (key, call(1, false))
    };
    add_all(store, 4, (0..many).map(row)).await;
    let day = UsageQuery { days: (DAY + 1, DAY + 1), ..by(UsageDimension::Org) };
    assert_eq!(calls(store, &day).await, named(&[("acme", u64::try_from(many).unwrap())]));
    let others = UsageQuery { user: Some(OTHER.into()), by: UsageDimension::Primitive, ..day.clone() };
    assert_eq!(calls(store, &others).await, named(&[("pay", 2)]), "the primitive is still known");
    store.add_usage(&batch(5, 1, [row(0)])).await.unwrap();
    assert_eq!(calls(store, &others).await, named(&[("pay", 2)]), "a known caller keeps its row");
    let primitive = |n: i64| {
        let key = UsageKey { day: DAY + 1, ..key("zoe", "shop", &format!("p{n:06}")) };
        (key, call(1, false))
    };
    add_all(store, 6, (0..=MAX_PRIMITIVE_ENTRIES).map(primitive)).await;
    let rest = UsageQuery { primitive: Some(OTHER.into()), by: UsageDimension::Server, ..day };
    assert_eq!(calls(store, &rest).await, named(&[(OTHER, 2)]), "one row of primitives was taken before");
}

/// Numbers beyond all bounds, which the endpoint of a model may report.
async fn numbers_that_no_database_can_hold_stop_no_batch<S: UsageStore>(store: &S) {
    let huge = UsageCounts { tokens_in: u64::MAX, cost_micros: u64::MAX, ..call(1, false) };
    let subject = |user: &str| UsageKey { org: "initech".into(), day: DAY + 3, ..key(user, "shop", "ask") };
    for number in 1..=3 {
        let rows = [(subject("ann"), huge), (subject("bob"), huge)];
        store.add_usage(&batch(7, number, rows)).await.unwrap();
    }
    let all = UsageQuery { org: Some("initech".into()), days: (DAY + 3, DAY + 3), ..by(UsageDimension::Org) };
    let found = store.usage(&all).await.unwrap();
    assert_eq!(found[0].counts.calls, 6);
    assert!(found[0].counts.tokens_in > 1 << 40, "{found:?}");
}

async fn days_past_their_retention_are_deleted<S: UsageStore>(store: &S) {
    let all = UsageQuery { days: (0, DAY + 1), ..by(UsageDimension::Day) };
    store.sweep_usage(DAY + KEEP_DAYS).await.unwrap();
    let kept: Vec<String> = calls(store, &all).await.into_iter().map(|(day, _)| day).collect();
    assert_eq!(kept, [(DAY + 1).to_string(), DAY.to_string()]);
    assert_eq!(store.first_usage_day(Some("acme")).await.unwrap(), Some(DAY));
    store.sweep_usage(DAY + 2 + KEEP_DAYS).await.unwrap();
    assert_eq!(calls(store, &all).await, named(&[]));
    let today = crate::clock::now_ms() / DAY_MS;
    let recent = UsageKey { org: "umbrella".into(), day: today - 1, ..key("ann", "shop", "pay") };
    store.add_usage(&batch(8, 1, [(recent, call(1, false))])).await.unwrap();
    store.sweep_usage(today + 10 * KEEP_DAYS).await.unwrap();
    let kept = UsageQuery { org: Some("umbrella".into()), days: (0, today), ..by(UsageDimension::Day) };
    let yesterday = (today - 1).to_string();
    assert_eq!(calls(store, &kept).await, named(&[(yesterday.as_str(), 1)]), "one gateway's clock is ahead");
}
