//! Access by role, refusals, and the public endpoints of the control plane.

use std::collections::{BTreeMap, BTreeSet};

use asp_store::audit::{AuditLog, CallEvent};
use axum::body::Body;
use http::{Method, Request, StatusCode, header};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use utoipa::OpenApi;

use super::auth::Permission;
use super::{Answer, Api, DEMO, MAX_BODY, openapi, read, resources, sample};

/// Paths of the document that need no token.
const PUBLIC: [&str; 2] = ["/.well-known/jwks.json", "/api/login"];

fn concrete(path: &str) -> String {
    let path = path.replace("{call}", "x");
    path.replace("{org}", "acme").replace("{server}", "demo").replace("{primitive}", "x").replace("{id}", "x")
}

#[tokio::test]
async fn an_org_admin_sees_and_changes_its_own_org_only() {
    let api = Api::start().await;
    api.put("platform", DEMO, sample("demo")).await;
    let body = json!({ "server": "demo", "protocol": "mcp", "enabled": true });
    assert_eq!(
        api.put("org:acme", "/api/policy/orgs/acme/exposure", body.clone()).await.status,
        StatusCode::OK
    );
    for path in [
        "/api/policy/orgs/other/exposure",
        "/api/policy/orgs/other/bindings",
        "/api/ratelimits/orgs/other",
        "/api/registry/orgs/other/primitives",
        "/api/audit?org=other",
        "/api/audit/calls?org=other",
        "/api/revocations?org=other",
    ] {
        let answer = api.get("org:acme", path).await;
        assert_eq!(
            (answer.status, &answer.body["code"]),
            (StatusCode::NOT_FOUND, &json!("not_found")),
            "{path}"
        );
    }
    let foreign = api.put("org:acme", "/api/policy/orgs/other/exposure", body.clone()).await;
    assert_eq!(foreign.status, StatusCode::NOT_FOUND);
    assert_eq!(api.put("org:acme", DEMO, sample("demo")).await.status, StatusCode::FORBIDDEN);
    assert_eq!(api.get("org:acme", "/api/snapshot").await.status, StatusCode::FORBIDDEN);
    let reader = api.put("org:acme:read", "/api/policy/orgs/acme/exposure", body).await;
    assert_eq!((reader.status, &reader.body["code"]), (StatusCode::FORBIDDEN, &json!("forbidden")));
    assert_eq!(api.get("org:acme:read", "/api/policy/orgs/acme/exposure").await.status, StatusCode::OK);
}

#[tokio::test]
async fn runtimes_are_for_platform_admins_and_listed_even_when_they_do_not_answer() {
    let api = Api::start().await;
    let refused = api.get("org:acme", "/api/runtimes").await;
    assert_eq!((refused.status, &refused.body["code"]), (StatusCode::FORBIDDEN, &json!("forbidden")));
    assert_eq!(refused.content_type, "application/problem+json");
    let listed = api.get("platform:read", "/api/runtimes").await;
    assert_eq!(listed.status, StatusCode::OK);
    let runtime = &listed.body[0];
    assert_eq!((&runtime["languages"], &runtime["state"]), (&json!(["node"]), &json!("unreachable")));
    assert_eq!((listed.body.as_array().unwrap().len(), &runtime["report"]), (1, &Value::Null));
}

#[tokio::test]
async fn every_change_is_in_the_audit_with_its_actor() {
    let api = Api::start().await;
    api.put("platform", DEMO, sample("demo")).await;
    let body = json!({ "server": "demo", "protocol": "mcp", "enabled": true });
    api.put("org:acme", "/api/policy/orgs/acme/exposure", body.clone()).await;
    api.put("platform", "/api/policy/orgs/other/exposure", body).await;
    let all = api.get("platform", "/api/audit").await.body;
    let actors: Vec<&str> =
        all.as_array().unwrap().iter().map(|row| row["actor"].as_str().unwrap()).collect();
    assert_eq!(actors, ["ops@platform", "ops@acme", "ops@platform"]);
    let own = api.get("org:acme", "/api/audit").await.body;
    assert_eq!((own.as_array().unwrap().len(), &own[0]["action"]), (1, &json!("exposure.put")));
}

