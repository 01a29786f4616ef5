//! Requests that a gateway without an edge in front of it refuses (I-1). The whole table is replayed end to end; here
//! the tests check that the gateway evaluates at all.

use http::{Method, StatusCode};
use serde_json::json;

use crate::support::{Fixture, claims, now, sign, token};

/// Path, token, Origin, body, status, reason.
type Row = (&'static str, Option<String>, Option<&'static str>, String, u16, &'static str);

#[tokio::test]
#[allow(clippy::too_many_lines, reason = "a table of cases")]
async fn requests_that_never_passed_the_filter_are_refused_alike() {
    let fixture = Fixture::new();
    let expired = {
        let mut claims = claims("alice");
        claims["iat"] = json!(now() - 200);
        claims["exp"] = json!(now() - 100);
        sign(&claims)
    };
    let elsewhere = {
        let mut claims = claims("alice");
        claims["aud"] = json!("https://elsewhere.example.com");
        sign(&claims)
    };
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"}).to_string();
    let good = token("alice");
    let rows: Vec<Row> = vec![
        ("/nope/mcp", Some(good.clone()), None, ping.clone(), 404, "unknown_server"),
        ("/demo/../demo/mcp", Some(good.clone()), None, ping.clone(), 404, "unknown_server"),
        ("/demo/mcp", None, None, ping.clone(), 401, "token_missing"),
        ("/demo/mcp", Some("x.y.z".into()), None, ping.clone(), 401, "token_invalid"),
        ("/demo/mcp", Some(expired), None, ping.clone(), 401, "token_expired"),
        ("/demo/mcp", Some(elsewhere), None, ping.clone(), 401, "token_invalid"),
        (
            "/demo/mcp",
            Some(good.clone()),
            Some("https://evil.example.com"),
            ping.clone(),
            403,
            "origin_denied",
        ),
        ("/demo/mcp", Some(good.clone()), Some("null"), ping.clone(), 403, "origin_denied"),
        ("/demo/mcp", Some(good.clone()), None, "{".into(), 400, "parse_error"),
        (
            "/demo/mcp",
            Some(good.clone()),
            None,
            r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}"#.into(),
            400,
            "invalid_request",
        ),
        ("/demo/mcp", Some(good.clone()), None, "[".repeat(1_000_000), 400, "parse_error"),
        ("/demo/mcp", Some(good.clone()), None, " ".repeat((1 << 20) + 1), 413, "body_too_large"),
    ];
    for (path, bearer, origin, body, status, reason) in rows {
        let bearer = bearer.map(|token| format!("Bearer {token}"));
        let mut headers = vec![("content-type", "application/json")];
        if let Some(bearer) = &bearer {
            headers.push(("authorization", bearer));
        }
        if let Some(origin) = origin {
            headers.push(("origin", origin));
        }
        let answer = fixture.send(Method::POST, path, &headers, &body).await;
        assert_eq!(
            (answer.status.as_u16(), answer.reason().as_str()),
            (status, reason),
            "{path} {}",
            answer.text
        );
        assert!(answer.json().get("id").is_none());
        if status == 401 {
            let challenge = answer.headers["www-authenticate"].to_str().unwrap();
            assert!(challenge.contains("resource_metadata=\"https://mcp.example.com/.well-known/oauth-protected-resource/demo/mcp\""), "{challenge}");
        }
    }
}

#[tokio::test]
async fn a_browser_on_an_allowed_origin_may_read_the_answer() {
    let fixture = Fixture::new();
    let bearer = format!("Bearer {}", token("alice"));
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-11-25"}}).to_string();
    let headers = [
        ("authorization", bearer.as_str()),
        ("content-type", "application/json"),
        ("origin", "https://mcp.example.com"),
    ];
    let answer = fixture.send(Method::POST, "/demo/mcp", &headers, &ping).await;
    assert_eq!(answer.status, StatusCode::OK);
    assert_eq!(answer.headers["access-control-allow-origin"], "https://mcp.example.com");
    assert!(answer.headers["access-control-expose-headers"].to_str().unwrap().contains("mcp-session-id"));
}

