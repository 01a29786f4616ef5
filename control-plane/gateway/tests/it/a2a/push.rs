//! Push notifications: what receivers get, over real connections, and who may register them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use asp_proto::snapshot::{GatewaySnapshot, RevokedBefore};
use asp_registry::assemble;
use asp_runtime_client::runtimes::Runtimes;
use asp_store::ledger::{Budget, MemoryLedger};
use asp_store::push::PushStore;
use asp_store::records::{CallQuota, CallQuotas};
use asp_store::sqlite::SqliteCalls;
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{HeaderMap, Method, StatusCode};
use jsonwebtoken::jwk::JwkSet;
use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode, decode_header};
use parking_lot::Mutex;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::Notify;

use super::{Client, completed, message, message_id, snapshot, speaking};
use crate::limits::star;
use crate::plugin::until_some;
use crate::rest::asking;
use crate::support::{Fixture, PUBLIC_URL, now, token};

/// A hang guard, not an expectation.
const LONG: Duration = Duration::from_secs(30);

/// A notification as it arrived.
#[derive(Clone)]
pub(super) struct Notification {
    headers: HeaderMap,
    body: Bytes,
}

impl Notification {
    pub(super) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }
}

/// Answer of a receiver.
#[derive(Clone, Copy)]
pub(super) enum Answer {
    Status(u16),
    Never,
}

#[derive(Default)]
struct Inbox {
    answers: Mutex<VecDeque<Answer>>,
    notifications: Mutex<Vec<Notification>>,
    came: Notify,
}

/// A receiver on this machine.
pub(super) struct Receiver {
    pub(super) url: String,
    inbox: Arc<Inbox>,
}

impl Receiver {
    /// Starts a receiver with its first answers; the others are 200.
    pub(super) async fn start(answers: &[Answer]) -> Receiver {
        let inbox = Arc::new(Inbox::default());
        inbox.answers.lock().extend(answers);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/hook", listener.local_addr().unwrap());
        let router = Router::new().fallback(take).with_state(Arc::clone(&inbox));
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Receiver { url, inbox }
    }

    /// Waits for this many notifications.
    async fn received(&self, count: usize) -> Vec<Notification> {
        let waiting = async {
            loop {
                let came = self.inbox.came.notified();
                let seen = self.inbox.notifications.lock().clone();
                if seen.len() >= count {
                    return seen;
                }
                came.await;
            }
        };
        tokio::time::timeout(LONG, waiting).await.expect("the notifications")
    }

    /// Waits for a notification that fits, and returns it with those before.
    pub(super) async fn received_until(&self, fits: impl Fn(&Notification) -> bool) -> Vec<Notification> {
        let mut count = 1;
        loop {
            let seen = self.received(count).await;
            if seen.iter().any(&fits) {
                return seen;
            }
            count = seen.len() + 1;
        }
    }
}

async fn take(State(inbox): State<Arc<Inbox>>, headers: HeaderMap, body: Bytes) -> StatusCode {
    let answer = inbox.answers.lock().pop_front().unwrap_or(Answer::Status(200));
    inbox.notifications.lock().push(Notification { headers, body });
    inbox.came.notify_one();
    match answer {
        Answer::Status(status) => StatusCode::from_u16(status).unwrap(),
        Answer::Never => std::future::pending().await,
    }
}

/// A gateway that sends, and the directory of its store.
async fn sending(runtimes: Runtimes) -> (Fixture, TempDir) {
    sending_by(snapshot(), runtimes).await
}

pub(super) async fn sending_by(snapshot: GatewaySnapshot, runtimes: Runtimes) -> (Fixture, TempDir) {
    sending_within(snapshot, runtimes, CallQuotas::default()).await
}

