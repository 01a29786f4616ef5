//! Plugins through a scripted runtime: what the wire does, edge cases included; workers come in the
//! end-to-end tests. Here is what these tests share.

use asp_proto::plugin::{
    DelegationRequested, DeliverUserInput, ElicitationRequested, Progress, client_message,
    server_message::Payload,
};
use http_body_util::BodyExt;
use serde_json::{Value, json};

use crate::runtime::{Runtime, Worker, json_of};
use crate::support::{Answer, Fixture, Modern, snapshot, token};

#[path = "plugin/abilities.rs"]
mod abilities;
#[path = "plugin/artifacts.rs"]
mod artifacts;
#[path = "plugin/attachments.rs"]
mod attachments;
#[path = "plugin/audited_ends.rs"]
mod audited_ends;
#[path = "plugin/availability.rs"]
mod availability;
#[path = "plugin/calls.rs"]
mod calls;
#[path = "plugin/changes.rs"]
mod changes;
#[path = "plugin/completing.rs"]
mod completing;
#[path = "plugin/conversations.rs"]
mod conversations;
#[path = "plugin/ended.rs"]
mod ended;
#[path = "plugin/exchanged.rs"]
mod exchanged;
#[path = "plugin/figures.rs"]
mod figures;
#[path = "plugin/followed.rs"]
mod followed;
#[path = "plugin/inbox.rs"]
mod inbox;
#[path = "plugin/late_store.rs"]
mod late_store;
#[path = "plugin/left_behind.rs"]
mod left_behind;
#[path = "plugin/lent.rs"]
mod lent;
#[path = "plugin/listed.rs"]
mod listed;
#[path = "plugin/mirrored.rs"]
mod mirrored;
#[path = "plugin/noted_inbox.rs"]
mod noted_inbox;
#[path = "plugin/outcomes.rs"]
mod outcomes;
#[path = "plugin/packages.rs"]
mod packages;
#[path = "plugin/pages.rs"]
mod pages;
#[path = "plugin/questions.rs"]
mod questions;
#[path = "plugin/reads_that_ask.rs"]
mod reads_that_ask;
#[path = "plugin/relayed.rs"]
mod relayed;
#[path = "plugin/resume.rs"]
mod resume;
#[path = "plugin/several.rs"]
mod several;
#[path = "plugin/slow_store.rs"]
mod slow_store;
#[path = "plugin/storage.rs"]
mod storage;
#[path = "plugin/stored_first.rs"]
mod stored_first;
#[path = "plugin/streams.rs"]
mod streams;
#[path = "plugin/takeover.rs"]
mod takeover;
#[path = "plugin/takeover_rules.rs"]
mod takeover_rules;
#[path = "plugin/tasks.rs"]
mod tasks;
#[path = "plugin/tokens.rs"]
mod tokens;
#[path = "plugin/watched.rs"]
mod watched;

fn fixture(runtime: &Runtime) -> Fixture {
    Fixture::with(snapshot(), 7, runtime.runtimes())
}

async fn sweep(fixture: &Fixture) -> Answer {
    call(fixture, "sweep", json!({})).await
}

async fn call(fixture: &Fixture, name: &str, extra: Value) -> Answer {
    modern(name, extra).send(fixture).await
}

pub(crate) fn modern(name: &str, extra: Value) -> Modern {
    let mut params = json!({"name": name, "arguments": {}});
    for (name, value) in extra.as_object().unwrap() {
        params[name] = value.clone();
    }
    let mut request = Modern::new("plugins", &token("alice"), "tools/call", params);
    request.body["params"]["_meta"]["progressToken"] = "p".into();
    request
}

fn progress(request_id: &str, percent: f64) -> Payload {
    let message = format!("at {percent}");
    Payload::Progress(Progress { request_id: request_id.into(), percent, message, ..Progress::default() })
}

pub(crate) fn asks_name(request_id: &str) -> Payload {
    Payload::Elicitation(ElicitationRequested {
        request_id: request_id.into(),
        elicitation_id: "plugins.name".into(),
        ..ElicitationRequested::default()
    })
}

fn asks_model(request_id: &str) -> Payload {
    Payload::Delegation(DelegationRequested {
        request_id: request_id.into(),
        correlation_id: "d-1".into(),
        delegate_id: "plugins.label".into(),
        input: json_of(&json!({"text": "hello"})),
        ..DelegationRequested::default()
    })
}

pub(crate) async fn user_input(worker: &mut Worker) -> DeliverUserInput {
    match worker.next().await {
        Some(client_message::Payload::UserInput(input)) => input,
        other => panic!("no user input: {other:?}"),
    }
}

/// Waits until `holds`; a hang guard, not an expectation.
pub(crate) async fn until(what: &str, holds: impl Fn() -> bool) {
    until_async(what, async || holds()).await;
}

pub(crate) async fn until_async(what: &str, holds: impl AsyncFn() -> bool) {
    until_some(what, async || holds().await.then_some(())).await;
}

/// Waits until `look` returns a value.
pub(crate) async fn until_some<T>(what: &str, look: impl AsyncFn() -> Option<T>) -> T {
    let patient = async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    let waited = tokio::time::timeout(std::time::Duration::from_secs(60), patient).await;
    waited.unwrap_or_else(|_| panic!("{what}"))
}

pub(crate) fn with_token(mut request: Modern) -> Modern {
    request.body["params"]["_meta"]["progressToken"] = "p".into();
    request
}

pub(crate) fn last_result(answer: &Answer) -> Value {
    if answer.headers["content-type"] == "text/event-stream" {
        answer.events().last().unwrap()["result"].clone()
    } else {
        answer.json()["result"].clone()
    }
}

/// Reads server-sent events until one is a request or a response.
pub(crate) async fn next_request(body: &mut axum::body::Body) -> Value {
    loop {
        let message = next_message(body).await;
        if message.get("id").is_some() {
            return message;
        }
    }
}

/// The next server-sent event that is a message.
pub(crate) async fn next_message(body: &mut axum::body::Body) -> Value {
    loop {
        let frame = body.frame().await.unwrap().unwrap().into_data().unwrap();
        let text = String::from_utf8(frame.to_vec()).unwrap();
        if let Some(data) = text.lines().find_map(|line| line.strip_prefix("data: ")) {
            return serde_json::from_str(data).unwrap();
        }
    }
}
