//! The admin API through its router: a real store, a real issuer, no network.

use std::collections::BTreeSet;
use std::path::Path as FilePath;

use asp_store::sqlite::SqliteStore;
use axum::body::Body;
use axum::response::Response;
use http::{Method, Request, StatusCode, header};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tower::ServiceExt;
use utoipa::OpenApi;

use super::*;
use crate::catalog::{Fixed, StoreSource};
use crate::issuer::{AdminToken, ClientToken, DevIssuer, MAX_TTL};
use crate::publisher::Publisher;
use crate::xds::endpoints::Endpoints;

struct Api {
    router: Router,
    issuer: DevIssuer,
    _state: tempfile::TempDir,
    _stop: tokio_util::sync::DropGuard,
    world: crate::xds::WorldReceiver,
}

struct Answer {
    status: StatusCode,
    etag: Option<String>,
    content_type: String,
    body: Value,
}

impl Api {
    async fn start() -> Api {
        crate::issuer::install_crypto();
        let state_dir = tempfile::tempdir().unwrap();
        let issuer = DevIssuer::load_or_create(state_dir.path()).unwrap();
        let store: Arc<dyn ControlStore> = Arc::new(SqliteStore::in_memory().await.unwrap());
        let fixed = Fixed {
            public_url: "http://127.0.0.1:8080".into(),
            dev: true,
            workers: 1,
            issuers: vec![issuer.snapshot()],
            upstreams: Vec::new(),
        };
        let source = StoreSource::new(Arc::clone(&store), fixed);
        let compiler = source.compiler();
        let (publisher, handle) =
            Publisher::new(Arc::new(source), "/f.wasm".into(), Endpoints::new().subscribe());
        let stop = tokio_util::sync::CancellationToken::new();
        tokio::spawn(publisher.run(stop.clone()));
        let world = handle.world();
        let state = AdminState {
            store,
            compiler,
            publisher: handle,
            subscribers: Subscribers::new(),
            verifier: Verifier::new(vec![issuer.trusted().unwrap()]),
            jwks: json!({ "keys": [issuer.jwk()] }),
            dev: true,
        };
        Api { router: router(Arc::new(state)), issuer, _state: state_dir, _stop: stop.drop_guard(), world }
    }

    fn token(&self, role: &str) -> String {
        let token = AdminToken { user: "ops".into(), role: role.into(), ttl: MAX_TTL };
        self.issuer.mint_admin(&token).unwrap().expose().to_owned()
    }

    async fn raw(&self, request: Request<Body>) -> Response {
        self.router.clone().oneshot(request).await.unwrap()
    }

    /// Sends a JSON body with a role's token and extra headers.
    async fn send(
        &self,
        role: &str,
        method: Method,
        path: &str,
        body: Option<Value>,
        headers: &[(&str, &str)],
    ) -> Answer {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, "127.0.0.1:8081")
            .header(header::AUTHORIZATION, format!("Bearer {}", self.token(role)));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let body = match body {
            Some(body) => {
                if !headers.iter().any(|(name, _)| *name == "content-type") {
                    request = request.header(header::CONTENT_TYPE, "application/json");
                }
                match body {
                    Value::String(text) => Body::from(text),
                    other => Body::from(other.to_string()),
                }
            }
            None => Body::empty(),
        };
        read(self.raw(request.body(body).unwrap()).await).await
    }

    async fn get(&self, role: &str, path: &str) -> Answer {
        self.send(role, Method::GET, path, None, &[]).await
    }

    async fn put(&self, role: &str, path: &str, body: Value) -> Answer {
        self.send(role, Method::PUT, path, Some(body), &[]).await
    }

    async fn published(&mut self, wanted: impl Fn(&asp_proto::snapshot::GatewaySnapshot) -> bool) {
        self.world
            .wait_for(|world| world.snapshot.as_ref().is_some_and(|published| wanted(&published.snapshot)))
            .await
            .unwrap();
    }
}

async fn read(response: Response) -> Answer {
    let text = |name| response.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
    let (etag, content_type) = (text(header::ETAG), text(header::CONTENT_TYPE).unwrap_or_default());
    let status = response.status();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
    Answer { status, etag, content_type, body }
}

