//! Keys of machines: creation, listing and deletion; a key is never shown again.

use http::{Method, StatusCode};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{Answer, Api};

const KEYS: &str = "/api/machines/orgs/acme/keys";

async fn make(api: &Api, role: &str, path: &str, body: Value) -> Answer {
    api.send(role, Method::POST, path, Some(body), &[]).await
}

async fn delete(api: &Api, role: &str, id: &str) -> StatusCode {
    api.send(role, Method::DELETE, &format!("{KEYS}/{id}"), None, &[]).await.status
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_key_is_shown_once_published_as_a_hash_and_gone_when_it_is_deleted() {
    let mut api = Api::start().await;
    api.allow_machines(&["robots"], &["x:read"]).await;
    let asked = json!({ "machine": "press", "groups": ["robots"], "scopes": ["x:read"], "ttlSeconds": 3600 });
    let made = make(&api, "org:acme", KEYS, asked).await;
    assert_eq!(made.status, StatusCode::CREATED, "{}", made.body);
    let (key, id) = (text(&made.body["key"]), text(&made.body["id"]));
    assert!(key.len() == 89 && key.starts_with(&format!("asp_psk_{id}_")) && id.len() == 16, "{key}");
    let lives = made.body["expiresAt"].as_u64().unwrap() - made.body["createdAt"].as_u64().unwrap();
    assert_eq!(lives, 3_600_000);
    let second = make(&api, "org:acme", KEYS, json!({ "machine": "press" })).await.body;
    assert!(text(&second["key"]) != key && second["id"] != made.body["id"]);
    let lives = second["expiresAt"].as_u64().unwrap() - second["createdAt"].as_u64().unwrap();
    assert_eq!(lives, 90 * 24 * 3_600_000);

    api.published(|snapshot| snapshot.machine_keys.len() == 2).await;
    let snapshot = api.xds_state.borrow().snapshot.clone().unwrap();
    let published = snapshot.whole().machine_keys.into_iter().find(|known| known.id == id).unwrap();
    assert_eq!(published.hash, Sha256::digest(&key).to_vec());
    assert_eq!((published.org.as_str(), published.user.as_str()), ("acme", "press"));
    assert_eq!(
        (published.groups.clone(), published.scopes.clone()),
        (vec!["robots".into()], vec!["x:read".into()])
    );
    let listed = api.get("org:acme:read", KEYS).await.body;
    assert_eq!(listed.as_array().unwrap().len(), 2);
    assert_eq!((&listed[0]["machine"], listed[0].get("key")), (&json!("press"), None));
    let (_, secret) = key.rsplit_once('_').unwrap();
    let hash: String = published.hash.iter().map(|byte| format!("{byte:02x}")).collect();
    for path in [KEYS, "/api/audit", "/api/snapshot"] {
        let shown = api.get("platform", path).await.body.to_string();
        assert!(!shown.contains(secret) && !shown.contains(&hash), "{path}");
    }
    let told = api.get("org:acme", "/api/audit").await.body.to_string();
    assert!(told.contains("machine_key.add") && told.contains("press groups=robots scopes=x:read"), "{told}");
    assert!(!String::from_utf8_lossy(&snapshot.edge.bytes).contains(&id), "nothing of it is at the edge");

    assert_eq!(delete(&api, "org:acme", &id).await, StatusCode::NO_CONTENT);
    assert_eq!(delete(&api, "org:acme", &id).await, StatusCode::NOT_FOUND);
    api.published(|snapshot| snapshot.machine_keys.len() == 1).await;
}

#[tokio::test]
async fn a_key_that_makes_no_sense_is_refused() {
    let api = Api::start().await;
    let with = |name: &str, value: Value| {
        let mut body = json!({ "machine": "press" });
        body[name] = value;
        body
    };
    let long = "x".repeat(400);
    for (body, said) in [
        (with("machine", json!("")), "is empty"),
        (with("machine", json!("a*")), "holds `*`"),
        (with("machine", json!("a\nb")), "control character"),
        (with("machine", json!("x".repeat(513))), "longer than 512"),
        (with("groups", json!(["a", " b"])), "white space"),
        (with("groups", json!(vec!["g"; 17])), "at most 16"),
        (with("scopes", json!(vec!["s"; 17])), "at most 16"),
        (with("scopes", json!(["a b"])), "scopes:"),
        (with("scopes", json!([""])), "scopes:"),
        (with("scopes", json!(["x".repeat(129)])), "scopes:"),
        (with("groups", json!([long, long])), "bytes together"),
        (with("ttlSeconds", json!(59)), "ttlSeconds"),
        (with("ttlSeconds", json!(0)), "ttlSeconds"),
        (with("ttlSeconds", json!(366 * 24 * 3600 + 1)), "ttlSeconds"),
        (with("ttlSeconds", json!(u64::MAX)), "ttlSeconds"),
    ] {
        let answer = make(&api, "platform", KEYS, body).await;
        assert_eq!(
            (answer.status, &answer.body["code"]),
            (StatusCode::BAD_REQUEST, &json!("invalid_params"))
        );
        assert!(text(&answer.body["detail"]).contains(said), "{said}: {}", answer.body);
    }
    for body in [
        json!({}),
        json!({ "machine": 1 }),
        with("groups", json!("g")),
        with("ttlSeconds", json!(-1)),
        with("key", json!("mine")),
        with("org", json!("other")),
    ] {
        assert_eq!(make(&api, "platform", KEYS, body).await.body["code"], "invalid_body");
    }
    assert_eq!(api.get("platform", KEYS).await.body, json!([]));
}

#[tokio::test]
async fn another_orgs_keys_do_not_exist_and_a_reader_makes_none() {
    let api = Api::start().await;
    let body = json!({ "machine": "press" });
    let id = text(&make(&api, "platform", KEYS, body.clone()).await.body["id"]);
    for (role, status) in [
        ("org:other", StatusCode::NOT_FOUND),
        ("server:demo", StatusCode::NOT_FOUND),
        ("installer", StatusCode::NOT_FOUND),
    ] {
        assert_eq!(make(&api, role, KEYS, body.clone()).await.status, status, "{role}");
        assert_eq!(api.get(role, KEYS).await.status, status, "{role}");
        assert_eq!(delete(&api, role, &id).await, status, "{role}");
    }
    for role in ["org:acme:read", "platform:read"] {
        assert_eq!(make(&api, role, KEYS, body.clone()).await.status, StatusCode::FORBIDDEN, "{role}");
        assert_eq!(delete(&api, role, &id).await, StatusCode::FORBIDDEN, "{role}");
    }
    // By the path of another org it is not found either.
    let through = format!("/api/machines/orgs/other/keys/{id}");
    let answer = api.send("org:other", Method::DELETE, &through, None, &[]).await;
    assert_eq!(answer.status, StatusCode::NOT_FOUND);
    assert_eq!(api.get("org:acme", KEYS).await.body.as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn the_revocation_of_a_key_is_kept_as_long_as_the_key_lives() {
    let mut api = Api::start().await;
    let made = make(&api, "org:acme", KEYS, json!({ "machine": "press" })).await.body;
    let revoke = async |kind: &str, id: &str| {
        let body = json!({ "type": kind, "org": "acme", "id": id });
        let answer = api.send("org:acme", Method::POST, "/api/revocations", Some(body), &[]).await;
        assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.body);
        answer.body["until"].clone()
    };
    assert_eq!(revoke("user", "press").await, made["expiresAt"]);
    assert_eq!(revoke("token", &text(&made["id"])).await, made["expiresAt"]);
    assert!(revoke("user", "arm").await.as_u64() < made["expiresAt"].as_u64(), "tokens live a day");
    // Last: it also ends the token of the admin who asks.
    assert_eq!(revoke("org", "acme").await, made["expiresAt"]);
    api.published(|snapshot| {
        let edge = snapshot.edge.clone().unwrap();
        // The id may be a jti of the one issuer too.
        edge.revoked.len() == 32 && edge.revoked_before.len() == 3
    })
    .await;
}