#[tokio::test]
async fn the_audit_of_calls_is_read_in_pages_and_by_an_org_only_as_far_as_it_is_its_own() {
    let api = Api::start().await;
    let event = |n: i64| CallEvent {
        at_ms: n,
        org: if n % 2 == 0 { "acme" } else { "other" }.into(),
        event: json!({ "event": "call.start", "n": n }).to_string(),
    };
    api.calls.append(&(0..10).map(event).collect::<Vec<_>>()).await.unwrap();
    let numbers = |answer: &Answer| -> Vec<i64> {
        answer.body.as_array().unwrap().iter().map(|row| row["event"]["n"].as_i64().unwrap()).collect()
    };
    let first = api.get("platform:read", "/api/audit/calls?limit=3").await;
    assert_eq!(numbers(&first), [9, 8, 7]);
    assert_eq!((&first.body[0]["org"], &first.body[0]["at"]), (&json!("other"), &json!(9)));
    let next = format!("/api/audit/calls?limit=3&before={}", first.body[2]["seq"]);
    assert_eq!(numbers(&api.get("platform", &next).await), [6, 5, 4]);
    assert_eq!(numbers(&api.get("org:acme:read", "/api/audit/calls").await), [8, 6, 4, 2, 0]);
    assert_eq!(numbers(&api.get("platform", "/api/audit/calls?org=other&limit=2").await), [9, 7]);
    for (path, name) in [
        ("calls?nobody=alice", "nobody"),
        ("calls?from=yesterday", "from"),
        ("calls?from=2&to=1", "from"),
        ("calls?cursor=1", "cursor"),
        ("calls?cursor=1.1&after=1", "after"),
        ("calls?before=9&user=alice", "before"),
        ("calls?user=", "user"),
        ("approvals?before=1", "before"),
        ("approvals?kind=x", "kind"),
        ("changes?after=1", "after"),
        ("changes?kind=x", "kind"),
        ("changes?to=1.5", "to"),
        ("calls/export", "from"),
        ("calls/export?from=0&limit=1", "limit"),
    ] {
        let refused = api.get("platform", &format!("/api/audit/{path}")).await;
        assert_eq!(refused.body["code"], json!("invalid_params"), "{path}: {}", refused.body);
        assert!(refused.body["detail"].as_str().unwrap().contains(name), "{path}: {}", refused.body);
    }
}

#[tokio::test]
async fn only_an_admin_token_opens_the_api() {
    let api = Api::start().await;
    let client = api.issuer.client("acme", "alice", "http://127.0.0.1:8080");
    let tampered = format!("{}x", api.token("platform"));
    for (value, code) in [
        (None, "token_missing"),
        (Some("Basic YWRtaW46YWRtaW4=".to_owned()), "token_missing"),
        (Some(format!("Bearer {client}")), "token_invalid"),
        (Some(format!("Bearer {tampered}")), "token_invalid"),
        (Some("Bearer x.y.z".to_owned()), "token_invalid"),
    ] {
        let mut request = Request::builder().uri("/api/snapshot").header(header::HOST, "localhost:8081");
        if let Some(value) = &value {
            request = request.header(header::AUTHORIZATION, value);
        }
        let response = api.raw(request.body(Body::empty()).unwrap()).await;
        assert_eq!(response.headers()[header::WWW_AUTHENTICATE], "Bearer");
        let answer = read(response).await;
        assert_eq!(
            (answer.status, &answer.body["code"]),
            (StatusCode::UNAUTHORIZED, &json!(code)),
            "{value:?}"
        );
    }
}

#[tokio::test]
async fn a_revoked_admin_token_opens_nothing_any_more() {
    let mut api = Api::start().await;
    let token = api.token("platform");
    let ask = || {
        let request = Request::builder()
            .uri("/api/snapshot")
            .header(header::HOST, "localhost")
            .header(header::AUTHORIZATION, format!("Bearer {token}"));
        request.body(Body::empty()).unwrap()
    };
    assert_eq!(read(api.raw(ask()).await).await.status, StatusCode::OK);
    let hash = Sha256::digest(&token).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let body = json!({ "type": "token_hash", "id": hash });
    api.send("platform", Method::POST, "/api/revocations", Some(body), &[]).await;
    api.published(|snapshot| !snapshot.edge.as_ref().unwrap().revoked.is_empty()).await;
    let refused = read(api.raw(ask()).await).await;
    assert_eq!((refused.status, &refused.body["code"]), (StatusCode::UNAUTHORIZED, &json!("token_revoked")));
}

