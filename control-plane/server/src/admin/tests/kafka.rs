//! Parked messages of the topic of revocations.

use asp_store::control::ParkedEvent;
use http::{Method, StatusCode};

use super::Api;

const PARKED: &str = "/api/kafka/parked";

#[tokio::test]
async fn parked_messages_are_read_and_dropped_by_the_platforms_admins() {
    let api = Api::start().await;
    for n in [1, 2] {
        let parked = ParkedEvent {
            id: format!("asp.revocations:0:{n}"),
            parked_at: n,
            fault: "it is not the JSON of an event: line 1 column 1".into(),
            payload: "hello".into(),
        };
        api.store.park_event(&parked).await.unwrap();
    }
    let listed = api.get("platform:read", PARKED).await;
    assert_eq!(listed.status, StatusCode::OK, "{}", listed.body);
    assert_eq!(listed.body[0]["id"], "asp.revocations:0:2", "{}", listed.body);
    assert_eq!(listed.body[1]["message"], "hello");
    assert_eq!(listed.body[1]["parkedAt"], "1970-01-01T00:00:00.001Z");
    let few = api.get("platform", &format!("{PARKED}?limit=1")).await;
    assert_eq!(few.body.as_array().unwrap().len(), 1);

    let one = format!("{PARKED}/asp.revocations:0:1");
    let delete = async |role: &str| api.send(role, Method::DELETE, &one, None, &[]).await.status;
    assert_eq!(api.get("org:acme", PARKED).await.status, StatusCode::FORBIDDEN);
    for role in ["org:acme", "platform:read"] {
        assert_eq!(delete(role).await, StatusCode::FORBIDDEN, "{role}");
    }
    assert_eq!(delete("platform").await, StatusCode::NO_CONTENT);
    assert_eq!(delete("platform").await, StatusCode::NOT_FOUND);
    let audit = api.get("platform", "/api/audit").await;
    assert_eq!(audit.body[1]["action"], "kafka.drop", "below the refused one: {}", audit.body);
    assert_eq!(api.get("platform", PARKED).await.body.as_array().unwrap().len(), 1);
}
