//! Conformance suite of [`CallRecords`].

// Test code that other backends' crates call too: a failed expectation panics.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::time::Duration;

use bytes::Bytes;

use super::{
    CallId, CallQuota, CallQuotas, CallRecord, CallRecords, End, Lease, ListOrder, Listing, MAX_KEEP,
    NO_ROOM, NOBODY, Orphan, OwnerId, RecordError, RecordKey, Save, State,
};
use crate::clock::now_ms;

const LIVING: OwnerId = OwnerId([1; 16]);
const OTHER: OwnerId = OwnerId([2; 16]);
const LEASE: Duration = Duration::from_secs(60);
/// Creation time of the calls of [`key`].
const BEGAN: i64 = 5;
const HOUR: Duration = Duration::from_secs(3600);
/// Quotas that [`keeps_to_its_bounds`] and that of receivers expect.
pub const SMALL: CallQuotas = CallQuotas {
    of_user: CallQuota { records: 3, bytes: 100, receivers: 3 },
    of_org: CallQuota { records: 5, bytes: 1_000, receivers: 5 },
};

/// Returns the key of call number `n`.
pub fn key(n: u8) -> RecordKey {
    RecordKey {
        call: [n; 16],
        org: "acme".into(),
        principal: [7; 16],
        user: [17; 16],
        server: "demo".into(),
        plugin: "sweep@1.0.0".into(),
        context: "trip".into(),
        created_ms: BEGAN,
        expires_ms: i64::MAX,
        resumes: true,
    }
}

fn text(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}

fn end(outcome: &'static str) -> End {
    End { state: State::Completed, record: text("told"), outcome: text(outcome), keep: HOUR }
}

async fn begin(records: &dyn CallRecords, n: u8) {
    let put = records.put(&key(n), LIVING, State::Working, text("asked")).await.unwrap();
    assert_eq!(put, Save::Stored);
}

/// Runs the suite against an empty store.
pub async fn run(records: &dyn CallRecords) {
    assert_eq!(records.renew(LIVING, LEASE).await.unwrap(), Lease::Held);
    keeps_the_newest_capsule_and_the_memory_beside_it(records).await;
    only_the_owner_changes_a_record(records).await;
    keeps_calls_apart_and_forgets_what_is_dropped(records).await;
    an_orphan_has_exactly_one_taker(records).await;
    an_orphan_that_is_given_up_is_nobodys_and_is_kept(records).await;
    an_owner_that_was_away_too_long_is_told(records).await;
    who_has_just_lapsed_takes_nothing_from_others_that_have(records).await;
    a_record_counts_as_long_as_it_was_said_at_most(records).await;
    what_only_tells_of_a_call_is_no_orphan_and_replaces_nothing(records).await;
    what_has_ended_is_found_and_never_changes_again(records).await;
    lists_a_principals_calls_at_a_server_the_latest_first(records).await;
    an_id_whose_time_is_over_may_be_taken_again(records).await;
}

/// Even before a sweep: the client that chose the id makes another call with it.
async fn an_id_whose_time_is_over_may_be_taken_again(records: &dyn CallRecords) {
    let over = |n| End { keep: Duration::ZERO, ..end(n) };
    let gone = OwnerId([9; 16]);
    let past = RecordKey { expires_ms: 1, ..key(41) };
    assert_eq!(records.finish(&key(40), OTHER, over("first")).await.unwrap(), Save::Stored);
    records.put(&past, gone, State::Working, text("first")).await.unwrap();
    for n in [40, 41] {
        let key = RecordKey { created_ms: 9, ..key(n) };
        assert_eq!(records.put(&key, LIVING, State::Working, text("again")).await.unwrap(), Save::Stored);
        let found = find(records, key.call).await.unwrap().unwrap();
        assert_eq!((found.created_ms, found.record, found.outcome), (9, text("again"), Bytes::new()));
        records.drop_record(key.call, key.created_ms, LIVING).await.unwrap();
    }
    assert_eq!(records.finish(&key(42), OTHER, over("first")).await.unwrap(), Save::Stored);
    assert_eq!(records.finish(&key(42), LIVING, end("again")).await.unwrap(), Save::Stored);
    // An owner with a lease still runs it.
    let runs = RecordKey { expires_ms: 1, ..key(43) };
    records.put(&runs, LIVING, State::Working, text("runs")).await.unwrap();
    assert_eq!(records.put(&runs, gone, State::Working, text("x")).await.unwrap(), Save::NotOwner);
    for n in [42, 43] {
        records.drop_record(key(n).call, BEGAN, LIVING).await.unwrap();
    }
}

