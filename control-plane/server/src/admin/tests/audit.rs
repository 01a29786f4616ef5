//! Reading the audit: filters, pages, following, export, approvals and changes, each within an admin's own org.

use asp_store::audit::{AuditLog, CallEvent, CapturedBody};
use axum::body::Body;
use axum::response::Response;
use http::{Request, StatusCode, header};
use http_body_util::BodyExt;
use serde_json::{Value, json};

use super::Api;

/// An event of alice (even numbers) or bob, in acme or, for each third, in other.
fn event(n: i64) -> CallEvent {
    let event = json!({
        "event": if n % 4 == 0 { "call.start" } else { "call.finish" },
        "n": n,
        "user": if n % 2 == 0 { "alice" } else { "bob" },
        "server": "shop",
        "primitive": if n % 5 == 0 { "shop.pay@1.0.0" } else { "shop.paypal@2.0.0" },
        "outcome": if n % 7 == 0 { "rejected" } else { "completed" },
        "reason": if n % 7 == 0 { "denied" } else { "ok" },
        "trace": format!("t{n}"),
    });
    let org = if n % 3 == 0 { "other" } else { "acme" };
    CallEvent { at_ms: 1_000 + n, org: org.into(), event: event.to_string() }
}

async fn filled() -> Api {
    let api = Api::start().await;
    api.calls.append(&(0..30).map(event).collect::<Vec<_>>()).await.unwrap();
    api
}

async fn ask(api: &Api, role: &str, path: &str) -> Response {
    let request = Request::builder()
        .uri(path)
        .header(header::HOST, "localhost")
        .header(header::AUTHORIZATION, format!("Bearer {}", api.token(role)));
    api.raw(request.body(Body::empty()).unwrap()).await
}

fn numbers(body: &Value) -> Vec<i64> {
    body.as_array().unwrap().iter().map(|row| row["event"]["n"].as_i64().unwrap()).collect()
}

/// Returns the path in the `Link` header.
fn next(response: &Response) -> Option<String> {
    let link = response.headers().get(header::LINK)?.to_str().unwrap();
    let (path, relation) = link.strip_prefix('<').unwrap().split_once('>').unwrap();
    assert_eq!(relation, "; rel=\"next\"");
    Some(path.to_owned())
}

