//! External causes that end a running call: its token is revoked or expires, its server or primitive is removed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use asp_call::call::outcome::{Outcome, Refusal, Withdrawal};
use asp_call::call::{Call, CallRequest, ClientAbilities, Invocation};
use asp_edge::Caller;
use asp_proto::snapshot::snapshot_part::Part;
use asp_proto::snapshot::{ExposureException, GatewaySnapshot, Protocol, RevokedBefore};
use asp_registry::{Inputs, assemble};
use asp_snapshot::Snapshot;
use axum::body::{Body, Bytes};
use futures::StreamExt;
use http::Method;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::support::{
    Answer, Fixture, Legacy, Modern, claims, denied_to_alice, inputs, now, sign, snapshot, token,
};

/// Ten times the goal: a second from the change to the end of the stream.
const BOUND: Duration = Duration::from_secs(10);

/// The snapshot after a change.
fn changed(change: impl FnOnce(&mut Inputs)) -> GatewaySnapshot {
    let mut inputs = inputs();
    inputs.revision = 2;
    change(&mut inputs);
    assemble(inputs)
}

fn mark(parts: &[&str]) -> [u8; 16] {
    let digest = Sha256::digest(parts.join("\0"));
    digest[..16].try_into().unwrap()
}

/// A call that reports progress every 100 ms for ten seconds, and then has a result.
fn long_call(token: &str) -> Modern {
    let params = json!({"name": "count", "arguments": {"to": 100, "delayMs": 100}});
    let mut request = Modern::new("demo", token, "tools/call", params);
    request.body["params"]["_meta"]["progressToken"] = json!(1);
    request
}

/// The response of a call that has begun to stream.
async fn streaming(fixture: &Fixture, token: &str) -> Body {
    let response = long_call(token).open(fixture).await;
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    begun(response.into_body()).await
}

async fn begun(mut body: Body) -> Body {
    let mut first = body.frame().await.unwrap().unwrap().into_data().unwrap();
    if first.starts_with(b"id:") {
        // The event without a message.
        first = body.frame().await.unwrap().unwrap().into_data().unwrap();
    }
    assert!(String::from_utf8_lossy(&first).contains("notifications/progress"));
    body
}

/// The last message of a stream that must end in time.
async fn ended(body: Body) -> Value {
    let since = Instant::now();
    let rest =
        tokio::time::timeout(BOUND, body.collect()).await.expect("the stream ends").unwrap().to_bytes();
    assert!(since.elapsed() < BOUND);
    let text = String::from_utf8(rest.to_vec()).unwrap();
    let last = text.lines().filter_map(|line| line.strip_prefix("data: ")).next_back().unwrap();
    serde_json::from_str(last).unwrap()
}

