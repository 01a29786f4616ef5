//! The limits against an exact model, in any order of clients, kinds and times, and under a flood of addresses.

use std::collections::HashMap;

use super::*;

const RATE: u32 = 50;
const BURST: u64 = 500;
const START_MS: u64 = 1_800_000_000_000;

fn meter<'a>(
    state: &'a UnauthenticatedLimits,
    network: &'a dyn Fn() -> Option<Network>,
    now_ms: u64,
) -> Meter<'a> {
    Meter { state, rate: RATE, network, now_ms }
}

fn client(number: u32) -> Network {
    Network::of(IpAddr::from(number.to_be_bytes()))
}

/// Takes one request of an anonymous client.
fn take(state: &UnauthenticatedLimits, network: Network, now_ms: u64) -> Result<(), u64> {
    meter(state, &|| Some(network), now_ms).take(UnauthenticatedKind::Anonymous).map(drop)
}

#[test]
fn a_network_is_an_ipv4_address_or_the_64_of_an_ipv6_one() {
    let same = [
        ("192.0.2.1:4711", "192.0.2.1"),
        ("[::ffff:192.0.2.1]:1", "192.0.2.1:2"),
        ("[2001:db8:1:2::1]:1", "2001:db8:1:2:ffff::9"),
    ];
    for (one, other) in same {
        assert!(Network::parse(one).is_some(), "{one}");
        assert_eq!(Network::parse(one), Network::parse(other), "{one} {other}");
    }
    assert_ne!(Network::parse("[2001:db8:1:2::1]:1"), Network::parse("[2001:db8:1:3::1]:1"));
    assert_ne!(Network::parse("192.0.2.1"), Network::parse("192.0.2.2"));
    for bad in
        ["", "x", "192.0.2", "192.0.2.1:", "192.0.2.1:99999", "[::1]", "/tmp/socket", "envoy://internal/"]
    {
        assert_eq!(Network::parse(bad), None, "{bad}");
    }
}

/// Property: whatever the order, a bucket admits exactly what a token bucket of its own would, so no kind and no client
/// takes from another.
#[test]
fn in_any_order_each_client_and_kind_has_exactly_its_own_bucket() {
    let state = UnauthenticatedLimits::default();
    // Microseconds of credit of each bucket, and the time of the last request.
    let mut model: HashMap<(Network, UnauthenticatedKind), (u64, u64)> = HashMap::new();
    let full = BURST * 20_000;
    let cost = 20_000;
    let mut random = 7_u64;
    let mut now_ms = START_MS;
    let mut refused = 0;
    for _ in 0..200_000 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let drawn = random >> 33;
        now_ms += drawn % 3;
        let network = client(u32::try_from(drawn / 3 % 4).unwrap());
        let kind = UnauthenticatedKind::ALL[usize::try_from(drawn / 12 % 4).unwrap()];
        let (credit, since) = model.entry((network, kind)).or_insert((full, now_ms));
        *credit = (*credit + (now_ms - *since) * 1_000).min(full);
        *since = now_ms;
        let admitted = *credit >= cost;
        *credit -= if admitted { cost } else { 0 };
        let taken = meter(&state, &|| Some(network), now_ms).take(kind);
        assert_eq!(taken.is_ok(), admitted, "{network:?} {kind:?} at {now_ms}");
        refused += u32::from(taken.is_err());
    }
    assert!(refused > 10_000, "{refused}");
}

/// A client that retries a few times a second is never refused, however long it does so.
#[test]
fn a_client_that_retries_is_never_refused_and_one_that_waits_as_told_is_admitted() {
    let state = UnauthenticatedLimits::default();
    for retry in 0..10_000 {
        assert_eq!(take(&state, client(1), START_MS + retry * 200), Ok(()));
    }
    for _ in 0..BURST {
        assert_eq!(take(&state, client(2), START_MS), Ok(()));
    }
    assert_eq!(take(&state, client(2), START_MS), Err(1));
    assert_eq!(take(&state, client(2), START_MS + 1_000), Ok(()));
}

