//! The tokens of plugins, as a service that verifies them with the published keys sees them (I-8).

use std::collections::HashSet;
use std::sync::Arc;

use asp_identity::minting::{TokenAudience, TokenAudiences};
use asp_proto::snapshot::service_auth::Kind;
use asp_proto::snapshot::{MintedToken, ServiceAuth};
use http::{Method, StatusCode};
use jsonwebtoken::jwk::JwkSet;
use jsonwebtoken::{Algorithm, DecodingKey, Header, Validation};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::resume::save;
use super::{call, modern, snapshot};
use crate::runtime::{Runtime, Script, Worker};
use crate::support::{Fixture, Modern, PUBLIC_URL, now, token_with_scopes};

const SERVICE: &str = "https://api.example.com";

/// Returns the header and the claims that a service reads with the platform's key set.
async fn verified(fixture: &Fixture, token: &str, audience: &str) -> (Header, Value) {
    let answer = fixture.send(Method::GET, "/.well-known/jwks.json", &[], "").await;
    assert_eq!(answer.status, StatusCode::OK);
    let keys: JwkSet = serde_json::from_str(&answer.text).unwrap();
    assert!(!answer.text.contains("\"d\""), "the private half is not published");
    let header = jsonwebtoken::decode_header(token).unwrap();
    let key = DecodingKey::from_jwk(keys.find(header.kid.as_ref().unwrap()).unwrap()).unwrap();
    let mut rules = Validation::new(Algorithm::ES256);
    rules.set_audience(&[audience]);
    rules.set_issuer(&[PUBLIC_URL]);
    rules.required_spec_claims = HashSet::from(["exp", "aud", "iss", "sub"].map(String::from));
    let decoded = jsonwebtoken::decode::<Value>(token, &key, &rules).unwrap();
    (header, decoded.claims)
}

fn fetch(scopes: &str) -> Modern {
    let mut request = modern("fetch", json!({}));
    let token = format!("Bearer {}", token_with_scopes("alice", scopes));
    request.headers.retain(|(name, _)| !name.eq_ignore_ascii_case("authorization"));
    request.with("authorization", &token)
}

/// Invariant I-12.
#[tokio::test]
async fn a_plugin_gets_a_token_for_the_one_audience_that_the_operator_opens_to_it() {
    let given = Arc::new(Mutex::new(Vec::new()));
    let seen = given.clone();
    let runtime = Runtime::start(Script::of(move |_, mut worker: Worker| {
        let seen = seen.clone();
        async move {
            let invoke = worker.begin(&[]).await;
            seen.lock().push(invoke.access_token.clone());
            worker.complete(&invoke, &json!({"ok": true})).await;
        }
    }));
    let fixture = fixture(&runtime);
    let from = now();
    let deadline = (now() + 30) * 1000;
    let request = fetch("x:read x:write admin").with("x-deadline-ms", &deadline.to_string());
    let result = request.send(&fixture).await.json()["result"].clone();
    assert_eq!(result["structuredContent"]["ok"], true, "{result}");
    let token = given.lock()[0].clone();
    let (header, claims) = verified(&fixture, &token, SERVICE).await;
    assert_eq!(header.typ.as_deref(), Some("at+jwt"));
    assert_eq!((&claims["sub"], &claims["org"]), (&json!("alice"), &json!("acme")));
    assert_eq!(claims["act"], json!({"sub": "plugin:fetch@1.0.0"}));
    assert_eq!(claims["aud"], json!([SERVICE]), "and none of the other host that it may reach");
    assert_eq!(claims["scope"], "x:read", "the caller's and the primitive's");
    let iat = claims["iat"].as_u64().unwrap();
    let exp = claims["exp"].as_u64().unwrap();
    assert!(iat >= from && exp <= deadline / 1000 && exp > iat, "{claims}");
    // Without a deadline of the caller's: the spec's bound, which is below 15 minutes here.
    fetch("x:read").send(&fixture).await;
    let second = given.lock()[1].clone();
    let (_, other) = verified(&fixture, &second, SERVICE).await;
    assert!(other["exp"].as_u64().unwrap() - other["iat"].as_u64().unwrap() <= 900);
    assert_ne!(other["jti"], claims["jti"]);
}

const FILES: &str = "https://files.example.org";

fn listed(entries: &[(&str, &str)]) -> TokenAudiences {
    let entry = |(origin, pattern): &(&str, &str)| TokenAudience {
        origin: (*origin).into(),
        primitives: vec![(*pattern).into()],
    };
    TokenAudiences::Listed(entries.iter().map(entry).collect())
}

/// The service that `api.example.com` is for `fetch`.
fn fixture(runtime: &Runtime) -> Fixture {
    minting(runtime, listed(&[(SERVICE, "plugins/fetch")]), None)
}

/// A gateway with this list, whose `fetch` names this audience.
fn minting(runtime: &Runtime, audiences: TokenAudiences, named: Option<&str>) -> Fixture {
    let mut snapshot = snapshot();
    for primitive in snapshot.primitives.iter_mut().filter(|primitive| primitive.id == "fetch") {
        let token = |audience: &str| Kind::Token(MintedToken { audience: audience.into() });
        primitive.service_auth = named.map(|audience| ServiceAuth { kind: Some(token(audience)) });
    }
    Fixture::minting(snapshot, runtime.runtimes(), audiences)
}

