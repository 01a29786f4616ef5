//! Approval by another person: a grant is for one call of one caller with these arguments under this policy, whoever asks,
//! at whichever gateway, and none without the store.

#[path = "approvals/page.rs"]
mod page;

use std::sync::Arc;
use std::time::Duration;

use asp_gateway::gateway::Gateway;
use asp_proto::snapshot::{
    AuthScheme, Binding, GatewaySnapshot, MachineKey, Protocol, RevokedBefore, TargetKind,
};
use asp_registry::{Inputs, assemble};
use asp_runtime_client::runtimes::Runtimes;
use asp_store::approvals::{
    Approval, ApprovalDecision, ApprovalQuery, ApprovalRequest, ApprovalState, ApprovalStore, Approver,
    Ineligible, check_approver,
};
use asp_store::sqlite::SqliteCalls;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tempfile::TempDir;
use tokio::task::JoinHandle;

use crate::plugin::until_some;
use crate::support::{Answer, Fixture, Modern, inputs, now, token};

/// A hang guard, not an expectation.
const LONG: Duration = Duration::from_secs(60);

/// A binding by which finance approves each call of `policy.open`.
fn by_finance() -> Binding {
    Binding {
        org: "acme".into(),
        target_kind: TargetKind::User.into(),
        target: "*".into(),
        primitive: "policy.open".into(),
        protocol: Protocol::Unspecified.into(),
        approvers: "finance".into(),
        ..Binding::default()
    }
}

fn snapshot() -> GatewaySnapshot {
    assemble(Inputs { bindings: vec![by_finance()], ..inputs() })
}

/// Gateways over one store of approvals.
struct World {
    store: Arc<SqliteCalls>,
    first: Fixture,
    second: Fixture,
    _directory: TempDir,
}

impl World {
    async fn start(snapshot: GatewaySnapshot) -> World {
        let directory = tempfile::tempdir().unwrap();
        let store = Arc::new(SqliteCalls::open(&directory.path().join("calls.db")).await.unwrap());
        let gateway = || {
            let fixture = Fixture::with_snapshot_and(snapshot.clone(), Runtimes::none(), |stores| {
                stores.approvals = Some(store.clone());
            });
            tokio::spawn(Gateway::keep_approvals(Arc::downgrade(&fixture.gateway)));
            fixture
        };
        World { first: gateway(), second: gateway(), store, _directory: directory }
    }

    /// Returns the open requests, latest first.
    async fn open(&self) -> Vec<Approval> {
        let state = Some(ApprovalState::Pending);
        self.store.approvals(&ApprovalQuery { state, limit: 10, ..ApprovalQuery::default() }).await.unwrap()
    }

    /// Returns the only open request.
    async fn request(&self) -> Approval {
        let one = async || {
            let mut open = self.open().await;
            if open.len() == 1 { open.pop() } else { None }
        };
        until_some("one request is open", one).await
    }

    async fn decide(&self, request: &Approval, approved: bool) {
        let decision = ApprovalDecision { approved, by: "dev:bob@acme".into(), reason: String::new() };
        assert!(self.store.decide_approval(request.request.id, &decision).await.unwrap());
    }
}

fn call_of(token: &str, message: &str) -> Modern {
    let arguments = json!({"message": message});
    Modern::new("policy", token, "tools/call", json!({"name": "policy.open", "arguments": arguments}))
}

/// Starts a call of alice.
fn call(fixture: &Fixture, message: &str) -> JoinHandle<Answer> {
    send(fixture, call_of(&token("alice"), message))
}

fn send(fixture: &Fixture, call: Modern) -> JoinHandle<Answer> {
    let fixture = fixture.clone();
    tokio::spawn(async move { call.send(&fixture).await })
}

async fn result(call: JoinHandle<Answer>) -> Value {
    let answer = tokio::time::timeout(LONG, call).await.expect("the call ends").unwrap();
    answer.last()["result"].clone()
}

fn text(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap_or_default()
}

async fn events(fixture: &Fixture) -> Vec<Value> {
    fixture.gateway.flush().await;
    let events = fixture.audit.events();
    let events = events.iter().map(|event| serde_json::from_str::<Value>(&event.event).unwrap());
    events.filter(|event| event["event"].as_str().unwrap().starts_with("approval.")).collect()
}