async fn sending_within(
    snapshot: GatewaySnapshot,
    runtimes: Runtimes,
    quotas: CallQuotas,
) -> (Fixture, TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("calls.db");
    let calls = Arc::new(SqliteCalls::open_with(&path, Budget::default(), quotas).await.unwrap());
    let fixture = Fixture::with_snapshot_and(snapshot, runtimes, |stores| {
        stores.active = calls.clone();
        stores.pushes = Some(calls);
    });
    tokio::spawn(fixture.gateway.send_pushes());
    (fixture, directory)
}

/// Quotas with one receiver for each user.
fn one_for_each() -> CallQuotas {
    let quotas = CallQuotas::default();
    CallQuotas { of_user: CallQuota { receivers: 1, ..quotas.of_user }, ..quotas }
}

/// The parameters of a message of 1.0 with a receiver.
fn pushed(skill: &str, arguments: Value, config: Value) -> Value {
    let mut params = message(skill, arguments);
    params["configuration"] = json!({"taskPushNotificationConfig": config});
    params
}

/// Verifies the signature of a notification with the published keys.
async fn verify(fixture: &Fixture, notification: &Notification, audience: &str) -> Value {
    let keys = fixture.send(Method::GET, "/.well-known/agent-card-jwks.json", &[], "").await;
    let keys: JwkSet = serde_json::from_str(&keys.text).unwrap();
    let jwt = notification.header("a2a-notification-signature").unwrap();
    let header = decode_header(jwt).unwrap();
    assert_eq!(header.typ.as_deref(), Some("a2a-notification+jwt"));
    let key = DecodingKey::from_jwk(keys.find(&header.kid.unwrap()).unwrap()).unwrap();
    let mut validation = Validation::new(Algorithm::ES256);
    validation.set_audience(&[audience]);
    validation.set_issuer(&[PUBLIC_URL]);
    let claims = decode::<Value>(jwt, &key, &validation).unwrap().claims;
    assert_eq!(claims["org"], "acme", "another org's callers may name the receiver too");
    assert_eq!(claims["request_body_sha256"], URL_SAFE_NO_PAD.encode(Sha256::digest(&notification.body)));
    claims
}

#[tokio::test]
async fn a_receiver_of_a_message_gets_the_completed_task_signed_and_with_its_secrets() {
    let (fixture, _directory) = sending(Runtimes::none()).await;
    let receiver = Receiver::start(&[]).await;
    let client = Client::of(&fixture, "demo");
    let config = json!({"url": receiver.url, "token": "t-1",
        "authentication": {"scheme": "Bearer", "credentials": "c-1"}});
    let hi = json!({"message": "hi"});
    let sent = client.result("SendMessage", pushed("echo", hi.clone(), config)).await["task"].clone();
    let seen =
        receiver.received_until(|one| one.json()["task"]["status"]["state"] == "TASK_STATE_COMPLETED").await;
    let last = seen.last().unwrap();
    super::completed(&last.json()["task"], &hi);
    assert_eq!(last.json()["task"]["id"], sent["id"]);
    assert_eq!(last.header("content-type"), Some("application/a2a+json"));
    assert_eq!(last.header("a2a-version"), Some("1.0"));
    assert_eq!(last.header("authorization"), Some("Bearer c-1"));
    assert_eq!(last.header("x-a2a-notification-token"), Some("t-1"));
    let audience = receiver.url.strip_suffix("/hook").unwrap();
    assert_eq!(verify(&fixture, last, audience).await["sub"], sent["id"]);
}

