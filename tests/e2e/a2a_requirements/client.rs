//! A client of any of the bindings: it makes requests of the tables' steps and reads the answers.

mod grpc;
mod request;

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use asp_e2e::http1::{self, Opened, Request, Response};
use asp_e2e::stack::Stack;
use asp_e2e::wait;
use serde_json::{Value, json};

use super::matching;
use super::table::{Binding, Events, Expectation, Operation, Sender, Step};

/// Hang guard of a step that waits for a state.
const PATIENCE: Duration = wait::CONVERGE;

/// An error as A2A 1.0.1 maps it (section 5.4); those of JSON-RPC have no reason.
struct ExpectedError {
    name: &'static str,
    code: i64,
    http: u16,
    status: &'static str,
    reason: Option<&'static str>,
}

const fn error(
    name: &'static str,
    (code, http, status): (i64, u16, &'static str),
    reason: Option<&'static str>,
) -> ExpectedError {
    ExpectedError { name, code, http, status, reason }
}

const ERRORS: [ExpectedError; 7] = [
    error("InvalidParams", (-32602, 400, "INVALID_ARGUMENT"), None),
    error("TaskNotFound", (-32001, 404, "NOT_FOUND"), Some("TASK_NOT_FOUND")),
    error("TaskNotCancelable", (-32002, 400, "FAILED_PRECONDITION"), Some("TASK_NOT_CANCELABLE")),
    error(
        "PushNotificationNotSupported",
        (-32003, 400, "FAILED_PRECONDITION"),
        Some("PUSH_NOTIFICATION_NOT_SUPPORTED"),
    ),
    error("UnsupportedOperation", (-32004, 400, "FAILED_PRECONDITION"), Some("UNSUPPORTED_OPERATION")),
    error("ContentTypeNotSupported", (-32005, 400, "INVALID_ARGUMENT"), Some("CONTENT_TYPE_NOT_SUPPORTED")),
    error("VersionNotSupported", (-32009, 400, "FAILED_PRECONDITION"), Some("VERSION_NOT_SUPPORTED")),
];

/// Requests of one row over one binding, with the values that it has saved.
pub(super) struct Conversation<'a> {
    stack: &'a Stack,
    pub(super) binding: Binding,
    alice: String,
    values: BTreeMap<String, Value>,
}

/// An answer, without what the binding puts around it.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) response: Response,
    /// The result; null with a stream or an error.
    pub(super) result: Value,
    /// The error object of the binding.
    pub(super) error: Option<Value>,
    pub(super) events: Vec<Value>,
}

impl<'a> Conversation<'a> {
    pub(super) async fn begin(stack: &'a Stack, binding: Binding) -> Result<Conversation<'a>> {
        let unique = format!("{:032x}", rand::random::<u128>());
        // A user of its own, whose list of tasks has no others.
        let user = format!("alice-{unique}");
        let alice = stack.token(&["--org", "acme", "--user", &user]).await?;
        let values = BTreeMap::from([("unique".to_owned(), json!(unique))]);
        Ok(Conversation { stack, binding, alice, values })
    }

    /// Returns the same user's requests over another binding.
    pub(super) fn over(&self, binding: Binding) -> Conversation<'a> {
        let (alice, values) = (self.alice.clone(), self.values.clone());
        Conversation { stack: self.stack, binding, alice, values }
    }

    /// Sends a step, until its answer fits if the step says so, and checks the answer.
    pub(super) async fn take(&mut self, step: &Step) -> Result<()> {
        let reply = match step.until.is_empty() {
            true => self.send(step).await?,
            false => {
                let conversation = &*self;
                let poll = || async {
                    let reply = conversation.send(step).await.ok()?;
                    matching::fits(&reply.result, &step.until).then_some(reply)
                };
                wait::until("the state of a task", PATIENCE, poll).await?
            }
        };
        self.check(step, &reply)
            .with_context(|| format!("status {}: {}", reply.response.status, reply.response.text()))?;
        let source = reply.error.as_ref().unwrap_or(&reply.result);
        for (name, path) in &step.save {
            let found = matching::find(source, path).with_context(|| format!("no {path} in {source}"))?;
            self.values.insert(name.clone(), found.clone());
        }
        Ok(())
    }

