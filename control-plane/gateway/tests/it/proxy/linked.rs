//! Accounts that callers have linked at a provider, used by two gateways over one store.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use asp_identity::issuers::IssuerDeps;
use asp_proto::snapshot::service_auth::Kind as Way;
use asp_proto::snapshot::{IssuerAccess, LinkedToken, Login, RevokedBefore, RiskClass, ServiceAuth};
use asp_registry::Inputs;
use asp_store::linked_accounts::{
    LINK_TABLE, LinkFilter, LinkId, LinkKey, LinkTokens, LinkedAccounts, PROVIDER_TABLE, link_row,
};
use asp_store::sqlite::SqliteCalls;
use asp_vault::Place;
use axum::extract::State;
use http::Method;
use http::header::AUTHORIZATION;
use tempfile::TempDir;
use tokio::sync::{Notify, Semaphore};

use super::*;
use crate::login::FORM;
use crate::plugin::until_async;
use crate::support::{Answer, PUBLIC_URL, now, vault};

#[path = "linked/audited.rs"]
mod audited;
#[path = "linked/bound.rs"]
mod bound;
#[path = "linked/broken.rs"]
mod broken;
#[path = "linked/late.rs"]
mod late;
#[path = "linked/responses.rs"]
mod responses;
#[path = "linked/running.rs"]
mod running;
#[path = "linked/unstored.rs"]
mod unstored;

const SECRET: &str = "hub-s3cret";
const HOUR: Duration = Duration::from_secs(3_600);
const LINK: LinkId = [7; 16];

/// Requests that issuer, provider and service received.
#[derive(Default)]
struct Heard {
    /// Authorization of each call at the service.
    calls: Mutex<Vec<String>>,
    /// Forms at the provider's token endpoint.
    grants: Mutex<Vec<HashMap<String, String>>>,
    /// Access tokens that the service accepts.
    accepted: Mutex<HashSet<String>>,
    revoked: Mutex<Vec<String>>,
    revocations: Notify,
    /// Notified of each request for tokens, which then waits for a permit of the gate, if there is one.
    asked: Notify,
    gate: Mutex<Option<Arc<Semaphore>>>,
    /// Each request at the service waits for a permit of it, if there is one.
    held: Mutex<Option<Arc<Semaphore>>>,
    /// Number of revocations that the provider still fails.
    failures: Mutex<usize>,
}

fn form(body: &str) -> HashMap<String, String> {
    form_urlencoded::parse(body.as_bytes()).into_owned().collect()
}

/// The company's issuer: a code is the name of its user.
async fn sign_in(body: String) -> axum::Json<Value> {
    let user = form(&body)["code"].clone();
    axum::Json(json!({ "access_token": token(&user), "token_type": "Bearer", "expires_in": 300 }))
}

async fn grant(State(heard): State<Arc<Heard>>, body: String) -> (StatusCode, axum::Json<Value>) {
    heard.pass().await;
    let form = form(&body);
    let mut grants = heard.grants.lock();
    let used = |earlier: &HashMap<String, String>| earlier.get("refresh_token") == form.get("refresh_token");
    if form.contains_key("refresh_token") && grants.iter().any(used) {
        return (StatusCode::BAD_REQUEST, axum::Json(json!({ "error": "invalid_grant" })));
    }
    grants.push(form);
    let number = grants.len();
    let access = format!("at-{number}");
    heard.accepted.lock().insert(access.clone());
    let answer = json!({ "access_token": access, "token_type": "bearer", "expires_in": 3600,
        "refresh_token": format!("rt-{number}") });
    (StatusCode::OK, axum::Json(answer))
}

async fn revoke(State(heard): State<Arc<Heard>>, body: String) -> StatusCode {
    {
        let mut failures = heard.failures.lock();
        if *failures > 0 {
            *failures -= 1;
            heard.revocations.notify_one();
            return StatusCode::SERVICE_UNAVAILABLE;
        }
    }
    heard.revoked.lock().push(form(&body)["token"].clone());
    heard.revocations.notify_one();
    StatusCode::OK
}

async fn service(State(heard): State<Arc<Heard>>, headers: HeaderMap) -> (StatusCode, axum::Json<Value>) {
    let shown =
        headers.get(AUTHORIZATION).map(|shown| shown.to_str().unwrap().to_owned()).unwrap_or_default();
    let accepted = shown.strip_prefix("Bearer ").is_some_and(|token| heard.accepted.lock().contains(token));
    heard.calls.lock().push(shown);
    let held = heard.held.lock().clone();
    if let Some(held) = held {
        held.acquire().await.unwrap().forget();
    }
    let status = if accepted { StatusCode::OK } else { StatusCode::UNAUTHORIZED };
    (status, axum::Json(json!({ "done": true })))
}

