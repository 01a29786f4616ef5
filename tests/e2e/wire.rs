//! What a hand-written client sees over the wire: the rows of the edge table that need a live gateway, each
//! through Envoy and straight at the gateway, with equal status, body and reason (I-1).

use anyhow::{Context, Result};
use asp_e2e::http1::{self, Request, Response};
use asp_e2e::http2;
use asp_e2e::stack::Stack;
use serde_json::json;

use crate::message::{initialize, legacy, modern};
use crate::trial::{Shared, trials};

/// Every internal header the platform knows, and one it does not.
/// None reaches a service (I-9).
const INTERNAL: [&str; 5] = ["x-asp-affinity", "x-asp-route", "x-asp-org", "x-asp-user", "x-asp-anything"];

trials! { wire:
    internal_headers_from_outside_change_nothing,
    a_body_that_ends_in_h2_trailers_is_judged_like_any_other,
    a_session_serves_only_its_principal_and_server,
    a_modern_header_must_match_its_body,
    unknown_methods_and_tools_are_refused_in_each_eras_own_way,
    a_header_above_64_kib_is_refused_as_json,
    a_dead_upstream_is_a_well_formed_answer_and_harms_no_neighbour,
}

async fn internal_headers_from_outside_change_nothing(shared: &Shared) -> Result<()> {
    let stack = shared.stack().await?;
    let token = stack.alice().await?;
    let plain = at_both(stack, &modern(&token, "tools/list", json!({}), &[])).await?;
    assert_eq!(plain.status, 200, "{}", plain.text());
    for name in INTERNAL {
        let mut request = modern(&token, "tools/list", json!({}), &[]);
        request.headers.push((name.into(), b"pool-of-another".to_vec()));
        let answer = at_both(stack, &request).await?;
        assert_eq!((answer.status, answer.json()?), (200, plain.json()?), "{name}");
        let mut nobody = legacy("", "tools/list", json!({}), &[]);
        nobody.headers.retain(|(header, _)| header != "authorization");
        nobody.headers.push((name.into(), b"acme".to_vec()));
        let refused = at_both(stack, &nobody).await?;
        assert_eq!(
            (refused.status, refused.reason().as_deref()),
            (401, Some("token_missing")),
            "{name} is no identity"
        );
    }
    Ok(())
}

