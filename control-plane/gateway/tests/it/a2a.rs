//! A2A: messages that start tasks, and what becomes of these, in both versions and over every binding.

use std::sync::atomic::{AtomicUsize, Ordering};

use asp_proto::snapshot::{GatewaySnapshot, Protocol};
use asp_registry::{Inputs, assemble};
use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::runtime::Runtime;
use crate::support::{Answer, Fixture, inputs, token};

#[path = "a2a/brief.rs"]
mod brief;
#[path = "a2a/ends.rs"]
mod ends;
#[path = "a2a/extensions.rs"]
mod extensions;
#[path = "a2a/grpc.rs"]
mod grpc;
#[path = "a2a/missing.rs"]
mod missing;
#[path = "a2a/push.rs"]
mod push;
#[path = "a2a/push_over_grpc.rs"]
mod push_over_grpc;
#[path = "a2a/questions.rs"]
mod questions;
#[path = "a2a/reading.rs"]
mod reading;
#[path = "a2a/refusals.rs"]
mod refusals;
#[path = "a2a/streams.rs"]
mod streams;
#[path = "a2a/takeover.rs"]
mod takeover;

/// The servers of the tests with every tool and task as a skill of its own id.
fn speaking() -> Inputs {
    let mut inputs = inputs();
    for server in &mut inputs.servers {
        let a2a = i32::from(Protocol::A2a);
        if !server.edge.protocols.contains(&a2a) {
            server.edge.protocols.push(a2a);
        }
        for listing in &mut server.server.listings {
            if !listing.rest_name.is_empty() {
                listing.a2a_skill = listing.id.clone();
            }
        }
    }
    inputs
}

pub(crate) fn snapshot() -> GatewaySnapshot {
    assemble(speaking())
}

fn fixture() -> Fixture {
    Fixture::of(snapshot())
}

fn with_plugins(runtime: &Runtime) -> Fixture {
    Fixture::with(snapshot(), 7, runtime.runtimes())
}

/// A client of one agent.
#[derive(Clone)]
struct Client<'a> {
    fixture: &'a Fixture,
    server: &'a str,
    headers: Vec<(String, String)>,
}

impl<'a> Client<'a> {
    fn of(fixture: &'a Fixture, server: &'a str) -> Client<'a> {
        let headers = vec![
            ("authorization".into(), format!("Bearer {}", token("alice"))),
            ("content-type".into(), "application/json".into()),
        ];
        Client { fixture, server, headers }
    }

    fn with(&self, name: &str, value: &str) -> Client<'a> {
        let mut other = self.clone();
        other.headers.retain(|(known, _)| known != name);
        other.headers.push((name.into(), value.into()));
        other
    }

    async fn send(&self, method: Method, path: &str, body: &str) -> Answer {
        let headers: Vec<(&str, &str)> =
            self.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        self.fixture.send(method, &format!("/{}/a2a{path}", self.server), &headers, body).await
    }

    /// Sends a JSON-RPC request.
    async fn call(&self, method: &str, params: Value) -> Answer {
        let body = json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params});
        self.send(Method::POST, "", &body.to_string()).await
    }

    /// The result of a JSON-RPC request.
    async fn result(&self, method: &str, params: Value) -> Value {
        let answer = self.call(method, params).await;
        let body = answer.json();
        assert_eq!((answer.status, &body["id"]), (StatusCode::OK, &json!(7)), "{body}");
        assert!(body["result"].is_object(), "{body}");
        body["result"].clone()
    }

    /// The code of a refused JSON-RPC request, and its HTTP status.
    async fn refused(&self, method: &str, params: Value) -> (u16, i64) {
        let answer = self.call(method, params).await;
        (answer.status.as_u16(), code(&answer))
    }
}

fn code(answer: &Answer) -> i64 {
    answer.json()["error"]["code"].as_i64().unwrap_or_else(|| panic!("{}", answer.text))
}

