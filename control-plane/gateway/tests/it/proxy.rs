//! The proxy backends against real services on loopback: an HTTP/JSON service, and another gateway as the
//! upstream MCP server.

use std::net::SocketAddr;
use std::sync::Arc;

use asp_proto::snapshot::{
    GatewaySnapshot, Kind, Mutation, ProxyHttp, ProxyMcp, Runtime, Upstream, runtime::Mode,
};
use asp_registry::assemble;
use axum::extract::{Path, Query, Request};
use axum::routing::{get, post};
use http::{HeaderMap, StatusCode};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tower::ServiceExt;

use crate::support::{Fixture, Legacy, Modern, inputs, snapshot, token};

#[path = "proxy/agents.rs"]
mod agents;
#[path = "proxy/asking.rs"]
mod asking;
#[path = "proxy/bodies.rs"]
mod bodies;
#[path = "proxy/bounds.rs"]
mod bounds;
#[path = "proxy/broken_streams.rs"]
mod broken_streams;
#[path = "proxy/completing.rs"]
mod completing;
#[path = "proxy/drift.rs"]
mod drift;
#[path = "proxy/eras.rs"]
mod eras;
#[path = "proxy/failures.rs"]
mod failures;
#[path = "proxy/faithful.rs"]
mod faithful;
#[path = "proxy/forms.rs"]
mod forms;
#[path = "proxy/linked.rs"]
mod linked;
#[path = "proxy/modern.rs"]
mod modern;
#[path = "proxy/modern_changes.rs"]
mod modern_changes;
#[path = "proxy/operator_lists.rs"]
mod operator_lists;
#[path = "proxy/refused_sessions.rs"]
mod refused_sessions;
#[path = "proxy/relayed.rs"]
mod relayed;
#[path = "proxy/service_auth.rs"]
mod service_auth;
#[path = "proxy/updates.rs"]
mod updates;
#[path = "proxy/upstream.rs"]
mod upstream;

/// Serves a router on loopback until the test's runtime ends.
async fn serve(router: axum::Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    address
}

/// The demo server with `name`'s runtime replaced.
fn with_runtime(name: &str, mode: Mode, mutation: Mutation, upstream: &str) -> GatewaySnapshot {
    let mut snapshot = assemble(inputs());
    for primitive in &mut snapshot.primitives {
        if primitive.id == name {
            primitive.runtime = Some(Runtime { mode: Some(mode.clone()) });
            primitive.output_schema.clear();
            primitive.set_mutation(mutation);
        }
    }
    snapshot.upstreams.push(Upstream {
        name: "service.internal".into(),
        url: upstream.into(),
        primitives: vec!["*".into()],
    });
    snapshot
}

fn http_mapping(path: &str) -> ProxyHttp {
    ProxyHttp {
        method: "POST".into(),
        url: format!("http://service.internal{path}"),
        body: "args".into(),
        ..ProxyHttp::default()
    }
}

async fn echo(fixture: &Fixture, message: &str) -> Value {
    let params = json!({"name": "echo", "arguments": {"message": message}});
    Modern::new("demo", &token("alice"), "tools/call", params).send(fixture).await.json()
}

