//! No write can stop publishing: budgets, standing faults, and the behaviour while nothing can be published.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc;

use asp_store::control::sql::ControlStore;
use asp_store::control::{BindingRecord, Change, ExposureRecord, RevocationRecord, SourceFile};
use axum::body::Body;
use http::{Method, Request, StatusCode, header};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::sync::oneshot;

use super::queues::with_one_compiler;
use super::{Answer, Api, DEMO, sample};
use crate::testkit::TestIssuer;

fn change() -> Change {
    Change::unconditional("older version", 1)
}

async fn text(api: &Api, path: &str) -> (StatusCode, String) {
    let request = Request::builder().uri(path).header(header::HOST, "localhost").body(Body::empty()).unwrap();
    let response = api.raw(request).await;
    let status = response.status();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(bytes.to_vec()).unwrap())
}

async fn covers(api: &mut Api) -> crate::publisher::PublicationStatus {
    let stored = api.store.revision().await.unwrap();
    let standing = api.standing.wait_for(|standing| standing.covers >= stored || standing.fault.is_some());
    standing.await.unwrap().clone()
}

#[tokio::test]
async fn the_slowest_limit_of_one_org_stops_no_revocation() {
    let mut api = Api::start().await;
    api.put("platform", DEMO, sample("demo")).await;
    let slow = json!([{ "selector": {}, "policy": { "capacity": 1, "refill": "0.001/h" } }]);
    let answer = api.put("org:acme", "/api/ratelimits/orgs/acme", slow).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.body);
    let body = json!({ "type": "token_hash", "id": "a".repeat(64) });
    api.send("platform", Method::POST, "/api/revocations", Some(body), &[]).await;
    let standing = covers(&mut api).await;
    assert_eq!((standing.fault, standing.parts.len()), (None, 0));
    api.published(|snapshot| snapshot.edge.as_ref().unwrap().revoked.len() == 16).await;
    assert_eq!(text(&api, "/readyz").await, (StatusCode::OK, "ready\n".into()));
}

#[tokio::test]
async fn an_org_at_its_budget_is_told_so_and_may_still_shrink() {
    let mut api = Api::start().await;
    let long = |number: usize| format!("{number:0>256}");
    let limit = |number: usize| {
        json!({
            "selector": { "server": long(number), "primitive": long(number), "user": long(number), "wcit": long(number) },
            "policy": { "capacity": 1, "refill": "1/s" },
        })
    };
    let list: Value = (0..1_000).map(limit).collect();
    let path = "/api/ratelimits/orgs/acme";
    assert_eq!(api.put("org:acme", path, list.clone()).await.status, StatusCode::OK);
    // As another version may have left it: beyond the share of an org.
    for number in 0..2_500 {
        let record = BindingRecord {
            org: "acme".into(),
            target_type: "user".into(),
            target: long(number),
            primitive: long(number),
            protocol: "*".into(),
            allowed: false,
            ..BindingRecord::default()
        };
        api.store.put_binding(&change(), &record).await.unwrap();
    }
    covers(&mut api).await;
    let binding = json!({
        "target": { "type": "user", "idOrPattern": "alice" },
        "primitive": { "name": "echo" },
        "allowed": true
    });
    let full = api.put("org:acme", "/api/policy/orgs/acme/bindings", binding.clone()).await;
    assert_eq!((full.status, &full.body["code"]), (StatusCode::CONFLICT, &json!("limit_reached")));
    let detail = full.body["detail"].as_str().unwrap();
    assert!(detail.contains("of this org") && detail.contains("delete unneeded entries"), "{detail}");
    let fewer: Value = (0..999).map(limit).collect();
    assert_eq!(api.put("org:acme", path, fewer).await.status, StatusCode::OK, "it shrinks");
    let other = api.put("org:other", "/api/policy/orgs/other/bindings", binding).await;
    assert_eq!(other.status, StatusCode::OK, "{}", other.body);
}

#[tokio::test]
async fn orgs_full_of_revocations_leave_the_platform_and_small_orgs_their_room() {
    let mut api = Api::start().await;
    let record = |org: &str, number: usize| RevocationRecord {
        id: format!("{org}-{number}"),
        kind: "user".into(),
        org: org.into(),
        target: format!("{number:0>500}"),
        issuer: String::new(),
        reason: String::new(),
        created_at: 1,
        until: u64::MAX >> 1,
        by_platform: false,
    };
    // 1.28 MiB: what full orgs have together.
    for number in 0..2_600 {
        let org = format!("full-{}", number % 8);
        api.store.add_revocation(&change(), &record(&org, number)).await.unwrap();
    }
    covers(&mut api).await;
    let revoke = async |role: &str, org: &str, count: usize| {
        let mut last = (StatusCode::CREATED, Value::Null);
        for number in 0..count {
            let body = json!({ "type": "user", "org": org, "id": format!("{number:0>250}") });
            let answer = api.send(role, Method::POST, "/api/revocations", Some(body), &[]).await;
            last = (answer.status, answer.body);
        }
        last
    };
    let (status, body) = revoke("org:full-1", "full-1", 1).await;
    assert_eq!((status, &body["code"]), (StatusCode::CONFLICT, &json!("limit_reached")), "{body}");
    assert_eq!(revoke("org:small", "small", 3).await.0, StatusCode::CREATED, "a small org has the reserve");
    assert_eq!(revoke("platform", "full-1", 3).await.0, StatusCode::CREATED, "so has the platform, anywhere");
    assert_eq!(covers(&mut api).await.parts, []);
}

