//! Behaviour of every [`AuditLog`] that is searched, and of the records of the gateways that write to it.

// Test code that other backends' crates call too: a failed expectation panics.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::time::Duration;

use super::search::{AuditSearch, EventPosition, MemberFilter, SearchOrder};
use super::{AuditLog, CallEvent, CapturedBody};

fn event(at_ms: i64, org: &str, user: &str, trace: &str) -> CallEvent {
    let event =
        format!(r#"{{"event":"call.finish","user":"{user}","trace":"{trace}","outcome":"completed"}}"#);
    CallEvent { at_ms, org: org.to_owned(), event }
}

/// Reads all pages of a search; returns the times of the events.
async fn times(log: &dyn AuditLog, search: AuditSearch) -> Vec<i64> {
    let mut search = AuditSearch { limit: 7, ..search };
    let mut read = Vec::new();
    loop {
        let found = log.search(&search).await.unwrap();
        assert!(found.events.len() <= 7, "{}", found.events.len());
        read.extend(found.events.iter().map(|stored| stored.event.at_ms));
        let Some(next) = found.next else { return read };
        assert_ne!(search.after, Some(next), "a page advances");
        search.after = Some(next);
    }
}

/// Runs the suite on an empty log.
pub async fn run(log: &dyn AuditLog) {
    // Time 1,017 arrives last: events that waited in a file are found by their time.
    let mut events: Vec<CallEvent> = (0..40)
        .filter(|n| *n != 17)
        .map(|n| {
            let org = if n % 2 == 0 { "acme" } else { "globex" };
            event(1_000 + n, org, ["alice", "bob"][usize::from(n % 4 == 0)], &format!("t{}", n / 4))
        })
        .collect();
    events.push(event(1_017, "globex", "alice", "t4"));
    events.push(CallEvent { at_ms: 1_050, org: "acme".into(), event: "no JSON".into() });
    log.append(&events).await.unwrap();
    finds_by_time_and_org(log).await;
    finds_by_members_and_trace(log).await;
    let first = AuditSearch { order: SearchOrder::Arrival, limit: 1, ..AuditSearch::default() };
    let first = log.search(&first).await.unwrap();
    let arrival = AuditSearch { order: SearchOrder::Arrival, after: first.next, ..AuditSearch::default() };
    let arrived = times(log, arrival).await;
    assert_eq!((arrived.len(), arrived.last(), arrived.get(38)), (40, Some(&1_050), Some(&1_017)));
    keeps_writers(log).await;
    keeps_bodies(log).await;
}

async fn keeps_bodies(log: &dyn AuditLog) {
    assert!(!log.captures("shop"), "only for the servers that the operator names");
    let now = crate::clock::now_ms();
    let body = |call: &str, part: &str| CapturedBody {
        at_ms: now,
        org: "acme".into(),
        call: call.into(),
        part: part.into(),
        body: "{}".into(),
    };
    log.capture(&[body("c-1", "arguments"), body("c-2", "arguments"), body("c-1", "result")]).await.unwrap();
    assert_eq!(log.captured("c-1").await.unwrap(), [body("c-1", "arguments"), body("c-1", "result")]);
    assert!(log.captured("c-3").await.unwrap().is_empty());
}

async fn finds_by_time_and_org(log: &dyn AuditLog) {
    let all: Vec<i64> = (1_000..1_040).chain([1_050]).collect();
    let newest: Vec<i64> = all.iter().rev().copied().collect();
    assert_eq!(times(log, AuditSearch::default()).await, newest);
    assert_eq!(times(log, AuditSearch { order: SearchOrder::Oldest, ..AuditSearch::default() }).await, all);
    for order in [SearchOrder::Newest, SearchOrder::Oldest] {
        let range = AuditSearch { from_ms: Some(1_005), to_ms: Some(1_020), order, ..AuditSearch::default() };
        let mut found = times(log, range.clone()).await;
        found.sort_unstable();
        assert_eq!(found, (1_005..1_020).collect::<Vec<_>>(), "{order:?}");
        let of_org = AuditSearch { org: Some("globex".into()), ..range };
        let mut found = times(log, of_org).await;
        found.sort_unstable();
        assert_eq!(found, (1_005..1_020).filter(|at| at % 2 == 1).collect::<Vec<_>>(), "{order:?}");
    }
}

async fn finds_by_members_and_trace(log: &dyn AuditLog) {
    let bob = AuditSearch { members: vec![MemberFilter::is("user", "bob")], ..AuditSearch::default() };
    assert_eq!(
        times(log, bob.clone()).await,
        (1_000..1_040).rev().filter(|at| at % 4 == 0).collect::<Vec<_>>()
    );
    assert!(times(log, AuditSearch { org: Some("globex".into()), ..bob.clone() }).await.is_empty());
    let neither = AuditSearch { members: vec![MemberFilter::is("user", "bo")], ..AuditSearch::default() };
    assert!(times(log, neither).await.is_empty());
    let begins = AuditSearch { members: vec![MemberFilter::starts("user", "bo")], ..AuditSearch::default() };
    assert_eq!(times(log, begins).await.len(), 10);
    let trace = AuditSearch { trace: Some("t4".into()), ..AuditSearch::default() };
    assert_eq!(times(log, trace.clone()).await, [1_019, 1_018, 1_017, 1_016]);
    assert_eq!(times(log, AuditSearch { org: Some("acme".into()), ..trace.clone() }).await, [1_018, 1_016]);
    let both = AuditSearch { trace: Some("t4".into()), ..bob };
    assert_eq!(times(log, both).await, [1_016]);
    // A position that names no event is a place in the order all the same.
    let between =
        AuditSearch { after: Some(EventPosition { at_ms: 1_001, seq: i64::MIN }), ..AuditSearch::default() };
    assert_eq!(times(log, between).await, [1_000]);
}

async fn keeps_writers(log: &dyn AuditLog) {
    log.renew_writer("one", 5).await.unwrap();
    log.renew_writer("two", 6).await.unwrap();
    assert!(log.lost_writers(Duration::from_secs(60)).await.unwrap().is_empty());
    log.release_writer("two").await.unwrap();
    // A record is lost once the clock has advanced.
    let lost = loop {
        let lost = log.lost_writers(Duration::ZERO).await.unwrap();
        if !lost.is_empty() {
            break lost;
        }
        tokio::task::yield_now().await;
    };
    let [one] = lost.as_slice() else { panic!("{lost:?}") };
    assert_eq!((one.id.as_str(), one.oldest_ms), ("one", 5));
    let last = |n: i64| [event(2_000 + n, "acme", "carol", "t")];
    assert!(log.finish_writer(one, &last(0), false).await.unwrap());
    assert!(
        !log.finish_writer(one, &last(1), true).await.unwrap(),
        "another one has finished its calls since"
    );
    let again = log.lost_writers(Duration::ZERO).await.unwrap();
    assert!(log.finish_writer(&again[0], &last(2), true).await.unwrap());
    assert!(!log.finish_writer(&again[0], &last(3), true).await.unwrap(), "it is forgotten");
    assert!(log.lost_writers(Duration::ZERO).await.unwrap().is_empty());
    let carol = AuditSearch { members: vec![MemberFilter::is("user", "carol")], ..AuditSearch::default() };
    assert_eq!(times(log, carol).await, [2_002, 2_000]);
}

/// Runs the suite of replays ([`super::replay`]) on a log without writers.
pub async fn replays(log: &dyn AuditLog) {
    let of = |kind: &str, n: i64, later_ms: i64, more: &str| {
        let event = format!(
            r#"{{"event":"{kind}","call":"call-{n}","user":"dora","trace":"shared"{more},"gateway":"gone"}}"#
        );
        CallEvent { at_ms: 5_000 + n + later_ms, org: "acme".into(), event }
    };
    let start = |n: i64| of("call.start", n, 0, "");
    let end =
        |n: i64, reason: &str| of("call.finish", n, 0, &format!(r#","outcome":"x","reason":"{reason}""#));
    let unknown = |n: i64| of("call.finish", n, 60_000, r#","outcome":"unknown","reason":"gateway_lost""#);
    let by_another = |n: i64| {
        let event = end(n, "ok");
        CallEvent { event: event.event.replace("\"gone\"", "\"taker\""), ..event }
    };
    // Call 1 is in the log, 2 and 4 have begun there, of 3 it has nothing, 4 was taken for lost, another gateway ended 5.
    log.append(&[start(1), end(1, "ok"), start(2), start(4), unknown(4), start(5), by_another(5)])
        .await
        .unwrap();
    let journal = [
        start(1),
        end(1, "ok"),
        end(2, "deadline"),
        start(3),
        end(3, "ok"),
        end(4, "ok"),
        end(5, "deadline"),
    ];
    let replayed = super::replay::replay(log, "gone", &journal).await.unwrap();
    assert_eq!((replayed.appended, replayed.replaced, replayed.dropped), (3, 1, 1));
    let again = super::replay::replay(log, "gone", &journal).await.unwrap();
    assert_eq!((again.appended, again.replaced, again.dropped), (0, 0, 1), "each once");
    let dora =
        AuditSearch { members: vec![MemberFilter::is("user", "dora")], limit: 100, ..AuditSearch::default() };
    let found = log.search(&dora).await.unwrap().events;
    let mut found: Vec<CallEvent> = found.into_iter().map(|stored| stored.event).collect();
    let mut expected = vec![start(1), end(1, "ok"), start(2), end(2, "deadline"), start(3), end(3, "ok")];
    expected.extend([start(4), end(4, "ok"), start(5), by_another(5)]);
    found.sort_by(|a, b| (a.at_ms, &a.event).cmp(&(b.at_ms, &b.event)));
    expected.sort_by(|a, b| (a.at_ms, &a.event).cmp(&(b.at_ms, &b.event)));
    assert_eq!(found, expected);
    keeps_others_away_from_what_is_replayed(log).await;
    replaces_unknown_ends_by_late_ones(log).await;
}

/// Events that waited in a file while another gateway took their gateway for lost.
async fn replaces_unknown_ends_by_late_ones(log: &dyn AuditLog) {
    let of = |call: &str, at_ms: i64, reason: &str, outcome: &str| CallEvent {
        at_ms,
        org: "acme".into(),
        event: format!(
            r#"{{"event":"call.finish","call":"{call}","user":"finn","outcome":"{outcome}","reason":"{reason}","gateway":"cut"}}"#
        ),
    };
    let unknown = |call: &str| of(call, 8_500, "gateway_lost", "unknown");
    let late = |call: &str, at_ms: i64| of(call, at_ms, "ok", "completed");
    log.append(&[late("a", 8_000), unknown("b"), unknown("c")]).await.unwrap();
    let mut settling = super::replay::LateEvents::default();
    let first = settling.settle(log, vec![late("a", 8_000), late("b", 8_001)]).await.unwrap();
    assert!(first.is_empty(), "an earlier attempt appended one, the other one replaces: {first:?}");
    let second = settling.settle(log, vec![late("c", 8_600), late("d", 8_601)]).await.unwrap();
    assert_eq!(second, [late("d", 8_601)]);
    log.append(&second).await.unwrap();
    drops_ends_of_calls_that_others_took_over(log).await;
    let finn = AuditSearch { members: vec![MemberFilter::is("user", "finn")], ..AuditSearch::default() };
    assert_eq!(times(log, finn.clone()).await, [8_601, 8_600, 8_001, 8_000]);
    let lost = AuditSearch { members: vec![MemberFilter::is("reason", "gateway_lost")], ..finn };
    assert!(times(log, lost).await.is_empty());
    log.release_writer("cut").await.unwrap();
}

/// The last event of a call is that of the gateway which had it last.
async fn drops_ends_of_calls_that_others_took_over(log: &dyn AuditLog) {
    let of = |kind: &str, call: &str, gateway: &str, at_ms: i64| CallEvent {
        at_ms,
        org: "acme".into(),
        event: format!(r#"{{"event":"{kind}","call":"{call}","user":"gwen","gateway":"{gateway}"}}"#),
    };
    let taken = of("call.resume", "g1", "taker", 8_700);
    let and_back = [of("call.resume", "g2", "taker", 8_700), of("call.resume", "g2", "cut", 8_701)];
    log.append(&[taken, of("call.finish", "g1", "taker", 8_702)]).await.unwrap();
    log.append(&and_back).await.unwrap();
    let late = ["g1", "g2", "g3"].map(|call| of("call.finish", call, "cut", 8_703));
    let settled = super::replay::settle(log, late.to_vec()).await.unwrap();
    assert_eq!(settled, late[1..]);
}

/// Tries that nobody ends calls of a gateway by what it has read before the gateway's events are appended.
async fn keeps_others_away_from_what_is_replayed(log: &dyn AuditLog) {
    log.return_writer("gone", 4_000).await.unwrap();
    let lost = loop {
        let lost = log.lost_writers(Duration::ZERO).await.unwrap();
        if let Some(gone) = lost.into_iter().find(|writer| writer.id == "gone") {
            break gone;
        }
        tokio::task::yield_now().await;
    };
    assert_eq!(lost.oldest_ms, 4_000);
    log.return_writer("gone", 9_000).await.unwrap();
    assert!(log.lost_writers(Duration::from_secs(60)).await.unwrap().is_empty());
    assert!(
        !log.finish_writer(&lost, &[event(1, "acme", "eve", "t")], true).await.unwrap(),
        "it has returned"
    );
    let again = loop {
        let lost = log.lost_writers(Duration::ZERO).await.unwrap();
        if let Some(gone) = lost.into_iter().find(|writer| writer.id == "gone") {
            break gone;
        }
        tokio::task::yield_now().await;
    };
    assert_eq!(again.oldest_ms, 4_000, "the older one counts");
    assert!(log.finish_writer(&again, &[], true).await.unwrap());
}
