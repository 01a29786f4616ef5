use std::sync::Arc;

use asp_proto::snapshot::{
    AuthScheme, CoarseLimit, EdgeServer, EdgeSnapshot, Issuer, Limit, Listing, OrgExposure, Primitive,
    RevokedBefore, RevokedToken, Server,
};
use prost::Message;
use sha2::{Digest, Sha256};

use super::EdgeChange::{Closes, Nothing, Opens, Other};
use super::{EdgeChange, Inputs, assemble, differs_only_in_revision, earliest, latest};
use crate::compiled::CompiledServer;

fn server(name: &str, scheme: AuthScheme, listings: &[(&str, &str)]) -> CompiledServer {
    let listings: Vec<Listing> = listings
        .iter()
        .map(|(id, mcp_name)| Listing {
            id: (*id).into(),
            version: "1.0.0".into(),
            mcp_name: (*mcp_name).into(),
            ..Default::default()
        })
        .collect();
    let primitives = listings
        .iter()
        .map(|listing| Primitive { id: listing.id.clone(), version: "1.0.0".into(), ..Default::default() })
        .collect();
    CompiledServer {
        edge: EdgeServer { name: name.into(), schemes: vec![scheme.into()], ..Default::default() },
        server: Server { name: name.into(), listings, ..Default::default() },
        primitives,
        offered_to: Vec::new(),
        agent_card: String::new(),
        content_hash: String::new(),
        files: Vec::new(),
    }
}

fn limit(server: &str, primitive: &str, capacity: u64, refill_per_second: f64) -> Limit {
    Limit {
        org: "acme".into(),
        server: server.into(),
        primitive: primitive.into(),
        user: "*".into(),
        wcit: "*".into(),
        capacity,
        refill_per_second,
        ..Limit::default()
    }
}

fn inputs() -> Inputs {
    Inputs {
        revision: 7,
        servers: vec![
            server("b", AuthScheme::Jwt, &[("x.two", "two"), ("doc", "demo://docs/{id}")]),
            server("a", AuthScheme::Jwt, &[("x.one", "one"), ("hidden", "")]),
        ],
        issuers: vec![
            Issuer { name: "z".into(), ..Default::default() },
            Issuer { name: "dev".into(), ..Default::default() },
        ],
        revoked: vec![[9; 16], [1; 16], [9; 16]],
        coarse_multiple: 2.0,
        ..Default::default()
    }
}

