//! Refusals, each in the form of its binding.

use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::{Client, code, completed, fixture, message, message_id, snapshot};
use crate::support::{Fixture, token, token_with_scopes};

#[tokio::test]
async fn bad_requests_have_the_codes_of_their_faults() {
    let fixture = fixture();
    let client = Client::of(&fixture, "demo");
    let malformed = client.send(Method::POST, "", "{").await;
    assert_eq!(code(&malformed), -32700);
    let echo = || message("echo", json!({"message": "hi"}));
    let changed = |change: fn(&mut Value)| {
        let mut params = echo();
        change(&mut params);
        params
    };
    for (method, params, expected) in [
        ("nothing", json!({}), -32601),
        ("tasks/list", json!({}), -32601),
        ("SendMessage", json!({}), -32602),
        ("SendMessage", json!("text"), -32602),
        ("tasks/get", json!(7), -32602),
        ("SendMessage", changed(|params| params["message"]["parts"] = json!([])), -32602),
        ("SendMessage", changed(|params| params["tenant"] = "acme".into()), -32602),
        (
            "SendMessage",
            changed(|params| {
                params["configuration"] =
                    json!({"taskPushNotificationConfig": {"url": "https://a/b", "tenant": "acme"}});
            }),
            -32602,
        ),
        (
            "SendMessage",
            changed(|params| params["message"]["parts"] = json!([{"url": "https://a/b"}])),
            -32005,
        ),
        (
            "SendMessage",
            changed(|params| params["configuration"] = json!({"acceptedOutputModes": ["image/png"]})),
            -32005,
        ),
        ("SendMessage", changed(|params| params["message"]["taskId"] = "no task".into()), -32001),
        ("SendMessage", changed(|params| params["message"]["referenceTaskIds"] = json!(["no task"])), -32001),
        ("GetTask", json!({"id": "no task"}), -32001),
        ("GetTask", json!({"id": "0190f7c8-1111-7000-8000-000000000000"}), -32001),
        ("SubscribeToTask", json!({"id": "no task"}), -32001),
        ("GetExtendedAgentCard", json!({}), -32007),
        ("CreateTaskPushNotificationConfig", json!({"taskId": "a", "url": "https://a/b"}), -32003),
        (
            "SendMessage",
            changed(|params| {
                params["configuration"] = json!({"taskPushNotificationConfig": {"url": "https://a/b"}});
            }),
            -32003,
        ),
    ] {
        assert_eq!(client.refused(method, params.clone()).await, (200, expected), "{method} {params}");
    }
    assert_eq!(client.send(Method::GET, "", "").await.status, StatusCode::METHOD_NOT_ALLOWED);
}

/// Invariant I-4.
#[tokio::test]
async fn arguments_in_a_text_take_memory_like_others() {
    let fixture = Fixture::remembering(snapshot(), 4 << 20);
    let client = Client::of(&fixture, "demo");
    let sent = |text: &str| {
        json!({"message": {"messageId": message_id(), "role": "ROLE_USER", "parts": [{"text": text}],
            "metadata": {"skill": "echo"}}})
    };
    let many = json!({"message": "hi", "x": vec![json!([0]); 20_000]}).to_string();
    assert_eq!(client.refused("SendMessage", sent(&many)).await, (200, -32600));
    let few = json!({"message": "hi"}).to_string();
    completed(&client.result("SendMessage", sent(&few)).await["task"], &json!({"message": "hi"}));
}

#[tokio::test]
async fn a_request_that_takes_too_much_memory_is_refused_with_its_id() {
    let fixture = Fixture::remembering(snapshot(), 4 << 20);
    let many = json!({"id": "no task", "metadata": {"x": vec![json!([0]); 20_000]}});
    let answer = Client::of(&fixture, "demo").call("GetTask", many).await;
    assert_eq!((code(&answer), &answer.json()["id"]), (-32600, &json!(7)), "{}", answer.text);
    assert!(answer.text.contains("too many values"), "{}", answer.text);
}

#[tokio::test]
async fn the_version_header_may_not_contradict_the_method() {
    let fixture = fixture();
    let client = Client::of(&fixture, "demo");
    for (method, version) in [("SendMessage", "0.3"), ("SendMessage", "9.0")] {
        let client = client.with("a2a-version", version);
        let refused = client.refused(method, message("echo", json!({"message": "hi"}))).await;
        assert_eq!(refused, (200, -32009), "{method} {version}");
    }
    let answer = client.with("a2a-version", "1.0").send(Method::GET, "/v1/tasks/a", "").await;
    assert_eq!(answer.status, StatusCode::BAD_REQUEST);
    assert_eq!(answer.json()["code"], -32009, "the form of 0.3: {}", answer.text);
    let answer = client.send(Method::GET, "/tasks/a?A2A-Version=0.3", "").await;
    let body = answer.json();
    assert_eq!(answer.status, StatusCode::BAD_REQUEST);
    assert_eq!(body["error"]["details"][0]["reason"], "VERSION_NOT_SUPPORTED", "{body}");
}