struct World {
    gateways: [Fixture; 2],
    store: Arc<SqliteCalls>,
    heard: Arc<Heard>,
    origin: String,
    _directory: TempDir,
}

impl World {
    async fn start() -> World {
        let heard = Arc::<Heard>::default();
        let router = axum::Router::new()
            .route("/do", post(service))
            .route("/login/token", post(sign_in))
            .route("/hub/token", post(grant))
            .route("/hub/revoke", post(revoke));
        let origin = format!("http://{}", serve(router.with_state(heard.clone())).await);
        let directory = tempfile::tempdir().unwrap();
        let store = Arc::new(SqliteCalls::open(&directory.path().join("calls.db")).await.unwrap());
        let gateways = [linking(&origin, &store), linking(&origin, &store)];
        let world = World { gateways, store, heard, origin, _directory: directory };
        world.put_provider(&["demo/echo"], &["acme"]).await;
        world
    }

    async fn put_provider(&self, primitives: &[&str], orgs: &[&str]) {
        let origin = &self.origin;
        let document = json!({ "title": "Hub", "clientId": "c", "clientAuth": "post", "for": primitives, "orgs": orgs,
            "authorizationEndpoint": "https://hub.example.com/authorize", "tokenEndpoint": format!("{origin}/hub/token"),
            "revocation": { "endpoint": format!("{origin}/hub/revoke") }, "origins": [origin] });
        let place = Place { tenant: "", table: PROVIDER_TABLE, row: "hub" };
        let sealed = vault().seal(&place, SECRET.as_bytes()).await.unwrap();
        assert!(self.store.put_provider("hub", &document.to_string(), &sealed.into()).await.unwrap());
    }

    /// Stores a link of alice whose access token lives for this time.
    async fn put_link(&self, access: &str, life: Duration) {
        self.put_link_as(LINK, access, life).await;
    }

    async fn put_link_as(&self, id: LinkId, access: &str, life: Duration) {
        self.put_link_of(id, &alice(), access, life).await;
    }

    async fn put_link_of(&self, id: LinkId, key: &LinkKey, access: &str, life: Duration) {
        self.put_link_until(id, key, (access, life), HOUR).await;
    }

    /// Stores a link that expires after `keep`.
    async fn put_link_until(
        &self,
        id: LinkId,
        key: &LinkKey,
        (access, life): (&str, Duration),
        keep: Duration,
    ) {
        let row = link_row(id);
        let place = Place { tenant: "acme", table: LINK_TABLE, row: &row };
        let plain = json!({ "a": access, "r": "rt-0" }).to_string();
        let tokens = LinkTokens {
            version: 1,
            scopes: "read".into(),
            renewable: true,
            access_life: Some(life),
            sealed: vault().seal(&place, plain.as_bytes()).await.unwrap().into(),
        };
        self.store.put_link(id, key, &tokens, keep).await.unwrap();
    }

    async fn call(&self, gateway: usize) -> Value {
        echo(&self.gateways[gateway], "m").await
    }

    /// Address of the linking page in the answer to a call.
    async fn page(&self) -> String {
        page_in(&self.call(0).await.to_string())
    }

    async fn get(&self, path: &str, cookie: &str) -> Answer {
        self.gateways[1].send(Method::GET, path, &[("cookie", cookie), ("accept", "text/html")], "").await
    }

    async fn post(&self, path: &str, cookie: &str, origin: &str, pairs: &[(&str, &str)]) -> Answer {
        let body = form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish();
        self.gateways[1]
            .send(Method::POST, path, &[FORM, ("cookie", cookie), ("origin", origin)], &body)
            .await
    }

    /// Goes from the linking page to the provider as this user; returns its cookie and the answer with the redirect there.
    async fn sign_in(&self, page: &str, user: &str) -> (String, Answer) {
        let shown = self.get(page, "").await;
        assert_eq!(shown.status, StatusCode::OK, "{}", shown.text);
        let cookie = cookie(&shown);
        let ticket = page.split_once("ticket=").unwrap().1;
        let to_issuer = self.post("/demo/oauth/link", &cookie, PUBLIC_URL, &[("ticket", ticket)]).await;
        let state = sent_to(&to_issuer)["state"].clone();
        let back = query(&[("state", state.as_str()), ("code", user)]);
        let answer = self.get(&format!("/demo/oauth/callback?{back}"), &cookie).await;
        (cookie, answer)
    }

