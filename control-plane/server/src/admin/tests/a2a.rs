//! A2A is off for servers that a version without it applied, until they are applied again or confirmed.

use asp_store::control::Change;
use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::registry::edited;
use super::{Api, DEMO, sample};

const CONFIRM: &str = "/api/registry/servers/demo/a2a";

/// Returns the decision about a call over A2A, and the skill in the org's list of primitives.
async fn over_a2a(api: &Api) -> (Value, Value) {
    let question = json!({
        "org": "acme", "user": "alice", "server": "demo", "primitive": "echo", "protocol": "a2a"
    });
    let decided = api.send("platform", Method::POST, "/api/policy/explain", Some(question), &[]).await.body;
    let listed = api.get("org:acme", "/api/registry/orgs/acme/primitives").await.body;
    let echo = listed.as_array().unwrap().iter().find(|primitive| primitive["name"] == "echo").unwrap();
    (decided, echo["exposure"]["a2a"].clone())
}

#[tokio::test]
async fn a2a_is_off_for_a_server_of_another_version_until_it_is_confirmed_or_applied() {
    let api = Api::start().await;
    let files =
        edited(&sample("demo"), "demo/server.yaml", "protocols: [mcp, rest]", "protocols: [mcp, a2a, rest]");
    let first = api.put("server:demo", DEMO, files.clone()).await.body;
    assert_eq!((&first["changed"], &first["a2aSwitchedOn"]), (&json!(true), &json!(false)), "{first}");
    for (path, body) in [(CONFIRM, Value::Null), (DEMO, files)] {
        let (decided, skill) = over_a2a(&api).await;
        assert_eq!((&decided["outcome"], skill), (&json!("allowed"), json!("echo")), "{decided}");
        api.store.touch_server(&Change::unconditional("another version", 1), "demo").await.unwrap();
        assert_eq!(api.get("platform", DEMO).await.body["a2aConfirmed"], false);
        let (decided, skill) = over_a2a(&api).await;
        assert_eq!((&decided["outcome"], skill), (&json!("not_served"), Value::Null), "{decided}");
        let rule = decided["decidedBy"]["rule"].as_str().unwrap();
        assert!(rule.contains("asp servers confirm demo --protocol a2a"), "{rule}");
        let on = api.put("server:demo", path, body.clone()).await;
        assert_eq!((&on.body["changed"], &on.body["a2aSwitchedOn"]), (&json!(true), &json!(true)), "{path}");
        let audit = api.get("platform", "/api/audit?limit=1").await.body;
        assert_eq!(audit[0]["action"], "server.confirm_a2a", "{audit}");
        let again = api.put("server:demo", path, body).await;
        assert_eq!((&again.body["changed"], &again.body["a2aSwitchedOn"]), (&json!(false), &json!(false)));
        assert_eq!(again.etag, on.etag);
    }
    let (decided, _) = over_a2a(&api).await;
    assert_eq!(decided["outcome"], "allowed", "{decided}");
}

#[tokio::test]
async fn only_admins_of_a_server_that_lists_a2a_confirm_it() {
    let api = Api::start().await;
    api.put("platform", DEMO, sample("demo")).await;
    for (role, status) in [
        ("server:other", StatusCode::NOT_FOUND),
        ("server:demo:read", StatusCode::FORBIDDEN),
        ("platform:read", StatusCode::FORBIDDEN),
        ("server:demo", StatusCode::BAD_REQUEST),
    ] {
        assert_eq!(api.put(role, CONFIRM, Value::Null).await.status, status, "{role}");
    }
    let unlisted = api.put("platform", CONFIRM, Value::Null).await.body;
    assert!(unlisted["detail"].as_str().unwrap().contains("does not list a2a"), "{unlisted}");
    let unknown = api.put("platform", "/api/registry/servers/nobody/a2a", Value::Null).await;
    assert_eq!(unknown.status, StatusCode::NOT_FOUND);
}
