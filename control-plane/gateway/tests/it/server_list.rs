//! The servers that everybody may list, by the MCP registry API.

use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::support::{Answer, Fixture, PUBLIC_URL, snapshot};

async fn get(fixture: &Fixture, path: &str) -> Answer {
    fixture.send(Method::GET, path, &[], "").await
}

fn names(page: &Value) -> Vec<String> {
    let servers = page["servers"].as_array().unwrap();
    servers.iter().map(|entry| entry["server"]["name"].as_str().unwrap().to_owned()).collect()
}

/// All fixtures, of which `demo` changed at second 1,000, `policy` is exposed by exception alone and `pay` is for REST.
fn fixture() -> Fixture {
    let mut snapshot = snapshot();
    for server in &mut snapshot.edge.as_mut().unwrap().servers {
        match server.name.as_str() {
            "policy" => server.default_allow = false,
            "pay" => server.protocols = vec![asp_proto::snapshot::Protocol::Rest.into()],
            _ => server.default_allow = true,
        }
    }
    for server in &mut snapshot.servers {
        server.updated_unix_ms = if server.name == "demo" { 1_000_000 } else { 0 };
    }
    Fixture::of(snapshot)
}

#[tokio::test]
async fn every_server_that_all_may_know_of_is_listed_once_whatever_the_pages() {
    let fixture = fixture();
    let all = get(&fixture, "/v0.1/servers?limit=100").await;
    assert_eq!(
        (all.status, all.headers["content-type"].as_bytes()),
        (StatusCode::OK, &b"application/json"[..])
    );
    let all = names(&all.json());
    assert!(all.len() > 3 && all.is_sorted(), "{all:?}");
    assert!(all.contains(&"com.example.mcp/demo".to_owned()));
    assert!(!all.iter().any(|name| name.ends_with("/policy") || name.ends_with("/pay")), "{all:?}");
    let (mut paged, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = get(&fixture, &format!("/v0.1/servers?limit=1&cursor={cursor}")).await.json();
        assert_eq!(page["metadata"]["count"], 1);
        paged.extend(names(&page));
        match page["metadata"]["nextCursor"].as_str() {
            Some(next) => cursor = next.to_owned(),
            None => break,
        }
    }
    assert_eq!(paged, all);
    let past_the_end = get(&fixture, "/v0.1/servers?cursor=zzzz").await.json();
    assert_eq!(past_the_end, json!({"servers": [], "metadata": {"count": 0}}));
}

#[tokio::test]
async fn a_list_is_narrowed_down_by_name_version_and_time() {
    let fixture = fixture();
    let demo = ["com.example.mcp/demo"];
    for (query, expected) in [
        ("search=DEM", &demo[..]),
        ("search=%2Fdemo", &demo),
        ("search=nothing-like-it", &[]),
        ("search=demo&version=latest", &demo),
        ("search=demo&version=99.0.0", &[]),
        ("updated_since=1970-01-01T00:16:40Z", &demo),
        ("updated_since=1970-01-01T00:16:40.001Z", &[]),
    ] {
        assert_eq!(
            names(&get(&fixture, &format!("/v0.1/servers?{query}")).await.json()),
            expected,
            "{query}"
        );
    }
    for query in ["limit=0", "limit=x", "updated_since=yesterday"] {
        let refused = get(&fixture, &format!("/v0.1/servers?{query}")).await;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{query}");
        assert!(refused.json()["error"].is_string(), "{query}");
    }
}

#[tokio::test]
async fn an_entry_says_where_the_server_is_and_another_one_is_not_found() {
    let fixture = fixture();
    let entry = get(&fixture, "/v0.1/servers/com.example.mcp%2Fdemo/versions/latest").await.json();
    let detail = &entry["server"];
    assert_eq!(detail["name"], "com.example.mcp/demo");
    assert_eq!(
        detail["remotes"],
        json!([{"type": "streamable-http", "url": format!("{PUBLIC_URL}/demo/mcp")}])
    );
    let official = &entry["_meta"]["io.modelcontextprotocol.registry/official"];
    let expected = json!({"status": "active", "isLatest": true, "updatedAt": "1970-01-01T00:16:40.000Z"});
    assert_eq!(*official, expected);
    let version = detail["version"].as_str().unwrap();
    let same =
        get(&fixture, &format!("/v0.1/servers/com.example.mcp%2fdemo/versions/{version}")).await.json();
    assert_eq!(same, entry);
    let versions = get(&fixture, "/v0.1/servers/com.example.mcp%2Fdemo/versions").await.json();
    assert_eq!(versions, json!({"servers": [entry], "metadata": {"count": 1}}));
    let unknown = get(&fixture, "/v0.1/servers/com.example.mcp%2Fnowhere/versions").await;
    assert_eq!(
        (unknown.status, unknown.json()),
        (StatusCode::NOT_FOUND, json!({"error": "Server not found"}))
    );
    for path in [
        "com.example.mcp%2Fpolicy/versions",
        "com.example.mcp%2Fpay/versions/latest",
        "com.example.mcp%2Fdemo",
        "com.example.mcp%2Fdemo/versions/",
        "com.example.mcp%2Fdemo/versions/99.0.0",
        "com.example.mcp%2Fdemo/versionsx",
        "com.example.mcp/versions/latest",
        "org.example%2Fdemo/versions",
        "demo/versions",
    ] {
        let hidden = get(&fixture, &format!("/v0.1/servers/{path}")).await;
        assert_eq!(hidden.status, StatusCode::NOT_FOUND, "{path}");
    }
    let other = get(&fixture, "/v0.1/publish").await;
    assert_eq!((other.status, other.text), (unknown.status, unknown.text));
    let post = fixture.send(Method::POST, "/v0.1/publish", &[], "{}").await;
    assert_eq!(post.status, StatusCode::METHOD_NOT_ALLOWED);
}

#[tokio::test]
async fn nobody_may_list_servers_where_the_operator_did_not_say_so() {
    let fixture = Fixture::without_registry(snapshot());
    let [closed, unknown] = ["/v0.1/servers", "/nowhere/rest/x"].map(|path| get(&fixture, path));
    let (closed, unknown) = (closed.await, unknown.await);
    assert_eq!((closed.status, &closed.json()["reason"]), (unknown.status, &json!("unknown_server")));
    assert_eq!(closed.headers["content-type"], unknown.headers["content-type"]);
    let demo = get(&fixture, "/v0.1/servers/com.example.mcp%2Fdemo/versions").await;
    assert_eq!(demo.status, StatusCode::NOT_FOUND);
}