    /// Sends a step and returns its answer, whatever it says.
    pub(super) async fn send(&self, step: &Step) -> Result<Reply> {
        if self.binding == Binding::Grpc && step.operation != Operation::Card {
            let method = request::rpc_method(step.operation)?;
            let params = request::params(step, &|value: &Value| self.fill(value));
            let headers = request::headers(step, self.token(step).await?.as_deref(), Some(grpc::MEDIA_TYPE));
            return grpc::send(self.stack.edge(), method, &params, &headers).await;
        }
        let response = http1::send(self.stack.edge(), &self.request(step).await?).await?;
        self.read(step.operation, response)
    }

    /// Sends a step and returns its answer while that is still being sent, once `wanted` has come.
    pub(super) async fn open(&self, step: &Step, wanted: &str) -> Result<Opened> {
        http1::open(self.stack.edge(), &self.request(step).await?, wanted).await
    }

    async fn request(&self, step: &Step) -> Result<Request> {
        let token = self.token(step).await?;
        request::build(self.binding, step, token.as_deref(), &|value: &Value| self.fill(value))
    }

    async fn token(&self, step: &Step) -> Result<Option<String>> {
        Ok(match step.token {
            Sender::Alice => Some(self.alice.clone()),
            Sender::Bob => Some(self.stack.token(&["--org", "acme", "--user", "bob"]).await?),
            Sender::Other => Some(self.stack.token(&["--org", "globex", "--user", "alice"]).await?),
            Sender::Wrong => Some("not-a-token".to_owned()),
            Sender::None => None,
        })
    }

    /// Puts saved values in the place of their names: a text that is a name becomes the value, within a text it
    /// becomes its text.
    fn fill(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => {
                let saved = text.strip_prefix('$').and_then(|name| self.values.get(name));
                saved.cloned().unwrap_or_else(|| {
                    // Longer names come first: one may begin with another.
                    let values = self.values.iter().rev();
                    let named =
                        values.filter_map(|(name, value)| Some((format!("${name}"), value.as_str()?)));
                    named.fold(text.clone(), |text, (name, value)| text.replace(&name, value)).into()
                })
            }
            Value::Array(items) => items.iter().map(|item| self.fill(item)).collect(),
            Value::Object(members) => {
                members.iter().map(|(name, value)| (name.clone(), self.fill(value))).collect()
            }
            _ => value.clone(),
        }
    }

    /// Reads an answer. JSON-RPC's envelope is checked on the way, also of each event.
    pub(super) fn read(&self, operation: Operation, response: Response) -> Result<Reply> {
        let mut reply = Reply { result: Value::Null, error: None, events: Vec::new(), response };
        let is_rpc = self.binding == Binding::JsonRpc && operation != Operation::Card;
        let kind = reply.response.header("content-type").unwrap_or_default();
        if kind.starts_with("text/event-stream") {
            let text = reply.response.text();
            for data in text.lines().filter_map(|line| line.strip_prefix("data:")).map(str::trim) {
                let event: Value = serde_json::from_str(data).with_context(|| data.to_owned())?;
                match is_rpc {
                    true => take_envelope(event, &mut reply.error)?
                        .into_iter()
                        .for_each(|event| reply.events.push(event)),
                    false => reply.events.push(event),
                }
            }
            return Ok(reply);
        }
        let is_raw = matches!(operation, Operation::Rpc | Operation::Http);
        let is_json = kind.contains("json");
        let body = if is_json { serde_json::from_slice(&reply.response.body)? } else { Value::Null };
        // Refusals of the edge have no envelope: their status says all.
        if is_raw || (is_rpc && reply.response.status != 200) {
            reply.result = body;
        } else if is_rpc {
            reply.result = take_envelope(body, &mut reply.error)?.unwrap_or_default();
        } else if reply.response.status >= 400 {
            reply.error = Some(body.get("error").cloned().unwrap_or(body));
        } else {
            reply.result = body;
        }
        Ok(reply)
    }

    fn check(&self, step: &Step, reply: &Reply) -> Result<()> {
        let status = reply.response.status;
        let filled = |expected: &Expectation| -> Expectation {
            expected.iter().map(|(path, matcher)| (path.clone(), self.fill(matcher))).collect()
        };
        match (step.status, step.error.as_deref()) {
            (Some(wanted), _) => ensure!(status == wanted, "the status is not {wanted}"),
            (None, Some(name)) => self.check_error(name, reply)?,
            (None, None) if matches!(step.operation, Operation::Rpc | Operation::Http) => {}
            (None, None) => ensure!(status == 200 && reply.error.is_none(), "it failed"),
        }
        matching::check(reply.error.as_ref().unwrap_or(&reply.result), &filled(&step.expect))?;
        for (name, matcher) in &step.head {
            let found = json!({"value": reply.response.header(name)});
            matching::check(&found, &Expectation::from([("value".to_owned(), matcher.clone())]))
                .context(name.clone())?;
        }
        if let Some(text) = &step.wire {
            ensure!(reply.response.text().contains(text), "{text:?} is not in it as it was sent");
        }
        step.events.as_ref().map_or(Ok(()), |events| check_events(events, reply, &filled))
    }

    fn check_error(&self, name: &str, reply: &Reply) -> Result<()> {
        let found = reply.error.as_ref().context("it did not fail")?;
        ensure!(found["message"].as_str().is_some_and(|text| !text.is_empty()), "no message");
        if name == "any" {
            return Ok(());
        }
        let wanted = ERRORS
            .iter()
            .find(|error| error.name == name)
            .with_context(|| format!("no error is called {name}"))?;
        let (code, http, details) = match self.binding {
            Binding::JsonRpc => (wanted.code, 200, "data"),
            Binding::Rest => (i64::from(wanted.http), wanted.http, "details"),
            Binding::Grpc => (i64::try_from(grpc::code(wanted.status)?)?, 200, "details"),
        };
        ensure!(found["code"] == code && reply.response.status == http, "the error is not {name}");
        if self.binding != Binding::JsonRpc {
            ensure!(found["status"] == wanted.status, "the status is not {}", wanted.status);
        }
        let Some(reason) = wanted.reason else { return Ok(()) };
        let details = found[details].as_array().context("the error has no list of details")?;
        let is_named = |detail: &Value| {
            let kind = detail["@type"].as_str().unwrap_or_default();
            kind.ends_with("google.rpc.ErrorInfo")
                && detail["reason"] == reason
                && detail["domain"] == "a2a-protocol.org"
        };
        ensure!(details.iter().any(is_named), "no ErrorInfo says {reason}");
        Ok(())
    }
}