/// Receivers of several orgs could compare the numbers of the outbox, and count what the platform sends.
#[tokio::test]
async fn a_notification_has_one_id_for_all_attempts_which_is_no_number() {
    let (fixture, _directory) = sending(Runtimes::none()).await;
    let receiver = Receiver::start(&[Answer::Status(503)]).await;
    let client = Client::of(&fixture, "demo");
    let config = json!({"url": receiver.url});
    client.result("SendMessage", pushed("echo", json!({"message": "hi"}), config)).await;
    let is_end = |one: &Notification| one.json()["task"]["status"]["state"] == "TASK_STATE_COMPLETED";
    receiver.received(2).await;
    let seen = receiver.received_until(is_end).await;
    let audience = receiver.url.strip_suffix("/hook").unwrap();
    let mut ids = Vec::new();
    for one in &seen {
        let claims = verify(&fixture, one, audience).await;
        let id = claims["jti"].as_str().unwrap().to_owned();
        assert!(id.len() > 40 && id.parse::<i64>().is_err(), "{id}");
        ids.push((one.json()["task"]["status"]["state"].clone(), id));
    }
    assert_eq!(ids[0], ids[1], "the first one was sent again");
    assert!(ids[2..].iter().all(|(_, id)| *id != ids[0].1), "{ids:?}");
}

/// The database has only sealed values.
#[tokio::test]
async fn the_store_has_neither_the_url_nor_the_secrets_of_a_receiver() {
    let (fixture, directory) = sending(Runtimes::none()).await;
    let receiver = Receiver::start(&[]).await;
    let client = Client::of(&fixture, "demo");
    let config = json!({"url": format!("{}?key=part-of-the-url", receiver.url), "token": "token-of-the-receiver",
        "authentication": {"scheme": "Bearer", "credentials": "credentials-of-the-receiver"}});
    client.result("SendMessage", pushed("echo", json!({"message": "hi"}), config)).await;
    receiver.received(1).await;
    for file in std::fs::read_dir(directory.path()).unwrap() {
        let content = std::fs::read(file.unwrap().path()).unwrap();
        for secret in ["part-of-the-url", "token-of-the-receiver", "credentials-of-the-receiver"] {
            let is_there = content.windows(secret.len()).any(|window| window == secret.as_bytes());
            assert!(!is_there, "{secret}");
        }
    }
}

/// Invariant I-3.
#[tokio::test]
async fn any_gateway_sends_the_end_of_a_task() {
    let directory = tempfile::tempdir().unwrap();
    let calls = Arc::new(SqliteCalls::open(&directory.path().join("calls.db")).await.unwrap());
    let gateway = |ledger: Option<Arc<MemoryLedger>>| {
        Fixture::with_snapshot_and(snapshot(), Runtimes::none(), |stores| {
            stores.active = calls.clone();
            stores.pushes = Some(calls.clone());
            if let Some(ledger) = ledger {
                stores.ledger = ledger;
            }
        })
    };
    let first = gateway(None);
    let second = gateway(Some(first.ledger.clone()));
    tokio::spawn(second.gateway.send_pushes());
    let receiver = Receiver::start(&[]).await;
    let hi = json!({"message": "hi"});
    let client = Client::of(&first, "demo");
    client.result("SendMessage", pushed("echo", hi.clone(), json!({"url": receiver.url}))).await;
    let is_end = |one: &Notification| one.json()["task"]["status"]["state"] == "TASK_STATE_COMPLETED";
    let seen = receiver.received_until(is_end).await;
    super::completed(&seen.last().unwrap().json()["task"], &hi);
}

/// Also if the task has ended and only its result waits for the receiver.
#[tokio::test]
async fn nothing_more_is_sent_under_a_token_that_was_revoked() {
    let directory = tempfile::tempdir().unwrap();
    let calls = Arc::new(SqliteCalls::open(&directory.path().join("calls.db")).await.unwrap());
    let fixture = Fixture::with_snapshot_and(snapshot(), Runtimes::none(), |stores| {
        stores.active = calls.clone();
        stores.pushes = Some(calls.clone());
    });
    tokio::spawn(fixture.gateway.send_pushes());
    let receiver = Receiver::start(&[Answer::Status(503)]).await;
    let client = Client::of(&fixture, "demo");
    let sent = pushed("echo", json!({"message": "hi"}), json!({"url": receiver.url}));
    completed(&client.result("SendMessage", sent).await["task"], &json!({"message": "hi"}));
    receiver.received(1).await;
    let mut inputs = speaking();
    inputs.revision = 2;
    let org = "acme".into();
    let user = "alice".into();
    inputs.revoked_before = vec![RevokedBefore { org, user, not_after_iat: now(), ..Default::default() }];
    fixture.gateway.apply(assemble(inputs)).unwrap();
    let dead = async || calls.dead_letters("", i64::MAX, 10).await.unwrap().pop();
    let dead = until_some("the next attempt is the last", dead).await;
    assert_eq!(dead.fault, "the task is gone, or its caller may no longer see it");
    assert_eq!(receiver.inbox.notifications.lock().len(), 1);
}

