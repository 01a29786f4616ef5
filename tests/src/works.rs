//! A service that does things and remembers each: what `tests/fixtures/works` calls, outside of the platform.
//!
//! `POST /once` does a thing whenever it is asked. `POST /again` does it once for each key. `POST /look` does nothing. `/tools/hosted/calls` hosts calls
//! (`docs/http-calls.md`), each of which does its thing at its end; those of `/tools/asking/calls` ask a person before. Keeps true: what was done is in the history before
//! anybody is told of it.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::history::{History, What};
use crate::wait;

/// A running service; it ends when dropped.
pub struct Works {
    pub address: SocketAddr,
    state: Arc<State>,
    task: JoinHandle<()>,
}

struct State {
    history: History,
    /// Things that are held wait for true.
    is_let_go: watch::Sender<bool>,
    done: Mutex<Done>,
}

#[derive(Default)]
struct Done {
    number: u64,
    /// How often each thing was asked for.
    asked: BTreeMap<String, usize>,
    /// The answers under the keys of `/again`.
    answers: BTreeMap<String, Value>,
    hosted: BTreeMap<String, Hosted>,
}

/// A call that is hosted here.
#[derive(Clone)]
struct Hosted {
    thing: String,
    status: &'static str,
    result: Option<Value>,
}

impl Works {
    pub async fn start(history: &History) -> Result<Works> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let state =
            State { history: history.clone(), is_let_go: watch::Sender::new(false), done: Mutex::default() };
        let state = Arc::new(state);
        let serving = state.clone();
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let state = serving.clone();
                let service = service_fn(move |request| serve(state.clone(), request));
                tokio::spawn(async move {
                    let builder = Builder::new(TokioExecutor::new());
                    // A gateway that is killed ends its connection with an error that concerns nobody.
                    let _ = builder.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        Ok(Works { address, state, task })
    }

    /// The value of `ASP_UPSTREAMS`.
    pub fn upstream(&self) -> String {
        format!("works.internal=http://{}", self.address)
    }

    /// Waits until somebody has asked for the thing so often.
    pub async fn was_asked(&self, thing: &str, times: usize) -> Result<()> {
        let asked = || async {
            let done = self.state.done.lock();
            done.asked.get(thing).is_some_and(|asked| *asked >= times).then_some(())
        };
        wait::until("the service is asked", wait::START, asked).await.with_context(|| thing.to_owned())
    }

    /// Whether the call that was to do this was cancelled here.
    pub fn is_cancelled(&self, thing: &str) -> bool {
        let done = self.state.done.lock();
        done.hosted.values().any(|call| call.thing == thing && call.status == "canceled")
    }

    /// From now on what is held is done and answered; nothing is held any more.
    pub fn let_go(&self) {
        self.state.is_let_go.send_replace(true);
    }
}

impl Drop for Works {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The status of a call that waits for a person.
const ASKS: &str = "awaitingElicitationResult";

/// What is asked for.
struct Asked {
    thing: String,
    is_held: bool,
    pause: Duration,
}

impl Asked {
    fn of(body: &[u8]) -> Option<Asked> {
        let body: Value = serde_json::from_slice(body).ok()?;
        Some(Asked {
            thing: body.get("thing")?.as_str()?.to_owned(),
            is_held: body.get("isHeld")?.as_bool()?,
            pause: Duration::from_millis(body.get("pauseMs")?.as_u64()?),
        })
    }

    async fn wait(&self, state: &State) {
        if self.is_held {
            let mut is_let_go = state.is_let_go.subscribe();
            // Err: the service ends.
            let _ = is_let_go.wait_for(|is_let_go| *is_let_go).await;
        }
        tokio::time::sleep(self.pause).await;
    }
}

impl State {
    /// Does the thing; the answer.
    fn happens(&self, done: &mut Done, thing: &str) -> Value {
        self.history.add(thing, What::Happened);
        done.number += 1;
        json!({"thing": thing, "number": done.number})
    }

