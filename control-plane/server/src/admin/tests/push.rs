//! Dead letters of push notifications, for admins of the platform and of their org.

use std::time::Duration;

use asp_store::push::{PushStore, ReceiverRow};
use asp_store::records::{self, CallRecords, End, OwnerId, State};
use bytes::Bytes;
use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::Api;

const LIST: &str = "/api/push/dead-letters";

/// Makes dead letters of a call of acme in two states, and returns their paths, the latest first.
async fn dead_letters(api: &Api) -> Vec<String> {
    let owner = OwnerId([1; 16]);
    let key = records::suite::key(1);
    let record = || Bytes::from_static(b"r");
    api.pushes.put(&key, owner, State::Working, record()).await.unwrap();
    let config = "c".to_owned();
    let origin = "https://example.com".to_owned();
    let receiver = ReceiverRow { config, origin, sealed: Bytes::from_static(b"secret") };
    api.pushes.put_receiver(key.call, "acme", &receiver).await.unwrap();
    api.pushes.put(&key, owner, State::InputRequired, record()).await.unwrap();
    let end =
        End { state: State::Completed, record: record(), outcome: record(), keep: Duration::from_secs(600) };
    api.pushes.finish(&key, owner, end).await.unwrap();
    for _ in 0..2 {
        for due in api.pushes.claim_deliveries([1; 16], Duration::from_secs(60), 10).await.unwrap() {
            assert!(api.pushes.bury_delivery(&due, "HTTP 503").await.unwrap());
        }
    }
    let listed = api.get("platform", LIST).await.body;
    listed.as_array().unwrap().iter().map(|one| format!("{LIST}/{}", one["id"])).collect()
}

async fn count(api: &Api, role: &str, path: &str) -> usize {
    api.get(role, path).await.body.as_array().unwrap().len()
}

#[tokio::test]
async fn dead_letters_are_read_without_secrets_and_by_an_org_only_as_far_as_they_are_its_own() {
    let api = Api::start().await;
    let paths = dead_letters(&api).await;
    assert_eq!(paths.len(), 2);
    let one = api.get("org:acme:read", &paths[0]).await;
    assert_eq!(one.status, StatusCode::OK, "{}", one.body);
    for (member, expected) in [
        ("org", json!("acme")),
        ("config", json!("c")),
        ("receiver", json!("https://example.com")),
        ("state", json!("completed")),
        ("attempts", json!(1)),
        ("fault", json!("HTTP 503")),
    ] {
        assert_eq!(one.body[member], expected, "{}", one.body);
    }
    assert_eq!(one.body["task"], "01010101-0101-0101-0101-010101010101");
    assert!(!one.body.to_string().contains("secret"));

    let last = paths[0].rsplit('/').next().unwrap();
    assert_eq!(count(&api, "platform", &format!("{LIST}?before={last}")).await, 1);
    assert_eq!(count(&api, "platform:read", &format!("{LIST}?org=acme&limit=1")).await, 1);
    assert_eq!(count(&api, "org:acme", LIST).await, 2);
    assert_eq!(count(&api, "org:other", LIST).await, 0);
    assert_eq!(api.get("org:other", &format!("{LIST}?org=acme")).await.status, StatusCode::NOT_FOUND);
    for path in [paths[0].clone(), format!("{LIST}/0"), format!("{LIST}/x")] {
        assert_eq!(api.get("org:other", &path).await.status, StatusCode::NOT_FOUND, "{path}");
    }
}

#[tokio::test]
async fn dead_letters_are_replayed_and_dropped_by_writers_of_their_org_and_audited() {
    let api = Api::start().await;
    let paths = dead_letters(&api).await;
    let replay = format!("{}/replay", paths[1]);
    for (role, expected) in [("org:other", StatusCode::NOT_FOUND), ("org:acme:read", StatusCode::FORBIDDEN)] {
        let refused = api.send(role, Method::POST, &replay, Some(Value::Null), &[]).await;
        assert_eq!(refused.status, expected, "{role}");
        let refused = api.send(role, Method::DELETE, &paths[0], None, &[]).await;
        assert_eq!(refused.status, expected, "{role}");
    }
    let done = api.send("org:acme", Method::POST, &replay, Some(Value::Null), &[]).await;
    assert_eq!(done.status, StatusCode::NO_CONTENT, "{}", done.body);
    assert_eq!(api.pushes.claim_deliveries([2; 16], Duration::ZERO, 10).await.unwrap().len(), 1);
    let again = api.send("org:acme", Method::POST, &replay, Some(Value::Null), &[]).await;
    assert_eq!(again.status, StatusCode::NOT_FOUND, "it is none any more");
    let done = api.send("platform", Method::DELETE, &paths[0], None, &[]).await;
    assert_eq!(done.status, StatusCode::NO_CONTENT, "{}", done.body);
    assert_eq!(count(&api, "platform", LIST).await, 0);
    let audit = api.get("org:acme", "/api/audit").await.body;
    let rows = audit.as_array().unwrap().iter();
    let actions: Vec<&str> = rows
        .map(|row| row["action"].as_str().unwrap())
        .filter(|action| action.starts_with("push."))
        .collect();
    assert_eq!(actions, ["push.drop", "push.replay"]);
}
