//! Arbitrary writes by admins of many orgs: after each accepted write the snapshot is published, and the builders of
//! edges and gateways accept it (I-5).

use asp_proto::snapshot::SnapshotPart;
use asp_snapshot::Snapshot;
use http::{Method, StatusCode};
use prost::Message;
use serde_json::{Value, json};

use super::{Api, sample};
use crate::catalog::budget::{EDGE, GATEWAY};

/// Writes of one run. Each waits for its publication.
const WRITES: usize = 60;
const ORGS: [&str; 5] = ["acme", "beta", "urn.x", "o", "0123456789012345678901234567890123456789"];
const SERVERS: [&str; 4] = ["demo", "everything", "*", "nowhere"];
const PRIMITIVES: [&str; 8] = ["*", "e*", "echo", "clock", "demo*", "{x}", "ü*", "nothing"];
const NAMES: [&str; 6] = ["*", "alice", "ünïcode", "a%00b", "x\u{200b}y", "-"];
const REFILLS: [&str; 9] =
    ["0.001/h", "0.0000000000000000000001/h", "1000000/s", "1/s", "0.5/m", "1000000/h", "0/s", "1e9/s", ""];
const CAPACITIES: [u64; 6] = [0, 1, 7, 1_000_000_000, u64::MAX, 4_294_967_296];
const POOLS: [&str; 4] = ["gateway", "heavy", "risky-2", "No Pool"];
const PROTOCOLS: [&str; 5] = ["mcp", "a2a", "rest", "*", "quic"];

/// A seeded random generator (splitmix64), so that a run can be repeated.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % bound as u64).unwrap()
    }

    fn pick<'a, T: ?Sized>(&mut self, of: &[&'a T]) -> &'a T {
        of[self.below(of.len())]
    }

    fn often(&mut self) -> bool {
        self.below(2) == 0
    }
}

/// One write: role, method, path and body.
struct Write {
    role: String,
    method: Method,
    path: String,
    body: Option<Value>,
}

fn write(dice: &mut Dice, number: usize, samples: &[(&str, Value)]) -> Write {
    let org = dice.pick(&ORGS);
    let role = if dice.below(4) == 0 { "platform".to_owned() } else { format!("org:{org}") };
    let policy = |kind: &str| format!("/api/policy/orgs/{org}/{kind}");
    let limits = format!("/api/ratelimits/orgs/{org}");
    let put = |path: String, body: Value| (Method::PUT, path, Some(body));
    let (method, path, body) = match dice.below(15) {
        0..=2 => put(limits, rate_limits(dice)),
        3..=4 => put(policy("bindings"), binding(dice)),
        5..=6 => put(policy("exposure"), exposure(dice)),
        7..=8 => (Method::POST, "/api/revocations".to_owned(), Some(revocation(dice, org, number))),
        9 => {
            let (name, files) = &samples[dice.below(samples.len())];
            let body = dice.often().then(|| files.clone());
            let method = if body.is_some() { Method::PUT } else { Method::DELETE };
            return Write {
                role: "platform".into(),
                method,
                path: format!("/api/registry/servers/{name}"),
                body,
            };
        }
        10 => (Method::DELETE, limits, None),
        12..=14 => return placement(dice, org),
        _ => (Method::DELETE, policy(if dice.often() { "bindings" } else { "exposure" }), None),
    };
    Write { role, method, path, body }
}

/// Routes, regions and homes, which only the platform may write.
fn placement(dice: &mut Dice, org: &str) -> Write {
    let (path, body) = match dice.below(3) {
        0 => {
            let methods = ["*", "tools/call", "no method"];
            let routes = (0..dice.below(4)).map(|_| {
                json!({
                    "server": dice.pick(&SERVERS), "method": dice.pick(&methods),
                    "primitive": dice.pick(&PRIMITIVES), "pool": dice.pick(&POOLS),
                })
            });
            ("/api/routes".to_owned(), routes.collect())
        }
        1 => {
            let regions =
                [json!({ "name": "eu", "here": true }), json!({ "name": "us", "cluster": "us.v2" })];
            ("/api/regions".to_owned(), regions.into_iter().filter(|_| dice.often()).collect())
        }
        _ => {
            let star = if dice.often() { "%2A" } else { "" };
            let home = json!({ "region": dice.pick(&["eu", "us", "mars", "e u"]) });
            (format!("/api/regions/orgs/{org}{star}"), home)
        }
    };
    let (method, body) = if dice.below(4) == 0 { (Method::DELETE, None) } else { (Method::PUT, Some(body)) };
    Write { role: "platform".into(), method, path, body }
}

