//! An org that sends continuously does not delay others. The tests depend on order, not on time.

use std::sync::Arc;
use std::time::Duration;

use asp_issuers::admin_role::AdminRole;
use asp_xds::published::Publication;
use http::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::{Api, DEMO, read, sample};
use crate::admin::auth::Admin;
use crate::admin::queues::{MAX_OF_ORG, WriteRate};

/// Limit for operations that must not wait.
const HANG: Duration = Duration::from_secs(60);

/// Runs with one compiler thread, which the first task that gets it holds as long as it wants.
pub(super) fn with_one_compiler(test: impl AsyncFnOnce(Arc<Api>, std::sync::mpsc::Sender<()>)) {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().max_blocking_threads(1).build().unwrap();
    runtime.block_on(async {
        let mut api = Api::start().await;
        api.published(|_| true).await;
        let (release, held) = std::sync::mpsc::channel::<()>();
        // Err: the test is over.
        tokio::task::spawn_blocking(move || held.recv().is_ok());
        tokio::time::timeout(HANG, test(Arc::new(api), release)).await.unwrap();
    });
}

fn binding(user: usize) -> Value {
    json!({
        "target": { "type": "user", "idOrPattern": format!("u{user}") },
        "primitive": { "name": "echo" },
        "allowed": true
    })
}

#[test]
fn a_revocation_waits_for_no_write_of_an_org_however_many_there_are() {
    with_one_compiler(async |api, release| {
        let mut writes = JoinSet::new();
        for number in 0..=MAX_OF_ORG {
            let api = Arc::clone(&api);
            writes.spawn(async move {
                api.put("org:acme", "/api/policy/orgs/acme/bindings", binding(number)).await
            });
        }
        let refused = writes.join_next().await.unwrap().unwrap();
        assert_eq!(
            (refused.status, &refused.body["code"]),
            (StatusCode::TOO_MANY_REQUESTS, &json!("too_many_requests"))
        );
        for (role, user) in [("platform", "alice"), ("org:acme", "bob"), ("org:other", "carol")] {
            let org = role.strip_prefix("org:").unwrap_or("acme");
            let body = json!({ "type": "user", "org": org, "id": user });
            let answer = api.send(role, Method::POST, "/api/revocations", Some(body), &[]).await;
            assert_eq!(answer.status, StatusCode::CREATED, "{role}: {}", answer.body);
        }
        let delete =
            api.send("org:other", Method::DELETE, "/api/policy/orgs/other/bindings", None, &[]).await;
        assert_eq!(delete.status, StatusCode::OK, "another org's write");
        assert!(writes.try_join_next().is_none(), "the writes wait");
        release.send(()).unwrap();
        while let Some(answer) = writes.join_next().await {
            assert_eq!(answer.unwrap().status, StatusCode::OK);
        }
        let listed = api.get("org:acme", "/api/policy/orgs/acme/bindings").await;
        assert_eq!(listed.body.as_array().unwrap().len(), MAX_OF_ORG);
    });
}

#[test]
fn questions_beyond_a_bound_are_refused_and_told_when_to_come_back() {
    with_one_compiler(async |api, release| {
        let mut questions = JoinSet::new();
        for number in 0..=MAX_OF_ORG {
            let api = Arc::clone(&api);
            let path = ["/api/registry/validate", "/api/registry/compile"][number % 2];
            questions.spawn(async move {
                let request = axum::http::Request::builder()
                    .method(Method::POST)
                    .uri(path)
                    .header("host", "localhost")
                    .header("content-type", "application/yaml")
                    .header("authorization", format!("Bearer {}", api.token("org:acme:read")));
                api.raw(request.body("id: x\n".into()).unwrap()).await
            });
        }
        let refused = questions.join_next().await.unwrap().unwrap();
        assert_eq!(refused.headers().get("retry-after").unwrap(), "1");
        let refused = read(refused).await;
        assert_eq!(
            (refused.status, &refused.body["code"]),
            (StatusCode::TOO_MANY_REQUESTS, &json!("too_many_requests"))
        );
        release.send(()).unwrap();
        while let Some(answer) = questions.join_next().await {
            assert_ne!(answer.unwrap().status(), StatusCode::TOO_MANY_REQUESTS);
        }
    });
}

