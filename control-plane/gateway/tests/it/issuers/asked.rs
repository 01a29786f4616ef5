//! Requests of a gateway to issuers and the control plane: opaque tokens, and keys newer than its snapshot.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use asp_gateway::gateway::Gateway;
use asp_identity::issuers::IssuerDeps;
use asp_identity::issuers::credentials::{Credential, Kind};
use asp_identity::issuers::fresh_keys::AskControl;
use asp_proto::snapshot::{AuthScheme, GatewaySnapshot, Introspection, IssuerAccess, RevokedBefore};
use asp_registry::{Inputs, assemble};
use asp_snapshot::parts;
use async_trait::async_trait;
use axum::Router;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::routing::post;
use http::StatusCode;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::support::{Answer, Fixture, Modern, PUBLIC_URL, inputs, now, token};

/// An issuer that says of a token what the test says.
#[derive(Default)]
struct Issuer {
    said: Mutex<HashMap<String, Value>>,
    asked: AtomicUsize,
    /// Password of the introspection endpoint; requests without it are refused.
    password: &'static str,
    /// Set: answers wait until it is notified.
    held: Option<tokio::sync::Notify>,
}

async fn introspect(
    State(issuer): State<Arc<Issuer>>,
    headers: HeaderMap,
    body: String,
) -> (StatusCode, String) {
    issuer.asked.fetch_add(1, Ordering::SeqCst);
    use base64::Engine as _;
    let expected = base64::engine::general_purpose::STANDARD.encode(format!("gateway:{}", issuer.password));
    if headers.get("authorization").and_then(|value| value.to_str().ok())
        != Some(&format!("Basic {expected}"))
    {
        return (StatusCode::UNAUTHORIZED, String::new());
    }
    let form: HashMap<String, String> = form_urlencoded::parse(body.as_bytes()).into_owned().collect();
    // Many come meanwhile.
    tokio::task::yield_now().await;
    if let Some(held) = &issuer.held {
        held.notified().await;
    }
    let said = issuer.said.lock().get(&form["token"]).cloned();
    match said {
        Some(Value::Number(status)) => {
            (StatusCode::from_u16(status.as_u64().unwrap() as u16).unwrap(), "{}".into())
        }
        Some(Value::String(text)) => (StatusCode::OK, text),
        Some(said) => (StatusCode::OK, said.to_string()),
        None => (StatusCode::OK, json!({ "active": false }).to_string()),
    }
}

struct World {
    fixture: Fixture,
    issuer: Arc<Issuer>,
    url: String,
}

impl World {
    async fn start(schemes: &[AuthScheme]) -> World {
        World::of(schemes, Issuer::default()).await
    }

    async fn of(schemes: &[AuthScheme], issuer: Issuer) -> World {
        let issuer = Arc::new(Issuer { password: "s3cret", ..issuer });
        let router = Router::new().route("/introspect", post(introspect)).with_state(issuer.clone());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let origin = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await });
        let kind = Kind::Basic { user: "gateway".into(), password: "s3cret".into() };
        let credential = Credential { origin: origin.clone(), primitives: Vec::new(), kind };
        let deps = IssuerDeps {
            credentials: HashMap::from([("kc".to_owned(), credential)]),
            origins: vec![origin.clone()],
            ..IssuerDeps::default()
        };
        let url = format!("{origin}/introspect");
        let fixture = Fixture::asking(assemble(opaque(schemes, &url)), deps);
        World { fixture, issuer, url }
    }

    fn says(&self, token: &str, said: Value) {
        self.issuer.said.lock().insert(token.to_owned(), said);
    }

    fn asked(&self) -> usize {
        self.issuer.asked.load(Ordering::SeqCst)
    }

    async fn list(&self, token: &str) -> Answer {
        list(&self.fixture, token).await
    }
}

async fn list(fixture: &Fixture, token: &str) -> Answer {
    Modern::new("demo", token, "tools/list", json!({})).send(fixture).await
}