#[tokio::test]
async fn what_an_older_version_stored_is_denied_and_named_and_the_rest_goes_on() {
    let mut api = Api::start().await;
    api.put("platform", DEMO, sample("demo")).await;
    let unknown = BindingRecord {
        org: "acme".into(),
        target_type: "role".into(),
        target: "ops".into(),
        primitive: "echo".into(),
        protocol: "*".into(),
        allowed: false,
        ..BindingRecord::default()
    };
    api.store.put_binding(&change(), &unknown).await.unwrap();
    let hidden =
        ExposureRecord { org: "acme".into(), server: "demo".into(), protocol: "quic".into(), enabled: false };
    api.store.put_exposure(&change(), &hidden).await.unwrap();
    let body = json!({ "type": "token_hash", "id": "b".repeat(64) });
    api.send("platform", Method::POST, "/api/revocations", Some(body), &[]).await;
    let standing = covers(&mut api).await;
    assert_eq!((standing.fault, standing.parts.len()), (None, 1));
    api.published(|snapshot| snapshot.edge.as_ref().unwrap().revoked.len() == 16).await;
    let snapshot = api.xds_state.borrow().snapshot.clone().unwrap();
    let bindings = &snapshot.whole().bindings;
    assert!(
        bindings.iter().any(|b| b.org == "acme" && b.primitive == "echo" && b.target == "*" && !b.allowed)
    );
    let exceptions = &snapshot.whole().edge.unwrap().exposure_exceptions;
    assert!(exceptions.iter().any(|e| e.server == "demo" && e.protocol == 0 && !e.enabled));

    let status = api.get("platform", "/api/snapshot").await.body;
    assert_eq!((&status["fault"], &status["faultsCount"]), (&Value::Null, &json!(1)));
    assert_eq!((&status["faults"][0]["part"], &status["faults"][0]["name"]), (&json!("org"), &json!("acme")));
    let (code, ready) = text(&api, "/readyz").await;
    assert!(code == StatusCode::OK && ready.contains("1 standing fault"), "{ready}");
    assert!(!ready.contains("acme"), "public: it names nobody");
    let (_, metrics) = text(&api, "/metrics").await;
    assert!(metrics.contains("asp_snapshot_standing_faults{part=\"org\"} 1"), "{metrics}");
    assert!(metrics.contains("asp_snapshot_publish_failing 0"), "{metrics}");
    for name in ["asp_build_info{version=", "process_cpu_seconds_total ", "process_resident_memory_bytes "] {
        assert!(metrics.lines().any(|line| line.starts_with(name)), "{name}: {metrics}");
    }
}

#[tokio::test]
async fn what_is_stored_beyond_the_whole_stops_no_other_write() {
    let mut api = Api::start().await;
    // As another process may store it: more than all orgs together may have.
    for number in 0..100 {
        let record = BindingRecord {
            org: "grown".into(),
            target_type: "user".into(),
            target: format!("{number}{}", "x".repeat(1024 * 1024)),
            primitive: "echo".into(),
            protocol: "*".into(),
            allowed: true,
            ..BindingRecord::default()
        };
        api.store.put_binding(&change(), &record).await.unwrap();
    }
    covers(&mut api).await;
    api.put("platform", DEMO, sample("demo")).await;
    let on = json!({ "server": "demo", "protocol": "mcp", "enabled": true });
    let answer = api.put("org:other", "/api/policy/orgs/other/exposure", on).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.body);
    let standing = covers(&mut api).await;
    assert_eq!((standing.fault, standing.parts.len()), (None, 1));
    assert_eq!(standing.parts[0].name, "grown");
    let snapshot = api.xds_state.borrow().snapshot.clone().unwrap();
    let exceptions = &snapshot.whole().edge.unwrap().exposure_exceptions;
    assert!(exceptions.iter().any(|exception| exception.org == "other"), "the rest goes on");
}

/// Asks for something that every admin may have.
async fn ask(api: &Api, token: &str) -> Answer {
    let request = Request::builder()
        .uri("/api/schemas")
        .header(header::HOST, "localhost")
        .header(header::AUTHORIZATION, format!("Bearer {token}"));
    super::read(api.raw(request.body(Body::empty()).unwrap()).await).await
}