#[tokio::test]
async fn the_root_and_the_docs_say_where_to_go_on_from_without_a_token() {
    let api = Api::start().await;
    for (path, wanted) in
        [("/", "href=/api/docs"), ("/api/docs", "/api/policy/explain"), ("/api/docs", "curl -s")]
    {
        let request = Request::get(path).header(header::HOST, "localhost:8081").body(Body::empty()).unwrap();
        let response = api.raw(request).await;
        assert_eq!(response.status(), StatusCode::OK, "{path}");
        let page = response.into_body().collect().await.unwrap().to_bytes();
        let page = String::from_utf8(page.to_vec()).unwrap();
        assert!(page.contains(wanted) && !page.contains("<script"), "{path}: {page}");
    }
}

#[tokio::test]
async fn the_page_for_admins_runs_only_its_own_script_and_is_shown_in_no_frame() {
    let api = Api::start().await;
    let mut found = Vec::new();
    for path in ["/admin", "/admin/page.js", "/admin/page.css"] {
        let request = Request::get(path).header(header::HOST, "localhost:8081").body(Body::empty()).unwrap();
        let response = api.raw(request).await;
        assert_eq!(response.status(), StatusCode::OK, "{path}");
        let policy = response.headers().get(header::CONTENT_SECURITY_POLICY).cloned();
        let text = response.into_body().collect().await.unwrap().to_bytes();
        found.push((policy, String::from_utf8(text.to_vec()).unwrap()));
    }
    let (policy, page) = &found[0];
    let policy = policy.as_ref().unwrap().to_str().unwrap();
    for part in ["default-src 'none'", "script-src 'self'", "connect-src 'self'", "frame-ancestors 'none'"] {
        assert!(policy.contains(part), "{policy}");
    }
    assert_eq!((page.matches("<script").count(), page.matches("<style").count()), (1, 0));
    assert!(page.contains("src=\"/admin/page.js\"") && !page.contains(" onclick"), "{page}");
    for risky in ["innerHTML", "outerHTML", "document.write", "eval(", "localStorage", "sessionStorage"] {
        assert!(!found[1].1.contains(risky), "{risky}");
    }
}

#[tokio::test]
async fn every_operation_of_the_document_exists_and_wants_a_token() {
    let api = Api::start().await;
    let document = serde_json::to_value(openapi::ApiDocument::openapi()).unwrap();
    assert!(document["openapi"].as_str().unwrap().starts_with("3.1"));
    let mut operations = 0;
    for (path, item) in document["paths"].as_object().unwrap() {
        for method in item.as_object().unwrap().keys() {
            let request = Request::builder()
                .method(method.to_uppercase().as_str())
                .uri(concrete(path))
                .header(header::HOST, "localhost")
                .body(Body::empty())
                .unwrap();
            let status = api.raw(request).await.status();
            let expected =
                if PUBLIC.contains(&path.as_str()) { StatusCode::OK } else { StatusCode::UNAUTHORIZED };
            assert_eq!(status, expected, "{method} {path}");
            operations += 1;
        }
    }
    assert_eq!(operations, 111);
}

/// Roles that a permission refuses, and how.
fn outsiders(permission: Permission, method: &Method) -> Vec<(&'static str, StatusCode)> {
    let (platform_only, unknown) = (StatusCode::FORBIDDEN, StatusCode::NOT_FOUND);
    match permission {
        Permission::Question => vec![],
        Permission::Orgs => vec![("server:demo", unknown), ("installer", unknown), ("auditor", unknown)],
        Permission::Audit => vec![("server:demo", unknown), ("installer", unknown)],
        Permission::Bodies => vec![("platform", unknown), ("org:acme", unknown), ("server:demo", unknown)],
        Permission::Platform => {
            vec![
                ("org:acme", platform_only),
                ("server:demo", unknown),
                ("installer", unknown),
                ("auditor", unknown),
            ]
        }
        Permission::OrgBound if *method != Method::GET => {
            vec![("org:acme", platform_only), ("org:other", unknown), ("server:demo", unknown)]
        }
        Permission::Org | Permission::OrgBound => {
            vec![("org:other", unknown), ("server:demo", unknown), ("installer", unknown)]
        }
        Permission::OrgHome => {
            vec![("org:acme", platform_only), ("org:other", unknown), ("server:demo", unknown)]
        }
        Permission::Server => {
            vec![("org:acme", platform_only), ("server:other", unknown), ("installer", unknown)]
        }
        Permission::Servers => vec![("org:acme", platform_only), ("installer", platform_only)],
        Permission::Offer => {
            vec![("org:acme", platform_only), ("org:other", unknown), ("server:other", unknown)]
        }
        Permission::Standing => {
            vec![("org:other", unknown), ("server:other", unknown), ("installer", unknown)]
        }
        Permission::Package if *method == Method::DELETE => {
            vec![("server:demo", unknown), ("installer", unknown)]
        }
        Permission::Package => vec![("server:demo", unknown), ("auditor", unknown)],
    }
}

