//! One place in which every call is found, by whoever may have it and for as long as it was promised (I-4).

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use asp_call::call::chosen::ChosenId;
use asp_call::call::event::{Event, LogLevel};
use asp_call::call::registry::CallRegistry;
use asp_call::call::{Call, CallRequest, ClientAbilities, Invocation};
use asp_edge::Caller;
use asp_proto::snapshot::Protocol;
use asp_snapshot::Snapshot;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::support::{Fixture, Legacy, Modern, now, snapshot, token};

const HOUR: Duration = Duration::from_secs(3600);

pub(crate) fn caller(user: &str) -> Caller {
    Caller {
        org: "acme".into(),
        user: user.into(),
        groups: Vec::new(),
        scopes: Vec::new(),
        client: "cli".into(),
        wcit: format!("t-{user}"),
        digest: [0; 32],
        issuer: "dev".into(),
        issued_at: now(),
        expires_at: now() + 36_000,
    }
}

fn begun(fixture: &Fixture, user: &str, tool: &str, arguments: Value) -> Arc<Call> {
    begun_as(fixture, user, tool, arguments, None)
}

/// The same under an id that its client chose.
fn begun_as(
    fixture: &Fixture,
    user: &str,
    tool: &str,
    arguments: Value,
    chosen: Option<ChosenId>,
) -> Arc<Call> {
    static SNAPSHOT: LazyLock<Arc<Snapshot>> =
        LazyLock::new(|| Arc::new(Snapshot::build(snapshot()).unwrap()));
    let snapshot = SNAPSHOT.clone();
    let server = snapshot.server("demo").unwrap().clone();
    let request = CallRequest {
        caller: Arc::new(caller(user)),
        protocol: Protocol::Mcp,
        entry: server.tool(tool).unwrap().clone(),
        server,
        meta: Default::default(),
        kind: Default::default(),
        chosen,
        protocol_request_id: "1".into(),
        session: String::new(),
        context: String::new(),
        opening: None,
        trace: asp_edge::Trace::new([7; 24]),
        bytes_in: 0,
        parent: None,
    };
    let invocation = Invocation {
        request,
        subject: None,
        arguments: arguments.into(),
        idempotency_key: None,
        deadline: None,
        abilities: ClientAbilities::default(),
        memory: None,
    };
    fixture.gateway.pipeline.begin(snapshot, invocation).unwrap()
}

/// A call that runs for ten seconds.
pub(crate) fn running(fixture: &Fixture) -> Arc<Call> {
    begun(fixture, "alice", "count", json!({"to": 100, "delayMs": 100}))
}

fn is_found(fixture: &Fixture, call: &Call, caller: &Caller) -> bool {
    fixture.gateway.pipeline.internals().registry.attach(call.id, caller, "demo").is_some()
}

#[tokio::test]
async fn a_call_is_found_by_its_principal_at_its_server_and_by_nobody_else() {
    let fixture = Fixture::new();
    let call = running(&fixture);
    let alice = caller("alice");
    let others = [
        Caller { user: "bob".into(), ..alice.clone() },
        Caller { org: "globex".into(), ..alice.clone() },
        Caller { issuer: "another".into(), ..alice.clone() },
        Caller { client: "another".into(), ..alice.clone() },
    ];
    assert!(is_found(&fixture, &call, &Caller { wcit: "a fresh token".into(), ..alice.clone() }));
    for other in others {
        assert!(!is_found(&fixture, &call, &other), "{other:?}");
    }
    let registry = fixture.gateway.pipeline.internals().registry;
    assert!(registry.attach(call.id, &alice, "policy").is_none(), "it was begun elsewhere");
}

#[tokio::test(start_paused = true)]
async fn an_ended_call_is_found_for_as_long_as_it_was_promised() {
    let fixture = Fixture::new();
    let registry = fixture.gateway.pipeline.internals().registry;
    let [promised, unpromised] = [running(&fixture), running(&fixture)];
    registry.promise(&promised, Instant::now() + HOUR);
    registry.promise(&promised, Instant::now() + HOUR / 2);
    for call in [&promised, &unpromised] {
        call.finished().await;
    }
    let alice = caller("alice");
    registry.sweep();
    assert!(is_found(&fixture, &promised, &alice));
    assert!(!is_found(&fixture, &unpromised, &alice), "nobody was told of it");
    assert!(registry.is_empty(), "neither runs");
    tokio::time::advance(HOUR).await;
    registry.sweep();
    assert!(!is_found(&fixture, &promised, &alice));
    assert_eq!(Arc::strong_count(&promised), 1, "and nothing holds it any more");
}