/// Interop bugs 5 and 6: the version of the registration decides, and a task that is not streamed is pushed as well.
#[tokio::test]
async fn states_arrive_in_their_order_until_each_is_received() {
    let runtime = asking();
    let (fixture, _directory) = sending(runtime.runtimes()).await;
    // The question is open for two seconds, in which there is time for one failure.
    let receiver = Receiver::start(&[Answer::Status(503), Answer::Status(200), Answer::Status(302)]).await;
    let client = Client::of(&fixture, "plugins");
    let task = client.result("SendMessage", message("sweep", json!({}))).await["task"].clone();
    let config = json!({"taskId": task["id"],
        "pushNotificationConfig": {"id": "r", "url": receiver.url, "token": "t-1"}});
    let set = client.result("tasks/pushNotificationConfig/set", config).await;
    assert_eq!(set["pushNotificationConfig"]["id"], "r", "{set}");
    // What it waits for, and again until that was received.
    let first = receiver.received(2).await;
    for one in &first {
        let task = one.json();
        assert_eq!((&task["kind"], &task["status"]["state"]), (&json!("task"), &json!("input-required")));
        assert_eq!(task["status"]["message"]["parts"][0]["text"], "Which name?", "{task}");
        assert_eq!(one.header("content-type"), Some("application/json"));
        assert_eq!(one.header("x-a2a-notification-token"), Some("t-1"));
    }
    let answer = json!({"message": {"messageId": message_id(), "role": "ROLE_USER", "taskId": task["id"],
        "parts": [{"data": {"name": "Ada"}}]}});
    client.result("SendMessage", answer).await;
    let seen = receiver.received_until(|one| one.json()["status"]["state"] == "completed").await;
    let states: Vec<String> =
        seen[2..].iter().map(|one| one.json()["status"]["state"].as_str().unwrap().to_owned()).collect();
    let (last, before) = states.split_last().unwrap();
    assert_eq!(last, "completed");
    assert!(before.iter().all(|state| state == "working"), "{states:?}");
}

#[tokio::test]
async fn a_receiver_that_does_not_answer_delays_no_other_one() {
    let (fixture, _directory) = sending(Runtimes::none()).await;
    let slow = Receiver::start(&[Answer::Never; 8]).await;
    let quick = Receiver::start(&[]).await;
    let client = Client::of(&fixture, "demo");
    let hi = json!({"message": "hi"});
    for _ in 0..4 {
        client.result("SendMessage", pushed("echo", hi.clone(), json!({"url": slow.url}))).await;
    }
    slow.received(1).await;
    client.result("SendMessage", pushed("echo", hi, json!({"url": quick.url}))).await;
    // The slow one has not been given up yet, for which the gateway takes ten seconds.
    let arrived = tokio::time::timeout(Duration::from_secs(8), quick.received(1)).await;
    assert!(arrived.is_ok(), "it waited for the slow one");
}

