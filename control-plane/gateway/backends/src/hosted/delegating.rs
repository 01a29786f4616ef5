//! Model calls that a service asks for, as delegations.
//!
//! Owns: the sampling request. Refuses: parameters of the service beyond a closed list.

use asp_call::call::question::input_timeout;
use asp_call::call::sampling::needs_tools;
use asp_call::execution::Execution;
use asp_json::Json;
use asp_snapshot::Dependency;
use serde_json::{Map, Value, json};

use crate::conversation::sampling::read_messages;
use crate::delegate::Delegates;
use crate::delegate::answer::parsed;
use crate::delegate::conversation;
use crate::delegate::delegation::{Delegation, DelegationFault};
use crate::delegate::pending::{DEFAULT_TOKENS, PendingDelegation};
use crate::delegate::record;

/// Parameters that a service may set for a model call if the spec does not; nothing else of its request is used.
const OPEN_PARAMS: [&str; 5] =
    ["systemPrompt", "maxTokens", "temperature", "stopSequences", "modelPreferences"];

/// One model call of a service.
pub(super) struct ModelCall<'a> {
    pub execution: &'a Execution,
    pub delegates: &'a Delegates,
    pub delegate: &'a Dependency,
    /// The delegate's id.
    pub id: &'a str,
    /// The question's id, unique within the call.
    pub question: String,
    /// The parameters of the service's sampling request.
    pub params: &'a Map<String, Value>,
}

/// Asks the model; returns its answer, an MCP `CreateMessageResult`.
pub(super) async fn sample(asking: ModelCall<'_>) -> Result<Json, DelegationFault> {
    let ModelCall { execution, delegates, id, .. } = asking;
    match begin(asking) {
        Ok(pending) => pending.answered(delegates).await.map(|answer| answer.said),
        Err(fault) => {
            record::unasked(execution.platform.as_ref(), &execution.call, id, &fault).await;
            Err(fault)
        }
    }
}

fn begin(asking: ModelCall<'_>) -> Result<PendingDelegation, DelegationFault> {
    let ModelCall { execution, delegates, delegate, id, question, params } = asking;
    if delegate.entry.primitive.asks_roots {
        // A service may only ask for a model.
        return Err(DelegationFault::Undeclared);
    }
    let sampling = sampling(delegate, params).ok_or(DelegationFault::InvalidInput)?;
    let delegation = Delegation {
        id: id.to_owned(),
        correlation: question.clone(),
        input: input(&sampling),
        // A service always sends messages; only with tools are they a conversation.
        is_conversation: needs_tools(&sampling),
        sampling,
        ..Delegation::of(execution, input_timeout(&execution.call.entry.primitive))
    };
    PendingDelegation::begin(delegates, delegation, || question)
}

/// Builds the request from the service's messages and the spec's constants; the service may set values that the spec
/// does not define.
fn sampling(delegate: &Dependency, params: &Map<String, Value>) -> Option<Map<String, Value>> {
    let messages = read_messages(params.get("messages"))?;
    let mut request = delegate.question.clone();
    request.insert("messages".into(), Value::Array(messages.to_vec()));
    for name in OPEN_PARAMS {
        if let (None, Some(value)) = (request.get(name), params.get(name)) {
            request.insert(name.into(), value.clone());
        }
    }
    if delegate.entry.primitive.sampling_tools {
        let given = ["messages", "tools", "toolChoice"]
            .map(|name| Some((name.to_owned(), params.get(name)?.clone())));
        request.extend(conversation::read(&Value::Object(given.into_iter().flatten().collect()))?);
    }
    request.entry("maxTokens").or_insert(json!(DEFAULT_TOKENS));
    Some(request)
}

/// Returns the input for a primitive that answers: the text of the last message, parsed as JSON if it is, otherwise
/// as a text.
fn input(sampling: &Map<String, Value>) -> Json {
    let last = sampling.get("messages").and_then(Value::as_array).and_then(|messages| messages.last());
    let text = last.and_then(|message| message.pointer("/content/text")).and_then(Value::as_str);
    let text = text.unwrap_or_default();
    parsed(text).unwrap_or_else(|| text.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_primitive_gets_the_last_message_as_the_json_it_is() {
        let said = |text: &str| {
            let message = json!({"role": "user", "content": {"type": "text", "text": text}});
            json!({"messages": [{"role": "user", "content": {}}, message]}).as_object().unwrap().clone()
        };
        assert_eq!(input(&said(r#"{"n": 1}"#)), json!({"n": 1}));
        assert_eq!(input(&said("label this")), json!("label this"));
        assert_eq!(input(&Map::new()), json!(""));
    }
}
