//! A client of an agent over JSON-RPC of A2A 1.0. It names itself, so that the recorder holds its requests against the official
//! definitions as well as the answers.

use std::net::SocketAddr;

use anyhow::{Context, Result, bail, ensure};
use asp_e2e::agent::{CANCELED, message, state};
use asp_e2e::http1::{self, Opened, Request};
use serde_json::{Value, json};

const NAME: &str = "asp-sweep/1";

pub(super) struct AgentClient {
    edge: SocketAddr,
    server: &'static str,
    token: String,
}

impl AgentClient {
    pub(super) fn new(edge: SocketAddr, server: &'static str, token: String) -> AgentClient {
        AgentClient { edge, server, token }
    }

    /// Returns the public card.
    pub(super) async fn card(&self) -> Result<Value> {
        let path = format!("/{}/.well-known/agent-card.json", self.server);
        http1::get(self.edge, &path, &[("user-agent", NAME)]).await?.json()
    }

    /// Returns the result of a method.
    pub(super) async fn call(&self, id: &str, method: &str, params: &Value) -> Result<Value> {
        let answer = http1::send(self.edge, &self.request(id, method, params)).await?;
        let mut answer = answer.json()?;
        match answer.get_mut("result") {
            Some(result) => Ok(result.take()),
            None => bail!("{method}: {answer}"),
        }
    }

    /// Starts a task by the arguments of the agent's only skill, and follows it.
    pub(super) async fn start(&self, id: &str, arguments: &Value, configuration: &Value) -> Result<Events> {
        let message = message(json!([{"data": arguments}]), None);
        let params = json!({"message": message, "configuration": configuration});
        self.open(id, "SendStreamingMessage", &params).await
    }

    /// Follows a task from where it is.
    pub(super) async fn follow(&self, id: &str, task: &str) -> Result<Events> {
        self.open(id, "SubscribeToTask", &json!({"id": task})).await
    }

    /// Answers the question of a task by a message; the task works on.
    pub(super) async fn answer(&self, id: &str, task: &str, fields: &Value) -> Result<()> {
        let message = message(json!([{"data": fields}]), Some(task));
        let configuration = json!({"returnImmediately": true, "historyLength": 2});
        let params = json!({"message": message, "configuration": configuration});
        let answered = self.call(id, "SendMessage", &params).await?;
        ensure!(answered["task"]["id"] == task, "{answered}");
        Ok(())
    }

    /// Cancels a task.
    pub(super) async fn cancel(&self, id: &str, task: &str) -> Result<()> {
        let cancelled = self.call(id, "CancelTask", &json!({"id": task})).await?;
        ensure!(state(&cancelled) == CANCELED, "{cancelled}");
        Ok(())
    }

    async fn open(&self, id: &str, method: &str, params: &Value) -> Result<Events> {
        let stream = http1::open(self.edge, &self.request(id, method, params), "data: ").await?;
        let mut events = Events { stream, task: String::new(), seen: Vec::new() };
        let first = events.next().await?.context("a stream has an event")?;
        events.task = first["task"]["id"].as_str().with_context(|| format!("no task: {first}"))?.to_owned();
        Ok(events)
    }

    fn request(&self, id: &str, method: &str, params: &Value) -> Request {
        let headers = [
            ("authorization", format!("Bearer {}", self.token)),
            ("content-type", "application/json".to_owned()),
            ("a2a-version", "1.0".to_owned()),
            ("user-agent", NAME.to_owned()),
            // A refusal of a stream ends with its connection.
            ("connection", "close".to_owned()),
        ];
        let headers = headers.into_iter().map(|(name, value)| (name.to_owned(), value.into_bytes()));
        let body = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        Request {
            method: "POST".into(),
            target: format!("/{}/a2a", self.server),
            headers: headers.collect(),
            body: body.to_string().into_bytes(),
        }
    }
}

/// The events of one stream. Dropping it loses the connection.
pub(super) struct Events {
    stream: Opened,
    pub(super) task: String,
    /// The results that have come.
    pub(super) seen: Vec<Value>,
}

impl Events {
    async fn next(&mut self) -> Result<Option<Value>> {
        let Some(data) = self.stream.next_event().await? else { return Ok(None) };
        let mut event: Value = serde_json::from_str(&data).with_context(|| data.clone())?;
        let event = event.get_mut("result").with_context(|| format!("no result: {data}"))?.take();
        self.seen.push(event.clone());
        Ok(Some(event))
    }

    async fn until(&mut self, what: &str, fits: impl Fn(&Value) -> bool) -> Result<()> {
        while let Some(event) = self.next().await? {
            if fits(&event) {
                return Ok(());
            }
        }
        bail!("the stream ends before {what}: {:?}", self.seen)
    }

    /// Reads on until the task asks a question whose id begins so.
    pub(super) async fn until_asked(&mut self, question: &str) -> Result<()> {
        self.until(question, |event| asks(&event["statusUpdate"], question)).await
    }

    /// Reads on until the task is in a phase.
    pub(super) async fn until_phase(&mut self, phase: &str) -> Result<()> {
        self.until(phase, |event| event["statusUpdate"]["metadata"]["asp/phase"] == phase).await
    }

    /// Reads on to the end of the stream; returns the task as it is then.
    pub(super) async fn end(&mut self) -> Result<Value> {
        while self.next().await?.is_some() {}
        let last = self.seen.last().context("a stream has an event")?;
        Ok(last["task"].clone())
    }
}

/// Whether a task, or a change of one, asks a question whose id begins so.
pub(super) fn asks(task: &Value, question: &str) -> bool {
    let parts = task.pointer("/status/message/parts").and_then(Value::as_array);
    let mut ids = parts.into_iter().flatten().filter_map(|part| part.pointer("/data/questionId")?.as_str());
    ids.any(|id| id.starts_with(question))
}
