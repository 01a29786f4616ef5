//! Disabled servers and primitives are stored and not published.

use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::registry::edited;
use super::{Answer, Api, DEMO, sample};

const DISABLED: &str = "/api/registry/servers/demo/disabled";
const ECHO: &str = "/api/registry/servers/demo/disabled/echo";

async fn delete(api: &Api, role: &str, path: &str) -> Answer {
    api.send(role, Method::DELETE, path, None, &[]).await
}

/// Returns the decision about a call of `primitive`.
async fn decision(api: &Api, primitive: &str) -> Value {
    let question = json!({ "org": "acme", "user": "alice", "server": "demo", "primitive": primitive, "protocol": "mcp" });
    api.send("platform", Method::POST, "/api/policy/explain", Some(question), &[]).await.body
}

#[tokio::test]
async fn a_disabled_server_is_not_published_until_it_is_enabled() {
    let mut api = Api::start().await;
    api.put("platform", DEMO, sample("demo")).await;
    api.published(|snapshot| snapshot.servers.iter().any(|server| server.name == "demo")).await;
    let off = api.put("platform", DISABLED, Value::Null).await;
    assert_eq!((off.status, &off.body["changed"]), (StatusCode::OK, &json!(true)), "{}", off.body);
    api.published(|snapshot| {
        snapshot.servers.is_empty() && snapshot.edge.as_ref().unwrap().servers.is_empty()
    })
    .await;
    let decided = decision(&api, "echo").await;
    assert_eq!(decided["outcome"], "not_served", "{decided}");
    assert!(decided["decidedBy"]["rule"].as_str().unwrap().contains("asp servers enable demo"), "{decided}");
    assert_eq!(api.get("platform", "/api/registry/servers").await.body[0]["disabled"], json!(["*"]));
    let again = api.put("platform", DISABLED, Value::Null).await;
    assert_eq!(again.body["changed"], json!(false));
    let files = edited(&sample("demo"), "demo/server.yaml", "name: demo", "name: demo # new");
    assert_eq!(api.put("server:demo", DEMO, files).await.status, StatusCode::OK);
    assert_eq!(decision(&api, "echo").await["outcome"], "not_served", "a new version does not enable it");
    for path in [DISABLED, DEMO] {
        let refused = delete(&api, "server:demo", path).await;
        let code = (refused.status, &refused.body["code"]);
        assert_eq!(code, (StatusCode::FORBIDDEN, &json!("forbidden")), "{path}: {}", refused.body);
    }
    let on = delete(&api, "platform", DISABLED).await;
    assert_eq!((on.status, &on.body["changed"]), (StatusCode::OK, &json!(true)), "{}", on.body);
    api.published(|snapshot| snapshot.servers.iter().any(|server| server.name == "demo")).await;
    assert_eq!(decision(&api, "echo").await["outcome"], "allowed");
    let audit = api.get("platform", "/api/audit?limit=1").await.body;
    assert_eq!(audit[0]["action"], "server.enable", "{audit}");
}

#[tokio::test]
async fn a_disabled_primitive_leaves_the_others_of_its_server() {
    let mut api = Api::start().await;
    api.put("platform", DEMO, sample("demo")).await;
    let listed = |snapshot: &asp_proto::snapshot::GatewaySnapshot| {
        let ids =
            snapshot.servers.iter().flat_map(|server| &server.listings).map(|listing| listing.id.clone());
        ids.collect::<Vec<_>>()
    };
    api.published(|snapshot| listed(snapshot).iter().any(|id| id == "echo")).await;
    assert_eq!(api.put("server:demo", ECHO, Value::Null).await.status, StatusCode::OK);
    api.published(|snapshot| {
        let ids = listed(snapshot);
        let has_it = snapshot.primitives.iter().any(|primitive| primitive.id == "echo");
        !ids.is_empty() && !has_it && ids.iter().all(|id| id != "echo")
    })
    .await;
    let decided = decision(&api, "echo").await;
    assert_eq!(decided["outcome"], "not_served", "{decided}");
    let rule = decided["decidedBy"]["rule"].as_str().unwrap();
    assert!(rule.contains("asp servers enable demo --primitive echo"), "{rule}");
    let unknown = api.put("platform", "/api/registry/servers/demo/disabled/ecko", Value::Null).await;
    assert_eq!(unknown.status, StatusCode::NOT_FOUND);
    assert!(unknown.body["detail"].as_str().unwrap().ends_with("did you mean echo?"), "{}", unknown.body);
    assert_eq!(delete(&api, "server:demo", ECHO).await.status, StatusCode::OK);
    api.published(|snapshot| listed(snapshot).iter().any(|id| id == "echo")).await;
}

#[tokio::test]
async fn only_admins_of_the_platform_and_the_server_disable_it() {
    let api = Api::start().await;
    api.put("platform", DEMO, sample("demo")).await;
    for (role, status) in [
        ("server:other", StatusCode::NOT_FOUND),
        ("server:demo:read", StatusCode::FORBIDDEN),
        ("org:acme", StatusCode::FORBIDDEN),
    ] {
        assert_eq!(api.put(role, DISABLED, Value::Null).await.status, status, "{role}");
    }
    let unknown = api.put("platform", "/api/registry/servers/nobody/disabled", Value::Null).await;
    assert_eq!(unknown.status, StatusCode::NOT_FOUND);
}
