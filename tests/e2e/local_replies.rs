//! Envoy's own refusals speak the client's protocol (I-11), with the bytes that the edge's code gives.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use asp_e2e::http1::Response;
use asp_e2e::port::Reserved;
use asp_e2e::{http1, tool};
use asp_edge::reason::Era;
use asp_edge::testkit::ReadRefusal;
use asp_edge::{ErrorForm, Reason, refuse};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::boot;
use crate::message::modern;
use crate::trial::{Shared, trials};

/// Hang guard.
const PATIENCE: Duration = Duration::from_secs(20);

trials! { local_replies:
    bodies_in_the_bootstrap_are_those_of_the_edge,
    long_headers_get_one_answer_with_and_without_envoy,
    a_json_rpc_post_keeps_a_json_rpc_body_and_other_paths_get_a_problem,
    what_is_no_http_is_named_alike_with_and_without_envoy,
    what_envoy_refuses_itself_has_the_form_of_the_path,
    envoy_buffers_the_largest_body_that_a_server_may_allow,
}

/// What Envoy lets through the gateway takes, over HTTP/2 as over HTTP/1.1; beyond that both refuse alike (I-1, I-11).
async fn long_headers_get_one_answer_with_and_without_envoy(shared: &Shared) -> Result<()> {
    let stack = shared.stack().await?;
    let token = stack.alice().await?;
    for (kibibytes, status) in [(20, 200), (50, 200), (100, 431)] {
        let value = "v".repeat(kibibytes << 10);
        let request = modern(&token, "tools/list", json!({}), &[("x-long", &value)]);
        let [there, here] = [stack.edge(), stack.gateway()].map(|address| http1::send(address, &request));
        let there = there.await?;
        let here = here.await?;
        ensure!(there.status == status, "{kibibytes} KiB through Envoy: {} {}", there.status, there.text());
        ensure!(here.status == status, "{kibibytes} KiB directly: {} {}", here.status, here.text());
        if status != 200 {
            ensure!(untraced(&there)? == untraced(&here)?, "{} and {}", there.text(), here.text());
            ensure!(here.reason().as_deref() == Some("invalid_request"), "{}", here.text());
        }
    }
    Ok(())
}

/// HTTP/1.0 is served; what is refused as HTTP says what is wrong with it and is never to be repeated as it is.
async fn what_is_no_http_is_named_alike_with_and_without_envoy(shared: &Shared) -> Result<()> {
    let stack = shared.stack().await?;
    let token = stack.alice().await?;
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}"#;
    let chunked = format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    let length = body.len();
    let framed = format!("content-length: {length}\r\n");
    let coding = "a body comes with Content-Length or in chunks";
    let rows = [
        ("HTTP/1.0", framed.clone(), body, 200, ""),
        ("HTTP/1.1", framed.clone(), body, 200, ""),
        ("HTTP/1.1", "transfer-encoding: gzip, chunked\r\n".to_owned(), chunked.as_str(), 501, coding),
        ("HTTP/1.1", "Transfer-Encoding: Chunked\r\n".to_owned(), chunked.as_str(), 200, ""),
    ];
    for (version, framing, body, status, words) in rows {
        for address in [stack.edge(), stack.gateway()] {
            let text = format!(
                "POST /demo/mcp {version}\r\nhost: {}\r\nauthorization: Bearer {token}\r\ncontent-type: application/json\r\n\
                 accept: application/json, text/event-stream\r\nconnection: close\r\n{framing}\r\n{body}",
                stack.edge()
            );
            let answer = raw(address, &text).await?;
            let head = answer.lines().next().unwrap_or_default();
            let said = head.split(' ').nth(1).unwrap_or_default();
            ensure!(said == status.to_string(), "{version} {framing} at {address}: {answer}");
            ensure!(answer.contains(words), "{version} {framing} at {address}: {answer}");
            ensure!(status == 200 || answer.contains("FIX_REQUEST"), "{answer}");
        }
    }
    // Two lengths, or none of the request's host: Envoy's to refuse.
    for (head, body) in [(format!("host: x\r\n{framed}content-length: 1\r\n"), body), (framed, body)] {
        let text = format!("POST /demo/mcp HTTP/1.1\r\n{head}connection: close\r\n\r\n{body}");
        let answer = raw(stack.edge(), &text).await?;
        ensure!(answer.contains("the request is not valid HTTP"), "{head}: {answer}");
        ensure!(!answer.contains("the body is not"), "{head}: {answer}");
    }
    Ok(())
}