/// The SDKs and the official suite of 0.3 take another response for one that is not of A2A.
#[tokio::test]
async fn a_refused_stream_of_the_earlier_version_is_one_event() {
    let fixture = fixture();
    let client = Client::of(&fixture, "demo");
    let unknown = json!({"id": "no task"});
    let streaming = client.with("accept", "text/event-stream");
    let answer = streaming.call("tasks/resubscribe", unknown.clone()).await;
    let events = answer.events();
    assert_eq!((answer.status, events.len()), (StatusCode::OK, 1), "{}", answer.text);
    assert_eq!((&events[0]["id"], &events[0]["error"]["code"]), (&json!(7), &json!(-32001)));
    let events = streaming.call("message/stream", json!({})).await.events();
    assert_eq!(events[0]["error"]["code"], -32602);
    for accepted in ["application/json, text/event-stream", "*/*"] {
        let client = client.with("accept", accepted);
        assert_eq!(client.refused("tasks/resubscribe", unknown.clone()).await, (200, -32001), "{accepted}");
    }
    assert_eq!(streaming.refused("tasks/get", unknown.clone()).await, (200, -32001));
    assert_eq!(streaming.refused("SubscribeToTask", unknown).await, (200, -32001), "1.0 has one response");
}

#[tokio::test]
async fn rest_has_its_own_form_of_each_refusal() {
    let fixture = fixture();
    let client = Client::of(&fixture, "demo");
    let tenant = message("echo", json!({"message": "hi"})).to_string();
    for (method, path, body, status, name) in [
        (Method::GET, "/nothing", "", 404, "UNIMPLEMENTED"),
        (Method::DELETE, "/tasks/a", "", 405, "UNIMPLEMENTED"),
        (Method::POST, "/message:send", "{", 400, "INVALID_ARGUMENT"),
        (Method::POST, "/acme/message:send", tenant.as_str(), 400, "INVALID_ARGUMENT"),
        (Method::POST, "/message:send?tenant=acme", tenant.as_str(), 400, "INVALID_ARGUMENT"),
        (Method::GET, "/tasks?tenant=acme", "", 400, "INVALID_ARGUMENT"),
        (Method::GET, "/tasks/a", "", 404, "NOT_FOUND"),
        (Method::GET, "/tasks/a%3Ab", "", 404, "NOT_FOUND"),
        (Method::GET, "/tasks/a/pushNotificationConfigs", "", 400, "FAILED_PRECONDITION"),
    ] {
        let answer = client.send(method.clone(), path, body).await;
        let error = answer.json()["error"].clone();
        assert_eq!(
            (answer.status.as_u16(), &error["status"]),
            (status, &json!(name)),
            "{method} {path}: {error}"
        );
    }
    let unknown = client.send(Method::POST, "/tasks/a%3Ab:cancel", "").await.json();
    let info = &unknown["error"]["details"][0];
    assert_eq!((&info["reason"], &info["metadata"]["taskId"]), (&json!("TASK_NOT_FOUND"), &json!("a:b")));
    let sent = client.result("SendMessage", message("echo", json!({"message": "hi"}))).await;
    let id = sent["task"]["id"].as_str().unwrap().to_owned();
    let escaped = client.send(Method::GET, &format!("/tasks/{}", id.replace('-', "%2D")), "").await;
    assert_eq!(escaped.json()["id"], id.as_str(), "{}", escaped.text);
    let text = client.with("content-type", "text/plain").send(Method::POST, "/message:send", &tenant).await;
    assert_eq!(text.json()["error"]["details"][0]["reason"], "CONTENT_TYPE_NOT_SUPPORTED");
    assert_eq!((text.status.as_u16(), code(&text)), (415, 415));
    let text = client.with("content-type", "text/plain").send(Method::POST, "", "{}").await;
    assert_eq!((text.status.as_u16(), code(&text)), (200, -32005), "JSON-RPC: {}", text.text);
}

