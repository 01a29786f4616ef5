//! Undo of changes: previews, permissions, refusals, and an undo that is undone.

use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::{Answer, Api, DEMO, sample};

const BINDINGS: &str = "/api/policy/orgs/acme/bindings";
const EXPOSURE: &str = "/api/policy/orgs/acme/exposure";
const LIMITS: &str = "/api/ratelimits/orgs/acme";

/// A platform with the server `demo`.
async fn with_demo() -> Api {
    let mut api = Api::start().await;
    api.put("platform", DEMO, sample("demo")).await;
    api.published(|snapshot| snapshot.revision == 1).await;
    api
}

fn deny(user: &str) -> Value {
    json!({ "target": { "type": "user", "idOrPattern": user }, "primitive": { "name": "echo", "protocol": "mcp" },
        "allowed": false })
}

/// Returns the revision of the last change.
async fn newest(api: &Api) -> u64 {
    api.get("platform", "/api/audit?limit=1").await.body[0]["revision"].as_u64().unwrap()
}

/// Stores a body, and returns the revision of the change.
async fn put(api: &Api, path: &str, body: Value) -> u64 {
    let stored = api.put("org:acme", path, body).await;
    assert_eq!(stored.status, StatusCode::OK, "{}", stored.body);
    newest(api).await
}

async fn preview(api: &Api, role: &str, change: u64) -> Answer {
    api.get(role, &format!("/api/audit/{change}/undo")).await
}

async fn undo(api: &Api, role: &str, change: u64, query: &str) -> Answer {
    api.send(role, Method::POST, &format!("/api/audit/{change}/undo{query}"), None, &[]).await
}

fn refusal(answer: &Answer) -> (StatusCode, &str) {
    (answer.status, answer.body["code"].as_str().unwrap_or_default())
}

#[tokio::test]
async fn a_binding_is_undone_after_a_preview_and_the_undo_is_undone() {
    let api = with_demo().await;
    let change = put(&api, BINDINGS, deny("bob")).await;
    let shown = preview(&api, "org:acme:read", change).await;
    assert_eq!(shown.status, StatusCode::OK, "{}", shown.body);
    let gain = json!({ "who": "user bob", "server": "demo", "primitive": "echo", "protocol": "mcp", "from": "denied",
        "to": "allowed" });
    assert_eq!((&shown.body["gains"], &shown.body["loses"]), (&json!([gain]), &json!([])));
    assert_eq!((&shown.body["removes"], &shown.body["restores"]), (&json!([deny("bob")]), &json!([])));
    assert_eq!(api.get("org:acme", BINDINGS).await.body, json!([deny("bob")]), "a preview changes nothing");

    let undone = undo(&api, "org:acme", change, "").await;
    assert_eq!((undone.status, &undone.body["changed"]), (StatusCode::OK, &json!(true)), "{}", undone.body);
    assert_eq!(api.get("org:acme", BINDINGS).await.body, json!([]));
    let rows = api.get("org:acme", "/api/audit?kind=binding").await.body;
    let row = &rows[0];
    assert_eq!((&row["revision"], &row["undoable"]), (&undone.body["revision"], &json!(true)));
    assert!(row["detail"].as_str().unwrap().starts_with(&format!("undoes {change}: ")), "{row}");
    assert_eq!(refusal(&undo(&api, "org:acme", change, "").await), (StatusCode::CONFLICT, "changed_since"));

    let again = undone.body["revision"].as_u64().unwrap();
    let shown = preview(&api, "org:acme", again).await;
    assert_eq!(shown.body["loses"][0]["to"], "denied", "{}", shown.body);
    assert_eq!(undo(&api, "org:acme", again, "").await.status, StatusCode::OK);
    assert_eq!(api.get("org:acme", BINDINGS).await.body, json!([deny("bob")]));
}

#[tokio::test]
async fn a_change_whose_entries_were_touched_since_is_not_undone() {
    let api = with_demo().await;
    let change = put(&api, BINDINGS, deny("bob")).await;
    put(&api, BINDINGS, deny("eve")).await;
    let etag = preview(&api, "org:acme", change).await.etag.unwrap();
    let mut allowed = deny("bob");
    allowed["allowed"] = json!(true);
    let since = put(&api, BINDINGS, allowed.clone()).await;
    for refused in [preview(&api, "org:acme", change).await, undo(&api, "org:acme", change, "").await] {
        assert_eq!(refusal(&refused), (StatusCode::CONFLICT, "changed_since"));
        let detail = refused.body["detail"].as_str().unwrap();
        assert!(detail.contains("asp history --org acme"), "{detail}");
    }
    let path = format!("/api/audit/{since}/undo");
    let stale = api.send("org:acme", Method::POST, &path, None, &[("if-match", etag.as_str())]).await;
    assert_eq!(refusal(&stale), (StatusCode::PRECONDITION_FAILED, "precondition_failed"));
    assert_eq!(undo(&api, "org:acme", since, "").await.status, StatusCode::OK);
    assert_eq!(api.get("org:acme", BINDINGS).await.body, json!([deny("bob"), deny("eve")]));
    assert_eq!(
        undo(&api, "org:acme", change, "").await.status,
        StatusCode::OK,
        "it is as the change left it"
    );
    assert_eq!(api.get("org:acme", BINDINGS).await.body, json!([deny("eve")]));
}

