//! The tasks extension (SEP-2663): calls of task primitives that their clients come back for.

use std::sync::Arc;
use std::time::Duration;

use asp_proto::plugin::{Failed, StatusUpdated, server_message::Payload};
use asp_proto::snapshot::Protocol;
use asp_registry::{Inputs, assemble};
use asp_runtime_client::runtimes::Runtimes;
use asp_store::records::CallRecords;
use axum::body::Body;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tokio::sync::Notify;
use uuid::Uuid;

use super::inbox::Gateways;
use super::takeover::{row, saves_and_hangs, take_over};
use super::{asks_name, fixture, until_async, until_some, user_input};
use crate::runtime::{Runtime, Script, Worker};
use crate::support::{
    Answer, Fixture, Legacy, Modern, denied_to_alice, inputs, snapshot, token, token_with_scopes,
};

const EXTENSION: &str = "io.modelcontextprotocol/tasks";

fn can() -> Value {
    json!({"elicitation": {}, "extensions": {EXTENSION: {}}})
}

fn sweep_as(extra: &Value) -> Modern {
    let mut params = json!({"name": "sweep", "arguments": {}});
    params.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    Modern::new("plugins", &token("alice"), "tools/call", params).capabilities(can())
}

/// The task that a call of `sweep` has become.
pub(super) async fn begun(fixture: &Fixture) -> Value {
    let task = sweep_as(&json!({})).send(fixture).await.json()["result"].clone();
    assert_eq!((&task["resultType"], &task["status"]), (&json!("task"), &json!("working")), "{task}");
    task
}

pub(super) fn of_task(method: &str, task: &Value, extra: &Value) -> Modern {
    of_users_task("alice", "plugins", method, (task, extra))
}

fn of_users_task(user: &str, server: &str, method: &str, (task, extra): (&Value, &Value)) -> Modern {
    let id = task["taskId"].as_str().unwrap();
    let mut params = json!({"taskId": id});
    params.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    Modern::new(server, &token(user), method, params).with("mcp-name", id).capabilities(can())
}

pub(super) async fn get(fixture: &Fixture, task: &Value) -> Value {
    of_task("tasks/get", task, &json!({})).send(fixture).await.json()["result"].clone()
}

/// The task, once it has the status.
pub(super) async fn until(fixture: &Fixture, task: &Value, status: &str) -> Value {
    let look = async || Some(get(fixture, task).await).filter(|found| found["status"] == status);
    until_some(&format!("never {status}"), look).await
}

/// A tool that asks for a name and completes.
fn asking() -> Runtime {
    Runtime::start(Script::of(|_, mut worker: Worker| async move {
        let invoke = worker.begin(&[]).await;
        worker.say(asks_name(&invoke.request_id)).await;
        user_input(&mut worker).await;
        worker.complete(&invoke, &json!({"ok": true})).await;
    }))
}

