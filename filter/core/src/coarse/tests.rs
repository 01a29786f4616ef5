//! The buckets, with a clock of their own.

use super::*;

fn limit(org: &str, user: &str, primitive: &str, rate_per_second: f64, burst: u32) -> CoarseLimit {
    CoarseLimit {
        org: org.into(),
        server: "*".into(),
        user: user.into(),
        wcit: "*".into(),
        primitive: primitive.into(),
        rate_per_second,
        burst,
        issuer: String::new(),
    }
}

fn subject<'a>(org: &'a str, user: &'a str, primitive: Option<&'a str>) -> LimitSubject<'a> {
    LimitSubject { server: "demo", org, issuer: "dev", user, wcit: "w", primitive }
}

/// Returns how many of `tries` simultaneous requests pass.
fn passed(
    buckets: &Buckets,
    limits: &CoarseLimits,
    subject: &LimitSubject<'_>,
    stage: Stage,
    now_ms: u64,
    tries: usize,
) -> usize {
    (0..tries).filter(|_| buckets.take(limits, subject, stage, now_ms).is_ok()).count()
}

#[test]
fn a_burst_passes_and_then_the_rate() {
    let limits = CoarseLimits::index(&[limit("*", "*", "*", 10.0, 5)], 1);
    let buckets = Buckets::default();
    let alice = subject("acme", "alice", None);
    assert_eq!(passed(&buckets, &limits, &alice, Stage::Every, 1_000_000, 20), 5);
    assert_eq!(passed(&buckets, &limits, &alice, Stage::Every, 1_000_099, 5), 0);
    assert_eq!(passed(&buckets, &limits, &alice, Stage::Every, 1_000_100, 5), 1);
    assert_eq!(
        passed(&buckets, &limits, &alice, Stage::Every, 1_001_100, 20),
        5,
        "a second refills the whole burst"
    );
}

#[test]
fn each_worker_grants_its_share() {
    let limits = CoarseLimits::index(&[limit("*", "*", "*", 100.0, 8)], 4);
    let buckets = Buckets::default();
    let alice = subject("acme", "alice", None);
    assert_eq!(passed(&buckets, &limits, &alice, Stage::Every, 1_000_000, 50), 2);
    assert_eq!(passed(&buckets, &limits, &alice, Stage::Every, 1_000_040, 50), 1);
}

#[test]
fn orgs_have_buckets_of_their_own_and_other_callers_are_not_counted() {
    let limits = CoarseLimits::index(&[limit("*", "alice", "*", 1.0, 1)], 1);
    let buckets = Buckets::default();
    for org in ["acme", "beta"] {
        assert_eq!(passed(&buckets, &limits, &subject(org, "alice", None), Stage::Every, 1, 3), 1);
    }
    assert_eq!(passed(&buckets, &limits, &subject("acme", "bob", None), Stage::Every, 1, 3), 3);
}

#[test]
fn a_limit_over_a_name_is_asked_when_the_name_is_known() {
    let limits = CoarseLimits::index(&[limit("*", "*", "heavy.*", 1.0, 1)], 1);
    let buckets = Buckets::default();
    let heavy = subject("acme", "alice", Some("heavy.x"));
    assert_eq!(passed(&buckets, &limits, &heavy, Stage::Every, 1, 3), 3);
    assert_eq!(passed(&buckets, &limits, &heavy, Stage::Named, 1, 3), 1);
    assert_eq!(passed(&buckets, &limits, &subject("acme", "alice", Some("light")), Stage::Named, 1, 3), 3);
}

#[test]
fn a_refusal_by_one_limit_takes_nothing_from_another() {
    let limits = CoarseLimits::index(&[limit("*", "*", "*", 1.0, 10), limit("*", "alice", "*", 1.0, 1)], 1);
    let buckets = Buckets::default();
    assert_eq!(passed(&buckets, &limits, &subject("acme", "alice", None), Stage::Every, 1, 50), 1);
    assert_eq!(passed(&buckets, &limits, &subject("acme", "bob", None), Stage::Every, 1, 50), 9);
}

