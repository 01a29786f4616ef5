//! The token endpoint before an issuer that misbehaves: how much is read of it, how long it is waited for, how many ask it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use asp_identity::issuers::IssuerDeps;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use futures::StreamExt;
use http::{Method, StatusCode};
use parking_lot::Mutex;
use serde_json::json;

use super::{FORM, REDIRECT, VERIFIER, ask, client, code, front_at, query};
use crate::support::{Answer, Fixture};

/// Behaviour of the issuer's token endpoint.
#[derive(Clone)]
enum Does {
    Says(u16, String),
    /// Never answers.
    Hangs,
    /// Begins an answer.
    Stops,
    /// Answers without an end.
    Pours,
}

struct Issuer {
    does: Mutex<Does>,
    forms: Mutex<Vec<HashMap<String, String>>>,
    present: AtomicUsize,
    most: AtomicUsize,
}

/// Counts who is there.
struct Present(Arc<Issuer>);

impl Drop for Present {
    fn drop(&mut self) {
        self.0.present.fetch_sub(1, Ordering::SeqCst);
    }
}

async fn answer(State(issuer): State<Arc<Issuer>>, form: Bytes) -> Response {
    let _present = Present(issuer.clone());
    issuer.most.fetch_max(issuer.present.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
    issuer.forms.lock().push(form_urlencoded::parse(&form).into_owned().collect());
    let does = issuer.does.lock().clone();
    let begun = futures::stream::iter([Ok::<_, std::io::Error>(Bytes::from_static(b"{"))]);
    match does {
        Does::Says(status, text) => (StatusCode::from_u16(status).unwrap(), text).into_response(),
        Does::Hangs => std::future::pending().await,
        Does::Stops => Body::from_stream(begun.chain(futures::stream::pending())).into_response(),
        Does::Pours => {
            let spaces = || Ok::<_, std::io::Error>(Bytes::from_static(&[b' '; 4_096]));
            Body::from_stream(begun.chain(futures::stream::repeat_with(spaces))).into_response()
        }
    }
}

struct World {
    fixture: Fixture,
    issuer: Arc<Issuer>,
    client: String,
}

impl World {
    async fn start(does: Does) -> World {
        let issuer = Arc::new(Issuer {
            does: Mutex::new(does),
            forms: Mutex::default(),
            present: AtomicUsize::new(0),
            most: AtomicUsize::new(0),
        });
        let router = Router::new().route("/token", post(answer)).with_state(issuer.clone());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let origin = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await });
        let deps = IssuerDeps { origins: vec![origin.clone()], ..IssuerDeps::default() };
        let fixture = Fixture::asking(front_at(&format!("{origin}/token"), &[]), deps);
        let client = client(&fixture).await;
        World { fixture, issuer, client }
    }

    fn asked(&self) -> usize {
        self.issuer.forms.lock().len()
    }

    /// Logs in, and redeems the code.
    async fn exchange(&self, of_issuer: &str) -> Answer {
        let code = code(&self.fixture, &self.client, of_issuer).await;
        self.redeem(&code, &[]).await
    }

    async fn redeem(&self, code: &str, change: &[(&str, &str)]) -> Answer {
        let mut pairs = HashMap::from([
            ("client_id", self.client.as_str()),
            ("grant_type", "authorization_code"),
            ("code", code),
            ("code_verifier", VERIFIER),
            ("redirect_uri", REDIRECT),
        ]);
        pairs.extend(change.iter().copied());
        let pairs: Vec<(&str, &str)> = pairs.into_iter().collect();
        ask(&self.fixture, Method::POST, "/demo/oauth/token", &[FORM], &query(&pairs)).await
    }

    /// Some at once, of whom all that may have asked the issuer before its time for an answer is over.
    async fn late(&self, count: usize, at_once: usize) -> Vec<Answer> {
        let time = async {
            while self.asked() < at_once {
                tokio::task::yield_now().await;
            }
            for _ in 0..1_000 {
                tokio::task::yield_now().await;
            }
            // Whoever has waited for his turn is refused at once.
            *self.issuer.does.lock() = Does::Says(500, String::new());
            pass(Duration::from_secs(11)).await;
        };
        let all = futures::future::join_all((0..count).map(|_| self.exchange("c")));
        tokio::join!(all, time).0
    }
}

async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

fn unavailable(answer: &Answer) {
    let told = answer.json();
    assert_eq!((answer.status, &told["error"]), (StatusCode::BAD_GATEWAY, &json!("temporarily_unavailable")));
    assert_eq!(answer.headers["cache-control"], "no-store");
}