#[tokio::test]
async fn a_call_that_another_gateway_goes_on_with_is_found_there() {
    let fixture = Fixture::new();
    let call = running(&fixture);
    fixture.gateway.pipeline.internals().registry.promise(&call, Instant::now() + HOUR);
    call.ownership.passed_on.set();
    call.cancel();
    call.finished().await;
    assert!(!is_found(&fixture, &call, &caller("alice")));
}

/// Its client may be told of the refusal, and ask again, before the registry hears of the end.
#[tokio::test]
async fn an_id_is_free_as_soon_as_its_call_is_refused() {
    let fixture = Fixture::new();
    let put = |to: Value| {
        let arguments = json!({"to": to, "delayMs": 100});
        let chosen = ChosenId::of(&caller("alice"), ("demo", "mine"), "1.0.0", &arguments.clone().into());
        begun_as(&fixture, "alice", "count", arguments, Some(chosen))
    };
    let refused = put(json!("many"));
    refused.finished().await;
    assert!(refused.void().is_some(), "its arguments are invalid");
    let registry = CallRegistry::default();
    assert!(registry.enter_new(&refused, Instant::now() + HOUR).is_ok());
    assert!(registry.attach(refused.id, &caller("alice"), "demo").is_none());

    let accepted = put(json!(100));
    assert_eq!(accepted.id, refused.id);
    assert!(registry.enter_new(&accepted, Instant::now() + HOUR).is_ok());
    registry.end(&refused);
    let found = registry.attach(refused.id, &caller("alice"), "demo").unwrap();
    assert!(Arc::ptr_eq(&found, &accepted));
    accepted.cancel();
}

/// Invariant I-4: what ended calls hold.
#[tokio::test]
async fn who_leaves_many_ended_calls_behind_pushes_out_their_own() {
    let fixture = Fixture::new();
    let registry = fixture.gateway.pipeline.internals().registry;
    let ended = |user: &str| {
        let call = begun(&fixture, user, "echo", json!({"message": "m"}));
        assert!(call.outcome().is_some());
        registry.promise(&call, Instant::now() + HOUR);
        call
    };
    let other = ended("bob");
    let calls: Vec<Arc<Call>> = (0..1_005).map(|_| ended("alice")).collect();
    assert!(is_found(&fixture, &other, &caller("bob")));
    let kept = calls.iter().filter(|call| is_found(&fixture, call, &caller("alice"))).count();
    assert_eq!(kept, 1_000);
    assert!(calls.iter().take(5).all(|call| !is_found(&fixture, call, &caller("alice"))), "the oldest go");
}

/// Invariant I-4: the share of a user is 64 MiB, and the log of such a call holds 4.
#[tokio::test]
async fn what_an_ended_call_has_logged_counts_as_what_it_holds() {
    let fixture = Fixture::new();
    let line = Event::Log { level: LogLevel::Info, logger: None, data: "x".repeat(16 * 1024).into() };
    let mut calls = Vec::new();
    for _ in 0..20 {
        let call = running(&fixture);
        fixture.gateway.pipeline.internals().registry.promise(&call, Instant::now() + HOUR);
        (0..256).for_each(|_| call.emit(line.clone()));
        call.cancel();
        call.finished().await;
        calls.push(call);
    }
    let kept = calls.iter().filter(|call| is_found(&fixture, call, &caller("alice"))).count();
    assert_eq!(kept, 15);
}

#[tokio::test]
async fn a_retry_whose_answer_was_lost_finds_it_when_it_is_sent_again() {
    let fixture = Fixture::new();
    let wipe = |extra: Value| {
        let mut params = json!({"name": "policy.wipe", "arguments": {"message": "gone"}});
        params.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        let request = Modern::new("policy", &token("alice"), "tools/call", params);
        request.capabilities(json!({"elicitation": {}}))
    };
    let asked = wipe(json!({})).send(&fixture).await.json()["result"].clone();
    let accepted = json!({"asp.approve": {"action": "accept", "content": {"approve": true}}});
    let retry = wipe(json!({"requestState": asked["requestState"], "inputResponses": accepted}));
    let first = retry.send(&fixture).await.json()["result"].clone();
    assert_eq!(first["structuredContent"], json!({"message": "gone"}), "{first}");
    fixture.gateway.pipeline.internals().registry.sweep();
    let again = retry.send(&fixture).await.json();
    assert_eq!(again["result"], first, "{again}");
}

#[tokio::test]
async fn a_session_holds_no_ended_call() {
    let fixture = Fixture::new();
    let client = Legacy::connect(&fixture, "demo", "alice", "2025-06-18", json!({})).await;
    let call = json!({"name": "echo", "arguments": {"message": "m"}});
    assert_eq!(client.request(5, "tools/call", call).await.json()["result"]["isError"], false);
    let session = fixture.gateway.sessions.find(&client.session, "demo", &caller("alice")).await.unwrap();
    assert!(session.tracked("5").is_none());
}
