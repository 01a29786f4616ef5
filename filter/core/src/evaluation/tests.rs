//! The order of the evaluation and its results; single rules are tested beside their modules and by the
//! shared vectors.

use asp_proto::snapshot::{CoarseLimit, EdgeSnapshot};

use super::*;
use crate::Header;
use crate::path::PathKind;
use crate::reason::Era;
use crate::testkit::{Keys, Recipe, Setting, load_snapshot, mint};
use crate::verdict::Forward;

mod apart;
mod floods;

const NOW: u64 = 2_000_000_000;
const PUBLIC_URL: &str = "https://mcp.example.com";
const LIST: &[u8] = br#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;

struct Bench {
    keys: &'static Keys,
    message: EdgeSnapshot,
}

impl Bench {
    fn new() -> Bench {
        let keys = Keys::shared();
        let message = load_snapshot("full", &Setting { keys, now: NOW, public_url: PUBLIC_URL });
        Bench { keys, message }
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot::from_message(self.message.clone()).unwrap()
    }

    fn token(&self) -> String {
        mint(&Recipe::default(), self.keys, NOW, PUBLIC_URL)
    }

    /// Builds a valid POST; `changes` replace headers of the same name and are appended otherwise.
    fn post(&self, path: &str, changes: &[(&str, &str)]) -> Vec<Header> {
        let authorization = format!("Bearer {}", self.token());
        let mut headers = vec![
            (":method", "POST"),
            (":path", path),
            (":authority", "mcp.example.com"),
            ("content-type", "application/json"),
            ("authorization", &authorization),
        ];
        headers.retain(|(name, _)| !changes.iter().any(|(changed, _)| changed == name));
        headers.extend(changes);
        headers.iter().map(|(name, value)| ((*name).to_owned(), value.as_bytes().to_vec())).collect()
    }
}

fn env(now_ms: u64) -> Env {
    Env { now_ms, random: [9; 8], trace: crate::trace::Trace::new([9; 24]) }
}

fn judge(edge: &Edge, snapshot: &Snapshot, headers: &[Header], body: &[u8]) -> Verdict {
    match edge.on_headers(snapshot, headers, body.is_empty(), &env(NOW * 1000)) {
        Step::Decided(verdict) => verdict,
        Step::NeedBody(pending) => edge.on_body(snapshot, *pending, body, &env(NOW * 1000)),
    }
}

fn forwarded(verdict: Verdict) -> Forward {
    match verdict {
        Verdict::Forward(forward) => *forward,
        Verdict::Reply(reply) => panic!("refused: {:?}", reply.reason),
    }
}

fn reason(verdict: Verdict) -> Option<Reason> {
    match verdict {
        Verdict::Forward(_) => None,
        Verdict::Reply(reply) => reply.reason,
    }
}

/// Invariant I-5.
#[test]
fn the_boot_snapshot_denies_everything() {
    let bench = Bench::new();
    let boot = Snapshot::boot();
    for role in [EdgeRole::Filter, EdgeRole::Gateway] {
        let edge = Edge::new(role);
        for path in ["/demo/mcp", "/healthz", "/.well-known/agent-card.json", "/nowhere", "/demo/rest/x"] {
            let verdict = judge(&edge, &boot, &bench.post(path, &[]), LIST);
            assert_eq!(reason(verdict), Some(Reason::UpstreamUnavailable), "{path}");
        }
    }
}

