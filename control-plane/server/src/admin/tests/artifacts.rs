//! The artifact store: packages have their digest and owner, and stay while they are pinned.

use asp_issuers::admin_role::AdminRole;
use axum::body::Body;
use axum::response::Response;
use http::{Method, Request, StatusCode, header};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{Answer, Api, read};
use crate::admin::auth::Admin;
use crate::admin::queues::{MAX_OF_ORG, Topic};

const WHEEL: &str = "greet-1.0.0-py3-none-any.whl";
const OCTETS: (&str, &str) = ("content-type", "application/octet-stream");

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

async fn push(api: &Api, role: &str, digest: &str, bytes: &str) -> Answer {
    let path = format!("/api/artifacts/{digest}?name={WHEEL}");
    api.send(role, Method::PUT, &path, Some(Value::String(bytes.into())), &[OCTETS]).await
}

async fn fetch(api: &Api, role: &str, method: Method, digest: &str) -> Response {
    let request = Request::builder()
        .method(method)
        .uri(format!("/api/artifacts/{digest}"))
        .header(header::HOST, "localhost")
        .header(header::AUTHORIZATION, format!("Bearer {}", api.token(role)));
    api.raw(request.body(Body::empty()).unwrap()).await
}

fn code(answer: &Answer) -> &str {
    answer.body["code"].as_str().unwrap_or_default()
}

#[tokio::test]
async fn a_package_is_stored_once_and_fetched_as_it_was() {
    let api = Api::start().await;
    let digest = sha256(b"wheel");
    let first = push(&api, "platform", &digest, "wheel").await;
    assert_eq!((first.status, &first.body["size"]), (StatusCode::CREATED, &json!(5)));
    assert_eq!(push(&api, "platform", &digest, "wheel").await.status, StatusCode::OK);
    let response = fetch(&api, "platform:read", Method::GET, &digest).await;
    let headers = response.headers().clone();
    assert_eq!(headers[header::CONTENT_LENGTH], "5");
    assert_eq!(headers[header::ETAG], format!("\"{digest}\""));
    assert!(headers[header::CONTENT_DISPOSITION].to_str().unwrap().contains(WHEEL));
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "wheel");
    let head = fetch(&api, "platform:read", Method::HEAD, &digest).await;
    assert_eq!(
        (head.status(), &head.headers()[header::CONTENT_LENGTH]),
        (StatusCode::OK, &"5".parse().unwrap())
    );
    assert!(head.into_body().collect().await.unwrap().to_bytes().is_empty());
    let listed = api.get("platform:read", "/api/artifacts").await.body;
    assert_eq!(
        (&listed[0]["name"], &listed[0]["org"], &listed[0]["pinnedBy"]),
        (&json!(WHEEL), &Value::Null, &json!([]))
    );
    let audited = api.get("platform", "/api/audit").await.body;
    assert_eq!((audited.as_array().unwrap().len(), &audited[0]["action"]), (1, &json!("artifact.put")));
}

