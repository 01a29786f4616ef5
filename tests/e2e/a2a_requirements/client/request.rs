//! Requests of A2A 1.0 over JSON-RPC and REST, by hand: their form is what the tests are about. Parameters and headers are
//! those of gRPC too.

use anyhow::{Context, Result, bail};
use asp_e2e::http1::Request;
use serde_json::{Map, Value, json};

use super::super::table::{Binding, Operation, Step};

/// Path of the agent's JSON-RPC endpoint; REST is below it.
const BASE: &str = "/a2a-conformance/a2a";
const CARD: &str = "/a2a-conformance/.well-known/agent-card.json";
/// Id of every JSON-RPC request.
pub(super) const ID: &str = "1";

/// Puts saved values in the place of their names.
type Fill<'f> = &'f dyn Fn(&Value) -> Value;

/// Builds the request of a step.
pub(super) fn build(binding: Binding, step: &Step, token: Option<&str>, fill: Fill<'_>) -> Result<Request> {
    let (method, target, body) = match (step.operation, binding) {
        (Operation::Card, _) => ("GET".to_owned(), CARD.to_owned(), Vec::new()),
        (Operation::Http, _) => raw(step, fill),
        (Operation::Rpc, _) => {
            let method = step.method.as_deref().context("a method")?;
            ("POST".into(), BASE.into(), envelope(method, params(step, fill)))
        }
        (operation, Binding::JsonRpc) => {
            ("POST".into(), BASE.into(), envelope(rpc_method(operation)?, params(step, fill)))
        }
        (operation, Binding::Rest) => rest(operation, params(step, fill))?,
        (operation, Binding::Grpc) => bail!("{operation:?} is not HTTP/1.1 over gRPC"),
    };
    let media_type = (!body.is_empty()).then_some("application/json");
    let mut headers = headers(step, token, media_type);
    if !step.headers.contains_key("accept") {
        headers.push(("accept".into(), "application/json, text/event-stream".into()));
    }
    let headers = headers.into_iter().map(|(name, value)| (name, value.into_bytes())).collect();
    Ok(Request { method, target, headers, body })
}

/// Returns the headers of a step over any binding.
pub(super) fn headers(step: &Step, token: Option<&str>, media_type: Option<&str>) -> Vec<(String, String)> {
    let mut headers = vec![("a2a-version".to_owned(), "1.0".to_owned())];
    headers.extend(token.map(|token| ("authorization".into(), format!("Bearer {token}"))));
    headers.extend(media_type.map(|media_type| ("content-type".into(), media_type.into())));
    for (name, value) in &step.headers {
        headers.retain(|(existing, _)| existing != name);
        headers.extend(value.clone().map(|value| (name.clone(), value)));
    }
    headers
}

fn raw(step: &Step, fill: Fill<'_>) -> (String, String, Vec<u8>) {
    let body = match (&step.text, &step.body) {
        (Some(text), _) => text.clone().into_bytes(),
        (None, Some(body)) => fill(body).to_string().into_bytes(),
        (None, None) => Vec::new(),
    };
    let path = fill(&json!(step.path));
    let target = format!("{BASE}{}", path.as_str().unwrap_or_default());
    (step.method.clone().unwrap_or_else(|| "POST".into()), target, body)
}

fn envelope(method: &str, params: Value) -> Vec<u8> {
    json!({"jsonrpc": "2.0", "id": ID, "method": method, "params": params}).to_string().into_bytes()
}

/// Returns the name of an operation's method, which gRPC has too.
pub(super) fn rpc_method(operation: Operation) -> Result<&'static str> {
    Ok(match operation {
        Operation::Send => "SendMessage",
        Operation::Stream => "SendStreamingMessage",
        Operation::Get => "GetTask",
        Operation::List => "ListTasks",
        Operation::Cancel => "CancelTask",
        Operation::Subscribe => "SubscribeToTask",
        Operation::PushCreate => "CreateTaskPushNotificationConfig",
        Operation::PushGet => "GetTaskPushNotificationConfig",
        Operation::PushList => "ListTaskPushNotificationConfigs",
        Operation::PushDelete => "DeleteTaskPushNotificationConfig",
        Operation::Extended => "GetExtendedAgentCard",
        Operation::Card | Operation::Rpc | Operation::Http => bail!("{operation:?} is no method"),
    })
}