/// 100,000 addresses are six times the table.
#[test]
fn a_flood_of_addresses_lifts_no_limit_and_refuses_nobody() {
    let state = UnauthenticatedLimits::default();
    let heavy = client(0);
    while take(&state, heavy, START_MS).is_ok() {}
    for number in 1..=100_000 {
        assert_eq!(take(&state, client(number), START_MS), Ok(()), "{number}");
        if number % 1_000 == 0 {
            assert_eq!(take(&state, heavy, START_MS), Err(1), "after {number}");
        }
    }
}

#[test]
fn without_a_rate_or_a_network_nobody_is_limited() {
    let state = UnauthenticatedLimits::default();
    let known = || Some(client(1));
    let unlimited = Meter { rate: 0, ..meter(&state, &known, START_MS) };
    let nobody = || None::<Network>;
    let of_nobody = meter(&state, &nobody, START_MS);
    for _ in 0..2 * BURST {
        assert!(unlimited.take(UnauthenticatedKind::BadToken).is_ok());
        assert!(of_nobody.take(UnauthenticatedKind::BadToken).is_ok());
        assert!(unlimited.begin(b"x").unwrap().is_none());
        assert!(of_nobody.begin(b"x").is_ok());
    }
}

#[test]
fn a_credential_counts_until_it_is_accepted_and_again_once_it_is_refused() {
    let state = UnauthenticatedLimits::default();
    let network = || Some(client(1));
    let meter = meter(&state, &network, START_MS);
    let begin = |credential: &[u8]| meter.begin(credential).map(Option::unwrap);
    state.settle(&begin(b"good").unwrap(), b"200", None);
    while let Ok(attempt) = begin(b"bad") {
        state.settle(&attempt, b"401", None);
    }
    assert!(begin(b"other").is_err() && begin(b"").is_err());
    for (status, grpc_status) in
        [("200", None), ("200", Some("0")), ("202", None), ("429", None), ("503", None)]
    {
        let attempt = begin(b"good").unwrap();
        state.settle(&attempt, status.as_bytes(), grpc_status.map(str::as_bytes));
    }
    state.settle(&begin(b"good").unwrap(), b"401", None);
    assert!(begin(b"good").is_err(), "revoked since");
}

/// Status, `grpc-status`, and whether the request is given back.
type SettleCase = (&'static str, Option<&'static str>, bool);

#[test]
fn only_answers_that_refuse_the_credential_count() {
    let cases: [SettleCase; 10] = [
        ("401", None, false),
        ("429", None, false),
        ("200", Some("16"), false),
        ("200", Some("8"), false),
        ("200", None, true),
        ("200", Some("0"), true),
        ("200", Some("5"), true),
        ("404", None, true),
        ("503", None, true),
        ("", None, true),
    ];
    for (status, grpc_status, is_given_back) in cases {
        let state = UnauthenticatedLimits::default();
        let network = || Some(client(1));
        let meter = meter(&state, &network, START_MS);
        for number in 0..2 * BURST {
            let Ok(Some(attempt)) = meter.begin(number.to_be_bytes()) else { break };
            state.settle(&attempt, status.as_bytes(), grpc_status.map(str::as_bytes));
        }
        assert_eq!(meter.begin(b"x").is_ok(), is_given_back, "{status} {grpc_status:?}");
    }
}

#[test]
fn accepted_credentials_are_bounded_and_the_recent_ones_stay() {
    let mut accepted = AcceptedCredentials::default();
    for number in 1..=100_000 {
        accepted.insert(number);
        assert!(accepted.contains(1), "used all the time");
    }
    assert!(accepted.young.len() + accepted.old.len() <= 2 * ACCEPTED);
    assert!(accepted.contains(100_000) && !accepted.contains(2));
    accepted.remove(1);
    assert!(!accepted.contains(1));
}
