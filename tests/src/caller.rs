//! A client of `tests/fixtures/works` and `tests/fixtures/saving`, over MCP 2026-07-28 and REST: each of its requests, and what it was told, is in the
//! history.

use std::net::SocketAddr;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::history::{Ask, History, Promise};
use crate::http1::{self, Request, Response};
use crate::message::{modern_of, rest};
use crate::wait;

/// What it calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tool {
    Once,
    Again,
    Hosted,
    /// It asks a person first.
    Asking,
    /// It changes nothing, and its answer is always the same.
    Look,
    /// A plugin, which saves that it did the thing.
    Saving,
}

impl Tool {
    /// Those that ask nobody and whose effects the history has.
    pub const ALL: [Tool; 3] = [Tool::Once, Tool::Again, Tool::Hosted];

    pub fn name(self) -> &'static str {
        match self {
            Tool::Once => "once",
            Tool::Again => "again",
            Tool::Hosted => "hosted",
            Tool::Asking => "asking",
            Tool::Look => "look",
            Tool::Saving => "saving",
        }
    }

    pub fn promise(self) -> Promise {
        match self {
            Tool::Once => Promise::AtMostOnce,
            Tool::Again | Tool::Hosted | Tool::Asking => Promise::ExactlyOnce,
            Tool::Look | Tool::Saving => Promise::NoneSeen,
        }
    }

    /// The server that lists it.
    fn server(self) -> &'static str {
        if self == Tool::Saving { "saving" } else { "works" }
    }
}

/// A call; the thing's name is its key, too, where it has one.
#[derive(Clone, Debug)]
pub struct Work {
    pub tool: Tool,
    pub thing: String,
    pub is_held: bool,
    pub pause_ms: u64,
    pub has_key: bool,
}

impl Work {
    /// It is done when the service is let go.
    pub fn held(tool: Tool, thing: impl Into<String>) -> Work {
        Work { tool, thing: thing.into(), is_held: true, pause_ms: 0, has_key: true }
    }

    /// It takes so long.
    pub fn lasting(tool: Tool, thing: impl Into<String>, pause_ms: u64) -> Work {
        Work { tool, thing: thing.into(), is_held: false, pause_ms, has_key: true }
    }

    /// The same without a key over MCP: called again, it is another call.
    #[must_use]
    pub fn without_key(self) -> Work {
        Work { has_key: false, ..self }
    }

    fn arguments(&self) -> Value {
        json!({"thing": self.thing, "isHeld": self.is_held, "pauseMs": self.pause_ms})
    }
}

/// What a client was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Came {
    Told(String),
    Refused(String),
    /// The call of this id has ended so, for good.
    Failed(String),
    Unknown,
    Missing,
    Cancelled,
    /// It runs; the task, where it became one.
    Runs(Option<String>),
    /// A person is asked.
    Asks(Value),
    /// Nothing certain.
    Unanswered(String),
}

impl Came {
    fn note(&self, ask: Ask) {
        match self.clone() {
            Came::Told(answer) => ask.told(answer),
            Came::Refused(why) | Came::Failed(why) => ask.refused(why),
            Came::Unknown => ask.unknown(),
            Came::Missing => ask.missing(),
            Came::Cancelled => ask.cancelled(),
            // What becomes of it is asked for by another request.
            Came::Runs(_) | Came::Asks(_) => {}
            Came::Unanswered(why) => ask.unanswered(why),
        }
    }

    /// Whether the same is to be asked again: nobody said how it ended.
    pub fn is_open(&self) -> bool {
        matches!(self, Came::Refused(_) | Came::Unanswered(_) | Came::Runs(_))
    }
}

/// One user, and where what it is told is recorded.
#[derive(Clone)]
pub struct Caller {
    pub token: String,
    pub history: History,
}

impl Caller {
    /// Calls the tool, under its key where it has one.
    pub async fn call(&self, at: SocketAddr, work: &Work) -> Came {
        self.mcp(at, work, &json!({}), None).await
    }

    /// The same, of a client that knows tasks.
    pub async fn begin(&self, at: SocketAddr, work: &Work) -> Came {
        self.mcp(at, work, &knows_tasks(), None).await
    }

    /// The same, of a client whose user can be asked, and who agrees to what was `asked` before.
    pub async fn agree(&self, at: SocketAddr, work: &Work, asked: Option<&Value>) -> Came {
        self.mcp(at, work, &json!({"elicitation": {}}), asked).await
    }

    async fn mcp(&self, at: SocketAddr, work: &Work, abilities: &Value, asked: Option<&Value>) -> Came {
        let name = work.tool.name();
        let meta = if work.has_key { json!({"asp/idempotencyKey": work.thing}) } else { json!({}) };
        let mut params = json!({"name": name, "arguments": work.arguments(), "_meta": meta});
        if let (Some(asked), Some(params)) = (asked, params.as_object_mut()) {
            let questions = asked.get("inputRequests").and_then(Value::as_object);
            let questions = questions.into_iter().flat_map(|questions| questions.keys().cloned());
            let answers = questions.map(|id| (id, agreed())).collect();
            params.insert("inputResponses".into(), Value::Object(answers));
            params.insert("requestState".into(), asked.get("requestState").cloned().unwrap_or_default());
        }
        let headers = [("mcp-name", name)];
        self.send(at, work, &modern_of(&self.token, ("tools/call", params), abilities, &headers)).await
    }

    /// `tasks/get` and `tasks/cancel`.
    pub async fn task(&self, at: SocketAddr, work: &Work, method: &str, task: &str) -> Came {
        let params = (method, json!({"taskId": task}));
        let headers = [("mcp-name", task)];
        self.send(at, work, &modern_of(&self.token, params, &knows_tasks(), &headers)).await
    }