/// Invariant I-13.
#[tokio::test]
async fn a_task_is_durable_when_it_is_told_asks_is_answered_and_completes() {
    let runtime = asking();
    let fixture = fixture(&runtime);
    fixture.gateway.pipeline.internals().active.renew().await.unwrap();
    let task = begun(&fixture).await;
    for member in ["createdAt", "lastUpdatedAt"] {
        assert!(task[member].as_str().unwrap().ends_with('Z'), "{task}");
    }
    assert!(task["ttlMs"].as_u64().unwrap() >= 3_600_000 && task["pollIntervalMs"].as_u64().is_some());
    for member in ["result", "error", "inputRequests", "requestState"] {
        assert!(task.get(member).is_none(), "{task}");
    }
    let id = Uuid::parse_str(task["taskId"].as_str().unwrap()).unwrap();
    assert!(fixture.active.find(id.into_bytes()).await.unwrap().is_some(), "in the store");
    let asked = until(&fixture, &task, "input_required").await;
    // Another gateway knows what the store says: that it waits for answers, not what it asks.
    let other = fixture.beside(Runtimes::none());
    let elsewhere = until(&other, &task, "input_required").await;
    assert_eq!(elsewhere["inputRequests"], json!({}));
    assert!(elsewhere["statusMessage"].as_str().unwrap().contains("another gateway"), "{elsewhere}");
    assert_eq!(elsewhere["ttlMs"], asked["ttlMs"]);
    assert!(elsewhere["lastUpdatedAt"].as_str() > asked["createdAt"].as_str(), "{elsewhere}");
    assert_eq!(asked["resultType"], "complete");
    assert_eq!(asked["inputRequests"]["plugins.name"]["method"], "elicitation/create");
    let unsuited = json!({"inputResponses": {"other": {}, "plugins.name": 7}});
    let done = of_task("tasks/update", &task, &unsuited).send(&fixture).await.json()["result"].clone();
    assert_eq!(done["resultType"], "complete");
    assert!(done.get("taskId").is_none() && done.get("status").is_none(), "{done}");
    assert_eq!(get(&fixture, &task).await["status"], "input_required");
    let answer =
        json!({"inputResponses": {"plugins.name": {"action": "accept", "content": {"name": "Ada"}}}});
    of_task("tasks/update", &task, &answer).send(&fixture).await;
    let done = until(&fixture, &task, "completed").await;
    assert_eq!(done["result"]["structuredContent"], json!({"ok": true}), "{done}");
    // How it ended is told at every gateway over the same store.
    fixture.gateway.flush().await;
    assert_eq!(until(&other, &task, "completed").await["result"]["structuredContent"], json!({"ok": true}));
}

/// `/all/mcp`: the id of a task does not name its server.
#[tokio::test]
async fn at_the_address_of_all_servers_a_task_is_found_at_its_own() {
    let runtime = asking();
    let snapshot = assemble(Inputs { all_servers: true, ..inputs() });
    let fixture = Fixture::with(snapshot, 7, runtime.runtimes());
    fixture.gateway.pipeline.internals().active.renew().await.unwrap();
    let discovered = Modern::new("all", &token("alice"), "server/discover", json!({})).send(&fixture).await;
    assert_eq!(discovered.json()["result"]["capabilities"]["extensions"], json!({EXTENSION: {}}));
    let params = json!({"name": "plugins__sweep", "arguments": {}});
    let call = Modern::new("all", &token("alice"), "tools/call", params).capabilities(can());
    let task = call.send(&fixture).await.json()["result"].clone();
    assert_eq!((&task["resultType"], &task["status"]), (&json!("task"), &json!("working")), "{task}");
    let of_task = async |user: &str, method: &str, extra: Value| {
        of_users_task(user, "all", method, (&task, &extra)).send(&fixture).await.json()
    };
    let until = async |status: &str| {
        let look = async || {
            let found = of_task("alice", "tasks/get", json!({})).await["result"].clone();
            Some(found).filter(|found| found["status"] == status)
        };
        until_some(&format!("never {status}"), look).await
    };
    until("input_required").await;
    let foreign = of_task("bob", "tasks/get", json!({})).await;
    assert_eq!(foreign["error"]["message"], "unknown task", "{foreign}");
    let answer =
        json!({"inputResponses": {"plugins.name": {"action": "accept", "content": {"name": "Ada"}}}});
    of_task("alice", "tasks/update", answer).await;
    let done = until("completed").await;
    assert_eq!(done["result"]["structuredContent"], json!({"ok": true}), "{done}");
    assert_eq!(get(&fixture, &task).await["status"], "completed", "also at its server's own address");
}

#[tokio::test]
async fn a_task_whose_gateway_is_gone_is_told_as_an_error_for_as_long_as_its_ttl() {
    let runtime = Runtime::start(Script::of(|_, mut worker: Worker| async move {
        worker.begin(&[]).await;
        while worker.next().await.is_some() {}
    }));
    let fixture = fixture(&runtime);
    let active = fixture.gateway.pipeline.internals().active;
    active.renew().await.unwrap();
    let task = begun(&fixture).await;
    let id = Uuid::parse_str(task["taskId"].as_str().unwrap()).unwrap();
    let record = fixture.active.find(id.into_bytes()).await.unwrap().unwrap();
    let ttl = task["ttlMs"].as_i64().unwrap();
    assert!(record.expires_ms - record.created_ms >= ttl, "{ttl}: {record:?}");
    active.retire().await;
    let found = until(&fixture.beside(Runtimes::none()), &task, "completed").await;
    assert_eq!(found["result"]["isError"], true, "{found}");
}