fn opaque(schemes: &[AuthScheme], url: &str) -> Inputs {
    let mut inputs = inputs();
    for server in &mut inputs.servers {
        if server.server.name == "demo" {
            server.edge.schemes = schemes.iter().map(|scheme| *scheme as i32).collect();
        }
    }
    inputs.issuer_access.push(IssuerAccess {
        exchange: None,
        issuer: "dev".into(),
        introspection: Some(Introspection {
            url: url.to_owned(),
            credential: "kc".into(),
            audiences: vec!["asp".into()],
        }),
        login: None,
    });
    inputs
}

fn alice() -> Value {
    json!({ "active": true, "sub": "alice", "org": "acme", "aud": "asp", "iat": now() - 5, "exp": now() + 600 })
}

fn applied(gateway: &Gateway, mut snapshot: GatewaySnapshot, revision: u64) {
    snapshot.revision = revision;
    snapshot.edge.as_mut().unwrap().revision = revision;
    gateway.apply(snapshot).unwrap();
}

#[tokio::test]
async fn an_opaque_token_is_asked_about_once_whoever_waits_and_for_half_a_minute() {
    let world = World::start(&[AuthScheme::Opaque]).await;
    world.says("t-1", alice());
    let all = futures::future::join_all((0..100).map(|_| world.list("t-1"))).await;
    for answer in all {
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.text);
    }
    assert_eq!(world.asked(), 1);
    world.says("t-1", json!({ "active": false }));
    assert_eq!(world.list("t-1").await.status, StatusCode::OK, "what was said serves");
    for _ in 0..3 {
        let refused = world.list("t-2").await;
        assert_eq!(refused.status, StatusCode::UNAUTHORIZED);
        let challenge = refused.headers["www-authenticate"].to_str().unwrap();
        assert!(
            challenge.contains("invalid_token") && challenge.contains("resource_metadata"),
            "{challenge}"
        );
    }
    assert_eq!(world.asked(), 2, "a bad one is remembered too");
}

#[tokio::test]
async fn a_client_that_goes_away_leaves_no_open_question_behind() {
    let held = Some(tokio::sync::Notify::new());
    let world = World::of(&[AuthScheme::Opaque], Issuer { held, ..Issuer::default() }).await;
    world.says("t-1", alice());
    {
        let gone = world.list("t-1");
        tokio::pin!(gone);
        while world.asked() == 0 {
            let soon = tokio::time::timeout(std::time::Duration::from_millis(1), &mut gone).await;
            assert!(soon.is_err(), "the issuer has not answered");
        }
    }
    world.issuer.held.as_ref().unwrap().notify_one();
    assert_eq!(world.list("t-1").await.status, StatusCode::OK);
    assert_eq!(world.asked(), 1, "the question of the client that went away has found its answer");
}