#[test]
fn the_wait_is_told_in_whole_seconds() {
    let limits = CoarseLimits::index(&[limit("*", "*", "*", 0.1, 1)], 1);
    let buckets = Buckets::default();
    let alice = subject("acme", "alice", None);
    assert_eq!(buckets.take(&limits, &alice, Stage::Every, 0), Ok(()));
    assert_eq!(buckets.take(&limits, &alice, Stage::Every, 0), Err(10));
    assert_eq!(buckets.take(&limits, &alice, Stage::Every, 9_999), Err(1));
    assert_eq!(buckets.take(&limits, &alice, Stage::Every, 10_000), Ok(()));
}

#[test]
fn a_clock_that_goes_back_does_not_open_the_bucket() {
    let limits = CoarseLimits::index(&[limit("*", "*", "*", 1.0, 1)], 1);
    let buckets = Buckets::default();
    let alice = subject("acme", "alice", None);
    assert_eq!(buckets.take(&limits, &alice, Stage::Every, 100_000), Ok(()));
    assert!(buckets.take(&limits, &alice, Stage::Every, 50_000).is_err());
}

#[test]
fn a_million_orgs_take_no_more_memory_than_the_table() {
    let limits = CoarseLimits::index(&[limit("*", "*", "*", 1.0, 1)], 1);
    let buckets = Buckets::default();
    for number in 0..1_000_000 {
        let org = number.to_string();
        assert_eq!(
            buckets.take(&limits, &subject(&org, "u", None), Stage::Every, 5),
            Ok(()),
            "an org was charged for another"
        );
    }
    assert_eq!(buckets.sets.lock().unwrap().len(), SETS);
}

#[test]
fn a_rate_that_is_none_limits_nothing_and_leaves_the_others_in_force() {
    for rate in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let limits = CoarseLimits::index(&[limit("*", "*", "*", rate, 1), limit("*", "bob", "*", 1.0, 1)], 1);
        let buckets = Buckets::default();
        assert_eq!(
            passed(&buckets, &limits, &subject("acme", "alice", None), Stage::Every, 1, 3),
            3,
            "{rate}"
        );
        assert_eq!(passed(&buckets, &limits, &subject("acme", "bob", None), Stage::Every, 1, 3), 1, "{rate}");
    }
}

#[test]
fn the_slowest_rate_still_lets_its_burst_through() {
    for rate in [f64::MIN_POSITIVE, 0.001 / 3_600.0, 0.000_01] {
        let limits = CoarseLimits::index(&[limit("*", "*", "*", rate, 2)], 1);
        let buckets = Buckets::default();
        assert_eq!(
            passed(&buckets, &limits, &subject("acme", "alice", None), Stage::Every, 1, 5),
            2,
            "{rate}"
        );
    }
}

#[test]
fn a_limit_whose_rate_changes_keeps_its_bucket() {
    let buckets = Buckets::default();
    let alice = subject("acme", "alice", None);
    let at = |rate, now_ms| {
        let limits = CoarseLimits::index(&[limit("*", "*", "*", rate, 1)], 1);
        buckets.take(&limits, &alice, Stage::Every, now_ms)
    };
    assert_eq!(at(0.1, 1_000_000), Ok(()));
    assert_eq!(at(10.0, 1_000_000), Err(10), "charged at the rate of an earlier snapshot");
    assert_eq!(at(10.0, 1_010_000), Ok(()));
    assert_eq!(at(10.0, 1_010_100), Ok(()));
}

#[test]
fn a_bucket_of_centuries_does_not_overflow_its_time() {
    let limits = CoarseLimits::index(&[limit("*", "*", "*", 0.000_01, u32::MAX)], 1);
    let buckets = Buckets::default();
    let alice = subject("acme", "alice", None);
    assert_eq!(passed(&buckets, &limits, &alice, Stage::Every, 1_800_000_000_000, 1_000), 1_000);
}

#[test]
fn a_new_key_replaces_the_bucket_of_its_set_that_is_nearest_to_empty() {
    let mut sets = [[Bucket::default(); WAYS]];
    for (bucket, (key, arrival)) in sets[0].iter_mut().zip([(1, 30), (2, 10), (3, 20), (4, 40)]) {
        *bucket = Bucket { key: key * SETS as u64, arrival: arrival.into() };
    }
    assert_eq!(slot(&mut sets, 4 * SETS as u64).unwrap().arrival, 40.into());
    assert_eq!(slot(&mut sets, 5 * SETS as u64).unwrap().arrival, 10.into());
}