    /// Signs alice in at the page of her accounts; returns the cookie of its session.
    async fn account(&self) -> String {
        let to_issuer = self.post("/account/sign-in", "", PUBLIC_URL, &[("server", "demo")]).await;
        let browser = cookie(&to_issuer);
        let state = sent_to(&to_issuer)["state"].clone();
        let back = query(&[("state", state.as_str()), ("code", "alice")]);
        let signed_in = self.get(&format!("/demo/oauth/callback?{back}"), &browser).await;
        let at = &signed_in.headers["location"];
        assert_eq!(at, format!("{PUBLIC_URL}/account").as_str(), "{}", signed_in.text);
        cookie(&signed_in)
    }
}

/// Address of the linking page in an answer.
fn page_in(answer: &str) -> String {
    let start = format!("{PUBLIC_URL}/demo/oauth/link?ticket=");
    let at = answer.find(&start).unwrap_or_else(|| panic!("no page: {answer}"));
    let sealed = &answer[at + start.len()..];
    let end = sealed.find(|c: char| !c.is_ascii_alphanumeric() && !"-_".contains(c)).unwrap();
    format!("/demo/oauth/link?ticket={}", &sealed[..end])
}

/// A gateway over a store of linked accounts.
fn linking(origin: &str, store: &Arc<SqliteCalls>) -> Fixture {
    let deps = IssuerDeps { origins: vec![origin.to_owned()], ..IssuerDeps::default() };
    Fixture::linking(linked_snapshot(origin), deps, store.clone())
}

fn alice() -> LinkKey {
    LinkKey {
        org: "acme".into(),
        issuer: "dev".into(),
        subject: "alice".into(),
        provider: "hub".into(),
        bound: String::new(),
    }
}

fn linked_snapshot(origin: &str) -> GatewaySnapshot {
    behind_a_link(assemble(inputs()), origin)
}

/// The same servers, of which `echo` calls the service with a linked account, and whose issuer has a login.
fn behind_a_link(mut snapshot: GatewaySnapshot, origin: &str) -> GatewaySnapshot {
    snapshot.issuer_access.push(IssuerAccess {
        exchange: None,
        issuer: "dev".into(),
        introspection: None,
        login: Some(Login {
            client_id: "the-one-client".into(),
            authorization_endpoint: "https://login.example.com/authorize".into(),
            token_endpoint: format!("{origin}/login/token"),
            ..Login::default()
        }),
    });
    let linked = LinkedToken { provider: "hub".into(), scopes: vec!["read".into()] };
    for primitive in snapshot.primitives.iter_mut().filter(|primitive| primitive.id == "echo") {
        primitive.runtime = Some(Runtime { mode: Some(Mode::ProxyHttp(http_mapping("/do"))) });
        primitive.output_schema.clear();
        primitive.set_mutation(Mutation::ReadOnly);
        primitive.set_risk_class(RiskClass::Low);
        primitive.service_auth = Some(ServiceAuth { kind: Some(Way::Linked(linked.clone())) });
    }
    snapshot.upstreams.push(Upstream {
        name: "service.internal".into(),
        url: origin.into(),
        primitives: vec!["*".into()],
    });
    snapshot
}

fn query(pairs: &[(&str, &str)]) -> String {
    form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish()
}

fn cookie(answer: &Answer) -> String {
    answer.headers["set-cookie"].to_str().unwrap().split(';').next().unwrap().to_owned()
}

/// Parameters of a redirect.
fn sent_to(answer: &Answer) -> HashMap<String, String> {
    let location = answer.headers.get("location").unwrap_or_else(|| panic!("{}", answer.text));
    form(location.to_str().unwrap().split_once('?').unwrap().1)
}

