//! REST: calls as resources, under ids that their clients choose.

use std::time::{Duration, Instant};

use asp_proto::snapshot::{ExposureException, Protocol};
use asp_registry::{Inputs, assemble};
use asp_runtime_client::runtimes::Runtimes;
use http::{Method, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};

use crate::plugin::{asks_name, user_input};
use crate::runtime::{Runtime, Script, Worker};
use crate::support::{Answer, Fixture, Modern, denied_to_alice, inputs, token, token_with_scopes};

#[path = "rest/chosen.rs"]
mod chosen;
#[path = "rest/events.rs"]
mod events;
#[path = "rest/history.rs"]
mod history;
#[path = "rest/once.rs"]
mod once;
#[path = "rest/versions.rs"]
mod versions;
#[path = "rest/waits.rs"]
mod waits;

/// A call of one tool.
#[derive(Clone)]
pub(crate) struct Rest<'a> {
    pub fixture: &'a Fixture,
    pub path: String,
    pub headers: Vec<(String, String)>,
}

impl<'a> Rest<'a> {
    pub(crate) fn of(fixture: &'a Fixture, tool: &str, id: &str) -> Rest<'a> {
        Rest::at(fixture, &format!("/policy/rest/tools/{tool}/calls/{id}"))
    }

    pub(crate) fn at(fixture: &'a Fixture, path: &str) -> Rest<'a> {
        let headers = vec![
            ("authorization".into(), format!("Bearer {}", token("alice"))),
            ("content-type".into(), "application/json".into()),
        ];
        Rest { fixture, path: path.into(), headers }
    }

    pub(crate) fn with(&self, name: &str, value: &str) -> Rest<'a> {
        let mut other = self.clone();
        other.headers.retain(|(known, _)| known != name);
        other.headers.push((name.into(), value.into()));
        other
    }

    pub(crate) fn on<'b>(&self, fixture: &'b Fixture) -> Rest<'b> {
        Rest { fixture, path: self.path.clone(), headers: self.headers.clone() }
    }

    pub(crate) fn part(&self, part: &str) -> Rest<'a> {
        Rest { path: format!("{}/{part}", self.path), ..self.clone() }
    }

    pub(crate) async fn send(&self, method: Method, body: &str) -> Answer {
        let headers: Vec<(&str, &str)> =
            self.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        self.fixture.send(method, &self.path, &headers, body).await
    }

    pub(crate) async fn put(&self, arguments: &Value) -> Answer {
        self.send(Method::PUT, &arguments.to_string()).await
    }

    pub(crate) async fn get(&self) -> Answer {
        self.send(Method::GET, "").await
    }

    pub(crate) async fn advance(&self, body: &Value) -> Answer {
        self.part("advance").send(Method::POST, &body.to_string()).await
    }
}

pub(crate) fn reason(answer: &Answer) -> (u16, String) {
    assert_eq!(answer.headers["content-type"], "application/problem+json", "{}", answer.text);
    let problem = answer.json();
    assert_eq!(problem["status"], answer.status.as_u16(), "{problem}");
    assert!(problem["traceId"].is_string(), "{problem}");
    (answer.status.as_u16(), problem["reason"].as_str().unwrap().to_owned())
}

fn refused(status: u16, name: &str) -> (u16, String) {
    (status, name.to_owned())
}

#[tokio::test]
async fn a_call_is_put_and_is_there_with_its_result() {
    let fixture = Fixture::new();
    let call = Rest::of(&fixture, "policy.open", "order~1.a_b-c");
    let put = call.put(&json!({"message": "hi"})).await;
    assert_eq!(put.status, StatusCode::CREATED, "{}", put.text);
    assert_eq!(put.headers["location"].to_str().unwrap(), call.path);
    let body = put.json();
    assert_eq!((&body["id"], &body["status"]), (&json!("order~1.a_b-c"), &json!("success")), "{body}");
    assert_eq!(body["result"]["structuredContent"], json!({"message": "hi"}), "{body}");
    assert_eq!(put.headers["etag"].to_str().unwrap(), format!("\"{}\"", body["etag"].as_str().unwrap()));
    let got = call.get().await;
    assert_eq!((got.status, got.json()), (StatusCode::OK, body));
    assert_eq!(call.send(Method::HEAD, "").await.status, StatusCode::OK);
}

