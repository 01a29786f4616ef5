//! Calls that a service hosts, against a scripted service on loopback. Here is what these tests share.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use asp_proto::snapshot::runtime::Mode;
use asp_proto::snapshot::{GatewaySnapshot, Mutation, Primitive, ProxyCalls, Runtime, Upstream};
use asp_registry::assemble;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::response::Response;
use http::{HeaderMap, Method, Uri};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::support::{Answer, Fixture, Modern, inputs, token};

#[path = "hosted/faults.rs"]
mod faults;
#[path = "hosted/outcomes.rs"]
mod outcomes;
#[path = "hosted/proofs.rs"]
mod proofs;
#[path = "hosted/questions.rs"]
mod questions;
#[path = "hosted/reads.rs"]
mod reads;
#[path = "hosted/states.rs"]
mod states;
#[path = "hosted/takeover.rs"]
mod takeover;

/// Hang guard.
const PATIENCE: Duration = Duration::from_secs(30);

/// Reaction of the service to one request.
#[derive(Clone)]
enum Step {
    Reply(u16, Vec<(&'static str, String)>, Vec<u8>),
    /// Headers, and then the connection breaks.
    Break,
    /// Never answers.
    Hang,
}

/// A call resource.
fn state(status: &str, more: Value) -> Step {
    let mut resource = json!({"toolname": "sweep", "status": status});
    for (name, value) in more.as_object().unwrap() {
        resource[name] = value.clone();
    }
    reply(200, &resource)
}

fn done() -> Step {
    state("success", json!({"result": {"structuredContent": {"ok": true}}}))
}

fn reply(status: u16, body: &Value) -> Step {
    Step::Reply(status, Vec::new(), body.to_string().into_bytes())
}

fn with_header(step: Step, name: &'static str, value: &str) -> Step {
    match step {
        Step::Reply(status, mut headers, body) => {
            headers.push((name, value.to_owned()));
            Step::Reply(status, headers, body)
        }
        other => other,
    }
}

/// One request that came.
#[derive(Clone, Debug)]
struct Seen {
    method: String,
    /// With the call's id as `{id}`.
    path: String,
    id: String,
    headers: HeaderMap,
    body: Value,
    at: Instant,
}

impl Seen {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

/// A service that does the steps of its script in turn, and the last one again and again. A cancel is no step.
struct Service {
    steps: Mutex<VecDeque<Step>>,
    seen: watch::Sender<Vec<Seen>>,
    url: String,
}

impl Service {
    async fn start(steps: impl IntoIterator<Item = Step>) -> Arc<Service> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let service = Arc::new(Service {
            steps: Mutex::new(steps.into_iter().collect()),
            seen: watch::Sender::default(),
            url: format!("http://{}", listener.local_addr().unwrap()),
        });
        let router = axum::Router::new().fallback(serve).with_state(service.clone());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        service
    }

    fn next(&self) -> Step {
        let mut steps = self.steps.lock();
        if steps.len() > 1 { steps.pop_front().unwrap() } else { steps.front().unwrap().clone() }
    }

    fn seen(&self) -> Vec<Seen> {
        self.seen.borrow().clone()
    }

    /// `METHOD path` of every request, cancels left out.
    fn requests(&self) -> Vec<String> {
        let seen = self.seen();
        let named = seen.iter().map(|seen| format!("{} {}", seen.method, seen.path));
        named.filter(|name| !name.ends_with("/cancel")).collect()
    }

    /// Waits for the first request whose method and path end so.
    async fn saw(&self, end: &str) -> Seen {
        let mut seen = self.seen.subscribe();
        let found = |seen: &Seen| format!("{} {}", seen.method, seen.path).ends_with(end);
        let waited = seen.wait_for(|seen| seen.iter().any(found));
        let all = tokio::time::timeout(PATIENCE, waited).await.expect(end).unwrap();
        all.iter().find(|seen| found(seen)).unwrap().clone()
    }

    fn was_cancelled(&self) -> bool {
        self.seen().iter().any(|seen| seen.path.ends_with("/cancel"))
    }
}

async fn serve(
    State(service): State<Arc<Service>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let path = uri.path_and_query().unwrap().as_str().to_owned();
    let id = path.split("/calls/").nth(1).unwrap_or_default().split('/').next().unwrap().to_owned();
    let path = if id.is_empty() { path } else { path.replace(&id, "{id}") };
    let is_cancel = path.ends_with("/cancel");
    let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
    let method = method.to_string();
    let at = Instant::now();
    service.seen.send_modify(|seen| seen.push(Seen { method, path, id, headers, body, at }));
    let step = if is_cancel { state("canceled", json!({})) } else { service.next() };
    match step {
        Step::Reply(status, headers, body) => {
            let mut response = Response::builder().status(status);
            if !headers.iter().any(|(name, _)| *name == "content-type") {
                response = response.header("content-type", "application/json");
            }
            for (name, value) in headers {
                response = response.header(name, value);
            }
            response.body(Body::from(body)).unwrap()
        }
        Step::Break => {
            let chunks = [Ok(Bytes::from_static(b"{")), Err(std::io::Error::other("broken"))];
            Response::new(Body::from_stream(futures::stream::iter(chunks)))
        }
        Step::Hang => std::future::pending().await,
    }
}

/// A gateway whose plugins' primitives are hosted by the service at `url`.
fn fixture_at(url: &str, mutation: Mutation) -> Fixture {
    fixture_with(url, |primitive| {
        primitive.set_mutation(mutation);
        // What ends such a call is its service, not a machine that stood still for a minute.
        primitive.max_runtime_seconds = 3600;
    })
}

fn fixture_with(url: &str, change: impl Fn(&mut Primitive)) -> Fixture {
    Fixture::of(hosted(url, change))
}

/// The snapshot of such a gateway.
fn hosted(url: &str, change: impl Fn(&mut Primitive)) -> GatewaySnapshot {
    let mut snapshot = assemble(inputs());
    for primitive in &mut snapshot.primitives {
        if ["sweep", "order", "page", "advice"].contains(&primitive.id.as_str()) {
            let calls = ProxyCalls {
                url: "http://service.internal/base/v1/".into(),
                tool: format!("their.{}", primitive.id),
            };
            primitive.runtime = Some(Runtime { mode: Some(Mode::ProxyCalls(calls)) });
            change(primitive);
        }
    }
    snapshot.upstreams.push(Upstream {
        name: "service.internal".into(),
        url: url.into(),
        primitives: vec!["*".into()],
    });
    snapshot
}

fn fixture(service: &Service) -> Fixture {
    fixture_at(&service.url, Mutation::ReadOnly)
}

fn modern(name: &str, extra: Value) -> Modern {
    let mut params = json!({"name": name, "arguments": {"n": 5}});
    for (name, value) in extra.as_object().unwrap() {
        params[name] = value.clone();
    }
    let mut request = Modern::new("plugins", &token("alice"), "tools/call", params);
    request.body["params"]["_meta"]["progressToken"] = "p".into();
    request
}

async fn sweep(fixture: &Fixture) -> Answer {
    modern("sweep", json!({})).send(fixture).await
}

/// The message that ends the call.
fn message(answer: &Answer) -> Value {
    match answer.headers["content-type"].to_str().unwrap() {
        "text/event-stream" => answer.events().pop().unwrap(),
        _ => answer.json(),
    }
}

fn result(answer: &Answer) -> Value {
    message(answer)["result"].clone()
}

/// The text and the reason of a call that ended as an error: of the tool, or of the protocol.
fn error(answer: &Answer) -> (String, String) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let message = message(answer);
    if let Some(error) = message.get("error") {
        return (text(&error["message"]), text(&error["data"]["reason"]));
    }
    let result = &message["result"];
    assert_eq!(result["isError"], true, "{}", answer.text);
    (text(&result["content"][0]["text"]), text(&result["_meta"]["asp/reason"]))
}
