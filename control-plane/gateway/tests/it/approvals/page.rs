//! The page of an approval: who sees it, who decides, and how not.

#[path = "page/sign_in.rs"]
mod sign_in;

use std::sync::Arc;

use asp_gateway::gateway::Gateway;
use asp_identity::issuers::IssuerDeps;
use asp_identity::issuers::fresh_keys::AskControl;
use asp_proto::snapshot::{IssuerAccess, Login};
use asp_registry::{Inputs, assemble};
use asp_store::approvals::{ApprovalState, ApprovalStore};
use asp_store::sqlite::SqliteCalls;
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::routing::post;
use http::{Method, StatusCode};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{by_finance, call, result};
use crate::login::FORM;
use crate::plugin::until_some;
use crate::support::{Answer, Fixture, PUBLIC_URL, claims, inputs, sign};

/// An issuer, and a gateway that notifies a receiver of requests.
struct World {
    store: Arc<SqliteCalls>,
    fixture: Fixture,
    access: IssuerAccess,
    /// Token of the person who logs in next.
    token: Arc<Mutex<String>>,
    /// Bodies that the webhook got.
    notices: Arc<Mutex<Vec<Value>>>,
    _directory: TempDir,
}

async fn give(State(token): State<Arc<Mutex<String>>>) -> String {
    json!({"access_token": *token.lock(), "token_type": "Bearer"}).to_string()
}

async fn note(State(notices): State<Arc<Mutex<Vec<Value>>>>, body: Bytes) {
    notices.lock().push(serde_json::from_slice(&body).unwrap());
}

async fn serve(router: Router) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let origin = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    origin
}

/// Inputs in which finance approves, and the issuer has a login.
fn inputs_with(access: &IssuerAccess) -> Inputs {
    Inputs { bindings: vec![by_finance()], issuer_access: vec![access.clone()], ..inputs() }
}

/// A token of a user with groups.
fn member(user: &str, groups: &[&str]) -> String {
    let mut claims = claims(user);
    claims["groups"] = json!(groups);
    sign(&claims)
}

impl World {
    async fn start() -> World {
        World::of(|_| {}, None).await
    }

    /// A world of changed inputs, whose gateway asks a control plane for newer keys.
    async fn of(change: impl FnOnce(&mut Inputs), control: Option<Arc<dyn AskControl>>) -> World {
        let directory = tempfile::tempdir().unwrap();
        let store = Arc::new(SqliteCalls::open(&directory.path().join("calls.db")).await.unwrap());
        let token = Arc::new(Mutex::new(member("bob", &["finance"])));
        let issuer = serve(Router::new().route("/token", post(give)).with_state(token.clone())).await;
        let notices = Arc::new(Mutex::new(Vec::new()));
        let receiver = serve(Router::new().route("/hook", post(note)).with_state(notices.clone())).await;
        let login = Login {
            client_id: "the-one-client".into(),
            authorization_endpoint: "https://login.example.com/authorize".into(),
            token_endpoint: format!("{issuer}/token"),
            ..Login::default()
        };
        let access = IssuerAccess { issuer: "dev".into(), login: Some(login), ..IssuerAccess::default() };
        let mut given = inputs_with(&access);
        change(&mut given);
        let snapshot = assemble(given);
        let issuers = IssuerDeps { control, origins: vec![issuer], ..IssuerDeps::default() };
        let webhook = Some(format!("{receiver}/hook"));
        let fixture =
            Fixture::approving(snapshot, issuers, webhook, |stores| stores.approvals = Some(store.clone()));
        tokio::spawn(Gateway::keep_approvals(Arc::downgrade(&fixture.gateway)));
        tokio::spawn(fixture.gateway.send_approval_notices());
        World { store, fixture, access, token, notices, _directory: directory }
    }

    /// Returns the path of the page in the first notification.
    async fn address(&self) -> String {
        let first = async || self.notices.lock().first().cloned();
        let notice = until_some("the webhook is notified", first).await;
        assert_eq!((&notice["user"], &notice["approvers"]), (&json!("alice"), &json!("finance")));
        assert!(!notice.to_string().contains("the-amount"), "no arguments: {notice}");
        notice["url"].as_str().unwrap().strip_prefix(PUBLIC_URL).unwrap().to_owned()
    }

    async fn get(&self, path: &str, cookies: &str) -> Answer {
        self.fixture.send(Method::GET, path, &[("cookie", cookies)], "").await
    }

    async fn post(&self, path: &str, cookies: &str, origin: &str, form: &[(&str, &str)]) -> Answer {
        let form = form_urlencoded::Serializer::new(String::new()).extend_pairs(form).finish();
        let headers = [FORM, ("cookie", cookies), ("origin", origin)];
        self.fixture.send(Method::POST, path, &headers, &form).await
    }

    /// Goes from a page to the issuer as the person of a token; returns the cookies, and the path of the page's callback.
    async fn at_callback(&self, path: &str, token: String) -> (String, String) {
        *self.token.lock() = token;
        let begun = self.get(path, "").await;
        assert_eq!(begun.status, StatusCode::SEE_OTHER, "{}", begun.text);
        let cookies = cookies(&begun);
        let at_issuer = location(&begun);
        assert!(at_issuer.starts_with("https://login.example.com/authorize?"), "{at_issuer}");
        let state = parameter(&at_issuer, "state");
        let back = form_urlencoded::Serializer::new(String::new())
            .extend_pairs([("state", state.as_str()), ("code", "c0de")])
            .finish();
        let at_front = self.get(&format!("/policy/oauth/callback?{back}"), &cookies).await;
        let callback = location(&at_front).strip_prefix(PUBLIC_URL).unwrap().to_owned();
        (cookies, callback)
    }

