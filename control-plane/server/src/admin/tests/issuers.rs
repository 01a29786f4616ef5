//! Issuers that are added, changed and removed while everything runs, and what they publish.

use asp_xds::keys::RefreshKeys as _;
use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::publisher::{Page, Publisher};
use super::{Api, sample};
use crate::testkit::TestIssuer;

pub(super) const LOGIN: &str = "/api/issuers/clients/login";

pub(super) fn key(kid: &str) -> Value {
    let mut key = TestIssuer::new().jwk().clone();
    key["kid"] = json!(kid);
    key
}

pub(super) async fn api(publisher: &Publisher) -> Api {
    Api::with_issuers(vec![publisher.origin.clone()]).await
}

fn login(snapshot: &asp_proto::snapshot::GatewaySnapshot) -> Option<&asp_proto::snapshot::Issuer> {
    snapshot.edge.as_ref()?.issuers.iter().find(|issuer| issuer.name == "login")
}

pub(super) fn kids(snapshot: &asp_proto::snapshot::GatewaySnapshot) -> Vec<&str> {
    login(snapshot).map(|issuer| issuer.keys.iter().map(|key| key.kid.as_str()).collect()).unwrap_or_default()
}

#[tokio::test]
async fn an_issuer_is_added_changed_and_removed_without_a_restart() {
    let publisher = Publisher::start().await;
    publisher.publish(&[key("one")]);
    let mut api = api(&publisher).await;
    let put = api.put("platform", LOGIN, publisher.document()).await;
    assert_eq!((put.status, &put.body["changed"]), (StatusCode::OK, &json!(true)), "{}", put.body);
    api.published(|snapshot| kids(snapshot) == ["one"]).await;
    let got = api.get("platform", LOGIN).await;
    assert_eq!(got.body["document"]["claims"]["groups"], "/realm_access/roles");
    let again = api.put("platform", LOGIN, publisher.document()).await;
    assert_eq!(again.body["changed"], false, "{}", again.body);
    let mut changed = publisher.document();
    changed["orgs"] = json!(["acme", "globex"]);
    assert_eq!(api.put("platform", LOGIN, changed).await.status, StatusCode::OK);
    api.published(|snapshot| login(snapshot).is_some_and(|issuer| issuer.orgs.len() == 2)).await;
    let gone = api.send("platform", Method::DELETE, LOGIN, None, &[]).await;
    assert_eq!(gone.status, StatusCode::OK);
    api.published(|snapshot| login(snapshot).is_none()).await;
    assert_eq!(api.get("platform", LOGIN).await.status, StatusCode::NOT_FOUND);
    assert_eq!(
        api.put("platform", LOGIN, publisher.document()).await.status,
        StatusCode::OK,
        "the same again"
    );
}

/// Users are known by the issuer's name.
#[tokio::test]
async fn the_name_of_a_deleted_issuer_takes_another_iss_only_where_its_users_are_taken_over() {
    let (one, other) = (Publisher::start().await, Publisher::start().await);
    let api = Api::with_issuers(vec![one.origin.clone(), other.origin.clone()]).await;
    assert_eq!(api.put("platform", LOGIN, one.document()).await.status, StatusCode::OK);
    let taking_over = format!("{LOGIN}?takeOver=true");
    let changed = api.put("platform", &taking_over, other.document()).await;
    assert!(!changed.status.is_success(), "one that is there keeps its iss: {}", changed.body);
    assert_eq!(api.send("platform", Method::DELETE, LOGIN, None, &[]).await.status, StatusCode::OK);
    let refused = api.put("platform", LOGIN, other.document()).await;
    let detail = refused.body["detail"].as_str().unwrap_or_default();
    assert!(!refused.status.is_success() && detail.contains("until it was deleted"), "{}", refused.body);
    let elsewhere = api.put("platform", "/api/issuers/clients/second", other.document()).await;
    assert_eq!(elsewhere.status, StatusCode::OK, "{}", elsewhere.body);
    let second = "/api/issuers/clients/second";
    assert_eq!(api.send("platform", Method::DELETE, second, None, &[]).await.status, StatusCode::OK);
    assert_eq!(api.put("platform", &taking_over, other.document()).await.status, StatusCode::OK);
}

