//! Machines that call with keys (`psk`): what a key is worth where, and for how long.

use asp_edge::MACHINE_ISSUER;
use asp_proto::snapshot::{
    AuthScheme, Binding, ExposureException, GatewaySnapshot, Limit, MachineKey, Protocol, RevokedBefore,
    TargetKind,
};
use asp_registry::{Inputs, assemble};
use http::StatusCode;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::limits::star;
use crate::rest::{Rest, reason};
use crate::support::{Answer, Fixture, Legacy, Modern, inputs, now, token};

/// Returns a machine's key; the letter distinguishes keys of one machine.
fn secret(letter: char) -> String {
    format!("asp_psk_{}_{}", id(letter), "s".repeat(64))
}

fn id(letter: char) -> String {
    letter.to_string().repeat(16)
}

fn key(letter: char, org: &str) -> MachineKey {
    MachineKey {
        id: id(letter),
        hash: Sha256::digest(secret(letter)).to_vec(),
        org: org.into(),
        user: "press".into(),
        groups: vec!["robots".into()],
        scopes: vec![],
        issued_at: now() - 10,
        expires_at: now() + 600,
    }
}

/// The tests' servers, which take keys too.
fn with(machine_keys: Vec<MachineKey>) -> Inputs {
    let mut inputs = Inputs { machine_keys, ..inputs() };
    for server in inputs.servers.iter_mut().filter(|server| server.server.name != "plugins") {
        server.edge.schemes.push(AuthScheme::Psk.into());
    }
    inputs
}

fn of(machine_keys: Vec<MachineKey>) -> Fixture {
    Fixture::of(assemble(with(machine_keys)))
}

fn applied(fixture: &Fixture, inputs: Inputs) {
    fixture.gateway.apply(assemble(Inputs { revision: 2, ..inputs })).unwrap();
}

fn call(key: &str, tool: &str) -> Modern {
    Modern::new("policy", key, "tools/call", json!({"name": tool, "arguments": {"message": "hi"}}))
}

fn done(answer: &Answer) -> bool {
    answer.json()["result"]["structuredContent"]["message"] == "hi"
}

