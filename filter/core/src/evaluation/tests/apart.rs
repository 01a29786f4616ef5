//! Requests while the separate list of recent revocations has not arrived: callers whose token would be accepted must
//! retry later, and nothing changes for anybody else.

use std::sync::Arc;

use asp_proto::snapshot::RecentRevocations;

use super::*;
use crate::RecentList;

/// Returns a snapshot with separate recent revocations, before they arrive.
fn incomplete(bench: &Bench) -> Snapshot {
    let message = EdgeSnapshot { revocations_apart: true, revoked_through: 100, ..bench.message.clone() };
    Snapshot::from_message(message).unwrap()
}

fn with_recent(snapshot: &Snapshot) -> Snapshot {
    let message = RecentRevocations { revision: 1, since: 100, until: 200, ..RecentRevocations::default() };
    snapshot.with_recent(&Arc::new(RecentList::from_message(message).unwrap()))
}

#[test]
fn a_token_that_would_be_accepted_is_told_to_come_back_until_the_list_is_there() {
    let bench = Bench::new();
    let snapshot = incomplete(&bench);
    let complete = with_recent(&snapshot);
    for role in [EdgeRole::Filter, EdgeRole::Gateway] {
        let edge = Edge::new(role);
        for path in ["/demo/mcp", "/demo/a2a", "/demo/rest/x"] {
            let headers = bench.post(path, &[]);
            // Twice: a cached token is treated in the same way.
            for _ in 0..2 {
                let Verdict::Reply(reply) = judge(&edge, &snapshot, &headers, LIST) else { panic!("{path}") };
                assert_eq!((reply.reason, reply.status), (Some(Reason::UpstreamUnavailable), 503), "{path}");
                assert!(reply.headers.iter().all(|(name, _)| *name != "www-authenticate"));
                let jsonrpc = String::from_utf8_lossy(&reply.body).contains("\"jsonrpc\"");
                assert_eq!(jsonrpc, !path.contains("rest"), "{path}");
            }
            forwarded(judge(&edge, &complete, &headers, LIST));
        }
    }
}

/// Path, changed headers, and the result with and without the list.
type Unchanged = (&'static str, Vec<(&'static str, &'static str)>, Option<Reason>);

#[test]
fn what_needs_no_list_goes_on_as_before() {
    let bench = Bench::new();
    let snapshot = incomplete(&bench);
    let complete = with_recent(&snapshot);
    let nothing = ("authorization", "");
    let unsigned = ("authorization", "Bearer x");
    let cases: [Unchanged; 10] = [
        ("/nobody/mcp", vec![], Some(Reason::UnknownServer)),
        ("/demo/mcp", vec![("origin", "https://evil.example")], Some(Reason::OriginDenied)),
        ("/demo/mcp", vec![nothing], Some(Reason::TokenMissing)),
        ("/demo/mcp", vec![unsigned], Some(Reason::TokenInvalid)),
        ("/closed/mcp", vec![nothing], Some(Reason::UnknownServer)),
        ("/open/mcp", vec![nothing], None),
        ("/healthz", vec![nothing], None),
        ("/opaque/mcp", vec![unsigned], None),
        ("/shared/mcp", vec![("authorization", "Bearer asp_psk_x")], None),
        ("/certs/mcp", vec![nothing], None),
    ];
    let edge = Edge::new(EdgeRole::Filter);
    for (path, changes, expected) in cases {
        for snapshot in [&snapshot, &complete] {
            let verdict = judge(&edge, snapshot, &bench.post(path, &changes), LIST);
            assert_eq!(reason(verdict), expected, "{path} {changes:?}");
        }
    }
}

#[test]
fn a_token_that_is_bad_anyway_is_refused_as_such_without_the_list() {
    let bench = Bench::new();
    let snapshot = incomplete(&bench);
    let edge = Edge::new(EdgeRole::Filter);
    let recipe = |claim: &str, value: serde_json::Value| Recipe {
        claims: [(claim.to_owned(), value)].into_iter().collect(),
        ..Recipe::default()
    };
    let cases = [
        (recipe("jti", "jti-revoked".into()), Reason::TokenRevoked),
        (recipe("exp", "now-30".into()), Reason::TokenExpired),
        (recipe("aud", "https://elsewhere".into()), Reason::TokenInvalid),
    ];
    for (recipe, expected) in cases {
        let authorization = format!("Bearer {}", mint(&recipe, bench.keys, NOW, PUBLIC_URL));
        let headers = bench.post("/demo/mcp", &[("authorization", &authorization)]);
        assert_eq!(reason(judge(&edge, &snapshot, &headers, LIST)), Some(expected));
    }
}

#[test]
fn a_caller_that_the_gateway_found_waits_for_the_list_too() {
    let bench = Bench::new();
    let snapshot = incomplete(&bench);
    let edge = Edge::new(EdgeRole::Gateway);
    let judged = forwarded(judge(&edge, &with_recent(&snapshot), &bench.post("/demo/mcp", &[]), LIST));
    let caller = judged.admitted.caller.clone().unwrap();
    let found = |snapshot: &Snapshot| {
        let admitted = judged.admitted.clone();
        edge.admit(snapshot, admitted, Arc::clone(&caller), &env(NOW * 1000)).map_err(|reply| reply.reason)
    };
    assert_eq!(found(&snapshot).err(), Some(Some(Reason::UpstreamUnavailable)));
    assert!(found(&with_recent(&snapshot)).is_ok());
}