#[tokio::test]
async fn a_call_waits_for_another_person_and_its_grant_is_used_once() {
    let world = World::start(snapshot()).await;
    let waiting = call(&world.first, "pay");
    let request = world.request().await;
    let asked = &request.request;
    assert_eq!(
        (&*asked.requester, &*asked.scope.approvers, &*asked.scope.approvers_iss),
        ("alice", "finance", "asp-dev")
    );
    assert_eq!(
        serde_json::from_str::<Value>(&asked.shown).unwrap(),
        json!({"message": "pay", "to": 1, "delayMs": 0})
    );
    world.decide(&request, true).await;
    let done = result(waiting).await;
    assert_eq!(
        (&done["isError"], &done["structuredContent"]["message"]),
        (&json!(false), &json!("pay")),
        "{done}"
    );
    let used = world.store.approval(asked.id).await.unwrap().unwrap();
    assert_eq!(used.state, ApprovalState::Used);
    assert!(
        !world.store.use_approval(asked.id, &asked.scope, [1; 16]).await.unwrap(),
        "it cannot be replayed"
    );
    let again = call(&world.second, "pay");
    let second = world.request().await;
    assert_ne!(second.request.id, asked.id, "the same call needs another approval");
    world.decide(&second, false).await;
    let denied = result(again).await;
    assert_eq!(denied["isError"], true);
    assert!(text(&denied).contains("was denied by the person"), "{denied}");
    let of_first = events(&world.first).await;
    let seen: Vec<(&str, &str)> = of_first
        .iter()
        .map(|event| (event["event"].as_str().unwrap(), event["by"].as_str().unwrap_or_default()))
        .collect();
    assert_eq!(seen, [("approval.request", ""), ("approval.use", "dev:bob@acme")]);
    assert!(of_first.iter().all(|event| !event.to_string().contains("pay\"")), "no arguments: {of_first:?}");
}

#[tokio::test]
async fn a_grant_is_not_for_other_arguments_or_another_caller_and_any_gateway_uses_it() {
    let world = World::start(snapshot()).await;
    let denied = call(&world.first, "pay");
    let request = world.request().await;
    world.decide(&request, false).await;
    assert_eq!(result(denied).await["isError"], true);
    // A grant that no call waits for.
    let granted = ApprovalRequest { id: [9; 16], ..request.request.clone() };
    world.store.request_approval(&granted, false).await.unwrap();
    world.decide(&world.request().await, true).await;
    for (user, message) in [("alice", "more"), ("carol", "pay")] {
        let other = send(&world.first, call_of(&token(user), message));
        let asked = world.request().await;
        assert_ne!(asked.request.id, granted.id);
        world.decide(&asked, false).await;
        assert_eq!(result(other).await["isError"], true);
    }
    let unused = world.store.approval(granted.id).await.unwrap().unwrap();
    assert_eq!(unused.state, ApprovalState::Approved);
    assert_eq!(result(call(&world.second, "pay")).await["isError"], false);
    let used = world.store.approval(granted.id).await.unwrap().unwrap();
    assert_eq!(used.state, ApprovalState::Used);
}

#[tokio::test]
async fn a_decision_of_an_approver_who_leaves_is_stored_and_recorded() {
    let world = World::start(snapshot()).await;
    let waiting = call(&world.first, "pay");
    let request = world.request().await;
    let decision = ApprovalDecision { approved: true, by: "dev:bob@acme".into(), reason: String::new() };
    let mut deciding = Box::pin(world.first.gateway.pipeline.decide_approval(&request.request, &decision));
    assert!(futures::poll!(deciding.as_mut()).is_pending(), "the store has not answered yet");
    drop(deciding);
    assert_eq!(result(waiting).await["isError"], false);
    let is_recorded = async || {
        let events = events(&world.first).await;
        events.iter().any(|event| event["event"] == "approval.decision").then_some(())
    };
    until_some("the audit has the decision", is_recorded).await;
}