/// An id that no other message has.
fn message_id() -> String {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    format!("m-{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// The parameters of a message of 1.0 to a skill.
fn message(skill: &str, arguments: Value) -> Value {
    json!({"message": {"messageId": message_id(), "role": "ROLE_USER",
        "parts": [{"data": {"skill": skill, "arguments": arguments}}]}})
}

/// The task that a skill has completed.
fn completed(task: &Value, value: &Value) {
    assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED", "{task}");
    assert_eq!(task["artifacts"][0]["artifactId"], "result", "{task}");
    let parts = task["artifacts"][0]["parts"].as_array().unwrap();
    assert!(parts.iter().any(|part| part["data"] == *value), "{task}");
}

#[tokio::test]
async fn a_message_is_answered_with_its_task_in_both_versions_over_jsonrpc_and_rest() {
    let fixture = fixture();
    let client = Client::of(&fixture, "demo");
    let hi = json!({"message": "hi"});
    let sent = client.with("a2a-version", "1.0").result("SendMessage", message("echo", hi.clone())).await;
    completed(&sent["task"], &hi);
    assert!(sent["task"]["metadata"]["asp/generation"].as_u64().unwrap() > 0);

    let old = json!({"message": {"kind": "message", "messageId": message_id(), "role": "user",
        "parts": [{"kind": "data", "data": {"skill": "echo", "arguments": {"message": "hi"}}}]}});
    let task = client.with("a2a-version", "0.3").result("message/send", old).await;
    assert_eq!((&task["kind"], &task["status"]["state"]), (&json!("task"), &json!("completed")), "{task}");

    let body = message("echo", hi.clone()).to_string();
    let answer = client.send(Method::POST, "/message:send", &body).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text);
    assert_eq!(answer.headers["content-type"], "application/json");
    completed(&answer.json()["task"], &hi);
    let preferred = client.with("content-type", "application/a2a+json");
    let again = preferred.send(Method::POST, "/message:send", &body).await;
    assert_eq!(again.headers["content-type"], "application/a2a+json");
    assert_eq!(again.json()["task"]["id"], answer.json()["task"]["id"], "the same message is the same task");

    let old = json!({"message": {"messageId": message_id(), "role": "ROLE_USER",
        "content": [{"data": {"data": {"skill": "echo", "arguments": {"message": "hi"}}}}]},
        "configuration": {"blocking": true}});
    let answer = client.send(Method::POST, "/v1/message:send", &old.to_string()).await;
    assert_eq!(answer.json()["task"]["status"]["state"], "TASK_STATE_COMPLETED", "{}", answer.text);
}

#[tokio::test]
async fn a_result_has_the_form_that_its_client_accepts() {
    let fixture = fixture();
    let client = Client::of(&fixture, "demo");
    for (mode, parts) in [
        ("text/plain", json!([{"text": "hi"}, {"text": r#"{"message":"hi"}"#}])),
        ("application/json", json!([{"data": {"message": "hi"}}])),
    ] {
        let mut params = message("echo", json!({"message": "hi"}));
        params["configuration"] = json!({"acceptedOutputModes": [mode]});
        let task = client.result("SendMessage", params.clone()).await["task"].clone();
        assert_eq!(task["artifacts"][0]["parts"], parts, "{task}");
        params["message"]["messageId"] = message_id().into();
        let events = client.call("SendStreamingMessage", params).await.events();
        let last = &events.last().unwrap()["result"]["task"];
        assert_eq!(last["artifacts"][0]["parts"], parts, "{last}");
    }
}

#[tokio::test]
async fn skill_and_arguments_are_named_and_never_guessed() {
    let fixture = fixture();
    let client = Client::of(&fixture, "demo");
    let text = |text: &str, metadata: Value| {
        json!({"message": {"messageId": message_id(), "role": "ROLE_USER", "parts": [{"text": text}],
            "metadata": metadata}})
    };
    let named = json!({"skill": "echo"});
    let hi = json!({"message": "hi"});
    for words in ["hi", r#"{"message": "hi"}"#] {
        let sent = client.result("SendMessage", text(words, named.clone())).await;
        completed(&sent["task"], &hi);
    }
    let unnamed = client.call("SendMessage", text("hi", json!({}))).await.json();
    assert_eq!(unnamed["error"]["code"], -32602, "{unnamed}");
    let details = unnamed["error"]["data"].as_array().unwrap();
    let skills = details.iter().find_map(|detail| detail["metadata"]["skills"].as_str()).unwrap();
    let skills: Vec<String> = serde_json::from_str(skills).unwrap();
    assert!(skills.contains(&"echo".into()) && skills.contains(&"count".into()), "{skills:?}");
    for (params, field) in [
        (text("hi", json!({"skill": "nothing"})), "message.metadata.skill"),
        (message("count", json!({"to": "three"})), "arguments.to"),
    ] {
        let answer = client.call("SendMessage", params).await;
        assert_eq!(code(&answer), -32602);
        assert!(answer.text.contains(field), "{}", answer.text);
    }
}

#[tokio::test]
async fn a_task_is_got_after_an_answer_at_once_and_at_another_gateway() {
    let fixture = fixture();
    let client = Client::of(&fixture, "demo");
    let mut params = message("count", json!({"to": 2, "delayMs": 50}));
    params["configuration"] = json!({"returnImmediately": true});
    params["message"]["contextId"] = "trip".into();
    let task = client.result("SendMessage", params.clone()).await["task"].clone();
    assert!(
        ["TASK_STATE_SUBMITTED", "TASK_STATE_WORKING"].contains(&task["status"]["state"].as_str().unwrap())
    );
    assert_eq!(task["contextId"], "trip");
    // The same message waits for the same task.
    params["configuration"] = json!({});
    let ended = client.result("SendMessage", params.clone()).await["task"].clone();
    assert_eq!(ended["id"], task["id"]);
    completed(&ended, &json!({"counted": 2}));
    let got = client.result("GetTask", json!({"id": task["id"], "historyLength": 0})).await;
    assert_eq!((&got["artifacts"], got.get("history")), (&ended["artifacts"], None));
    let old = client.result("tasks/get", json!({"id": task["id"]})).await;
    assert_eq!((&old["kind"], &old["status"]["state"]), (&json!("task"), &json!("completed")));
    let path = format!("/tasks/{}", task["id"].as_str().unwrap());
    completed(&client.send(Method::GET, &path, "").await.json(), &json!({"counted": 2}));

    let other = fixture.with_stores(snapshot(), |stores| {
        stores.active = fixture.active.clone();
        stores.ledger = fixture.ledger.clone();
    });
    let elsewhere = Client::of(&other, "demo").result("GetTask", json!({"id": task["id"]})).await;
    assert_eq!((&elsewhere["artifacts"], &elsewhere["contextId"]), (&ended["artifacts"], &json!("trip")));
    let message = &elsewhere["history"][0];
    assert_eq!((&message["role"], &message["taskId"]), (&json!("ROLE_USER"), &task["id"]), "{elsewhere}");
    assert_eq!(message["parts"], params["message"]["parts"]);
    assert_eq!(elsewhere["history"], ended["history"]);
    // The same id with other content is another message, at every gateway.
    let first = params.clone();
    params["message"]["parts"] = json!([{"data": {"skill": "count", "arguments": {"to": 3, "delayMs": 0}}}]);
    let changed = client.result("SendMessage", params.clone()).await["task"].clone();
    completed(&changed, &json!({"counted": 3}));
    let mut elsewhere = first.clone();
    elsewhere["message"]["contextId"] = "another trip".into();
    let moved = client.result("SendMessage", elsewhere.clone()).await["task"].clone();
    completed(&moved, &json!({"counted": 2}));
    assert!(changed["id"] != task["id"] && moved["id"] != task["id"] && moved["id"] != changed["id"]);
    for (params, expected) in [(first, &task), (params, &changed), (elsewhere, &moved)] {
        for client in [&client, &Client::of(&other, "demo")] {
            let again = client.result("SendMessage", params.clone()).await["task"].clone();
            assert_eq!((&again["id"], &again["contextId"]), (&expected["id"], &expected["contextId"]));
        }
    }
}

#[tokio::test]
async fn two_contents_of_one_message_id_at_once_are_two_tasks() {
    let fixture = fixture();
    let client = Client::of(&fixture, "demo");
    let one = message("count", json!({"to": 1, "delayMs": 20}));
    let mut two = message("count", json!({"to": 2, "delayMs": 20}));
    two["message"]["messageId"] = one["message"]["messageId"].clone();
    let (first, second) = tokio::join!(client.result("SendMessage", one), client.result("SendMessage", two));
    completed(&first["task"], &json!({"counted": 1}));
    completed(&second["task"], &json!({"counted": 2}));
    assert_ne!(first["task"]["id"], second["task"]["id"]);
}

/// The official suite of 1.0 sends every JSON-RPC request there.
#[tokio::test]
async fn the_path_of_json_rpc_may_end_with_a_slash() {
    let fixture = fixture();
    let client = Client::of(&fixture, "demo");
    let params = message("echo", json!({"message": "hi"}));
    let body = json!({"jsonrpc": "2.0", "id": 7, "method": "SendMessage", "params": params});
    let answer = client.send(Method::POST, "/", &body.to_string()).await.json();
    completed(&answer["result"]["task"], &json!({"message": "hi"}));
}

#[tokio::test]
async fn tasks_are_listed_in_pages_and_only_ones_own() {
    let fixture = fixture();
    let client = Client::of(&fixture, "demo");
    let mut ids = Vec::new();
    for number in 0..3 {
        let mut params = message("echo", json!({"message": number.to_string()}));
        let context = if number == 1 { "one" } else { "others" };
        params["message"]["contextId"] = context.into();
        ids.push(client.result("SendMessage", params).await["task"]["id"].clone());
    }
    // Of the same server over another protocol, and of another user.
    let rest = [("authorization", format!("Bearer {}", token("alice")))];
    let rest: Vec<(&str, &str)> = rest.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let rest = [rest, vec![("content-type", "application/json")]].concat();
    let put = fixture.send(Method::PUT, "/demo/rest/tools/echo/calls/1", &rest, r#"{"message": "r"}"#).await;
    assert_eq!(put.status, StatusCode::CREATED);
    let bob = client.with("authorization", &format!("Bearer {}", token("bob")));
    bob.result("SendMessage", message("echo", json!({"message": "b"}))).await;

    let mut seen = Vec::new();
    let mut token = Value::from("");
    loop {
        let mut params = json!({"pageSize": 2});
        if token != "" {
            params["pageToken"] = token.clone();
        }
        let page = client.result("ListTasks", params).await;
        assert_eq!(page["pageSize"], 2);
        for task in page["tasks"].as_array().unwrap() {
            assert_eq!(
                (task["status"]["state"].as_str(), task.get("artifacts")),
                (Some("TASK_STATE_COMPLETED"), None)
            );
            seen.push(task["id"].clone());
        }
        token = page["nextPageToken"].clone();
        if token == "" {
            assert_eq!(page["totalSize"], 3);
            break;
        }
        let stolen = bob.refused("ListTasks", json!({"pageSize": 2, "pageToken": token})).await;
        assert_eq!(stolen, (200, -32602));
    }
    let all = |ids: &[Value]| ids.iter().map(Value::to_string).collect::<std::collections::BTreeSet<_>>();
    assert_eq!((seen.len(), all(&seen)), (3, all(&ids)));
    let one = client.result("ListTasks", json!({"contextId": "one", "includeArtifacts": true})).await;
    assert_eq!((one["tasks"].as_array().unwrap().len(), &one["tasks"][0]["id"]), (1, &ids[1]));
    assert!(one["tasks"][0]["artifacts"].is_array());
    let failed = client.send(Method::GET, "/tasks?status=TASK_STATE_FAILED", "").await.json();
    assert_eq!((&failed["tasks"], &failed["totalSize"]), (&json!([]), &json!(0)));
    let later = json!({"statusTimestampAfter": "2999-01-01T00:00:00Z"});
    assert_eq!(client.result("ListTasks", later).await["tasks"], json!([]));
    for size in [0, 101] {
        assert_eq!(client.refused("ListTasks", json!({"pageSize": size})).await, (200, -32602));
    }
}

/// Invariant I-4.
#[tokio::test]
async fn a_page_has_a_bounded_size_in_bytes() {
    let fixture = fixture();
    let client = Client::of(&fixture, "demo");
    let long = "x".repeat(60_000);
    for _ in 0..40 {
        client.result("SendMessage", message("echo", json!({"message": long}))).await;
    }
    let whole = client.result("ListTasks", json!({"pageSize": 100})).await;
    assert_eq!((whole["tasks"].as_array().unwrap().len(), &whole["nextPageToken"]), (40, &json!("")));
    let mut params = json!({"pageSize": 100, "includeArtifacts": true});
    let (mut ids, mut pages) = (std::collections::BTreeSet::new(), 0);
    loop {
        let page = client.result("ListTasks", params.clone()).await;
        ids.extend(page["tasks"].as_array().unwrap().iter().map(|task| task["id"].to_string()));
        pages += 1;
        assert!(page.to_string().len() < 5 << 20, "page {pages}");
        if page["nextPageToken"] == "" {
            break;
        }
        params["pageToken"] = page["nextPageToken"].clone();
    }
    assert_eq!((ids.len(), pages), (40, 2));
}

#[tokio::test]
async fn the_task_that_changed_last_is_listed_first() {
    let fixture = fixture();
    let client = Client::of(&fixture, "demo");
    let mut slow = message("count", json!({"to": 2, "delayMs": 100}));
    slow["configuration"] = json!({"returnImmediately": true});
    let first = client.result("SendMessage", slow.clone()).await["task"]["id"].clone();
    let quick = client.result("SendMessage", message("echo", json!({"message": "a"}))).await;
    let second = quick["task"]["id"].clone();
    slow["configuration"] = json!({});
    completed(&client.result("SendMessage", slow).await["task"], &json!({"counted": 2}));

    let page = client.result("ListTasks", json!({"pageSize": 1})).await;
    let next = client.result("ListTasks", json!({"pageSize": 1, "pageToken": page["nextPageToken"]})).await;
    assert_eq!((&page["tasks"][0]["id"], &next["tasks"][0]["id"]), (&first, &second));
    let times =
        [&page, &next].map(|page| page["tasks"][0]["status"]["timestamp"].as_str().unwrap().to_owned());
    assert!(times[0] > times[1], "{times:?}");
    for (after, ids) in times.iter().zip([vec![&first], vec![&first, &second]]) {
        let late = client.result("ListTasks", json!({"statusTimestampAfter": after})).await;
        let found: Vec<&Value> = late["tasks"].as_array().unwrap().iter().map(|task| &task["id"]).collect();
        assert_eq!((found, &late["nextPageToken"]), (ids, &json!("")), "{after}");
    }

    let other = fixture.with_stores(snapshot(), |stores| {
        stores.active = fixture.active.clone();
        stores.ledger = fixture.ledger.clone();
    });
    let elsewhere = Client::of(&other, "demo").result("GetTask", json!({"id": second})).await;
    assert_eq!(elsewhere["status"]["timestamp"], times[1].as_str(), "the time of the end, not of the look");
}

#[tokio::test]
async fn a_cancelled_task_is_cancelled_again_and_an_ended_one_is_not() {
    let fixture = fixture();
    let client = Client::of(&fixture, "demo");
    let mut params = message("count", json!({"to": 100, "delayMs": 500}));
    params["configuration"] = json!({"returnImmediately": true});
    let id = client.result("SendMessage", params).await["task"]["id"].clone();
    for _ in 0..2 {
        let task = client.result("CancelTask", json!({"id": id})).await;
        assert_eq!(task["status"]["state"], "TASK_STATE_CANCELED", "{task}");
    }
    assert_eq!(client.refused("tasks/cancel", json!({"id": id})).await, (200, -32002), "0.3, section 8.2");
    let ended = client.result("SendMessage", message("echo", json!({"message": "a"}))).await;
    let id = ended["task"]["id"].clone();
    assert_eq!(client.refused("CancelTask", json!({"id": id})).await, (200, -32002));
    let path = format!("/tasks/{}:cancel", id.as_str().unwrap());
    let answer = client.send(Method::POST, &path, "").await;
    assert_eq!(
        (answer.status, &answer.json()["error"]["status"]),
        (StatusCode::BAD_REQUEST, &json!("FAILED_PRECONDITION"))
    );
}
