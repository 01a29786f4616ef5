//! Approvals through the admin API: who sees requests, and who decides.

use asp_store::approvals::{ApprovalRequest, ApprovalState, ApprovalStore, suite};
use axum::body::Body;
use http::{Method, Request, StatusCode, header};
use serde_json::{Value, json};
use uuid::Uuid;

use super::{Answer, Api, read};

const LIST: &str = "/api/approvals";
/// `iss` of the tests' issuer.
const ISS: &str = "asp-test";

/// Stores a request of alice of acme for finance, and returns its path.
async fn stored(api: &Api, name: &str) -> (ApprovalRequest, String) {
    let mut request = suite::request(name, 1);
    request.scope.approvers_iss = ISS.into();
    api.pushes.request_approval(&request, false).await.unwrap();
    let path = format!("{LIST}/{}", Uuid::from_bytes(request.id));
    (request, path)
}

/// Decides with a token of these claims.
async fn decide(api: &Api, claims: Value, path: &str, body: Value) -> Answer {
    let token = api.issuer.admin_with(&json!({}), &claims);
    let request = Request::builder()
        .method(Method::POST)
        .uri(format!("{path}/decision"))
        .header(header::HOST, "127.0.0.1:8081")
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::AUTHORIZATION, format!("Bearer {token}"))
        .body(Body::from(body.to_string()));
    read(api.raw(request.unwrap()).await).await
}

fn approve() -> Value {
    json!({ "decision": "approve" })
}

/// Claims of an admin of acme.
fn admin(user: &str, groups: &[&str]) -> Value {
    json!({ "sub": user, "role": "org:acme", "groups": groups })
}

#[tokio::test]
async fn requests_are_seen_by_their_org_and_the_platform() {
    let api = Api::start().await;
    let (request, path) = stored(&api, "seen").await;
    for role in ["platform", "org:acme", "org:acme:read"] {
        let listed = api.get(role, LIST).await.body;
        assert_eq!(listed.as_array().unwrap().len(), 1, "{role}");
        let one = api.get(role, &path).await.body;
        assert_eq!(
            (&one["user"], &one["approvers"], &one["state"]),
            (&json!("alice"), &json!("finance"), &json!("pending"))
        );
        assert_eq!(one["arguments"], json!(request.shown));
    }
    assert_eq!(api.get("org:globex", LIST).await.body, json!([]));
    assert_eq!(api.get("org:globex", &path).await.status, StatusCode::NOT_FOUND);
    assert_eq!(api.get("org:acme", &format!("{LIST}?org=globex")).await.status, StatusCode::NOT_FOUND);
    assert_eq!(api.get("platform", &format!("{LIST}?state=denied")).await.body, json!([]));
    for bad in ["?state=open", "?user=alice", "?before=x"] {
        assert_eq!(
            api.get("platform", &format!("{LIST}{bad}")).await.status,
            StatusCode::BAD_REQUEST,
            "{bad}"
        );
    }
    for bad in [format!("{LIST}/x"), format!("{LIST}/{}", Uuid::nil())] {
        assert_eq!(api.get("platform", &bad).await.status, StatusCode::NOT_FOUND, "{bad}");
    }
}

/// Invariant I-12.
#[tokio::test]
async fn only_another_person_of_the_group_approves_whatever_the_role() {
    let api = Api::start().await;
    let (request, path) = stored(&api, "approve").await;
    let of_client = json!({ "sub": "ci", "client_id": "ci", "role": "org:acme", "groups": ["finance"] });
    let renamed =
        json!({ "sub": "a-1", "preferred_username": "alice", "role": "org:acme", "groups": ["finance"] });
    let platform = json!({ "sub": "bob", "role": "platform", "groups": ["finance"] });
    for (claims, why) in [
        (admin("alice", &["finance"]), "of their own"),
        (renamed, "of their own"),
        (of_client, "a machine approves nothing"),
        (platform, "another org"),
        (admin("bob", &["ops"]), "only members of the group"),
        (admin("bob", &[]), "only members of the group"),
    ] {
        let refused = decide(&api, claims.clone(), &path, approve()).await;
        assert_eq!(refused.status, StatusCode::FORBIDDEN, "{claims}: {}", refused.body);
        assert!(refused.body["detail"].as_str().unwrap().contains(why), "{claims}: {}", refused.body);
    }
    let pending = api.pushes.approval(request.id).await.unwrap().unwrap();
    assert_eq!(pending.state, ApprovalState::Pending);
    for bad in [json!({ "decision": "yes" }), json!({ "decision": "approve", "reason": "x".repeat(501) })] {
        let refused = decide(&api, admin("bob", &["finance"]), &path, bad).await;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{}", refused.body);
    }
    let decided = decide(&api, admin("bob", &["finance"]), &path, approve()).await;
    assert_eq!(
        (decided.status, &decided.body["state"]),
        (StatusCode::OK, &json!("approved")),
        "{}",
        decided.body
    );
    let again = decide(&api, admin("bob", &["finance"]), &path, approve()).await;
    assert_eq!((again.status, &again.body["code"]), (StatusCode::CONFLICT, &json!("not_open")));
    let rows = api.get("org:acme", "/api/audit").await.body;
    assert_eq!(
        (&rows[1]["action"], &rows[1]["actor"]),
        (&json!("approval.approve"), &json!("bob@acme")),
        "{rows}"
    );
}

#[tokio::test]
async fn an_admin_who_may_write_denies_and_one_who_reads_does_not() {
    let api = Api::start().await;
    let (_, path) = stored(&api, "deny").await;
    let deny = json!({ "decision": "deny", "reason": "too much" });
    let reader = json!({ "sub": "eve", "role": "org:acme:read", "groups": [] });
    assert_eq!(decide(&api, reader, &path, deny.clone()).await.status, StatusCode::FORBIDDEN);
    let denied = decide(&api, admin("eve", &[]), &path, deny).await;
    assert_eq!((denied.status, &denied.body["state"]), (StatusCode::OK, &json!("denied")), "{}", denied.body);
    assert_eq!(denied.body["reason"], "too much");
}
