//! The chat completions format: builds its request from a sampling request, and converts its answer into the form of
//! a client's model.
//!
//! Keeps true: an endpoint's answer is read leniently, and only the parts that a plugin gets are kept.

use asp_call::telemetry::metrics::Usage;
use asp_json::{Json, Members};
use asp_snapshot::ListedPrimitive;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::answer::DelegateAnswer;
use super::endpoint::Endpoint;
use crate::delegate::delegation::DelegationFault;

mod messages;
mod tool_calls;

use tool_calls::ToolCall;

/// Maximum length of the name of a `response_format` schema (OpenAI's API reference).
const MAX_SCHEMA_NAME: usize = 64;

/// Builds the body of `POST /chat/completions`. The endpoint's own temperature and token limit take precedence over
/// the delegate's. `None` if a message has another content than texts and the use of tools.
pub(super) fn body(
    endpoint: &Endpoint<'_>,
    sampling: &Map<String, Value>,
    delegate: &ListedPrimitive,
) -> Option<Value> {
    let mut body = Map::new();
    body.insert("model".into(), json!(endpoint.model));
    body.insert("messages".into(), Value::Array(messages::messages(sampling)?));
    let most = endpoint.max_tokens.map(Value::from).or_else(|| sampling.get("maxTokens").cloned());
    let temperature = endpoint.temperature.map(Value::from).or_else(|| sampling.get("temperature").cloned());
    let optional = [
        ("max_tokens", most),
        ("temperature", temperature),
        ("stop", sampling.get("stopSequences").cloned()),
        ("response_format", response_format(endpoint, delegate)),
        ("tools", messages::tools(sampling)),
        ("tool_choice", messages::tool_choice(sampling)),
    ];
    for (name, value) in optional {
        if let Some(value) = value {
            body.insert(name.into(), value);
        }
    }
    Some(Value::Object(body))
}

fn response_format(endpoint: &Endpoint<'_>, delegate: &ListedPrimitive) -> Option<Value> {
    let schema: Value = serde_json::from_str(&delegate.primitive.output_schema).ok()?;
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let name: String = delegate.primitive.id.chars().map(|c| if plain(c) { c } else { '_' }).collect();
    let name: String = name.chars().take(MAX_SCHEMA_NAME).collect();
    endpoint
        .json_schema
        .then(|| json!({"type": "json_schema", "json_schema": {"name": name, "schema": schema}}))
}

#[derive(Deserialize)]
struct Completion {
    #[serde(default)]
    model: String,
    choices: Vec<Choice>,
    #[serde(default)]
    usage: Option<ChatUsage>,
}

#[derive(Deserialize)]
struct Choice {
    message: ChatMessage,
    #[serde(default)]
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct ChatMessage {
    #[serde(default)]
    content: Option<Value>,
    #[serde(default)]
    refusal: Option<String>,
    #[serde(default)]
    tool_calls: Option<Vec<ToolCall>>,
}

#[derive(Deserialize)]
struct ChatUsage {
    #[serde(default)]
    prompt_tokens: u64,
    #[serde(default)]
    completion_tokens: u64,
}

/// Reads an answer. `Refused`: the model, or a filter in front of it, declined; `Unavailable`: the body is not a
/// completion.
pub(super) fn read(body: &[u8]) -> Result<DelegateAnswer, DelegationFault> {
    // serde_json alone rejects half a surrogate pair, which a truncated text may contain.
    let said = asp_json::Json::parse(asp_json::unmarked(body)).map_err(|_| DelegationFault::Unavailable)?;
    let completion: Completion =
        serde_json::from_value(said.view().clone()).map_err(|_| DelegationFault::Unavailable)?;
    let usage = completion
        .usage
        .map(|spent| Usage { tokens_in: spent.prompt_tokens, tokens_out: spent.completion_tokens });
    let choice = completion.choices.into_iter().next().ok_or(DelegationFault::Unavailable)?;
    let filtered = choice.finish_reason.as_deref() == Some("content_filter");
    if filtered || choice.message.refusal.as_ref().is_some_and(|why| !why.is_empty()) {
        return Err(DelegationFault::Refused);
    }
    let mut said = Members::default();
    said.insert("role", "assistant");
    said.insert("content", content(choice.message).ok_or(DelegationFault::Unavailable)?);
    if !completion.model.is_empty() {
        said.insert("model", completion.model);
    }
    if let Some(reason) = choice.finish_reason {
        // Values of MCP's CreateMessageResult.
        let reason = match reason.as_str() {
            "stop" => "endTurn".to_owned(),
            "length" => "maxTokens".to_owned(),
            "tool_calls" => "toolUse".to_owned(),
            _ => reason,
        };
        said.insert("stopReason", reason);
    }
    Ok(DelegateAnswer { said: said.to_json(), usage: usage.unwrap_or_default() })
}

/// Returns the content of a message: a block, or several if it uses tools; `None` if it has none.
fn content(message: ChatMessage) -> Option<Json> {
    let calls = message.tool_calls.unwrap_or_default();
    let text = |text: String| json!({"type": "text", "text": text});
    let texts = match message.content {
        Some(Value::String(words)) if calls.is_empty() => return Some(text(words).into()),
        Some(Value::Array(parts)) => parts,
        Some(Value::String(words)) if !words.is_empty() => vec![text(words)],
        _ if calls.is_empty() => return None,
        _ => Vec::new(),
    };
    let texts = texts.iter().map(Value::to_string);
    let blocks: Vec<String> = texts.chain(calls.into_iter().map(ToolCall::block)).collect();
    Some(Json::part(format!("[{}]", blocks.join(","))))
}

#[cfg(test)]
mod tests {
    use asp_proto::snapshot::{Listing, Primitive};

