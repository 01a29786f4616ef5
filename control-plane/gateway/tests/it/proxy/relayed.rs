//! Messages between an upstream MCP server and a call's client besides forms: logs, pages, changed roots,
//! the end of the client's session.

use super::asking::{
    Heard, PATIENCE, call, connect, fixture, fixture_with_pages, next, snapshot_with_pages, upstream,
};
use super::*;

/// Waits until the server was sent a message like that.
pub(super) async fn heard_of(heard: &mut Heard, is_it: impl Fn(&Value) -> bool) {
    let found = heard.wait_for(|heard| heard.iter().any(&is_it));
    tokio::time::timeout(PATIENCE, found).await.expect("the message").unwrap();
}

#[tokio::test]
async fn an_upstream_is_told_of_changed_roots_and_of_the_end_of_its_clients_session() {
    let (address, mut heard) = upstream(|talk| Box::pin(async move { talk.done(&json!("m")) })).await;
    let fixture = fixture(address);
    let silent = connect(&fixture, json!({"roots": {}})).await;
    let client = connect(&fixture, json!({"roots": {"listChanged": true}})).await;
    for client in [&silent, &client] {
        let result = client.request(2, "tools/call", call(2)["params"].clone()).await.json();
        assert_eq!(result["result"]["structuredContent"]["told"], "m", "{result}");
    }
    let declared = |message: &Value| message["params"]["capabilities"]["roots"].clone();
    let all: Vec<Value> =
        heard.borrow().iter().filter(|m| m["method"] == "initialize").map(declared).collect();
    assert_eq!(all, [json!({}), json!({"listChanged": true})]);
    heard_of(&mut heard, |m| m["method"] == "logging/setLevel" && m["params"]["level"] == "info").await;
    let changed = json!({"jsonrpc": "2.0", "method": "notifications/roots/list_changed"});
    for client in [&silent, &client] {
        assert_eq!(client.post(&changed).await.status, StatusCode::ACCEPTED);
    }
    heard_of(&mut heard, |m| m["method"] == changed["method"]).await;
    let headers = client.headers();
    let headers: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let ended = fixture.send(http::Method::DELETE, "/demo/mcp", &headers, "").await;
    assert_eq!(ended.status, StatusCode::OK);
    heard_of(&mut heard, |m| m["ended"] == "s1").await;
    let of = |name: &str, value: &str| heard.borrow().iter().filter(|m| m[name] == value).count();
    assert_eq!(of("method", "notifications/roots/list_changed"), 1, "who said nothing of changes says none");
    assert_eq!(of("ended", "s0"), 0, "the other client's goes on");
}

#[tokio::test]
async fn an_upstream_sends_a_user_to_a_page_that_its_spec_names_and_to_no_other() {
    let (address, heard) = upstream(|mut talk| {
        Box::pin(async move {
            let page =
                |url: &str| json!({"mode": "url", "message": "Pay", "url": url, "elicitationId": "up-1"});
            talk.ask("other", "elicitation/create", page("https://evil.example/cards"));
            let refused = talk.told("other").await["error"]["code"].clone();
            talk.ask("page", "elicitation/create", page("https://pay.example.com/cards/7"));
            let told = talk.told("page").await["result"].clone();
            let done = json!({"elicitationId": "up-1"});
            talk.say(
                json!({"jsonrpc": "2.0", "method": "notifications/elicitation/complete", "params": done}),
            );
            talk.done(&json!([refused, told]));
        })
    })
    .await;
    let fixture = fixture_with_pages(address, &["https://pay.example.com/cards"]);
    let client = connect(&fixture, json!({"elicitation": {"url": {}}})).await;
    let mut body = client.open(&call(2)).await.into_body();
    let asked = next(&mut body).await;
    let params = &asked["params"];
    assert_eq!((&asked["method"], &params["mode"]), (&json!("elicitation/create"), &json!("url")));
    assert_eq!(params["url"], "https://pay.example.com/cards/7");
    let agreed = json!({"jsonrpc": "2.0", "id": asked["id"], "result": {"action": "accept"}});
    assert_eq!(client.post(&agreed).await.status, StatusCode::ACCEPTED);
    let done = next(&mut body).await;
    assert_eq!(done["method"], "notifications/elicitation/complete");
    assert_eq!(done["params"]["elicitationId"], params["elicitationId"], "as our client knows it");
    let result = next(&mut body).await;
    let told = &result["result"]["structuredContent"]["told"];
    assert_eq!(*told, json!([-32602, {"action": "accept"}]), "{result}");
    let declared = heard.borrow().iter().find(|m| m["method"] == "initialize").unwrap().clone();
    assert_eq!(declared["params"]["capabilities"], json!({"elicitation": {"url": {}}}));
}