/// Path, changed headers, and the rule that must win.
type Broken = (&'static str, Vec<(&'static str, &'static str)>, Reason);

#[test]
fn an_earlier_rule_wins_over_a_later_one() {
    let bench = Bench::new();
    let snapshot = bench.snapshot();
    let edge = Edge::new(EdgeRole::Filter);
    // Each request breaks its own rule and every later one.
    let body = ("content-type", "text/plain");
    let token = ("authorization", "Bearer x");
    let origin = ("origin", "https://evil.example");
    let host = (":authority", "evil.example");
    let twice = ("mcp-session-id", "a");
    let cases: [Broken; 6] = [
        ("/nobody/mcp", vec![body, token, origin, host, twice, twice], Reason::UnknownServer),
        ("/strict/mcp", vec![body, token, origin, host, twice, twice], Reason::InvalidRequest),
        ("/strict/mcp", vec![body, token, origin, host], Reason::HostDenied),
        ("/demo/mcp", vec![body, token, origin], Reason::OriginDenied),
        ("/demo/mcp", vec![body, token], Reason::TokenInvalid),
        ("/hidden/mcp", vec![body], Reason::UnknownServer),
    ];
    for (path, changes, expected) in cases {
        let verdict = judge(&edge, &snapshot, &bench.post(path, &changes), b"not json");
        assert_eq!(reason(verdict), Some(expected), "{path} {changes:?}");
    }
}

/// Invariant I-1.
#[test]
fn both_roles_refuse_alike() {
    let bench = Bench::new();
    let snapshot = bench.snapshot();
    let headers = bench.post("/demo/mcp", &[]);
    for body in [b"".as_slice(), b"{", b"[]", b"{}", b"\xff"] {
        let as_filter = judge(&Edge::new(EdgeRole::Filter), &snapshot, &headers, body);
        let as_gateway = judge(&Edge::new(EdgeRole::Gateway), &snapshot, &headers, body);
        match (as_filter, as_gateway) {
            (Verdict::Reply(filter), Verdict::Reply(gateway)) => assert_eq!(filter, gateway),
            _ => panic!("{body:?} was let through"),
        }
    }
}

/// Changed headers, body, and the beginning and the words of its refusal.
type RefusedMessage = (&'static [(&'static str, &'static str)], &'static [u8], &'static str, &'static str);

#[test]
fn a_refused_message_of_mcp_has_its_id_and_another_media_type_is_named() {
    let bench = Bench::new();
    let snapshot = bench.snapshot();
    let rows: [RefusedMessage; 3] = [
        (
            &[],
            br#"{"jsonrpc":"1.0","id":"a","method":"x"}"#,
            r#"{"jsonrpc":"2.0","id":"a","error""#,
            "JSON-RPC 2.0",
        ),
        (
            &[],
            br#"{"jsonrpc":"2.0","id":1,"id":2,"method":"x"}"#,
            r#"{"jsonrpc":"2.0","error""#,
            "JSON-RPC 2.0",
        ),
        (&[("content-type", "text/plain")], LIST, r#"{"jsonrpc":"2.0","error""#, "must be application/json"),
    ];
    for (changes, body, start, words) in rows {
        for role in [EdgeRole::Filter, EdgeRole::Gateway] {
            let verdict = judge(&Edge::new(role), &snapshot, &bench.post("/demo/mcp", changes), body);
            let Verdict::Reply(reply) = verdict else { panic!("forwarded: {start}") };
            let text = String::from_utf8(reply.body).unwrap();
            assert_eq!(reply.status, 400, "{text}");
            assert!(text.starts_with(start) && text.contains(words), "{text}");
        }
    }
}

#[test]
fn what_was_established_is_handed_on() {
    let bench = Bench::new();
    let snapshot = bench.snapshot();
    let headers = bench.post("/demo/mcp", &[("origin", PUBLIC_URL)]);
    let admitted = forwarded(judge(&Edge::new(EdgeRole::Gateway), &snapshot, &headers, LIST)).admitted;
    assert_eq!(
        (admitted.path_kind, admitted.server.as_str(), admitted.era),
        (PathKind::Mcp, "demo", Era::Legacy)
    );
    assert_eq!(admitted.caller.unwrap().org, "acme");
    assert_eq!(admitted.origin.as_deref(), Some(PUBLIC_URL));
    assert_eq!(admitted.envelope.unwrap().id.as_deref(), Some("1"));
    assert_eq!((admitted.max_body, admitted.unverified), (1 << 20, false));
}

#[test]
fn a_grpc_request_is_one_to_the_server_of_its_host() {
    let bench = Bench::new();
    let snapshot = bench.snapshot();
    let grpc = ("content-type", "application/grpc");
    for (host, server) in [
        ("agent.example.com", "agent"),
        ("Agent.example.com:443", "agent"),
        ("both.example.com", "demo"),
        ("mcp.example.com", "demo"),
    ] {
        let headers = bench.post("/lf.a2a.v1.A2AService/GetTask", &[grpc, (":authority", host)]);
        let admitted = forwarded(judge(&Edge::new(EdgeRole::Gateway), &snapshot, &headers, b"")).admitted;
        assert_eq!((admitted.path_kind, admitted.server.as_str()), (PathKind::A2aGrpc, server), "{host}");
        assert_eq!(admitted.caller.as_ref().unwrap().user, "alice");
        let refused = admitted.refuse(Reason::UpstreamUnavailable);
        assert!(refused.headers.contains(&("grpc-status", "14".into())), "{:?}", refused.headers);
    }
}

#[test]
fn every_binding_of_a2a_is_routed_as_the_calls_that_it_is_about() {
    let mut bench = Bench::new();
    let route = asp_proto::snapshot::Route {
        server: "demo".into(),
        method: "tools/call".into(),
        primitive: "*".into(),
        cluster: "pool-calls".into(),
    };
    bench.message.routes.push(route);
    let snapshot = bench.snapshot();
    let send = br#"{"jsonrpc":"2.0","id":1,"method":"message/send","params":{}}"#.as_slice();
    for (path, content_type, body) in [
        ("/demo/a2a", "application/json", send),
        ("/demo/a2a/message:send", "application/a2a+json", b"{}"),
        ("/demo/a2a/v1/tasks/7:cancel", "application/json", b"{}"),
        ("/a2a.v1.A2AService/SendMessage", "application/grpc", b""),
    ] {
        let headers = bench.post(path, &[("content-type", content_type)]);
        let forward = forwarded(judge(&Edge::new(EdgeRole::Filter), &snapshot, &headers, body));
        assert!(forward.set.contains(&("x-asp-route", "pool-calls".into())), "{path}: {:?}", forward.set);
    }
}

#[test]
fn in_development_the_root_may_be_read_under_the_hosts_of_agents() {
    let mut bench = Bench::new();
    bench.message.dev = true;
    let snapshot = bench.snapshot();
    let edge = Edge::new(EdgeRole::Gateway);
    for (host, expected) in [
        ("agent.example.com", None),
        ("localhost:8080", None),
        ("strict.example.com", Some(Reason::HostDenied)),
        ("rebound.evil.example", Some(Reason::HostDenied)),
    ] {
        let headers = bench.post("/.well-known/agent-card.json", &[(":method", "GET"), (":authority", host)]);
        assert_eq!(reason(judge(&edge, &snapshot, &headers, b"")), expected, "{host}");
    }
}

#[test]
fn credentials_only_the_gateway_can_judge_are_marked() {
    let bench = Bench::new();
    let snapshot = bench.snapshot();
    for (path, authorization, unverified) in [
        ("/opaque/mcp", "Bearer secret", true),
        ("/shared/mcp", "Bearer asp_psk_0123456789abcdef_secret", true),
        ("/certs/mcp", "", true),
        ("/open/mcp", "", false),
    ] {
        let headers = bench.post(path, &[("authorization", authorization)]);
        let admitted = forwarded(judge(&Edge::new(EdgeRole::Gateway), &snapshot, &headers, LIST)).admitted;
        assert_eq!((admitted.unverified, admitted.caller), (unverified, None), "{path}");
    }
}

#[test]
fn a_modern_body_is_read_by_the_gateway_only() {
    let bench = Bench::new();
    let snapshot = bench.snapshot();
    let headers =
        bench.post("/demo/mcp", &[("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tools/list")]);
    let filter = Edge::new(EdgeRole::Filter).on_headers(&snapshot, &headers, false, &env(NOW * 1000));
    assert!(
        matches!(filter, Step::Decided(Verdict::Forward(forward)) if forward.admitted.era == Era::Modern)
    );
    let gateway = Edge::new(EdgeRole::Gateway).on_headers(&snapshot, &headers, false, &env(NOW * 1000));
    assert!(matches!(gateway, Step::NeedBody(_)));
}

#[test]
fn a_body_of_the_modern_era_makes_the_request_modern() {
    let bench = Bench::new();
    let snapshot = bench.snapshot();
    let body = br#"{"jsonrpc":"2.0","id":1,"method":"x","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#;
    let headers = bench.post("/demo/mcp", &[]);
    let admitted = forwarded(judge(&Edge::new(EdgeRole::Gateway), &snapshot, &headers, body)).admitted;
    assert_eq!(admitted.era, Era::Modern);
}

#[test]
fn a_declared_length_over_the_limit_is_refused_before_the_body() {
    let bench = Bench::new();
    let snapshot = bench.snapshot();
    let edge = Edge::new(EdgeRole::Filter);
    for (path, length, refused) in [
        ("/demo/mcp", "1048576", false),
        ("/demo/mcp", "1048577", true),
        ("/demo/mcp", "99999999999999999999999", true),
        // Public documents accept forms at most.
        ("/demo/oauth/token", "65536", false),
        ("/demo/oauth/token", "65537", true),
    ] {
        let headers = bench.post(path, &[("content-length", length)]);
        let step = edge.on_headers(&snapshot, &headers, false, &env(NOW * 1000));
        let answer = matches!(step, Step::Decided(Verdict::Reply(ref reply)) if reply.status == 413);
        assert_eq!(answer, refused, "{path} {length}");
    }
    match edge.on_headers(&snapshot, &bench.post("/demo/mcp", &[]), false, &env(NOW * 1000)) {
        Step::NeedBody(pending) => {
            assert_eq!(edge.body_too_large(&pending).status, 413);
            let body = vec![b' '; pending.max_body + 1];
            let verdict = edge.on_body(&snapshot, *pending, &body, &env(NOW * 1000));
            assert_eq!(reason(verdict), Some(Reason::BodyTooLarge), "a host that hands over too much");
        }
        Step::Decided(_) => panic!("decided without the body"),
    }
}

fn limit(primitive: &str, burst: u32) -> CoarseLimit {
    CoarseLimit {
        org: "acme".into(),
        server: "demo".into(),
        user: "*".into(),
        wcit: "*".into(),
        primitive: primitive.into(),
        rate_per_second: 0.5,
        burst,
        issuer: String::new(),
    }
}

#[test]
fn the_filter_stops_gross_abuse_and_says_when_to_return() {
    let mut bench = Bench::new();
    bench.message.coarse_limits = vec![limit("*", 3)];
    let snapshot = bench.snapshot();
    let headers = bench.post("/demo/mcp", &[]);
    let filter = Edge::new(EdgeRole::Filter);
    for _ in 0..3 {
        assert_eq!(reason(judge(&filter, &snapshot, &headers, LIST)), None);
    }
    match judge(&filter, &snapshot, &headers, LIST) {
        Verdict::Reply(reply) => {
            assert_eq!((reply.status, reply.reason), (429, Some(Reason::RateLimited)));
            assert_eq!(reply.org.as_deref(), Some("acme"), "for the metrics of its org");
            assert!(reply.headers.contains(&("retry-after", "2".to_owned())));
        }
        Verdict::Forward(_) => panic!("the fourth request passed"),
    }
    let gateway = Edge::new(EdgeRole::Gateway);
    for _ in 0..10 {
        assert_eq!(reason(judge(&gateway, &snapshot, &headers, LIST)), None);
    }
}

#[test]
fn the_refusal_of_a_blocked_caller_is_counted_for_its_org() {
    let mut bench = Bench::new();
    let block = asp_proto::snapshot::RevokedBefore {
        org: "acme".into(),
        not_after_iat: u64::MAX,
        block: true,
        ..Default::default()
    };
    bench.message.revoked_before = vec![block];
    let snapshot = bench.snapshot();
    match judge(&Edge::new(EdgeRole::Filter), &snapshot, &bench.post("/demo/mcp", &[]), LIST) {
        Verdict::Reply(reply) => {
            assert_eq!((reply.reason, reply.org.as_deref()), (Some(Reason::Blocked), Some("acme")));
        }
        Verdict::Forward(_) => panic!("a blocked org passed"),
    }
}

#[test]
fn a_batch_pays_for_each_of_its_messages() {
    let mut bench = Bench::new();
    bench.message.coarse_limits = vec![limit("*", 5)];
    let snapshot = bench.snapshot();
    let headers = bench.post("/demo/mcp", &[]);
    let body = |count: usize| format!("[{}]", vec![std::str::from_utf8(LIST).unwrap(); count].join(","));
    let filter = Edge::new(EdgeRole::Filter);
    assert_eq!(reason(judge(&filter, &snapshot, &headers, body(3).as_bytes())), None);
    assert_eq!(reason(judge(&filter, &snapshot, &headers, body(3).as_bytes())), Some(Reason::RateLimited));
}

#[test]
fn a_limit_over_a_name_counts_calls_by_body_and_by_modern_header() {
    let mut bench = Bench::new();
    bench.message.coarse_limits = vec![limit("heavy.*", 2)];
    let snapshot = bench.snapshot();
    let filter = Edge::new(EdgeRole::Filter);
    let call = br#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"heavy.x"}}"#;
    let legacy = bench.post("/demo/mcp", &[]);
    let modern = bench.post(
        "/demo/mcp",
        &[("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tools/call"), ("mcp-name", "heavy.y")],
    );
    assert_eq!(reason(judge(&filter, &snapshot, &legacy, call)), None);
    assert_eq!(reason(judge(&filter, &snapshot, &modern, call)), None);
    assert_eq!(reason(judge(&filter, &snapshot, &legacy, call)), Some(Reason::RateLimited));
    assert_eq!(reason(judge(&filter, &snapshot, &modern, call)), Some(Reason::RateLimited));
    assert_eq!(reason(judge(&filter, &snapshot, &legacy, LIST)), None);
}

#[test]
fn a_route_is_set_only_when_one_matches() {
    let bench = Bench::new();
    let snapshot = bench.snapshot();
    let filter = Edge::new(EdgeRole::Filter);
    let routed = forwarded(judge(&filter, &snapshot, &bench.post("/demo/mcp", &[]), LIST));
    assert!(routed.clear_route && routed.set.contains(&("x-asp-route", "pool-lists".to_owned())));
    let ping = br#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    let plain = forwarded(judge(&filter, &snapshot, &bench.post("/demo/mcp", &[]), ping));
    assert!(!plain.clear_route);
    assert_eq!(plain.set, [("x-asp-affinity", "0909090909090909".to_owned())]);
}

#[test]
fn a_server_that_vanishes_while_its_body_arrives_is_harmless() {
    let bench = Bench::new();
    let snapshot = bench.snapshot();
    let edge = Edge::new(EdgeRole::Filter);
    let Step::NeedBody(pending) =
        edge.on_headers(&snapshot, &bench.post("/demo/mcp", &[]), false, &env(NOW * 1000))
    else {
        panic!("decided without the body");
    };
    assert_eq!(reason(edge.on_body(&Snapshot::boot(), *pending, LIST, &env(NOW * 1000))), None);
}

#[test]
fn no_headers_at_all_are_refused() {
    let bench = Bench::new();
    let verdict = judge(&Edge::new(EdgeRole::Filter), &bench.snapshot(), &[], b"");
    assert_eq!(reason(verdict), Some(Reason::UnknownServer));
}

#[test]
fn random_headers_and_bodies_never_panic() {
    let bench = Bench::new();
    let snapshot = bench.snapshot();
    let names = [
        "host",
        "origin",
        "cookie",
        "mcp-name",
        "mcp-method",
        "mcp-protocol-version",
        "mcp-session-id",
        "x-asp-q",
        "content-length",
    ];
    let mut state = 1_u64;
    let mut next = |bound: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % bound
    };
    let filter = Edge::new(EdgeRole::Filter);
    let gateway = Edge::new(EdgeRole::Gateway);
    for _ in 0..5000 {
        let paths = [
            "/demo/mcp",
            "/demo/a2a",
            "/demo/a2a/tasks/7",
            "/open/mcp",
            "/strict/mcp",
            "/lf.a2a.v1.A2AService/GetTask",
            "/\u{e4}",
        ];
        let mut headers = bench.post(paths[next(paths.len())], &[]);
        for _ in 0..next(4) {
            let value = (0..next(24)).map(|_| next(256) as u8).collect();
            headers.push((names[next(names.len())].to_owned(), value));
        }
        let body: Vec<u8> = (0..next(40)).map(|_| b"{}[]\",:\\u01eE.-tfn \xff\xc3"[next(20)]).collect();
        judge(&filter, &snapshot, &headers, &body);
        judge(&gateway, &snapshot, &headers, &body);
    }
}

#[test]
fn in_development_a_server_without_authentication_answers_to_local_names_only() {
    let mut bench = Bench::new();
    bench.message.dev = true;
    let snapshot = bench.snapshot();
    let edge = Edge::new(EdgeRole::Gateway);
    for (host, expected) in [
        ("localhost:8080", None),
        ("mcp.example.com", None),
        ("rebound.evil.example", Some(Reason::HostDenied)),
    ] {
        let headers = bench.post("/open/mcp", &[(":authority", host)]);
        assert_eq!(reason(judge(&edge, &snapshot, &headers, LIST)), expected, "{host}");
        let headers = bench.post("/demo/mcp", &[(":authority", host)]);
        assert_eq!(reason(judge(&edge, &snapshot, &headers, LIST)), None, "{host}");
    }
}
