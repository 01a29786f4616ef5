//! Blocks of users and orgs.

use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::Api;

const BLOCKS: &str = "/api/blocks";
const BOB: &str = "/api/blocks?type=user&org=acme&id=bob";

async fn block(api: &Api, role: &str, body: Value) -> (StatusCode, Value) {
    let answer = api.send(role, Method::POST, BLOCKS, Some(body), &[]).await;
    (answer.status, answer.body)
}

fn bob() -> Value {
    json!({ "type": "user", "org": "acme", "id": "bob", "reason": "left" })
}

#[tokio::test]
async fn a_block_is_listed_published_with_its_reason_and_lifted() {
    let mut api = Api::start().await;
    let (status, made) = block(&api, "org:acme", bob()).await;
    assert_eq!((status, &made["by"], &made["type"]), (StatusCode::CREATED, &json!("org"), &json!("user")));
    let edge = |snapshot: &asp_proto::snapshot::GatewaySnapshot| snapshot.edge.clone().unwrap();
    api.published(|snapshot| {
        edge(snapshot)
            .revoked_before
            .iter()
            .any(|entry| (entry.user.as_str(), entry.reason.as_str(), entry.block) == ("bob", "left", true))
    })
    .await;
    let (status, again) = block(&api, "org:acme", json!({ "type": "user", "id": "bob" })).await;
    assert_eq!((status, &again), (StatusCode::OK, &made), "nothing changes");
    assert_eq!(api.get("org:acme", BLOCKS).await.body, json!([made]));
    assert_eq!(api.get("org:other", BLOCKS).await.body, json!([]));
    assert_eq!(api.get("org:other", "/api/blocks?org=acme").await.status, StatusCode::NOT_FOUND);
    let lifted = api.send("org:acme", Method::DELETE, BOB, None, &[]).await;
    assert_eq!((lifted.status, &lifted.body), (StatusCode::OK, &json!([made])));
    api.published(|snapshot| edge(snapshot).revoked_before.is_empty()).await;
    assert_eq!(api.send("org:acme", Method::DELETE, BOB, None, &[]).await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_block_by_the_platform_is_lifted_by_the_platform_alone() {
    let api = Api::start().await;
    assert_eq!(block(&api, "org:acme", bob()).await.0, StatusCode::CREATED);
    assert_eq!(block(&api, "platform", bob()).await.0, StatusCode::CREATED, "the org could lift its own");
    assert_eq!(block(&api, "org:acme", bob()).await.0, StatusCode::OK);
    assert_eq!(api.send("org:acme", Method::DELETE, BOB, None, &[]).await.status, StatusCode::FORBIDDEN);
    let lifted = api.send("platform", Method::DELETE, BOB, None, &[]).await;
    assert_eq!((lifted.status, lifted.body.as_array().unwrap().len()), (StatusCode::OK, 2));
}

/// Invariant I-12.
#[tokio::test]
async fn a_block_that_names_nothing_or_is_not_the_admins_is_refused() {
    let api = Api::start().await;
    for (role, body, status) in [
        ("platform", json!({ "type": "user", "id": "bob" }), StatusCode::BAD_REQUEST),
        ("platform", json!({ "type": "user", "org": "", "id": "ops" }), StatusCode::BAD_REQUEST),
        ("platform", json!({ "type": "token", "org": "acme", "id": "j1" }), StatusCode::BAD_REQUEST),
        ("platform", json!({ "type": "org", "org": "a", "id": "b" }), StatusCode::BAD_REQUEST),
        ("platform", json!({ "type": "user", "org": "acme", "id": " b" }), StatusCode::BAD_REQUEST),
        (
            "platform",
            json!({ "type": "user", "org": "acme", "id": "b", "reason": "a\nb" }),
            StatusCode::BAD_REQUEST,
        ),
        ("org:acme", json!({ "type": "org", "id": "acme" }), StatusCode::FORBIDDEN),
        ("org:acme", json!({ "type": "org", "id": "other" }), StatusCode::NOT_FOUND),
        ("org:acme", json!({ "type": "user", "org": "other", "id": "bob" }), StatusCode::NOT_FOUND),
        ("org:acme:read", bob(), StatusCode::FORBIDDEN),
    ] {
        let (refused, answer) = block(&api, role, body.clone()).await;
        assert_eq!(refused, status, "{role} {body}: {answer}");
    }
    assert_eq!(api.get("platform", BLOCKS).await.body, json!([]));
}

#[tokio::test]
async fn a_block_is_undone_by_who_says_that_access_is_restored_and_its_undo_blocks_again() {
    let api = Api::start().await;
    block(&api, "org:acme", bob()).await;
    let newest = async || {
        let audit = api.get("org:acme", "/api/audit").await.body;
        audit[0]["revision"].as_u64().unwrap()
    };
    let undo = |revision: u64, query: &str| format!("/api/audit/{revision}/undo{query}");
    let change = newest().await;
    let shown = api.get("org:acme", &undo(change, "")).await.body;
    assert_eq!(
        (&shown["gains"][0]["who"], &shown["gains"][0]["to"]),
        (&json!("user bob"), &json!("not blocked")),
        "{shown}"
    );
    let refused = api.send("org:acme", Method::POST, &undo(change, ""), None, &[]).await;
    assert_eq!(refused.status, StatusCode::CONFLICT);
    let lifted = api.send("org:acme", Method::POST, &undo(change, "?restoreAccess=true"), None, &[]).await;
    assert_eq!(lifted.status, StatusCode::OK, "{}", lifted.body);
    assert_eq!(api.get("org:acme", BLOCKS).await.body, json!([]));
    let again = api.send("org:acme", Method::POST, &undo(newest().await, ""), None, &[]).await;
    assert_eq!(again.status, StatusCode::OK, "{}", again.body);
    let live = api.get("org:acme", BLOCKS).await.body;
    assert_eq!((&live[0]["id"], &live[0]["reason"]), (&json!("bob"), &json!("left")), "{live}");
    let record = api.get("org:acme", "/api/revocations").await.body;
    assert_eq!(record[0]["until"], 253_402_300_799_000_u64, "it has no end");
}

/// Invariant I-12.
#[tokio::test]
async fn an_orgs_admin_does_not_block_the_org_by_an_undo() {
    let mut api = Api::start().await;
    let is_blocked = |snapshot: &asp_proto::snapshot::GatewaySnapshot| {
        snapshot.edge.as_ref().is_some_and(|edge| !edge.revoked_before.is_empty())
    };
    let (status, made) = block(&api, "platform", json!({ "type": "org", "id": "acme" })).await;
    assert_eq!(status, StatusCode::CREATED, "{made}");
    api.published(is_blocked).await;
    assert_eq!(api.get("org:acme", BLOCKS).await.status, StatusCode::UNAUTHORIZED, "its admins are out too");
    let lifted = api.send("platform", Method::DELETE, "/api/blocks?type=org&id=acme", None, &[]).await;
    assert_eq!(lifted.status, StatusCode::OK, "{}", lifted.body);
    api.published(|snapshot| !is_blocked(snapshot)).await;
    let audit = api.get("platform", "/api/audit").await.body;
    let undo = format!("/api/audit/{}/undo", audit[0]["revision"]);
    assert_eq!(api.send("org:acme", Method::POST, &undo, None, &[]).await.status, StatusCode::FORBIDDEN);
    assert_eq!(api.send("platform", Method::POST, &undo, None, &[]).await.status, StatusCode::OK);
}

#[tokio::test]
async fn a_blocked_caller_is_explained_as_blocked_with_the_reason_and_no_end() {
    let api = Api::start().await;
    let stored = api.put("platform", super::DEMO, super::sample("demo")).await;
    assert_eq!(stored.status, StatusCode::OK, "{}", stored.body);
    block(&api, "org:acme", bob()).await;
    let ask = async |user: &str| {
        let question =
            json!({ "org": "acme", "server": "demo", "primitive": "echo", "protocol": "mcp", "user": user });
        api.send("org:acme", Method::POST, "/api/policy/explain", Some(question), &[]).await.body
    };
    let answer = ask("bob").await;
    assert_eq!((&answer["outcome"], &answer["allowed"]), (&json!("blocked"), &json!(false)), "{answer}");
    let shown = &answer["revocations"][0];
    assert_eq!((&shown["type"], &shown["reason"]), (&json!("block_user"), &json!("left")));
    assert_eq!((&shown["issuedUntil"], &shown["until"]), (&Value::Null, &Value::Null));
    assert_eq!(ask("alice").await["outcome"], "allowed");
}
