//! Machines that call with certificates (`mtls`): whom a gateway believes what a client has shown, and what that is worth.

use asp_edge::MACHINE_ISSUER;
use asp_proto::snapshot::{
    AuthScheme, Binding, GatewaySnapshot, Limit, MachineCertificate, MachineKey, Protocol, RevokedBefore,
    TargetKind,
};
use asp_registry::{Inputs, assemble};
use http::{Method, StatusCode};
use http_body_util::BodyExt;
use serde_json::json;
use sha2::{Digest, Sha256};
use tower::ServiceExt;

use crate::rest::{Rest, reason};
use crate::support::{Answer, Fixture, Modern, inputs, now, token};

const FORWARDED: &str = "x-forwarded-client-cert";
const URI: &str = "spiffe://example.org/press-7";

fn certificate(id: &str, hash: Option<u8>, uri: &str) -> MachineCertificate {
    MachineCertificate {
        id: id.into(),
        fingerprint: hash.map(|byte| vec![byte; 32]).unwrap_or_default(),
        uri: uri.into(),
        proved: true,
        org: "acme".into(),
        user: "press".into(),
        groups: vec!["robots".into()],
        scopes: vec![],
        issued_at: now() - 10,
        expires_at: now() + 600,
    }
}

fn known() -> Vec<MachineCertificate> {
    vec![certificate("c1", Some(0x11), ""), certificate("c2", None, URI)]
}

/// The tests' servers, which take certificates and tokens; `plugins` takes tokens alone.
fn with(machine_certificates: Vec<MachineCertificate>) -> Inputs {
    let mut inputs = Inputs { machine_certificates, ..inputs() };
    for server in inputs.servers.iter_mut().filter(|server| server.server.name != "plugins") {
        server.edge.schemes.push(AuthScheme::Mtls.into());
    }
    inputs
}

/// A peer that proved this role.
fn peer(role: &str) -> Option<asp_peer::Identity> {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::default();
    let uri = format!("spiffe://example.org/asp/{role}/test");
    params.subject_alt_names.push(rcgen::SanType::URI(uri.try_into().unwrap()));
    Some(asp_peer::Identity::of(params.self_signed(&key).unwrap().der()).unwrap())
}

/// Creates a gateway whose requests come over a connection of an Envoy of the platform.
fn through_envoy(inputs: Inputs) -> Fixture {
    Fixture { peer: peer("envoy"), ..Fixture::of(assemble(inputs)) }
}

fn applied(fixture: &Fixture, inputs: Inputs) {
    fixture.gateway.apply(assemble(Inputs { revision: 2, ..inputs })).unwrap();
}

/// Returns the client certificate header in Envoy's format.
fn shown(hash: u8, uri: &str) -> String {
    format!("By=spiffe://example.org/asp/envoy/0;Hash={};URI={uri}", format!("{hash:02x}").repeat(32))
}

fn call(header: &str, tool: &str) -> Modern {
    let params = json!({"name": tool, "arguments": {"message": "hi"}});
    Modern::new("policy", "", "tools/call", params).without("authorization").with(FORWARDED, header)
}

fn done(answer: &Answer) -> bool {
    answer.json()["result"]["structuredContent"]["message"] == "hi"
}

fn refused(answer: &Answer, reason: &str) {
    let said = (answer.status, answer.reason());
    assert_eq!(said, (StatusCode::UNAUTHORIZED, reason.to_owned()), "{}", answer.text);
    assert!(answer.headers.contains_key("www-authenticate"));
}

async fn audited(fixture: &Fixture) -> usize {
    fixture.gateway.flush().await;
    fixture.audit.events().len()
}

