//! MCP 2025-03-26 … 2025-11-25.

use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::support::{Fixture, Legacy, token};

const REVISIONS: [&str; 3] = ["2025-03-26", "2025-06-18", "2025-11-25"];

#[tokio::test]
async fn every_revision_lists_and_calls_what_demo_has() {
    let fixture = Fixture::new();
    for revision in REVISIONS {
        let client = Legacy::connect(&fixture, "demo", "alice", revision, json!({})).await;
        let tools = client.request(2, "tools/list", json!({})).await.json();
        let names: Vec<&str> = tools["result"]["tools"]
            .as_array()
            .unwrap()
            .iter()
            .map(|tool| tool["name"].as_str().unwrap())
            .collect();
        assert_eq!(names, ["echo", "clock", "count"]);
        let has_output_schema = tools["result"]["tools"][0].get("outputSchema").is_some();
        assert_eq!(has_output_schema, revision != "2025-03-26");
        let answer = client
            .request(3, "tools/call", json!({"name": "echo", "arguments": {"message": "hi"}}))
            .await
            .json();
        assert_eq!(answer["id"], 3);
        assert_eq!(answer["result"]["content"], json!([{"type": "text", "text": "hi"}]));
        assert_eq!(answer["result"]["isError"], false);
        let structured = answer["result"].get("structuredContent").cloned();
        assert_eq!(structured, (revision != "2025-03-26").then(|| json!({"message": "hi"})));
        assert_eq!(client.request(4, "ping", json!({})).await.json()["result"], json!({}));
    }
}

#[tokio::test]
async fn prompts_and_resources_are_listed_and_read() {
    let client = Legacy::connect(&Fixture::new(), "demo", "alice", "2025-11-25", json!({})).await;
    let prompts = client.request(2, "prompts/list", json!({})).await.json();
    assert_eq!(prompts["result"]["prompts"][0]["name"], "greeting");
    let prompt = client
        .request(3, "prompts/get", json!({"name": "greeting", "arguments": {"name": "Ada"}}))
        .await
        .json();
    assert_eq!(prompt["result"]["messages"][0]["content"]["text"], "Greet Ada in one friendly sentence.");
    let missing = client.request(4, "prompts/get", json!({"name": "greeting"})).await.json();
    assert_eq!(missing["error"]["code"], -32602);
    let resources = client.request(5, "resources/list", json!({})).await.json();
    assert_eq!(resources["result"]["resources"][0]["uri"], "demo://about");
    let read = client.request(6, "resources/read", json!({"uri": "demo://about"})).await.json();
    assert!(
        read["result"]["contents"][0]["text"].as_str().unwrap().contains("one small primitive of every kind")
    );
    let templates = client.request(7, "resources/templates/list", json!({})).await.json();
    assert_eq!(templates["result"]["resourceTemplates"][0]["uriTemplate"], "demo://items/{id}");
    let item = client.request(8, "resources/read", json!({"uri": "demo://items/42"})).await.json();
    assert_eq!(item["result"]["contents"][0]["uri"], "demo://items/42");
    assert!(item["result"]["contents"][0]["text"].as_str().unwrap().contains("\"42\""));
}

#[tokio::test]
async fn progress_comes_as_events_before_the_result() {
    let client = Legacy::connect(&Fixture::new(), "demo", "alice", "2025-06-18", json!({})).await;
    let params =
        json!({"name": "count", "arguments": {"to": 3, "delayMs": 1}, "_meta": {"progressToken": "p"}});
    let events = client.request(2, "tools/call", params).await.events();
    let progress: Vec<&Value> =
        events.iter().filter(|event| event["method"] == "notifications/progress").collect();
    assert_eq!(progress.len(), 3);
    assert_eq!(
        progress[2]["params"],
        json!({"progressToken": "p", "progress": 3, "total": 3, "message": "counted 3 of 3"})
    );
    let last = events.last().unwrap();
    assert_eq!(last["id"], 2);
    assert_eq!(last["result"]["structuredContent"], json!({"counted": 3}));
}