#[tokio::test]
async fn what_is_not_what_it_says_is_refused() {
    let api = Api::start().await;
    let digest = sha256(b"wheel");
    let wrong = push(&api, "platform", &digest, "other").await;
    assert_eq!((wrong.status, code(&wrong)), (StatusCode::UNPROCESSABLE_ENTITY, "digest_mismatch"));
    assert_eq!(wrong.content_type, "application/problem+json");
    assert_eq!(fetch(&api, "platform", Method::GET, &digest).await.status(), StatusCode::NOT_FOUND);
    let body = || Some(Value::String("wheel".into()));
    let at = |name: &str| format!("/api/artifacts/{digest}?name={name}");
    for (path, headers, status, expected) in [
        (at("a.exe"), &[OCTETS][..], StatusCode::BAD_REQUEST, "invalid_params"),
        (at("..%2Fa.whl"), &[OCTETS], StatusCode::BAD_REQUEST, "invalid_params"),
        (at(".a.whl"), &[OCTETS], StatusCode::BAD_REQUEST, "invalid_params"),
        (
            format!("/api/artifacts/{}?name={WHEEL}", digest.to_uppercase()),
            &[OCTETS],
            StatusCode::BAD_REQUEST,
            "invalid_params",
        ),
        (
            format!("/api/artifacts/..%2F..%2Fx?name={WHEEL}"),
            &[OCTETS],
            StatusCode::BAD_REQUEST,
            "invalid_params",
        ),
        (
            at(WHEEL),
            &[("content-type", "text/plain")],
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "unsupported_media_type",
        ),
        (
            at(WHEEL),
            &[OCTETS, ("content-length", "999999999")],
            StatusCode::PAYLOAD_TOO_LARGE,
            "body_too_large",
        ),
    ] {
        let answer = api.send("platform", Method::PUT, &path, body(), headers).await;
        assert_eq!((answer.status, code(&answer)), (status, expected), "{path}");
    }
    let missing =
        api.send("platform", Method::PUT, &format!("/api/artifacts/{digest}"), body(), &[OCTETS]).await;
    assert_eq!(missing.status, StatusCode::BAD_REQUEST);
    assert_eq!(api.get("platform", "/api/artifacts").await.body, json!([]));
}

#[tokio::test]
async fn a_body_that_breaks_off_leaves_nothing() {
    let api = Api::start().await;
    let digest = sha256(b"wheel");
    let pieces = [Ok(bytes::Bytes::from("whe")), Err(std::io::Error::other("gone"))];
    let request = Request::builder()
        .method(Method::PUT)
        .uri(format!("/api/artifacts/{digest}?name={WHEEL}"))
        .header(header::HOST, "localhost")
        .header(OCTETS.0, OCTETS.1)
        .header(header::AUTHORIZATION, format!("Bearer {}", api.token("platform")));
    let body = Body::from_stream(futures::stream::iter(pieces));
    let answer = read(api.raw(request.body(body).unwrap()).await).await;
    assert_eq!((answer.status, code(&answer)), (StatusCode::BAD_REQUEST, "invalid_body"));
    assert_eq!(push(&api, "platform", &digest, "wheel").await.status, StatusCode::CREATED);
}

#[tokio::test]
async fn an_owners_packages_are_bounded() {
    let api = Api::start().await;
    for n in 0..3 {
        let bytes = n.to_string();
        assert_eq!(
            push(&api, "org:acme", &sha256(bytes.as_bytes()), &bytes).await.status,
            StatusCode::CREATED
        );
    }
    let fourth = push(&api, "org:acme", &sha256(b"4"), "4").await;
    assert_eq!((fourth.status, code(&fourth)), (StatusCode::CONFLICT, "limit_reached"));
    let large = "x".repeat(1001);
    let large = push(&api, "org:globex", &sha256(large.as_bytes()), &large).await;
    assert_eq!((large.status, code(&large)), (StatusCode::CONFLICT, "limit_reached"));
    assert_eq!(push(&api, "org:globex", &sha256(b"4"), "4").await.status, StatusCode::CREATED);
}

#[tokio::test]
async fn an_org_stores_packages_in_its_turn() {
    let api = Api::start().await;
    let acme = Admin::test("ops", AdminRole::parse("org:acme").unwrap());
    let first = api.queues.to_write(Topic::Policy, &acme).await.unwrap();
    let mut waiting: Vec<_> =
        (1..MAX_OF_ORG).map(|_| Box::pin(api.queues.to_write(Topic::Policy, &acme))).collect();
    for one in &mut waiting {
        assert!(futures::poll!(one).is_pending());
    }
    let digest = sha256(b"wheel");
    let refused = push(&api, "org:acme", &digest, "wheel").await;
    assert_eq!((refused.status, code(&refused)), (StatusCode::TOO_MANY_REQUESTS, "too_many_requests"));
    assert_eq!(fetch(&api, "org:acme", Method::GET, &digest).await.status(), StatusCode::NOT_FOUND);
    drop(waiting);
    drop(first);
    assert_eq!(push(&api, "org:acme", &digest, "wheel").await.status, StatusCode::CREATED);
}