async fn text(response: Response) -> String {
    assert_eq!(response.status(), StatusCode::OK);
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Reads all pages from a path on.
async fn pages(api: &Api, role: &str, path: &str) -> Vec<i64> {
    let mut read = Vec::new();
    let mut path = Some(path.to_owned());
    while let Some(from) = path {
        let response = ask(api, role, &from).await;
        path = next(&response);
        read.extend(numbers(&serde_json::from_str(&text(response).await).unwrap()));
    }
    read
}

#[tokio::test]
async fn calls_are_filtered_by_each_member_and_by_time() {
    let api = filled().await;
    for (query, wanted) in [
        ("user=alice&from=1020", vec![28, 26, 24, 22, 20]),
        ("primitive=shop.pay", vec![25, 20, 15, 10, 5, 0]),
        ("primitive=shop.pay%401.0.0&limit=2", vec![25, 20, 15, 10, 5, 0]),
        ("primitive=shop.pay%409.0.0", vec![]),
        ("outcome=rejected", vec![28, 21, 14, 7, 0]),
        ("reason=denied&user=bob", vec![21, 7]),
        ("trace=t13", vec![13]),
        ("trace=00-t13-00f067aa0ba902b7-01", vec![13]),
        ("event=call.start&org=other&limit=1", vec![24, 12, 0]),
        ("from=1005&to=1970-01-01T00:00:01.008Z", vec![7, 6, 5]),
        ("server=shop&to=1002", vec![1, 0]),
        ("server=bank", vec![]),
        ("limit=4", (0..30).rev().collect()),
    ] {
        let path = format!("/api/audit/calls?{query}");
        assert_eq!(pages(&api, "platform:read", &path).await, wanted, "{query}");
    }
    for query in ["calls?trace=%00", "calls?user=", "changes?user=a%00b", "changes?action=%00"] {
        let refused = api.get("platform", &format!("/api/audit/{query}")).await;
        assert!(refused.status.is_client_error(), "no database holds it: {query}: {}", refused.body);
    }
    let refused = api.get("auditor", "/api/audit/calls?org=a%00").await;
    assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{}", refused.body);
}

#[tokio::test]
async fn an_admin_of_an_org_reads_and_exports_its_own_events_only() {
    let api = filled().await;
    let own: Vec<i64> = (0..30).rev().filter(|n| n % 3 != 0).collect();
    assert_eq!(pages(&api, "org:acme:read", "/api/audit/calls?limit=7").await, own);
    for path in
        ["calls?org=other", "calls/export?from=0&org=other", "approvals?org=other", "changes?org=other"]
    {
        let refused = api.get("org:acme", &format!("/api/audit/{path}")).await;
        assert_eq!(refused.status, StatusCode::NOT_FOUND, "{path}");
    }
    let exported = ask(&api, "org:acme", "/api/audit/calls/export?from=0&to=1010").await;
    assert_eq!(exported.headers()[header::CONTENT_TYPE], "application/x-ndjson");
    let lines = text(exported).await;
    let rows: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(numbers(&Value::from(rows)), [1, 2, 4, 5, 7, 8], "oldest first");
}

#[tokio::test]
async fn the_log_is_followed_in_the_order_of_arrival_and_exported_whole() {
    let api = filled().await;
    let first = ask(&api, "platform", "/api/audit/calls?after=0&user=bob&limit=1000").await;
    let path = next(&first).unwrap();
    assert_eq!(numbers(&serde_json::from_str(&text(first).await).unwrap()).first(), Some(&1));
    // It arrives late: its time is before the others'.
    api.calls.append(&[CallEvent { at_ms: 1, ..event(31) }, event(32)]).await.unwrap();
    let more = ask(&api, "platform", &path).await;
    let path = next(&more).unwrap();
    assert_eq!(numbers(&serde_json::from_str(&text(more).await).unwrap()), [31]);
    let none = ask(&api, "platform", &path).await;
    assert!(next(&none).is_some(), "a follower always continues");
    assert_eq!(text(none).await, "[]");

    api.calls.append(&(100..2_400).map(event).collect::<Vec<_>>()).await.unwrap();
    let whole = text(ask(&api, "platform", "/api/audit/calls/export?from=0").await).await;
    assert_eq!(whole.lines().count(), 30 + 2 + 2_300, "more than a page");
}

#[tokio::test]
async fn approvals_are_read_by_themselves_and_with_the_same_filters() {
    let api = filled().await;
    let kinds = ["approval.request", "approval.decision", "approval.use", "approval.expiry"];
    let of = |(n, kind): (i64, &str)| {
        let event = json!({ "event": kind, "n": n, "user": "alice", "primitive": "shop.pay@1.0.0" });
        CallEvent { at_ms: 2_000 + n, org: "acme".into(), event: event.to_string() }
    };
    api.calls.append(&(40..).zip(kinds).map(of).collect::<Vec<_>>()).await.unwrap();
    assert_eq!(pages(&api, "org:acme", "/api/audit/approvals?limit=3").await, [43, 42, 41, 40]);
    assert_eq!(pages(&api, "org:other", "/api/audit/approvals").await, [0; 0]);
    assert_eq!(pages(&api, "platform", "/api/audit/approvals?event=approval.decision").await, [41]);
}

#[tokio::test]
async fn accounts_that_users_link_are_read_with_the_same_filters() {
    let api = filled().await;
    let rows = [
        (50, "link.add", "alice", "completed"),
        (51, "link.add", "bob", "rejected"),
        (52, "link.remove", "alice", "completed"),
    ];
    let of = |(n, kind, user, outcome): (i64, &str, &str, &str)| {
        let event = json!({ "event": kind, "n": n, "user": user, "issuer": "dev", "provider": "github",
            "outcome": outcome, "reason": "ok" });
        CallEvent { at_ms: 3_000 + n, org: "acme".into(), event: event.to_string() }
    };
    api.calls.append(&rows.map(of)).await.unwrap();
    for (query, found) in [
        ("event=link.add", vec![51, 50]),
        ("event=link.remove", vec![52]),
        ("event=link.add&user=bob&outcome=rejected", vec![51]),
    ] {
        assert_eq!(pages(&api, "org:acme", &format!("/api/audit/calls?{query}")).await, found, "{query}");
        assert_eq!(pages(&api, "org:other", &format!("/api/audit/calls?{query}")).await, [0; 0], "{query}");
    }
}

#[tokio::test]
async fn changes_are_filtered_by_admin_action_and_time() {
    let api = Api::start().await;
    for (role, org, enabled) in [
        ("platform", "acme", true),
        ("org:acme", "acme", false),
        ("platform", "other", true),
        ("platform", "acme", false),
    ] {
        let body = json!({ "server": "demo", "protocol": "mcp", "enabled": enabled });
        api.put(role, &format!("/api/policy/orgs/{org}/exposure"), body).await;
    }
    let revisions = async |role: &str, query: &str| -> Vec<i64> {
        let answer = api.get(role, &format!("/api/audit/changes?{query}")).await;
        assert_eq!(answer.status, StatusCode::OK, "{query}: {}", answer.body);
        answer.body.as_array().unwrap().iter().map(|row| row["revision"].as_i64().unwrap()).collect()
    };
    assert_eq!(revisions("platform", "").await, [4, 3, 2, 1]);
    assert_eq!(revisions("org:acme", "").await, [4, 2, 1]);
    assert_eq!(revisions("platform", "user=ops").await, [4, 3, 2, 1]);
    assert_eq!(revisions("platform", "user=ops%40platform&org=acme").await, [4, 1]);
    assert_eq!(revisions("platform", "user=op").await, [0; 0]);
    assert_eq!(
        revisions("platform", "action=exposure.put&kind=exposure").await,
        [4, 3, 1],
        "the second was refused"
    );
    assert_eq!(revisions("platform", "action=server.put").await, [0; 0]);
    assert_eq!(revisions("platform", "to=1000").await, [0; 0]);
    assert_eq!(revisions("platform", "from=1000").await, [4, 3, 2, 1]);
    let first = ask(&api, "platform", "/api/audit/changes?limit=3").await;
    assert_eq!(next(&first).as_deref(), Some("/api/audit/changes?limit=3&cursor=2"));
    assert_eq!(revisions("platform", "limit=3&cursor=2").await, [1]);
}

#[tokio::test]
async fn only_an_auditor_reads_bodies_and_each_reading_is_audited() {
    let api = filled().await;
    let body = |part: &str| CapturedBody {
        at_ms: 1,
        org: "acme".into(),
        call: "c-1".into(),
        part: part.into(),
        body: r#"{"message":"***"}"#.into(),
    };
    api.calls.capture(&[body("arguments"), body("result")]).await.unwrap();
    let path = "/api/audit/calls/c-1/bodies";
    for role in ["platform", "platform:read", "org:acme", "server:demo", "installer"] {
        assert_eq!(api.get(role, path).await.status, StatusCode::NOT_FOUND, "{role}");
    }
    let read = api.get("auditor", path).await;
    assert_eq!((read.status, read.body.as_array().unwrap().len()), (StatusCode::OK, 2));
    assert_eq!((&read.body[0]["part"], &read.body[1]["part"]), (&json!("arguments"), &json!("result")));
    assert_eq!(api.get("auditor", "/api/audit/calls/c-2/bodies").await.status, StatusCode::NOT_FOUND);
    let changes = api.get("org:acme", "/api/audit/changes?action=bodies.read").await.body;
    assert_eq!(changes.as_array().unwrap().len(), 1, "{changes}");
    assert_eq!((&changes[0]["actor"], &changes[0]["resource"]), (&json!("ops@auditor"), &json!("call/c-1")));
    assert_eq!(pages(&api, "auditor", "/api/audit/calls?org=other&limit=4").await.len(), 10);
    for path in ["/api/revocations", "/api/snapshot", "/api/policy/orgs/acme/bindings", "/api/artifacts"] {
        assert_eq!(api.get("auditor", path).await.status, StatusCode::NOT_FOUND, "{path}");
    }
}
