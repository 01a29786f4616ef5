//! Delegations that the platform answers: by a model over real HTTP, by another primitive. Here is what these
//! tests share: a service that speaks the chat completions format, and a worker that asks once.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use asp_backends::delegate::endpoint::{DefaultEndpoint, Endpoints};
use asp_proto::plugin::{
    DelegationRequested, DeliverDelegationResult, client_message, server_message::Payload,
};
use asp_proto::snapshot::runtime::Mode;
use asp_proto::snapshot::{GatewaySnapshot, Primitive, ProxyOpenai, Runtime as Runs, Upstream};
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, StatusCode};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::runtime::{Runtime, Script, Worker, json_of};
use crate::support::{Fixture, Modern, snapshot, token};

#[path = "delegates/conversation.rs"]
mod conversation;
#[path = "delegates/faults.rs"]
mod faults;
#[path = "delegates/model.rs"]
mod model;
#[path = "delegates/primitive.rs"]
mod primitive;

const DELEGATE: &str = "plugins.label";

/// A service that answers as it is told, and remembers what it was asked.
pub(crate) struct Model {
    address: SocketAddr,
    pub(crate) asked: Arc<Mutex<Vec<(HeaderMap, Value)>>>,
}

impl Model {
    /// `answer` gets the number of the request, from 0.
    pub(crate) async fn start<F, Answering>(answer: F) -> Model
    where
        F: Fn(usize) -> Answering + Clone + Send + Sync + 'static,
        Answering: Future<Output = Response> + Send + 'static,
    {
        let asked: Arc<Mutex<Vec<(HeaderMap, Value)>>> = Arc::default();
        let record = asked.clone();
        let handle = async move |headers: HeaderMap, body: String| {
            let number = {
                let mut asked = record.lock();
                asked.push((headers, serde_json::from_str(&body).unwrap()));
                asked.len() - 1
            };
            answer(number).await
        };
        let router = axum::Router::new().route("/v1/chat/completions", axum::routing::post(handle));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Model { address, asked }
    }

    /// One that says the same to everybody.
    pub(crate) async fn saying(text: &'static str) -> Model {
        Model::start(move |_| async move { said(text) }).await
    }

    pub(crate) fn requests(&self) -> usize {
        self.asked.lock().len()
    }

    /// Returns the model as the operator's own endpoint.
    pub(crate) fn endpoints(&self) -> Endpoints {
        let default = DefaultEndpoint {
            url: format!("http://{}/v1/", self.address),
            model: "small".into(),
            key: Some("k3y".into()),
            json_schema: false,
            primitives: vec!["*".into()],
        };
        Endpoints { default: Some(default), ..Endpoints::default() }
    }
}

pub(crate) fn said(text: &str) -> Response {
    axum::Json(json!({
        "model": "small-1", "usage": {"prompt_tokens": 11, "completion_tokens": 3},
        "choices": [{"finish_reason": "stop", "message": {"role": "assistant", "content": text}}]}))
    .into_response()
}

fn status(status: StatusCode, retry_after: &'static str) -> Response {
    (status, [("retry-after", retry_after)], "overloaded: s3cret input").into_response()
}

/// The snapshot with the delegate changed.
fn with_delegate(change: impl FnOnce(&mut Primitive)) -> GatewaySnapshot {
    let mut snapshot = snapshot();
    let delegate = snapshot.primitives.iter_mut().find(|primitive| primitive.id == DELEGATE).unwrap();
    change(delegate);
    snapshot
}

/// The delegate with an endpoint of its own, reached by an entry of the operator's allow-list.
fn with_openai(model: &Model, openai: ProxyOpenai) -> GatewaySnapshot {
    let mut snapshot = with_delegate(|delegate| {
        let openai = ProxyOpenai { url: "http://llm.internal/v1".into(), model: "own".into(), ..openai };
        delegate.runtime = Some(Runs { mode: Some(Mode::ProxyOpenai(openai)) });
    });
    let url = format!("http://{}", model.address);
    snapshot.upstreams.push(Upstream { name: "llm.internal".into(), url, primitives: vec!["*".into()] });
    snapshot
}

fn asks(request_id: &str, correlation: &str, input: &Value, timeout: Duration) -> Payload {
    Payload::Delegation(DelegationRequested {
        request_id: request_id.into(),
        correlation_id: correlation.into(),
        delegate_id: DELEGATE.into(),
        input: json_of(input),
        timeout: prost_types::Duration::try_from(timeout).ok().filter(|_| !timeout.is_zero()),
        ..DelegationRequested::default()
    })
}

async fn told(worker: &mut Worker) -> DeliverDelegationResult {
    match worker.next().await {
        Some(client_message::Payload::DelegationResult(result)) => result,
        other => panic!("no result of a delegation: {other:?}"),
    }
}

/// The result as JSON, or the error.
fn read(result: &DeliverDelegationResult) -> Result<Value, String> {
    match &result.result {
        Some(json) if result.error.is_empty() => Ok(serde_json::from_slice(&json.value).unwrap()),
        _ => Err(result.error.clone()),
    }
}

/// One call of a worker that asks once.
struct Once {
    snapshot: GatewaySnapshot,
    endpoints: Endpoints,
    capabilities: Value,
    input: Value,
    timeout: Duration,
}

impl Once {
    fn of(snapshot: GatewaySnapshot, endpoints: Endpoints) -> Once {
        let capabilities = json!({});
        let input = json!({"text": "hello"});
        Once { snapshot, endpoints, capabilities, input, timeout: Duration::ZERO }
    }

    /// Returns the answer that the worker received, and the gateway.
    async fn run(self) -> (Result<Value, String>, Fixture) {
        let Once { snapshot, endpoints, capabilities, input, timeout } = self;
        let heard: Arc<Mutex<Option<Result<Value, String>>>> = Arc::default();
        let hears = heard.clone();
        let runtime = Runtime::start(Script::of(move |_, mut worker: Worker| {
            let hears = hears.clone();
            let input = input.clone();
            async move {
                let invoke = worker.begin(&[]).await;
                worker.say(asks(&invoke.request_id, "d-1", &input, timeout)).await;
                let answer = read(&told(&mut worker).await);
                *hears.lock() = Some(answer);
                worker.complete(&invoke, &json!({"ok": true})).await;
            }
        }));
        let fixture = Fixture::with_models(snapshot, 7, runtime.runtimes(), endpoints);
        let answer = sweep(capabilities).send(&fixture).await;
        let heard = heard.lock().clone();
        (heard.unwrap_or_else(|| panic!("the worker was told nothing: {}", answer.text)), fixture)
    }
}

fn sweep(capabilities: Value) -> Modern {
    let params = json!({"name": "sweep", "arguments": {}});
    Modern::new("plugins", &token("alice"), "tools/call", params).capabilities(capabilities)
}

async fn audited(fixture: &Fixture, event: &str) -> Vec<Value> {
    fixture.gateway.flush().await;
    let events = fixture.audit.events();
    let parsed = events.iter().map(|found| serde_json::from_str::<Value>(&found.event).unwrap());
    parsed.filter(|found| found["event"] == event).collect()
}
