//! Sign-in of an approver: the edge's whole evaluation decides about the issuer's token, as it does about a call.

use asp_edge::testkit::SigningKey;
use asp_proto::snapshot::{GatewaySnapshot, Issuer, Key, RevokedBefore};
use async_trait::async_trait;

use super::super::{call_of, send};
use super::*;
use crate::support::{now, token_with_scopes};

/// A control plane that publishes a newer snapshot when it is asked for keys.
#[derive(Default)]
struct Control {
    next: Mutex<Option<(Arc<Gateway>, GatewaySnapshot)>>,
}

#[async_trait]
impl AskControl for Control {
    async fn newest_keys(&self, issuer: &str) -> Option<u64> {
        assert_eq!(issuer, "dev");
        let (gateway, snapshot) = self.next.lock().take()?;
        gateway.apply(snapshot).unwrap();
        Some(2)
    }
}

/// Claims of bob, who may approve, with another value of one of them.
fn changed(name: &str, value: Value) -> Value {
    let mut claims = claims("bob");
    claims["groups"] = json!(["finance"]);
    claims[name] = value;
    claims
}

fn refreshed(issuer: &mut Issuer) {
    issuer.keys_refreshed = true;
}

#[tokio::test]
async fn a_token_that_the_server_would_refuse_signs_nobody_in() {
    let world = World::of(|inputs| inputs.issuers.iter_mut().for_each(refreshed), None).await;
    let _waiting = call(&world.fixture, "the-amount");
    let path = world.address().await;
    for (why, token) in [
        ("another audience", sign(&changed("aud", json!("https://other.example.com")))),
        ("expired", sign(&changed("exp", json!(now() - 300)))),
        ("another issuer", sign(&changed("iss", json!("https://evil.example.com")))),
        ("another key", SigningKey::es256().access_token("k1", &changed("scope", json!("")))),
        ("a key that nobody knows", SigningKey::es256().access_token("k9", &changed("scope", json!("")))),
        ("no signed token", "opaque".to_owned()),
        ("two headers", format!("x\r\nauthorization: Bearer {}", member("bob", &["finance"]))),
    ] {
        let (cookies, callback) = world.at_callback(&path, token).await;
        let refused = world.get(&callback, &cookies).await;
        assert_eq!(refused.status, StatusCode::FORBIDDEN, "{why}: {}", refused.text);
        assert!(!refused.headers.contains_key("set-cookie"), "{why}");
    }
    world.log_in(&path, member("bob", &["finance"])).await;
}

#[tokio::test]
async fn an_approver_needs_the_scopes_of_the_server_and_is_asked_for_them() {
    let scoped = |inputs: &mut Inputs| {
        let policy = inputs.servers.iter_mut().find(|server| server.server.name == "policy").unwrap();
        policy.edge.scopes = vec!["special".into()];
    };
    let world = World::of(scoped, None).await;
    let _waiting = send(&world.fixture, call_of(&token_with_scopes("alice", "special"), "the-amount"));
    let path = world.address().await;
    let begun = world.get(&path, "").await;
    assert_eq!(parameter(&location(&begun), "scope"), "special");
    let (cookies, callback) = world.at_callback(&path, member("bob", &["finance"])).await;
    let refused = world.get(&callback, &cookies).await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN, "{}", refused.text);
    world.log_in(&path, sign(&changed("scope", json!("special")))).await;
}

#[tokio::test]
async fn a_person_who_is_revoked_during_the_sign_in_is_not_signed_in() {
    let world = World::start().await;
    let _waiting = call(&world.fixture, "the-amount");
    let path = world.address().await;
    let (cookies, callback) = world.at_callback(&path, member("bob", &["finance"])).await;
    let revoked = RevokedBefore {
        org: "acme".into(),
        user: "bob".into(),
        not_after_iat: now() + 60,
        ..RevokedBefore::default()
    };
    let revoked = Inputs { revision: 2, revoked_before: vec![revoked], ..inputs_with(&world.access) };
    world.fixture.gateway.apply(assemble(revoked)).unwrap();
    let refused = world.get(&callback, &cookies).await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN, "{}", refused.text);
}

#[tokio::test]
async fn a_token_whose_key_is_newer_than_the_snapshot_signs_its_user_in() {
    let control = Arc::new(Control::default());
    let refreshing = |inputs: &mut Inputs| inputs.issuers.iter_mut().for_each(refreshed);
    let world = World::of(refreshing, Some(control.clone())).await;
    let _waiting = call(&world.fixture, "the-amount");
    let path = world.address().await;
    let newer = SigningKey::es256();
    let mut inputs = Inputs { revision: 2, ..inputs_with(&world.access) };
    refreshing(&mut inputs);
    let jwk = newer.jwk_named("k2").to_string();
    inputs.issuers[0].keys.push(Key { kid: "k2".into(), alg: "ES256".into(), jwk });
    *control.next.lock() = Some((world.fixture.gateway.clone(), assemble(inputs)));
    world.log_in(&path, newer.access_token("k2", &changed("scope", json!("")))).await;
}
