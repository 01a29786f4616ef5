//! Issuers that are added, changed and removed while everything runs, and what they publish.

use std::collections::HashMap;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Redirect, Response};
use http::{Method, StatusCode, Uri};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{Api, sample};
use crate::testkit::TestIssuer;
use crate::xds::keys::RefreshKeys as _;

const LOGIN: &str = "/api/issuers/clients/login";

/// What an issuer publishes, by path: an answer, or nothing and never an end.
#[derive(Clone)]
enum Page {
    Json(Value),
    Text(StatusCode, String),
    To(String),
    Never,
}

/// An issuer on this machine.
struct Publisher {
    origin: String,
    pages: Arc<Mutex<HashMap<String, Page>>>,
    asked: Arc<Mutex<HashMap<String, usize>>>,
    _stop: DropGuard,
}

type Shared = (Arc<Mutex<HashMap<String, Page>>>, Arc<Mutex<HashMap<String, usize>>>);

async fn page(State((pages, asked)): State<Shared>, uri: Uri) -> Response {
    *asked.lock().entry(uri.path().to_owned()).or_default() += 1;
    let page = pages.lock().get(uri.path()).cloned();
    match page {
        None => StatusCode::NOT_FOUND.into_response(),
        Some(Page::Json(value)) => axum::Json(value).into_response(),
        Some(Page::Text(status, text)) => (status, text).into_response(),
        Some(Page::To(place)) => Redirect::temporary(&place).into_response(),
        Some(Page::Never) => std::future::pending().await,
    }
}

impl Publisher {
    async fn start() -> Publisher {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let origin = format!("http://{}", listener.local_addr().unwrap());
        let shared = Shared::default();
        let (pages, asked) = shared.clone();
        let stop = CancellationToken::new();
        let ended = stop.clone().cancelled_owned();
        let router = Router::new().fallback(page).with_state(shared);
        tokio::spawn(async move { axum::serve(listener, router).with_graceful_shutdown(ended).await });
        Publisher { origin, pages, asked, _stop: stop.drop_guard() }
    }

    fn set(&self, path: &str, page: Page) {
        self.pages.lock().insert(path.to_owned(), page);
    }

    fn asked(&self, path: &str) -> usize {
        self.asked.lock().get(path).copied().unwrap_or_default()
    }

    /// Publishes metadata, and these keys.
    fn publish(&self, keys: &[Value]) {
        let metadata = json!({ "issuer": self.origin, "jwks_uri": format!("{}/keys", self.origin) });
        self.set("/.well-known/openid-configuration", Page::Json(metadata));
        self.set("/keys", Page::Json(json!({ "keys": keys })));
    }

    fn document(&self) -> Value {
        json!({ "iss": self.origin, "orgs": ["acme"], "typ": ["JWT"], "claims": { "groups": "/realm_access/roles" } })
    }
}

fn key(kid: &str) -> Value {
    let mut key = TestIssuer::new().jwk().clone();
    key["kid"] = json!(kid);
    key
}

async fn api(publisher: &Publisher) -> Api {
    Api::with_issuers(vec![publisher.origin.clone()]).await
}

fn login(snapshot: &asp_proto::snapshot::GatewaySnapshot) -> Option<&asp_proto::snapshot::Issuer> {
    snapshot.edge.as_ref()?.issuers.iter().find(|issuer| issuer.name == "login")
}

fn kids(snapshot: &asp_proto::snapshot::GatewaySnapshot) -> Vec<&str> {
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
    tokio::time::advance(crate::issuers::refresh::ASKED_GAP).await;
    tokio::time::resume();
    let revision = api.keeper.refresh("login").await;
    assert!(revision > before);
    api.published(|snapshot| snapshot.revision >= revision && kids(snapshot) == ["one", "two"]).await;
    futures::future::join_all((0..50).map(|_| api.keeper.refresh("login"))).await;
    assert_eq!(publisher.asked("/keys"), 2, "no storm");
}

fn kids_of(api: &Api) -> Vec<String> {
    let state = api.xds_state.borrow();
    let snapshot = state.snapshot.as_ref().unwrap();
    kids(&snapshot.snapshot).into_iter().map(str::to_owned).collect()
}