#[tokio::test]
async fn an_orgs_packages_are_nobody_elses() {
    let api = Api::start().await;
    let digest = sha256(b"acme's");
    assert_eq!(push(&api, "org:acme", &digest, "acme's").await.status, StatusCode::CREATED);
    for method in [Method::GET, Method::HEAD, Method::DELETE] {
        let status = fetch(&api, "org:globex", method.clone(), &digest).await.status();
        assert_eq!(status, StatusCode::NOT_FOUND, "{method}");
    }
    assert_eq!(api.get("org:globex", "/api/artifacts").await.body, json!([]));
    assert_eq!(api.get("org:globex", "/api/artifacts?org=acme").await.status, StatusCode::NOT_FOUND);
    let own = api.get("org:acme:read", "/api/artifacts").await.body;
    assert_eq!((own[0]["org"].clone(), own[0].get("pinnedBy")), (json!("acme"), None));
    let reader = push(&api, "org:acme:read", &digest, "acme's").await;
    assert_eq!((reader.status, code(&reader)), (StatusCode::FORBIDDEN, "forbidden"));
    assert_eq!(fetch(&api, "org:acme:read", Method::DELETE, &digest).await.status(), StatusCode::FORBIDDEN);
    // The platform's runtimes fetch every pinned package of a registered server, regardless of its uploader.
    assert_eq!(fetch(&api, "platform:read", Method::GET, &digest).await.status(), StatusCode::OK);
    assert_eq!(fetch(&api, "org:acme", Method::DELETE, &digest).await.status(), StatusCode::OK);
    assert_eq!(fetch(&api, "org:acme", Method::GET, &digest).await.status(), StatusCode::NOT_FOUND);
}

/// A server with one plugin that pins a package.
fn pinning(digest: &str) -> Value {
    let server = "apiVersion: asp/v1\nname: pins\ndescription: Pins.\nprotocols: [mcp]\n\
                  auth: {schemes: [jwt], issuers: [dev]}\nprimitives: [{ref: pins/greet}]\n";
    let spec = format!(
        "id: greet\nname: Greet\ntype: tool\nversion: 1.0.0\nowner: a@example.com\nsummary: Greets.\n\
         mutation: read_only\nprimitiveSchema: {{input_schema: {{type: object}}}}\n\
         runtime: {{mode: plugin, language: python, entrypoint: main.py, artifactSha256: {digest}}}\n"
    );
    json!({"files": [{"path": "pins/server.yaml", "text": server}, {"path": "pins/greet.yaml", "text": spec}]})
}

#[tokio::test]
async fn a_pinned_package_is_not_deleted() {
    let api = Api::start().await;
    let digest = sha256(b"wheel");
    push(&api, "platform", &digest, "wheel").await;
    let registered = api.put("platform", "/api/registry/servers/pins", pinning(&digest)).await;
    assert_eq!(registered.status, StatusCode::OK, "{}", registered.body);
    let refused = read(fetch(&api, "platform", Method::DELETE, &digest).await).await;
    assert_eq!((refused.status, code(&refused)), (StatusCode::CONFLICT, "artifact_in_use"));
    assert!(refused.body["detail"].as_str().unwrap().contains("pins/greet@1.0.0"), "{}", refused.body);
    let listed = api.get("platform", "/api/artifacts").await.body;
    assert_eq!(listed[0]["pinnedBy"], json!(["pins/greet@1.0.0"]));
    api.send("platform", Method::DELETE, "/api/registry/servers/pins", None, &[]).await;
    assert_eq!(fetch(&api, "platform", Method::DELETE, &digest).await.status(), StatusCode::OK);
    let audited = api.get("platform", "/api/audit").await.body;
    assert_eq!(audited[0]["action"], "artifact.delete");
}