async fn a_body_that_ends_in_h2_trailers_is_judged_like_any_other(shared: &Shared) -> Result<()> {
    let stack = shared.stack().await?;
    let token = stack.alice().await?;
    let bearer = format!("Bearer {token}");
    let bodies = [
        (r#"{"jsonrpc":"2.0","id":1,"method":"initialize","method":"ping"}"#, 400, Some("invalid_request")),
        (r#"{"jsonrpc":"2.0","id":1,"method":"tools/list""#, 400, Some("parse_error")),
        (r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}"#, 400, Some("session_missing")),
    ];
    for (body, status, reason) in bodies {
        for address in [stack.edge(), stack.gateway()] {
            let request = http::Request::post(format!("http://{}/demo/mcp", stack.edge()))
                .header("authorization", &bearer)
                .header("content-type", "application/json")
                .header("accept", "application/json, text/event-stream")
                .header("te", "trailers")
                .body(body.as_bytes().to_vec())?;
            let answer = http2::send(address, request, &[("x-checksum", "1")]).await?;
            assert_eq!(
                (answer.status, answer.reason().as_deref()),
                (status, reason),
                "{body}: {}",
                answer.text()
            );
        }
    }
    no_reload(stack).await
}

async fn a_session_serves_only_its_principal_and_server(shared: &Shared) -> Result<()> {
    let stack = shared.stack().await?;
    let alice = stack.alice().await?;
    let bob = stack.token(&["--org", "acme", "--user", "bob"]).await?;
    let session = initialize(stack.edge(), &alice).await?;
    let list =
        |token: &str, session: &str| legacy(token, "tools/list", json!({}), &[("mcp-session-id", session)]);
    let own = at_both(stack, &list(&alice, &session)).await?;
    assert_eq!(own.status, 200, "{}", own.text());
    let refreshed = stack.alice().await?;
    assert_eq!(at_both(stack, &list(&refreshed, &session)).await?.status, 200, "a refresh keeps the session");

    let foreign = at_both(stack, &list(&bob, &session)).await?;
    refused(&foreign, 404, "session_unknown");
    let mut elsewhere = list(&alice, &session);
    elsewhere.target = "/conformance/mcp".into();
    refused(&at_both(stack, &elsewhere).await?, 404, "session_unknown");
    let mut altered = session.clone();
    let last = altered.pop().context("a session id is not empty")?;
    altered.push(if last == 'A' { 'B' } else { 'A' });
    refused(&at_both(stack, &list(&alice, &altered)).await?, 404, "session_unknown");
    refused(&at_both(stack, &list(&alice, "guess")).await?, 404, "session_unknown");
    refused(&at_both(stack, &legacy(&alice, "tools/list", json!({}), &[])).await?, 400, "session_missing");

    let mut delete = list(&alice, &session);
    delete.method = "DELETE".into();
    delete.body.clear();
    let deleted = http1::send(stack.edge(), &delete).await?;
    assert!((200..300).contains(&deleted.status), "{}", deleted.text());
    refused(&at_both(stack, &list(&alice, &session)).await?, 404, "session_unknown");
    Ok(())
}

async fn a_modern_header_must_match_its_body(shared: &Shared) -> Result<()> {
    let stack = shared.stack().await?;
    let token = stack.alice().await?;
    let call = json!({"name": "echo", "arguments": {"message": "x"}});
    let replaced = |name: &str, value: Option<&str>| {
        let mut request = modern(&token, "tools/call", call.clone(), &[("mcp-name", "echo")]);
        request.headers.retain(|(header, _)| header != name);
        if let Some(value) = value {
            request.headers.push((name.into(), value.as_bytes().to_vec()));
        }
        request
    };
    assert_eq!(at_both(stack, &replaced("nothing", None)).await?.status, 200);
    for (name, value) in [
        ("mcp-name", Some("clock")),
        ("mcp-name", None),
        ("mcp-method", Some("tools/list")),
        ("mcp-method", None),
        ("mcp-protocol-version", Some("2099-01-01")),
    ] {
        let answer = at_both(stack, &replaced(name, value)).await?;
        assert_eq!(answer.status, 400, "{name} {value:?}: {}", answer.text());
        assert_eq!(answer.json()?["error"]["code"], -32020, "{name} {value:?}: {}", answer.text());
    }
    Ok(())
}

async fn unknown_methods_and_tools_are_refused_in_each_eras_own_way(shared: &Shared) -> Result<()> {
    let stack = shared.stack().await?;
    let token = stack.alice().await?;
    let session = initialize(stack.edge(), &token).await?;
    let in_session = [("mcp-session-id", session.as_str())];
    let nothing = json!({"name": "nothing", "arguments": {}});
    let rows = [
        (legacy(&token, "no/method", json!({}), &in_session), 200, -32601),
        (legacy(&token, "tools/call", nothing.clone(), &in_session), 200, -32602),
        (modern(&token, "no/method", json!({}), &[]), 404, -32601),
        (modern(&token, "initialize", json!({}), &[]), 404, -32601),
        (modern(&token, "tools/call", nothing, &[("mcp-name", "nothing")]), 200, -32602),
    ];
    for (request, status, code) in rows {
        let answer = at_both(stack, &request).await?;
        let found = answer.json()?["error"]["code"].clone();
        assert_eq!((answer.status, found), (status, json!(code)), "{}", answer.text());
    }
    Ok(())
}

/// In the shared stack nobody listens where `everything` is proxied to.
async fn a_dead_upstream_is_a_well_formed_answer_and_harms_no_neighbour(shared: &Shared) -> Result<()> {
    let stack = shared.stack().await?;
    let token = stack.alice().await?;
    let echo = json!({"name": "echo", "arguments": {"message": "x"}});
    let demo = modern(&token, "tools/call", echo, &[("mcp-name", "echo")]);
    let mut everything = demo.clone();
    everything.target = "/everything/mcp".into();
    for _ in 0..10 {
        let answer = at_both(stack, &everything).await?;
        let body = answer.json()?;
        assert_eq!((answer.status, &body["result"]["isError"]), (200, &json!(true)), "{}", answer.text());
        assert_eq!(body["result"]["_meta"]["asp/reason"], "upstream_unavailable", "{}", answer.text());
        assert_eq!(at_both(stack, &demo).await?.status, 200, "the neighbour answers");
    }
    let mut list = modern(&token, "tools/list", json!({}), &[]);
    list.target = "/everything/mcp".into();
    assert_eq!(at_both(stack, &list).await?.status, 200, "its tools are listed all the same");
    Ok(())
}

async fn a_header_above_64_kib_is_refused_as_json(shared: &Shared) -> Result<()> {
    let stack = shared.stack().await?;
    let mut request = legacy("x", "ping", json!({}), &[]);
    request.headers.push(("x-filler".into(), vec![b'a'; 70_000]));
    let answer = http1::send(stack.edge(), &request).await?;
    refused(&answer, 431, "invalid_request");
    no_reload(stack).await
}

fn refused(answer: &Response, status: u16, reason: &str) {
    assert_eq!((answer.status, answer.reason().as_deref()), (status, Some(reason)), "{}", answer.text());
}

/// Sends a request through Envoy and straight at the gateway; both must answer alike.
async fn at_both(stack: &Stack, request: &Request) -> Result<Response> {
    let through = http1::send(stack.edge(), request).await.context("through Envoy")?;
    let mut request = request.clone();
    request.headers.push(("host".into(), stack.edge().to_string().into_bytes()));
    let straight = http1::send(stack.gateway(), &request).await.context("at the gateway")?;
    assert_eq!(
        (through.status, through.text()),
        (straight.status, straight.text()),
        "Envoy, then the gateway"
    );
    Ok(through)
}

async fn no_reload(stack: &Stack) -> Result<()> {
    let reloads = stack.envoy.stats("vm_reload").await?;
    assert!(reloads.values().all(|count| *count == 0), "the filter's VM was restarted: {reloads:?}");
    Ok(())
}