#[tokio::test]
async fn an_undo_needs_the_permission_of_the_change_that_it_makes() {
    let api = with_demo().await;
    let change = put(&api, BINDINGS, deny("bob")).await;
    for (role, expected) in [
        ("org:other", StatusCode::NOT_FOUND),
        ("org:acme:read", StatusCode::FORBIDDEN),
        ("platform:read", StatusCode::FORBIDDEN),
        ("server:demo", StatusCode::NOT_FOUND),
    ] {
        assert_eq!(undo(&api, role, change, "").await.status, expected, "{role}");
    }
    assert_eq!(preview(&api, "org:other", change).await.status, StatusCode::NOT_FOUND);
    let offer = api.put("platform", "/api/registry/servers/demo/offers/acme?force=true", json!(null)).await;
    assert_eq!(offer.status, StatusCode::OK, "{}", offer.body);
    let change = newest(&api).await;
    assert_eq!(undo(&api, "org:acme", change, "").await.status, StatusCode::FORBIDDEN);
    assert_eq!(undo(&api, "platform", change, "").await.status, StatusCode::OK);
    assert_eq!(api.store.offers("demo").await.unwrap().value, []);
    let of_server = refusal(&undo(&api, "platform", 1, "").await).1.to_owned();
    let shown = preview(&api, "platform", 1).await;
    assert_eq!((of_server.as_str(), refusal(&shown).1), ("not_undoable", "not_undoable"));
    assert!(shown.body["detail"].as_str().unwrap().contains("`asp servers versions demo`"), "{}", shown.body);
    assert_eq!(undo(&api, "platform", 999, "").await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn exposure_and_limits_are_undone_with_the_access_that_they_gave_and_took() {
    let api = with_demo().await;
    let change = put(&api, EXPOSURE, json!({ "server": "demo", "protocol": "rest", "enabled": false })).await;
    let shown = preview(&api, "org:acme", change).await.body;
    let gain = json!({ "who": "everyone in acme", "server": "demo", "primitive": "*", "protocol": "rest",
        "from": "off", "to": "on" });
    assert_eq!(shown["gains"], json!([gain]), "{shown}");
    assert_eq!(undo(&api, "org:acme", change, "").await.status, StatusCode::OK);
    assert_eq!(api.get("org:acme", EXPOSURE).await.body, json!([]));

    let limit = |user: &str, capacity: u64| json!({ "selector": { "user": user }, "policy": { "capacity": capacity, "refill": "1/s" } });
    put(&api, LIMITS, json!([limit("each", 5), limit("bob", 1)])).await;
    let change = put(&api, LIMITS, json!([limit("each", 9)])).await;
    let shown = preview(&api, "org:acme", change).await.body;
    let words = |list: &Value| -> Vec<String> {
        let rows = list.as_array().unwrap().iter();
        rows.map(|row| format!("{} {} -> {}", row["who"], row["from"], row["to"]).replace('"', "")).collect()
    };
    assert_eq!(
        words(&shown["loses"]),
        [
            "each user 9 at once, then 1/s -> 5 at once, then 1/s",
            "user bob no such limit -> 1 at once, then 1/s"
        ]
    );
    put(&api, LIMITS, json!([limit("each", 9), limit("eve", 2)])).await;
    assert_eq!(undo(&api, "org:acme", change, "").await.status, StatusCode::OK, "eve's is another entry");
    let users: Vec<Value> = api
        .get("org:acme", LIMITS)
        .await
        .body
        .as_array()
        .unwrap()
        .iter()
        .map(|limit| limit["selector"]["user"].clone())
        .collect();
    assert_eq!(json!(users), json!(["eve", "each", "bob"]));
}

#[tokio::test]
async fn a_revocation_is_undone_only_by_who_says_that_tokens_become_valid_again() {
    let api = with_demo().await;
    let revoke = async |role: &str, user: &str| {
        let body = json!({ "type": "user", "org": "acme", "id": user });
        let made = api.send(role, Method::POST, "/api/revocations", Some(body), &[]).await;
        assert_eq!(made.status, StatusCode::CREATED, "{}", made.body);
        (newest(&api).await, made.body["revocation"].clone())
    };
    let (change, id) = revoke("org:acme", "bob").await;
    let shown = preview(&api, "org:acme", change).await.body;
    assert_eq!(
        (&shown["restoresAccess"], &shown["gains"][0]["who"]),
        (&json!(true), &json!("tokens of user bob"))
    );
    let refused = undo(&api, "org:acme", change, "").await;
    assert_eq!(refusal(&refused), (StatusCode::CONFLICT, "restores_access"));
    assert_eq!(
        api.get("org:acme", "/api/revocations").await.body[0]["revocation"],
        id,
        "it is still revoked"
    );
    let lifted = undo(&api, "org:acme", change, "?restoreAccess=true").await;
    assert_eq!(lifted.status, StatusCode::OK, "{}", lifted.body);
    assert_eq!(api.get("org:acme", "/api/revocations").await.body, json!([]));

    let again = undo(&api, "org:acme", lifted.body["revision"].as_u64().unwrap(), "").await;
    assert_eq!(again.status, StatusCode::OK, "to revoke again needs no more: {}", again.body);
    let live = api.get("org:acme", "/api/revocations").await.body;
    assert_eq!((&live[0]["id"], live[0]["revocation"] == id), (&json!("bob"), false), "{live}");

    let (by_platform, _) = revoke("platform", "eve").await;
    let refused = undo(&api, "org:acme", by_platform, "?restoreAccess=true").await;
    assert_eq!(refusal(&refused), (StatusCode::FORBIDDEN, "forbidden"));
    assert_eq!(undo(&api, "platform", by_platform, "?restoreAccess=true").await.status, StatusCode::OK);
}

#[tokio::test]
async fn several_revocations_of_one_write_are_undone_together() {
    let api = with_demo().await;
    let body = json!({ "type": "token", "org": "acme", "ids": ["t1", "t2", "t3"] });
    api.send("org:acme", Method::POST, "/api/revocations/batch", Some(body), &[]).await;
    let change = newest(&api).await;
    let lifted = undo(&api, "org:acme", change, "?restoreAccess=true").await;
    assert_eq!(lifted.status, StatusCode::OK, "{}", lifted.body);
    assert_eq!(newest(&api).await, change + 1, "one change");
    assert_eq!(api.get("org:acme", "/api/revocations").await.body, json!([]));
    let again = undo(&api, "org:acme", change + 1, "").await;
    assert_eq!(again.status, StatusCode::OK, "{}", again.body);
    assert_eq!(api.get("org:acme", "/api/revocations").await.body.as_array().unwrap().len(), 3);
    let unknown = api.get("org:acme", "/api/audit?kind=bindings").await;
    assert_eq!(refusal(&unknown), (StatusCode::BAD_REQUEST, "invalid_params"));
}

/// Returns the org's three lists, each in an order of its own.
async fn lists(api: &Api) -> Vec<Vec<Value>> {
    let mut all = Vec::new();
    for path in [BINDINGS, EXPOSURE, LIMITS] {
        let mut list = api.get("platform", path).await.body.as_array().unwrap().clone();
        list.sort_by_key(|entry| entry.to_string());
        all.push(list);
    }
    all
}

#[tokio::test]
async fn any_change_and_its_undo_leave_what_was_there() {
    let api = with_demo().await;
    let mut state = 7_u64;
    let mut dice = |sides: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % sides
    };
    let mut undone = 0;
    for _ in 0..120 {
        let before = lists(&api).await;
        let last = api.store.revision().await.unwrap();
        let user = if dice(2) == 0 { "bob" } else { "eve" };
        let (method, path, body) = match dice(8) {
            0..=2 => {
                let mut body = deny(user);
                body["allowed"] = json!(dice(2) == 0);
                (Method::PUT, BINDINGS, Some(body))
            }
            3..=4 => {
                let protocol = if dice(2) == 0 { "mcp" } else { "rest" };
                let body = json!({ "server": "demo", "protocol": protocol, "enabled": dice(2) == 0 });
                (Method::PUT, EXPOSURE, Some(body))
            }
            5 => {
                let policy = json!({ "capacity": 1 + dice(3), "refill": "1/s" });
                (Method::PUT, LIMITS, Some(json!([{ "selector": { "user": user }, "policy": policy }])))
            }
            6 => (Method::DELETE, BINDINGS, None),
            _ => (Method::DELETE, EXPOSURE, None),
        };
        let query = if body.is_some() { "?force=true" } else { "" };
        let answer = api.send("platform", method, &format!("{path}{query}"), body, &[]).await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.body);
        let change = api.store.revision().await.unwrap();
        if change == last || dice(3) == 0 {
            continue;
        }
        let after = lists(&api).await;
        let back = undo(&api, "platform", change, "").await;
        assert_eq!(back.status, StatusCode::OK, "{}", back.body);
        assert_eq!(lists(&api).await, before);
        let again = undo(&api, "platform", back.body["revision"].as_u64().unwrap(), "").await;
        assert_eq!(again.status, StatusCode::OK, "{}", again.body);
        assert_eq!(lists(&api).await, after);
        undone += 1;
    }
    assert!(undone > 30, "{undone} changes were undone");
}