#[tokio::test]
async fn a_machine_calls_with_its_certificate_in_every_protocol_and_the_audit_knows_it() {
    let fixture = through_envoy(with(known()));
    assert!(done(&call(&shown(0x11, ""), "policy.open").send(&fixture).await));
    assert!(done(&call(&shown(0x22, URI), "policy.open").send(&fixture).await));
    let mut rest = Rest::of(&fixture, "policy.open", "1").with(FORWARDED, &shown(0x11, ""));
    rest.headers.retain(|(name, _)| name != "authorization");
    assert_eq!(rest.put(&json!({"message": "hi"})).await.status, StatusCode::CREATED);
    assert!(done(
        &call("", "policy.open")
            .without(FORWARDED)
            .with("authorization", &format!("Bearer {}", token("alice")))
            .send(&fixture)
            .await
    ));
    fixture.gateway.flush().await;
    let events = fixture.audit.events();
    let of = |id: &str| events.iter().filter(|event| event.event.contains(&format!("\"{id}\""))).count();
    assert_eq!((of("press"), of("c1"), of("c2")), (6, 4, 2), "{events:?}");
    assert!(events.iter().all(|event| event.org == "acme"));
}

#[tokio::test]
async fn nobody_but_an_envoy_of_the_platform_is_believed_what_a_client_has_shown() {
    let envoy = through_envoy(with(known()));
    let good = call(&shown(0x11, URI), "policy.open");
    for stranger in [None, peer("gateway"), peer("control"), peer("runtime")] {
        let fixture = Fixture { peer: stranger, ..envoy.clone() };
        refused(&good.send(&fixture).await, "token_missing");
        let mut rest = Rest::of(&fixture, "policy.open", "1").with(FORWARDED, &shown(0x11, ""));
        rest.headers.retain(|(name, _)| name != "authorization");
        assert_eq!(reason(&rest.put(&json!({"message": "hi"})).await), (401, "token_missing".into()));
    }
    assert_eq!(audited(&envoy).await, 0, "no effect");
    assert!(done(&good.send(&envoy).await));
}

#[tokio::test]
async fn what_is_no_certificate_in_force_is_refused_as_any_bad_token() {
    let ended = MachineCertificate { expires_at: now() - 60, ..certificate("c3", Some(0x33), "") };
    let fixture = through_envoy(with([known(), vec![ended]].concat()));
    for (header, why) in [
        (shown(0x22, ""), "token_invalid"),
        (shown(0x22, "spiffe://example.org/press-77"), "token_invalid"),
        (shown(0x33, ""), "token_expired"),
        (format!("{};URI=spiffe://example.org/other", shown(0x22, URI)), "token_invalid"),
        (format!("{};DNS=press", shown(0x22, URI)), "token_invalid"),
        // What cannot be read is as if nothing had been shown.
        (format!("{},{}", shown(0x11, ""), shown(0x11, "")), "token_missing"),
        (format!("{};Hash={}", shown(0x22, ""), "11".repeat(32)), "token_missing"),
        (String::new(), "token_missing"),
    ] {
        refused(&call(&header, "policy.open").send(&fixture).await, why);
    }
    let mut twice = call(&shown(0x11, ""), "policy.open");
    twice.headers.push((FORWARDED.into(), shown(0x11, "")));
    refused(&twice.send(&fixture).await, "token_missing");
    // At a server that takes no certificates the best one is nothing.
    let elsewhere = Modern { server: "plugins".into(), ..call(&shown(0x11, ""), "x") };
    refused(&elsewhere.send(&fixture).await, "token_missing");
    assert_eq!(audited(&fixture).await, 0, "no effect");
}

#[tokio::test]
async fn a_certificate_beside_another_credential_is_not_looked_at() {
    let mut inputs = with(known());
    inputs.machine_keys.push(MachineKey {
        id: "a".repeat(16),
        hash: Sha256::digest("asp_psk_x").to_vec(),
        org: "acme".into(),
        user: "press".into(),
        ..MachineKey::default()
    });
    let fixture = through_envoy(inputs);
    for other in ["Bearer nonsense", "Bearer asp_psk_aaaaaaaaaaaaaaaa_x", "Basic eDp5", "Bearer "] {
        let answer = call(&shown(0x11, ""), "policy.open").with("authorization", other).send(&fixture).await;
        refused(&answer, "token_invalid");
    }
    let user =
        call(&shown(0x11, ""), "policy.open").with("authorization", &format!("Bearer {}", token("alice")));
    assert!(done(&user.send(&fixture).await));
    fixture.gateway.flush().await;
    assert!(fixture.audit.events().iter().all(|event| !event.event.contains("press")), "it was alice");
}