async fn keeps_the_newest_capsule_and_the_memory_beside_it(records: &dyn CallRecords) {
    let call = key(1).call;
    let early = records.save_capsule(call, LIVING, (1, text("x")), text("x")).await.unwrap();
    assert_eq!(early, Save::NotOwner, "there is no record yet");
    begin(records, 1).await;
    for (seq, capsule, expected) in
        [(2, "b", Save::Stored), (1, "a", Save::Stale), (2, "x", Save::Stale), (5, "c", Save::Stored)]
    {
        let saved = records.save_capsule(call, LIVING, (seq, text(capsule)), text("memory")).await.unwrap();
        assert_eq!(saved, expected, "{seq}");
    }
    assert_eq!(records.save_memory(call, LIVING, text("newer")).await.unwrap(), Save::Stored);
    let again = records.put(&key(1), LIVING, State::InputRequired, text("asked again")).await.unwrap();
    assert_eq!(again, Save::Stored);
    let found = find(records, call).await.unwrap().unwrap();
    assert_eq!((found.seq, found.capsule, found.memory), (5, text("c"), text("newer")));
    assert_eq!((found.org.as_str(), found.plugin.as_str()), ("acme", "sweep@1.0.0"));
    assert_eq!((found.server.as_str(), found.context.as_str()), ("demo", "trip"));
    assert_eq!((found.principal, found.created_ms, found.resumes), ([7; 16], 5, true));
    assert_eq!((found.owner, found.record), (Some(LIVING), text("asked again")));
    assert_eq!((found.state, found.outcome), (State::InputRequired, Bytes::new()));
}

async fn only_the_owner_changes_a_record(records: &dyn CallRecords) {
    let call = key(1).call;
    assert_eq!(records.put(&key(1), OTHER, State::Working, text("x")).await.unwrap(), Save::NotOwner);
    assert_eq!(records.save_memory(call, OTHER, text("x")).await.unwrap(), Save::NotOwner);
    let saved = records.save_capsule(call, OTHER, (9, text("x")), text("x")).await.unwrap();
    assert_eq!(saved, Save::NotOwner);
    assert_eq!(records.finish(&key(1), OTHER, end("x")).await.unwrap(), Save::NotOwner);
    assert!(!records.drop_record(call, BEGAN, OTHER).await.unwrap(), "it is another owner's");
    let found = find(records, call).await.unwrap().unwrap();
    assert_eq!((found.owner, found.seq, found.record), (Some(LIVING), 5, text("asked again")));
    assert_eq!(found.state, State::InputRequired);
}

async fn keeps_calls_apart_and_forgets_what_is_dropped(records: &dyn CallRecords) {
    begin(records, 2).await;
    assert!(records.drop_record(key(1).call, BEGAN, LIVING).await.unwrap());
    assert!(!records.drop_record(key(1).call, BEGAN, LIVING).await.unwrap(), "it is gone");
    assert!(!records.drop_record(key(9).call, BEGAN, LIVING).await.unwrap(), "there was none");
    // A later call with the id that its client chose.
    let later = RecordKey { created_ms: BEGAN + 1, ..key(3) };
    begin(records, 3).await;
    records.put(&later, LIVING, State::Working, text("asked later")).await.unwrap();
    assert!(!records.drop_record(key(3).call, BEGAN, LIVING).await.unwrap(), "it began later");
    let found = find(records, key(3).call).await.unwrap().unwrap();
    assert_eq!((found.created_ms, found.record), (later.created_ms, text("asked later")));
    assert!(records.drop_record(key(3).call, later.created_ms, LIVING).await.unwrap());
    assert_eq!(find(records, key(3).call).await.unwrap(), None);
    assert_eq!(find(records, key(1).call).await.unwrap(), None);
    assert!(find(records, key(2).call).await.unwrap().is_some());
    assert_eq!(records.save_memory(key(1).call, LIVING, text("late")).await.unwrap(), Save::NotOwner);
}