fn rate_limits(dice: &mut Dice) -> Value {
    // Sometimes as much as an org may have.
    let huge = dice.below(12) == 0;
    let count = if huge { 1_000 } else { dice.below(6) };
    let limits = (0..count).map(|number| {
        let user = if huge { format!("{number:0>250}") } else { dice.pick(&NAMES).to_owned() };
        let capacity = CAPACITIES[dice.below(CAPACITIES.len())];
        json!({
            "selector": {
                "server": dice.pick(&SERVERS), "primitive": dice.pick(&PRIMITIVES),
                "user": user, "wcit": dice.pick(&NAMES),
            },
            // A huge list is good, so that it is stored.
            "policy": if huge { json!({ "capacity": 1, "refill": "0.001/h" }) }
                else { json!({ "capacity": capacity, "refill": dice.pick(&REFILLS) }) },
        })
    });
    limits.collect()
}

fn binding(dice: &mut Dice) -> Value {
    json!({
        "target": { "type": dice.pick(&["user", "wcit", "group", "role"]), "idOrPattern": dice.pick(&NAMES) },
        "primitive": { "name": dice.pick(&PRIMITIVES), "protocol": dice.pick(&PROTOCOLS) },
        "allowed": dice.often(),
    })
}

fn exposure(dice: &mut Dice) -> Value {
    json!({ "server": dice.pick(&SERVERS), "protocol": dice.pick(&PROTOCOLS), "enabled": dice.often() })
}

fn revocation(dice: &mut Dice, org: &str, number: usize) -> Value {
    match dice.below(4) {
        0 => json!({ "type": "token", "org": org, "id": format!("jti-{number}") }),
        1 => json!({ "type": "token_hash", "id": format!("{number:0>64x}") }),
        2 => json!({ "type": "user", "org": org, "id": format!("user-{number}") }),
        _ => json!({ "type": "org", "id": org }),
    }
}

/// Waits for the write's publication and evaluates what is published.
async fn is_published(api: &mut Api, what: &str) {
    let stored = api.store.revision().await.unwrap();
    let standing = api.standing.wait_for(|standing| standing.covers >= stored || standing.fault.is_some());
    let standing = standing.await.unwrap().clone();
    assert_eq!(standing.fault, None, "{what}");
    assert_eq!(standing.parts, [], "{what}");
    // A write that changes nothing may be answered before the first snapshot of all.
    let xds_state = api.xds_state.wait_for(|xds_state| xds_state.snapshot.is_some()).await.unwrap();
    let published = xds_state.snapshot.clone().unwrap();
    drop(xds_state);
    assert!(published.gateway.parts.bytes() <= GATEWAY, "{what}");
    let edge = published.edge.content.encode_to_vec();
    assert!(edge.len() <= EDGE, "{what}: {} bytes", edge.len());
    asp_edge::Snapshot::decode(&edge).unwrap_or_else(|fault| panic!("{what}: the edge refuses: {fault}"));
    let parts = published.gateway.parts.iter();
    let changes =
        parts.map(|(name, part)| (name.to_string(), SnapshotPart::decode(part.bytes.as_ref()).ok()));
    if let Err(fault) = Snapshot::empty().changed(published.revision, changes.collect()) {
        panic!("{what}: the gateway refuses: {fault}");
    }
    if let Err(fault) = Snapshot::build(published.whole()) {
        panic!("{what}: the whole is refused: {fault}");
    }
}

/// Returns how many writes were accepted.
async fn run(seed: u64) -> usize {
    let mut api = Api::start().await;
    let samples: Vec<(&str, Value)> = ["demo", "everything"].map(|name| (name, sample(name))).into();
    let mut dice = Dice(seed);
    let mut accepted = 0;
    for number in 0..WRITES {
        let Write { role, method, path, body } = write(&mut dice, number, &samples);
        let text = body.as_ref().map(|body| body.to_string().chars().take(300).collect::<String>());
        let what = format!("seed {seed}, write {number}: {role} {method} {path} {text:?}");
        let revoked = api.store.load().await.unwrap().revocations.len();
        let answer = api.send(&role, method, &path, body, &[]).await;
        assert!(!answer.status.is_server_error(), "{what}: {}", answer.body);
        if answer.status.is_success() {
            accepted += 1;
        }
        is_published(&mut api, &what).await;
        if answer.status == StatusCode::CREATED {
            let state = api.store.load().await.unwrap();
            assert_eq!(state.revocations.len(), revoked + 1, "{what}: a revocation is stored");
        }
    }
    accepted
}

#[tokio::test]
async fn whatever_is_accepted_the_snapshot_is_published_and_taken() {
    let (one, two, three, four) = tokio::join!(run(1), run(2), run(3), run(4));
    for accepted in [one, two, three, four] {
        assert!(accepted > WRITES / 4, "{accepted} writes were accepted: the test tries too little");
    }
}