fn deny(kind: TargetKind, target: &str) -> Binding {
    Binding {
        org: "acme".into(),
        target_kind: kind.into(),
        target: target.into(),
        issuer: if kind == TargetKind::User { MACHINE_ISSUER } else { "" }.into(),
        primitive: "policy.open".into(),
        protocol: Protocol::Unspecified.into(),
        allowed: false,
        ..Binding::default()
    }
}

#[tokio::test]
async fn policy_limits_scopes_and_revocations_bound_a_machine_as_they_bound_users() {
    for (kind, target) in
        [(TargetKind::User, "press"), (TargetKind::Group, "robots"), (TargetKind::Wcit, "c1")]
    {
        let mut inputs = with(known());
        inputs.bindings.push(deny(kind, target));
        let fixture = through_envoy(inputs);
        assert_eq!(call(&shown(0x11, ""), "policy.open").send(&fixture).await.reason(), "unknown_primitive");
    }
    let mut inputs = with(known());
    inputs.limits.push(Limit {
        org: "acme".into(),
        server: "*".into(),
        primitive: "policy.open".into(),
        user: "press".into(),
        wcit: "*".into(),
        issuer: MACHINE_ISSUER.into(),
        capacity: 1,
        refill_per_second: 0.001,
        observe: false,
        ..Limit::default()
    });
    let fixture = through_envoy(inputs);
    assert!(done(&call(&shown(0x11, ""), "policy.open").send(&fixture).await));
    let limited = call(&shown(0x22, URI), "policy.open").send(&fixture).await.json();
    assert_eq!(limited["result"]["_meta"]["asp/reason"], "rate_limited", "one machine, whatever it shows");
    let scoped = call(&shown(0x11, ""), "policy.scoped").send(&fixture).await;
    assert_eq!((scoped.status, scoped.reason().as_str()), (StatusCode::FORBIDDEN, "insufficient_scope"));

    let hash = "22".repeat(32);
    let marked = |parts: &[&str]| {
        let mark: [u8; 16] = Sha256::digest(parts.join("\0"))[..16].try_into().unwrap();
        Inputs { revoked: vec![mark], ..with(known()) }
    };
    let before = |user: &str| Inputs {
        revoked_before: vec![RevokedBefore {
            org: "acme".into(),
            user: user.into(),
            not_after_iat: now(),
            ..Default::default()
        }],
        ..with(known())
    };
    for (revoked, is_hit) in [
        (marked(&["token", "asp:machines", "c2"]), true),
        (marked(&["org_token", "asp:machines", "acme", "c2"]), true),
        (marked(&["token", "asp:machines", "c1"]), false),
        (marked(&["token_hash", &hash]), true),
        (marked(&["org_token_hash", "acme", &hash]), true),
        (marked(&["org_token_hash", "globex", &hash]), false),
        (before("press"), true),
        (before(""), true),
        (before("arm"), false),
    ] {
        let answer = call(&shown(0x22, URI), "policy.open").send(&through_envoy(revoked)).await;
        match is_hit {
            true => refused(&answer, "token_revoked"),
            false => assert!(done(&answer), "{}", answer.text),
        }
    }
}

#[tokio::test]
async fn a_session_is_the_machines_whatever_certificate_of_its_own_it_shows() {
    let other = MachineCertificate { user: "arm".into(), ..certificate("c4", Some(0x44), "") };
    let fixture = through_envoy(with([known(), vec![other]].concat()));
    let post = async |certificate: &str, session: Option<&str>, message: serde_json::Value| {
        let mut headers = vec![
            (FORWARDED, certificate),
            ("content-type", "application/json"),
            ("accept", "application/json, text/event-stream"),
        ];
        headers.extend(session.map(|session| ("mcp-session-id", session)));
        fixture.send(Method::POST, "/policy/mcp", &headers, &message.to_string()).await
    };
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
    let opened = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params});
    let answer = post(&shown(0x11, ""), None, opened).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text);
    let session = answer.headers["mcp-session-id"].to_str().unwrap().to_owned();
    let list = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list"});
    for (certificate, status) in [
        (shown(0x11, ""), StatusCode::OK),
        (shown(0x22, URI), StatusCode::OK),
        (shown(0x44, ""), StatusCode::NOT_FOUND),
        (shown(0x55, ""), StatusCode::UNAUTHORIZED),
    ] {
        let answer = post(&certificate, Some(&session), list.clone()).await;
        assert_eq!(answer.status, status, "{certificate}: {}", answer.text);
    }
}