async fn revoke(api: &Api, token: &str) {
    let hash: String = Sha256::digest(token).iter().map(|byte| format!("{byte:02x}")).collect();
    let body = json!({ "type": "token_hash", "id": hash });
    let revoked = api.send("platform", Method::POST, "/api/revocations", Some(body), &[]).await;
    assert_eq!(revoked.status, StatusCode::CREATED, "{}", revoked.body);
}

#[tokio::test]
async fn a_revoked_admin_is_refused_while_nothing_is_published() {
    let api = Api::without_publisher().await;
    let token = api.token("platform");
    assert_eq!(ask(&api, &token).await.status, StatusCode::OK);
    assert_eq!(text(&api, "/readyz").await.0, StatusCode::SERVICE_UNAVAILABLE);
    revoke(&api, &token).await;
    let refused = ask(&api, &token).await;
    assert_eq!((refused.status, &refused.body["code"]), (StatusCode::UNAUTHORIZED, &json!("token_revoked")));
}

#[tokio::test]
async fn a_revoked_admin_is_refused_while_nothing_newer_is_published() {
    let mut api = Api::start().await;
    api.published(|_| true).await;
    let token = api.token("platform");
    assert_eq!(ask(&api, &token).await.status, StatusCode::OK);
    api.fails.store(true, Ordering::SeqCst);
    revoke(&api, &token).await;
    assert_eq!(covers(&mut api).await.fault.as_deref(), Some("told to fail"));
    let refused = ask(&api, &token).await;
    assert_eq!((refused.status, &refused.body["code"]), (StatusCode::UNAUTHORIZED, &json!("token_revoked")));
}

/// Revocations are many, and read from the store where nothing newer is published.
#[tokio::test]
async fn while_nothing_is_published_who_proves_nothing_is_refused_without_the_store() {
    let state_dir = tempfile::tempdir().unwrap();
    let store = Arc::new(ControlStore::file(&state_dir.path().join("control.db")).await.unwrap());
    let api = Api::of_store(store.clone(), state_dir, false, Vec::new()).await;
    let (own, stranger) = (api.token("platform"), TestIssuer::new().admin("platform", 60));
    assert_eq!(ask(&api, &own).await.status, StatusCode::OK);
    // From here on nothing is read there.
    store.close().await;
    let refused = ask(&api, &stranger).await;
    assert_eq!((refused.status, &refused.body["code"]), (StatusCode::UNAUTHORIZED, &json!("token_invalid")));
    let unknown = ask(&api, &own).await;
    assert!(unknown.status.is_server_error(), "whether it is revoked is not known: {}", unknown.status);
}

/// Occupies the only compiler thread after the work that is queued already; reports when it has it.
fn hold_the_compiler() -> (oneshot::Receiver<()>, mpsc::Sender<()>) {
    let (start, started) = oneshot::channel();
    let (release, held) = mpsc::channel::<()>();
    // Err: the test is over.
    tokio::task::spawn_blocking(move || start.send(()).is_ok() && held.recv().is_ok());
    (started, release)
}

#[test]
fn a_server_is_evaluated_anew_where_another_was_stored_while_it_was() {
    let yaml = "apiVersion: asp/v1\nname: twin\ndescription: A twin.\nprotocols: [mcp]\n\
                auth: {schemes: [none]}\nprimitives: [{ref: twin/echo}]\n";
    let spec = "id: echo\nname: Echo\ntype: tool\nversion: 1.0.0\nowner: z@example.com\nsummary: E.\n\
                mutation: read_only\nprimitiveSchema: {input_schema: {type: object}}\n\
                runtime: {mode: builtin, entrypoint: echo}\n";
    let file = |path: &str, text: &str| SourceFile { path: path.into(), text: text.into() };
    let twin = [file("twin/server.yaml", yaml), file("twin/echo.yaml", spec)];
    with_one_compiler(async |api, mut release| {
        let mut put = Box::pin(api.put("platform", DEMO, sample("demo")));
        // It is checked, and tried by the builders.
        for _ in 0..2 {
            assert!(futures::poll!(&mut put).is_pending());
            let (started, next) = hold_the_compiler();
            release.send(()).unwrap();
            started.await.unwrap();
            release = next;
        }
        // It looks at the others first: the store's one connection serves in order.
        let change = change();
        tokio::select! {
            biased;
            answer = &mut put => panic!("{}", answer.body),
            stored = api.store.put_server(&change, "twin", &twin, "hash") => stored.unwrap(),
        };
        release.send(()).unwrap();
        let refused = put.await;
        assert_eq!(refused.status, StatusCode::UNPROCESSABLE_ENTITY, "{}", refused.body);
        assert!(refused.body.to_string().contains("twin"), "{}", refused.body);
    });
}
