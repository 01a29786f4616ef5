//! Conditions, and responses that wait.

use std::time::{Duration, Instant};

use http::{Method, StatusCode};
use serde_json::json;

use super::Rest;
use crate::support::Fixture;

#[tokio::test]
async fn a_state_that_is_known_is_not_sent_again() {
    let fixture = Fixture::new();
    let call = Rest::of(&fixture, "policy.open", "1");
    let tag = call.put(&json!({})).await.headers["etag"].to_str().unwrap().to_owned();
    for known in [tag.clone(), format!("\"x\", W/{tag}"), "*".into()] {
        let same = call.with("if-none-match", &known).get().await;
        assert_eq!((same.status, same.text.as_str()), (StatusCode::NOT_MODIFIED, ""), "{known}");
        assert_eq!(same.headers["etag"].to_str().unwrap(), tag);
    }
    assert_eq!(call.with("if-none-match", "\"x\"").get().await.status, StatusCode::OK);
    let malformed = call.with("if-none-match", "x").get().await;
    assert_eq!(malformed.status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn every_state_has_a_tag_of_its_own_and_is_waited_for() {
    let fixture = Fixture::new();
    let call = Rest::at(&fixture, "/demo/rest/tools/count/calls/1");
    let mut tags = Vec::new();
    let mut body = call.put(&json!({"to": 3, "delayMs": 50})).await.json();
    while body["status"] == "running" {
        let tag = body["etag"].as_str().unwrap().to_owned();
        assert!(!tags.contains(&tag), "{tags:?} {tag}");
        let next = call.with("prefer", "wait=20").with("if-none-match", &format!("\"{tag}\"")).get().await;
        assert_eq!(next.status, StatusCode::OK, "a state that changes is told");
        tags.push(tag);
        body = next.json();
    }
    assert_eq!(body["status"], "success");
    assert!(tags.len() >= 3, "each step of its progress is a state: {tags:?}");
}

#[tokio::test]
async fn nobody_waits_longer_than_they_asked_for() {
    let fixture = Fixture::new();
    let call = Rest::at(&fixture, "/demo/rest/tools/count/calls/1");
    let began = Instant::now();
    let runs = call.with("prefer", "wait=1").put(&json!({"to": 100, "delayMs": 1000})).await;
    assert_eq!(runs.json()["status"], "running");
    assert!(began.elapsed() >= Duration::from_secs(1), "{:?}", began.elapsed());
    let tag = call.get().await.headers["etag"].to_str().unwrap().to_owned();
    let same = call.with("prefer", "wait=0").with("if-none-match", &tag).get().await;
    assert_eq!(same.status, StatusCode::NOT_MODIFIED);
    call.part("cancel").send(Method::POST, "").await;
}
