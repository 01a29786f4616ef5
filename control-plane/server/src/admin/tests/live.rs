//! Running calls and sessions, and requests to end them.

use asp_issuers::admin_role::AdminRole;
use asp_store::live::{LiveKind, LiveStore, LiveWork};
use http::{Method, StatusCode};
use serde_json::json;

use super::Api;
use crate::admin::auth::Admin;
use crate::admin::queues::{MAX_OF_ORG, Topic};

const CALL: &str = "0190f000-0000-7000-8000-000000000001";
const SESSION: &str = "0190f00000007000800000000000000a";

fn work(kind: LiveKind, id: &str, org: &str) -> LiveWork {
    let [user, issuer, server, primitive, protocol, state] =
        ["alice", "dev", "demo", "count@1.0.0", "mcp", "working"].map(str::to_owned);
    LiveWork {
        kind,
        id: id.into(),
        org: org.into(),
        user,
        issuer,
        server,
        primitive,
        protocol,
        state,
        since_ms: 7,
    }
}

async fn with_work() -> Api {
    let api = Api::start().await;
    let work = [work(LiveKind::Call, CALL, "acme"), work(LiveKind::Session, SESSION, "globex")];
    api.live.report_live([1; 16], &work).await.unwrap();
    api
}

async fn delete(api: &Api, role: &str, path: &str) -> StatusCode {
    api.send(role, Method::DELETE, path, None, &[]).await.status
}

#[tokio::test]
async fn work_is_listed_by_filters_and_each_org_sees_its_own() {
    let api = with_work().await;
    let calls = api.get("org:acme:read", "/api/calls?server=demo&primitive=count").await;
    assert_eq!(calls.status, StatusCode::OK, "{}", calls.body);
    let call = json!({ "id": CALL, "since": 7, "org": "acme", "user": "alice", "issuer": "dev", "server": "demo",
        "primitive": "count@1.0.0", "protocol": "mcp", "state": "working" });
    assert_eq!(calls.body, json!([call]));
    assert_eq!(api.get("org:acme", "/api/calls?user=bob").await.body, json!([]));
    assert_eq!(api.get("org:acme", "/api/sessions").await.body, json!([]));
    assert_eq!(api.get("platform", "/api/sessions").await.body[0]["id"], json!(SESSION));
    assert_eq!(api.get("org:acme", "/api/calls?org=globex").await.status, StatusCode::NOT_FOUND);
    assert!(api.get("org:acme", "/api/calls?who=bob").await.status.is_client_error());
}

#[tokio::test]
async fn a_request_to_end_something_is_stored_with_the_org_that_it_is_about() {
    let api = with_work().await;
    assert_eq!(delete(&api, "platform", &format!("/api/calls/{CALL}")).await, StatusCode::ACCEPTED);
    assert_eq!(delete(&api, "org:acme", &format!("/api/sessions/{SESSION}")).await, StatusCode::ACCEPTED);
    let stops = api.live.stop_requests(0, None).await.unwrap();
    let stops: Vec<_> = stops.iter().map(|stop| (stop.kind, stop.id.as_str(), stop.org.as_str())).collect();
    assert!(stops.contains(&(LiveKind::Call, CALL, "acme")), "{stops:?}");
    assert!(stops.contains(&(LiveKind::Session, SESSION, "acme")), "no other org's: {stops:?}");
    let unknown = "0190f000-0000-7000-8000-000000000009";
    assert_eq!(delete(&api, "platform", &format!("/api/calls/{unknown}")).await, StatusCode::NOT_FOUND);
    assert_eq!(
        delete(&api, "platform", &format!("/api/calls/{unknown}?org=acme")).await,
        StatusCode::ACCEPTED
    );
    for (role, path, expected) in [
        ("org:acme:read", format!("/api/calls/{CALL}"), StatusCode::FORBIDDEN),
        ("org:acme", format!("/api/calls/{CALL}?org=globex"), StatusCode::NOT_FOUND),
        ("org:acme", "/api/calls/x".to_owned(), StatusCode::NOT_FOUND),
        ("org:acme", format!("/api/calls/{}", "z".repeat(36)), StatusCode::NOT_FOUND),
    ] {
        assert_eq!(delete(&api, role, &path).await, expected, "{role} {path}");
    }
}

#[tokio::test]
async fn an_org_ends_calls_in_its_turn_and_each_request_is_audited() {
    let api = with_work().await;
    let path = format!("/api/calls/{CALL}");
    let acme = Admin::test("ops", AdminRole::parse("org:acme").unwrap());
    let first = api.queues.to_write(Topic::Policy, &acme).await.unwrap();
    let mut waiting: Vec<_> =
        (1..MAX_OF_ORG).map(|_| Box::pin(api.queues.to_write(Topic::Policy, &acme))).collect();
    for one in &mut waiting {
        assert!(futures::poll!(one).is_pending());
    }
    assert_eq!(delete(&api, "org:acme", &path).await, StatusCode::TOO_MANY_REQUESTS);
    assert!(api.live.stop_requests(0, None).await.unwrap().is_empty());
    drop(waiting);
    drop(first);
    assert_eq!(delete(&api, "org:acme", &path).await, StatusCode::ACCEPTED);
    let audit = api.get("org:acme", "/api/audit").await.body;
    assert_eq!((&audit[0]["action"], &audit[0]["org"]), (&json!("call.cancel"), &json!("acme")), "{audit}");
}