async fn until(what: &str, holds: impl AsyncFn() -> bool) {
    let waiting = async {
        while !holds().await {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(BOUND, waiting).await.unwrap_or_else(|_| panic!("{what}"));
}

async fn is_cancelled(fixture: &Fixture) {
    let cancelled =
        async || fixture.gateway.pipeline.internals().metrics.encode().contains(r#"status="cancelled""#);
    until("the call is cancelled", cancelled).await;
    assert!(fixture.gateway.pipeline.internals().registry.is_empty());
}

#[tokio::test]
async fn a_running_call_ends_when_its_caller_could_not_begin_it_any_more() {
    let token = token("alice");
    let hash: String = Sha256::digest(&token).iter().map(|byte| format!("{byte:02x}")).collect();
    let before = |user: &str| RevokedBefore {
        org: "acme".into(),
        user: user.into(),
        not_after_iat: now(),
        ..Default::default()
    };
    let off = ExposureException {
        org: "acme".into(),
        server: "demo".into(),
        protocol: Protocol::Mcp.into(),
        enabled: false,
    };
    let deny = denied_to_alice("*", Protocol::Mcp);
    let rows: Vec<(&str, &str, GatewaySnapshot)> = vec![
        ("jti", "token_revoked", changed(|i| i.revoked = vec![mark(&["token", "asp-dev", "t-alice"])])),
        (
            "jti of the org",
            "token_revoked",
            changed(|i| i.revoked = vec![mark(&["org_token", "asp-dev", "acme", "t-alice"])]),
        ),
        ("hash", "token_revoked", changed(|i| i.revoked = vec![mark(&["token_hash", &hash])])),
        ("user", "token_revoked", changed(|i| i.revoked_before = vec![before("alice")])),
        ("org", "token_revoked", changed(|i| i.revoked_before = vec![before("")])),
        ("issuer", "token_revoked", changed(|i| i.issuers[0].orgs = vec!["globex".into()])),
        ("exposure", "unknown_server", changed(|i| i.exposure = vec![off])),
        ("server", "unknown_server", changed(|i| i.servers.retain(|server| server.server.name != "demo"))),
        ("binding", "unknown_primitive", changed(|i| i.bindings = vec![deny])),
    ];
    for (what, reason, next) in rows {
        let fixture = Fixture::new();
        let body = streaming(&fixture, &token).await;
        fixture.gateway.apply(next).unwrap();
        let last = ended(body).await;
        assert_eq!(last["error"]["data"]["reason"], reason, "{what}: {last}");
        assert_eq!((&last["id"], &last["jsonrpc"]), (&json!(7), &json!("2.0")), "{what}");
        is_cancelled(&fixture).await;
    }
}

/// Blocks an org's user, or the whole org, for a reason.
fn block(user: &str) -> RevokedBefore {
    RevokedBefore {
        org: "acme".into(),
        user: user.into(),
        not_after_iat: u64::MAX,
        since_ms: (now() - 1) * 1_000,
        reason: "left the company".into(),
        block: true,
    }
}

#[tokio::test]
async fn a_blocked_callers_call_and_its_next_one_end_with_the_time_and_the_reason() {
    for user in ["alice", ""] {
        let fixture = Fixture::new();
        let body = streaming(&fixture, &token("alice")).await;
        fixture.gateway.apply(changed(|i| i.revoked_before = vec![block(user)])).unwrap();
        let last = ended(body).await;
        let is_cancelled_call = async || {
            let metrics = fixture.gateway.pipeline.internals().metrics.encode();
            metrics.contains(r#"asp_revocation_seconds_count{stage="call"} 1"#)
        };
        until("the end is measured", is_cancelled_call).await;
        is_cancelled(&fixture).await;
        let mut later = claims("alice");
        later["jti"] = "t-later".into();
        let next = Modern::new("demo", &sign(&later), "tools/list", json!({})).send(&fixture).await;
        assert_eq!(
            (next.status.as_u16(), next.reason().as_str()),
            (403, "blocked"),
            "a new token does not help"
        );
        assert!(next.headers.get("www-authenticate").is_none(), "no login would help");
        for data in [&last["error"]["data"], &next.json()["error"]["data"]] {
            assert_eq!(
                (&data["reason"], &data["revokedReason"]),
                (&json!("blocked"), &json!("left the company"))
            );
            assert!(data["revokedSince"].as_str().is_some_and(|since| since.ends_with('Z')), "{data}");
        }
        let message = last["error"]["message"].as_str().unwrap();
        assert!(message.starts_with("the caller has been blocked since "), "{message}");
        let bob = Modern::new("demo", &token("bob"), "tools/list", json!({})).send(&fixture).await;
        assert_eq!(bob.status.as_u16(), if user.is_empty() { 403 } else { 200 });
    }
}

/// Invariant I-10: a caller without a valid token learns nothing of who is blocked.
#[tokio::test]
async fn a_block_is_shown_to_nobody_without_a_valid_token_of_the_blocked_caller() {
    let fixture = Fixture::new();
    fixture.gateway.apply(changed(|i| i.revoked_before = vec![block("alice")])).unwrap();
    let mut forged = token("alice");
    forged.replace_range(forged.len() - 8.., "AAAAAAAA");
    let mut expired = claims("alice");
    expired["exp"] = json!(now() - 600);
    expired["iat"] = json!(now() - 1_200);
    for (token, reason) in [(forged, "token_invalid"), (sign(&expired), "token_expired")] {
        let answer = Modern::new("demo", &token, "tools/list", json!({})).send(&fixture).await;
        assert_eq!(answer.reason(), reason);
        let text = answer.json().to_string();
        assert!(!text.contains("left") && !text.contains("revoked"), "{text}");
    }
}

#[tokio::test]
async fn a_legacy_stream_ends_as_well_and_nobody_elses_does() {
    let fixture = Fixture::new();
    let message = json!({"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {
        "name": "count", "arguments": {"to": 20, "delayMs": 100}, "_meta": {"progressToken": 1}}});
    let mut bodies = Vec::new();
    for user in ["alice", "bob"] {
        let client = Legacy::connect(&fixture, "demo", user, "2025-11-25", json!({})).await;
        bodies.push(begun(client.open(&message).await.into_body()).await);
    }
    let bobs = bodies.pop().unwrap();
    let next = changed(|i| i.revoked = vec![mark(&["token", "asp-dev", "t-alice"])]);
    fixture.gateway.apply(next).unwrap();
    let last = ended(bodies.pop().unwrap()).await;
    assert_eq!((&last["id"], &last["error"]["data"]["reason"]), (&json!(3), &json!("token_revoked")));
    assert_eq!(ended(bobs).await["result"]["structuredContent"], json!({"counted": 20}));
}

fn alice(wcit: &str) -> Arc<Caller> {
    Arc::new(Caller {
        org: "acme".into(),
        user: "alice".into(),
        groups: Vec::new(),
        scopes: Vec::new(),
        client: "cli".into(),
        wcit: wcit.into(),
        digest: [0; 32],
        issuer: "dev".into(),
        issued_at: now(),
        expires_at: now() + 600,
    })
}

/// Ten seconds of counting for alice, admitted under `snapshot`.
fn counting(fixture: &Fixture, snapshot: &Arc<Snapshot>) -> Arc<Call> {
    begin_counting(fixture, snapshot).unwrap()
}

fn begin_counting(fixture: &Fixture, snapshot: &Arc<Snapshot>) -> Result<Arc<Call>, Refusal> {
    let server = snapshot.server("demo").unwrap().clone();
    let request = CallRequest {
        caller: alice("t-alice"),
        protocol: Protocol::Mcp,
        entry: server.tool("count").unwrap().clone(),
        server,
        meta: Default::default(),
        kind: Default::default(),
        chosen: None,
        protocol_request_id: "1".into(),
        session: String::new(),
        context: String::new(),
        opening: None,
        trace: asp_edge::Trace::new([7; 24]),
        bytes_in: 0,
        parent: None,
    };
    let invocation = Invocation {
        request,
        subject: None,
        arguments: json!({"to": 100, "delayMs": 100}).into(),
        idempotency_key: None,
        deadline: None,
        abilities: ClientAbilities::default(),
        memory: None,
    };
    fixture.gateway.pipeline.begin(snapshot.clone(), invocation)
}

async fn is_withdrawn(call: &Call) {
    let outcome = tokio::time::timeout(BOUND, call.finished()).await.unwrap();
    let expected = Refusal::Withdrawn(Withdrawal::TokenRevoked);
    assert!(matches!(outcome.as_ref(), Outcome::Refused(refusal) if *refusal == expected), "{outcome:?}");
}

#[tokio::test]
async fn a_call_admitted_under_an_older_snapshot_does_not_escape_a_newer_one() {
    let fixture = Fixture::new();
    let old = Arc::new(Snapshot::build(snapshot()).unwrap());
    let next = changed(|i| i.revoked = vec![mark(&["token", "asp-dev", "t-alice"])]);
    fixture.gateway.apply(next).unwrap();
    is_withdrawn(&counting(&fixture, &old)).await;
}

/// Revocations of another control plane come into force at the revision that is in force already.
#[tokio::test]
async fn a_call_admitted_under_another_snapshot_of_the_same_revision_does_not_escape_it() {
    let fixture = Fixture::new();
    let old = Arc::new(Snapshot::build(snapshot()).unwrap());
    let next = changed(|i| {
        i.revision = old.revision;
        i.revoked = vec![mark(&["token", "asp-dev", "t-alice"])];
    });
    fixture.gateway.apply(next).unwrap();
    assert_eq!(fixture.gateway.revision(), old.revision);
    is_withdrawn(&counting(&fixture, &old)).await;
}

/// A gateway of an earlier version may refuse what a newer control plane accepts.
#[tokio::test]
async fn a_server_that_a_gateway_cannot_compile_keeps_no_revocation_from_it() {
    let fixture = Fixture::new();
    let call = counting(&fixture, &Arc::new(Snapshot::build(snapshot()).unwrap()));
    let next = changed(|i| i.revoked = vec![mark(&["token", "asp-dev", "t-alice"])]);
    let mut parts = asp_snapshot::parts::split(next);
    let demo = parts.get_mut("server/demo").and_then(|part| part.part.as_mut());
    let Some(Part::Server(demo)) = demo else { panic!() };
    demo.primitives.iter_mut().for_each(|primitive| primitive.input_schema = "{".into());
    let changes = parts.into_iter().map(|(name, part)| (name, Some(part))).collect();
    let faults = fixture.gateway.apply_changes(2, 2, changes).unwrap();
    let named: Vec<&str> = faults.keys().map(String::as_str).collect();
    assert_eq!((named, fixture.gateway.revision()), (vec!["server/demo"], 2));
    is_withdrawn(&call).await;
}

/// Lets the tasks run that can.
async fn turns(number: usize) {
    for _ in 0..number {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn dead_tokens_end_their_calls_while_an_evaluation_is_under_way() {
    let fixture = Fixture::new();
    let admitted = Arc::new(Snapshot::build(snapshot()).unwrap());
    // Many more than are evaluated before others get the thread.
    let calls: Vec<Arc<Call>> = (0..300).map(|_| counting(&fixture, &admitted)).collect();
    turns(100).await;
    fixture.gateway.apply(changed(|_| {})).unwrap();
    turns(1).await;
    let next = changed(|i| {
        i.revision = 3;
        i.revoked = vec![mark(&["token", "asp-dev", "t-alice"])];
    });
    fixture.gateway.apply(next).unwrap();
    turns(3).await;
    let ended = calls.iter().filter(|call| call.withdrawal() == Some(Withdrawal::TokenRevoked)).count();
    assert_eq!(ended, calls.len(), "those that were evaluated before too");
}

/// Invariant I-10: nobody is told that what is hidden by now was there a moment ago.
#[tokio::test]
async fn what_is_hidden_while_a_call_of_it_begins_is_as_unknown_as_what_never_was() {
    let denied = changed(|i| {
        i.bindings = vec![denied_to_alice("*", Protocol::Mcp)];
    });
    let gone = changed(|i| i.servers.retain(|server| server.server.name != "demo"));
    for next in [denied, gone] {
        let fixture = Fixture::new();
        let old = Arc::new(Snapshot::build(snapshot()).unwrap());
        fixture.gateway.apply(next).unwrap();
        // Every protocol says of this what it says of a name that never was.
        let refused = begin_counting(&fixture, &old).map(|call| call.withdrawal());
        assert_eq!(refused, Err(Refusal::Unknown));
    }
}

#[tokio::test]
async fn a_caller_who_comes_back_with_a_token_that_is_dead_by_then_ends_the_call() {
    let fixture = Fixture::new();
    let call = counting(&fixture, &Arc::new(Snapshot::build(snapshot()).unwrap()));
    // The request was evaluated, and then waited: for its call, which another gateway had left.
    let next = changed(|i| i.revoked = vec![mark(&["token", "asp-dev", "t-late"])]);
    fixture.gateway.apply(next).unwrap();
    // The running calls are evaluated by the change, each with the token it had.
    tokio::task::yield_now().await;
    fixture.gateway.pipeline.internals().running.attend(&call, &alice("t-late"));
    is_withdrawn(&call).await;
}

/// A request whose body's second half comes when `meanwhile` is done: after its headers were evaluated.
pub(crate) async fn in_two_halves(
    fixture: &Fixture,
    headers: &[(&str, &str)],
    text: &str,
    meanwhile: impl AsyncFnOnce(),
) -> Answer {
    let (first, second) = text.split_at(text.len() / 2);
    let (asked, is_asked) = tokio::sync::oneshot::channel();
    let (go_on, may_go_on) = tokio::sync::oneshot::channel::<()>();
    let rest = Bytes::from(second.to_owned());
    let second = async move {
        asked.send(()).unwrap();
        may_go_on.await.unwrap();
        Ok::<_, std::io::Error>(rest)
    };
    let first = futures::stream::iter([Ok(Bytes::from(first.to_owned()))]);
    let body = Body::from_stream(first.chain(futures::stream::once(second)));
    let answering = fixture.send_body(Method::POST, "/demo/mcp", headers, body);
    let changing = async {
        is_asked.await.unwrap();
        meanwhile().await;
        go_on.send(()).unwrap();
    };
    tokio::join!(answering, changing).0
}

#[tokio::test]
async fn what_happens_while_a_body_comes_counts_for_its_request() {
    let off = || ExposureException {
        org: "acme".into(),
        server: "demo".into(),
        protocol: Protocol::Mcp.into(),
        enabled: false,
    };
    let rows: Vec<(u16, &str, GatewaySnapshot)> = vec![
        (401, "token_revoked", changed(|i| i.revoked = vec![mark(&["token", "asp-dev", "t-alice"])])),
        (404, "unknown_server", changed(|i| i.exposure = vec![off()])),
        (404, "unknown_server", changed(|i| i.servers.retain(|server| server.server.name != "demo"))),
    ];
    for (status, reason, next) in rows {
        let fixture = Fixture::new();
        let modern = Modern::new("demo", &token("alice"), "tools/list", json!({}));
        let headers: Vec<(&str, &str)> =
            modern.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let apply = async || fixture.gateway.apply(next.clone()).unwrap();
        let answer = in_two_halves(&fixture, &headers, &modern.body.to_string(), apply).await;
        assert_eq!((answer.status.as_u16(), answer.reason().as_str()), (status, reason), "modern");

        let fixture = Fixture::new();
        let client = Legacy::connect(&fixture, "demo", "alice", "2025-11-25", json!({})).await;
        let headers = client.headers();
        let headers: Vec<(&str, &str)> =
            headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let message = json!({"jsonrpc": "2.0", "id": 3, "method": "tools/list"}).to_string();
        let apply = async || fixture.gateway.apply(next.clone()).unwrap();
        let answer = in_two_halves(&fixture, &headers, &message, apply).await;
        assert_eq!((answer.status.as_u16(), answer.reason().as_str()), (status, reason), "legacy");
    }
}

#[tokio::test]
async fn a_token_that_expires_while_a_body_comes_is_refused() {
    let fixture = Fixture::new();
    let modern = Modern::new("demo", &dying("alice"), "tools/list", json!({}));
    let headers: Vec<(&str, &str)> =
        modern.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let is_dead = async || modern.send(&fixture).await.status == 401;
    let meanwhile = async || until("the token expires", is_dead).await;
    let answer = in_two_halves(&fixture, &headers, &modern.body.to_string(), meanwhile).await;
    assert_eq!((answer.status.as_u16(), answer.reason().as_str()), (401, "token_expired"));
}

/// A token that is refused from a second or two from now on: the leeway of ten seconds is nearly used up.
fn dying(user: &str) -> String {
    let mut claims = claims(user);
    claims["exp"] = json!(now() - 8);
    claims["iat"] = json!(now() - 600);
    sign(&claims)
}

#[tokio::test]
async fn a_stream_ends_with_its_token() {
    let fixture = Fixture::new();
    let body = streaming(&fixture, &dying("alice")).await;
    assert_eq!(ended(body).await["error"]["data"]["reason"], "token_expired");
    is_cancelled(&fixture).await;
}

fn wipe(token: &str, extra: Value) -> Modern {
    let mut params = json!({"name": "policy.wipe", "arguments": {"message": "gone"}});
    for (name, value) in extra.as_object().unwrap() {
        params[name] = value.clone();
    }
    Modern::new("policy", token, "tools/call", params).capabilities(json!({"elicitation": {}}))
}

fn approved(state: &Value) -> Value {
    let accept = json!({"asp.approve": {"action": "accept", "content": {"approve": true}}});
    json!({"requestState": state, "inputResponses": accept})
}

#[tokio::test]
async fn a_call_that_waits_for_input_outlives_its_token_and_goes_on_with_a_fresh_one() {
    let fixture = Fixture::new();
    let old = dying("alice");
    let asked = wipe(&old, json!({})).send(&fixture).await.json()["result"].clone();
    assert_eq!(asked["resultType"], "input_required");
    let is_dead = async || {
        let answer = Modern::new("policy", &old, "tools/list", json!({})).send(&fixture).await;
        answer.status == 401 && answer.reason() == "token_expired"
    };
    until("the token expires", is_dead).await;
    let fresh = wipe(&token("alice"), approved(&asked["requestState"])).send(&fixture).await.json();
    assert_eq!(fresh["result"]["structuredContent"], json!({"message": "gone"}), "{fresh}");
}

#[tokio::test]
async fn a_call_that_waits_for_input_does_not_outlive_a_revocation() {
    let fixture = Fixture::new();
    let asked = wipe(&token("alice"), json!({})).send(&fixture).await.json()["result"].clone();
    let next = changed(|i| i.revoked = vec![mark(&["token", "asp-dev", "t-alice"])]);
    fixture.gateway.apply(next).unwrap();
    is_cancelled(&fixture).await;
    let mut fresh = claims("alice");
    fresh["jti"] = "t-fresh".into();
    let late = wipe(&sign(&fresh), approved(&asked["requestState"])).send(&fixture).await.json();
    assert_eq!(late["error"]["data"]["reason"], "token_revoked", "{late}");
}