    /// Logs the person of a token in for a page, and returns the cookies.
    async fn log_in(&self, path: &str, token: String) -> String {
        let (cookies, callback) = self.at_callback(path, token).await;
        let returned = self.get(&callback, &cookies).await;
        assert_eq!(
            (returned.status, &*location(&returned)),
            (StatusCode::SEE_OTHER, path),
            "{}",
            returned.text
        );
        let elsewhere = self.get(&callback, "").await;
        assert_eq!(elsewhere.status, StatusCode::BAD_REQUEST, "another browser did not begin it");
        self::cookies(&returned)
    }
}

fn cookies(answer: &Answer) -> String {
    let set = answer.headers.get_all("set-cookie").iter();
    let pairs = set.map(|cookie| cookie.to_str().unwrap().split(';').next().unwrap().to_owned());
    pairs.collect::<Vec<_>>().join("; ")
}

fn location(answer: &Answer) -> String {
    answer.headers.get("location").unwrap_or_else(|| panic!("{}", answer.text)).to_str().unwrap().to_owned()
}

fn parameter(url: &str, name: &str) -> String {
    let query = url.split_once('?').unwrap().1;
    let found = form_urlencoded::parse(query.as_bytes()).find(|(key, _)| key == name);
    found.unwrap().1.into_owned()
}

fn ticket(page: &Answer) -> String {
    page.text.split("name=ticket value=\"").nth(1).unwrap().split('"').next().unwrap().to_owned()
}

#[tokio::test]
async fn an_approver_logs_in_sees_the_call_and_decides_by_the_form_alone() {
    let world = World::start().await;
    let waiting = call(&world.fixture, "the-amount <b>5</b>");
    let path = world.address().await;
    let cookies = world.log_in(&path, member("bob", &["staff", "finance"])).await;
    let page = world.get(&path, &cookies).await;
    assert_eq!(page.status, StatusCode::OK, "{}", page.text);
    for shown in ["alice", "the-amount &lt;b&gt;5", "policy.open", "acme"] {
        assert!(page.text.contains(shown), "{shown}: {}", page.text);
    }
    let ticket = ticket(&page);
    let approve = [("ticket", ticket.as_str()), ("decision", "approve")];
    let by_get = world.get(&format!("{path}?decision=approve&ticket={ticket}"), &cookies).await;
    assert!(by_get.text.contains("Approve this call?"), "a GET decides nothing");
    for (cookies, origin, form) in [
        (cookies.as_str(), "https://evil.example", approve.as_slice()),
        (cookies.as_str(), PUBLIC_URL, [("decision", "approve")].as_slice()),
        (cookies.as_str(), PUBLIC_URL, [("ticket", "x"), ("decision", "approve")].as_slice()),
        (cookies.as_str(), PUBLIC_URL, &approve[..1]),
        ("", PUBLIC_URL, approve.as_slice()),
    ] {
        let refused = world.post(&path, cookies, origin, form).await;
        assert_ne!(refused.status, StatusCode::OK, "{origin} {form:?}");
    }
    let decided = world.post(&path, &cookies, PUBLIC_URL, &approve).await;
    assert!(decided.status == StatusCode::OK && decided.text.contains("Approved"), "{}", decided.text);
    assert_eq!(result(waiting).await["isError"], false);
    let again = world.post(&path, &cookies, PUBLIC_URL, &approve).await;
    assert_eq!(again.status, StatusCode::CONFLICT);
    assert!(world.get(&path, &cookies).await.text.contains("approved and used"));
}

#[tokio::test]
async fn nobody_else_decides_and_the_caller_least_of_all() {
    let world = World::start().await;
    let waiting = call(&world.fixture, "the-amount");
    let path = world.address().await;
    for (token, why) in [
        (member("alice", &["finance"]), "does not approve a call of their own"),
        (member("eve", &["staff"]), "only members of the group"),
        (member("cli", &["finance"]), "a machine approves nothing"),
    ] {
        let cookies = world.log_in(&path, token).await;
        let page = world.get(&path, &cookies).await;
        assert_eq!(page.status, StatusCode::FORBIDDEN, "{}", page.text);
        assert!(page.text.contains(why) && !page.text.contains("the-amount"), "{}", page.text);
        let form = [("ticket", "x"), ("decision", "approve")];
        assert_eq!(world.post(&path, &cookies, PUBLIC_URL, &form).await.status, StatusCode::FORBIDDEN);
    }
    for bad in ["/approvals/x", &format!("{path}A")] {
        assert_eq!(world.get(bad, "").await.status, StatusCode::NOT_FOUND, "{bad}");
    }
    let cookies = world.log_in(&path, member("bob", &["finance"])).await;
    let ticket = ticket(&world.get(&path, &cookies).await);
    let deny = [("ticket", ticket.as_str()), ("decision", "deny"), ("reason", "too much")];
    assert_eq!(world.post(&path, &cookies, PUBLIC_URL, &deny).await.status, StatusCode::OK);
    assert_eq!(result(waiting).await["isError"], true);
    let state = world.store.approvals(&Default::default()).await.unwrap().pop().unwrap();
    assert_eq!((state.state, &*state.reason), (ApprovalState::Denied, "too much"));
    assert_eq!(state.decided_by, "dev:bob@acme");
}