#[tokio::test]
async fn only_the_platform_sees_and_changes_issuers() {
    let publisher = Publisher::start().await;
    let api = api(&publisher).await;
    for role in ["org:acme", "org:acme:read"] {
        assert_eq!(api.put(role, LOGIN, publisher.document()).await.status, StatusCode::FORBIDDEN, "{role}");
        assert_eq!(api.get(role, "/api/issuers").await.status, StatusCode::FORBIDDEN, "{role}");
    }
    for role in ["server:demo", "installer"] {
        assert_eq!(api.put(role, LOGIN, publisher.document()).await.status, StatusCode::NOT_FOUND, "{role}");
    }
    let read = api.put("platform:read", LOGIN, publisher.document()).await;
    assert_eq!((read.status, &read.body["code"]), (StatusCode::FORBIDDEN, &json!("forbidden")));
}

#[tokio::test]
async fn a_new_key_is_fetched_when_somebody_needs_it_and_once_in_half_a_minute() {
    let publisher = Publisher::start().await;
    publisher.publish(&[key("one")]);
    let mut api = api(&publisher).await;
    api.put("platform", LOGIN, publisher.document()).await;
    api.published(|snapshot| kids(snapshot) == ["one"]).await;
    assert_eq!(api.keeper.refresh("nobody").await, 0);
    publisher.publish(&[key("one"), key("two")]);
    // What was fetched a moment ago counts as asked for.
    let before = api.keeper.refresh("login").await;
    assert_eq!((kids_of(&api), publisher.asked("/keys")), (vec!["one".to_owned()], 1), "{before}");
    tokio::time::pause();
    tokio::time::advance(asp_issuers::refresh::ASKED_GAP).await;
    tokio::time::resume();
    let revision = api.keeper.refresh("login").await;
    assert!(revision > before);
    api.published(|snapshot| snapshot.revision >= revision && kids(snapshot) == ["one", "two"]).await;
    futures::future::join_all((0..50).map(|_| api.keeper.refresh("login"))).await;
    assert_eq!(publisher.asked("/keys"), 2, "no storm");
}

pub(super) fn kids_of(api: &Api) -> Vec<String> {
    let state = api.xds_state.borrow();
    let snapshot = state.snapshot.as_ref().unwrap();
    kids(&snapshot.whole()).into_iter().map(str::to_owned).collect()
}

#[tokio::test]
async fn one_issuer_that_never_answers_holds_up_no_other() {
    let (slow, good) = (Publisher::start().await, Publisher::start().await);
    slow.set("/.well-known/openid-configuration", Page::Never(Vec::new()));
    good.publish(&[key("one")]);
    let mut api = Api::with_issuers(vec![slow.origin.clone(), good.origin.clone()]).await;
    api.put("platform", "/api/issuers/clients/slow", slow.document()).await;
    assert_eq!(api.put("platform", LOGIN, good.document()).await.status, StatusCode::OK);
    api.published(|snapshot| kids(snapshot) == ["one"]).await;
    let list = api.get("platform", "/api/issuers").await.body;
    let of = |name: &str| {
        let fetched = list["fetched"].as_array().unwrap();
        fetched.iter().find(|entry| entry["name"] == name).unwrap()["keys"].clone()
    };
    assert_eq!((of("slow"), of("login")), (json!(0), json!(1)), "{list}");
}

