//! Concurrent requests of one org and their bodies are limited, without an effect on other orgs.

use axum::body::{Body, Bytes, HttpBody};
use futures::stream;
use http::{Method, Request, StatusCode, header};
use http_body_util::Limited;
use serde_json::json;

use super::{Api, read};
use crate::admin::MAX_BODY;
use crate::admin::in_flight::{MAX_BODY_BYTES, MAX_REQUESTS};

const BINDINGS: &str = "/api/policy/orgs/acme/bindings";

/// A request of acme whose body has at most so many bytes and never ends.
fn endless(api: &Api, longest: usize) -> Request<Body> {
    let body = Body::from_stream(stream::pending::<Result<Bytes, std::io::Error>>());
    Request::builder()
        .method(Method::PUT)
        .uri(BINDINGS)
        .header(header::HOST, "localhost")
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::AUTHORIZATION, format!("Bearer {}", api.token("org:acme")))
        .body(Body::new(Limited::new(body, longest)))
        .unwrap()
}

#[tokio::test]
async fn bodies_of_an_org_take_a_bounded_part_of_the_memory() {
    let mut api = Api::start().await;
    api.published(|_| true).await;
    let mut held = Vec::new();
    for _ in 0..MAX_BODY_BYTES / MAX_BODY {
        let mut put = Box::pin(api.raw(endless(&api, usize::MAX)));
        assert!(futures::poll!(&mut put).is_pending());
        held.push(put);
    }
    let refused = api.raw(endless(&api, usize::MAX)).await;
    assert_eq!(refused.headers()[header::RETRY_AFTER], "1");
    let refused = read(refused).await;
    assert_eq!(
        (refused.status, &refused.body["code"]),
        (StatusCode::TOO_MANY_REQUESTS, &json!("too_many_requests"))
    );
    assert_eq!(api.get("org:acme", BINDINGS).await.status, StatusCode::OK, "it has no body");
    let other = api.put("org:other", "/api/ratelimits/orgs/other", json!([])).await;
    assert_eq!(other.status, StatusCode::OK, "another org's body: {}", other.body);
    held.pop();
    let own = api.put("org:acme", "/api/ratelimits/orgs/acme", json!([])).await;
    assert_eq!(own.status, StatusCode::OK, "{}", own.body);
}

#[tokio::test]
async fn requests_of_an_org_are_bounded_whatever_they_are() {
    let mut api = Api::start().await;
    api.published(|_| true).await;
    let mut held = Vec::new();
    for _ in 0..MAX_REQUESTS {
        let mut put = Box::pin(api.raw(endless(&api, 1)));
        assert!(futures::poll!(&mut put).is_pending());
        held.push(put);
    }
    let refused = api.get("org:acme", BINDINGS).await;
    assert_eq!(
        (refused.status, &refused.body["code"]),
        (StatusCode::TOO_MANY_REQUESTS, &json!("too_many_requests"))
    );
    for (role, path) in [("org:other", "/api/policy/orgs/other/bindings"), ("platform", BINDINGS)] {
        assert_eq!(api.get(role, path).await.status, StatusCode::OK, "{role}");
    }
    held.pop();
    assert_eq!(api.get("org:acme", BINDINGS).await.status, StatusCode::OK);
}

#[tokio::test]
async fn an_answer_that_nobody_reads_counts_until_it_is_dropped() {
    let mut api = Api::start().await;
    api.published(|_| true).await;
    let request = || {
        Request::builder()
            .uri(BINDINGS)
            .header(header::HOST, "localhost")
            .header(header::AUTHORIZATION, format!("Bearer {}", api.token("org:acme")))
            .body(Body::empty())
            .unwrap()
    };
    let mut unread = Vec::new();
    for _ in 0..MAX_REQUESTS {
        let response = api.raw(request()).await;
        assert_eq!(response.status(), StatusCode::OK);
        unread.push(response);
    }
    assert_eq!(api.raw(request()).await.status(), StatusCode::TOO_MANY_REQUESTS);
    unread.pop();
    let response = api.raw(request()).await;
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(response.into_body().size_hint().exact(), Some(2), "its length is known");
}