#[tokio::test]
async fn at_the_address_of_all_servers_a_key_reaches_those_that_take_keys() {
    let mut inputs = Inputs { all_servers: true, ..with(vec![key('a', "acme")]) };
    inputs.servers.retain(|server| ["policy", "shop"].contains(&server.server.name.as_str()));
    for server in inputs.servers.iter_mut().filter(|server| server.server.name == "shop") {
        server.edge.schemes = vec![AuthScheme::Jwt.into()];
    }
    let fixture = Fixture::of(assemble(inputs));
    let list = Modern::new("all", &secret('a'), "tools/list", json!({})).send(&fixture).await.json();
    let tools = list["result"]["tools"].as_array().unwrap_or_else(|| panic!("{list}"));
    let is_of_policy = |tool: &Value| tool["name"].as_str().unwrap().starts_with("policy__");
    assert!(!tools.is_empty() && tools.iter().all(is_of_policy), "{list}");
    let call = |tool: &str| {
        let params = json!({"name": tool, "arguments": {"message": "hi"}});
        Modern::new("all", &secret('a'), "tools/call", params)
    };
    assert!(done(&call("policy__policy.open").send(&fixture).await));
    assert_eq!(call("shop__send_mail").send(&fixture).await.reason(), "unknown_primitive");
    let unknown = Modern::new("all", &secret('b'), "tools/list", json!({})).send(&fixture).await;
    assert_eq!(unknown.status, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn a_machine_calls_with_its_key_in_every_protocol_and_the_audit_knows_it() {
    let fixture = of(vec![key('a', "acme")]);
    assert!(done(&call(&secret('a'), "policy.open").send(&fixture).await));
    let client = Legacy::connect_as(&fixture, "policy", secret('a'), "2025-11-25", json!({})).await;
    let params = json!({"name": "policy.open", "arguments": {"message": "hi"}});
    assert!(done(&client.request(2, "tools/call", params).await));
    let rest =
        Rest::of(&fixture, "policy.open", "1").with("authorization", &format!("Bearer {}", secret('a')));
    assert_eq!(rest.put(&json!({"message": "hi"})).await.status, StatusCode::CREATED);
    assert!(done(&call(&token("alice"), "policy.open").send(&fixture).await), "tokens go on beside keys");
    fixture.gateway.flush().await;
    let events = fixture.audit.events();
    let by_machine: Vec<_> = events.iter().filter(|event| event.event.contains("\"press\"")).collect();
    assert_eq!(by_machine.len(), 6);
    for event in by_machine {
        assert!(event.org == "acme" && event.event.contains(&id('a')), "{}", event.event);
        assert!(!event.event.contains("ssss"), "the key is in no log");
    }
}

#[tokio::test]
async fn what_is_no_key_in_force_is_refused_as_any_bad_token() {
    let ended = MachineKey { expires_at: now() - 60, ..key('e', "acme") };
    let fixture = of(vec![key('a', "acme"), ended]);
    let good = secret('a');
    let refused = |answer: &Answer, reason: &str| {
        assert_eq!(
            (answer.status, answer.reason().as_str()),
            (StatusCode::UNAUTHORIZED, reason),
            "{}",
            answer.text
        );
        assert!(answer.headers.contains_key("www-authenticate"));
    };
    let shortened = &good[..good.len() - 1];
    for (bad, why) in [
        (secret('b').as_str(), "token_invalid"),
        (secret('e').as_str(), "token_expired"),
        (shortened, "token_invalid"),
        (&format!("{good}s"), "token_invalid"),
        (&good.replace("_s", "_t"), "token_invalid"),
        (&good.replacen('a', "b", 3), "token_invalid"),
        ("asp_psk_", "token_invalid"),
        ("asp_psk__", "token_invalid"),
        (&format!("asp_psk_{}", id('a')), "token_invalid"),
        (&format!("asp_psk_{}_", id('a')), "token_invalid"),
        (&good.to_uppercase(), "token_invalid"),
    ] {
        refused(&call(bad, "policy.open").send(&fixture).await, why);
    }
    let rest =
        Rest::of(&fixture, "policy.open", "1").with("authorization", &format!("Bearer {}", secret('b')));
    assert_eq!(reason(&rest.put(&json!({})).await), (401, "token_invalid".into()));
    // At a server that takes no keys the best one is nothing.
    let elsewhere = Modern::new("plugins", &good, "tools/list", json!({})).send(&fixture).await;
    refused(&elsewhere, "token_invalid");
}

#[tokio::test]
async fn policy_limits_and_scopes_bound_a_machine_as_they_bound_users() {
    let deny = |kind: TargetKind, target: &str, issuer: &str, primitive: &str| Binding {
        org: "acme".into(),
        target_kind: kind.into(),
        target: target.into(),
        issuer: issuer.into(),
        primitive: primitive.into(),
        protocol: Protocol::Unspecified.into(),
        allowed: false,
        ..Binding::default()
    };
    for (kind, target, issuer) in [
        (TargetKind::User, "press".to_owned(), MACHINE_ISSUER),
        (TargetKind::User, "*".to_owned(), MACHINE_ISSUER),
        (TargetKind::Group, "robots".to_owned(), ""),
        (TargetKind::Wcit, id('a'), ""),
    ] {
        let mut inputs = with(vec![key('a', "acme")]);
        inputs.bindings.push(deny(kind, &target, issuer, "policy.open"));
        let fixture = Fixture::of(assemble(inputs));
        assert_eq!(call(&secret('a'), "policy.open").send(&fixture).await.reason(), "unknown_primitive");
        let listed = Modern::new("policy", &secret('a'), "tools/list", json!({})).send(&fixture).await;
        assert!(
            !listed.text.contains("policy.open") && listed.text.contains("policy.few"),
            "{}",
            listed.text
        );
    }
    let mut inputs =
        with(vec![key('a', "acme"), MachineKey { scopes: vec!["x:read".into()], ..key('b', "acme") }]);
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
    let scopes = inputs.servers.iter().flat_map(|server| &server.primitives);
    let scopes =
        scopes.filter(|primitive| primitive.id == "policy.scoped").map(|scoped| scoped.scopes.clone());
    let scopes: Vec<String> = scopes.flatten().collect();
    inputs.machine_keys.push(MachineKey { scopes, ..key('c', "acme") });
    let fixture = Fixture::of(assemble(inputs));
    assert!(done(&call(&secret('a'), "policy.open").send(&fixture).await));
    let limited = call(&secret('b'), "policy.open").send(&fixture).await.json();
    assert_eq!(limited["result"]["_meta"]["asp/reason"], "rate_limited", "one machine, whatever its key");
    let scoped = call(&secret('b'), "policy.scoped").send(&fixture).await;
    assert_eq!((scoped.status, scoped.reason().as_str()), (StatusCode::FORBIDDEN, "insufficient_scope"));
    assert_eq!(call(&secret('c'), "policy.scoped").send(&fixture).await.status, StatusCode::OK);
}

/// Invariant I-12.
#[tokio::test]
async fn what_names_a_user_is_about_no_machine_of_that_name() {
    let binding = |target: &str, issuer: &str, primitive: &str, allowed: bool| Binding {
        org: "acme".into(),
        target_kind: TargetKind::User.into(),
        target: target.into(),
        issuer: issuer.into(),
        primitive: primitive.into(),
        allowed,
        ..Binding::default()
    };
    // Destructive, so that only a binding that allows it lets a machine call it.
    for (target, issuer, lets) in [
        ("press", "", false),
        ("*", "", false),
        ("press", "dev", false),
        ("press", MACHINE_ISSUER, true),
        ("*", MACHINE_ISSUER, true),
        ("arm", MACHINE_ISSUER, false),
    ] {
        let mut inputs = with(vec![key('a', "acme")]);
        inputs.bindings.push(binding(target, issuer, "policy.wipe", true));
        let answer = call(&secret('a'), "policy.wipe").send(&Fixture::of(assemble(inputs))).await;
        assert_eq!(answer.json()["result"]["isError"] == false, lets, "{issuer} {target}: {}", answer.text);
    }
    let mut inputs = with(vec![key('a', "acme")]);
    inputs.bindings.push(binding("press", "", "policy.open", false));
    inputs.limits.push(Limit { user: "press".into(), primitive: "policy.open".into(), ..star(1) });
    inputs.limits.push(Limit { user: "each".into(), ..star(1) });
    let fixture = Fixture::of(assemble(inputs));
    for _ in 0..3 {
        assert!(done(&call(&secret('a'), "policy.open").send(&fixture).await), "it is about the user");
    }
    let user = call(&token("press"), "policy.open").send(&fixture).await;
    assert_eq!(user.reason(), "unknown_primitive");
}

#[tokio::test]
async fn a_key_is_its_orgs_and_sees_what_that_org_sees() {
    let mut inputs = with(vec![key('a', "acme"), key('g', "globex")]);
    inputs.exposure.push(ExposureException {
        org: "globex".into(),
        server: "policy".into(),
        protocol: Protocol::Mcp.into(),
        enabled: false,
    });
    let fixture = Fixture::of(assemble(inputs));
    assert!(done(&call(&secret('a'), "policy.open").send(&fixture).await));
    let foreign = call(&secret('g'), "policy.open").send(&fixture).await;
    assert_eq!((foreign.status, foreign.reason().as_str()), (StatusCode::NOT_FOUND, "unknown_server"));
}

/// The entry of a snapshot's `revoked` for these parts.
fn mark(parts: &[&str]) -> [u8; 16] {
    let digest = Sha256::digest(parts.join("\0"));
    digest[..16].try_into().unwrap()
}

#[tokio::test]
async fn a_key_is_revoked_by_its_id_its_hash_its_machine_or_its_org() {
    let hash: String = Sha256::digest(secret('a')).iter().map(|byte| format!("{byte:02x}")).collect();
    let before = |org: &str, user: &str| Inputs {
        revoked_before: vec![RevokedBefore {
            org: org.into(),
            user: user.into(),
            not_after_iat: now(),
            ..Default::default()
        }],
        ..with(vec![key('a', "acme")])
    };
    let marked = |parts: &[&str]| Inputs { revoked: vec![mark(parts)], ..with(vec![key('a', "acme")]) };
    for (revoked, is_hit) in [
        (marked(&["token", "asp:machines", &id('a')]), true),
        (marked(&["org_token", "asp:machines", "acme", &id('a')]), true),
        (marked(&["org_token", "asp:machines", "globex", &id('a')]), false),
        (marked(&["token", "asp-dev", &id('a')]), false),
        (marked(&["token_hash", &hash]), true),
        (marked(&["org_token_hash", "acme", &hash]), true),
        (marked(&["org_token_hash", "globex", &hash]), false),
        (before("acme", "press"), true),
        (before("acme", ""), true),
        (before("acme", "arm"), false),
        (before("globex", ""), false),
    ] {
        let fixture = Fixture::of(assemble(revoked));
        let answer = call(&secret('a'), "policy.open").send(&fixture).await;
        match is_hit {
            true => assert_eq!(answer.reason(), "token_revoked"),
            false => assert!(done(&answer), "{}", answer.text),
        }
    }
}

#[tokio::test]
async fn two_keys_of_a_machine_are_one_principal_so_that_one_is_changed_for_the_next() {
    let fixture = of(vec![key('a', "acme"), key('b', "acme")]);
    let once = |key: &str| call(key, "policy.once").with("idempotency-key", "k");
    let first = once(&secret('a')).send(&fixture).await.json();
    assert_eq!(first["result"]["isError"], false, "{first}");
    assert!(first["result"]["_meta"].get("asp/replayed").is_none(), "{first}");
    let again = once(&secret('b')).send(&fixture).await.json();
    assert_eq!(again["result"]["_meta"]["asp/replayed"], true, "the other key finds the first one's answer");
    applied(&fixture, with(vec![key('b', "acme")]));
    assert_eq!(call(&secret('a'), "policy.open").send(&fixture).await.reason(), "token_invalid");
    assert!(done(&call(&secret('b'), "policy.open").send(&fixture).await), "without a gap");
    // A user of the same name is somebody else.
    let mut claims = crate::support::claims("press");
    claims.as_object_mut().unwrap().remove("client_id");
    let user = once(&crate::support::sign(&claims)).send(&fixture).await.json();
    assert_eq!(user["result"]["isError"], false, "{user}");
    assert!(user["result"]["_meta"].get("asp/replayed").is_none(), "{user}");
}

#[tokio::test]
async fn the_running_calls_of_a_key_that_is_deleted_end() {
    let fixture = of(vec![key('a', "acme")]);
    let mut counting = Modern::new(
        "demo",
        &secret('a'),
        "tools/call",
        json!({"name": "count", "arguments": {"to": 100, "delayMs": 1000}}),
    );
    counting.body["params"]["_meta"]["progressToken"] = 1.into();
    let mut body = counting.open(&fixture).await.into_body();
    body.frame().await.unwrap().unwrap();
    applied(&fixture, with(vec![]));
    let rest = body.collect().await.unwrap().to_bytes();
    assert!(String::from_utf8_lossy(&rest).contains("token_revoked"), "{rest:?}");
}

#[tokio::test]
async fn a_snapshot_with_a_key_that_cannot_be_compared_is_refused_whole() {
    let fixture = of(vec![key('a', "acme")]);
    let short = MachineKey { hash: vec![1; 16], ..key('b', "acme") };
    let snapshot = GatewaySnapshot { revision: 2, ..assemble(with(vec![short])) };
    assert!(fixture.gateway.apply(snapshot).is_err());
    assert!(done(&call(&secret('a'), "policy.open").send(&fixture).await), "what was in force stays");
}

/// Invariant I-12.
#[tokio::test]
async fn a_machine_approves_nothing_in_any_protocol() {
    let fixture = of(vec![key('a', "acme")]);
    let refused = |answer: &serde_json::Value| {
        let result = &answer["result"];
        assert_eq!(result["_meta"]["asp/reason"], "insufficient_scope", "{answer}");
        let text = result["content"][0]["text"].as_str().unwrap();
        assert!(text.contains("an approval that only a person can give"), "{text}");
    };
    let wipe = |key: &str| call(key, "policy.wipe").capabilities(json!({"elicitation": {}}));
    refused(&wipe(&secret('a')).send(&fixture).await.json());
    let asked = wipe(&token("alice")).send(&fixture).await.json();
    assert!(asked["result"]["requestState"].is_string(), "a person is asked: {asked}");

    let machine = [("authorization", format!("Bearer {}", secret('a')))];
    let rest = Rest::of(&fixture, "policy.wipe", "1").with(machine[0].0, &machine[0].1);
    let put = rest.put(&json!({"message": "gone"})).await;
    assert_eq!(reason(&put), (403, "insufficient_scope".into()), "{}", put.text);
    let client =
        Legacy::connect_as(&fixture, "policy", secret('a'), "2025-11-25", json!({"elicitation": {}})).await;
    let params = json!({"name": "policy.wipe", "arguments": {"message": "gone"}});
    refused(&client.request(2, "tools/call", params).await.json());
}