    /// Looks at a gateway until the task has ended.
    pub async fn ended_task(&self, at: SocketAddr, work: &Work, task: &str) -> Result<Came> {
        let look =
            || async { Some(self.task(at, work, "tasks/get", task).await).filter(|came| !came.is_open()) };
        wait::until("the task ends", wait::START, look)
            .await
            .with_context(|| format!("{} at {at}", work.thing))
    }

    /// A call over REST: `PUT` and `GET` of it, and `/cancel`.
    pub async fn rest(&self, at: SocketAddr, work: &Work, method: &str, part: &str) -> Came {
        let (server, tool) = (work.tool.server(), work.tool.name());
        let path = format!("/{server}/rest/tools/{tool}/calls/{}{part}", work.thing);
        let body = if method == "PUT" { work.arguments() } else { Value::Null };
        self.send(at, work, &rest(method, &path, &self.token, &body)).await
    }

    async fn send(&self, at: SocketAddr, work: &Work, request: &Request) -> Came {
        let mut request = request.clone();
        if request.target.ends_with("/mcp") {
            request.target = format!("/{}/mcp", work.tool.server());
        }
        let ask = self.history.ask(&work.thing, work.tool.promise(), format!("{} {at}", request.method));
        let came = match http1::send(at, &request).await {
            Ok(response) => came(&response),
            Err(error) => Came::Unanswered(format!("{error:#}")),
        };
        came.note(ask);
        came
    }

    /// Asks again, at one gateway after the other, until somebody says how it ended.
    pub async fn settle(&self, gateways: &[SocketAddr], work: &Work) -> Result<Came> {
        for at in gateways.iter().cycle().take(gateways.len() * 4) {
            let came = self.call(*at, work).await;
            if !came.is_open() {
                return Ok(came);
            }
        }
        bail!("nobody says how {} ended", work.thing)
    }
}

/// What a user says who agrees.
pub fn agreed() -> Value {
    json!({"action": "accept", "content": {"agreed": true}})
}

fn knows_tasks() -> Value {
    json!({"extensions": {"io.modelcontextprotocol/tasks": {}}})
}

/// What a response says of the call. Envoy's own refusals, which have no trace, say nothing certain.
fn came(response: &Response) -> Came {
    let unsure = || Came::Unanswered(format!("{} {}", response.status, response.text()));
    let Ok(body) = response.json() else { return unsure() };
    if let Some(error) = body.get("error").filter(|_| body.get("jsonrpc").is_some()) {
        return refusal(error.pointer("/data/reason"), error.pointer("/data/traceId"), unsure);
    }
    match body.get("result").filter(|_| body.get("jsonrpc").is_some()) {
        Some(result) => of_result(result, unsure),
        None if response.status == 404 => Came::Missing,
        None if response.status >= 400 => refusal(body.get("reason"), body.get("traceId"), unsure),
        None => of_resource(&body, unsure),
    }
}

fn of_result(result: &Value, unsure: impl FnOnce() -> Came) -> Came {
    let text = |name: &str| result.get(name).and_then(Value::as_str);
    if let Some(reason) = result.pointer("/_meta/asp~1reason") {
        return refusal(Some(reason), result.pointer("/_meta/asp~1traceId"), unsure);
    }
    if let Some(answer) = result.get("structuredContent") {
        return Came::Told(answer.to_string());
    }
    if text("resultType") == Some("input_required") {
        return Came::Asks(result.clone());
    }
    match (text("taskId"), text("status")) {
        (Some(_), Some("completed")) => match result.get("result") {
            Some(result) => of_result(result, unsure),
            None => unsure(),
        },
        (Some(_), Some("cancelled")) => Came::Cancelled,
        (Some(_), Some("failed")) => {
            let error = result.get("error");
            let part = |path| error.and_then(|error| error.pointer(path));
            refusal(part("/data/reason"), part("/data/traceId"), unsure)
        }
        (Some(task), Some(_)) => Came::Runs(Some(task.to_owned())),
        // What is acknowledged here is looked for with `tasks/get`.
        _ if text("resultType") == Some("complete") => Came::Runs(None),
        _ => unsure(),
    }
}

/// Of a call over REST.
fn of_resource(call: &Value, unsure: impl FnOnce() -> Came) -> Came {
    match call.get("status").and_then(Value::as_str) {
        Some("success") => match call.pointer("/result/structuredContent") {
            Some(answer) => Came::Told(answer.to_string()),
            None => unsure(),
        },
        Some("canceled") => Came::Cancelled,
        Some("failed") => {
            match refusal(call.pointer("/error/code"), call.pointer("/error/traceId"), unsure) {
                // One id is one call, whatever became of it (docs/rest.md).
                Came::Refused(why) => Came::Failed(why),
                came => came,
            }
        }
        Some(_) => Came::Runs(None),
        None => unsure(),
    }
}

fn refusal(reason: Option<&Value>, trace: Option<&Value>, unsure: impl FnOnce() -> Came) -> Came {
    match (reason.and_then(Value::as_str), trace) {
        (Some("outcome_unknown"), _) => Came::Unknown,
        // Of what may be repeated, these say that it may; of all else, that nothing was done.
        (Some(reason @ ("upstream_unavailable" | "rate_limited")), Some(_)) => {
            Came::Refused(reason.to_owned())
        }
        (Some("invalid_params"), Some(_)) => Came::Missing,
        _ => unsure(),
    }
}