async fn an_orphan_has_exactly_one_taker(records: &dyn CallRecords) {
    let dead = OwnerId([3; 16]);
    let another = OwnerId([4; 16]);
    assert_eq!(records.renew(dead, LEASE).await.unwrap(), Lease::Held);
    records.renew(another, LEASE).await.unwrap();
    for n in [3, 4] {
        records.put(&key(n), dead, State::Working, text("asked")).await.unwrap();
    }
    let past = RecordKey { expires_ms: 1, ..key(5) };
    records.put(&past, dead, State::Working, text("asked")).await.unwrap();
    let orphan = Orphan { call: key(3).call, owner: dead };
    assert!(records.orphans(9).await.unwrap().is_empty(), "every owner lives");
    assert!(!records.take(&orphan, LIVING).await.unwrap(), "its owner lives");

    records.retire(dead).await.unwrap();
    let mut calls: Vec<CallId> = records.orphans(9).await.unwrap().iter().map(|orphan| orphan.call).collect();
    calls.sort_unstable();
    assert_eq!(calls, [key(3).call, key(4).call]);
    assert_eq!(records.orphans(1).await.unwrap().len(), 1);
    let (first, second) = tokio::join!(records.take(&orphan, LIVING), records.take(&orphan, another));
    assert!(first.unwrap() ^ second.unwrap(), "one of them takes it");
    assert!(!records.take(&orphan, LIVING).await.unwrap(), "it is no orphan any more");
    let takeovers = async || find(records, key(3).call).await.unwrap().unwrap().takeovers;
    assert_eq!(takeovers().await, 1);
    assert_eq!(find(records, key(4).call).await.unwrap().unwrap().takeovers, 0);
    assert_eq!(records.save_memory(key(3).call, dead, text("late")).await.unwrap(), Save::NotOwner);
    let gone = Orphan { call: key(8).call, owner: dead };
    assert!(!records.take(&gone, LIVING).await.unwrap());
}

async fn an_orphan_that_is_given_up_is_nobodys_and_is_kept(records: &dyn CallRecords) {
    let (dead, quick) = (OwnerId([44; 16]), OwnerId([45; 16]));
    let soon = now_ms() + 60_000;
    records.renew(dead, LEASE).await.unwrap();
    records
        .put(&RecordKey { expires_ms: soon, ..key(44) }, dead, State::Working, text("asked"))
        .await
        .unwrap();
    records.save_capsule(key(44).call, dead, (1, text("c")), text("m")).await.unwrap();
    let orphan = Orphan { call: key(44).call, owner: dead };
    assert!(!records.give_up(&orphan, LIVING, HOUR).await.unwrap(), "its owner lives");
    records.retire(dead).await.unwrap();
    records.renew(NO_ROOM, LEASE).await.unwrap();
    assert!(!records.give_up(&orphan, LIVING, HOUR).await.unwrap(), "a gateway takes it once it has room");
    records.renew(NO_ROOM, Duration::ZERO).await.unwrap();
    assert!(records.give_up(&orphan, LIVING, HOUR).await.unwrap());
    assert!(!records.give_up(&orphan, LIVING, HOUR).await.unwrap(), "it is no orphan any more");
    assert!(!records.take(&orphan, LIVING).await.unwrap());
    assert!(!records.orphans(99).await.unwrap().iter().any(|orphan| orphan.call == key(44).call));
    let found = find(records, key(44).call).await.unwrap().unwrap();
    assert_eq!((found.owner, found.resumes, found.state), (Some(NOBODY), false, State::Failed));
    assert!(records.continued(&[key(44).call]).await.unwrap().is_empty());
    assert_eq!((found.record, found.capsule, found.memory), (text("asked"), Bytes::new(), Bytes::new()));
    assert!(found.is_left && found.is_retired && found.expires_ms > soon);
    assert_eq!(records.save_memory(key(44).call, dead, text("late")).await.unwrap(), Save::NotOwner);
    let late = records.finish(&key(44), dead, end("late")).await.unwrap();
    assert_eq!(late, Save::NotOwner, "an owner that comes back says nothing of it");

    // A gateway that has just returned cannot judge one whose lease has lapsed.
    let slow = OwnerId([46; 16]);
    records.put(&key(46), slow, State::Working, text("asked")).await.unwrap();
    for owner in [slow, quick] {
        records.renew(owner, Duration::ZERO).await.unwrap();
    }
    assert_eq!(records.renew(quick, LEASE).await.unwrap(), Lease::Lapsed);
    let orphan = Orphan { call: key(46).call, owner: slow };
    assert!(!records.give_up(&orphan, quick, HOUR).await.unwrap());
    for (n, owner) in [(46, slow), (44, NOBODY)] {
        records.drop_record(key(n).call, BEGAN, owner).await.unwrap();
    }
}

