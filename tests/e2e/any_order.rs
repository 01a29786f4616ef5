//! A fuzzer of protocol states: clients that send valid messages of every revision in any order, leave before their
//! answers, answer what nobody asked, and come back with what they were told before.
//!
//! What comes back is judged by the recorder on the wire; here, that every request has an answer of the protocol, and that
//! the platform lives and does not grow. `ASP_FUZZ_SECONDS` says how long, `ASP_FUZZ_SEED` which order: a run prints its own.

mod dice;
mod legacy;
mod modern;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use asp_e2e::http1::{self, Request, Response};
use asp_e2e::stack::Stack;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use self::dice::Dice;
use crate::trial::{Shared, trials};

const TARGET: &str = "/conformance/mcp";
/// How long in `make test`.
const SHORT: Duration = Duration::from_secs(10);
/// The order of `make test`.
const SEED: u64 = 20_260_728;
const CLIENTS: u64 = 8;
/// How long a client waits for more of an answer before it leaves.
const PATIENCE: Duration = Duration::from_millis(300);
/// Most things remembered of each kind.
const MEMORY: usize = 32;
/// What the platform may grow by after the first third, in bytes.
const GROWTH: u64 = 192 << 20;

trials! { any_order:
    valid_messages_in_any_order_get_answers_of_the_protocol,
}

fn setting(name: &str, otherwise: u64) -> Result<u64> {
    match std::env::var(name) {
        Ok(text) => text.parse().with_context(|| format!("{name} is a number")),
        Err(_) => Ok(otherwise),
    }
}

async fn valid_messages_in_any_order_get_answers_of_the_protocol(shared: &Shared) -> Result<()> {
    let stack = shared.plugin_stack().await?;
    let length = Duration::from_secs(setting("ASP_FUZZ_SECONDS", SHORT.as_secs())?);
    let seed = setting("ASP_FUZZ_SEED", SEED)?;
    let began = Instant::now();
    let mut clients = JoinSet::new();
    for number in 0..CLIENTS {
        let client = Client::new(stack, seed.wrapping_add(number));
        clients.spawn(client.run(began + length));
    }
    let warm = async {
        tokio::time::sleep(length / 3).await;
        stack.asp.resident()
    };
    let before = warm.await?;
    let mut steps = 0;
    while let Some(done) = clients.join_next().await {
        match done? {
            Ok(done) => steps += done,
            Err(error) => {
                let workers = workers(stack).await;
                return Err(error.context(format!("ASP_FUZZ_SEED={seed}; workers: {workers}")));
            }
        }
    }
    let grown = stack.asp.resident()?.saturating_sub(before);
    eprintln!("any order: {steps} messages in {} s, seed {seed}, {grown} bytes more", length.as_secs());
    ensure!(grown <= GROWTH, "it has grown by {grown} bytes");
    let answer = http1::get(stack.edge(), "/healthz", &[]).await?;
    ensure!(answer.status == 200, "it does not answer any more: {}", answer.text());
    Ok(())
}

/// What the gateway says of the workers of plugins.
async fn workers(stack: &Stack) -> String {
    match http1::get(stack.gateway(), "/metrics", &[]).await {
        Ok(answer) => {
            let text = answer.text();
            let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("asp_worker")).collect();
            lines.join("\n")
        }
        Err(error) => format!("{error:#}"),
    }
}

/// A client and what it was told.
struct Client {
    edge: std::net::SocketAddr,
    dice: Dice,
    next_id: u64,
    /// Ids of sessions, some of them ended, and their revisions.
    sessions: Vec<(String, &'static str)>,
    /// Questions of the server: the session and the id.
    questions: Vec<(String, Value)>,
    events: Vec<String>,
    cursors: Vec<String>,
    tasks: Vec<String>,
    /// Calls that wait for answers: their parameters, the state and the questions.
    states: Vec<(Value, Value, Value)>,
}

impl Client {
    fn new(stack: &Stack, seed: u64) -> Client {
        Client {
            edge: stack.edge(),
            dice: Dice::new(seed),
            next_id: 1,
            sessions: Vec::new(),
            questions: Vec::new(),
            events: Vec::new(),
            cursors: Vec::new(),
            tasks: Vec::new(),
            states: Vec::new(),
        }
    }

    async fn run(mut self, until: Instant) -> Result<u64> {
        let mut steps = 0;
        while Instant::now() < until {
            if self.dice.one_in(2) {
                self.legacy_step().await?
            } else {
                self.modern_step().await?
            }
            steps += 1;
        }
        Ok(steps)
    }