/// Without a publisher, a read before the permit is an internal error after a second.
#[tokio::test]
async fn a_question_about_policy_reads_nothing_before_its_turn() {
    let api = Api::without_publisher().await;
    let acme = Admin::test("ops", AdminRole::parse("org:acme").unwrap());
    let first = api.queues.to_read(&acme).await.unwrap();
    let mut waiting: Vec<_> = (1..MAX_OF_ORG).map(|_| Box::pin(api.queues.to_read(&acme))).collect();
    for one in &mut waiting {
        assert!(futures::poll!(one).is_pending());
    }
    let question = json!({ "org": "acme", "server": "demo", "primitive": "echo", "protocol": "mcp" });
    let refused = api.send("org:acme", Method::POST, "/api/policy/explain", Some(question), &[]).await;
    let code = (refused.status, &refused.body["code"]);
    assert_eq!(code, (StatusCode::TOO_MANY_REQUESTS, &json!("too_many_requests")));
    drop((waiting, first));
}

#[test]
fn a_write_whose_caller_goes_away_is_brought_to_its_end_and_keeps_its_turn_until_then() {
    with_one_compiler(async |api, release| {
        let path = "/api/policy/orgs/acme/bindings";
        for number in 0..5 {
            let mut put = Box::pin(api.put("org:acme", path, binding(number)));
            assert!(futures::poll!(&mut put).is_pending());
        }
        release.send(()).unwrap();
        let mut xds_state = api.xds_state.clone();
        let published = |published: &Publication| !published.whole().bindings.is_empty();
        let stored = xds_state.wait_for(|state| state.snapshot.as_deref().is_some_and(published)).await;
        drop(stored.unwrap());
        let listed = api.get("org:acme", path).await.body;
        assert_eq!(listed, json!([binding_as_shown(0)]), "the others had no permit");
    });
}

#[test]
fn an_org_deletes_packages_in_its_turn() {
    with_one_compiler(async |api, _release| {
        let mut writes = Vec::new();
        for number in 0..MAX_OF_ORG {
            let api = Arc::clone(&api);
            let path = "/api/policy/orgs/acme/bindings";
            let mut put = Box::pin(async move { api.put("org:acme", path, binding(number)).await });
            assert!(futures::poll!(&mut put).is_pending());
            writes.push(put);
        }
        let path = format!("/api/artifacts/{}", "a".repeat(64));
        let refused = api.send("org:acme", Method::DELETE, &path, None, &[]).await;
        assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS, "{}", refused.body);
    });
}

#[tokio::test]
async fn who_may_only_read_uses_up_none_of_the_orgs_writes() {
    let mut api = Api::start().await;
    api.published(|_| true).await;
    let path = format!("/api/artifacts/{}", "a".repeat(64));
    for _ in 0..2 * WriteRate::default().burst {
        let refused = api.send("org:acme:read", Method::DELETE, &path, None, &[]).await;
        assert_eq!(refused.status, StatusCode::FORBIDDEN, "{}", refused.body);
    }
    let limits = api.put("org:acme", "/api/ratelimits/orgs/acme", json!([])).await;
    assert_eq!(limits.status, StatusCode::OK, "{}", limits.body);
}

#[tokio::test]
async fn a_server_whose_sender_goes_away_is_stored_and_audited_to_its_end() {
    let mut api = Api::start().await;
    assert_eq!(api.put("platform", DEMO, sample("demo")).await.status, StatusCode::OK);
    api.published(|snapshot| snapshot.primitives.iter().any(|known| known.id == "echo")).await;
    let mut fewer = sample("demo");
    for file in fewer["files"].as_array_mut().unwrap() {
        if file["path"] == "demo/server.yaml" {
            let text = file["text"].as_str().unwrap().replace("  - ref: demo/echo\n", "");
            file["text"] = json!(text);
        }
    }
    let path = format!("{DEMO}?force=true");
    let mut put = Box::pin(api.put("platform", &path, fewer));
    assert!(futures::poll!(&mut put).is_pending());
    drop(put);
    let audited =
        async { while !api.get("platform", "/api/audit").await.body.to_string().contains("server.force") {} };
    tokio::time::timeout(HANG, audited).await.unwrap();
    api.published(|snapshot| !snapshot.primitives.iter().any(|known| known.id == "echo")).await;
}

fn binding_as_shown(user: usize) -> Value {
    let mut shown = binding(user);
    shown["primitive"]["protocol"] = json!("*");
    shown
}