/// Finds a call's record, and checks that its status is the same when read alone.
async fn find(records: &dyn CallRecords, call: CallId) -> Result<Option<CallRecord>, RecordError> {
    let found = records.find(call).await?;
    let stand = records.stand(call).await?;
    assert_eq!(stand, found.as_ref().map(CallRecord::stand));
    Ok(found)
}

async fn is_left(records: &dyn CallRecords, n: u8) -> bool {
    find(records, key(n).call).await.unwrap().unwrap().is_left
}

async fn an_owner_that_was_away_too_long_is_told(records: &dyn CallRecords) {
    let away = OwnerId([6; 16]);
    records.put(&key(6), away, State::Working, text("asked")).await.unwrap();
    assert_eq!(records.renew(away, Duration::ZERO).await.unwrap(), Lease::Held);
    let orphans = records.orphans(9).await.unwrap();
    assert!(orphans.contains(&Orphan { call: key(6).call, owner: away }));
    assert!(!is_left(records, 6).await, "it may live, and have waited for the store");
    assert_eq!(records.renew(away, LEASE).await.unwrap(), Lease::Lapsed);
    assert!(!is_left(records, 6).await);
    assert_eq!(records.renew(away, LEASE).await.unwrap(), Lease::Held);
    assert_eq!(records.save_memory(key(6).call, away, text("kept")).await.unwrap(), Save::Stored);
}

/// After an outage of the store all leases have expired, and the first to return cannot judge the others.
async fn who_has_just_lapsed_takes_nothing_from_others_that_have(records: &dyn CallRecords) {
    let (slow, quick) = (OwnerId([26; 16]), OwnerId([27; 16]));
    records.put(&key(26), slow, State::Working, text("asked")).await.unwrap();
    for owner in [slow, quick] {
        records.renew(owner, Duration::ZERO).await.unwrap();
    }
    assert_eq!(records.renew(quick, LEASE).await.unwrap(), Lease::Lapsed);
    let orphan = Orphan { call: key(26).call, owner: slow };
    assert!(records.orphans(99).await.unwrap().contains(&orphan));
    assert!(!records.take(&orphan, quick).await.unwrap(), "it has only just come back");
    assert_eq!(records.renew(slow, LEASE).await.unwrap(), Lease::Lapsed);
    assert_eq!(records.owners(&[key(26).call, [200; 16]]).await.unwrap(), [(key(26).call, Some(slow))]);
    assert!(!find(records, key(26).call).await.unwrap().unwrap().is_retired);
    records.retire(slow).await.unwrap();
    let left = find(records, key(26).call).await.unwrap().unwrap();
    assert!(left.is_left && left.is_retired);
    assert!(records.take(&orphan, quick).await.unwrap(), "what was given up is anybody's");
    records.drop_record(key(26).call, BEGAN, quick).await.unwrap();
}

async fn what_only_tells_of_a_call_is_no_orphan_and_replaces_nothing(records: &dyn CallRecords) {
    let gone = OwnerId([5; 16]);
    let tells = |n| RecordKey { resumes: false, ..key(n) };
    records.put(&tells(10), gone, State::AuthRequired, text("told")).await.unwrap();
    let orphan = Orphan { call: key(10).call, owner: gone };
    assert!(!records.orphans(99).await.unwrap().contains(&orphan));
    assert!(!records.take(&orphan, LIVING).await.unwrap());
    assert!(is_left(records, 10).await);
    assert!(records.continued(&[key(10).call]).await.unwrap().is_empty(), "nobody ends it");
    records.put(&tells(34), LIVING, State::Working, text("told")).await.unwrap();
    assert_eq!(records.continued(&[key(34).call]).await.unwrap(), [key(34).call], "its gateway runs it");
    records.drop_record(key(34).call, BEGAN, LIVING).await.unwrap();
    assert_eq!(find(records, key(10).call).await.unwrap().unwrap().state, State::AuthRequired);
    records.put(&key(10), gone, State::Working, text("asked")).await.unwrap();
    records.put(&tells(10), gone, State::InputRequired, text("told")).await.unwrap();
    let found = find(records, key(10).call).await.unwrap().unwrap();
    assert_eq!((found.record, found.resumes, found.state), (text("asked"), true, State::InputRequired));
    assert!(records.orphans(99).await.unwrap().contains(&orphan));
    assert_eq!(records.continued(&[key(10).call, [200; 16]]).await.unwrap(), [key(10).call]);
    records.drop_record(key(10).call, BEGAN, gone).await.unwrap();
}