#[test]
fn the_same_inputs_in_another_order_give_the_same_bytes() {
    let one = assemble(inputs());
    let mut shuffled = inputs();
    shuffled.servers.reverse();
    shuffled.issuers.reverse();
    shuffled.revoked.reverse();
    assert_eq!(one.encode_to_vec(), assemble(shuffled).encode_to_vec());
    let names: Vec<_> = one.servers.iter().map(|server| server.name.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
    let edge = one.edge.expect("the edge part");
    assert_eq!(edge.revoked, [[1; 16], [9; 16]].concat(), "sorted, each once");
}

#[test]
fn digests_cover_the_message_without_themselves() {
    let snapshot = assemble(inputs());
    let mut edge = snapshot.edge.clone().expect("the edge part");
    let digest = std::mem::take(&mut edge.digest);
    assert_eq!(digest, Sha256::digest(edge.encode_to_vec()).to_vec());
    let mut whole = snapshot.clone();
    let digest = std::mem::take(&mut whole.digest);
    assert_eq!(digest, Sha256::digest(whole.encode_to_vec()).to_vec());
    let mut changed = inputs();
    changed.issuers.pop();
    assert_ne!(assemble(changed).digest, snapshot.digest);
}

#[test]
fn a_primitive_of_two_servers_stands_once() {
    let mut inputs = inputs();
    inputs.servers.push(server("c", AuthScheme::Jwt, &[("x.one", "uno")]));
    let snapshot = assemble(inputs);
    let ids: Vec<_> = snapshot.primitives.iter().map(|primitive| primitive.id.as_str()).collect();
    assert_eq!(ids, ["doc", "hidden", "x.one", "x.two"]);
}

#[test]
fn a_server_open_to_everybody_exists_in_development_only() {
    let mut open = inputs();
    open.servers.push(server("open", AuthScheme::None, &[]));
    let has_open = |inputs: Inputs| {
        let snapshot = assemble(inputs);
        let edge = snapshot.edge.expect("the edge part");
        assert_eq!(edge.servers.len(), snapshot.servers.len());
        snapshot.servers.iter().any(|server| server.name == "open")
    };
    assert!(!has_open(open.clone()));
    open.dev = true;
    assert!(has_open(open));
}

fn coarse_by(limits: Vec<Limit>, workers: u32, multiple: f64) -> Vec<CoarseLimit> {
    let inputs = Inputs { limits, workers, coarse_multiple: multiple, ..inputs() };
    assemble(inputs).edge.expect("the edge part").coarse_limits
}

fn coarse(limits: Vec<Limit>, multiple: f64) -> Vec<(String, String, f64, u32)> {
    let limits = coarse_by(limits, 1, multiple).into_iter();
    limits.map(|limit| (limit.server, limit.primitive, limit.rate_per_second, limit.burst)).collect()
}

#[test]
fn coarse_limits_are_the_exact_ones_times_the_multiple() {
    assert_eq!(coarse(vec![limit("*", "*", 1000, 100.0)], 8.0), [("*".into(), "*".into(), 800.0, 8000)]);
    assert_eq!(coarse(vec![limit("b", "*", 3, 0.5)], 4.5), [("b".into(), "*".into(), 2.25, 14)]);
}

#[test]
fn a_coarse_limit_names_what_the_edge_sees() {
    let found = coarse(vec![limit("*", "x.*", 10, 1.0)], 5.0);
    assert_eq!(found, [("a".into(), "one".into(), 5.0, 50), ("b".into(), "two".into(), 5.0, 50)]);
    let found = coarse(vec![limit("*", "doc", 10, 1.0)], 5.0);
    assert_eq!(found, [("b".into(), "demo://docs/*".into(), 5.0, 50)]);
    assert_eq!(coarse(vec![limit("b", "x.*", 10, 1.0)], 5.0), [("b".into(), "two".into(), 5.0, 50)]);
    assert_eq!(coarse(vec![limit("*", "hidden", 10, 1.0)], 5.0), []);
    assert_eq!(coarse(vec![limit("a", "x.two", 10, 1.0)], 5.0), []);
}

#[test]
fn each_worker_alone_grants_more_than_the_exact_rate() {
    for workers in [0, 1, 2, 3, 8, 32, 1_024] {
        for multiple in [10.0, 1.0, 0.0, -1.0, f64::NAN] {
            let found = coarse_by(vec![limit("*", "*", 10, 1.0)], workers, multiple);
            let share = f64::from(workers.max(1));
            assert!(found[0].rate_per_second / share >= 4.0, "{workers} {multiple}: {found:?}");
            assert!(f64::from(found[0].burst) / share >= 40.0, "{workers} {multiple}: {found:?}");
        }
    }
    assert_eq!(coarse(vec![limit("*", "*", u64::MAX, 1.0)], 2.0)[0].3, u32::MAX);
}

#[test]
fn no_rate_makes_a_coarse_limit_that_an_edge_refuses() {
    for rate in [0.001 / 3_600.0 / 10.0, f64::MIN_POSITIVE, 0.0, 1e6, f64::NAN, f64::INFINITY] {
        let limits = vec![limit("*", "*", 1, rate), limit("*", "x.one", 1, 1.0)];
        let found = coarse_by(limits, 1, 10.0);
        assert!(found.iter().any(|limit| limit.primitive == "one"), "{rate}");
        // What edges of every version take.
        let taken = |rate: f64| rate.is_finite() && rate >= 0.000_01;
        assert!(found.iter().all(|limit| taken(limit.rate_per_second)), "{rate}: {found:?}");
    }
}

#[test]
fn a_name_that_stands_for_other_primitives_too_is_limited_only_with_them() {
    let listings = [
        ("t.search", "search"),
        ("p.search", "search"),
        ("doc", "demo://docs/{id}"),
        ("doc.readme", "demo://docs/readme"),
        ("any", "demo://{kind}"),
    ];
    let found = |primitive: &str| {
        let servers = vec![server("s", AuthScheme::Jwt, &listings)];
        let inputs = Inputs { servers, limits: vec![limit("*", primitive, 10, 1.0)], ..inputs() };
        let edge = assemble(inputs).edge.expect("the edge part");
        edge.coarse_limits.into_iter().map(|limit| limit.primitive).collect::<Vec<_>>()
    };
    assert_eq!(found("t.search"), [""; 0], "the prompt of that name has no limit");
    assert_eq!(found("doc"), [""; 0], "it would count reads of the readme");
    assert_eq!(found("doc.readme"), ["demo://docs/readme"]);
    assert_eq!(found("any"), [""; 0]);
    let both = vec![server("s", AuthScheme::Jwt, &[("x.a", "search"), ("x.b", "search")])];
    let inputs = Inputs { servers: both, limits: vec![limit("*", "x.*", 10, 1.0)], ..inputs() };
    assert_eq!(
        assemble(inputs).edge.expect("the edge part").coarse_limits.len(),
        1,
        "one bucket, charged once"
    );
}

fn of_user(org: &str, user: usize, primitive: &str) -> Limit {
    Limit { org: org.into(), user: format!("user-{user}"), ..limit("*", primitive, 10, 1.0) }
}

#[test]
fn when_there_are_too_many_coarse_limits_the_broad_ones_stay() {
    let mut limits: Vec<Limit> = (0..6_000).map(|user| of_user("acme", user, "x.one")).collect();
    limits.push(limit("*", "*", 10, 1.0));
    let found = coarse(limits, 5.0);
    assert_eq!(found.len(), 5_000);
    assert_eq!(found[0].1, "*");
}

#[test]
fn an_org_with_many_coarse_limits_leaves_the_others_their_room() {
    let mut limits: Vec<Limit> = (0..6_000).map(|user| of_user("aaa", user, "*")).collect();
    limits.extend((0..100).map(|user| of_user("zzz", user, "x.one")));
    let found = coarse_by(limits, 1, 10.0);
    assert_eq!(found.iter().filter(|limit| limit.org == "zzz").count(), 100);
    assert_eq!(found.len(), 5_000);
}

#[test]
fn a_thousand_limits_over_ten_thousand_listings_are_not_expanded() {
    let names: Vec<String> = (0..10_000).map(|number| format!("a.{number}")).collect();
    let listings: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), name.as_str())).collect();
    let servers = vec![server("s", AuthScheme::Jwt, &listings)];
    let wide = |user: usize| Limit { user: format!("{user:0>250}"), ..limit("*", "a*", 10, 1.0) };
    let limits = (0..1_000).map(wide).collect();
    let found = assemble(Inputs { servers, limits, ..inputs() }).edge.expect("the edge part").coarse_limits;
    let bytes: usize = found.iter().map(Message::encoded_len).sum();
    assert!(found.len() <= 5_000 && bytes <= 512 * 1024, "{} entries, {bytes} bytes", found.len());
    assert!(found.len() > 1_000);
}