#[tokio::test]
async fn configurations_are_created_replaced_listed_and_deleted_in_both_versions() {
    let (fixture, _directory) = sending(Runtimes::none()).await;
    let receiver = Receiver::start(&[]).await;
    let client = Client::of(&fixture, "demo");
    let task = client.result("SendMessage", message("echo", json!({"message": "hi"}))).await;
    let id = task["task"]["id"].as_str().unwrap();
    let url = |path: &str| format!("{}/{path}", receiver.url);

    let config = json!({"taskId": id, "id": "a", "url": url("1"), "token": "t",
        "authentication": {"scheme": "Bearer", "credentials": "secret"}});
    let created = client.result("CreateTaskPushNotificationConfig", config.clone()).await;
    let expected = json!({"taskId": id, "id": "a", "url": url("1"), "token": "t",
        "authentication": {"scheme": "Bearer"}});
    assert_eq!(created, expected, "and no credentials");
    let replacement = json!({"taskId": id, "id": "a", "url": url("2")});
    client.result("CreateTaskPushNotificationConfig", replacement).await;
    let got = client.result("GetTaskPushNotificationConfig", json!({"taskId": id, "id": "a"})).await;
    assert_eq!(got, json!({"taskId": id, "id": "a", "url": url("2")}));

    // Interop bug 13: without an id it gets one; an array in 0.3.
    let set = json!({"taskId": id, "pushNotificationConfig": {"url": url("3")}});
    let set = client.result("tasks/pushNotificationConfig/set", set).await;
    assert_eq!(set["pushNotificationConfig"]["id"], "default", "{set}");
    let named = json!({"id": id, "pushNotificationConfigId": "default"});
    assert_eq!(client.result("tasks/pushNotificationConfig/get", named).await, set);
    let listed = client.call("tasks/pushNotificationConfig/list", json!({"id": id})).await.json();
    assert_eq!(listed["result"].as_array().unwrap().len(), 2, "{listed}");
    let page = client.result("ListTaskPushNotificationConfigs", json!({"taskId": id, "pageSize": 1})).await;
    let next = json!({"taskId": id, "pageSize": 1, "pageToken": page["nextPageToken"]});
    let rest = client.result("ListTaskPushNotificationConfigs", next).await;
    let mut urls = [&page, &rest].map(|page| page["configs"][0]["url"].as_str().unwrap().to_owned());
    urls.sort();
    assert_eq!(urls, [url("2"), url("3")]);
    assert_eq!(rest["nextPageToken"], Value::Null, "{rest}");

    let path = format!("/tasks/{id}/pushNotificationConfigs");
    let body = json!({"id": "b", "url": url("4")}).to_string();
    let answer = client.send(Method::POST, &path, &body).await;
    assert_eq!((answer.status, answer.json()["id"].clone()), (StatusCode::OK, json!("b")), "{}", answer.text);
    let answer = client.send(Method::GET, &format!("/v1{path}/b"), "").await;
    assert_eq!(answer.json()["pushNotificationConfig"]["url"], url("4"), "{}", answer.text);
    let answer = client.send(Method::DELETE, &format!("{path}/b"), "").await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text);
    let config = json!({"taskId": id, "id": "a b:ü%", "url": url("5")});
    client.result("CreateTaskPushNotificationConfig", config.clone()).await;
    let answer = client.send(Method::GET, &format!("{path}/a%20b%3A%C3%BC%25"), "").await;
    assert_eq!(answer.json(), config, "{}", answer.text);
    for _ in 0..2 {
        client.result("DeleteTaskPushNotificationConfig", json!({"taskId": id, "id": "a"})).await;
    }
    let gone = client.refused("GetTaskPushNotificationConfig", json!({"taskId": id, "id": "a"})).await;
    assert_eq!(gone, (200, -32001));
}