async fn a_record_counts_as_long_as_it_was_said_at_most(records: &dyn CallRecords) {
    let later = now_ms() + 3_600_000;
    for expires_ms in [later - 1, later, later - 1] {
        let told = RecordKey { expires_ms, ..key(30) };
        records.put(&told, LIVING, State::Working, text("asked")).await.unwrap();
    }
    assert_eq!(find(records, key(30).call).await.unwrap().unwrap().expires_ms, later);
    records.drop_record(key(30).call, BEGAN, LIVING).await.unwrap();
}

async fn what_has_ended_is_found_and_never_changes_again(records: &dyn CallRecords) {
    let call = key(20).call;
    let gone = OwnerId([8; 16]);
    records.put(&RecordKey { expires_ms: 1, ..key(20) }, gone, State::Working, text("asked")).await.unwrap();
    records.save_capsule(call, gone, (1, text("capsule")), text("memory")).await.unwrap();
    let before = now_ms();
    let long = End { keep: MAX_KEEP * 2, ..end("done") };
    assert_eq!(records.finish(&key(20), gone, long).await.unwrap(), Save::Stored);
    let ended = find(records, call).await.unwrap().unwrap();
    assert_eq!((ended.state, ended.owner, ended.resumes), (State::Completed, None, false));
    assert!(!ended.is_left, "nobody has to come");
    assert_eq!((&ended.record, &ended.outcome), (&text("told"), &text("done")));
    assert_eq!((&ended.capsule, &ended.memory), (&Bytes::new(), &Bytes::new()), "nothing goes on from there");
    assert_eq!((ended.created_ms, ended.updated_ms >= before), (5, true));
    let day = i64::try_from(MAX_KEEP.as_millis()).unwrap();
    assert!((before + day..=now_ms() + day).contains(&ended.expires_ms), "a day at most");

    let orphan = Orphan { call, owner: gone };
    assert!(!records.orphans(99).await.unwrap().contains(&orphan));
    assert!(!records.take(&orphan, LIVING).await.unwrap());
    for owner in [gone, OTHER] {
        assert_eq!(records.put(&key(20), owner, State::Working, text("x")).await.unwrap(), Save::NotOwner);
        assert_eq!(records.save_memory(call, owner, text("x")).await.unwrap(), Save::NotOwner);
        assert_eq!(records.finish(&key(20), owner, end("x")).await.unwrap(), Save::NotOwner);
        records.drop_record(call, BEGAN, owner).await.unwrap();
    }
    assert_eq!(find(records, call).await.unwrap(), Some(ended));
    // A call without a record gets one at its end.
    assert_eq!(records.finish(&key(21), LIVING, end("late")).await.unwrap(), Save::Stored);
    assert_eq!(find(records, key(21).call).await.unwrap().unwrap().outcome, text("late"));
}

async fn lists_a_principals_calls_at_a_server_the_latest_first(records: &dyn CallRecords) {
    // In the order of time, not of ids.
    let began = |n: u8| if n == 32 { 7 } else { i64::from(40 - n) };
    let mine = |n| RecordKey { principal: [9; 16], created_ms: began(n), ..key(n) };
    for key in [mine(31), mine(33), RecordKey { server: "other".into(), ..mine(34) }, key(35)] {
        records.put(&key, LIVING, State::Working, text("asked")).await.unwrap();
    }
    records.finish(&mine(32), LIVING, end("done")).await.unwrap();
    records.finish(&mine(36), LIVING, End { keep: Duration::ZERO, ..end("past") }).await.unwrap();
    let list = async |before: Option<u8>, limit| {
        let before = before.map(|n| (began(n), [n; 16]));
        let listing =
            Listing { principal: [9; 16], server: "demo", order: ListOrder::Created, before, limit };
        let listed = records.list(&listing).await.unwrap();
        listed.into_iter().map(|(call, record)| (call[0], record.state)).collect::<Vec<_>>()
    };
    let all = [(31, State::Working), (33, State::Working), (32, State::Completed)];
    assert_eq!(list(None, 9).await, all);
    assert_eq!(list(None, 2).await, all[..2]);
    assert_eq!(list(Some(31), 9).await, all[1..]);
    assert_eq!(list(Some(33), 9).await, all[2..]);
    assert!(list(Some(32), 9).await.is_empty());
    let listing =
        Listing { principal: [9; 16], server: "demo", order: ListOrder::Created, before: None, limit: 9 };
    let last = records.list(&listing).await.unwrap().pop().unwrap().1;
    assert_eq!((last.record, last.outcome), (text("told"), text("")), "outcomes may be large");
    for n in [33, 31] {
        next_millisecond().await;
        records.put(&mine(n), LIVING, State::InputRequired, text("asked")).await.unwrap();
    }
    let changed = async |before: Option<(i64, CallId)>, limit| {
        let listing =
            Listing { principal: [9; 16], server: "demo", order: ListOrder::Updated, before, limit };
        let listed = records.list(&listing).await.unwrap();
        listed.into_iter().map(|(call, record)| (record.updated_ms, call)).collect::<Vec<_>>()
    };
    let all = changed(None, 9).await;
    assert_eq!(all.iter().map(|(_, call)| call[0]).collect::<Vec<_>>(), [31, 33, 32]);
    assert_eq!(changed(None, 1).await, all[..1]);
    assert_eq!(changed(Some(all[0]), 9).await, all[1..]);
    assert!(changed(Some(all[2]), 9).await.is_empty());
}