#[test]
fn a_block_stays_above_any_revocation_and_the_order_of_a_list_changes_nothing() {
    let entry = |not_after_iat: u64, since_ms: u64, block: bool| RevokedBefore {
        org: "acme".into(),
        user: "bob".into(),
        not_after_iat,
        since_ms,
        reason: format!("at {since_ms}"),
        block,
    };
    let early = entry(5, 5_000, false);
    let late = entry(9, 9_000, false);
    let block = entry(u64::MAX, 6_000, true);
    let second = entry(u64::MAX, 8_000, true);
    assert_eq!(latest(vec![early.clone(), late.clone()]), std::slice::from_ref(&late));
    let mut all = vec![second, early, block.clone(), late];
    for _ in 0..all.len() {
        all.rotate_left(1);
        assert_eq!(latest(all.clone()), std::slice::from_ref(&block), "the one that has been there longer");
    }
}

#[test]
fn of_one_tokens_revocations_the_first_is_named() {
    let token =
        |entry: u8, since_ms: u64| RevokedToken { entry: vec![entry; 16], since_ms, reason: String::new() };
    let first = token(2, 5);
    let again = token(2, 9);
    let other = token(1, 7);
    for list in [vec![first.clone(), again.clone(), other.clone()], vec![other.clone(), again, first.clone()]]
    {
        assert_eq!(earliest(list), [other.clone(), first.clone()]);
    }
}

fn change(before: &EdgeSnapshot, after: &EdgeSnapshot) -> EdgeChange {
    EdgeChange::between(&Arc::new(before.clone()), &Arc::new(after.clone()))
}