#[tokio::test]
async fn a_cancelled_task_is_cancelled_and_may_be_cancelled_again() {
    let runtime = Runtime::start(Script::of(|_, mut worker: Worker| async move {
        worker.begin(&[]).await;
        while worker.next().await.is_some() {}
    }));
    let fixture = fixture(&runtime);
    let task = begun(&fixture).await;
    for _ in 0..2 {
        let done = of_task("tasks/cancel", &task, &json!({})).send(&fixture).await.json()["result"].clone();
        assert_eq!(done["resultType"], "complete");
        let found = until(&fixture, &task, "cancelled").await;
        assert!(found.get("result").is_none() && found.get("error").is_none(), "{found}");
    }
}

#[tokio::test]
async fn a_tool_that_fails_has_completed_and_a_missed_deadline_has_failed() {
    for (code, status) in [("BROKEN", "completed"), ("DEADLINE", "failed")] {
        let runtime = Runtime::start(Script::of(move |_, mut worker: Worker| async move {
            let invoke = worker.begin(&[]).await;
            let failed = Failed { request_id: invoke.request_id, code: code.into(), ..Failed::default() };
            worker.say(Payload::Failed(failed)).await;
        }));
        let fixture = fixture(&runtime);
        let task = begun(&fixture).await;
        let found = until(&fixture, &task, status).await;
        assert_eq!(found["result"]["isError"].as_bool(), (status == "completed").then_some(true), "{found}");
        assert_eq!(found["error"]["code"].is_i64(), status == "failed", "{found}");
        assert_eq!(found.get("statusMessage"), found["error"].get("message"), "{found}");
    }
}

/// An answer without its trace.
fn error(answer: &Answer) -> Value {
    let mut error = answer.json()["error"].clone();
    error["data"].as_object_mut().unwrap().remove("traceId");
    error
}

#[tokio::test]
async fn a_task_of_another_user_or_server_is_as_unknown_as_none() {
    let runtime = asking();
    let fixture = fixture(&runtime);
    let task = begun(&fixture).await;
    let none = json!({"taskId": Uuid::now_v7().to_string()});
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        let extra = json!({"inputResponses": {}});
        let unknown = error(&of_task(method, &none, &extra).send(&fixture).await);
        assert_eq!(unknown["code"], -32602);
        for (user, server) in [("bob", "plugins"), ("alice", "demo")] {
            let foreign = of_users_task(user, server, method, (&task, &extra)).send(&fixture).await;
            assert_eq!(error(&foreign), unknown, "{method} {user} {server}");
        }
    }
    assert_eq!(until(&fixture, &task, "input_required").await["taskId"], task["taskId"], "nobody ended it");
}

#[tokio::test]
async fn who_comes_back_needs_the_scopes_that_the_task_needed() {
    let runtime = asking();
    let scoped = || {
        let mut inputs = inputs();
        let primitives = inputs.servers.iter_mut().flat_map(|server| &mut server.primitives);
        primitives
            .filter(|primitive| primitive.id == "sweep")
            .for_each(|sweep| sweep.scopes = vec!["x:read".into()]);
        assemble(inputs)
    };
    let fixture = Fixture::with(scoped(), 7, runtime.runtimes());
    fixture.gateway.pipeline.internals().active.renew().await.unwrap();
    let other = fixture.with_stores(scoped(), |stores| stores.active = fixture.active.clone());
    let as_scoped = |method: &str, params: &Value| {
        Modern::new("plugins", &token_with_scopes("alice", "x:read"), method, params.clone())
            .capabilities(can())
    };
    let call = json!({"name": "sweep", "arguments": {}});
    let task = as_scoped("tools/call", &call).send(&fixture).await.json()["result"].clone();
    for gateway in [&fixture, &other] {
        for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
            let refused = of_task(method, &task, &json!({"inputResponses": {}})).send(gateway).await;
            assert_eq!(refused.status.as_u16(), 403, "{method}: {}", refused.text);
            assert!(refused.headers["www-authenticate"].to_str().unwrap().contains("x:read"));
        }
    }
    let (_, followed) = listens(&fixture, "alice", json!([task["taskId"]])).await;
    assert!(followed.get("taskIds").is_none(), "{followed}");
    let id = task["taskId"].as_str().unwrap();
    let found = as_scoped("tasks/get", &json!({"taskId": id})).with("mcp-name", id).send(&fixture).await;
    assert_ne!(found.json()["result"]["status"], "cancelled");
    assert_eq!(found.json()["result"]["taskId"], task["taskId"]);
}