#[tokio::test]
async fn the_issuers_answer_passes_through_and_so_does_its_refusal() {
    let tokens = json!({ "access_token": "t", "token_type": "Bearer", "refresh_token": "r", "unknown": [1] });
    let world = World::start(Does::Says(200, tokens.to_string())).await;
    let answer = world.exchange("the-code").await;
    assert_eq!((answer.status, answer.json()), (StatusCode::OK, tokens));
    let form = world.issuer.forms.lock()[0].clone();
    let sent = json!({
        "client_id": "the-one-client", "grant_type": "authorization_code", "code": "the-code",
        "code_verifier": VERIFIER, "redirect_uri": "https://mcp.example.com/demo/oauth/callback",
    });
    assert_eq!(json!(form), sent);
    let refusal = json!({ "error": "invalid_grant", "error_description": "used before" });
    for status in [400, 401] {
        *world.issuer.does.lock() = Does::Says(status, refusal.to_string());
        let answer = world.exchange("c").await;
        assert_eq!((answer.status.as_u16(), answer.json()), (status, refusal.clone()));
    }
}

#[tokio::test]
async fn what_is_no_answer_of_a_token_endpoint_is_not_passed_on() {
    let world = World::start(Does::Pours).await;
    let secret = "internal.example: stack trace";
    let long = |status| Does::Says(status, json!({ "access_token": "t".repeat(300_000) }).to_string());
    for does in [
        Does::Pours,
        long(200),
        long(400),
        Does::Says(200, secret.into()),
        Does::Says(200, "[]".into()),
        Does::Says(200, String::new()),
        Does::Says(200, "[".repeat(100_000)),
        Does::Says(204, String::new()),
        Does::Says(302, secret.into()),
        Does::Says(403, json!({ "error": secret }).to_string()),
        Does::Says(500, json!({ "error": secret }).to_string()),
        Does::Says(503, secret.into()),
    ] {
        *world.issuer.does.lock() = does;
        let answer = world.exchange("c").await;
        unavailable(&answer);
        assert!(!answer.text.contains("internal.example") && answer.text.len() < 1_000, "{}", answer.text);
    }
    assert_eq!(world.asked(), 12);
}

#[tokio::test]
async fn an_issuer_that_does_not_answer_is_waited_for_ten_seconds() {
    for does in [Does::Hangs, Does::Stops] {
        let world = World::start(does).await;
        let late = world.late(1, 1).await;
        unavailable(&late[0]);
        *world.issuer.does.lock() = Does::Says(200, json!({ "access_token": "t" }).to_string());
        assert_eq!(world.exchange("c").await.status, StatusCode::OK, "then as before");
    }
}

#[tokio::test]
async fn an_issuer_is_asked_by_a_bounded_number_of_a_peer_at_a_time() {
    let world = World::start(Does::Hangs).await;
    let late = world.late(100, 16).await;
    let answered = |status| late.iter().filter(|answer| answer.status == status).count();
    assert_eq!(answered(StatusCode::BAD_GATEWAY), 16);
    assert_eq!(answered(StatusCode::TOO_MANY_REQUESTS), 84);
    assert_eq!(world.issuer.most.load(Ordering::SeqCst), 16);
}

#[tokio::test]
async fn what_is_too_long_reaches_no_issuer() {
    let world = World::start(Does::Says(200, "{}".into())).await;
    let long = world.redeem(&"c".repeat(8 * 1024 + 1), &[]).await;
    assert_eq!((long.status, &long.json()["error"]), (StatusCode::BAD_REQUEST, &json!("invalid_request")));
    let longer = world.redeem(&"c".repeat(20 << 20), &[]).await;
    assert!(longer.status.is_client_error(), "{}", longer.status);
    assert_eq!(world.asked(), 0);
    assert_eq!(world.exchange(&"c".repeat(4 * 1024)).await.status, StatusCode::OK);
}

#[tokio::test]
async fn a_code_is_redeemed_by_its_client_with_its_verifier_whether_or_not_the_issuer_checks() {
    let tokens = json!({ "access_token": "t" });
    let world = World::start(Does::Says(200, tokens.to_string())).await;
    let own = code(&world.fixture, &world.client, "the-code").await;
    let other_client = client(&world.fixture).await;
    let of_other = code(&world.fixture, &other_client, "the-code").await;
    for (code, change) in [
        (own.as_str(), ("code_verifier", "a-guessed-verifier-of-43-characters-or-more")),
        (own.as_str(), ("client_id", other_client.as_str())),
        (own.as_str(), ("redirect_uri", "http://127.0.0.1:9/callback")),
        (of_other.as_str(), ("code_verifier", VERIFIER)),
        ("the-code", ("code_verifier", VERIFIER)),
    ] {
        let refused = world.redeem(code, &[change]).await;
        let told = (refused.status, refused.json()["error"].clone());
        assert_eq!(told, (StatusCode::BAD_REQUEST, json!("invalid_grant")), "{change:?}");
    }
    assert_eq!(world.asked(), 0, "the issuer sees none of them");
    assert_eq!(world.redeem(&own, &[]).await.json(), tokens);
}