    /// No id is used again: in a session none may be (MCP, base protocol), and whoever reads the wire could not tell an
    /// answer that comes late from that of another request.
    fn id(&mut self) -> Value {
        self.next_id += 1;
        match self.dice.below(2) {
            0 => json!(format!("id-{}", self.next_id)),
            _ => json!(self.next_id),
        }
    }

    /// A tool and its arguments.
    fn call(&mut self) -> Value {
        let calls = [
            json!({"name": "echo", "arguments": {"message": "hi"}}),
            json!({"name": "count", "arguments": {"to": 3, "delayMs": 20}}),
            json!({"name": "count", "arguments": {"to": 100, "delayMs": 50}}),
            json!({"name": "test_simple_text"}),
            json!({"name": "test_error_handling"}),
            json!({"name": "test_sampling", "arguments": {"prompt": "?"}}),
            json!({"name": "test_elicitation", "arguments": {"message": "?"}}),
            json!({"name": "test_tool_with_logging"}),
            json!({"name": "confirm_delete", "arguments": {"filename": "a"}}),
            json!({"name": "slow_compute", "arguments": {"seconds": 1}}),
            json!({"name": "nobody_has_this"}),
        ];
        self.dice.of(&calls).clone()
    }

    /// Sends a request and reads what comes within its patience; leaves then.
    async fn exchange(&mut self, request: &Request) -> Result<Option<Response>> {
        let opening = http1::open(self.edge, request, "\r\n\r\n");
        let opened = match request.body.first() {
            // A batch has one answer, which comes when its last call has ended: that may wait for a worker, all of which
            // wait for people.
            Some(b'[') => match tokio::time::timeout(PATIENCE, opening).await {
                Ok(opened) => opened,
                Err(_) => return Ok(None),
            },
            _ => opening.await,
        };
        let opened = opened.with_context(|| String::from_utf8_lossy(&request.body).into_owned())?;
        let (text, whole) = opened.within(PATIENCE).await?;
        self.learn(&text, request);
        let status = text.split(' ').nth(1).and_then(|code| code.parse::<u16>().ok()).unwrap_or_default();
        // A stream that has ended tells its client not to come back (WHATWG HTML, server-sent events).
        let has_ended = status == 204 && request.method == "GET";
        ensure!(
            has_ended || matches!(status, 200 | 202 | 400 | 403 | 404 | 405 | 406 | 409 | 429),
            "{status} to {} {}: {text}",
            request.method,
            String::from_utf8_lossy(&request.body)
        );
        Ok(whole)
    }

    /// What may be said again later.
    fn learn(&mut self, text: &str, request: &Request) {
        let session = request.headers.iter().find(|(name, _)| name == "mcp-session-id");
        let session = session.map(|(_, id)| String::from_utf8_lossy(id).into_owned()).unwrap_or_default();
        for line in text.lines() {
            if let Some(id) = line.strip_prefix("id:") {
                remember(&mut self.events, id.trim().to_owned());
            }
            let data = line.strip_prefix("data: ").unwrap_or(line);
            let Ok(message) = serde_json::from_str::<Value>(data) else { continue };
            if message.get("method").is_some()
                && let Some(id) = message.get("id")
            {
                remember(&mut self.questions, (session.clone(), id.clone()));
            }
            let result = &message["result"];
            if let Some(cursor) = result["nextCursor"].as_str() {
                remember(&mut self.cursors, cursor.to_owned());
            }
            if let Some(task) = result["taskId"].as_str() {
                remember(&mut self.tasks, task.to_owned());
            }
            if result.get("requestState").is_some() {
                let sent: Value = serde_json::from_slice(&request.body).unwrap_or_default();
                let state =
                    (sent["params"].clone(), result["requestState"].clone(), result["inputRequests"].clone());
                remember(&mut self.states, state);
            }
        }
    }
}

/// The oldest is forgotten.
fn remember<T>(memory: &mut Vec<T>, one: T) {
    if memory.len() >= MEMORY {
        memory.remove(0);
    }
    memory.push(one);
}

/// Something to answer a question with, whatever it asks.
fn some_answer(method: &str) -> Value {
    match method {
        "sampling/createMessage" => {
            json!({"role": "assistant", "model": "m", "content": {"type": "text", "text": "x"}})
        }
        "roots/list" => json!({"roots": []}),
        _ => json!({"action": "decline"}),
    }
}