#[tokio::test]
async fn a_call_without_a_progress_token_is_one_json_answer() {
    let client = Legacy::connect(&Fixture::new(), "demo", "alice", "2025-06-18", json!({})).await;
    let answer =
        client.request(2, "tools/call", json!({"name": "count", "arguments": {"to": 2, "delayMs": 1}})).await;
    assert_eq!(answer.json()["result"]["structuredContent"], json!({"counted": 2}));
}

#[tokio::test]
async fn a_cancelled_request_ends_without_a_response() {
    let client = Legacy::connect(&Fixture::new(), "demo", "alice", "2025-11-25", json!({})).await;
    let params =
        json!({"name": "count", "arguments": {"to": 100, "delayMs": 1000}, "_meta": {"progressToken": 1}});
    let call = json!({"jsonrpc": "2.0", "id": "c", "method": "tools/call", "params": params});
    let running = client.post(&call);
    tokio::pin!(running);
    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "c"}});
    let answer = tokio::select! {
        biased;
        answer = &mut running => answer,
        // The call is polled first, so it is registered before the cancel is sent.
        _ = async { tokio::task::yield_now().await; client.post(&cancel).await } => running.await,
    };
    assert_eq!((answer.status, answer.text.as_str()), (StatusCode::ACCEPTED, ""));
}

#[tokio::test]
async fn a_request_is_cancelled_by_its_id_however_that_is_written() {
    let client = Legacy::connect(&Fixture::new(), "demo", "alice", "2025-11-25", json!({})).await;
    let headers = client.headers();
    let headers: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let send = async |message: Value, id: &str| {
        let text = message.to_string().replace("\"ID\"", id);
        client.fixture.send(http::Method::POST, "/demo/mcp", &headers, &text).await
    };
    let params =
        json!({"name": "count", "arguments": {"to": 100, "delayMs": 1000}, "_meta": {"progressToken": 1}});
    for id in [r#""\u0063""#, "18446744073709551615", "0", "-7", "1.0"] {
        let running =
            send(json!({"jsonrpc": "2.0", "id": "ID", "method": "tools/call", "params": params}), id);
        tokio::pin!(running);
        let cancel =
            json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "ID"}});
        let answer = tokio::select! {
            biased;
            answer = &mut running => answer,
            // The call is polled first, so it is registered before the cancel is sent.
            _ = async { tokio::task::yield_now().await; send(cancel, id).await } => running.await,
        };
        assert_eq!((answer.status, answer.text.as_str()), (StatusCode::ACCEPTED, ""), "{id}");
    }
}

#[tokio::test]
async fn a_cancel_that_does_not_reach_the_gateway_of_its_call_is_sent_again() {
    let fixture = Fixture::new();
    let client = Legacy::connect(&fixture, "demo", "alice", "2025-11-25", json!({})).await;
    let params =
        json!({"name": "count", "arguments": {"to": 100, "delayMs": 1000}, "_meta": {"progressToken": 1}});
    // Open until its first event, so that the call is certainly running.
    let call = json!({"jsonrpc": "2.0", "id": "c", "method": "tools/call", "params": params});
    let _running = client.open(&call).await;
    let call = fixture.gateway.pipeline.internals().registry.running().pop().unwrap();
    // Another gateway goes on with it, and the two share nothing but the store.
    call.ownership.passed_on.set();
    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "c"}});
    let answer = client.post(&cancel).await;
    assert_eq!(answer.json()["error"]["data"]["reason"], "upstream_unavailable", "{}", answer.text);
}