    use super::super::endpoint::{DefaultEndpoint, Endpoints};
    use super::*;

    #[test]
    fn half_a_surrogate_pair_in_an_answer_loses_nothing_else() {
        let answered = read(br#"{"choices":[{"message":{"content":"cut \ud83d"}}]}"#).unwrap();
        assert_eq!(answered.said["content"]["text"], "cut \u{fffd}");
    }

    fn endpoints(json_schema: bool) -> Endpoints {
        let default = DefaultEndpoint {
            url: "http://127.0.0.1:1/v1".into(),
            model: "small".into(),
            key: None,
            json_schema,
            primitives: vec!["*".into()],
        };
        Endpoints { default: Some(default), ..Endpoints::default() }
    }

    fn delegate() -> ListedPrimitive {
        let primitive = Primitive {
            id: "acme.label".into(),
            output_schema: r#"{"type":"object"}"#.into(),
            ..Primitive::default()
        };
        ListedPrimitive::build(&primitive, &Listing::default()).unwrap()
    }

    #[test]
    fn a_sampling_request_becomes_a_chat() {
        let sampling = json!({
            "systemPrompt": "Be brief.", "maxTokens": 64, "temperature": 0.5, "stopSequences": ["END"],
            "modelPreferences": {"hints": [{"name": "big"}]},
            "messages": [{"role": "user", "content": {"type": "text", "text": "hello"}}]});
        let endpoints = endpoints(true);
        let by = asp_outbound::Requester { server: "demo", primitive: "ask" };
        let endpoint = endpoints.of(None, by).unwrap();
        let expected = json!({
            "model": "small", "max_tokens": 64, "temperature": 0.5, "stop": ["END"],
            "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hello"}],
            "response_format": {"type": "json_schema",
                                "json_schema": {"name": "acme_label", "schema": {"type": "object"}}}});
        assert_eq!(body(&endpoint, sampling.as_object().unwrap(), &delegate()), Some(expected));
        let own = Endpoint { max_tokens: Some(8), temperature: Some(0.0), json_schema: false, ..endpoint };
        let body = body(&own, sampling.as_object().unwrap(), &delegate()).unwrap();
        assert_eq!((&body["max_tokens"], &body["temperature"]), (&json!(8), &json!(0.0)));
        assert_eq!(body.get("response_format"), None);
    }

    #[test]
    fn a_completion_is_what_a_clients_model_would_say() {
        let body = json!({
            "id": "x", "model": "small-1", "choices": [
                {"index": 0, "finish_reason": "length", "message": {"role": "assistant", "content": "[1"}}],
            "usage": {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9}});
        let answered = read(body.to_string().as_bytes()).unwrap();
        assert_eq!(
            answered.said,
            json!({"role": "assistant", "model": "small-1", "stopReason": "maxTokens",
                   "content": {"type": "text", "text": "[1"}})
        );
        assert_eq!(answered.usage, Usage { tokens_in: 7, tokens_out: 2 });
    }

    #[test]
    fn a_completion_that_uses_tools_has_their_blocks() {
        let arguments = r#"{"n": 340282366920938463463374607431768211455}"#;
        let call = |id: &str, arguments: Value| json!({"id": id, "type": "function", "function": {"name": "add", "arguments": arguments}});
        let calls = json!([call("a", arguments.into()), call("b", "".into()), call("c", json!({"n": 1}))]);
        let completion = |content: Value| {
            let message = json!({"role": "assistant", "content": content, "tool_calls": calls});
            json!({"choices": [{"finish_reason": "tool_calls", "message": message}],
                   "usage": {"prompt_tokens": 7, "completion_tokens": 2}})
        };
        let answered = read(completion(Value::Null).to_string().as_bytes()).unwrap();
        assert_eq!(answered.said["stopReason"], "toolUse");
        let blocks = answered.said.member("content").unwrap().elements().unwrap();
        let input = |at: usize| blocks[at].member("input").unwrap();
        assert_eq!(input(0).text(), arguments);
        assert_eq!((input(1), input(2)), (json!({}).into(), json!({"n": 1}).into()));
        assert_eq!(blocks[0]["type"], "tool_use");
        assert_eq!((&blocks[0]["id"], &blocks[0]["name"]), (&json!("a"), &json!("add")));
        let answered = read(completion("Let me add.".into()).to_string().as_bytes()).unwrap();
        assert_eq!(answered.said["content"][0], json!({"type": "text", "text": "Let me add."}));
        assert_eq!(answered.said["content"].as_array().unwrap().len(), 4);
        assert_eq!(answered.usage, Usage { tokens_in: 7, tokens_out: 2 });
    }

    #[test]
    fn what_is_no_completion_is_no_answer() {
        let message = |message: Value| json!({"choices": [{"message": message}]}).to_string();
        let rows = [
            ("".to_owned(), DelegationFault::Unavailable),
            ("{".to_owned(), DelegationFault::Unavailable),
            ("[]".to_owned(), DelegationFault::Unavailable),
            ("{\"choices\": []}".to_owned(), DelegationFault::Unavailable),
            ("{\"choices\": {}}".to_owned(), DelegationFault::Unavailable),
            ("{\"error\": {\"message\": \"no\"}}".to_owned(), DelegationFault::Unavailable),
            (message(json!({"content": null})), DelegationFault::Unavailable),
            (message(json!({"content": 7})), DelegationFault::Unavailable),
            (message(json!({"content": null, "refusal": "I will not"})), DelegationFault::Refused),
            (
                json!({"choices": [{"finish_reason": "content_filter", "message": {"content": ""}}]})
                    .to_string(),
                DelegationFault::Refused,
            ),
        ];
        for (body, fault) in rows {
            assert_eq!(read(body.as_bytes()).err(), Some(fault), "{body}");
        }
    }
}