#[tokio::test]
async fn each_operation_refuses_roles_before_it_reads_anything_and_the_document_states_them() {
    let api = Api::start().await;
    let document = serde_json::to_value(openapi::ApiDocument::openapi()).unwrap();
    let operations = document["paths"].as_object().unwrap();
    let permissions: BTreeMap<&str, Permission> =
        resources().map(|resource| (resource.path, resource.permission)).collect();
    let listed: BTreeSet<&str> = permissions.keys().copied().chain(PUBLIC).collect();
    assert_eq!(listed, operations.keys().map(String::as_str).collect::<BTreeSet<&str>>());
    for (path, permission) in permissions {
        for (method, operation) in operations[path].as_object().unwrap() {
            let method: Method = method.to_uppercase().parse().unwrap();
            let changes = permission.changes(&method);
            let stated = operation["description"].as_str().unwrap();
            assert!(stated.contains(permission.roles(&method)), "{method} {path}: {stated}");
            assert_eq!(stated.contains("`:read`"), changes, "{method} {path}: {stated}");
            let path = concrete(path);
            // No body, whose type would be refused.
            let reader = api.send("platform:read", method.clone(), &path, None, &[]).await.status;
            assert_eq!(reader == StatusCode::FORBIDDEN, changes, "{method} {path}: {reader}");
            for (role, expected) in outsiders(permission, &method) {
                let status = api.send(role, method.clone(), &path, None, &[]).await.status;
                assert_eq!(status, expected, "{role}: {method} {path}");
            }
        }
    }
}

#[tokio::test]
async fn hosts_bodies_and_methods_outside_the_contract_are_problems() {
    let api = Api::start().await;
    let foreign = Request::builder().uri("/api/snapshot").header(header::HOST, "evil.example");
    let answer = read(api.raw(foreign.body(Body::empty()).unwrap()).await).await;
    assert_eq!((answer.status, &answer.body["code"]), (StatusCode::FORBIDDEN, &json!("host_denied")));
    assert_eq!(api.get("platform", "/api/nothing").await.body["code"], "not_found");
    let patched = api.send("platform", Method::PATCH, DEMO, None, &[]).await;
    assert_eq!(patched.body["code"], "method_not_allowed");
    let form = [("content-type", "application/x-www-form-urlencoded")];
    let answer = api.send("platform", Method::PUT, DEMO, Some(json!("files=1")), &form).await;
    assert_eq!(answer.body["code"], "unsupported_media_type");
    let huge = Value::String("x".repeat(MAX_BODY + 1));
    assert_eq!(api.put("platform", DEMO, huge).await.body["code"], "body_too_large");
    assert_eq!(
        api.put("platform", DEMO, json!({ "files": [], "extra": 1 })).await.body["code"],
        "invalid_body"
    );
}

#[tokio::test]
async fn status_and_metrics_tell_what_is_published() {
    let mut api = Api::start().await;
    api.put("platform", DEMO, sample("demo")).await;
    api.published(|snapshot| snapshot.revision == 1).await;
    let status = api.get("platform:read", "/api/snapshot").await.body;
    assert_eq!(
        (&status["revision"], &status["storeRevision"], &status["fault"]),
        (&json!(1), &json!(1), &Value::Null)
    );
    let request =
        Request::builder().uri("/metrics").header(header::HOST, "localhost").body(Body::empty()).unwrap();
    let bytes = api.raw(request).await.into_body().collect().await.unwrap().to_bytes();
    let text = String::from_utf8(bytes.to_vec()).unwrap();
    assert!(text.contains("asp_snapshot_published_revision 1"), "{text}");
    let page =
        Request::builder().uri("/api/docs").header(header::HOST, "localhost").body(Body::empty()).unwrap();
    let bytes = api.raw(page).await.into_body().collect().await.unwrap().to_bytes();
    assert!(String::from_utf8(bytes.to_vec()).unwrap().contains("/api/policy/explain"));
    let schemas = api.get("platform", "/api/schemas").await.body;
    assert!(schemas["primitive"].is_object() && schemas["server"].is_object());
}