#[test]
fn exceptions_close_or_open() {
    let of = |revision: u64, org: &str, exceptions: &[u32]| {
        let exposure = vec![OrgExposure { org: org.into(), exceptions: exceptions.to_vec() }];
        EdgeSnapshot { revision, digest: vec![1; 32], exposure, ..EdgeSnapshot::default() }
    };
    // The first server over one protocol, and the second: hidden (0) or shown (1).
    let hidden = 0b010;
    let shown = 0b011;
    let second = 0b1011;
    let nothing = EdgeSnapshot::default();
    for (before, after, expected) in [
        (of(1, "acme", &[hidden]), of(2, "acme", &[hidden]), Nothing),
        (of(1, "acme", &[hidden]), of(2, "acme", &[shown]), Opens),
        (of(1, "acme", &[hidden]), nothing.clone(), Opens),
        (of(1, "acme", &[shown]), of(2, "acme", &[shown, second]), Opens),
        (of(1, "acme", &[shown]), of(2, "acme", &[hidden]), Closes),
        (of(1, "acme", &[shown]), nothing.clone(), Closes),
        (nothing.clone(), of(2, "acme", &[hidden]), Closes),
        (of(1, "acme", &[shown]), of(2, "other", &[shown]), Opens),
        (of(1, "acme", &[shown, second]), of(2, "acme", &[hidden]), Closes),
        (of(1, "acme", &[hidden]), of(2, "acme", &[second]), Opens),
    ] {
        assert_eq!(change(&before, &after), expected, "{before:?} to {after:?}");
    }
    let revoked = EdgeSnapshot { revoked: vec![1; 16], ..nothing.clone() };
    assert_eq!((change(&nothing, &revoked), change(&revoked, &nothing)), (Other, Other));
    assert_eq!(change(&of(1, "acme", &[shown]), &revoked), Other);
}

#[test]
fn only_the_revision_and_the_digest_change_nothing() {
    let limit = CoarseLimit { rate_per_second: 1.0, ..CoarseLimit::default() };
    let edge = EdgeSnapshot { coarse_limits: vec![limit], workers: 2, ..EdgeSnapshot::default() };
    let again = EdgeSnapshot { revision: 7, digest: vec![1; 32], ..edge.clone() };
    assert!(differs_only_in_revision(&edge, &again));
    assert_eq!(change(&edge, &again), Nothing);
    for other in [
        EdgeSnapshot { workers: 3, ..edge.clone() },
        EdgeSnapshot { public_url: "https://a.example".into(), ..edge.clone() },
        EdgeSnapshot { revoked_through: 1, ..edge.clone() },
        EdgeSnapshot { unauthenticated_rate: 1, ..edge.clone() },
    ] {
        assert!(!differs_only_in_revision(&edge, &other), "{other:?}");
        assert_eq!(change(&edge, &other), Other, "{other:?}");
    }
    let unlimited = EdgeSnapshot { coarse_limits: Vec::new(), ..edge.clone() };
    assert!(!differs_only_in_revision(&edge, &unlimited));
}

#[test]
fn a_limit_that_is_added_closes_and_one_that_is_gone_or_another_one_opens() {
    let of = |rates: &[f64]| {
        let limit = |rate: &f64| CoarseLimit { rate_per_second: *rate, ..CoarseLimit::default() };
        EdgeSnapshot { coarse_limits: rates.iter().map(limit).collect(), ..EdgeSnapshot::default() }
    };
    for (before, after, expected) in [
        (of(&[1.0]), of(&[1.0]), Nothing),
        (of(&[]), of(&[1.0]), Closes),
        (of(&[1.0, 3.0]), of(&[1.0, 2.0, 3.0, 4.0]), Closes),
        (of(&[1.0]), of(&[]), Opens),
        (of(&[1.0, 2.0]), of(&[1.0, 3.0, 4.0]), Opens),
    ] {
        assert_eq!(change(&before, &after), expected, "{before:?} to {after:?}");
    }
    let hidden = vec![OrgExposure { org: "acme".into(), exceptions: vec![0b010] }];
    let both = EdgeSnapshot { exposure: hidden, ..of(&[2.0]) };
    assert_eq!((change(&of(&[]), &both), change(&of(&[1.0]), &both)), (Closes, Opens));
}