/// Two gateways have a call each that waits for the same grant.
#[tokio::test]
async fn of_two_gateways_one_uses_a_grant() {
    let world = World::start(snapshot()).await;
    let calls = [call(&world.first, "pay"), call(&world.second, "pay")];
    let request = world.request().await;
    let joined = async || {
        let lines =
            [&world.first, &world.second].map(|one| one.gateway.pipeline.internals().metrics.encode());
        lines.iter().any(|text| text.contains("asp_approval_events_total{event=\"joined\"} 1")).then_some(())
    };
    until_some("the other call has joined", joined).await;
    world.decide(&request, true).await;
    let next = world.request().await;
    assert_ne!(next.request.id, request.request.id, "the slower call asks again");
    world.decide(&next, false).await;
    let mut errors = Vec::new();
    for call in calls {
        errors.push(result(call).await["isError"].as_bool().unwrap());
    }
    errors.sort_unstable();
    assert_eq!(errors, [false, true]);
}

#[tokio::test]
async fn a_grant_is_void_after_a_change_of_the_policy() {
    let world = World::start(snapshot()).await;
    let waiting = call(&world.first, "pay");
    let request = world.request().await;
    let other = Binding { primitive: "policy.wipe".into(), name: "later".into(), ..by_finance() };
    let changed = Inputs { revision: 2, bindings: vec![by_finance(), other], ..inputs() };
    world.first.gateway.apply(assemble(changed)).unwrap();
    world.decide(&request, true).await;
    let refused = result(waiting).await;
    assert_eq!(refused["isError"], true);
    assert!(text(&refused).contains("the policy has changed"), "{refused}");
    let granted = world.store.approval(request.request.id).await.unwrap().unwrap();
    assert_eq!(granted.state, ApprovalState::Approved, "nothing has used it");
}

#[tokio::test]
async fn a_grant_is_void_once_its_approver_is_blocked_or_revoked() {
    let revoked = |user: &str, not_after_iat: u64, block: bool| RevokedBefore {
        org: "acme".into(),
        user: user.into(),
        not_after_iat,
        block,
        ..RevokedBefore::default()
    };
    let later = now() + 60;
    for (by, entry, is_void) in [
        ("dev:bob@acme", revoked("bob", u64::MAX, true), true),
        ("bob@acme", revoked("bob", u64::MAX, true), true),
        ("dev:bob@acme", revoked("bob", later, false), true),
        ("dev:bob@acme", revoked("bob", now() - 60, false), false),
        ("dev:bobby@acme", revoked("bob", u64::MAX, true), false),
        ("dev:bob@acme", RevokedBefore { org: "globex".into(), ..revoked("bob", later, true) }, false),
    ] {
        let world = World::start(snapshot()).await;
        let waiting = call(&world.first, "pay");
        let request = world.request().await;
        let inputs = Inputs { revision: 2, bindings: vec![by_finance()], ..inputs() };
        let changed = assemble(Inputs { revoked_before: vec![entry], ..inputs });
        world.first.gateway.apply(changed).unwrap();
        let decision = ApprovalDecision { approved: true, by: by.into(), reason: String::new() };
        assert!(world.store.decide_approval(request.request.id, &decision).await.unwrap());
        let done = result(waiting).await;
        assert_eq!(done["isError"], is_void, "{by}: {done}");
        let state = world.store.approval(request.request.id).await.unwrap().unwrap().state;
        if !is_void {
            assert_eq!(state, ApprovalState::Used, "{by}");
            continue;
        }
        assert!(text(&done).contains("the person who gave it has been blocked or revoked"), "{by}: {done}");
        assert_eq!(state, ApprovalState::Expired, "{by}: no later call finds it");
        // Another person can approve the next call.
        let again = call(&world.first, "pay");
        let next = world.request().await;
        let decision = ApprovalDecision { by: "dev:dora@acme".into(), ..decision };
        assert!(world.store.decide_approval(next.request.id, &decision).await.unwrap());
        assert_eq!(result(again).await["isError"], false, "{by}");
    }
}

