//! Lists of revocations, the condition for completeness, and their succession.

use super::*;
use asp_proto::snapshot::RevokedBefore;

fn mark(number: u128) -> Mark {
    number.to_be_bytes()
}

fn marks(numbers: &[u128]) -> Vec<u8> {
    numbers.iter().flat_map(|number| mark(*number)).collect()
}

fn before(org: &str, user: &str, not_after_iat: u64) -> RevokedBefore {
    RevokedBefore { org: org.into(), user: user.into(), not_after_iat, ..Default::default() }
}

/// Returns a base up to this time, with these marks, from a message with separate recent revocations.
fn apart(through: u64, numbers: &[u128]) -> Revocations {
    let mut message = EdgeSnapshot {
        revoked: marks(numbers),
        revoked_through: through,
        revocations_apart: true,
        ..EdgeSnapshot::default()
    };
    Revocations::take(&mut message).unwrap()
}

fn list(revision: u64, since: u64, until: u64, numbers: &[u128]) -> RecentRevocations {
    RecentRevocations { revision, since, until, revoked: marks(numbers), ..RecentRevocations::default() }
}

fn recent(revision: u64, since: u64, until: u64, numbers: &[u128]) -> Arc<RecentList> {
    Arc::new(RecentList::from_message(list(revision, since, until, numbers)).unwrap())
}

fn caller(org: &str, user: &str, issued_at: u64) -> Caller {
    Caller {
        org: org.into(),
        user: user.into(),
        groups: Vec::new(),
        scopes: Vec::new(),
        client: String::new(),
        wcit: String::new(),
        digest: [0; 32],
        issuer: "i".into(),
        issued_at,
        expires_at: u64::MAX,
    }
}

fn lists(revocations: &Revocations, number: u128) -> bool {
    revocations.find(|| [mark(number)], &caller("o", "u", 1)).is_some()
}

#[test]
fn a_listed_mark_is_found_and_its_neighbours_are_not() {
    let numbers: Vec<u128> = (0..1000).map(|number| number * 2 + 1).collect();
    let revocations = apart(0, &numbers);
    for number in 0..1000 {
        assert!(lists(&revocations, number * 2 + 1));
        assert!(!lists(&revocations, number * 2));
    }
    assert!(!lists(&revocations, u128::MAX));
    assert!(!lists(&Revocations::default(), 0));
}

#[test]
fn entries_out_of_order_or_cut_short_are_refused() {
    for revoked in [marks(&[2, 1]), vec![1; 17]] {
        let mut message = EdgeSnapshot { revoked: revoked.clone(), ..EdgeSnapshot::default() };
        assert!(Revocations::take(&mut message).is_err());
        let part = RevokedPart { revoked: revoked.clone(), ..RevokedPart::default() };
        assert!(Revocations::default().changed(Some(part), None).is_err());
        let bad = RecentRevocations { revoked, ..list(1, 0, 0, &[]) };
        assert!(Revocations::default().changed(None, Some(bad)).is_err());
    }
}

#[test]
fn the_latest_moment_counts_for_the_user_and_for_the_whole_org() {
    let mut message = EdgeSnapshot {
        revoked_before: vec![before("a", "u", 100), before("a", "u", 50), before("b", "", 10)],
        ..EdgeSnapshot::default()
    };
    let revocations = Revocations::take(&mut message).unwrap();
    let dead = |org, user, issued_at| revocations.find(|| [mark(0)], &caller(org, user, issued_at)).is_some();
    assert!(dead("a", "u", 100) && !dead("a", "u", 101));
    assert!(!dead("a", "v", 1) && !dead("c", "u", 1));
    assert!(dead("b", "anyone", 10) && !dead("b", "anyone", 11));
}

#[test]
fn no_bytes_are_no_list_of_recent_revocations() {
    assert!(RecentList::decode(b"").is_err());
    assert!(RecentList::decode(b"\x08").is_err());
    let bytes = prost::Message::encode_to_vec(&list(3, 5, 7, &[1]));
    assert_eq!(RecentList::decode(&bytes).unwrap().revision(), 3);
}