#[tokio::test]
async fn a_client_without_the_extension_waits_and_cannot_call_what_must_be_a_task() {
    let runtime = Runtime::start(Script::of(|_, mut worker: Worker| async move {
        let invoke = worker.begin(&[]).await;
        worker.complete(&invoke, &json!({"ok": true})).await;
    }));
    let required = json!({"extensions": {EXTENSION: {}}});
    let plain = fixture(&runtime);
    let result = sweep_as(&json!({})).capabilities(json!({})).send(&plain).await.json()["result"].clone();
    assert_eq!(result["structuredContent"], json!({"ok": true}), "{result}");
    let mut snapshot = snapshot();
    snapshot.primitives.iter_mut().filter(|one| one.id == "sweep").for_each(|one| one.task_required = true);
    let strict = Fixture::with(snapshot, 7, runtime.runtimes());
    let task = json!({"taskId": Uuid::now_v7().to_string()});
    for request in [sweep_as(&json!({})), of_task("tasks/get", &task, &json!({}))] {
        let answer = request.capabilities(json!({})).send(&strict).await;
        let error = &answer.json()["error"];
        assert_eq!((answer.status.as_u16(), &error["code"]), (400, &json!(-32021)), "{error}");
        assert_eq!(error["data"]["requiredCapabilities"], required);
    }
    begun(&strict).await;
    // Sessions have no tasks, so that they could never call it.
    let listed = |answer: &Answer| answer.json()["result"]["tools"].to_string().contains("\"sweep\"");
    let modern = Modern::new("plugins", &token("alice"), "tools/list", json!({}));
    assert!(listed(&modern.send(&strict).await));
    for (fixture, offered) in [(&plain, true), (&strict, false)] {
        let session = Legacy::connect(fixture, "plugins", "alice", "2025-11-25", json!({})).await;
        assert_eq!(listed(&session.request(2, "tools/list", json!({})).await), offered);
    }
}

/// A tool that asks before it becomes a task, and has its answer when it may complete.
struct AsksFirst {
    fixture: Fixture,
    answered: Arc<Notify>,
    completes: Arc<Notify>,
    _runtime: Runtime,
}

impl AsksFirst {
    fn start() -> AsksFirst {
        let answered = Arc::new(Notify::new());
        let completes = Arc::new(Notify::new());
        let told = answered.clone();
        let may = completes.clone();
        let runtime = Runtime::start(Script::of(move |_, mut worker: Worker| {
            let told = told.clone();
            let may = may.clone();
            async move {
                let invoke = worker.begin(&[]).await;
                worker.say(asks_name(&invoke.request_id)).await;
                user_input(&mut worker).await;
                told.notify_one();
                may.notified().await;
                worker.complete(&invoke, &json!({"ok": true})).await;
            }
        }));
        let mut snapshot = snapshot();
        let sweep = snapshot.primitives.iter_mut().find(|one| one.id == "sweep").unwrap();
        sweep.task_after_input = true;
        let fixture = Fixture::with(snapshot, 7, runtime.runtimes());
        AsksFirst { fixture, answered, completes, _runtime: runtime }
    }

    /// The call of such a client up to its question, and then a retry with such answers.
    async fn asked(&self, capabilities: Value) -> impl Fn(Value) -> Modern {
        let request = sweep_as(&json!({})).capabilities(capabilities);
        let asked = request.send(&self.fixture).await.json()["result"].clone();
        assert_eq!(asked["resultType"], "input_required", "{asked}");
        assert!(asked.get("taskId").is_none());
        move |responses| {
            sweep_as(&json!({"requestState": asked["requestState"], "inputResponses": responses}))
        }
    }
}