#[tokio::test]
async fn nothing_that_is_not_there_or_not_shown_can_be_told_apart() {
    let deny = denied_to_alice("policy.open", Protocol::Rest);
    let fixture = Fixture::of(assemble(Inputs { bindings: vec![deny], ..inputs() }));
    let hidden = Rest::of(&fixture, "policy.open", "1").put(&json!({"to": "no number"})).await;
    let unknown = Rest::of(&fixture, "policy.nothing", "1").put(&json!({})).await;
    let without_trace = |answer: &Answer| {
        let mut problem = answer.json();
        problem.as_object_mut().unwrap().remove("traceId");
        problem
    };
    assert_eq!(reason(&hidden), refused(404, "unknown_primitive"));
    assert_eq!(without_trace(&hidden), without_trace(&unknown), "I-10");
    // The other protocol is another matter.
    let listed = Modern::new("policy", &token("alice"), "tools/list", json!({})).send(&fixture).await;
    assert!(listed.text.contains("policy.open"), "{}", listed.text);
}

#[tokio::test]
async fn a_server_that_an_org_does_not_see_over_rest_is_unknown() {
    let off = ExposureException {
        org: "acme".into(),
        server: "policy".into(),
        protocol: Protocol::Rest.into(),
        enabled: false,
    };
    let fixture = Fixture::of(assemble(Inputs { exposure: vec![off], ..inputs() }));
    let answer = Rest::of(&fixture, "policy.open", "1").put(&json!({})).await;
    assert_eq!(reason(&answer), refused(404, "unknown_server"));
}