#[tokio::test]
async fn what_cannot_be_in_force_is_not_stored() {
    let publisher = Publisher::start().await;
    let api = api(&publisher).await;
    let with = |member: &str, value: Value| {
        let mut document = publisher.document();
        document[member] = value;
        document
    };
    for (document, told) in [
        (with("iss", json!("https://127.0.0.1")), "not allowed"),
        (with("iss", json!("http://login.example.com")), "ASP_ISSUER_ORIGINS"),
        (with("iss", json!("asp-test")), "absolute http(s) URL"),
        (with("jwksUri", json!("http://10.0.0.1/keys")), "not allowed"),
        (with("jwksUri", json!("gopher://x/")), "absolute http(s) URL"),
        (with("orgs", json!([])), "for which orgs"),
        (with("algs", json!(["HS256"])), "not supported"),
        (with("roles", json!({ "ops": "platform" })), "for admin issuers"),
        (with("maxLifetimeSeconds", json!(0)), "maxLifetimeSeconds"),
        (with("defaults", json!({ "org": "*" })), "defaults.org"),
        (with("login", json!({ "clientId": "" })), "clientId"),
        (with("introspection", json!({ "credential": "" })), "credential"),
        (with("introspection", json!({ "credential": "kc", "url": "http://10.0.0.1/i" })), "not allowed"),
    ] {
        let answer = api.put("platform", LOGIN, document.clone()).await;
        let detail = answer.body["detail"].as_str().unwrap_or_default();
        assert!(!answer.status.is_success() && detail.contains(told), "{document}: {}", answer.body);
    }
    let given = api.put("platform", "/api/issuers/clients/dev", publisher.document()).await;
    assert_eq!((given.status, &given.body["code"]), (StatusCode::CONFLICT, &json!("issuer_given")));
    let twin = with("iss", json!("asp-test"));
    let mut twin_keys = twin.clone();
    twin_keys["jwks"] = json!({ "keys": [key("a")] });
    twin_keys["algs"] = json!(["ES256"]);
    let answer = api.put("platform", LOGIN, twin_keys).await;
    assert!(answer.body["detail"].as_str().unwrap().contains("another issuer has"), "{}", answer.body);
    assert_eq!(api.get("platform", "/api/issuers").await.body["issuers"], json!([]));
}

#[tokio::test]
async fn an_issuer_that_a_server_names_stays_until_the_server_does_not() {
    let publisher = Publisher::start().await;
    publisher.publish(&[key("one")]);
    let mut api = api(&publisher).await;
    api.put("platform", LOGIN, publisher.document()).await;
    api.published(|snapshot| kids(snapshot) == ["one"]).await;
    let mut files = sample("demo");
    for file in files["files"].as_array_mut().unwrap() {
        let text = file["text"].as_str().unwrap().replace("issuers: [dev]", "issuers: [dev, login]");
        file["text"] = json!(text);
    }
    let put = api.put("platform", super::DEMO, files).await;
    assert_eq!(put.status, StatusCode::OK, "{}", put.body);
    let refused = api.send("platform", Method::DELETE, LOGIN, None, &[]).await;
    assert_eq!((refused.status, &refused.body["code"]), (StatusCode::CONFLICT, &json!("issuer_in_use")));
    assert!(refused.body["detail"].as_str().unwrap().contains("demo"), "{}", refused.body);
    api.send("platform", Method::DELETE, super::DEMO, None, &[]).await;
    assert_eq!(api.send("platform", Method::DELETE, LOGIN, None, &[]).await.status, StatusCode::OK);
}

