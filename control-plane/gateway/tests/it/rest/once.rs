//! A tool that is called once by a POST, and the list of tools.

use http::{Method, StatusCode};
use serde_json::json;

use super::{Rest, reason, refused};
use crate::support::{Fixture, token};

#[tokio::test]
async fn a_tool_is_called_once_and_answers_with_its_result() {
    let fixture = Fixture::new();
    let tool = Rest::at(&fixture, "/demo/rest/tools/echo");
    let answer = tool.send(Method::POST, r#"{"message": "hi"}"#).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text);
    assert_eq!(answer.json()["structuredContent"], json!({ "message": "hi" }));
    assert_eq!(answer.json()["isError"], false);
    assert_eq!(reason(&tool.send(Method::POST, r#"{"message": 7}"#).await), refused(422, "invalid_params"));
    assert_eq!(reason(&tool.send(Method::POST, "[]").await), refused(400, "invalid_request"));
    let hidden = Rest::at(&fixture, "/demo/rest/tools/nothing");
    assert_eq!(reason(&hidden.send(Method::POST, "{}").await), refused(404, "unknown_primitive"));
    let read = tool.send(Method::GET, "").await;
    assert_eq!(
        (read.status, read.headers["allow"].to_str().unwrap()),
        (StatusCode::METHOD_NOT_ALLOWED, "POST")
    );
}

#[tokio::test]
async fn one_key_is_one_effect_however_often_it_is_posted() {
    let fixture = Fixture::new();
    let keyed = Rest::at(&fixture, "/policy/rest/tools/policy.once").with("idempotency-key", "k");
    let first = keyed.send(Method::POST, "{}").await;
    let again = keyed.send(Method::POST, "{}").await;
    assert_eq!((first.status, again.status), (StatusCode::OK, StatusCode::OK), "{}", again.text);
    assert_eq!(
        first.json()["structuredContent"],
        again.json()["structuredContent"],
        "the clock is read once"
    );
    assert_eq!(again.json()["_meta"]["asp/replayed"], true);
}

#[tokio::test]
async fn a_call_that_takes_longer_continues_under_its_path() {
    let fixture = Fixture::new();
    let tool = Rest::at(&fixture, "/demo/rest/tools/count").with("prefer", "wait=0");
    let answer = tool.send(Method::POST, r#"{"to": 100, "delayMs": 1000}"#).await;
    assert_eq!(answer.status, StatusCode::ACCEPTED, "{}", answer.text);
    let path = answer.json()["links"]["self"].as_str().unwrap().to_owned();
    assert_eq!(answer.headers["location"].to_str().unwrap(), path);
    let call = Rest::at(&fixture, &path);
    assert_eq!(call.get().await.json()["id"], answer.json()["id"]);
    let cancelled = call.part("cancel").send(Method::POST, "").await;
    assert_eq!(cancelled.status, StatusCode::OK, "{}", cancelled.text);
}

#[tokio::test]
async fn the_list_has_the_tools_that_may_be_called() {
    let fixture = Fixture::new();
    let list = Rest::at(&fixture, "/demo/rest/tools");
    let answer = list.get().await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text);
    let document = Rest::at(&fixture, "/demo/rest/openapi.json").get().await.json();
    let tools = answer.json()["tools"].as_array().unwrap().clone();
    for tool in &tools {
        let name = tool["name"].as_str().unwrap();
        assert_eq!(tool["inputSchema"]["type"], "object", "{tool}");
        assert_eq!(tool["links"]["call"], format!("/demo/rest/tools/{name}"));
        assert!(document["paths"][format!("/tools/{name}")]["post"].is_object(), "{name}");
    }
    assert!(tools.iter().any(|tool| tool["name"] == "echo"), "{tools:?}");
    let stranger = list.with("authorization", &format!("Bearer {}x", token("alice")));
    assert_eq!(stranger.get().await.status, StatusCode::UNAUTHORIZED);
    assert_eq!(list.send(Method::POST, "{}").await.status, StatusCode::METHOD_NOT_ALLOWED);
}