    /// Does the thing of a hosted call.
    fn ends(&self, done: &mut Done, id: &str) {
        let Some(thing) = done.hosted.get(id).map(|call| call.thing.clone()) else { return };
        let result = self.happens(done, &thing);
        if let Some(call) = done.hosted.get_mut(id) {
            call.status = "success";
            call.result = Some(result);
        }
    }
}

async fn serve(state: Arc<State>, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let path = head.uri.path().trim_matches('/').to_owned();
    let parts: Vec<&str> = path.split('/').collect();
    let answered = match (&head.method, parts.as_slice()) {
        (&Method::POST, ["once" | "again"]) => done(&state, &head.headers, &body, path == "again").await,
        (&Method::POST, ["look"]) => looked(&state, &body).await,
        (&Method::PUT, ["tools", tool, "calls", id]) => put(&state, (tool, id), &body),
        (&Method::GET, ["tools", _, "calls", id]) => shown(&state.done.lock(), id),
        (&Method::POST, ["tools", _, "calls", id, "advance"]) => advance(&state, id, &body),
        (&Method::POST, ["tools", _, "calls", id, "cancel"]) => {
            let mut done = state.done.lock();
            if let Some(call) = done.hosted.get_mut(*id).filter(|call| call.result.is_none()) {
                call.status = "canceled";
            }
            shown(&done, id)
        }
        _ => None,
    };
    let (status, body) = answered.unwrap_or((StatusCode::NOT_FOUND, json!({})));
    let mut response = Response::new(Full::new(Bytes::from(body.to_string())));
    *response.status_mut() = status;
    response.headers_mut().insert("content-type", http::HeaderValue::from_static("application/json"));
    Ok(response)
}

async fn done(state: &State, headers: &HeaderMap, body: &[u8], again: bool) -> Option<(StatusCode, Value)> {
    let asked = Asked::of(body)?;
    let key = headers.get("idempotency-key")?.to_str().ok()?.to_owned();
    let answer = {
        let mut done = state.done.lock();
        *done.asked.entry(asked.thing.clone()).or_default() += 1;
        match done.answers.get(&key).filter(|_| again) {
            Some(answer) => answer.clone(),
            None => {
                let answer = state.happens(&mut done, &asked.thing);
                done.answers.insert(key, answer.clone());
                answer
            }
        }
    };
    asked.wait(state).await;
    Some((StatusCode::OK, answer))
}

async fn looked(state: &State, body: &[u8]) -> Option<(StatusCode, Value)> {
    let asked = Asked::of(body)?;
    asked.wait(state).await;
    Some((StatusCode::OK, json!({"thing": asked.thing, "number": 0})))
}

fn put(state: &Arc<State>, (tool, id): (&str, &str), body: &[u8]) -> Option<(StatusCode, Value)> {
    let asked = Asked::of(body)?;
    let mut done = state.done.lock();
    *done.asked.entry(asked.thing.clone()).or_default() += 1;
    if !done.hosted.contains_key(id) {
        let call = Hosted { thing: asked.thing.clone(), status: "running", result: None };
        done.hosted.insert(id.to_owned(), call);
        tokio::spawn(run(state.clone(), id.to_owned(), asked, tool == "asking"));
    }
    shown(&done, id)
}

async fn run(state: Arc<State>, id: String, asked: Asked, asks: bool) {
    asked.wait(&state).await;
    let mut done = state.done.lock();
    match done.hosted.get_mut(&id) {
        Some(call) if call.status == "running" && asks => call.status = ASKS,
        Some(call) if call.status == "running" => state.ends(&mut done, &id),
        _ => {}
    }
}

/// The answer of a person, who agrees.
fn advance(state: &State, id: &str, body: &[u8]) -> Option<(StatusCode, Value)> {
    let body: Value = serde_json::from_slice(body).ok()?;
    let mut done = state.done.lock();
    if done.hosted.get(id)?.status != ASKS {
        return Some((StatusCode::PRECONDITION_FAILED, json!({})));
    }
    if body.pointer("/result/content/agreed") == Some(&Value::Bool(true)) {
        state.ends(&mut done, id);
    }
    shown(&done, id)
}

fn shown(done: &Done, id: &str) -> Option<(StatusCode, Value)> {
    let call = done.hosted.get(id)?;
    let mut shown = json!({"id": id, "status": call.status, "etag": call.status});
    let shown_members = shown.as_object_mut()?;
    if let Some(result) = &call.result {
        shown_members.insert("result".into(), json!({"structuredContent": result}));
    }
    if call.status == ASKS {
        let schema =
            json!({"type": "object", "properties": {"agreed": {"type": "boolean"}}, "required": ["agreed"]});
        let params = json!({"message": "Shall it be done?", "requestedSchema": schema});
        shown_members
            .insert("elicitationRequest".into(), json!({"method": "elicitation/create", "params": params}));
        shown_members.insert("serverData".into(), json!({"question": 1}));
    }
    Some((StatusCode::OK, shown))
}