fn is_done(answer: &Value) -> bool {
    answer["result"]["structuredContent"]["done"] == true
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_calls_at_two_gateways_refresh_an_expired_token_once() {
    let world = World::start().await;
    world.put_link("old", Duration::ZERO).await;
    let answers = futures::future::join_all((0..50).map(|turn| world.call(turn % 2))).await;
    for answer in &answers {
        assert!(is_done(answer), "{answer}");
    }
    let metrics = world.gateways.each_ref().map(|one| one.gateway.pipeline.internals().metrics.encode());
    let refreshed =
        |metrics: &&String| metrics.contains("asp_link_refresh_duration_seconds_count{outcome=\"ok\"} 1");
    assert_eq!(metrics.iter().filter(refreshed).count(), 1, "{metrics:?}");
    let grants = world.heard.grants.lock();
    assert_eq!(grants.len(), 1, "{grants:?}");
    assert_eq!(
        (grants[0]["grant_type"].as_str(), grants[0]["refresh_token"].as_str()),
        ("refresh_token", "rt-0")
    );
    assert_eq!(grants[0]["client_secret"], SECRET);
    let calls = world.heard.calls.lock();
    assert!(calls.len() == 50 && calls.iter().all(|shown| shown == "Bearer at-1"), "{calls:?}");
}

#[tokio::test]
async fn a_user_links_an_account_and_the_next_call_has_its_token() {
    let world = World::start().await;
    let page = world.page().await;
    let (cookie, at_provider) = world.sign_in(&page, "alice").await;
    let sent = sent_to(&at_provider);
    assert_eq!(sent["redirect_uri"], format!("{PUBLIC_URL}/account/callback"));
    assert_eq!((sent["scope"].as_str(), sent["code_challenge_method"].as_str()), ("read", "S256"));
    let back = query(&[("state", sent["state"].as_str()), ("code", "c0de")]);
    let back = format!("/account/callback?{back}");
    for (why, cookie) in [("no cookie", ""), ("another", "__Host-asp-login-demo=AAAAAAAAAAAAAAAAAAAAAA")] {
        assert_eq!(world.get(&back, cookie).await.status, StatusCode::BAD_REQUEST, "{why}");
    }
    let linked = world.get(&back, &cookie).await;
    assert_eq!(linked.status, StatusCode::OK, "{}", linked.text);
    assert!(linked.text.contains("Your Hub account is linked"), "{}", linked.text);
    assert_eq!(world.get(&back, &cookie).await.status, StatusCode::BAD_REQUEST, "a state is used once");
    assert_eq!(world.heard.grants.lock().len(), 1);
    for gateway in [0, 1] {
        let answer = world.call(gateway).await;
        assert!(is_done(&answer), "{answer}");
    }
    let link = world.store.link(&alice()).await.unwrap().unwrap();
    assert!(link.used_ms > 0 && link.scopes == "read", "{link:?}");
    let sealed = String::from_utf8_lossy(&link.sealed);
    assert!(!sealed.contains("at-1") && !sealed.contains("rt-1"));
}

#[tokio::test]
async fn only_the_caller_links_an_account() {
    let world = World::start().await;
    let page = world.page().await;
    let (_, refused) = world.sign_in(&page, "bob").await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN, "{}", refused.text);
    assert!(!refused.headers.contains_key("location"));
    let ticket = page.split_once("ticket=").unwrap().1;
    let cookie = cookie(&world.get(&page, "").await);
    for (origin, cookie, ticket) in [
        ("https://evil.example", cookie.as_str(), ticket),
        (PUBLIC_URL, "", ticket),
        (PUBLIC_URL, cookie.as_str(), "AAAA"),
    ] {
        let refused = world.post("/demo/oauth/link", cookie, origin, &[("ticket", ticket)]).await;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{origin} {ticket}");
    }
    assert_eq!(world.get("/demo/oauth/link?ticket=AAAA", "").await.status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn a_removed_account_is_used_nowhere_and_its_tokens_are_revoked() {
    let world = World::start().await;
    world.heard.accepted.lock().insert("at-0".into());
    world.put_link("at-0", HOUR).await;
    assert!(is_done(&world.call(0).await) && is_done(&world.call(1).await));
    let of_alice = LinkFilter { org: "acme", subject: "alice", ..LinkFilter::default() };
    assert_eq!(world.store.remove_links(of_alice).await.unwrap(), 1);
    for gateway in [0, 1] {
        let answer = world.call(gateway).await;
        assert!(!is_done(&answer) && answer.to_string().contains("/demo/oauth/link?ticket="), "{answer}");
    }
    let revoked = async {
        while world.heard.revoked.lock().len() < 2 {
            world.heard.revocations.notified().await;
        }
    };
    let keeping = world.gateways[0].gateway.keep_links();
    let within = tokio::time::timeout(Duration::from_secs(30), async {
        tokio::select! {
            () = keeping => panic!("it keeps on"),
            () = revoked => {}
        }
    });
    within.await.unwrap();
    assert_eq!(*world.heard.revoked.lock(), ["rt-0", "at-0"]);
}

/// Invariant I-12: a record that was moved from another org is nobody's.
#[tokio::test]
async fn an_account_whose_tokens_do_not_open_is_linked_again() {
    let world = World::start().await;
    world.heard.accepted.lock().insert("at-0".into());
    let row = link_row(LINK);
    let place = Place { tenant: "globex", table: LINK_TABLE, row: &row };
    let sealed = vault().seal(&place, br#"{"a":"at-0"}"#).await.unwrap();
    let tokens = LinkTokens {
        version: 1,
        scopes: "read".into(),
        renewable: false,
        access_life: None,
        sealed: sealed.into(),
    };
    world.store.put_link(LINK, &alice(), &tokens, HOUR).await.unwrap();
    let page = world.page().await;
    assert!(world.heard.calls.lock().is_empty(), "the moved token was sent");
    let (cookie, at_provider) = world.sign_in(&page, "alice").await;
    let back = query(&[("state", sent_to(&at_provider)["state"].as_str()), ("code", "c0de")]);
    let linked = world.get(&format!("/account/callback?{back}"), &cookie).await;
    assert_eq!(linked.status, StatusCode::OK, "{}", linked.text);
    let answer = world.call(0).await;
    assert!(is_done(&answer), "{answer}");
}

#[tokio::test]
async fn a_revocation_that_fails_is_repeated() {
    let world = World::start().await;
    world.put_link("at-0", HOUR).await;
    *world.heard.failures.lock() = 1;
    assert_eq!(world.store.remove_links(LinkFilter::default()).await.unwrap(), 1);
    let revoked = async {
        while world.heard.revoked.lock().len() < 2 {
            world.heard.revocations.notified().await;
        }
    };
    let keeping = world.gateways[0].gateway.keep_links();
    let within = tokio::time::timeout(Duration::from_secs(30), async {
        tokio::select! {
            () = keeping => panic!("it keeps on"),
            () = revoked => {}
        }
    });
    within.await.unwrap();
    assert_eq!(*world.heard.failures.lock(), 0);
    assert_eq!(*world.heard.revoked.lock(), ["rt-0", "at-0"]);
    let metrics = world.gateways[0].gateway.pipeline.internals().metrics.encode();
    assert!(metrics.contains("asp_link_revocations_total{outcome=\"retried\"} 1"), "{metrics}");
}

#[tokio::test]
async fn a_rejected_account_is_dead_and_its_user_is_asked_again() {
    let world = World::start().await;
    world.put_link("unknown", HOUR).await;
    let answer = world.call(0).await;
    assert!(answer.to_string().contains("/demo/oauth/link?ticket="), "{answer}");
    assert_eq!(*world.heard.calls.lock(), ["Bearer unknown"], "it is not sent again");
    assert!(!world.store.link(&alice()).await.unwrap().unwrap().is_live);
}

#[tokio::test]
async fn a_client_that_shows_pages_is_asked_and_its_call_goes_on_once_the_account_is_linked() {
    let world = World::start().await;
    let call = |more: Value| {
        let mut params = json!({"name": "echo", "arguments": {"message": "m"}});
        for (name, value) in more.as_object().unwrap() {
            params[name] = value.clone();
        }
        let can = json!({"elicitation": {"url": {}}});
        Modern::new("demo", &token("alice"), "tools/call", params).capabilities(can)
    };
    let asked = call(json!({})).send(&world.gateways[0]).await.json()["result"].clone();
    assert_eq!(asked["resultType"], "input_required", "{asked}");
    let (key, request) = asked["inputRequests"].as_object().unwrap().iter().next().unwrap();
    let url = request["params"]["url"].as_str().unwrap();
    assert!(url.starts_with(&format!("{PUBLIC_URL}/demo/oauth/link?ticket=")), "{request}");
    world.heard.accepted.lock().insert("at-0".into());
    world.put_link("at-0", HOUR).await;
    let answer = json!({ key: {"action": "accept"} });
    let again = call(json!({"requestState": asked["requestState"], "inputResponses": answer}));
    let result = again.send(&world.gateways[0]).await.json();
    assert!(is_done(&result), "{result}");
}

#[tokio::test]
async fn a_task_of_an_agent_needs_authentication_and_goes_on_by_itself() {
    let world = World::start().await;
    let deps = IssuerDeps { origins: vec![world.origin.clone()], ..IssuerDeps::default() };
    let snapshot = behind_a_link(crate::a2a::snapshot(), &world.origin);
    let gateway = Fixture::linking(snapshot, deps, world.store.clone());
    let bearer = format!("Bearer {}", token("alice"));
    let ask = async |method: &str, params: Value| {
        let headers = [
            ("authorization", bearer.as_str()),
            ("content-type", "application/json"),
            ("a2a-version", "1.0"),
        ];
        let body = json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params}).to_string();
        gateway.send(Method::POST, "/demo/a2a", &headers, &body).await.json()["result"].clone()
    };
    let parts = json!([{"data": {"skill": "echo", "arguments": {"message": "m"}}}]);
    let message = json!({"message": {"messageId": "linked-1", "role": "ROLE_USER", "parts": parts}});
    let task = ask("SendMessage", message).await["task"].clone();
    assert_eq!(task["status"]["state"], "TASK_STATE_AUTH_REQUIRED", "{task}");
    let url = task["status"]["message"]["parts"][1]["data"]["url"].as_str().unwrap();
    assert!(url.starts_with(&format!("{PUBLIC_URL}/demo/oauth/link?ticket=")), "{task}");
    world.heard.accepted.lock().insert("at-0".into());
    world.put_link("at-0", HOUR).await;
    until_async("the task goes on", async || {
        let task = ask("GetTask", json!({ "id": task["id"] })).await;
        task["status"]["state"] == "TASK_STATE_COMPLETED"
    })
    .await;
}

/// Invariant I-12.
#[tokio::test]
async fn the_operator_says_which_primitives_and_orgs_use_a_provider() {
    let world = World::start().await;
    world.heard.accepted.lock().insert("at-0".into());
    world.put_link("at-0", HOUR).await;
    for (primitives, orgs) in
        [(&["demo/add"][..], &["acme"][..]), (&[][..], &["*"][..]), (&["*"][..], &["globex"][..])]
    {
        world.put_provider(primitives, orgs).await;
        // A gateway remembers a provider for a moment.
        let fresh = linking(&world.origin, &world.store);
        let answer = echo(&fresh, "m").await;
        assert!(
            !is_done(&answer) && !answer.to_string().contains("ticket="),
            "{primitives:?} {orgs:?} {answer}"
        );
    }
    assert_eq!(world.heard.calls.lock().len(), 0);
}

#[tokio::test]
async fn a_user_sees_and_removes_the_links_of_the_account_page() {
    let world = World::start().await;
    world.put_link("at-0", HOUR).await;
    let choose = world.get("/account", "").await;
    assert!(choose.text.contains("Sign in at dev"), "{}", choose.text);
    let session = world.account().await;
    let page = world.get("/account", &session).await;
    assert!(page.text.contains("<h2>Hub</h2>") && page.text.contains("Signed in as alice"), "{}", page.text);
    let tag = page.text.split("name=tag value=\"").nth(1).unwrap().split('"').next().unwrap();
    let pairs = |tag| [("provider", "hub"), ("tag", tag)];
    for (origin, session, tag) in [
        ("https://evil.example", session.as_str(), tag),
        (PUBLIC_URL, "", tag),
        (PUBLIC_URL, session.as_str(), "x"),
    ] {
        let refused = world.post("/account/remove", session, origin, &pairs(tag)).await;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{origin} {tag}");
    }
    assert!(world.store.link(&alice()).await.unwrap().is_some());
    let removed = world.post("/account/remove", &session, PUBLIC_URL, &pairs(tag)).await;
    assert_eq!(removed.status, StatusCode::SEE_OTHER, "{}", removed.text);
    assert!(world.store.link(&alice()).await.unwrap().is_none());
    let page = world.get("/account", &session).await;
    assert!(page.text.contains("You have linked no accounts"), "{}", page.text);
    let revoked = RevokedBefore {
        org: "acme".into(),
        user: "alice".into(),
        not_after_iat: now() + 60,
        ..RevokedBefore::default()
    };
    let revoked = assemble(Inputs { revision: 2, revoked_before: vec![revoked], ..inputs() });
    world.gateways[1].gateway.apply(behind_a_link(revoked, &world.origin)).unwrap();
    let page = world.get("/account", &session).await;
    assert!(!page.text.contains("Signed in as alice"), "{}", page.text);
}
