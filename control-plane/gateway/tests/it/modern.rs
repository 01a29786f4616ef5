//! MCP 2026-07-28.

use http::StatusCode;
use http_body_util::BodyExt;
use serde_json::{Value, json};

use crate::support::{Fixture, Modern, token};

const META: &str = "io.modelcontextprotocol/";

#[tokio::test]
async fn discover_lists_calls_and_reads_without_a_session() {
    let fixture = Fixture::new();
    let token = token("alice");
    let discover = Modern::new("demo", &token, "server/discover", json!({})).send(&fixture).await;
    assert_eq!(discover.status, StatusCode::OK);
    let result = &discover.json()["result"];
    assert_eq!(result["supportedVersions"][0], "2026-07-28");
    assert_eq!(result["resultType"], "complete");
    assert_eq!(result["cacheScope"], "public");
    assert_eq!(result["_meta"][format!("{META}serverInfo")]["name"], "demo");
    assert!(result["capabilities"]["tools"].is_object());
    assert!(discover.headers.get("mcp-session-id").is_none());
    for method in ["tools/list", "prompts/list", "resources/list", "resources/templates/list"] {
        let list = Modern::new("demo", &token, method, json!({})).send(&fixture).await.json();
        assert_eq!(list["result"]["resultType"], "complete", "{method}");
        assert!(list["result"]["ttlMs"].is_u64(), "{method}");
        assert_eq!(list["result"]["cacheScope"], "private", "{method}");
    }
    let call =
        Modern::new("demo", &token, "tools/call", json!({"name": "echo", "arguments": {"message": "m"}}));
    let result = call.send(&fixture).await.json()["result"].clone();
    assert_eq!(result["structuredContent"], json!({"message": "m"}));
    assert_eq!(result["resultType"], "complete");
    assert!(result.get("ttlMs").is_none());
    let read =
        Modern::new("demo", &token, "resources/read", json!({"uri": "demo://about"})).send(&fixture).await;
    assert!(read.json()["result"]["ttlMs"].is_u64());
    let unknown =
        Modern::new("demo", &token, "resources/read", json!({"uri": "demo://no"})).send(&fixture).await;
    assert_eq!(unknown.json()["error"]["code"], -32602);
    assert_eq!(unknown.json()["error"]["data"]["uri"], "demo://no");
}

#[tokio::test]
#[allow(clippy::too_many_lines, reason = "a table of cases")]
async fn the_form_of_a_request_is_checked_in_the_order_the_probes_force() {
    let fixture = Fixture::new();
    let token = token("alice");
    let echo =
        || Modern::new("demo", &token, "tools/call", json!({"name": "echo", "arguments": {"message": "m"}}));
    let ping = |method: &str| Modern::new("demo", &token, method, json!({}));
    let no_meta = {
        let mut request = ping("tools/list");
        request.body["params"] = json!({});
        request
    };
    let unreadable_header = {
        let mut request = ping("tools/list").with("mcp-protocol-version", "\u{e9}");
        request.body["params"] = json!({});
        request
    };
    let no_capabilities = {
        let mut request = ping("tools/list");
        request.body["params"]["_meta"].as_object_mut().unwrap().remove(&format!("{META}clientCapabilities"));
        request
    };
    let body_v999 = {
        let mut request = ping("tools/list");
        request.body["params"]["_meta"][format!("{META}protocolVersion")] = "v999".into();
        request
    };
    let both_v999 = {
        let mut request = ping("tools/list").with("mcp-protocol-version", "v999");
        request.body["params"]["_meta"][format!("{META}protocolVersion")] = "v999".into();
        request
    };
    let no_client_info = {
        let mut request = ping("tools/list");
        request.body["params"]["_meta"].as_object_mut().unwrap().remove(&format!("{META}clientInfo"));
        request
    };
    let log_level = |level: Value| {
        let mut request = ping("tools/list");
        request.body["params"]["_meta"][format!("{META}logLevel")] = level;
        request
    };
    let rows: Vec<(&str, Modern, u16, Value)> = vec![
        ("no header", ping("tools/list").without("mcp-protocol-version"), 400, json!(-32020)),
        ("body differs", body_v999, 400, json!(-32020)),
        ("header without meta", no_meta, 400, json!(-32602)),
        ("header that is not ASCII, without meta", unreadable_header, 400, json!(-32020)),
        ("both unknown", both_v999, 400, json!(-32022)),
        ("no capabilities", no_capabilities, 400, json!(-32602)),
        ("no client info", no_client_info, 200, Value::Null),
        ("no method header", echo().without("mcp-method"), 400, json!(-32020)),
        ("other method header", echo().with("mcp-method", "tools/list"), 400, json!(-32020)),
        ("method header in another case", echo().with("mcp-method", "TOOLS/CALL"), 400, json!(-32020)),
        ("no name header", echo().without("mcp-name"), 400, json!(-32020)),
        ("other name header", echo().with("mcp-name", "clock"), 400, json!(-32020)),
        ("encoded name header", echo().with("mcp-name", "=?base64?ZWNobw==?="), 200, Value::Null),
        ("badly encoded name header", echo().with("mcp-name", "=?base64?ZWNobw?="), 400, json!(-32020)),
        ("log level", log_level(json!("debug")), 200, Value::Null),
        ("no log level", log_level(Value::Null), 200, Value::Null),
        ("unknown log level", log_level(json!("verbose")), 200, json!(-32602)),
        ("log level of another type", log_level(json!(7)), 200, json!(-32602)),
        ("unknown method", ping("no/such"), 404, json!(-32601)),
        ("initialize", ping("initialize"), 404, json!(-32601)),
        ("ping", ping("ping"), 404, json!(-32601)),
        ("setLevel", ping("logging/setLevel"), 404, json!(-32601)),
        ("subscribe", ping("resources/subscribe"), 404, json!(-32601)),
    ];
    for (name, request, status, code) in rows {
        let answer = request.send(&fixture).await;
        assert_eq!(answer.status.as_u16(), status, "{name}: {}", answer.text);
        assert_eq!(
            answer.json().get("error").map_or(Value::Null, |error| error["code"].clone()),
            code,
            "{name}"
        );
        assert_eq!(answer.json()["id"], 7, "{name}");
    }
    let answer = ping("tools/list").with("mcp-protocol-version", "v999");
    let mut answer_body = answer;
    answer_body.body["params"]["_meta"][format!("{META}protocolVersion")] = "v999".into();
    let data = answer_body.send(&fixture).await.json()["error"]["data"].clone();
    assert_eq!(data["requested"], "v999");
    assert!(data["supported"].as_array().unwrap().contains(&json!("2026-07-28")));
}

