//! Revocations, groups and scopes in the answers of `explain`, and the answers to a server's team (I-12).

use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::{Answer, Api, DEMO, sample};

const BINDINGS: &str = "/api/policy/orgs/acme/bindings";

async fn ask(api: &Api, role: &str, caller: Value) -> Answer {
    let mut question = json!({ "org": "acme", "server": "demo", "primitive": "echo", "protocol": "mcp" });
    question.as_object_mut().unwrap().extend(caller.as_object().unwrap().clone());
    api.send(role, Method::POST, "/api/policy/explain", Some(question), &[]).await
}

async fn bind(api: &Api, kind: &str, target: &str, allowed: bool) {
    let body = json!({ "target": { "type": kind, "idOrPattern": target }, "primitive": { "name": "echo" },
        "allowed": allowed });
    let stored = api.put("org:acme", BINDINGS, body).await;
    assert_eq!(stored.status, StatusCode::OK, "{}", stored.body);
}

async fn revoke(api: &Api, role: &str, body: Value) -> Value {
    let made = api.send(role, Method::POST, "/api/revocations", Some(body), &[]).await;
    assert_eq!(made.status, StatusCode::CREATED, "{}", made.body);
    made.body
}

/// A platform with the server `demo`, which wants these scopes.
async fn with_demo(scopes: &str) -> Api {
    let api = Api::start().await;
    let mut files = sample("demo");
    for file in files["files"].as_array_mut().unwrap() {
        let wanted = format!("issuers: [dev], scopes: [{scopes}]");
        file["text"] = json!(file["text"].as_str().unwrap().replace("issuers: [dev]", &wanted));
    }
    let stored = api.put("platform", DEMO, files).await;
    assert_eq!(stored.status, StatusCode::OK, "{}", stored.body);
    api
}

#[tokio::test]
async fn a_revoked_user_is_explained_with_the_end_the_maker_and_the_id_of_the_revocation() {
    let api = with_demo("").await;
    let made =
        revoke(&api, "org:acme", json!({ "type": "user", "org": "acme", "id": "bob", "reason": "left" }))
            .await;
    let bob = ask(&api, "org:acme", json!({ "user": "bob" })).await.body;
    assert_eq!(bob["outcome"], "allowed", "a token that is issued later works");
    let said = &bob["revocations"][0];
    assert_eq!(
        (&said["type"], &said["by"], &said["reason"]),
        (&json!("user"), &json!("org"), &json!("left"))
    );
    for member in ["revocation", "issuedUntil", "until"] {
        assert_eq!(said[member], made[member], "{member}");
    }
    let alice = ask(&api, "org:acme", json!({ "user": "alice" })).await.body;
    assert_eq!(alice.get("revocations"), None);
    let team = ask(&api, "server:demo", json!({ "user": "bob" })).await.body;
    assert_eq!(team["revocations"], json!([{ "type": "user", "issuedUntil": made["issuedUntil"] }]));
}

#[tokio::test]
async fn a_revoked_token_is_refused_and_what_the_platform_revoked_is_named_to_the_platform() {
    let api = with_demo("").await;
    let made = revoke(&api, "platform", json!({ "type": "token", "id": "t-1" })).await;
    let token = json!({ "user": "alice", "wcit": "t-1" });
    let platform = ask(&api, "platform", token.clone()).await.body;
    assert_eq!((&platform["outcome"], &platform["allowed"]), (&json!("token_revoked"), &json!(false)));
    assert_eq!(platform["revocations"][0]["revocation"], made["revocation"]);
    let org = ask(&api, "org:acme", token).await.body;
    assert_eq!((&org["outcome"], org.get("revocations")), (&json!("token_revoked"), None));
    let other = ask(&api, "platform", json!({ "user": "alice", "wcit": "t-2" })).await.body;
    assert_eq!(other["outcome"], "allowed");
}