/// Invariant I-10.
#[tokio::test]
async fn the_task_of_another_caller_is_unknown() {
    let (fixture, _directory) = sending(Runtimes::none()).await;
    let receiver = Receiver::start(&[]).await;
    let client = Client::of(&fixture, "demo");
    let config = json!({"id": "a", "url": receiver.url});
    let sent = client.result("SendMessage", pushed("echo", json!({"message": "hi"}), config)).await;
    let id = sent["task"]["id"].as_str().unwrap();
    let bob = client.with("authorization", &format!("Bearer {}", token("bob")));
    let unknown = "0190f7c8-1111-7000-8000-000000000000";
    for task in [id, unknown] {
        for (method, params) in [
            ("CreateTaskPushNotificationConfig", json!({"taskId": task, "url": receiver.url})),
            ("GetTaskPushNotificationConfig", json!({"taskId": task, "id": "a"})),
            ("ListTaskPushNotificationConfigs", json!({"taskId": task})),
            ("DeleteTaskPushNotificationConfig", json!({"taskId": task, "id": "a"})),
        ] {
            assert_eq!(bob.refused(method, params).await, (200, -32001), "{method} {task}");
        }
    }
    let mine = client.result("ListTaskPushNotificationConfigs", json!({"taskId": id})).await;
    assert_eq!(mine["configs"].as_array().unwrap().len(), 1, "{mine}");
}

#[tokio::test]
async fn a_bad_receiver_is_refused_before_its_task_starts() {
    let (fixture, _directory) = sending(Runtimes::none()).await;
    let client = Client::of(&fixture, "demo");
    let url = "https://8.8.8.8/hook";
    for config in [
        json!({"url": "ftp://8.8.8.8/"}),
        json!({"url": "https://user:secret@8.8.8.8/"}),
        json!({"url": "https://8.8.8.8:6379/"}),
        json!({"url": "https://8.8.8.8/#x"}),
        json!({"url": "not a url"}),
        json!({"url": "https://8.8.8.8/\r\nx: y"}),
        json!({"url": url, "id": "a/b"}),
        json!({"url": url, "id": r"a\b"}),
        json!({"url": url, "id": ".."}),
        json!({"url": url, "token": "a\r\nx: y"}),
        json!({"url": url, "token": "a\nb"}),
        json!({"url": url, "authentication": {"scheme": "Bearer\r\nx: y", "credentials": "c"}}),
        json!({"url": url, "authentication": {"scheme": "Bearer", "credentials": "c\rd"}}),
    ] {
        let params = pushed("echo", json!({"message": "hi"}), config.clone());
        assert_eq!(client.refused("SendMessage", params).await, (200, -32602), "{config}");
    }
    let tasks = client.result("ListTasks", json!({})).await;
    assert_eq!(tasks["totalSize"], 0, "{tasks}");
}

/// It may cost a lookup of its name.
#[tokio::test]
async fn a_receiver_draws_from_the_limits_of_its_caller_before_it_is_checked() {
    let mut inputs = speaking();
    inputs.limits.push(star(2));
    let (fixture, _directory) = sending_by(assemble(inputs), Runtimes::none()).await;
    let receiver = Receiver::start(&[]).await;
    let client = Client::of(&fixture, "demo");
    let sent = message("echo", json!({"message": "hi"}));
    let task = client.result("SendMessage", sent.clone()).await["task"]["id"].clone();
    let create = json!({"taskId": task, "url": receiver.url});
    client.result("CreateTaskPushNotificationConfig", create.clone()).await;
    let mut again = sent;
    again["configuration"] = json!({"taskPushNotificationConfig": {"url": receiver.url}});
    for (method, params) in [("CreateTaskPushNotificationConfig", create), ("SendMessage", again)] {
        let refused = client.call(method, params).await;
        assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS, "{method} {}", refused.text);
    }
}

