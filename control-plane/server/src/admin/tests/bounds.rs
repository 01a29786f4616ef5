//! The bound of an org's machines: groups and scopes that they may have (I-12).

use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::certificates::{issued, proved};
use super::{Answer, Api};

const BOUND: &str = "/api/machines/orgs/acme/bound";
const KEYS: &str = "/api/machines/orgs/acme/keys";
const CERTIFICATES: &str = "/api/machines/orgs/acme/certificates";

async fn post(api: &Api, path: &str, body: Value) -> Answer {
    api.send("org:acme", Method::POST, path, Some(body), &[]).await
}

#[tokio::test]
async fn an_orgs_admin_gives_machines_no_group_and_no_scope_that_the_platform_does_not_allow() {
    let api = Api::start().await;
    let admin = json!({ "machine": "x", "scopes": ["payments:admin"] });
    let (certificate, key) = issued(&[]);
    let mut finance = proved("acme", "x", (&certificate, &key), asp_platform::clock::now_ms() / 1_000);
    finance["groups"] = json!(["finance"]);
    for (path, body, beyond) in
        [(KEYS, &admin, "scope payments:admin"), (CERTIFICATES, &finance, "group finance")]
    {
        let refused = post(&api, path, body.clone()).await;
        assert_eq!((refused.status, &refused.body["code"]), (StatusCode::CONFLICT, &json!("limit_reached")));
        assert!(refused.body["detail"].as_str().unwrap().contains(beyond), "{}", refused.body);
    }
    for role in ["org:acme", "platform:read"] {
        let bound = json!({ "scopes": ["payments:admin"] });
        assert_eq!(api.put(role, BOUND, bound).await.status, StatusCode::FORBIDDEN, "{role}");
    }
    assert_eq!(api.get("org:other", BOUND).await.status, StatusCode::NOT_FOUND);
    api.allow_machines(&["finance"], &["payments:admin"]).await;
    assert_eq!(post(&api, KEYS, admin.clone()).await.status, StatusCode::CREATED);
    assert_eq!(post(&api, CERTIFICATES, finance).await.status, StatusCode::CREATED);
    let more = json!({ "machine": "x", "scopes": ["payments:admin", "payments"] });
    assert_eq!(post(&api, KEYS, more).await.status, StatusCode::CONFLICT, "exact names, no prefixes");
    let others = api.send("org:other", Method::POST, "/api/machines/orgs/other/keys", Some(admin), &[]).await;
    assert_eq!(others.status, StatusCode::CONFLICT, "a bound is one org's");
}

#[tokio::test]
async fn a_machine_beyond_a_narrower_bound_is_published_no_more() {
    let mut api = Api::start().await;
    api.allow_machines(&[], &["a", "b"]).await;
    let first = post(&api, KEYS, json!({ "machine": "x", "scopes": ["a"] })).await;
    let second = post(&api, KEYS, json!({ "machine": "x", "scopes": ["b"] })).await;
    api.published(|snapshot| snapshot.machine_keys.len() == 2).await;
    let narrower = api.put("platform", BOUND, json!({ "scopes": ["a"] })).await;
    assert_eq!(narrower.body["beyond"], json!([second.body["id"]]), "{}", narrower.body);
    api.published(|snapshot| snapshot.machine_keys.len() == 1).await;
    api.published(|snapshot| snapshot.machine_keys[0].id == first.body["id"].as_str().unwrap()).await;
    // Another key has the machines of every org read again.
    assert_eq!(post(&api, KEYS, json!({ "machine": "y" })).await.status, StatusCode::CREATED);
    api.published(|snapshot| snapshot.machine_keys.len() == 2).await;
    api.allow_machines(&[], &["a", "b"]).await;
    api.published(|snapshot| snapshot.machine_keys.len() == 3).await;
    let gone = api.send("platform", Method::DELETE, BOUND, None, &[]).await;
    assert_eq!(gone.status, StatusCode::OK, "{}", gone.body);
    api.published(|snapshot| snapshot.machine_keys.len() == 1).await;
    let shown = api.get("org:acme", BOUND).await.body;
    assert_eq!((&shown["groups"], shown["beyond"].as_array().unwrap().len()), (&json!([]), 2));
}