/// Returns the parameters of a step: its own, or those of its message.
pub(super) fn params(step: &Step, fill: Fill<'_>) -> Value {
    if let Some(params) = &step.params {
        return fill(params);
    }
    if !matches!(step.operation, Operation::Send | Operation::Stream) {
        return json!({});
    }
    let unique = format!("{:016x}", rand::random::<u64>());
    let message_id = if step.prefix.is_empty() { unique } else { format!("{}-{unique}", step.prefix) };
    let text = step.text.as_deref().unwrap_or_default();
    let parts = step.parts.clone().unwrap_or_else(|| json!([{"text": text}]));
    let mut message = json!({"messageId": message_id, "role": "ROLE_USER", "parts": parts});
    for (name, value) in [("taskId", &step.task), ("contextId", &step.context)] {
        if let Some(value) = value {
            message[name] = fill(value);
        }
    }
    for (name, value) in &step.message {
        message[name.as_str()] = value.clone();
    }
    if let Some(members) = message.as_object_mut() {
        members.retain(|_, value| !value.is_null());
    }
    let mut params = Map::from_iter([("message".to_owned(), message)]);
    params.extend(step.config.clone().map(|config| ("configuration".to_owned(), config)));
    params.extend(step.extra.clone());
    Value::Object(params)
}

/// Returns method, target and body of an operation over REST.
fn rest(operation: Operation, mut params: Value) -> Result<(String, String, Vec<u8>)> {
    let mut take = |name: &str| {
        let taken = params.as_object_mut().and_then(|params| params.remove(name));
        taken.as_ref().and_then(Value::as_str).map(encoded).unwrap_or_default()
    };
    let (method, path, has_body) = match operation {
        Operation::Send => ("POST", "/message:send".to_owned(), true),
        Operation::Stream => ("POST", "/message:stream".to_owned(), true),
        Operation::Get => ("GET", format!("/tasks/{}", take("id")), false),
        Operation::List => ("GET", "/tasks".to_owned(), false),
        Operation::Cancel => ("POST", format!("/tasks/{}:cancel", take("id")), true),
        Operation::Subscribe => ("POST", format!("/tasks/{}:subscribe", take("id")), true),
        Operation::PushCreate => ("POST", format!("/tasks/{}/pushNotificationConfigs", take("taskId")), true),
        Operation::PushList => ("GET", format!("/tasks/{}/pushNotificationConfigs", take("taskId")), false),
        Operation::PushGet | Operation::PushDelete => {
            let path = format!("/tasks/{}/pushNotificationConfigs/{}", take("taskId"), take("id"));
            (if operation == Operation::PushGet { "GET" } else { "DELETE" }, path, false)
        }
        Operation::Extended => ("GET", "/extendedAgentCard".to_owned(), false),
        Operation::Card | Operation::Rpc | Operation::Http => bail!("{operation:?} is no operation"),
    };
    let query = if has_body { String::new() } else { query(&params) };
    let body = if has_body { params.to_string().into_bytes() } else { Vec::new() };
    Ok((method.into(), format!("{BASE}{path}{query}"), body))
}

fn query(params: &Value) -> String {
    let pairs = params.as_object().into_iter().flatten().map(|(name, value)| {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        format!("{name}={}", encoded(&text))
    });
    let pairs: Vec<String> = pairs.collect();
    if pairs.is_empty() { String::new() } else { format!("?{}", pairs.join("&")) }
}

fn encoded(text: &str) -> String {
    let byte = |byte: u8| match byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(byte).collect()
}