#[tokio::test]
async fn unknown_methods_and_names_are_200_with_an_error() {
    let client = Legacy::connect(&Fixture::new(), "demo", "alice", "2025-11-25", json!({})).await;
    let rows = [
        ("no/such", json!({}), -32601, "unknown_method"),
        ("server/discover", json!({}), -32601, "unknown_method"),
        ("tools/call", json!({"name": "nope"}), -32602, "unknown_primitive"),
        ("tools/call", json!({}), -32602, "invalid_params"),
        ("tools/call", json!({"name": 7}), -32602, "invalid_params"),
        ("tools/call", json!({"name": "echo", "arguments": []}), -32602, "invalid_params"),
        ("prompts/get", json!({"name": "nope"}), -32602, "unknown_primitive"),
        ("resources/read", json!({"uri": "demo://nope"}), -32002, "unknown_primitive"),
        ("tools/list", json!({"cursor": "AAAA"}), -32602, "invalid_params"),
        ("logging/setLevel", json!({"level": "loud"}), -32602, "invalid_params"),
    ];
    for (n, (method, params, code, reason)) in rows.into_iter().enumerate() {
        let answer = client.request(10 + n as u64, method, params).await;
        assert_eq!(answer.status, StatusCode::OK, "{method}");
        assert_eq!(answer.json()["error"]["code"], code, "{method}");
        assert_eq!(answer.reason(), reason, "{method}");
        assert_eq!(answer.json()["id"], 10 + n as u64);
    }
}

#[tokio::test]
async fn wrong_arguments_are_a_tool_error_from_2025_11_25_and_an_error_before() {
    let fixture = Fixture::new();
    for (revision, tool_error) in [("2025-11-25", true), ("2025-06-18", false), ("2025-03-26", false)] {
        let client = Legacy::connect(&fixture, "demo", "alice", revision, json!({})).await;
        let answer = client
            .request(2, "tools/call", json!({"name": "echo", "arguments": {"message": 5}}))
            .await
            .json();
        if tool_error {
            assert_eq!(answer["result"]["isError"], true);
            assert_eq!(answer["result"]["_meta"]["asp/reason"], "invalid_params");
            assert!(answer["result"]["content"][0]["text"].as_str().unwrap().contains("/message"));
            assert!(answer["result"].get("structuredContent").is_none());
        } else {
            assert_eq!(answer["error"]["code"], -32602);
            assert_eq!(answer["error"]["data"]["pointer"], "/message");
        }
    }
}

#[tokio::test]
async fn sessions_end_with_delete_and_belong_to_one_user_and_server() {
    let fixture = Fixture::new();
    let client = Legacy::connect(&fixture, "demo", "alice", "2025-11-25", json!({})).await;
    let foreign = [("bob", "demo"), ("alice", "policy")];
    for (user, server) in foreign {
        let thief = Legacy {
            fixture: fixture.clone(),
            server: server.into(),
            token: token(user),
            session: client.session.clone(),
            revision: client.revision.clone(),
        };
        let answer = thief.request(2, "ping", json!({})).await;
        assert_eq!(
            (answer.status, answer.reason().as_str()),
            (StatusCode::NOT_FOUND, "session_unknown"),
            "{user}"
        );
    }
    let bearer = format!("Bearer {}", client.token);
    let headers = [("authorization", bearer.as_str()), ("mcp-session-id", client.session.as_str())];
    assert_eq!(fixture.send(Method::DELETE, "/demo/mcp", &headers, "").await.status, StatusCode::OK);
    let answer = client.request(3, "ping", json!({})).await;
    assert_eq!((answer.status, answer.reason().as_str()), (StatusCode::NOT_FOUND, "session_unknown"));
    let without = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"}).to_string();
    let answer = fixture.send(Method::POST, "/demo/mcp", &without, &ping).await;
    assert_eq!((answer.status, answer.reason().as_str()), (StatusCode::BAD_REQUEST, "session_missing"));
    for id in ["", "my-own", "v1.0123456789abcdef.AAAA"] {
        let headers = [
            ("authorization", bearer.as_str()),
            ("content-type", "application/json"),
            ("mcp-session-id", id),
        ];
        let answer = fixture.send(Method::POST, "/demo/mcp", &headers, &ping).await;
        assert_eq!(
            (answer.status, answer.reason().as_str()),
            (StatusCode::NOT_FOUND, "session_unknown"),
            "{id:?}"
        );
    }
}