/// The files of one sample server, as `asp apply` sends them.
fn sample(server: &str) -> Value {
    let root = FilePath::new(env!("CARGO_MANIFEST_DIR")).join("../../primitives");
    let sources = asp_registry::read_dir(&root).unwrap();
    let found = asp_registry::check(&sources).catalog.unwrap();
    let bundles = crate::catalog::bundles(&sources, found);
    let bundle = bundles.into_iter().find(|bundle| bundle.server.server.name == server).unwrap();
    json!({ "files": bundle.files })
}

const DEMO: &str = "/api/registry/servers/demo";

#[tokio::test]
async fn a_server_is_stored_once_published_and_removed() {
    let mut api = Api::start().await;
    let first = api.put("platform", DEMO, sample("demo")).await;
    assert_eq!((first.status, &first.body["changed"]), (StatusCode::OK, &json!(true)), "{}", first.body);
    api.published(|snapshot| snapshot.servers.iter().any(|server| server.name == "demo")).await;

    let again = api.put("platform", DEMO, sample("demo")).await;
    assert_eq!((&again.body["changed"], &again.etag), (&json!(false), &first.etag), "idempotent by content");
    let stored = api.get("platform", DEMO).await;
    assert_eq!(stored.body["files"], sample("demo")["files"]);
    assert_eq!(stored.body["contentHash"], first.body["contentHash"]);

    assert_eq!(api.send("platform", Method::DELETE, DEMO, None, &[]).await.status, StatusCode::OK);
    api.published(|snapshot| snapshot.servers.is_empty()).await;
    assert_eq!(api.get("platform", DEMO).await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_server_with_faults_is_refused_with_all_of_them() {
    let api = Api::start().await;
    let mut files = sample("demo");
    files["files"][0]["text"] = json!("apiVersion: asp/v1\nnope: 1\n");
    let refused = api.put("platform", DEMO, files).await;
    assert_eq!(refused.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(refused.content_type, "application/problem+json");
    assert_eq!(
        (&refused.body["code"], &refused.body["type"]),
        (&json!("invalid_primitives"), &json!("urn:asp:reason:invalid_primitives"))
    );
    assert!(!refused.body["errors"].as_array().unwrap().is_empty());
    let other = api.put("platform", "/api/registry/servers/other", sample("demo")).await;
    assert_eq!(other.body["code"], "invalid_params", "the name in the path is the server's");
}

#[tokio::test]
async fn a_stale_etag_changes_nothing() {
    let api = Api::start().await;
    let path = "/api/ratelimits/orgs/acme";
    let limit =
        |capacity: u64| json!([{ "selector": {}, "policy": { "capacity": capacity, "refill": "1/s" } }]);
    let first = api.put("org:acme", path, limit(1)).await;
    let tag = first.etag.unwrap();
    let conditional = |tag: String, body: Value| {
        let api = &api;
        async move { api.send("org:acme", Method::PUT, path, Some(body), &[("if-match", &tag)]).await }
    };
    let second = conditional(tag.clone(), limit(2)).await;
    assert_eq!(second.status, StatusCode::OK);
    let stale = conditional(tag, limit(3)).await;
    assert_eq!(
        (stale.status, &stale.body["code"]),
        (StatusCode::PRECONDITION_FAILED, &json!("precondition_failed"))
    );
    let read = api.get("org:acme", path).await;
    assert_eq!((&read.body[0]["policy"]["capacity"], &read.etag), (&json!(2), &second.etag));
}

#[tokio::test]
async fn the_bodies_of_the_first_seed_are_taken_as_json_and_as_yaml() {
    let mut api = Api::start().await;
    let exposure = json!({ "server": "demo", "protocol": "a2a", "enabled": false });
    let answer = api.put("platform", "/api/policy/orgs/acme/exposure", exposure.clone()).await;
    assert_eq!(answer.body, json!([exposure]));

    let binding = json!({
        "target": { "type": "user", "idOrPattern": "*" },
        "primitive": { "name": "cc.compliance.search", "protocol": "mcp" },
        "allowed": true
    });
    let answer = api.put("platform", "/api/policy/orgs/acme/bindings", binding.clone()).await;
    assert_eq!(answer.body, json!([binding]));

    let yaml = "\
- selector: { server: \"*\", primitive: \"*\", user: \"*\", wcit: \"*\" }
  policy:
    { type: \"token-bucket\", capacity: 1000, refill: \"100/s\" }
- selector: { primitive: \"cc.compliance.search\", user: \"*\", wcit: \"*\" }
  policy:
    { capacity: 20, refill: \"1/s\" }
";
    let answer = api
        .send(
            "platform",
            Method::PUT,
            "/api/ratelimits/orgs/acme",
            Some(json!(yaml)),
            &[("content-type", "application/yaml")],
        )
        .await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.body);
    assert_eq!(answer.body[1]["selector"]["server"], "*", "a missing selector is *");
    assert_eq!(answer.body[1]["policy"]["type"], "token-bucket", "a missing type is token-bucket");
    api.published(|snapshot| snapshot.limits.len() == 2 && snapshot.bindings.len() == 1).await;
}

#[tokio::test]
async fn a_limit_that_makes_no_sense_is_refused_with_its_place() {
    let api = Api::start().await;
    let with = |selector: Value, policy: Value| json!([{ "selector": selector, "policy": policy }]);
    let good = json!({ "capacity": 1, "refill": "1/s" });
    for body in [
        with(json!({}), json!({ "capacity": 0, "refill": "1/s" })),
        with(json!({}), json!({ "capacity": 1, "refill": "fast" })),
        with(json!({}), json!({ "type": "leaky", "capacity": 1, "refill": "1/s" })),
        with(json!({ "user": "a*" }), good.clone()),
        with(json!({ "primitive": "" }), good),
    ] {
        let answer = api.put("platform", "/api/ratelimits/orgs/acme", body).await;
        assert_eq!(
            (answer.status, &answer.body["code"]),
            (StatusCode::BAD_REQUEST, &json!("invalid_params"))
        );
        assert!(answer.body["detail"].as_str().unwrap().starts_with("limit 0"), "{}", answer.body);
    }
    let typo = with(json!({ "usr": "a" }), json!({ "capacity": 1, "refill": "1/s" }));
    assert_eq!(api.put("platform", "/api/ratelimits/orgs/acme", typo).await.body["code"], "invalid_body");
}

#[tokio::test]
async fn an_org_admin_sees_and_changes_its_own_org_only() {
    let api = Api::start().await;
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
async fn a_revocation_is_listed_published_and_taken_back() {
    let mut api = Api::start().await;
    let body = json!({ "type": "token", "org": "acme", "id": "jti-1", "reason": "lost" });
    let created = api.send("org:acme", Method::POST, "/api/revocations", Some(body), &[]).await;
    assert_eq!(created.status, StatusCode::CREATED, "{}", created.body);
    let edge = |snapshot: &asp_proto::snapshot::GatewaySnapshot| snapshot.edge.clone().unwrap();
    api.published(|snapshot| edge(snapshot).revoked.len() == 16).await;
    let user = json!({ "type": "user", "org": "acme", "id": "alice" });
    api.send("platform", Method::POST, "/api/revocations", Some(user), &[]).await;
    api.published(|snapshot| edge(snapshot).revoked_before.len() == 1).await;

    let listed = api.get("org:acme", "/api/revocations").await;
    assert_eq!(listed.body.as_array().unwrap().len(), 2);
    assert_eq!(api.get("org:other", "/api/revocations").await.body, json!([]));
    let one = format!("/api/revocations/{}", created.body["revocation"].as_str().unwrap());
    assert_eq!(api.send("org:other", Method::DELETE, &one, None, &[]).await.status, StatusCode::NOT_FOUND);
    assert_eq!(api.send("org:acme", Method::DELETE, &one, None, &[]).await.status, StatusCode::NO_CONTENT);
    api.published(|snapshot| edge(snapshot).revoked.is_empty()).await;

    let same = Some(json!({ "type": "user", "org": "acme", "id": "alice" }));
    let gone = api.send("org:acme", Method::DELETE, "/api/revocations", same.clone(), &[]).await;
    assert_eq!((gone.status, gone.body.as_array().unwrap().len()), (StatusCode::OK, 1));
    api.published(|snapshot| edge(snapshot).revoked_before.is_empty()).await;
    let again = api.send("org:acme", Method::DELETE, "/api/revocations", same, &[]).await;
    assert_eq!(again.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_revocation_that_names_nothing_is_refused() {
    let api = Api::start().await;
    for body in [
        json!({ "type": "user", "id": "alice" }),
        json!({ "type": "token_hash", "id": "abc" }),
        json!({ "type": "session", "id": "x" }),
        json!({ "type": "token", "id": "" }),
        json!({ "type": "org", "org": "a", "id": "b" }),
    ] {
        let answer = api.send("platform", Method::POST, "/api/revocations", Some(body), &[]).await;
        assert_eq!(answer.body["code"], "invalid_params", "{}", answer.body);
    }
    let foreign = json!({ "type": "org", "id": "other" });
    let answer = api.send("org:acme", Method::POST, "/api/revocations", Some(foreign), &[]).await;
    assert_eq!(answer.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn every_change_is_in_the_audit_with_its_actor() {
    let api = Api::start().await;
    let body = json!({ "server": "demo", "protocol": "mcp", "enabled": true });
    api.put("org:acme", "/api/policy/orgs/acme/exposure", body.clone()).await;
    api.put("platform", "/api/policy/orgs/other/exposure", body).await;
    let all = api.get("platform", "/api/audit").await.body;
    let actors: Vec<&str> =
        all.as_array().unwrap().iter().map(|row| row["actor"].as_str().unwrap()).collect();
    assert_eq!(actors, ["ops@platform", "ops@acme"]);
    let own = api.get("org:acme", "/api/audit").await.body;
    assert_eq!((own.as_array().unwrap().len(), &own[0]["action"]), (1, &json!("exposure.put")));
}

#[tokio::test]
async fn specs_are_validated_and_compiled_alone_or_as_files() {
    let api = Api::start().await;
    let files = sample("demo");
    let spec =
        files["files"].as_array().unwrap().iter().find(|file| file["path"] == "demo/echo.yaml").unwrap();
    let yaml = [("content-type", "application/yaml")];
    let text = Some(spec["text"].clone());
    let valid = api.send("org:acme:read", Method::POST, "/api/registry/validate", text.clone(), &yaml).await;
    assert_eq!(valid.body["valid"], true, "{}", valid.body);
    let compiled = api.send("platform", Method::POST, "/api/registry/compile", text, &yaml).await;
    assert_eq!(compiled.body["mcp"]["tools"][0]["name"], "echo", "{}", compiled.body);
    assert!(compiled.body["runtimeManifest"].as_object().is_some_and(|manifests| manifests.len() == 1));

    let all = api.send("platform", Method::POST, "/api/registry/compile", Some(files), &[]).await;
    assert!(all.body["mcp"]["tools"].as_array().unwrap().len() > 1);
    let broken =
        api.send("platform", Method::POST, "/api/registry/validate", Some(json!("id: [")), &yaml).await;
    assert_eq!((broken.status, &broken.body["valid"]), (StatusCode::OK, &json!(false)));
    assert!(!broken.body["errors"].as_array().unwrap().is_empty());
}

#[tokio::test]
async fn an_org_sees_its_primitives_with_exposure_and_policy() {
    let api = Api::start().await;
    api.put("platform", DEMO, sample("demo")).await;
    let off = json!({ "server": "demo", "protocol": "a2a", "enabled": false });
    api.put("org:acme", "/api/policy/orgs/acme/exposure", off).await;
    let bound = json!({
        "target": { "type": "group", "idOrPattern": "ops" }, "primitive": { "name": "ec*" }, "allowed": false
    });
    api.put("org:acme", "/api/policy/orgs/acme/bindings", bound).await;
    let listed = api.get("org:acme", "/api/registry/orgs/acme/primitives").await.body;
    let echo = listed.as_array().unwrap().iter().find(|primitive| primitive["name"] == "echo").unwrap();
    assert_eq!(echo["exposure"]["mcp"], "echo");
    assert_eq!(echo["exposure"]["a2a"], Value::Null, "switched off for this org");
    assert_eq!(echo["policy"][0]["primitive"]["protocol"], "*");
    let other = api.get("platform", "/api/registry/orgs/other/primitives").await.body;
    let echo = other.as_array().unwrap().iter().find(|primitive| primitive["name"] == "echo").unwrap();
    assert_ne!(echo["exposure"]["a2a"], Value::Null);
}

#[tokio::test]
async fn explain_names_the_rule_that_decides() {
    let mut api = Api::start().await;
    api.put("platform", DEMO, sample("demo")).await;
    let binding = json!({
        "target": { "type": "group", "idOrPattern": "ops" },
        "primitive": { "name": "echo", "protocol": "mcp" },
        "allowed": false
    });
    api.put("org:acme", "/api/policy/orgs/acme/bindings", binding.clone()).await;
    let off = json!({ "server": "demo", "protocol": "rest", "enabled": false });
    api.put("org:acme", "/api/policy/orgs/acme/exposure", off).await;
    api.published(|snapshot| snapshot.revision == 3).await;
    let ask = |server: &str, primitive: &str, protocol: &str, groups: Value| {
        let question = json!({
            "org": "acme", "user": "alice", "groups": groups,
            "server": server, "primitive": primitive, "protocol": protocol
        });
        let api = &api;
        async move {
            api.send("org:acme:read", Method::POST, "/api/policy/explain", Some(question), &[]).await.body
        }
    };
    let denied = ask("demo", "echo", "mcp", json!(["ops"])).await;
    assert_eq!((&denied["outcome"], &denied["decidedBy"]["binding"]), (&json!("denied"), &binding));
    let allowed = ask("demo", "echo", "mcp", json!([])).await;
    assert_eq!((&allowed["outcome"], &allowed["allowed"]), (&json!("allowed"), &json!(true)));
    let hidden = ask("demo", "echo", "rest", json!([])).await;
    assert_eq!(
        (&hidden["outcome"], &hidden["decidedBy"]["rule"]),
        (&json!("not_exposed"), &json!("the org's exception"))
    );
    assert_eq!(ask("nowhere", "echo", "mcp", json!([])).await["outcome"], "unknown_server");
    assert_eq!(ask("demo", "nothing", "mcp", json!([])).await["outcome"], "unknown_primitive");
    let foreign = json!({ "org": "other", "server": "demo", "primitive": "echo", "protocol": "mcp" });
    let answer = api.send("org:acme", Method::POST, "/api/policy/explain", Some(foreign), &[]).await;
    assert_eq!(answer.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn only_an_admin_token_opens_the_api() {
    let api = Api::start().await;
    let client = ClientToken {
        org: "acme".into(),
        user: "alice".into(),
        scopes: Vec::new(),
        groups: Vec::new(),
        audience: "http://127.0.0.1:8080".into(),
        ttl: MAX_TTL,
    };
    let client = api.issuer.mint_client(&client).unwrap().expose().to_owned();
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
async fn every_operation_of_the_document_exists_and_wants_a_token() {
    let api = Api::start().await;
    let document = serde_json::to_value(openapi::Document::openapi()).unwrap();
    assert!(document["openapi"].as_str().unwrap().starts_with("3.1"));
    let public: BTreeSet<&str> = ["/.well-known/jwks.json"].into();
    let mut operations = 0;
    for (path, item) in document["paths"].as_object().unwrap() {
        let concrete = path.replace("{org}", "acme").replace("{server}", "demo").replace("{id}", "x");
        for method in item.as_object().unwrap().keys() {
            let request = Request::builder()
                .method(method.to_uppercase().as_str())
                .uri(&concrete)
                .header(header::HOST, "localhost")
                .body(Body::empty())
                .unwrap();
            let status = api.raw(request).await.status();
            let expected =
                if public.contains(path.as_str()) { StatusCode::OK } else { StatusCode::UNAUTHORIZED };
            assert_eq!(status, expected, "{method} {path}");
            operations += 1;
        }
    }
    assert_eq!(operations, 26);
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