/// The refusal of a WebSocket (RFC 6455) is Envoy's own, and has the form that the path has at the edge, also with a slash at its end.
async fn what_envoy_refuses_itself_has_the_form_of_the_path(shared: &Shared) -> Result<()> {
    let stack = shared.stack().await?;
    let token = stack.alice().await?;
    let json = "application/json";
    for (path, kind, member) in [
        ("/demo/mcp", json, r#"{"jsonrpc":"2.0","error""#),
        ("/demo/mcp/", json, r#"{"jsonrpc":"2.0","error""#),
        ("/demo/mcp/?x=1", json, r#"{"jsonrpc":"2.0","error""#),
        ("/demo/mcp//", json, r#""status":400"#),
        ("/demo/a2a", json, r#"{"jsonrpc":"2.0","id":null,"error""#),
        ("/demo/a2a/", json, r#"{"jsonrpc":"2.0","id":null,"error""#),
        ("/demo/a2a/?x=1", json, r#"{"jsonrpc":"2.0","id":null,"error""#),
        ("/demo/a2a/tasks", json, r#""status":"INVALID_ARGUMENT""#),
        ("/demo/a2a/v1/card", json, r#"{"code":-32600,"message""#),
        ("/demo/rest", json, r#""status":400"#),
        ("/lf.a2a.v1.A2AService/GetTask", "application/grpc", "grpc-status: 3"),
    ] {
        let text = format!(
            "GET {path} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {token}\r\ncontent-type: {kind}\r\n\
             connection: upgrade, close\r\n\
             upgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
            stack.edge()
        );
        let answer = raw(stack.edge(), &text).await?;
        let is_named = answer.contains("this server takes no upgrade of a connection");
        ensure!(is_named && answer.contains(member), "{path}: {answer}");
    }
    Ok(())
}

/// All that comes back for these bytes.
async fn raw(address: SocketAddr, request: &str) -> Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    let read = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer)).await;
    // A connection that is reset after its answer has given it.
    if let Ok(Err(error)) = read {
        ensure!(!answer.is_empty(), "{error}");
    }
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// With nothing behind it Envoy answers alone: what a client of the path's protocol can read (JSON-RPC 2.0, RFC 9457).
async fn a_json_rpc_post_keeps_a_json_rpc_body_and_other_paths_get_a_problem(_: &Shared) -> Result<()> {
    let directory = tempfile::tempdir()?;
    let nobody = Reserved::new()?;
    let envoy = boot::start(&directory, nobody.port()).await?;
    let message = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    let reason = Reason::UpstreamUnavailable;
    for (path, form, kind) in [
        ("/demo/mcp", ErrorForm::Mcp, "application/json"),
        ("/demo/a2a", ErrorForm::A2a, "application/json"),
        ("/demo/a2a/message:send", ErrorForm::A2aRest, "application/json"),
        ("/demo/a2a/v1/message:send", ErrorForm::A2aRestV03, "application/json"),
        ("/demo/a2a/v1?x=1", ErrorForm::A2aRestV03, "application/json"),
        ("/demo/a2a/v1x", ErrorForm::A2aRest, "application/json"),
        ("/demo/mcp?x=1", ErrorForm::Mcp, "application/json"),
        ("/healthz", ErrorForm::Problem, "application/problem+json"),
        ("/demo/mcpx", ErrorForm::Problem, "application/problem+json"),
    ] {
        let refusal = form.refuse(reason, Era::Legacy, None);
        let headers =
            [("content-type", "application/json"), ("accept", "application/json, text/event-stream")];
        let answer = http1::post(envoy.address, path, &headers, message).await?;
        ensure!(answer.status == 503, "{path}: {} {}", answer.status, answer.text());
        ensure!(answer.header("content-type") == Some(kind), "{path}: {:?}", answer.header("content-type"));
        ensure!(untraced(&answer)?.to_string().into_bytes() == refusal.body, "{path}: {}", answer.text());
        ensure!(answer.header("cache-control") == Some("no-store"), "{path}");
    }
    let path = "/lf.a2a.v1.A2AService/SendMessage";
    let answer = http1::post(envoy.address, path, &[("content-type", "application/grpc")], "").await?;
    let refusal = ReadRefusal::read(|name| answer.header(name), &answer.body);
    let expected =
        ReadRefusal { reason: Some(reason.as_str().to_owned()), grpc: Some(14), ..ReadRefusal::default() };
    ensure!(answer.status == 200 && refusal == expected, "{refusal:?}: {:?}", answer.headers);
    Ok(())
}

/// Without its trace, which is each request's own, and which Envoy alone does not name.
fn untraced(answer: &Response) -> Result<Value> {
    let mut body = answer.json()?;
    let places =
        ["/error/data/0/metadata", "/error/details/0/metadata", "/data/0/metadata", "/error/data", ""];
    let place = places.into_iter().find(|place| body.pointer(place).is_some_and(Value::is_object));
    let data = place.and_then(|place| body.pointer_mut(place));
    data.and_then(Value::as_object_mut).context("an object")?.remove("traceId");
    Ok(body)
}

async fn envoy_buffers_the_largest_body_that_a_server_may_allow(_: &Shared) -> Result<()> {
    let root = tool::root()?;
    let schema = std::fs::read_to_string(root.join("primitives/schema/server.json"))?;
    let schema: serde_json::Value = serde_json::from_str(&schema)?;
    let largest = schema["properties"]["maxBodyBytes"]["maximum"].as_u64().context("a maximum")?;
    for file in ["envoy/bootstrap.yaml", "envoy/insert.yaml", "envoy/istio/envoy-filter.yaml"] {
        let text = std::fs::read_to_string(root.join(file))?;
        ensure!(
            text.contains(&format!("request_body_buffer_limit: {largest}")),
            "{file} buffers another size"
        );
    }
    Ok(())
}

async fn bodies_in_the_bootstrap_are_those_of_the_edge(_: &Shared) -> Result<()> {
    let bootstrap = std::fs::read_to_string(tool::root()?.join("envoy/bootstrap.yaml"))?;
    let mapped = [Reason::BodyTooLarge, Reason::UnknownServer, Reason::Deadline, Reason::UpstreamUnavailable];
    for reason in mapped {
        let body = String::from_utf8(refuse(reason, Era::Legacy, None, None).body)?;
        let line = format!("inline_string: '{body}'");
        assert!(bootstrap.contains(&line), "envoy/bootstrap.yaml lacks {line}");
        for form in [ErrorForm::A2a, ErrorForm::A2aRest, ErrorForm::A2aRestV03] {
            let body = String::from_utf8(form.refuse(reason, Era::Legacy, None).body)?;
            let line = format!("inline_string: '{body}'");
            assert!(bootstrap.contains(&line), "envoy/bootstrap.yaml lacks {line}");
        }
        let reply = ErrorForm::Grpc.refuse(reason, Era::Legacy, None);
        for (name, value) in reply.headers.iter().filter(|(name, _)| name.starts_with("grpc-")) {
            let line = match *name {
                "grpc-message" => format!("inline_string: '{value}'"),
                name => format!("key: {name}, value: \"{value}\""),
            };
            assert!(bootstrap.contains(&line), "envoy/bootstrap.yaml lacks {line}");
        }
    }
    Ok(())
}