#[tokio::test]
async fn initialize_offers_our_latest_to_a_client_that_asks_for_another_revision() {
    let fixture = Fixture::new();
    let bearer = format!("Bearer {}", token("alice"));
    let headers = [
        ("authorization", bearer.as_str()),
        ("content-type", "application/json"),
        ("x-asp-affinity", "00000000000000aa"),
    ];
    for asked in ["2024-11-05", "1999-01-01", "2026-07-28", "x"] {
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize",
                             "params": {"protocolVersion": asked, "capabilities": {}}});
        let answer = fixture.send(Method::POST, "/demo/mcp", &headers, &message.to_string()).await;
        assert_eq!(answer.json()["result"]["protocolVersion"], "2025-11-25", "{asked}");
        assert_eq!(answer.json()["result"]["serverInfo"]["name"], "demo");
        assert!(answer.headers["mcp-session-id"].to_str().unwrap().starts_with("v1.00000000000000aa."));
        let cookie = answer.headers["set-cookie"].to_str().unwrap();
        assert_eq!(cookie, "asp-affinity=00000000000000aa; HttpOnly; SameSite=Lax; Path=/; Secure");
    }
}

#[tokio::test]
async fn a_batch_is_answered_in_2025_03_26_and_refused_later() {
    let fixture = Fixture::new();
    let batch = json!([
        {"jsonrpc": "2.0", "id": 1, "method": "ping"},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "echo", "arguments": {"message": "b"}}},
        {"jsonrpc": "2.0", "id": 3, "method": "nope"},
    ]);
    let client = Legacy::connect(&fixture, "demo", "alice", "2025-03-26", json!({})).await;
    let answer = client.post(&batch).await.json();
    assert_eq!(answer.as_array().unwrap().len(), 3);
    assert_eq!(answer[0], json!({"jsonrpc": "2.0", "id": 1, "result": {}}));
    assert_eq!(answer[1]["result"]["content"][0]["text"], "b");
    assert_eq!(answer[2]["error"]["code"], -32601);
    let later = Legacy::connect(&fixture, "demo", "alice", "2025-06-18", json!({})).await;
    let answer = later.post(&batch).await;
    assert_eq!((answer.status, answer.reason().as_str()), (StatusCode::BAD_REQUEST, "invalid_request"));
}

#[tokio::test]
async fn a_session_keeps_the_revision_that_it_negotiated() {
    let fixture = Fixture::new();
    for negotiated in REVISIONS {
        let mut client = Legacy::connect(&fixture, "demo", "alice", negotiated, json!({})).await;
        for named in REVISIONS.into_iter().chain(["2024-11-05", "1999-01-01", ""]) {
            client.revision = named.into();
            let answer = client.request(2, "ping", json!({})).await;
            // 2025-03-26 is what a request without the header is taken for.
            let fits = named == negotiated || named == "2025-03-26";
            let expected = if fits { StatusCode::OK } else { StatusCode::BAD_REQUEST };
            assert_eq!(answer.status, expected, "{negotiated} {named:?}: {}", answer.text);
            if !fits && REVISIONS.contains(&named) {
                assert_eq!(answer.reason(), "unsupported_version", "{negotiated} {named}");
            }
        }
        client.revision = "2025-03-26".into();
        let batch = client.post(&json!([{"jsonrpc": "2.0", "id": 4, "method": "ping"}])).await;
        assert_eq!(batch.status == StatusCode::OK, negotiated == "2025-03-26", "{negotiated} has batches");
        let headers = client.headers();
        let headers: Vec<(&str, &str)> = headers
            .iter()
            .filter(|(name, _)| *name != "mcp-protocol-version")
            .map(|(n, v)| (*n, v.as_str()))
            .collect();
        let ping = json!({"jsonrpc": "2.0", "id": 3, "method": "ping"}).to_string();
        let answer = fixture.send(Method::POST, "/demo/mcp", &headers, &ping).await;
        assert_eq!(answer.status, StatusCode::OK, "{negotiated} without the header");
    }
}