#[tokio::test]
async fn protected_resource_metadata_is_public_and_names_the_server() {
    let fixture = Fixture::new();
    let answer = fixture.send(Method::GET, "/.well-known/oauth-protected-resource/demo/mcp", &[], "").await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text);
    assert_eq!(answer.json()["resource"], "https://mcp.example.com/demo/mcp");
    // The fixture's issuer is not a URL: no authorization server stands behind it.
    assert_eq!(answer.json().get("authorization_servers"), None);
    let platform = fixture.send(Method::GET, "/.well-known/oauth-protected-resource", &[], "").await;
    assert_eq!(platform.json()["resource"], "https://mcp.example.com");
    assert_eq!(platform.json().get("authorization_servers"), None);
    let unknown = fixture.send(Method::GET, "/.well-known/oauth-protected-resource/nope/mcp", &[], "").await;
    assert_eq!(unknown.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn the_root_document_names_the_issuers_of_open_servers_and_a_server_may_hide_its_own() {
    let mut snapshot = crate::support::snapshot();
    let edge = snapshot.edge.as_mut().unwrap();
    let tenant = asp_proto::snapshot::Issuer {
        name: "tenant".into(),
        iss: "https://login.globex.example".into(),
        ..edge.issuers[0].clone()
    };
    edge.issuers.push(tenant);
    let hidden = edge.servers.iter_mut().find(|server| server.name == "policy").unwrap();
    (hidden.default_allow, hidden.issuers) = (false, vec!["tenant".into()]);
    let of_policy = "/.well-known/oauth-protected-resource/policy/mcp";
    let named = async |snapshot: asp_proto::snapshot::GatewaySnapshot, path: &str| {
        let answer = Fixture::of(snapshot).send(Method::GET, path, &[], "").await;
        // Each answer has a trace of its own.
        let without_trace: Vec<_> = answer.text.split(",\"traceId\"").take(1).map(str::to_owned).collect();
        (answer.status, without_trace.concat())
    };
    let (status, root) = named(snapshot.clone(), "/.well-known/oauth-protected-resource").await;
    assert!(status == StatusCode::OK && !root.contains("globex") && root.contains("https://"), "{root}");
    let (_, own) = named(snapshot.clone(), of_policy).await;
    assert!(own.contains("globex"), "who knows the name may log in: {own}");
    let policy = snapshot.servers.iter_mut().find(|server| server.name == "policy").unwrap();
    policy.undiscovered = true;
    let unknown = named(snapshot.clone(), "/.well-known/oauth-protected-resource/nope/mcp").await;
    assert_eq!(named(snapshot, of_policy).await, unknown);
}

/// Invariant I-4.
#[tokio::test]
async fn public_documents_of_one_client_are_bounded_and_the_keys_are_not() {
    let fixture = Fixture::new();
    let get = async |path: &str| fixture.send(Method::GET, path, &[], "").await;
    let mut refused = None;
    for _ in 0..10_000 {
        let answer = get("/.well-known/oauth-protected-resource").await;
        if answer.status != StatusCode::OK {
            refused = Some(answer);
            break;
        }
    }
    let refused = refused.expect("a client reads documents without end");
    assert_eq!(
        (refused.status, refused.json()["reason"].as_str()),
        (StatusCode::TOO_MANY_REQUESTS, Some("rate_limited"))
    );
    assert!(refused.headers.contains_key("retry-after"));
    assert_eq!(get("/.well-known/jwks.json").await.status, StatusCode::OK);
}

#[tokio::test]
async fn an_older_snapshot_is_refused_and_the_newer_one_stays() {
    let fixture = Fixture::new();
    let mut older = crate::support::snapshot();
    older.revision = 0;
    let error = fixture.gateway.apply(older).unwrap_err();
    assert!(error.contains("older"), "{error}");
    assert_eq!(fixture.gateway.revision(), 1);
    let mut broken = crate::support::snapshot();
    broken.revision = 2;
    broken.primitives[0].input_schema = "{\"type\": 7}".into();
    let error = fixture.gateway.apply(broken).unwrap_err();
    assert!(error.contains("input schema"), "{error}");
    assert_eq!(fixture.gateway.revision(), 1);
}