fn named() -> Value {
    json!({"plugins.name": {"action": "accept", "content": {"name": "Ada"}}})
}

#[tokio::test]
async fn what_is_asked_before_a_task_is_made_is_asked_by_the_result() {
    let tool = AsksFirst::start();
    let retry = tool.asked(can()).await;
    let again = retry(json!({})).send(&tool.fixture).await.json()["result"].clone();
    assert_eq!(again["resultType"], "input_required", "{again}");
    let task = retry(named()).send(&tool.fixture).await.json()["result"].clone();
    assert_eq!(task["resultType"], "task", "{task}");
    assert!(task.get("requestState").is_none() && task.get("inputRequests").is_none(), "{task}");
    tool.completes.notify_one();
    until(&tool.fixture, &task, "completed").await;
}

#[tokio::test]
async fn a_response_that_closes_ends_no_task_that_was_announced() {
    let tool = AsksFirst::start();
    // A client without the extension waits for the answer.
    let plain = json!({"elicitation": {}});
    let retry = tool.asked(plain.clone()).await;
    let fixture = tool.fixture.clone();
    let waits = retry(named()).capabilities(plain);
    let waiting = tokio::spawn(async move { waits.send(&fixture).await });
    tokio::time::timeout(Duration::from_secs(60), tool.answered.notified()).await.expect("its answer");
    let task = retry(json!({})).send(&tool.fixture).await.json()["result"].clone();
    assert_eq!(task["resultType"], "task", "{task}");
    waiting.abort();
    assert!(waiting.await.is_err_and(|ended| ended.is_cancelled()), "it waits");
    let running = tool.fixture.gateway.pipeline.internals().registry.running();
    assert!(running.iter().all(|call| !call.is_cancelled()) && running.len() == 1);
    tool.completes.notify_one();
    until(&tool.fixture, &task, "completed").await;
}

#[tokio::test]
async fn the_name_of_a_task_stands_in_its_header() {
    let runtime = asking();
    let fixture = fixture(&runtime);
    let task = begun(&fixture).await;
    for request in [
        of_task("tasks/get", &task, &json!({})).with("mcp-name", "other"),
        of_task("tasks/get", &task, &json!({})).without("mcp-name"),
    ] {
        let answer = request.send(&fixture).await;
        assert_eq!((answer.status.as_u16(), &answer.json()["error"]["code"]), (400, &json!(-32020)));
    }
    for method in ["tasks/list", "tasks/result"] {
        let answer = of_task(method, &task, &json!({})).send(&fixture).await;
        assert_eq!((answer.status.as_u16(), &answer.json()["error"]["code"]), (404, &json!(-32601)));
    }
}

#[tokio::test]
async fn where_a_task_is_stands_in_its_message() {
    let runtime = Runtime::start(Script::of(|_, mut worker: Worker| async move {
        let invoke = worker.begin(&[]).await;
        let status = StatusUpdated {
            request_id: invoke.request_id.clone(),
            phase: "counting the pages".into(),
            ..StatusUpdated::default()
        };
        worker.say(Payload::Status(status)).await;
        worker.say(asks_name(&invoke.request_id)).await;
        user_input(&mut worker).await;
    }));
    let fixture = fixture(&runtime);
    let task = begun(&fixture).await;
    let asks = until(&fixture, &task, "input_required").await;
    assert_eq!(asks["statusMessage"], "counting the pages", "{asks}");
}

#[tokio::test]
async fn who_may_not_see_an_ended_task_any_more_is_told_nothing_of_it() {
    let runtime = asking();
    let fixture = fixture(&runtime);
    let task = begun(&fixture).await;
    until(&fixture, &task, "input_required").await;
    let answer =
        json!({"inputResponses": {"plugins.name": {"action": "accept", "content": {"name": "Ada"}}}});
    of_task("tasks/update", &task, &answer).send(&fixture).await;
    until(&fixture, &task, "completed").await;
    let (_, honoured) = listens(&fixture, "alice", json!([task["taskId"]])).await;
    assert_eq!(honoured, json!({"taskIds": [task["taskId"]]}));
    let deny = denied_to_alice("sweep", Protocol::Mcp);
    fixture.gateway.apply(assemble(Inputs { revision: 8, bindings: vec![deny], ..inputs() })).unwrap();
    let (_, honoured) = listens(&fixture, "alice", json!([task["taskId"]])).await;
    assert_eq!(honoured, json!({}));
}