/// Invariant I-4.
#[test]
fn a_list_of_too_many_entries_of_either_kind_is_refused() {
    let numbers: Vec<u128> = (0..262_144).collect();
    let full = list(1, 0, 1, &numbers);
    assert!(RecentList::from_message(full.clone()).is_ok());
    let more = RecentRevocations { revoked_before: vec![before("o", "u", 1)], ..full };
    assert!(RecentList::from_message(more).is_err());
    let repeated =
        RecentRevocations { revoked_before: vec![before("o", "u", 1); 262_145], ..list(1, 0, 1, &[]) };
    assert!(RecentList::from_message(repeated).is_err());
}

#[test]
fn lists_that_come_apart_are_complete_when_they_meet() {
    assert!(Revocations::take(&mut EdgeSnapshot::default()).unwrap().complete());
    let base = apart(100, &[1]);
    assert!(!base.complete());
    assert!(base.with_recent(&recent(1, 100, 110, &[])).complete());
    assert!(base.with_recent(&recent(1, 50, 110, &[])).complete());
    assert!(!base.with_recent(&recent(1, 101, 110, &[])).complete());
}

#[test]
fn both_lists_count_whether_or_not_they_are_complete() {
    let revocations = apart(100, &[1]).with_recent(&recent(1, 101, 110, &[2]));
    assert!(lists(&revocations, 1) && lists(&revocations, 2) && !lists(&revocations, 3));
}

#[test]
fn a_list_of_a_lower_revision_is_left_out_and_an_equal_one_is_not() {
    let held = apart(100, &[]).with_recent(&recent(5, 100, 110, &[1]));
    assert!(lists(&held.with_recent(&recent(4, 100, 120, &[])), 1));
    assert!(!lists(&held.with_recent(&recent(5, 100, 120, &[])), 1));
}

#[test]
fn a_list_that_comes_before_its_base_is_joined_with_the_one_held() {
    let base = apart(100, &[1]);
    let held = base.with_recent(&recent(5, 100, 200, &[2]));
    let joined = held.with_recent(&recent(6, 150, 210, &[3]));
    assert!(joined.complete());
    assert!([1, 2, 3].iter().all(|number| lists(&joined, *number)) && !lists(&joined, 4));
    // Again, as after a reconnection, and further lists before the base arrives.
    let joined = joined.with_recent(&recent(6, 150, 210, &[3])).with_recent(&recent(7, 210, 220, &[4]));
    assert!(joined.complete());
    assert!([1, 2, 3, 4].iter().all(|number| lists(&joined, *number)));
    assert_eq!(joined.recent().unwrap().revision(), 7);
    // The base has arrived: the next list stands alone.
    let folded = Revocations { base: apart(210, &[1, 2, 3]).base, through: Some(210), ..joined };
    let next = folded.with_recent(&recent(8, 210, 230, &[]));
    assert!(next.complete());
    assert!(lists(&next, 3) && !lists(&next, 4));
}

/// Clocks of two control planes differ: the newer list may end before the current one.
#[test]
fn a_joined_list_ends_with_the_later_of_the_two() {
    let held = apart(100, &[]).with_recent(&recent(5, 100, 200, &[2]));
    let joined = held.with_recent(&recent(6, 150, 140, &[3]));
    let again = joined.with_recent(&recent(6, 150, 140, &[3]));
    assert!(joined.complete() && again.complete());
}

#[test]
fn lists_are_not_joined_over_a_gap_nor_where_the_one_held_is_not_complete() {
    let base = apart(100, &[]);
    let gap = base.with_recent(&recent(5, 100, 200, &[2])).with_recent(&recent(6, 201, 210, &[3]));
    assert!(!gap.complete() && !lists(&gap, 2) && lists(&gap, 3));
    let late = base.with_recent(&recent(5, 101, 200, &[2])).with_recent(&recent(6, 150, 210, &[3]));
    assert!(!late.complete() && !lists(&late, 2) && lists(&late, 3));
}

/// Invariant I-4.
#[test]
fn lists_of_too_many_entries_are_not_joined() {
    let many: Vec<u128> = (0..20_000).collect();
    let held = apart(100, &[]).with_recent(&recent(5, 100, 200, &many));
    assert!(held.with_recent(&recent(6, 150, 210, &[7])).complete());
    let over = held.with_recent(&recent(6, 150, 210, &[20_000]));
    assert!(!over.complete() && !lists(&over, 7));
}