/// The client is told that it failed, so that nothing of it may run.
#[tokio::test]
async fn a_message_whose_receiver_has_no_room_starts_nothing_and_leaves_its_id_free() {
    let (fixture, _directory) = sending_within(snapshot(), Runtimes::none(), one_for_each()).await;
    let receiver = Receiver::start(&[]).await;
    let client = Client::of(&fixture, "demo");
    let hi = json!({"message": "hi"});
    let config = json!({"url": receiver.url});
    let first = client.result("SendMessage", pushed("echo", hi.clone(), config.clone())).await;
    let message = pushed("echo", hi.clone(), config);
    let refused = client.call("SendMessage", message.clone()).await;
    assert_eq!(super::code(&refused), -32602, "{}", refused.text);
    assert!(refused.text.contains("receivers of the user"), "{}", refused.text);
    let tasks = client.result("ListTasks", json!({})).await;
    assert_eq!(tasks["totalSize"], 1, "{tasks}");
    let id = &first["task"]["id"];
    client.result("DeleteTaskPushNotificationConfig", json!({"taskId": id, "id": id})).await;
    completed(&client.result("SendMessage", message).await["task"], &hi);
}

#[tokio::test]
async fn an_answer_whose_receiver_has_no_room_leaves_the_question_open() {
    let runtime = asking();
    let (fixture, _directory) = sending_within(snapshot(), runtime.runtimes(), one_for_each()).await;
    let receiver = Receiver::start(&[]).await;
    let client = Client::of(&fixture, "plugins");
    let config = |id: &str| json!({"id": id, "url": receiver.url});
    let task = client.result("SendMessage", pushed("sweep", json!({}), config("a"))).await["task"].clone();
    let answer = |config: Value| {
        json!({"message": {"messageId": message_id(), "role": "ROLE_USER", "taskId": task["id"],
            "parts": [{"data": {"name": "Ada"}}]}, "configuration": {"taskPushNotificationConfig": config}})
    };
    assert_eq!(client.refused("SendMessage", answer(config("b"))).await, (200, -32602));
    let seen = client.result("GetTask", json!({"id": task["id"]})).await;
    assert_eq!(seen["status"]["state"], "TASK_STATE_INPUT_REQUIRED", "{seen}");
    let done = client.result("SendMessage", answer(config("a"))).await;
    assert_eq!(done["task"]["status"]["state"], "TASK_STATE_COMPLETED", "{done}");
}

#[tokio::test]
async fn an_answer_that_does_not_fit_leaves_no_receiver() {
    let runtime = asking();
    let (fixture, _directory) = sending(runtime.runtimes()).await;
    let receiver = Receiver::start(&[]).await;
    let client = Client::of(&fixture, "plugins");
    let task = client.result("SendMessage", message("sweep", json!({}))).await["task"].clone();
    let answer = |name: Value| {
        json!({"message": {"messageId": message_id(), "role": "ROLE_USER", "taskId": task["id"],
            "parts": [{"data": {"name": name}}]},
            "configuration": {"taskPushNotificationConfig": {"id": "a", "url": receiver.url}}})
    };
    let configs = async || {
        let listed = client.result("ListTaskPushNotificationConfigs", json!({"taskId": task["id"]})).await;
        listed["configs"].as_array().map_or(0, Vec::len)
    };
    assert_eq!(client.refused("SendMessage", answer(json!(7))).await, (200, -32602));
    assert_eq!(configs().await, 0);
    client.result("SendMessage", answer(json!("Ada"))).await;
    assert_eq!(configs().await, 1);
}

#[tokio::test]
async fn a_card_promises_notifications_where_they_are_sent() {
    let mut inputs = super::speaking();
    for server in &mut inputs.servers {
        server.server.a2a_card = json!({"name": "x", "capabilities": {"streaming": true}}).to_string();
    }
    let snapshot = assemble(inputs);
    let (sends, _directory) = sending_by(snapshot.clone(), Runtimes::none()).await;
    for (fixture, expected) in [(sends, json!(true)), (Fixture::of(snapshot), Value::Null)] {
        let card = fixture.send(Method::GET, "/demo/.well-known/agent-card.json", &[], "").await.json();
        assert_eq!(card["capabilities"]["pushNotifications"], expected, "{card}");
        assert_eq!(card["capabilities"]["streaming"], true, "{card}");
    }
}