#[tokio::test]
async fn the_running_calls_of_a_certificate_that_is_forgotten_end() {
    let fixture = through_envoy(with(known()));
    let mut counting = call(&shown(0x22, URI), "count");
    counting.server = "demo".into();
    counting.body["params"]["arguments"] = json!({"to": 100, "delayMs": 1000});
    counting.body["params"]["_meta"]["progressToken"] = 1.into();
    let mut body = counting.open(&fixture).await.into_body();
    body.frame().await.unwrap().unwrap();
    applied(&fixture, with(vec![certificate("c1", Some(0x11), "")]));
    let rest = body.collect().await.unwrap().to_bytes();
    assert!(String::from_utf8_lossy(&rest).contains("token_revoked"), "{rest:?}");
    refused(&call(&shown(0x22, URI), "policy.open").send(&fixture).await, "token_invalid");
    assert!(done(&call(&shown(0x11, ""), "policy.open").send(&fixture).await), "the other one is good");
}

#[tokio::test]
async fn a_snapshot_with_a_certificate_of_two_machines_is_refused_whole() {
    let fixture = through_envoy(with(known()));
    let both = MachineCertificate { user: "arm".into(), ..certificate("c3", Some(0x11), "") };
    let snapshot = GatewaySnapshot { revision: 2, ..assemble(with([known(), vec![both]].concat())) };
    assert!(fixture.gateway.apply(snapshot).is_err());
    assert!(done(&call(&shown(0x11, ""), "policy.open").send(&fixture).await), "what was in force stays");
}

#[tokio::test]
async fn a_uri_of_one_org_keeps_anothers_fingerprint_from_the_certificate() {
    let of = |uri_org: &str, expires_at: u64, proved: bool| {
        let uri = MachineCertificate { org: uri_org.into(), expires_at, ..certificate("c2", None, URI) };
        let hash = MachineCertificate { proved, ..certificate("c1", Some(0x11), "") };
        through_envoy(with(vec![uri, hash]))
    };
    // The first of two URIs names nobody, and is looked at all the same; an end of 0 is a registration that opens nothing.
    for uri in [URI.to_owned(), format!("{URI};URI=spiffe://example.org/b")] {
        let answer = async |fixture: Fixture| call(&shown(0x11, &uri), "policy.open").send(&fixture).await;
        refused(&answer(of("globex", 0, true)).await, "token_invalid");
        assert!(done(&answer(of("acme", 0, true)).await), "the org's own");
        refused(&answer(of("acme", 0, false)).await, "token_invalid");
    }
    let fixture = of("globex", 0, true);
    assert!(done(&call(&shown(0x11, ""), "policy.open").send(&fixture).await), "without the URI");
}

#[tokio::test]
async fn a_port_in_clear_beyond_this_machine_answers_probes_alone() {
    let fixture = Fixture::of(assemble(with(known())));
    let ask = async |method: Method, path: &str| {
        let request = http::Request::builder().method(method).uri(path).header("host", "mcp.example.com");
        let request = request.header("authorization", format!("Bearer {}", token("alice")));
        let figures = asp_gateway::http::probe_router(fixture.gateway.clone());
        figures.oneshot(request.body(axum::body::Body::empty()).unwrap()).await.unwrap().status()
    };
    for path in ["/healthz", "/readyz", "/metrics"] {
        assert_eq!(ask(Method::GET, path).await, StatusCode::OK, "{path}");
    }
    for (method, path) in [
        (Method::POST, "/policy/mcp"),
        (Method::GET, "/policy/mcp"),
        (Method::GET, "/api/v1/policy/primitives"),
        (Method::GET, "/.well-known/oauth-protected-resource/policy/mcp"),
    ] {
        assert_eq!(ask(method, path).await, StatusCode::MISDIRECTED_REQUEST, "{path}");
    }
}