#[tokio::test]
async fn rest_of_0_3_has_the_error_object_of_json_rpc_for_each_refusal() {
    let fixture = fixture();
    let client = Client::of(&fixture, "demo");
    let sent = r#"{"message":{"messageId":"m","role":"ROLE_USER","content":[{"text":"hi"}]}}"#;
    let deep = format!(r#"{{"metadata":{{"a":{}{}}}}}"#, "[".repeat(200), "]".repeat(200));
    let hook = r#"{"pushNotificationConfig":{"url":"https://hook.example"}}"#;
    for (method, path, body, status, code) in [
        (Method::GET, "", "", 404, -32601),
        (Method::GET, "/tasks", "", 404, -32601),
        (Method::GET, "/extendedAgentCard", "", 404, -32601),
        (Method::DELETE, "/tasks/a", "", 405, -32601),
        (Method::GET, "/message:send", "", 405, -32601),
        (Method::POST, "/message:send", "{", 400, -32700),
        (Method::POST, "/message:send", deep.as_str(), 400, -32700),
        (Method::POST, "/message:stream", r#"{"metadata":{"a":1e400}}"#, 400, -32700),
        (Method::POST, "/message:send", "[]", 400, -32602),
        (Method::POST, "/message:send", "", 400, -32602),
        (Method::POST, "/message:stream", r#"{"message":{"content":{}}}"#, 400, -32602),
        (Method::POST, "/message:send?tenant=acme", sent, 400, -32602),
        (Method::GET, "/tasks/a?historyLength=-1", "", 400, -32602),
        (Method::GET, "/tasks/a?historyLength=%FF", "", 400, -32602),
        (Method::GET, "/tasks/a", "", 404, -32001),
        (Method::POST, "/tasks/a%3Ab:cancel", "", 404, -32001),
        (Method::POST, "/tasks/a:subscribe", "{}", 404, -32001),
        (Method::POST, "/tasks/a/pushNotificationConfigs?configId=a%0Ab", hook, 400, -32602),
        (Method::POST, "/tasks/a/pushNotificationConfigs", hook, 400, -32003),
        (Method::GET, "/tasks/a/pushNotificationConfigs", "", 400, -32003),
        // Refusals of the edge.
        (Method::GET, "/tasks/a%2Fb", "", 404, -32000),
        (Method::GET, "//tasks", "", 404, -32000),
    ] {
        let answer = client.send(method.clone(), &format!("/v1{path}"), body).await;
        let error = answer.json();
        assert_eq!(
            (answer.status.as_u16(), &error["code"]),
            (status, &json!(code)),
            "{method} {path}: {error}"
        );
        assert!(error["message"].is_string() && error.get("error").is_none(), "{method} {path}: {error}");
    }
    for (name, value, status, code) in [
        ("content-type", "text/plain", 415, -32005),
        ("a2a-version", "1.0", 400, -32009),
        ("authorization", "Bearer x", 401, -32000),
    ] {
        let answer = client.with(name, value).send(Method::POST, "/v1/message:send", sent).await;
        let error = answer.json();
        assert_eq!((answer.status.as_u16(), &error["code"]), (status, &json!(code)), "{name}: {error}");
    }
}

#[tokio::test]
async fn another_users_task_is_like_none() {
    let fixture = fixture();
    let client = Client::of(&fixture, "demo");
    let sent = client.result("SendMessage", message("echo", json!({"message": "hi"}))).await;
    let id = sent["task"]["id"].clone();
    let bob = client.with("authorization", &format!("Bearer {}", token("bob")));
    for method in ["GetTask", "CancelTask", "SubscribeToTask"] {
        assert_eq!(bob.refused(method, json!({"id": id})).await, (200, -32001), "{method}");
    }
    let mut reference = message("echo", json!({"message": "hi"}));
    reference["message"]["referenceTaskIds"] = json!([id]);
    assert_eq!(bob.refused("SendMessage", reference.clone()).await, (200, -32001));
    assert_eq!(client.call("SendMessage", reference).await.status, StatusCode::OK);
    let mut answering = message("echo", json!({"message": "hi"}));
    answering["message"]["taskId"] = id;
    assert_eq!(client.refused("SendMessage", answering).await, (200, -32004), "it has ended");
}

#[tokio::test]
async fn missing_scopes_and_limits_are_answered_by_http_as_well() {
    let fixture = fixture();
    let client = Client::of(&fixture, "policy");
    let challenged = client.call("SendMessage", message("policy.scoped", json!({}))).await;
    assert_eq!(challenged.status, StatusCode::FORBIDDEN, "{}", challenged.text);
    let challenge = challenged.headers["www-authenticate"].to_str().unwrap();
    assert!(challenge.contains(r#"scope="x:read x:write""#), "{challenge}");
    let bearer = format!("Bearer {}", token_with_scopes("alice", "x:read x:write"));
    let allowed = client.with("authorization", &bearer);
    allowed.result("SendMessage", message("policy.scoped", json!({}))).await;
    let mut params = message("policy.few", json!({}));
    for _ in 0..2 {
        client.result("SendMessage", params.clone()).await;
        params["message"]["messageId"] = message_id().into();
    }
    let limited = client.call("SendMessage", params.clone()).await;
    assert_eq!((limited.status, code(&limited)), (StatusCode::TOO_MANY_REQUESTS, -32000));
    assert!(limited.headers.contains_key("retry-after") && limited.text.contains("rate_limited"));
    let limited = client.send(Method::POST, "/message:send", &params.to_string()).await;
    assert_eq!(limited.status, StatusCode::TOO_MANY_REQUESTS);
}