#[test]
fn the_later_moment_of_two_joined_lists_counts() {
    let of = |revision, since, moment| {
        let list = RecentRevocations {
            revoked_before: vec![before("o", "", moment)],
            ..list(revision, since, 200, &[])
        };
        Arc::new(RecentList::from_message(list).unwrap())
    };
    let joined = apart(100, &[]).with_recent(&of(1, 100, 50)).with_recent(&of(2, 150, 20));
    assert!(joined.find(|| [mark(0)], &caller("o", "u", 50)).is_some());
    assert!(joined.find(|| [mark(0)], &caller("o", "u", 51)).is_none());
}

#[test]
fn changes_are_complete_once_both_parts_came_in_any_order() {
    let boot = Revocations::default();
    let part = RevokedPart { through: 100, revoked: marks(&[1]), ..RevokedPart::default() };
    assert!(boot.complete() && !boot.changed(None, None).unwrap().complete());
    let base = boot.changed(Some(part.clone()), None).unwrap();
    assert!(!base.complete());
    assert!(base.changed(None, Some(list(1, 100, 110, &[2]))).unwrap().complete());
    let recent = boot.changed(None, Some(list(1, 100, 110, &[2]))).unwrap();
    assert!(!recent.complete());
    let both = recent.changed(Some(part.clone()), None).unwrap();
    assert!(both.complete() && lists(&both, 1) && lists(&both, 2));
    assert!(boot.changed(Some(part), Some(list(1, 100, 110, &[]))).unwrap().complete());
}

#[test]
fn a_block_is_found_before_a_revocation_and_hits_every_issue_time() {
    let block = |user: &str, since_ms: u64| RevokedBefore {
        since_ms,
        reason: "left".into(),
        block: true,
        ..before("o", user, u64::MAX)
    };
    let mut message = EdgeSnapshot {
        revoked_before: vec![before("o", "", 5), block("u", 7_000)],
        ..EdgeSnapshot::default()
    };
    let revocations = Revocations::take(&mut message).unwrap();
    let find = |revocations: &Revocations, user: &str, issued_at: u64| {
        revocations.find(|| [mark(0)], &caller("o", user, issued_at))
    };
    for issued_at in [0, 5, 6, u64::MAX] {
        let notice = find(&revocations, "u", issued_at).unwrap();
        assert_eq!((notice.is_block, notice.since_ms, notice.text.as_str()), (true, 7_000, "left"));
    }
    assert_eq!(find(&revocations, "v", 5), Some(RevocationNotice::default()));
    assert_eq!(find(&revocations, "v", 6), None);
    // A block in the recent list is in force beside a base without it, and not after it was lifted.
    let with = |entries: Vec<RevokedBefore>, revision: u64| {
        let list = RecentRevocations { revoked_before: entries, ..list(revision, 0, 9, &[]) };
        revocations.with_recent(&Arc::new(RecentList::from_message(list).unwrap()))
    };
    let blocked = with(vec![block("v", 8_000)], 2);
    assert_eq!(find(&blocked, "v", 100).map(|notice| notice.since_ms), Some(8_000));
    let lifted = with(Vec::new(), 3);
    assert_eq!(find(&lifted, "v", 100), None);
}

#[test]
fn a_revoked_token_has_its_details_only_where_the_recent_list_has_them() {
    let token = |number: u128, since_ms: u64| asp_proto::snapshot::RevokedToken {
        entry: mark(number).to_vec(),
        since_ms,
        reason: "leak".into(),
    };
    let mut message = list(1, 0, 9, &[1, 2]);
    message.tokens = vec![token(1, 3_000), asp_proto::snapshot::RevokedToken::default()];
    let first = RecentList::from_message(message).unwrap();
    let mut message = list(2, 5, 20, &[3]);
    message.tokens = vec![token(3, 4_000)];
    let joined = first.merge(&RecentList::from_message(message).unwrap()).unwrap();
    let revocations = apart(0, &[4]).with_recent(&Arc::new(joined));
    let since = |number: u128| {
        let found = revocations.find(|| [mark(number)], &caller("o", "u", 1));
        found.map(|notice| (notice.since_ms, notice.text.len(), notice.is_block))
    };
    assert_eq!(
        [1, 2, 3, 4].map(since),
        [Some((3_000, 4, false)), Some((0, 0, false)), Some((4_000, 4, false)), Some((0, 0, false))]
    );
    assert_eq!((since(5), revocations.newest_ms()), (None, 4_000));
}