#[tokio::test]
async fn a_team_changes_its_own_server_and_no_other() {
    let publisher = Publisher::start().await;
    let api = api(&publisher).await;
    let own = api.put("server:demo", super::DEMO, sample("demo")).await;
    assert_eq!(own.status, StatusCode::OK, "{}", own.body);
    assert_eq!(api.get("server:demo:read", super::DEMO).await.status, StatusCode::OK);
    let reader = api.put("server:demo:read", super::DEMO, sample("demo")).await;
    assert_eq!(reader.status, StatusCode::FORBIDDEN);
    for path in ["/api/registry/servers/everything", "/api/registry/servers/nobody"] {
        let foreign = api.put("server:demo", path, sample("everything")).await;
        assert_eq!(
            (foreign.status, &foreign.body["code"]),
            (StatusCode::NOT_FOUND, &json!("not_found")),
            "{path}"
        );
        assert_eq!(api.get("server:demo", path).await.status, StatusCode::NOT_FOUND);
        assert_eq!(
            api.send("server:demo", Method::DELETE, path, None, &[]).await.status,
            StatusCode::NOT_FOUND
        );
    }
    let listed = api.get("server:demo", "/api/registry/servers").await.body;
    assert_eq!(listed.as_array().unwrap().len(), 1, "{listed}");
    assert_eq!(api.get("server:other", "/api/registry/servers").await.body, json!([]));
    for path in [
        "/api/snapshot",
        "/api/audit",
        "/api/revocations",
        "/api/policy/orgs/demo/bindings",
        "/api/artifacts",
    ] {
        assert_eq!(api.get("server:demo", path).await.status, StatusCode::NOT_FOUND, "{path}");
    }
    for role in ["installer", "org:demo"] {
        assert!(!api.put(role, super::DEMO, sample("demo")).await.status.is_success(), "{role}");
    }
    let files = json!({ "files": [{ "path": "demo/server.yaml", "text": "x" }] });
    assert!(!api.put("installer", super::DEMO, files).await.status.is_success());
}

/// Refreshes the issuer after the minimum gap between requested fetches.
pub(super) async fn asked_again(api: &Api) {
    tokio::time::pause();
    tokio::time::advance(asp_issuers::refresh::ASKED_GAP).await;
    tokio::time::resume();
    api.keeper.refresh("login").await;
}

#[tokio::test]
async fn keys_that_were_out_of_force_come_back_when_their_issuer_says_the_same_again() {
    let publisher = Publisher::start().await;
    publisher.publish(&[key("one")]);
    let mut api = api(&publisher).await;
    api.put("platform", LOGIN, publisher.document()).await;
    api.published(|snapshot| kids(snapshot) == ["one"]).await;
    let known = |api: &Api| api.trust.in_force().wanted[0].keys;
    let late = asp_platform::clock::now_ms() + u64::try_from(asp_issuers::trust::STALE.as_millis()).unwrap();
    let out = api.trust.take(&api.store.load().await.unwrap(), late);
    assert!(out[0].fault.contains("too long ago") && known(&api) == 0, "{out:?}");
    let before = api.store.revision().await.unwrap();
    asked_again(&api).await;
    let revision = api.store.revision().await.unwrap();
    assert!(revision > before, "the snapshot is built anew");
    api.standing.wait_for(|standing| standing.is_of(revision)).await.unwrap();
    assert_eq!(known(&api), 1);
    let audit = api.get("platform", "/api/audit").await.body;
    assert_eq!(audit[0]["action"], "issuer.back", "{audit}");
}

#[tokio::test]
async fn one_issuers_keys_take_a_bounded_room() {
    let publisher = Publisher::start().await;
    let mut padded = key("padded");
    padded["x5c"] = json!(["A".repeat(100_000)]);
    padded["n"] = json!("A".repeat(100_000));
    let mut long = json!({ "kty": "RSA", "kid": "long", "alg": "RS256", "e": "AQAB" });
    long["n"] = json!(format!("{}{}", "A".repeat(4_000), "gQ".repeat(200)));
    publisher.publish(&[padded, long]);
    let mut api = api(&publisher).await;
    api.put("platform", LOGIN, publisher.document()).await;
    api.published(|snapshot| kids(snapshot) == ["padded"]).await;
    let bytes = login(&api.xds_state.borrow().snapshot.as_ref().unwrap().whole()).unwrap().keys[0].jwk.len();
    assert!(bytes < 400, "{bytes} bytes");
    let many: Vec<Value> = (0..49).map(|n| key(&format!("{n:0>100}"))).collect();
    publisher.publish(&many);
    let revision = api.store.revision().await.unwrap();
    asked_again(&api).await;
    api.published(|snapshot| snapshot.revision > revision).await;
    assert!(kids_of(&api).len() == 49, "small ones fit");
}