#[tokio::test]
async fn a_flood_of_unknown_tokens_is_refused_and_known_callers_are_served() {
    let world = World::start(&[AuthScheme::Opaque]).await;
    world.says("t-1", alice());
    assert_eq!(world.list("t-1").await.status, StatusCode::OK);
    let tokens: Vec<String> = (0..600).map(|at| format!("unknown-{at}")).collect();
    let flood = futures::future::join_all(tokens.iter().map(|token| world.list(token))).await;
    let refused: Vec<_> =
        flood.iter().filter(|answer| answer.status == StatusCode::TOO_MANY_REQUESTS).collect();
    assert!(!refused.is_empty(), "one peer asks about every token it makes up");
    let (first, reason) = (refused[0], refused[0].reason());
    assert_eq!(reason, "rate_limited", "{}", first.text);
    let after: u64 = first.headers["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((1..=60).contains(&after), "{after}");
    assert!(world.asked() < tokens.len(), "what is refused does not reach the issuer");
    assert_eq!(world.list("t-1").await.status, StatusCode::OK);
}

#[tokio::test]
async fn good_tokens_of_one_peer_take_nothing_from_its_budget() {
    let world = World::start(&[AuthScheme::Opaque]).await;
    for at in 0..600 {
        let token = format!("of-a-large-office-{at}");
        world.says(&token, alice());
        assert_eq!(world.list(&token).await.status, StatusCode::OK, "{at}");
    }
    assert_eq!(world.asked(), 600);
}

#[tokio::test]
async fn what_an_issuer_says_wrongly_proves_nobody() {
    let world = World::start(&[AuthScheme::Opaque]).await;
    let with = |member: &str, value: Value| {
        let mut said = alice();
        said[member] = value;
        said
    };
    for (at, (said, status)) in [
        (with("aud", json!("urn:other")), 401),
        (with("aud", Value::Null), 401),
        (with("org", Value::Null), 401),
        (with("typ", json!("Refresh")), 401),
        (with("typ", json!("ID")), 401),
        (with("token_type", json!("DPoP")), 401),
        (with("iss", json!("https://evil.example")), 401),
        (with("exp", json!(now() - 100)), 401),
        (with("active", json!("true")), 503),
        (json!({ "sub": "alice" }), 503),
        (json!([]), 503),
        (json!("not json"), 503),
        (json!("x".repeat(100_000)), 503),
        (json!(500), 503),
        (json!(302), 503),
    ]
    .into_iter()
    .enumerate()
    {
        let token = format!("t-{at}");
        world.says(&token, said.clone());
        let answer = world.list(&token).await;
        assert_eq!(answer.status.as_u16(), status, "{said:.200} {}", answer.text);
    }
    let before = world.asked();
    for token in ["", "a b", "t\"x", &"x".repeat(9_000)] {
        let answer = world.list(token).await;
        assert_eq!(answer.status, StatusCode::UNAUTHORIZED, "{token:.40}");
    }
    assert_eq!(world.asked(), before, "what is no token is not asked about");
}

#[tokio::test]
async fn a_revocation_of_the_platform_counts_at_once() {
    let world = World::start(&[AuthScheme::Opaque]).await;
    world.says("t-1", alice());
    assert_eq!(world.list("t-1").await.status, StatusCode::OK);
    let mut inputs = opaque(&[AuthScheme::Opaque], &world.url);
    inputs.revoked_before.push(RevokedBefore {
        org: "acme".into(),
        user: "alice".into(),
        not_after_iat: now(),
        ..Default::default()
    });
    applied(&world.fixture.gateway, assemble(inputs), 2);
    let refused = world.list("t-1").await;
    assert_eq!((refused.status, refused.reason().as_str()), (StatusCode::UNAUTHORIZED, "token_revoked"));
}

#[tokio::test]
async fn an_opaque_token_is_shown_to_one_issuer_only() {
    let world = World::start(&[AuthScheme::Opaque]).await;
    world.says("t-1", alice());
    let mut inputs = opaque(&[AuthScheme::Opaque], &world.url);
    let mut twin = inputs.issuers[0].clone();
    (twin.name, twin.iss) = ("twin".into(), "https://twin.example".into());
    inputs.issuers.push(twin);
    let mut access = inputs.issuer_access[0].clone();
    access.issuer = "twin".into();
    inputs.issuer_access.push(access);
    for server in inputs.servers.iter_mut().filter(|server| server.server.name == "demo") {
        server.edge.issuers.push("twin".into());
    }
    applied(&world.fixture.gateway, assemble(inputs), 2);
    assert_eq!(world.list("t-1").await.status, StatusCode::UNAUTHORIZED);
    assert_eq!(world.asked(), 0);
}

#[tokio::test]
async fn signed_and_opaque_tokens_may_stand_beside_each_other() {
    let world = World::start(&[AuthScheme::Jwt, AuthScheme::Opaque]).await;
    world.says("t-1", alice());
    assert_eq!(world.list(&token("alice")).await.status, StatusCode::OK);
    assert_eq!(world.asked(), 0, "a signed token is shown to nobody");
    assert_eq!(world.list("t-1").await.status, StatusCode::OK);
    let only = World::start(&[AuthScheme::Jwt]).await;
    only.says("t-1", alice());
    assert_eq!(only.list("t-1").await.status, StatusCode::UNAUTHORIZED);
    assert_eq!(only.asked(), 0);
}

/// A control plane that publishes the missing key when it is asked.
#[derive(Default)]
struct Control {
    gateway: Mutex<Option<Arc<Gateway>>>,
    asked: AtomicUsize,
    has_it: bool,
    /// Whether revocations come into force before the key of their revision does.
    is_overtaken: bool,
}

#[async_trait]
impl AskControl for Control {
    async fn newest_keys(&self, issuer: &str) -> Option<u64> {
        assert_eq!(issuer, "dev");
        self.asked.fetch_add(1, Ordering::SeqCst);
        if self.has_it {
            let gateway = self.gateway.lock().clone().unwrap();
            if self.is_overtaken {
                revocations_applied(&gateway, 2, 1);
                // It runs when the request waits for it.
                tokio::spawn(async move { applied(&gateway, assemble(fetched(true)), 2) });
            } else {
                applied(&gateway, assemble(fetched(true)), 2);
            }
        }
        Some(if self.has_it { 2 } else { 0 })
    }
}

/// The tests' issuer, whose keys are fetched; with or without its key.
fn fetched(known: bool) -> Inputs {
    let mut inputs = inputs();
    inputs.issuers[0].keys_refreshed = true;
    if !known {
        inputs.issuers[0].keys.clear();
    }
    inputs
}

/// The recent revocations of a revision, ahead of everything else since `covers`.
fn revocations_applied(gateway: &Gateway, revision: u64, covers: u64) {
    let mut snapshot = assemble(fetched(false));
    snapshot.revision = revision;
    let recent = parts::split(snapshot).remove(parts::RECENT).unwrap();
    gateway.apply_changes(revision, covers, vec![(parts::RECENT.to_owned(), Some(recent))]).unwrap();
}

fn controlled(has_it: bool) -> (Fixture, Arc<Control>) {
    controlled_by(Control { has_it, ..Control::default() })
}

fn controlled_by(control: Control) -> (Fixture, Arc<Control>) {
    let control = Arc::new(control);
    let deps = IssuerDeps { control: Some(control.clone()), ..IssuerDeps::default() };
    let fixture = Fixture::asking(assemble(fetched(false)), deps);
    *control.gateway.lock() = Some(fixture.gateway.clone());
    (fixture, control)
}

#[tokio::test]
async fn a_token_of_a_newer_key_waits_for_it_and_is_served() {
    let (fixture, control) = controlled(true);
    let answers = futures::future::join_all((0..20).map(|n| {
        let fixture = fixture.clone();
        async move { list(&fixture, &token(&format!("user-{n}"))).await }
    }))
    .await;
    for answer in answers {
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.text);
    }
    assert_eq!(control.asked.load(Ordering::SeqCst), 1, "all of them waited for one question");
}

#[tokio::test]
async fn a_token_of_a_newer_key_waits_for_it_also_behind_revocations_of_its_revision() {
    let (fixture, _control) =
        controlled_by(Control { has_it: true, is_overtaken: true, ..Control::default() });
    let answer = list(&fixture, &token("alice")).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text);
}

#[tokio::test]
async fn a_key_that_nobody_has_is_refused_as_any_other() {
    let (fixture, control) = controlled(false);
    for path in ["/demo/mcp", "/demo/rest/tools"] {
        let bearer = format!("Bearer {}", token("alice"));
        let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
        let answer = fixture.send(http::Method::POST, path, &headers, &"x".repeat(100_000)).await;
        assert_eq!(
            answer.status,
            StatusCode::UNAUTHORIZED,
            "{path}: before its body is read: {}",
            answer.text
        );
        let challenge = answer.headers["www-authenticate"].to_str().unwrap();
        assert!(challenge.contains(PUBLIC_URL), "{challenge}");
    }
    assert_eq!(control.asked.load(Ordering::SeqCst), 1);
}