#[test]
fn a_budget_holds_for_each_key_by_itself_and_refills() {
    let budget = Budget::new(2, 3);
    let at = |key: &[u8], ms| budget.take(key, ms);
    for _ in 0..3 {
        assert_eq!(at(b"10.0.0.1", 1_000), Ok(()));
    }
    assert_eq!(at(b"10.0.0.1", 1_000), Err(1));
    assert_eq!(at(b"10.0.0.2", 1_000), Ok(()));
    assert_eq!(at(b"10.0.0.1", 1_500), Ok(()), "two a second");
    assert_eq!(at(b"10.0.0.1", 1_500), Err(1));
    budget.give_back(b"10.0.0.1");
    assert_eq!(at(b"10.0.0.1", 1_500), Ok(()));
    assert_eq!(at(b"10.0.0.1", 1_500), Err(1));
    budget.give_back(b"10.0.0.9");
}

#[test]
fn each_user_and_each_token_has_a_bucket_of_its_own() {
    let each = limit("acme", "each", "*", 1.0, 2);
    let limits = CoarseLimits::index(std::slice::from_ref(&each), 1);
    let buckets = Buckets::default();
    for user in ["alice", "bob", "each"] {
        assert_eq!(
            passed(&buckets, &limits, &subject("acme", user, None), Stage::Every, 1_000, 5),
            2,
            "{user}"
        );
    }
    let other_issuer = LimitSubject { issuer: "other", ..subject("acme", "alice", None) };
    assert_eq!(passed(&buckets, &limits, &other_issuer, Stage::Every, 1_000, 5), 2, "another alice");
    assert_eq!(passed(&buckets, &limits, &subject("globex", "alice", None), Stage::Every, 1_000, 5), 5);

    let limits = CoarseLimits::index(&[CoarseLimit { user: "*".into(), wcit: "each".into(), ..each }], 1);
    for wcit in ["t1", "t2"] {
        let token = LimitSubject { wcit, ..subject("acme", "alice", None) };
        assert_eq!(passed(&buckets, &limits, &token, Stage::Every, 1_000, 5), 2, "{wcit}");
    }
}

/// Cases that the gateway's exact limits are tested against too.
#[test]
fn who_is_counted_and_in_which_bucket_is_as_the_shared_vectors_have_it() {
    let rows: Vec<serde_json::Value> =
        serde_json::from_str(include_str!("../../../../tests/vectors/limits.json")).unwrap();
    for row in rows {
        let text = |of: &serde_json::Value, name: &str, missing: &str| {
            of[name].as_str().unwrap_or(missing).to_owned()
        };
        let selector = &row["limit"];
        let limit = CoarseLimit {
            user: text(selector, "user", "*"),
            wcit: text(selector, "wcit", "*"),
            issuer: text(selector, "issuer", ""),
            ..limit("acme", "*", "*", 1.0, 1)
        };
        let limits = CoarseLimits::index(&[limit], 1);
        let rule = &limits.rules[0];
        let buckets = Buckets::default();
        let mut known = std::collections::HashMap::new();
        for caller in row["callers"].as_array().unwrap() {
            let [issuer, user, wcit] = ["issuer", "user", "wcit"].map(|name| text(caller, name, "t"));
            let subject = LimitSubject { issuer: &issuer, wcit: &wcit, ..subject("acme", &user, None) };
            let bucket = rule.covers(&subject, Stage::Every).then(|| buckets.key(rule.bucket_of(&subject)));
            assert_eq!(bucket.is_some(), caller["bucket"].is_string(), "{row}: {caller}");
            if let Some(bucket) = bucket {
                assert_eq!(
                    *known.entry(text(caller, "bucket", "")).or_insert(bucket),
                    bucket,
                    "{row}: {caller}"
                );
            }
        }
        let apart: std::collections::HashSet<u64> = known.values().copied().collect();
        assert_eq!(apart.len(), known.len(), "{row}: one bucket for two");
    }
}