/// What an issuer must not publish, and a part of what the operator is told of it.
#[allow(clippy::too_many_lines, reason = "a table of cases")]
fn hostile(publisher: &Publisher) -> Vec<(&'static str, Page, &'static str)> {
    let metadata = |member: &str, value: Value| {
        let mut metadata =
            json!({ "issuer": publisher.origin, "jwks_uri": format!("{}/keys", publisher.origin) });
        metadata[member] = value;
        Page::Json(metadata)
    };
    let mut weak = json!({ "kty": "RSA", "kid": "weak", "alg": "RS256", "e": "AQAB" });
    weak["n"] = json!("gQ".repeat(64));
    let mut private = key("private");
    private["d"] = json!("AA");
    let mut encrypting = key("enc");
    encrypting["use"] = json!("enc");
    let mut off_curve = key("off");
    off_curve["y"] = off_curve["x"].clone();
    let keys = |keys: Value| Page::Json(json!({ "keys": keys }));
    let discovery = "/.well-known/openid-configuration";
    let mut table = vec![
        (discovery, metadata("issuer", json!("https://evil.example")), "its issuer is"),
        (discovery, metadata("issuer", json!(format!("{}/", publisher.origin))), "its issuer is"),
        (discovery, metadata("jwks_uri", json!("https://127.0.0.1:1/keys")), "not allowed"),
        (discovery, metadata("jwks_uri", json!("http://169.254.169.254/keys")), "not allowed"),
        (discovery, metadata("jwks_uri", json!("https://user:x@login.example/keys")), "not allowed"),
        (discovery, metadata("jwks_uri", json!("file:///etc/passwd")), "not"),
        (discovery, metadata("jwks_uri", json!(7)), "not what it should be"),
        (discovery, Page::Text(StatusCode::OK, "<html>".into()), "not what it should be"),
        (discovery, Page::Text(StatusCode::OK, "[".repeat(100_000)), "not what it should be"),
        (discovery, Page::Text(StatusCode::OK, " ".repeat(300_000)), "too large"),
        (discovery, Page::Text(StatusCode::INTERNAL_SERVER_ERROR, String::new()), "status 500"),
        (discovery, Page::To("/elsewhere".into()), "status 307"),
        (discovery, Page::To("http://169.254.169.254/".into()), "status 307"),
        ("/keys", Page::To("/other".into()), "status 307"),
        ("/keys", Page::Text(StatusCode::OK, "{\"keys\": [".into()), "not what it should be"),
        ("/keys", Page::Text(StatusCode::OK, "x".repeat(300_000)), "too large"),
        ("/keys", Page::Text(StatusCode::UNAUTHORIZED, String::new()), "status 401"),
        ("/keys", keys(json!([])), "no keys"),
        ("/keys", keys(json!([{}])), "no kid"),
        ("/keys", keys(json!([7, null, "x", [[]]])), "no kid"),
        ("/keys", keys(json!([weak])), "none of its keys"),
        ("/keys", keys(json!([private])), "private member"),
        ("/keys", keys(json!([encrypting])), "not for signatures"),
        ("/keys", keys(json!([off_curve])), "no point of the curve"),
        ("/keys", keys(json!([key("same"), key("same")])), "two keys have the kid"),
        (
            "/keys",
            keys(json!([{ "kty": "oct", "kid": "s", "k": "c2VjcmV0", "alg": "HS256" }])),
            "none of its keys",
        ),
        ("/keys", keys(json!([key("with space")])), "none of its keys"),
        ("/keys", keys(json!([key(&"k".repeat(200))])), "none of its keys"),
    ];
    for alg in ["none", "HS256", "RS1", "PS256", "ES256K", ""] {
        let mut bad = key("alg");
        bad["alg"] = json!(alg);
        table.push(("/keys", keys(json!([bad])), "none of its keys"));
    }
    for (member, value) in [
        ("x", json!("")),
        ("x", json!("AA")),
        ("y", Value::Null),
        ("crv", json!("P-521")),
        ("crv", json!("secp256k1")),
        ("kty", json!("RSA")),
        ("kty", json!("oct")),
        ("use", json!("ENC")),
    ] {
        let mut bad = key("bad");
        bad[member] = value;
        table.push(("/keys", keys(json!([bad])), "none of its keys"));
    }
    table
}

#[tokio::test]
async fn hostile_documents_give_no_key_and_replace_none() {
    let publisher = Publisher::start().await;
    publisher.publish(&[key("good")]);
    let mut api = api(&publisher).await;
    api.put("platform", LOGIN, publisher.document()).await;
    api.published(|snapshot| kids(snapshot) == ["good"]).await;
    for (path, page, told) in hostile(&publisher) {
        publisher.publish(&[key("good")]);
        publisher.set(path, page);
        tokio::time::pause();
        tokio::time::advance(crate::issuers::refresh::ASKED_GAP).await;
        tokio::time::resume();
        api.keeper.refresh("login").await;
        let fault = api.keeper.fault(asp_store::control::Side::Clients, "login").unwrap_or_default();
        assert!(fault.contains(told), "{path} should tell {told:?}: {fault:?}");
        assert_eq!(kids_of(&api), ["good"], "{path} {told}");
    }
}

#[tokio::test]
async fn one_issuer_that_never_answers_holds_up_no_other() {
    let (slow, good) = (Publisher::start().await, Publisher::start().await);
    slow.set("/.well-known/openid-configuration", Page::Never);
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

/// What is asked for may be fetched again.
async fn asked_again(api: &Api) {
    tokio::time::pause();
    tokio::time::advance(crate::issuers::refresh::ASKED_GAP).await;
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
    let late = crate::clock::now_ms() + u64::try_from(crate::issuers::trust::STALE.as_millis()).unwrap();
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
    let bytes = login(&api.xds_state.borrow().snapshot.as_ref().unwrap().snapshot).unwrap().keys[0].jwk.len();
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
