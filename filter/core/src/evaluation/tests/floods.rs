//! Floods of requests without a valid credential from one network, and callers with a valid token in the same network.

use serde_json::json;

use super::*;

/// Requests of each kind at once, at a rate of one a second.
const BURST: usize = 10;
const FLOODER: &str = "192.0.2.7:4711";

fn limited() -> (Bench, Snapshot) {
    let mut bench = Bench::new();
    bench.message.unauthenticated_rate = 1;
    let snapshot = bench.snapshot();
    (bench, snapshot)
}

fn judge_from(client: &str, edge: &Edge, snapshot: &Snapshot, headers: &[Header]) -> Verdict {
    let network = || Network::parse(client);
    match edge.on_headers_from(&network, snapshot, headers, false, &env(NOW * 1000)) {
        Step::Decided(verdict) => verdict,
        Step::NeedBody(pending) => edge.on_body(snapshot, *pending, LIST, &env(NOW * 1000)),
    }
}

/// A token that only a check of its signature refuses, or none if `spoil` is empty.
fn token(bench: &Bench, number: usize, spoil: &str) -> String {
    let claims = [("jti".to_owned(), json!(format!("t{number}")))].into_iter().collect();
    let recipe = Recipe { claims, spoil: spoil.to_owned(), ..Recipe::default() };
    format!("Bearer {}", mint(&recipe, bench.keys, NOW, PUBLIC_URL))
}

#[test]
fn a_flood_is_refused_in_the_callers_protocol_and_a_valid_token_beside_it_is_not() {
    let (bench, snapshot) = limited();
    let nothing = ("authorization", "");
    let malformed = ("authorization", "Bearer x");
    let grpc = ("content-type", "application/grpc");
    let method = "/lf.a2a.v1.A2AService/GetTask";
    let cases = [
        ("/demo/mcp", vec![nothing], UnauthenticatedKind::Anonymous, 429, "\"jsonrpc\""),
        ("/demo/rest/x", vec![malformed], UnauthenticatedKind::BadToken, 429, "urn:asp:reason:rate_limited"),
        ("/demo/a2a", vec![malformed], UnauthenticatedKind::BadToken, 429, "RATE_LIMITED"),
        (method, vec![malformed, grpc], UnauthenticatedKind::BadToken, 200, ""),
        ("/opaque/mcp", vec![malformed], UnauthenticatedKind::Unverified, 429, "\"jsonrpc\""),
    ];
    for (path, changes, kind, status, text) in cases {
        let edge = Edge::new(EdgeRole::Filter);
        let flood = bench.post(path, &changes);
        for number in 0..BURST {
            let reason = reason(judge_from(FLOODER, &edge, &snapshot, &flood));
            assert_ne!(reason, Some(Reason::RateLimited), "{path} {number}");
        }
        let Verdict::Reply(reply) = judge_from(FLOODER, &edge, &snapshot, &flood) else { panic!("{path}") };
        assert_eq!((reply.reason, reply.limited), (Some(Reason::RateLimited), Some(kind)), "{path}");
        assert_eq!(reply.status, status, "{path}");
        assert!(String::from_utf8_lossy(&reply.body).contains(text), "{path}");
        let grpc_status = reply.headers.iter().find(|(name, _)| *name == "grpc-status");
        assert_eq!(grpc_status.map(|(_, value)| value.as_str()), (status == 200).then_some("8"), "{path}");
        assert!(reply.headers.contains(&("retry-after", "1".to_owned())), "{path}");
        assert_ne!(reason(judge_from("192.0.2.8:1", &edge, &snapshot, &flood)), Some(Reason::RateLimited));
        for path in ["/demo/mcp", "/demo/a2a"] {
            let valid = bench.post(path, &[]);
            forwarded(judge_from(FLOODER, &edge, &snapshot, &valid));
        }
    }
}