#[tokio::test]
async fn discovery_names_no_private_origin_but_its_own() {
    let (publisher, other) = (Publisher::start().await, Publisher::start().await);
    other.publish(&[key("others")]);
    publisher.publish(&[key("own")]);
    let api = Api::with_issuers(vec![publisher.origin.clone(), other.origin.clone()]).await;
    for member in ["jwks_uri", "token_endpoint", "introspection_endpoint"] {
        let mut metadata =
            json!({ "issuer": publisher.origin, "jwks_uri": format!("{}/keys", publisher.origin) });
        metadata[member] = json!(format!("{}/keys", other.origin));
        publisher.set("/.well-known/openid-configuration", Page::Json(metadata));
        api.put("platform", LOGIN, publisher.document()).await;
        asked_again(&api).await;
        let fault = api.keeper.fault(asp_store::control::Side::Clients, "login").unwrap_or_default();
        assert!(fault.contains("it names") && fault.contains("not allowed"), "{member}: {fault:?}");
    }
    assert_eq!(other.asked("/keys"), 0);
}

#[tokio::test]
async fn a_workload_has_a_role_only_with_every_claim_that_the_grant_names() {
    const CI: &str = "https://ci.example.com";
    let api = Api::start().await;
    let document = json!({
        "iss": CI, "jwks": { "keys": [api.issuer.jwk()] }, "algs": ["ES256"],
        "grants": [
            { "role": "server:demo:read", "claims": { "repository_id": "7" } },
            { "role": "server:demo", "claims": { "repository_id": "7", "/job/protected": "true" } },
        ],
    });
    let put = async |document: Value| api.put("platform", "/api/issuers/admins/ci", document).await;
    let with = |grant: Value| {
        let mut document = document.clone();
        document["grants"] = json!([grant]);
        document
    };
    for (grant, told) in [
        (json!({ "role": "root", "claims": { "a": "b" } }), "is not a role"),
        (json!({ "role": "platform", "claims": {} }), "1 to 16 claims"),
        (json!({ "role": "platform", "claims": { "a": "" } }), "1 to 256 bytes"),
    ] {
        let refused = put(with(grant)).await;
        assert!(refused.body["detail"].as_str().unwrap_or_default().contains(told), "{}", refused.body);
    }
    assert!(put(document.clone()).await.status.is_success());
    let applies = async |claims: Value| {
        let request = http::Request::builder()
            .method(Method::PUT)
            .uri(super::DEMO)
            .header("host", "127.0.0.1:8081")
            .header("content-type", "application/json")
            .header("authorization", format!("Bearer {}", api.issuer.workload(CI, claims)));
        let body = super::sample("demo").to_string();
        let answer = super::read(api.raw(request.body(axum::body::Body::from(body)).unwrap()).await).await;
        answer.status
    };
    let job = |protected: Value| json!({ "repository_id": "7", "job": { "protected": protected } });
    assert!(applies(job(json!(true))).await.is_success());
    assert!(applies(job(json!("true"))).await.is_success());
    for (claims, status) in [
        (job(json!(false)), StatusCode::FORBIDDEN),
        (json!({ "repository_id": "7" }), StatusCode::FORBIDDEN),
        (json!({ "repository_id": "8", "job": { "protected": true } }), StatusCode::UNAUTHORIZED),
        (json!({ "repository_id": ["7"], "job": { "protected": true } }), StatusCode::UNAUTHORIZED),
        (json!({ "repository": "7", "role": "platform" }), StatusCode::UNAUTHORIZED),
    ] {
        assert_eq!(applies(claims.clone()).await, status, "{claims}");
    }
}
