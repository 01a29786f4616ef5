use asp_proto::snapshot::{AuthScheme, EdgeServer, Issuer, Limit, Listing, Primitive, Server};
use prost::Message as _;
use sha2::{Digest, Sha256};

use super::{Inputs, assemble};
use crate::CompiledServer;

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

fn coarse(limits: Vec<Limit>, multiple: f64) -> Vec<(String, String, f64, u32)> {
    let inputs = Inputs { limits, coarse_multiple: multiple, ..inputs() };
    let edge = assemble(inputs).edge.expect("the edge part");
    let limits = edge.coarse_limits.into_iter();
    limits.map(|limit| (limit.server, limit.primitive, limit.rate_per_second, limit.burst)).collect()
}

#[test]
fn coarse_limits_are_the_exact_ones_times_the_multiple() {
    assert_eq!(coarse(vec![limit("*", "*", 1000, 100.0)], 2.0), [("*".into(), "*".into(), 200.0, 2000)]);
    assert_eq!(coarse(vec![limit("b", "*", 3, 0.5)], 1.5), [("b".into(), "*".into(), 0.75, 5)]);
}

#[test]
fn a_coarse_limit_names_what_the_edge_sees() {
    let found = coarse(vec![limit("*", "x.*", 10, 1.0)], 2.0);
    assert_eq!(found, [("a".into(), "one".into(), 2.0, 20), ("b".into(), "two".into(), 2.0, 20)]);
    let found = coarse(vec![limit("*", "doc", 10, 1.0)], 2.0);
    assert_eq!(found, [("b".into(), "demo://docs/*".into(), 2.0, 20)]);
    assert_eq!(coarse(vec![limit("*", "hidden", 10, 1.0)], 2.0), []);
    assert_eq!(coarse(vec![limit("a", "x.two", 10, 1.0)], 2.0), []);
}

#[test]
fn a_coarse_limit_is_never_stricter_than_the_exact_one() {
    for multiple in [0.0, 0.5, -1.0, f64::NAN] {
        assert_eq!(coarse(vec![limit("*", "*", 10, 1.0)], multiple), [("*".into(), "*".into(), 1.0, 10)]);
    }
    let found = coarse(vec![limit("*", "*", u64::MAX, 1.0)], 2.0);
    assert_eq!(found[0].3, u32::MAX);
}

#[test]
fn when_there_are_too_many_coarse_limits_the_broad_ones_stay() {
    let mut limits: Vec<Limit> = (0..6_000).map(|_| limit("*", "x.one", 10, 1.0)).collect();
    limits.push(limit("*", "*", 10, 1.0));
    let found = coarse(limits, 2.0);
    assert_eq!(found.len(), 5_000);
    assert_eq!(found[0].1, "*");
}