#[tokio::test]
async fn notifications_are_accepted_and_responses_and_batches_refused() {
    let fixture = Fixture::new();
    let mut notification = Modern::new("demo", &token("alice"), "notifications/cancelled", json!({}));
    notification.body.as_object_mut().unwrap().remove("id");
    assert_eq!(notification.send(&fixture).await.status, StatusCode::ACCEPTED);
    let mut response = Modern::new("demo", &token("alice"), "x", json!({}));
    response.body = json!({"jsonrpc": "2.0", "id": 1, "result": {}});
    let refused = response.send(&fixture).await;
    assert_eq!((refused.status, refused.json().get("id")), (StatusCode::BAD_REQUEST, None));
    let mut batch = Modern::new("demo", &token("alice"), "x", json!({}));
    batch.body = json!([batch.body]);
    assert_eq!(batch.send(&fixture).await.status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn closing_the_stream_cancels_the_call() {
    let fixture = Fixture::new();
    let params = json!({"name": "count", "arguments": {"to": 100, "delayMs": 1}});
    let mut request = Modern::new("demo", &token("alice"), "tools/call", params);
    request.body["params"]["_meta"]["progressToken"] = json!(1);
    request.body["params"]["arguments"]["delayMs"] = json!(100);
    let response = request.open(&fixture).await;
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    assert_eq!(response.headers()["x-accel-buffering"], "no");
    let mut body = response.into_body();
    let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
    assert!(String::from_utf8_lossy(&first).contains("notifications/progress"));
    drop(body);
    // The outcome shows in the metrics as soon as the backend has stopped.
    let cancelled =
        || fixture.gateway.pipeline.internals().metrics.encode().contains(r#"status="cancelled""#);
    tokio::time::timeout(std::time::Duration::from_secs(60), async {
        while !cancelled() {
            tokio::task::yield_now().await;
        }
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn progress_is_on_the_requests_own_stream_and_ends_with_the_result() {
    let params = json!({"name": "count", "arguments": {"to": 2, "delayMs": 1}});
    let mut request = Modern::new("demo", &token("alice"), "tools/call", params);
    request.body["params"]["_meta"]["progressToken"] = json!(9);
    let events = request.send(&Fixture::new()).await.events();
    assert_eq!(events.len(), 3);
    assert_eq!(events[0]["params"]["progressToken"], 9);
    assert_eq!(events[2]["result"]["resultType"], "complete");
    assert!(events.iter().all(|event| event.get("method").is_none() || event.get("id").is_none()));
}

/// JSON Schema 2020-12, section 4.2.3: clients that know one kind of number write every integer so.
#[tokio::test]
async fn an_integer_that_is_written_as_a_float_means_the_same_to_who_uses_it() {
    for to in [json!(2), json!(2.0)] {
        let params = json!({"name": "count", "arguments": {"to": to, "delayMs": 1.0}});
        let answer = Modern::new("demo", &token("alice"), "tools/call", params).send(&Fixture::new()).await;
        assert_eq!(answer.json()["result"]["structuredContent"], json!({"counted": 2}), "{to}");
    }
}
