//! The ledger through MCP (ADR 7).

use std::sync::Arc;

use asp_store::sqlite::SqliteCalls;
use http::StatusCode;
use serde_json::json;

use crate::support::{Fixture, Legacy, Modern, claims, sign, snapshot, token};

fn once(token: &str, key: Option<&str>, message: &str) -> Modern {
    let params = json!({"name": "policy.once", "arguments": {"message": message}});
    let mut request = Modern::new("policy", token, "tools/call", params);
    if let Some(key) = key {
        request.body["params"]["_meta"]["asp/idempotencyKey"] = key.into();
    }
    request
}

#[tokio::test]
async fn the_same_key_and_request_get_the_stored_answer_also_with_a_refreshed_token() {
    let fixture = Fixture::new();
    let first = once(&token("alice"), Some("k"), "m").send(&fixture).await.json();
    let refreshed = {
        let mut claims = claims("alice");
        claims["jti"] = "another".into();
        sign(&claims)
    };
    let second = once(&refreshed, Some("k"), "m").send(&fixture).await.json();
    assert_eq!(first["result"]["structuredContent"], second["result"]["structuredContent"]);
    assert_eq!(second["result"]["_meta"]["asp/replayed"], true);
    assert!(first["result"]["_meta"].get("asp/replayed").is_none());
    let header = once(&token("alice"), None, "m").with("idempotency-key", "k").send(&fixture).await.json();
    assert_eq!(header["result"]["_meta"]["asp/replayed"], true);
}

#[tokio::test]
async fn another_user_or_no_key_executes_and_another_request_is_refused() {
    let fixture = Fixture::new();
    once(&token("alice"), Some("k"), "m").send(&fixture).await;
    for request in [
        once(&token("bob"), Some("k"), "m"),
        once(&token("alice"), None, "m"),
        once(&token("alice"), Some("l"), "m"),
    ] {
        let answer = request.send(&fixture).await.json();
        assert!(answer["result"]["_meta"].get("asp/replayed").is_none());
    }
    let conflict = once(&token("alice"), Some("k"), "other").send(&fixture).await;
    assert_eq!(conflict.json()["error"]["code"], -32602);
    let long = once(&token("alice"), Some(&"k".repeat(256)), "m").send(&fixture).await;
    assert_eq!(long.json()["error"]["code"], -32602);
}

#[tokio::test]
async fn a_malformed_key_or_deadline_is_refused_and_nothing_runs() {
    let fixture = Fixture::new();
    let plain = || once(&token("alice"), None, "m");
    let no_text = {
        let mut request = plain().with("idempotency-key", "k");
        request.body["params"]["_meta"]["asp/idempotencyKey"] = 7.into();
        request
    };
    let malformed = [
        no_text,
        plain().with("idempotency-key", ""),
        plain().with("x-deadline-ms", "soon").with("idempotency-key", "k"),
        plain().with("x-deadline-ms", "").with("idempotency-key", "k"),
        plain().with("x-deadline-ms", "-1").with("idempotency-key", "k"),
    ];
    for request in malformed {
        let answer = request.send(&fixture).await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.text);
        let error = answer.json()["error"].clone();
        assert_eq!(
            (&error["code"], &error["data"]["reason"]),
            (&json!(-32602), &json!("invalid_params")),
            "{error}"
        );
    }
    let first = once(&token("alice"), Some("k"), "m").send(&fixture).await.json();
    assert!(first["result"]["_meta"].get("asp/replayed").is_none(), "nothing ran under the key: {first}");
}

#[tokio::test]
async fn a_legacy_request_id_that_was_used_is_refused_and_nothing_runs_twice() {
    let client = Legacy::connect(&Fixture::new(), "policy", "alice", "2025-11-25", json!({})).await;
    let params = json!({"name": "policy.once", "arguments": {"message": "m"}});
    let first = client.request(5, "tools/call", params.clone()).await.json();
    let second = client.request(5, "tools/call", params).await.json();
    assert_eq!(first["result"]["isError"], false, "{first}");
    let other = json!({"name": "policy.once", "arguments": {"message": "other"}});
    let third = client.request(5, "tools/call", other.clone()).await;
    assert_eq!(third.status, StatusCode::OK);
    for answer in [second, third.json()] {
        assert!(answer.get("result").is_none(), "{answer}");
        assert_eq!(answer["error"]["code"], -32600, "{answer}");
        assert_eq!(answer["error"]["data"]["reason"], "invalid_request", "{answer}");
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(message.starts_with("this id was already used in this session"), "{message}");
    }
    let next = client.request(6, "tools/call", other).await.json();
    assert_eq!(next["result"]["isError"], false, "another id is another call: {next}");
}

#[tokio::test]
async fn a_duplicate_id_of_a_running_request_is_refused_and_the_first_goes_on() {
    let client = Legacy::connect(&Fixture::new(), "demo", "alice", "2025-11-25", json!({})).await;
    let params =
        json!({"name": "count", "arguments": {"to": 20, "delayMs": 20}, "_meta": {"progressToken": 1}});
    let call = json!({"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": params});
    // Open until its first event, so that the call is certainly running.
    let running = client.open(&call).await;
    let duplicate = client.post(&call).await;
    assert_eq!(duplicate.json()["error"]["code"], -32600, "{}", duplicate.text);
    let bytes = http_body_util::BodyExt::collect(running.into_body()).await.unwrap().to_bytes();
    let text = String::from_utf8(bytes.to_vec()).unwrap();
    assert!(text.contains(r#""counted":20"#), "{text}");
}

#[tokio::test]
async fn a_read_without_a_key_is_kept_by_no_ledger() {
    let client = Legacy::connect(&Fixture::new(), "demo", "alice", "2025-11-25", json!({})).await;
    let call = |message: &str| json!({"name": "echo", "arguments": {"message": message}});
    let first = client.request(5, "tools/call", call("one")).await.json();
    // The id is free again as soon as its request has ended, also for another request.
    let second = client.request(5, "tools/call", call("two")).await.json();
    assert_eq!(first["result"]["structuredContent"]["message"], "one");
    assert_eq!(second["result"]["structuredContent"]["message"], "two");
    assert!(second["result"].get("_meta").is_none());
}

#[tokio::test]
async fn what_the_store_holds_of_an_answer_is_sealed() {
    // A member of every output that is stored.
    const READABLE: &[u8] = br#""kind":"tool""#;
    let directory = tempfile::tempdir().unwrap();
    let ledger = Arc::new(SqliteCalls::open(&directory.path().join("calls.db")).await.unwrap());
    let fixture = || Fixture::new().with_stores(snapshot(), |stores| stores.ledger = ledger.clone());
    let request = once(&token("alice"), Some("k"), "m");
    let first = request.send(&fixture()).await.json()["result"]["structuredContent"].clone();
    assert!(first.is_object(), "{first}");
    for file in std::fs::read_dir(directory.path()).unwrap() {
        let path = file.unwrap().path();
        let bytes = std::fs::read(&path).unwrap();
        assert!(!bytes.windows(READABLE.len()).any(|window| window == READABLE), "{}", path.display());
    }
    let again = request.send(&fixture()).await.json()["result"].clone();
    assert_eq!(again["structuredContent"], first, "{again}");
    assert_eq!(again["_meta"]["asp/replayed"], true);
}