#[tokio::test]
async fn bad_requests_are_problems_and_leave_their_id_free() {
    let fixture = Fixture::new();
    let call = Rest::of(&fixture, "policy.open", "1");
    let long = "x".repeat(256);
    let table = [
        (call.send(Method::PUT, "{").await, refused(400, "parse_error")),
        (call.send(Method::PUT, r#"{"to": 1e400}"#).await, refused(400, "parse_error")),
        (call.send(Method::PUT, "[]").await, refused(400, "invalid_request")),
        (
            call.with("content-type", "text/plain").send(Method::PUT, "{}").await,
            refused(415, "invalid_request"),
        ),
        (call.put(&json!({"to": "three"})).await, refused(422, "invalid_params")),
        (call.with("idempotency-key", &long).put(&json!({})).await, refused(400, "invalid_params")),
        (call.with("x-deadline-ms", "soon").put(&json!({})).await, refused(400, "invalid_params")),
        (call.send(Method::DELETE, "").await, refused(405, "unknown_method")),
        (call.part("advance").send(Method::PUT, "").await, refused(405, "unknown_method")),
        (call.part("other").send(Method::GET, "").await, refused(404, "unknown_primitive")),
        (call.get().await, refused(404, "unknown_primitive")),
        (call.part("cancel").send(Method::POST, "").await, refused(404, "unknown_primitive")),
        (call.with("authorization", "Bearer x").get().await, refused(401, "token_invalid")),
        (Rest::of(&fixture, "policy.open", "a:b").put(&json!({})).await, refused(404, "unknown_primitive")),
        (Rest::of(&fixture, "policy.scoped", "1").put(&json!({})).await, refused(403, "insufficient_scope")),
    ];
    for (answer, expected) in table {
        assert_eq!(reason(&answer), expected, "{}", answer.text);
    }
    let challenge = Rest::of(&fixture, "policy.scoped", "1").put(&json!({})).await;
    let challenge = challenge.headers["www-authenticate"].to_str().unwrap().to_owned();
    assert!(challenge.contains(r#"scope="x:read x:write""#), "{challenge}");
    assert_eq!(call.put(&json!({"to": 3})).await.status, StatusCode::CREATED, "the id was free");
    for (id, body) in [("marked", "\u{feff}{\"to\": 3}"), ("blank", " \r\n")] {
        let answer = Rest::of(&fixture, "policy.open", id).send(Method::PUT, body).await;
        assert_eq!(answer.status, StatusCode::CREATED, "{id}: {}", answer.text);
    }
}

#[tokio::test]
async fn scopes_let_a_call_through() {
    let fixture = Fixture::new();
    let bearer = format!("Bearer {}", token_with_scopes("alice", "x:read x:write"));
    let call = Rest::of(&fixture, "policy.scoped", "1").with("authorization", &bearer);
    assert_eq!(call.put(&json!({})).await.status, StatusCode::CREATED);
}

#[tokio::test]
async fn a_limit_is_told_with_its_time_and_leaves_the_id_free() {
    let fixture = Fixture::new();
    for id in ["1", "2"] {
        assert_eq!(Rest::of(&fixture, "policy.few", id).put(&json!({})).await.status, StatusCode::CREATED);
    }
    let third = Rest::of(&fixture, "policy.few", "3");
    let limited = third.put(&json!({})).await;
    assert_eq!(reason(&limited), refused(429, "rate_limited"));
    let seconds: u64 = limited.headers["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((1..=3600).contains(&seconds), "{seconds}");
    assert_eq!(third.get().await.status, StatusCode::NOT_FOUND);
    // The first is there all the same: it is no new call.
    assert_eq!(Rest::of(&fixture, "policy.few", "1").put(&json!({})).await.status, StatusCode::OK);
}

#[tokio::test]
async fn a_body_above_the_servers_bound_is_refused_before_it_is_read_whole() {
    let fixture = Fixture::new();
    let body = format!("{{\"message\": \"{}\"}}", "x".repeat(2 << 20));
    let answer = Rest::of(&fixture, "policy.open", "1").send(Method::PUT, &body).await;
    assert_eq!(answer.status, StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(answer.json()["reason"], "body_too_large");
}

/// A plugin that asks its user for a name.
pub(crate) fn asking() -> Runtime {
    Runtime::start(Script::of(|_, mut worker: Worker| async move {
        let invoke = worker.begin(&[]).await;
        worker.say(asks_name(&invoke.request_id)).await;
        user_input(&mut worker).await;
        worker.complete(&invoke, &json!({"ok": true})).await;
    }))
}

pub(crate) fn with_plugins(runtime: &Runtime) -> Fixture {
    Fixture::with(crate::support::snapshot(), 7, runtime.runtimes())
}

#[tokio::test]
async fn a_question_is_shown_and_its_answer_brought() {
    let runtime = asking();
    let fixture = with_plugins(&runtime);
    let call = Rest::at(&fixture, "/plugins/rest/tools/sweep/calls/1");
    let asks = call.with("prefer", "wait=20").put(&json!({})).await;
    assert_eq!(asks.headers["preference-applied"], "wait=20");
    let asks = asks.json();
    assert_eq!(asks["status"], "awaitingElicitationResult", "{asks}");
    assert_eq!(asks["elicitationRequest"]["method"], "elicitation/create", "{asks}");
    let answer = |content: Value| json!({"result": {"action": "accept", "content": content}, "error": null, "serverData": asks["serverData"]});
    let tag = format!("\"{}\"", asks["etag"].as_str().unwrap());
    let table = [
        (
            call.with("if-match", "\"other\"").advance(&answer(json!({"name": "Ada"}))).await,
            refused(412, "invalid_request"),
        ),
        (
            call.with("if-match", "other").advance(&answer(json!({"name": "Ada"}))).await,
            refused(400, "invalid_request"),
        ),
        // What is wrong in any state of the call is said first.
        (
            call.with("if-match", "\"other\"").advance(&json!({"error": 7})).await,
            refused(422, "invalid_params"),
        ),
        (call.with("if-match", "\"other\"").advance(&json!({})).await, refused(422, "invalid_params")),
        (call.advance(&json!({"error": 7})).await, refused(422, "invalid_params")),
        (call.advance(&answer(json!({"name": 7}))).await, refused(422, "invalid_params")),
        (call.advance(&json!({"result": {"action": "yes"}})).await, refused(422, "invalid_params")),
        (call.advance(&json!({})).await, refused(422, "invalid_params")),
        (call.advance(&json!({"result": null, "error": null})).await, refused(422, "invalid_params")),
        (call.advance(&json!({"result": null, "error": 7})).await, refused(422, "invalid_params")),
        (
            call.advance(&json!({"serverData": "other", "result": {"action": "decline"}})).await,
            refused(409, "invalid_params"),
        ),
    ];
    for (answer, expected) in table {
        assert_eq!(reason(&answer), expected, "{}", answer.text);
    }
    let stranger = call.with("authorization", &format!("Bearer {}", token("bob")));
    assert_eq!(
        reason(&stranger.advance(&answer(json!({"name": "Eve"}))).await),
        refused(404, "unknown_primitive")
    );
    let done =
        call.with("if-match", &tag).with("prefer", "wait=20").advance(&answer(json!({"name": "Ada"}))).await;
    let done = done.json();
    assert_eq!(
        (&done["status"], &done["result"]["structuredContent"]),
        (&json!("success"), &json!({"ok": true})),
        "{done}"
    );
    let late = call.advance(&answer(json!({"name": "Ada"}))).await;
    assert_eq!(reason(&late), refused(409, "invalid_params"));
}

#[tokio::test]
async fn a_call_is_cancelled_and_stays_so() {
    let fixture = Fixture::new();
    let call = Rest::at(&fixture, "/demo/rest/tools/count/calls/1");
    let runs = call.put(&json!({"to": 100, "delayMs": 1000})).await;
    assert_eq!((runs.status, &runs.json()["status"]), (StatusCode::CREATED, &json!("running")));
    let cancel = async || call.part("cancel").send(Method::POST, "").await;
    assert_eq!(cancel().await.status, StatusCode::OK);
    // What does not end at once is seen to end later.
    let ended = async {
        while call.get().await.json()["status"] != "canceled" {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(30), ended).await.unwrap();
    let again = cancel().await;
    assert_eq!((again.status, &again.json()["status"]), (StatusCode::OK, &json!("canceled")));
}

#[tokio::test]
async fn calls_are_listed_the_latest_first_in_pages_and_only_ones_own() {
    let fixture = Fixture::new();
    for id in ["a", "b", "c"] {
        Rest::of(&fixture, "policy.open", id).put(&json!({})).await;
        // They begin in different milliseconds.
        let began = Instant::now();
        while began.elapsed() < Duration::from_millis(2) {
            tokio::task::yield_now().await;
        }
    }
    Rest::of(&fixture, "policy.once", "d").put(&json!({})).await;
    let stranger = format!("Bearer {}", token("bob"));
    Rest::of(&fixture, "policy.open", "e").with("authorization", &stranger).put(&json!({})).await;
    fixture.gateway.flush().await;
    let list = Rest::at(&fixture, "/policy/rest/tools/policy.open/calls");
    let mut found = Vec::new();
    let mut next = String::new();
    for _ in 0..9 {
        let page = Rest { path: format!("{}?limit=2{next}", list.path), ..list.clone() }.get().await.json();
        for call in page["calls"].as_array().unwrap() {
            assert_eq!(call["status"], "success");
            assert_eq!(
                Rest::at(&fixture, call["links"]["self"].as_str().unwrap()).get().await.json()["id"],
                call["id"]
            );
            found.push(call["id"].as_str().unwrap().to_owned());
        }
        let Some(cursor) = page["nextCursor"].as_str() else { break };
        next = format!("&cursor={cursor}");
        let foreign =
            Rest { path: format!("{}?limit=2{next}", list.path), ..list.with("authorization", &stranger) };
        assert_eq!(reason(&foreign.get().await), refused(400, "invalid_params"), "a cursor is its caller's");
    }
    assert_eq!(found, ["c", "b", "a"]);
    for query in ["limit=0", "limit=101", "limit=x", "cursor=x"] {
        let bad = Rest { path: format!("{}?{query}", list.path), ..list.clone() };
        assert_eq!(reason(&bad.get().await), refused(400, "invalid_params"), "{query}");
    }
}

/// I-3
#[tokio::test]
async fn another_gateway_tells_how_a_call_ended_and_that_it_runs() {
    let fixture = Fixture::new();
    let other = fixture.beside(Runtimes::none());
    let done = Rest::of(&fixture, "policy.once", "1");
    let first = done.put(&json!({})).await.json();
    fixture.gateway.flush().await;
    let told = done.on(&other).get().await;
    assert_eq!(
        (told.status, &told.json()["result"]["structuredContent"]),
        (StatusCode::OK, &first["result"]["structuredContent"])
    );
    assert_eq!(told.json()["etag"], first["etag"], "it is the same state");
    let again = done.on(&other).put(&json!({})).await;
    assert_eq!((again.status, &again.json()["status"]), (StatusCode::OK, &json!("success")));
    assert_eq!(reason(&done.on(&other).put(&json!({"to": 2})).await), refused(422, "invalid_params"));
    fixture.gateway.pipeline.internals().active.renew().await.unwrap();
    let runs = Rest::at(&fixture, "/demo/rest/tools/count/calls/1");
    runs.put(&json!({"to": 100, "delayMs": 1000})).await;
    let told = runs.on(&other).get().await.json();
    assert_eq!((&told["id"], &told["status"]), (&json!("1"), &json!("running")), "{told}");
    assert_eq!(reason(&runs.on(&other).put(&json!({"to": 99})).await), refused(422, "invalid_params"));
    let joined = runs.on(&other).put(&json!({"to": 100, "delayMs": 1000})).await;
    assert_eq!((joined.status, &joined.json()["status"]), (StatusCode::OK, &json!("running")));
    assert_eq!(
        reason(&runs.on(&other).part("cancel").send(Method::POST, "").await),
        refused(503, "upstream_unavailable")
    );
    runs.part("cancel").send(Method::POST, "").await;
    fixture.gateway.flush().await;
    assert_eq!(runs.on(&other).get().await.json()["status"], "canceled");
}

#[tokio::test]
async fn a_response_that_is_given_up_does_not_end_its_call() {
    let fixture = Fixture::new();
    let call = Rest::at(&fixture, "/demo/rest/tools/count/calls/1").with("prefer", "wait=60");
    let arguments = json!({"to": 3, "delayMs": 100});
    let given_up = tokio::time::timeout(Duration::from_millis(50), call.put(&arguments)).await;
    assert!(given_up.is_err(), "it waits");
    let done = call.put(&arguments).await;
    assert_eq!((done.status, &done.json()["status"]), (StatusCode::OK, &json!("success")), "{}", done.text);
}

pub(crate) async fn frame(body: &mut axum::body::Body) -> String {
    let frame = tokio::time::timeout(Duration::from_secs(60), body.frame()).await.expect("a frame in time");
    String::from_utf8(frame.unwrap().unwrap().into_data().unwrap().to_vec()).unwrap()
}
