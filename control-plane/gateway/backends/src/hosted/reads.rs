//! Resources and prompts of a service that hosts calls: one request each, repeated while the service fails.

use asp_call::call::content::own_meta;
use asp_call::call::outcome::{Output, Refusal};
use asp_call::execution::Execution;
use asp_call::media_type::MediaType;
use asp_json::{Json, Members, held, unmarked};
use asp_proto::snapshot::Kind;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use reqwest::StatusCode;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::outcome;
use super::service::{Service, ServiceFault, ServiceResponse};
use crate::hosted::polling::Backoff;
use crate::outbound::auth::AuthFault;
use crate::outbound::refused::may_pass;

/// Maximum number of messages in one prompt.
const MAX_MESSAGES: usize = 1024;
/// Media type of a resource if the service states none.
const ANY_TYPE: &str = "application/octet-stream";

/// Reads a resource by `GET {url}/resources/{tool}`, with a template's variables as its query; the body is the
/// resource.
pub(super) async fn resource(service: &Service, execution: &Execution) -> Result<Output, Refusal> {
    let primitive = &execution.call.entry.primitive;
    let mut query = Vec::new();
    if primitive.kind() == Kind::ResourceTemplate {
        let variables = execution.arguments.as_object().into_iter().flatten();
        for (name, value) in variables.filter(|(name, _)| *name != "uri") {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            query.push((name.clone(), text));
        }
    }
    let uri = execution.arguments.get("uri").and_then(Value::as_str).unwrap_or_default();
    let mut backoff = Backoff::default();
    let answer = loop {
        if let Some(answer) = settled(&mut backoff, service.read(&query).await).await? {
            break answer;
        }
    };
    if answer.status == StatusCode::NOT_FOUND {
        return Err(Refusal::UnknownResource { uri: uri.to_owned() });
    }
    if !answer.status.is_success() {
        return outcome::refused(&execution.call, &answer);
    }
    Ok(Output::contents(vec![contents(uri, answer).into()]))
}

/// Gets a prompt by `POST {url}/prompts/{tool}` with the arguments; the body is MCP's `GetPromptResult`.
pub(super) async fn prompt(service: &Service, execution: &Execution) -> Result<Output, Refusal> {
    let mut backoff = Backoff::default();
    let answer = loop {
        if let Some(answer) = settled(&mut backoff, service.prompt(&execution.arguments).await).await? {
            break answer;
        }
    };
    if !answer.status.is_success() {
        return outcome::refused(&execution.call, &answer);
    }
    messages(&answer.body).ok_or_else(|| Refusal::InvalidOutput {
        pointer: String::new(),
        message: "the answer is not an MCP prompt result".into(),
    })
}

/// Returns a final answer; `None` after the pause before another attempt.
async fn settled(
    backoff: &mut Backoff,
    answered: Result<ServiceResponse, ServiceFault>,
) -> Result<Option<ServiceResponse>, Refusal> {
    let (retry_after, why) = match answered {
        Ok(answer) if may_pass(answer.status) => {
            (answer.retry_after, format!("the service answered {}", answer.status.as_u16()))
        }
        Ok(answer) => return Ok(Some(answer)),
        Err(ServiceFault::Paused(refusal) | ServiceFault::Unproved(AuthFault { refusal, .. })) => {
            return Err(refusal);
        }
        Err(ServiceFault::NotDelivered) => (None, "the service could not be reached".into()),
        Err(ServiceFault::Lost(why)) => (None, why.into()),
    };
    match backoff.failed(retry_after) {
        Some(pause) => sleep(pause).await,
        None => return Err(Refusal::Upstream(why)),
    }
    Ok(None)
}

/// Builds MCP resource contents: text if the type and the bytes are text, otherwise base64.
fn contents(uri: &str, answer: ServiceResponse) -> Value {
    let kind = answer.content_type.unwrap_or_else(|| ANY_TYPE.to_owned());
    let media_type = MediaType::parse(&kind);
    match media_type.decode(&answer.body).filter(|_| media_type.is_text()) {
        Some(text) => json!({"uri": uri, "mimeType": kind, "text": text}),
        None => json!({"uri": uri, "mimeType": kind, "blob": STANDARD.encode(&answer.body)}),
    }
}

fn messages(body: &[u8]) -> Option<Output> {
    if held::is_too_much(body) {
        return None;
    }
    let result = Json::parse(unmarked(body)).ok()?;
    let messages = result.member("messages")?.elements()?;
    let fits = |message: &Json| {
        matches!(message.get("role").and_then(Value::as_str), Some("user" | "assistant"))
            && message.get("content").is_some_and(Value::is_object)
    };
    if messages.len() > MAX_MESSAGES || !messages.iter().all(fits) {
        return None;
    }
    let description = result.get("description").and_then(Value::as_str).map(str::to_owned);
    let meta = own_meta(result.member("_meta").as_ref());
    Some(Output::Messages { description, messages, meta, more: Members::default() })
}