#[tokio::test]
async fn neither_the_caller_nor_a_machine_approves_where_another_person_must() {
    let world = World::start(snapshot()).await;
    let waiting =
        send(&world.first, call_of(&token("alice"), "pay").capabilities(json!({"elicitation": {}})));
    let asked = result(waiting).await;
    assert_eq!(asked["resultType"], "input_required");
    let (key, shown) = asked["inputRequests"].as_object().unwrap().iter().next().unwrap();
    let message = shown["params"]["message"].as_str().unwrap();
    assert!(message.contains("waits for approval by finance") && !message.contains("http"), "{message}");
    // An acceptance by the caller approves nothing: the call goes on waiting.
    let mut params = json!({"name": "policy.open", "arguments": {"message": "pay"}, "requestState": asked["requestState"]});
    params["inputResponses"] = json!({key: {"action": "accept", "content": {"approve": true}}});
    let accepted =
        Modern::new("policy", &token("alice"), "tools/call", params).capabilities(json!({"elicitation": {}}));
    let waiting = send(&world.first, accepted);
    let request = world.request().await;
    let approver = |name: &str| Approver {
        org: "acme".into(),
        names: vec![name.into()],
        iss: "asp-dev".into(),
        groups: vec!["finance".into()],
        is_machine: false,
    };
    assert_eq!(check_approver(&request.request, &approver("alice")), Err(Ineligible::OwnCall));
    let machine = Approver { is_machine: true, ..approver("bob") };
    assert_eq!(check_approver(&request.request, &machine), Err(Ineligible::Machine));
    assert_eq!(check_approver(&request.request, &approver("bob")), Ok(()));
    assert_eq!(world.open().await.len(), 1, "nobody has decided");
    world.decide(&request, true).await;
    assert_eq!(result(waiting).await["isError"], false);
}

#[tokio::test]
async fn a_machine_may_ask_and_a_person_decides() {
    let secret = format!("asp_psk_{}_{}", "a".repeat(16), "s".repeat(64));
    let key = MachineKey {
        id: "a".repeat(16),
        hash: Sha256::digest(&secret).to_vec(),
        org: "acme".into(),
        user: "press".into(),
        groups: vec!["finance".into()],
        scopes: vec![],
        issued_at: now() - 10,
        expires_at: now() + 600,
    };
    let of_machines = Binding { issuer: asp_edge::MACHINE_ISSUER.into(), ..by_finance() };
    let mut inputs = Inputs { bindings: vec![of_machines], machine_keys: vec![key], ..inputs() };
    for server in inputs.servers.iter_mut().filter(|server| server.server.name != "plugins") {
        server.edge.schemes.push(AuthScheme::Psk.into());
    }
    let world = World::start(assemble(inputs)).await;
    let waiting = send(&world.first, call_of(&secret, "pay"));
    let request = world.request().await;
    assert!(request.request.is_machine);
    world.decide(&request, true).await;
    assert_eq!(result(waiting).await["isError"], false);
}

#[tokio::test]
async fn without_the_store_nothing_is_admitted() {
    let world = World::start(snapshot()).await;
    world.store.close().await;
    let refused = result(call(&world.first, "pay")).await;
    assert_eq!(refused["isError"], true, "{refused}");
    assert!(text(&refused).contains("approvals are not available"), "{refused}");
    let without = Fixture::of(snapshot());
    let refused = result(call(&without, "pay")).await;
    assert!(text(&refused).contains("approvals are not available"), "{refused}");
}

/// The store is lost between the decision and the use.
#[tokio::test]
async fn a_decision_without_the_store_to_use_it_admits_nothing() {
    let world = World::start(snapshot()).await;
    let waiting = call(&world.first, "pay");
    let request = world.request().await;
    world.store.close().await;
    assert!(
        world
            .store
            .decide_approval(
                request.request.id,
                &ApprovalDecision { approved: true, by: "b".into(), reason: String::new() }
            )
            .await
            .is_err()
    );
    let ended = tokio::time::timeout(Duration::from_millis(500), waiting).await;
    assert!(ended.is_err(), "it waits, and does not run");
}

#[tokio::test]
async fn arguments_that_an_approver_cannot_review_are_refused() {
    let world = World::start(snapshot()).await;
    let long = call_of(&token("alice"), &"x".repeat(20_000)).send(&world.first).await.text;
    assert!(long.contains("nobody can review"), "{long}");
    let mut twice = call_of(&token("alice"), "pay");
    // Without a default to fill in, arguments stay the client's text.
    twice.body["params"]["arguments"] = json!({"message": "TWICE", "to": 1, "delayMs": 0});
    let body = twice.body.to_string().replace(r#""message":"TWICE""#, r#""message":"a","message":"b""#);
    let headers: Vec<(&str, &str)> =
        twice.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let twice = world.first.send(http::Method::POST, "/policy/mcp", &headers, &body).await.text;
    assert!(twice.contains("is there twice"), "{twice}");
    assert!(world.open().await.is_empty());
}