/// Waits until the clock has moved, which has a resolution of milliseconds.
async fn next_millisecond() {
    let now = now_ms();
    while now_ms() == now {
        tokio::task::yield_now().await;
    }
}

/// Stores the end of a call after all others, because the clock has a resolution of milliseconds.
async fn finish_last(records: &dyn CallRecords, key: &RecordKey, end: End) {
    let ended = now_ms();
    assert_eq!(records.finish(key, LIVING, end).await.unwrap(), Save::Stored);
    records.room_made().await;
    while now_ms() == ended {
        tokio::task::yield_now().await;
    }
}

async fn kept_of(records: &dyn CallRecords, calls: &[u8]) -> Vec<u8> {
    let mut kept = Vec::new();
    for n in calls {
        kept.extend(find(records, [*n; 16]).await.unwrap().map(|_| *n));
    }
    kept
}

/// Runs against an empty store with the quotas [`SMALL`] (I-4).
pub async fn keeps_to_its_bounds(records: &dyn CallRecords) {
    let all = [50, 51, 52, 53, 54, 55, 60, 61, 62, 63, 98, 99];
    let of_another = |n| RecordKey { principal: [n; 16], user: [n; 16], ..key(n) };
    let elsewhere = RecordKey { org: "globex".into(), ..of_another(98) };
    finish_last(records, &elsewhere, end("of another org")).await;
    finish_last(records, &of_another(99), end("of another user")).await;
    begin(records, 50).await;
    for n in 51..=54 {
        finish_last(records, &key(n), end("x")).await;
    }
    let kept = kept_of(records, &all).await;
    assert_eq!(kept, [50, 52, 53, 54, 98, 99], "the first of four to end, and nothing that runs");
    let large = End { outcome: Bytes::from(vec![b'x'; 90]), ..end("") };
    finish_last(records, &key(51), large).await;
    assert_eq!(kept_of(records, &all).await, [50, 51, 54, 98, 99], "94 bytes leave room for 5");
    let by_another_client = RecordKey { principal: [8; 16], ..key(55) };
    finish_last(records, &by_another_client, end("x")).await;
    assert_eq!(kept_of(records, &all).await, [50, 51, 55, 98, 99], "they are of one user");
    for n in 60..=63 {
        finish_last(records, &of_another(n), end("x")).await;
    }
    let kept = kept_of(records, &all).await;
    assert_eq!(kept, [50, 55, 60, 61, 62, 63, 98], "five of the org, the first to end go first");
    // Deleted records and their bytes are no longer counted.
    for n in 64..=80 {
        finish_last(records, &of_another(n), end("x")).await;
    }
    assert_eq!(kept_of(records, &all).await, [50, 98]);
    let last: Vec<u8> = (64..=80).collect();
    assert_eq!(kept_of(records, &last).await, [76, 77, 78, 79, 80]);
}

/// Runs against a store in which no owner has a lease.
pub async fn an_owner_is_alone_until_another_one_has_a_lease(records: &dyn CallRecords) {
    let own = OwnerId([71; 16]);
    let other = OwnerId([72; 16]);
    records.renew(own, LEASE).await.unwrap();
    assert!(records.is_alone(own).await.unwrap());
    for lease in [LEASE, Duration::ZERO] {
        records.renew(other, lease).await.unwrap();
        assert!(!records.is_alone(own).await.unwrap(), "it may serve clients, also without a lease");
        assert!(!records.is_alone(other).await.unwrap());
    }
    records.retire(other).await.unwrap();
    assert!(records.is_alone(own).await.unwrap());
}