#[test]
fn beyond_failed_checks_only_a_token_new_to_this_process_waits() {
    let (bench, snapshot) = limited();
    for role in [EdgeRole::Filter, EdgeRole::Gateway] {
        let edge = Edge::new(role);
        let known = bench.post("/demo/mcp", &[]);
        forwarded(judge_from(FLOODER, &edge, &snapshot, &known));
        let of = |number, spoil| {
            let authorization = token(&bench, number, spoil);
            bench.post("/demo/mcp", &[("authorization", &authorization)])
        };
        // Valid tokens before the flood take nothing.
        for number in 0..2 * BURST {
            forwarded(judge_from(FLOODER, &edge, &snapshot, &of(number, "")));
        }
        for number in 0..BURST {
            let verdict = judge_from(FLOODER, &edge, &snapshot, &of(number, "flip_signature"));
            assert_eq!(reason(verdict), Some(Reason::TokenInvalid), "{number}");
        }
        let next = of(BURST, "flip_signature");
        let Verdict::Reply(reply) = judge_from(FLOODER, &edge, &snapshot, &next) else { panic!("checked") };
        assert_eq!(reply.limited, Some(UnauthenticatedKind::Signature));
        forwarded(judge_from(FLOODER, &edge, &snapshot, &known));
        let new = of(3 * BURST, "");
        assert_eq!(reason(judge_from(FLOODER, &edge, &snapshot, &new)), Some(Reason::RateLimited));
        forwarded(judge_from("192.0.2.8:1", &edge, &snapshot, &new));
    }
}

#[test]
fn a_flood_of_malformed_tokens_delays_no_check_of_a_new_one() {
    let (bench, snapshot) = limited();
    let edge = Edge::new(EdgeRole::Filter);
    let malformed = bench.post("/demo/mcp", &[("authorization", "Bearer x")]);
    for _ in 0..2 * BURST {
        assert!(reason(judge_from(FLOODER, &edge, &snapshot, &malformed)).is_some());
    }
    let new = token(&bench, 0, "");
    forwarded(judge_from(FLOODER, &edge, &snapshot, &bench.post("/demo/mcp", &[("authorization", &new)])));
}

#[test]
fn a_gateway_leaves_what_it_verifies_itself_to_its_own_limit() {
    let (bench, snapshot) = limited();
    let opaque = bench.post("/opaque/mcp", &[("authorization", "Bearer x")]);
    for role in [EdgeRole::Filter, EdgeRole::Gateway] {
        let forward = forwarded(judge_from(FLOODER, &Edge::new(role), &snapshot, &opaque));
        assert!(forward.admitted.unverified);
        assert_eq!(forward.admitted.attempt.is_some(), role == EdgeRole::Filter);
    }
    let mut certificate = bench.post("/certs/mcp", &[("x-forwarded-client-cert", "Hash=1")]);
    certificate.retain(|(name, _)| name != "authorization");
    let edge = Edge::new(EdgeRole::Filter);
    let forward = forwarded(judge_from(FLOODER, &edge, &snapshot, &certificate));
    edge.settle(&forward.admitted.attempt.unwrap(), b"200", None);
    for _ in 0..2 * BURST {
        forwarded(judge_from(FLOODER, &edge, &snapshot, &certificate));
    }
    let text = bench.post("/certs/mcp", &[("authorization", "Hash=1")]);
    for _ in 0..BURST {
        forwarded(judge_from(FLOODER, &edge, &snapshot, &text));
    }
    let refused = reason(judge_from(FLOODER, &edge, &snapshot, &text));
    assert_eq!(refused, Some(Reason::RateLimited), "the text of a certificate in another header counts");
    forwarded(judge_from(FLOODER, &edge, &snapshot, &certificate));
}

#[test]
fn a_token_is_one_accepted_credential_however_its_scheme_is_written() {
    let (bench, snapshot) = limited();
    let edge = Edge::new(EdgeRole::Filter);
    let of = |authorization: &str| bench.post("/opaque/mcp", &[("authorization", authorization)]);
    let forward = forwarded(judge_from(FLOODER, &edge, &snapshot, &of("Bearer good")));
    edge.settle(&forward.admitted.attempt.unwrap(), b"200", None);
    for same in ["Bearer good", "bearer good", "BEARER good", "Bearer   good"] {
        for _ in 0..2 * BURST {
            forwarded(judge_from(FLOODER, &edge, &snapshot, &of(same)));
        }
    }
    for _ in 0..BURST {
        forwarded(judge_from(FLOODER, &edge, &snapshot, &of("Bearer Good")));
    }
    let refused = reason(judge_from(FLOODER, &edge, &snapshot, &of("Bearer Good")));
    assert_eq!(refused, Some(Reason::RateLimited), "a token's letters have their case");
}