#[tokio::test]
async fn a_call_is_mapped_to_one_http_request_and_back() {
    let seen: Arc<Mutex<Vec<(String, HeaderMap)>>> = Arc::default();
    let record = seen.clone();
    let service = axum::Router::new().route(
        "/things/{id}",
        post(
            async move |Path(id): Path<String>,
                        Query(query): Query<Vec<(String, String)>>,
                        headers: HeaderMap,
                        body: String| {
                record.lock().push((format!("{id} {query:?} {body}"), headers));
                axum::Json(json!({"data": {"answer": format!("got {id}")}}))
            },
        ),
    );
    let address = serve(service).await;
    let mapping = ProxyHttp {
        query: [("q".to_owned(), "{message}".to_owned()), ("absent".to_owned(), "{nope}".to_owned())].into(),
        headers: [
            ("x-fixed".to_owned(), "1".to_owned()),
            ("x-said".to_owned(), r#"W/"{message}""#.to_owned()),
        ]
        .into(),
        body: r#"{"text": "/message"}"#.into(),
        result: "/data".into(),
        ..http_mapping("/things/{message}")
    };
    let fixture = Fixture::of(with_runtime(
        "echo",
        Mode::ProxyHttp(mapping),
        Mutation::ReadOnly,
        &format!("http://{address}"),
    ));
    let answer = echo(&fixture, "a b/c").await;
    assert_eq!(answer["result"]["structuredContent"], json!({"answer": "got a b/c"}), "{answer}");
    let seen = seen.lock();
    let (request, headers) = &seen[0];
    assert_eq!(request, r#"a b/c [("q", "a b/c")] {"text":"a b/c"}"#);
    assert_eq!(headers["x-fixed"], "1");
    assert_eq!(headers["x-said"], r#"W/"a b/c""#);
    assert!(headers.contains_key("x-deadline-ms") && headers.contains_key("idempotency-key"));
    assert_eq!(headers["traceparent"].len(), 55);
    assert!(!headers.contains_key("authorization") && !headers.contains_key("cookie"));
}

#[tokio::test]
async fn a_specs_own_accept_takes_the_place_of_the_platforms() {
    let seen: Arc<Mutex<Vec<HeaderMap>>> = Arc::default();
    let record = seen.clone();
    let service = axum::Router::new().fallback(async move |headers: HeaderMap| {
        record.lock().push(headers);
        axum::Json(json!({"ok": true}))
    });
    let upstream = format!("http://{}", serve(service).await);
    let own = "application/json, */*;q=0.5";
    for (name, template, expected) in
        [("Accept", "text/csv", "text/csv"), ("accept", "{nope}", own), ("x-other", "1", own)]
    {
        let headers = [(name.to_owned(), template.to_owned())].into();
        let mapping = ProxyHttp { headers, ..http_mapping("/") };
        let snapshot = with_runtime("echo", Mode::ProxyHttp(mapping), Mutation::ReadOnly, &upstream);
        let answer = echo(&Fixture::of(snapshot), "m").await;
        assert_eq!(answer["result"]["isError"], false, "{answer}");
        let headers = seen.lock().pop().unwrap();
        let accepted: Vec<_> = headers.get_all("accept").iter().collect();
        assert_eq!(accepted, [expected], "{name}: {template}");
    }
}

/// A service that knows the key recognises the retry of a client whose first answer was lost.
#[tokio::test]
async fn a_callers_retry_carries_the_same_key_to_the_service_and_nobody_elses_does() {
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let record = seen.clone();
    let service = axum::Router::new().fallback(async move |request: Request| {
        let key = request.headers()["idempotency-key"].to_str().unwrap().to_owned();
        record.lock().push(key);
        StatusCode::TOO_MANY_REQUESTS
    });
    let upstream = format!("http://{}", serve(service).await);
    let mode = Mode::ProxyHttp(http_mapping("/"));
    let fixture = Fixture::of(with_runtime("echo", mode, Mutation::NonIdempotent, &upstream));
    for (user, key) in [("alice", Some("k")), ("alice", Some("k")), ("bob", Some("k")), ("alice", None)] {
        let params = json!({"name": "echo", "arguments": {"message": "m"}});
        let mut request = Modern::new("demo", &token(user), "tools/call", params);
        if let Some(key) = key {
            request.body["params"]["_meta"]["asp/idempotencyKey"] = key.into();
        }
        assert_eq!(request.send(&fixture).await.json()["result"]["_meta"]["asp/reason"], "rate_limited");
    }
    let seen = seen.lock();
    assert_eq!(seen[0], seen[1], "the same caller, the same key");
    let others: std::collections::HashSet<&String> = seen[1..].iter().collect();
    assert_eq!(others.len(), 3, "{others:?}");
}

/// An argument fills its place in the service's path and reaches no other one.
#[tokio::test]
async fn an_argument_never_climbs_out_of_its_place_in_the_services_path() {
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let record = seen.clone();
    let service = axum::Router::new().fallback(async move |request: Request| {
        record.lock().push(request.uri().to_string());
        axum::Json(json!({"ok": true}))
    });
    let upstream = format!("http://{}", serve(service).await);
    let fixture = |url: &str, query: &str, header: &str| {
        let mapping = ProxyHttp {
            query: [("q".to_owned(), query.to_owned())].into(),
            headers: [("x-path".to_owned(), header.to_owned())].into(),
            ..http_mapping(url)
        };
        Fixture::of(with_runtime("echo", Mode::ProxyHttp(mapping), Mutation::ReadOnly, &upstream))
    };
    let climbs =
        ["..", ".", "%2e%2e", "../admin", "a/../../admin", "..\\admin", "..;x", "%252e%252e%252fadmin"];
    for (url, query, header) in [
        ("/users/{message}/profile", "", ""),
        ("/users/{message}{message}", "", ""),
        ("/users/{message}", "", ""),
        ("/fixed", "/users/{message}", ""),
        ("/fixed", "", "/users/{message}"),
    ] {
        let fixture = fixture(url, query, header);
        let messages = if url.contains("}{") { &["."][..] } else { &climbs };
        for message in messages {
            let answer = echo(&fixture, message).await;
            assert_eq!(
                answer["result"]["_meta"]["asp/reason"], "invalid_params",
                "{url} {message}: {answer}"
            );
            let text = answer["result"]["content"][0]["text"].as_str().unwrap();
            assert!(text.contains("/message"), "{text}");
        }
    }
    assert_eq!(*seen.lock(), Vec::<String>::new());
    let answer = echo(&fixture("/users/{message}", "{message}", "{message}"), "a..b/c").await;
    assert_eq!(answer["result"]["isError"], false, "{answer}");
    assert_eq!(*seen.lock(), ["/users/a..b%2Fc?q=a..b%2Fc"]);
}

#[tokio::test]
async fn the_services_errors_are_tool_errors_and_what_may_have_happened_is_said() {
    let service = axum::Router::new()
        .route("/missing", post(async || (StatusCode::NOT_FOUND, "no such thing")))
        .route("/broken", post(async || (StatusCode::INTERNAL_SERVER_ERROR, "stack trace at /srv/app.py:3")))
        .route("/redirect", post(async || (StatusCode::FOUND, [("location", "http://127.0.0.1:1/")])))
        .route("/large", post(async || "x".repeat(11 << 20)));
    let address = serve(service).await;
    let rows = [
        ("/missing", Mutation::ReadOnly, "the service answered 404: no such thing"),
        ("/broken", Mutation::ReadOnly, "the service answered 500"),
        ("/broken", Mutation::NonIdempotent, "the call may or may not have taken effect"),
        ("/redirect", Mutation::ReadOnly, "the service answered 302: it is at http://127.0.0.1:1/"),
        ("/large", Mutation::ReadOnly, "the service's answer is too large"),
    ];
    for (path, mutation, expected) in rows {
        let mode = Mode::ProxyHttp(http_mapping(path));
        let fixture = Fixture::of(with_runtime("echo", mode, mutation, &format!("http://{address}")));
        let answer = echo(&fixture, "m").await;
        assert_eq!(answer["result"]["isError"], true, "{path}: {answer}");
        assert_eq!(answer["result"]["content"][0]["text"], expected, "{path}");
    }
}

#[tokio::test]
async fn a_read_is_repeated_after_a_503_and_a_write_is_not() {
    for (mutation, expected_requests, is_error) in
        [(Mutation::ReadOnly, 3, false), (Mutation::NonIdempotent, 1, true)]
    {
        let count: Arc<Mutex<u32>> = Arc::default();
        let counted = count.clone();
        let service = axum::Router::new().route(
            "/",
            post(async move || {
                let mut count = counted.lock();
                *count += 1;
                if *count < 3 {
                    Err(StatusCode::SERVICE_UNAVAILABLE)
                } else {
                    Ok(axum::Json(json!({"ok": true})))
                }
            }),
        );
        let address = serve(service).await;
        let mode = Mode::ProxyHttp(ProxyHttp { retries: 3, ..http_mapping("/") });
        let fixture = Fixture::of(with_runtime("echo", mode, mutation, &format!("http://{address}")));
        assert_eq!(echo(&fixture, "m").await["result"]["isError"], is_error);
        assert_eq!(*count.lock(), expected_requests);
    }
}

#[tokio::test]
async fn a_dead_service_is_an_error_of_its_own_and_its_neighbours_go_on() {
    // A port nobody listens on: bound, learned and given back.
    let dead = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let mode = Mode::ProxyHttp(http_mapping("/"));
    let fixture = Fixture::of(with_runtime("echo", mode, Mutation::ReadOnly, &format!("http://{dead}")));
    for _ in 0..12 {
        let answer = echo(&fixture, "m").await;
        assert_eq!(answer["result"]["isError"], true);
        assert_eq!(answer["result"]["_meta"]["asp/reason"], "upstream_unavailable");
        assert!(!answer.to_string().contains("127.0.0.1"), "{answer}");
    }
    let text = echo(&fixture, "m").await["result"]["content"][0]["text"].clone();
    assert!(text.as_str().unwrap().contains("gets no requests now"), "{text}");
    let clock = Modern::new("demo", &token("alice"), "tools/call", json!({"name": "clock"}));
    assert_eq!(clock.send(&fixture).await.json()["result"]["isError"], false);
}

#[tokio::test]
async fn an_address_nobody_allowed_is_never_connected_to() {
    let hits: Arc<Mutex<u32>> = Arc::default();
    let counted = hits.clone();
    let sink = axum::Router::new().fallback(async move |_: Request| {
        *counted.lock() += 1;
        StatusCode::OK
    });
    let port = serve(sink).await.port();
    for url in [
        format!("http://127.0.0.1:{port}/"),
        format!("https://127.0.0.1:{port}/"),
        format!("https://localhost:{port}/"),
        format!("http://2130706433:{port}/"),
        format!("https://[::ffff:127.0.0.1]:{port}/"),
        format!("http://user@service.internal.:{port}/"),
        format!("http://{{message}}:{port}/"),
    ] {
        let mapping = ProxyHttp { url: url.clone(), ..http_mapping("/") };
        let snapshot = with_runtime(
            "echo",
            Mode::ProxyHttp(mapping),
            Mutation::ReadOnly,
            &format!("http://127.0.0.1:{port}"),
        );
        let answer = echo(&Fixture::of(snapshot), "127.0.0.1").await;
        assert_eq!(answer["result"]["isError"], true, "{url}");
    }
    assert_eq!(*hits.lock(), 0);
}

/// A gateway whose `conformance` server needs no token, as the upstream.
async fn upstream_gateway() -> SocketAddr {
    let fixture = Fixture::new();
    serve(asp_gateway::http::router(fixture.gateway.clone())).await
}

fn via_mcp(names: &[&str], address: SocketAddr) -> GatewaySnapshot {
    let mut snapshot = assemble(inputs());
    for primitive in &mut snapshot.primitives {
        if names.contains(&primitive.id.as_str()) {
            let tool = match primitive.kind() {
                Kind::Resource => "demo://about".to_owned(),
                _ => primitive.id.clone(),
            };
            let target = ProxyMcp {
                url: "http://service.internal/conformance/mcp".into(),
                tool,
                ..ProxyMcp::default()
            };
            primitive.runtime = Some(Runtime { mode: Some(Mode::ProxyMcp(target)) });
        }
    }
    snapshot.upstreams.push(Upstream {
        name: "service.internal".into(),
        url: format!("http://{address}"),
        primitives: vec!["*".into()],
    });
    snapshot
}

#[tokio::test]
async fn calls_progress_and_errors_of_an_upstream_mcp_server_are_relayed() {
    let address = upstream_gateway().await;
    let fixture = Fixture::of(via_mcp(&["echo", "count"], address));
    let client = Legacy::connect(&fixture, "demo", "alice", "2025-11-25", json!({})).await;
    let answer = client
        .request(2, "tools/call", json!({"name": "echo", "arguments": {"message": "far"}}))
        .await
        .json();
    assert_eq!(answer["result"]["structuredContent"], json!({"message": "far"}), "{answer}");
    let params =
        json!({"name": "count", "arguments": {"to": 3, "delayMs": 1}, "_meta": {"progressToken": "p"}});
    let events = client.request(3, "tools/call", params).await.events();
    let progress = events.iter().filter(|event| event["method"] == "notifications/progress").count();
    assert_eq!(progress, 3, "{events:?}");
    assert_eq!(events.last().unwrap()["result"]["structuredContent"], json!({"counted": 3}));
}

#[tokio::test]
async fn an_upstream_that_lost_its_sessions_is_greeted_again() {
    let current =
        Arc::new(Mutex::new(asp_gateway::http::router(Fixture::sealed_with(snapshot(), 1).gateway)));
    let serving = current.clone();
    let switchable = axum::Router::new().fallback(async move |request: Request| {
        let router = serving.lock().clone();
        router.oneshot(request).await
    });
    let fixture = Fixture::of(via_mcp(&["echo"], serve(switchable).await));
    assert_eq!(echo(&fixture, "one").await["result"]["isError"], false);
    *current.lock() = asp_gateway::http::router(Fixture::sealed_with(snapshot(), 2).gateway);
    let answer = echo(&fixture, "two").await;
    assert_eq!(answer["result"]["structuredContent"], json!({"message": "two"}), "{answer}");
}

#[tokio::test]
async fn a_dead_upstream_mcp_server_is_an_error() {
    let dead = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let fixture = Fixture::of(via_mcp(&["echo"], dead));
    let answer = echo(&fixture, "one").await;
    assert_eq!(answer["result"]["_meta"]["asp/reason"], "upstream_unavailable", "{answer}");
}

#[tokio::test]
async fn an_upstream_that_speaks_garbage_is_an_error() {
    let rows: [(&str, &'static str, StatusCode); 5] = [
        ("application/json", "not json", StatusCode::OK),
        ("application/json", "{\"jsonrpc\":\"2.0\",\"id\":99,\"method\":\"x\"}", StatusCode::OK),
        ("text/event-stream", "data: {\"jsonrpc\":\"2.0\"", StatusCode::OK),
        ("text/html", "<html>", StatusCode::BAD_GATEWAY),
        ("application/json", "", StatusCode::NO_CONTENT),
    ];
    for (kind, body, status) in rows {
        let service = axum::Router::new()
            .fallback(async move |_: Request| (status, [("content-type", kind)], body))
            .route("/alive", get(async || "ok"));
        let address = serve(service).await;
        let answer = echo(&Fixture::of(via_mcp(&["echo"], address)), "m").await;
        assert_eq!(answer["result"]["isError"], true, "{kind} {body}: {answer}");
        assert_eq!(answer["result"]["_meta"]["asp/reason"], "upstream_unavailable", "{body}");
    }
}