/// Takes the result out of JSON-RPC's envelope, or puts its error into `error`.
fn take_envelope(mut message: Value, error: &mut Option<Value>) -> Result<Option<Value>> {
    // An answer to a request that could not be read has the id null.
    let is_answer = message["jsonrpc"] == "2.0" && (message["id"] == request::ID || message["id"].is_null());
    let (has_result, has_error) = (message.get("result").is_some(), message.get("error").is_some());
    ensure!(is_answer && has_result != has_error, "no answer of JSON-RPC: {message}");
    if has_error {
        *error = Some(message["error"].take());
        return Ok(None);
    }
    Ok(Some(message["result"].take()))
}

fn check_events(
    expected: &Events,
    reply: &Reply,
    filled: &dyn Fn(&Expectation) -> Expectation,
) -> Result<()> {
    let events = &reply.events;
    let kind = reply.response.header("content-type").unwrap_or_default();
    // Whether a method of gRPC is one that streams is in its definition.
    ensure!(kind.starts_with("text/event-stream") || kind == grpc::MEDIA_TYPE, "no stream of events");
    let count = expected.count.unwrap_or(events.len());
    ensure!(events.len() >= expected.min.max(1) && events.len() == count, "{} events", events.len());
    let (Some(first), Some(last)) = (events.first(), events.last()) else { bail!("no event") };
    matching::check(first, &filled(&expected.first)).context("the first event")?;
    matching::check(last, &filled(&expected.last)).context("the last event")?;
    let some = filled(&expected.some);
    ensure!(events.iter().any(|event| matching::fits(event, &some)), "no event fits {some:?}");
    let each = filled(&expected.each);
    events.iter().try_for_each(|event| matching::check(event, &each)).context("an event")?;
    if expected.states {
        matching::check_states(events)?;
    }
    Ok(())
}