/// The next message of a stream.
async fn told(body: &mut Body) -> Value {
    let reading = async {
        loop {
            let frame = body.frame().await.unwrap().unwrap().into_data().unwrap();
            let text = String::from_utf8(frame.to_vec()).unwrap();
            if let Some(data) = text.lines().find_map(|line| line.strip_prefix("data: ")) {
                return serde_json::from_str(data).unwrap();
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(60), reading).await.expect("a message")
}

async fn listens(fixture: &Fixture, user: &str, ids: Value) -> (Body, Value) {
    let params = json!({"notifications": {"taskIds": ids}});
    let request = Modern::new("plugins", &token(user), "subscriptions/listen", params).capabilities(can());
    let mut body = request.open(fixture).await.into_body();
    let acknowledged = told(&mut body).await;
    assert_eq!(acknowledged["method"], "notifications/subscriptions/acknowledged", "{acknowledged}");
    (body, acknowledged["params"]["notifications"].clone())
}

#[tokio::test]
async fn who_listens_is_told_of_the_changes_of_own_tasks() {
    let runtime = asking();
    let fixture = fixture(&runtime);
    let task = begun(&fixture).await;
    until(&fixture, &task, "input_required").await;
    let ids = json!([task["taskId"], Uuid::now_v7().to_string(), "none"]);
    let (_, honoured) = listens(&fixture, "bob", ids.clone()).await;
    assert_eq!(honoured, json!({}), "a task of another user is as unknown as none");
    let (mut body, honoured) = listens(&fixture, "alice", ids).await;
    assert_eq!(honoured, json!({"taskIds": [task["taskId"]]}));
    let asked = told(&mut body).await;
    assert_eq!(
        (&asked["method"], &asked["params"]["status"]),
        (&json!("notifications/tasks"), &json!("input_required"))
    );
    assert!(asked["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"].is_number(), "{asked}");
    let answer =
        json!({"inputResponses": {"plugins.name": {"action": "accept", "content": {"name": "Ada"}}}});
    of_task("tasks/update", &task, &answer).send(&fixture).await;
    loop {
        let change = told(&mut body).await;
        let params = &change["params"];
        assert_eq!((&change["method"], &params["taskId"]), (&json!("notifications/tasks"), &task["taskId"]));
        if params["status"] == "completed" {
            assert_eq!(params["result"]["structuredContent"], json!({"ok": true}));
            return;
        }
        assert_eq!(params["status"], "working", "{change}");
    }
}

#[tokio::test]
async fn who_listens_is_told_how_a_task_ends_at_the_gateway_that_goes_on_with_it() {
    let dead = Runtime::start(saves_and_hangs());
    let gateways = Gateways::with(&dead);
    let task = begun(&gateways.first).await;
    row(&gateways.first, &dead, |row| row.seq == 1).await;
    let call = gateways.first.gateway.pipeline.internals().registry.running().pop().unwrap();
    let is_kept =
        async || gateways.shared.outbox.read(call.id.into_bytes(), 0).await.is_ok_and(|kept| kept.is_some());
    until_async("what it said is kept", is_kept).await;
    let (mut body, _) = listens(&gateways.first, "alice", json!([task["taskId"]])).await;
    let living = Runtime::start(Script::of(|_, mut worker: Worker| async move {
        let invoke = worker.begin(&[("checkpoint", "true")]).await;
        worker.complete(&invoke, &json!({"ok": true})).await;
    }));
    let other = gateways.another(living.runtimes());
    take_over(&other).await;
    // The first gateway learns that it has lost the call.
    call.ownership.passed_on.set();
    call.cancel();
    loop {
        let change = told(&mut body).await;
        let params = &change["params"];
        if params["status"] == "completed" {
            assert_eq!(params["result"]["structuredContent"], json!({"ok": true}), "{change}");
            return;
        }
        assert_eq!(params["status"], "working", "{change}");
    }
}