#[tokio::test]
async fn what_an_upstream_logs_is_told_to_the_calls_client() {
    let (address, _heard) = upstream(|talk| {
        Box::pin(async move {
            let params = json!({"level": "warning", "logger": "disk", "data": {"left": 3}});
            talk.say(json!({"jsonrpc": "2.0", "method": "notifications/message", "params": params}));
            talk.done(&json!("m"));
        })
    })
    .await;
    let client = connect(&fixture(address), json!({})).await;
    let mut body = client.open(&call(2)).await.into_body();
    let told = next(&mut body).await;
    let params = json!({"level": "warning", "logger": "disk", "data": {"left": 3}});
    assert_eq!((&told["method"], &told["params"]), (&json!("notifications/message"), &params));
    assert_eq!(next(&mut body).await["result"]["structuredContent"]["told"], "m");
}

/// Each client that calls an upstream which wants its user on a page first, and what it is told.
#[tokio::test]
async fn that_a_user_has_to_visit_a_page_first_is_an_error_where_the_revision_has_one_and_else_a_tools() {
    let needs =
        |url: &str| json!([{"mode": "url", "elicitationId": "up-1", "message": "Sign in", "url": url}]);
    let page = "https://pay.example.com/cards/7";
    let told = needs(page);
    let elsewhere = json!([told[0], needs("https://evil.example/cards")[0]]);
    for (elicitations, is_shown) in
        [(told.clone(), true), (elsewhere, false), (json!([{"mode": "url"}]), false)]
    {
        let (address, _heard) = upstream(move |talk| {
            let data = json!({"elicitations": elicitations});
            Box::pin(async move { talk.fail(&json!({"code": -32042, "message": "needed", "data": data})) })
        })
        .await;
        let fixture = fixture_with_pages(address, &["https://pay.example.com/cards"]);
        let params = call(2)["params"].clone();
        let client = connect(&fixture, json!({"elicitation": {"url": {}}})).await;
        let answer = client.request(2, "tools/call", params.clone()).await.json();
        assert_eq!(answer["error"]["code"] == -32042, is_shown, "{answer}");
        if is_shown {
            assert_eq!(answer["error"]["data"]["elicitations"], told, "{answer}");
        }
        let silent = connect(&fixture, json!({})).await.request(2, "tools/call", params.clone()).await.json();
        let can = json!({"elicitation": {"url": {}}});
        let modern = Modern::new("demo", &token("alice"), "tools/call", params).capabilities(can);
        for answer in [silent, modern.send(&fixture).await.json()] {
            assert!(answer["result"]["isError"] == true || !is_shown, "{answer}");
            assert_eq!(answer.to_string().contains(page), is_shown, "{answer}");
            assert!(!answer.to_string().contains("evil"), "{answer}");
        }
    }
}

/// The user comes back from the page, and the same call is put again.
#[tokio::test]
async fn a_call_whose_user_had_to_visit_a_page_first_is_done_when_it_is_put_again() {
    let (address, heard) = upstream(|talk| {
        Box::pin(async move {
            let is_first = talk.heard.borrow().iter().filter(|m| m["method"] == "tools/call").count() == 1;
            let page =
                json!({"mode": "url", "elicitationId": "e", "message": "m", "url": "https://a.example/"});
            let error = json!({"code": -32042, "message": "needed", "data": {"elicitations": [page]}});
            if is_first { talk.fail(&error) } else { talk.done(&json!("m")) }
        })
    })
    .await;
    let mut snapshot = snapshot_with_pages(address, &["https://a.example"]);
    for primitive in snapshot.primitives.iter_mut().filter(|primitive| primitive.id == "echo") {
        primitive.set_mutation(Mutation::NonIdempotent);
    }
    let client = connect(&Fixture::of(snapshot), json!({"elicitation": {"url": {}}})).await;
    let mut params = call(2)["params"].clone();
    params["_meta"]["asp/idempotencyKey"] = "k".into();
    let first = client.request(2, "tools/call", params.clone()).await.json();
    assert_eq!(first["error"]["code"], -32042, "{first}");
    let second = client.request(3, "tools/call", params).await.json();
    assert_eq!(second["result"]["structuredContent"]["told"], "m", "{second}");
    assert_eq!(heard.borrow().iter().filter(|m| m["method"] == "tools/call").count(), 2);
}