#[tokio::test]
async fn groups_and_tokens_that_would_change_the_answer_are_named() {
    let api = with_demo("").await;
    bind(&api, "group", "clerks*", false).await;
    bind(&api, "wcit", "t-9", false).await;
    bind(&api, "group", "ops", true).await;
    let conditional = json!({ "target": { "type": "group", "idOrPattern": "audit" }, "primitive": { "name": "echo" },
        "allowed": false, "when": [{ "pointer": "/message", "equals": "x" }] });
    assert_eq!(api.put("org:acme", BINDINGS, conditional).await.status, StatusCode::OK);
    let bob = ask(&api, "org:acme", json!({ "user": "bob" })).await.body;
    assert_eq!(bob["outcome"], "allowed");
    let mut depends = bob["depends"].as_array().unwrap().clone();
    depends.sort_by_key(Value::to_string);
    let denied = |kind: &str, target: &str| json!({ kind: target, "outcome": "denied" });
    let some = json!({ "group": "audit", "outcome": "denied", "when": true });
    assert_eq!(depends, [some, denied("group", "clerks*"), denied("wcit", "t-9")], "ops changes nothing");
    let hi = ask(&api, "org:acme", json!({ "user": "bob", "arguments": { "message": "hi" } })).await.body;
    assert!(!hi["depends"].to_string().contains("audit"), "not about these arguments: {hi}");
    let clerk =
        ask(&api, "org:acme", json!({ "user": "bob", "groups": ["clerks-1"], "wcit": "t" })).await.body;
    // A group that is named exactly is more specific than one by a pattern.
    assert_eq!(
        (&clerk["outcome"], &clerk["depends"]),
        (&json!("denied"), &json!([{ "group": "ops", "outcome": "allowed" }]))
    );
}

#[tokio::test]
async fn a_missing_scope_is_named() {
    let api = with_demo("shop:read, shop:buy").await;
    for role in ["org:acme", "server:demo"] {
        let answer = ask(&api, role, json!({ "user": "bob", "scopes": ["shop:read"] })).await.body;
        assert_eq!(answer["outcome"], "insufficient_scope", "{role}: {answer}");
        assert_eq!(answer["decidedBy"]["missing"], json!(["shop:buy"]), "{role}");
    }
}

#[tokio::test]
async fn a_servers_team_is_told_that_the_orgs_policy_denies_and_nothing_of_its_rules() {
    let api = with_demo("").await;
    bind(&api, "group", "clerks", false).await;
    let limits = json!([{ "selector": { "user": "each" }, "policy": { "capacity": 7, "refill": "1/s" } }]);
    assert_eq!(api.put("org:acme", "/api/ratelimits/orgs/acme", limits).await.status, StatusCode::OK);
    let clerk = json!({ "user": "bob", "groups": ["clerks"] });
    let org = ask(&api, "org:acme", clerk.clone()).await.body;
    assert_eq!(org["decidedBy"]["binding"]["target"]["idOrPattern"], "clerks");
    assert!(org["limits"].is_array(), "{org}");
    for role in ["server:demo", "server:demo:read"] {
        let team = ask(&api, role, clerk.clone()).await.body;
        // The team may read the switches of its server by another resource, too.
        let expected = json!({ "allowed": false, "outcome": "denied", "revision": org["revision"],
            "decidedBy": { "stage": "bindings", "withheld": true }, "switches": org["switches"] });
        assert_eq!(team, expected, "{role}");
    }
    let allowed = ask(&api, "server:demo", json!({ "user": "bob" })).await.body;
    assert_eq!((&allowed["outcome"], allowed.get("depends")), (&json!("allowed"), None), "{allowed}");
    let conditions = json!({ "user": "bob", "arguments": { "message": "hi" } });
    assert_eq!(ask(&api, "server:demo", conditions).await.status, StatusCode::FORBIDDEN);
    for role in ["server:other", "installer", "org:other"] {
        let answer = ask(&api, role, clerk.clone()).await;
        assert_eq!(
            (answer.status, &answer.body["code"]),
            (StatusCode::NOT_FOUND, &json!("not_found")),
            "{role}"
        );
    }
    let elsewhere = json!({ "user": "bob", "server": "nowhere" });
    assert_eq!(ask(&api, "server:demo", elsewhere).await.status, StatusCode::NOT_FOUND);
}