/// Two hosts are in its reach, so that a token for both would let one of them act as the caller at the other.
#[tokio::test]
async fn a_plugins_token_has_one_audience_or_there_is_none() {
    let both = [(SERVICE, "plugins/*"), (FILES, "plugins/fetch")];
    for (audiences, named, audience) in [
        (listed(&both[..1]), None, Some(SERVICE)),
        (listed(&both[1..]), None, Some(FILES)),
        (listed(&both), Some(FILES), Some(FILES)),
        (listed(&both), Some(SERVICE), Some(SERVICE)),
        (TokenAudiences::Every, Some(SERVICE), Some(SERVICE)),
        (listed(&both), None, None),
        (TokenAudiences::Every, None, None),
        (listed(&[]), None, None),
        (listed(&[(SERVICE, "other/*"), (SERVICE, "plugins/order")]), None, None),
        (listed(&[("https://elsewhere.example", "*")]), None, None),
    ] {
        let given = Arc::new(Mutex::new(Vec::new()));
        let seen = given.clone();
        let runtime = Runtime::start(Script::of(move |_, mut worker: Worker| {
            let seen = seen.clone();
            async move {
                let invoke = worker.begin(&[]).await;
                seen.lock().push(invoke.access_token.clone());
                worker.complete(&invoke, &json!({"ok": true})).await;
            }
        }));
        let fixture = minting(&runtime, audiences.clone(), named);
        fetch("x:read").send(&fixture).await;
        let token = given.lock()[0].clone();
        match audience {
            Some(audience) => {
                let (_, claims) = verified(&fixture, &token, audience).await;
                assert_eq!(claims["aud"], json!([audience]));
            }
            None => assert_eq!(token, "", "{audiences:?} {named:?}"),
        }
    }
}

#[tokio::test]
async fn a_spec_that_names_an_audience_that_is_not_its_own_is_not_run() {
    for (audiences, named) in [
        (listed(&[(SERVICE, "other/*")]), SERVICE),
        (listed(&[]), SERVICE),
        (listed(&[("https://elsewhere.example", "*")]), "https://elsewhere.example"),
        (TokenAudiences::Every, "https://elsewhere.example"),
    ] {
        let begun = Arc::new(Mutex::new(0));
        let seen = begun.clone();
        let runtime = Runtime::start(Script::of(move |_, mut worker: Worker| {
            let seen = seen.clone();
            async move {
                let invoke = worker.begin(&[]).await;
                *seen.lock() += 1;
                worker.complete(&invoke, &json!({"ok": true})).await;
            }
        }));
        let answer = fetch("x:read").send(&minting(&runtime, audiences, Some(named))).await;
        assert!(answer.text.contains("does not allow this primitive a token"), "{}", answer.text);
        assert_eq!(*begun.lock(), 0);
    }
}

#[tokio::test]
async fn a_plugin_without_allowed_domains_gets_no_token() {
    let runtime = Runtime::start(Script::of(|n, mut worker: Worker| async move {
        let invoke = worker.begin(&[("checkpoint", "true")]).await;
        assert_eq!(invoke.access_token, "");
        if n == 0 {
            assert_eq!(save(&mut worker, &invoke.request_id, 1, b"one").await, "");
            return worker.crash(true).await;
        }
        assert_eq!(invoke.resume.as_ref().unwrap().resume_token, "");
        worker.complete(&invoke, &json!({"ok": true})).await;
    }));
    let result = call(&fixture(&runtime), "order", json!({})).await.json()["result"].clone();
    assert_eq!(result["structuredContent"]["ok"], true, "{result}");
}

#[tokio::test]
async fn a_resumed_execution_proves_that_it_replaces_the_former_one() {
    let given = Arc::new(Mutex::new(Vec::new()));
    let seen = given.clone();
    let runtime = Runtime::start(Script::of(move |n, mut worker: Worker| {
        let seen = seen.clone();
        async move {
            let invoke = worker.begin(&[("checkpoint", "true")]).await;
            if n < 2 {
                assert_eq!(save(&mut worker, &invoke.request_id, n as u64 + 1, b"x").await, "");
                return worker.crash(true).await;
            }
            let token = invoke.resume.as_ref().unwrap().resume_token.clone();
            seen.lock().push((invoke.request_id.clone(), token));
            worker.complete(&invoke, &json!({"ok": true})).await;
        }
    }));
    let fixture = fixture(&runtime);
    fetch("x:read").send(&fixture).await;
    let (call, token) = given.lock()[0].clone();
    let (header, claims) = verified(&fixture, &token, SERVICE).await;
    assert_eq!(header.typ.as_deref(), Some("asp-resume+jwt"), "no access token");
    assert_eq!(
        (&claims["call"], &claims["attempt"], &claims["replaces"]),
        (&json!(call), &json!(3), &json!(2))
    );
    assert!(claims.get("scope").is_none());
}

#[tokio::test]
async fn the_platform_takes_no_token_it_minted_for_a_plugin() {
    let given = Arc::new(Mutex::new(String::new()));
    let seen = given.clone();
    let runtime = Runtime::start(Script::of(move |_, mut worker: Worker| {
        let seen = seen.clone();
        async move {
            let invoke = worker.begin(&[]).await;
            *seen.lock() = invoke.access_token.clone();
            worker.complete(&invoke, &json!({"ok": true})).await;
        }
    }));
    let fixture = fixture(&runtime);
    fetch("x:read").send(&fixture).await;
    let token = given.lock().clone();
    assert!(!token.is_empty());
    let params = json!({"name": "order", "arguments": {}});
    let refused = Modern::new("plugins", &token, "tools/call", params).send(&fixture).await;
    assert_eq!((refused.status, refused.reason().as_str()), (StatusCode::UNAUTHORIZED, "token_invalid"));
}
