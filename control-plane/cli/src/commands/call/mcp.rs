//! A tool over MCP.

use std::sync::Arc;

use anyhow::anyhow;
use asp_command::print;
use asp_json::Json;
use asp_mcp_client::client::downstream::{Downstream, RpcError};
use asp_mcp_client::client::modern::Eras;
use asp_mcp_client::client::proof::Proof;
use asp_mcp_client::client::{Client, ClientFault, ClientParams, Exchange, ServerEvent};
use asp_mcp_client::listing;
use async_trait::async_trait;
use reqwest::StatusCode;
use serde_json::{Map, Value, json};
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use super::super::known::suggest;
use super::CallTarget;
use super::question::{self, QuestionReply};
use super::result::{CallResult, Piece};

const ELICIT: &str = "elicitation/create";

/// Calls the tool; ends once the server has accepted a cancel.
pub(super) async fn call(
    target: &CallTarget,
    arguments: Json,
    stopped: &CancellationToken,
) -> anyhow::Result<CallResult> {
    let client = client(target);
    let session = client.initialize(abilities()).await.map_err(|fault| explain(target, fault))?;
    let base = client.alone("tools/call", Value::Null);
    let exchange = Exchange {
        params: json!({"name": target.name, "_meta": {"progressToken": base.id}}),
        sent: ClientParams { arguments: Some(arguments), ..ClientParams::default() },
        downstream: Arc::new(Person::default()),
        cancelled: stopped.clone(),
        ..base
    };
    let called = client.request(&session, exchange).await;
    let mut hint = String::new();
    if matches!(called, Err(ClientFault::Error { .. }))
        && let Ok(lists) = listing::list(&client, &session).await
    {
        hint = suggest_tool(&target.name, &lists.tools);
    }
    // The session is ended at its server before this process exits.
    drop(session);
    client.tasks.drained().await;
    let result = called.map_err(|fault| anyhow!("{}{hint}", explain(target, fault)))?;
    let is_error = result.get("isError").and_then(Value::as_bool).unwrap_or_default();
    Ok(CallResult { pieces: pieces(&result), is_error, whole: result.sent.clone() })
}

/// Returns the end of a refusal of a name that is not among the tools; empty if it is.
fn suggest_tool(name: &str, tools: &[Value]) -> String {
    let names: Vec<&str> = tools.iter().filter_map(|tool| tool.get("name")?.as_str()).collect();
    if names.contains(&name) { String::new() } else { suggest(name, &names) }
}

/// Lists the tools that the caller sees.
pub(in crate::commands) async fn tools(target: &CallTarget) -> anyhow::Result<Vec<Value>> {
    let client = client(target);
    let session = client.initialize(abilities()).await.map_err(|fault| explain(target, fault))?;
    let listed = listing::list(&client, &session).await;
    drop(session);
    client.tasks.drained().await;
    Ok(listed.map_err(|fault| explain(target, fault))?.tools)
}

/// Abilities of the person at the terminal, as MCP's client capabilities.
fn abilities() -> Value {
    json!({"elicitation": {"form": {}, "url": {}}})
}

fn client(target: &CallTarget) -> Client {
    Client {
        http: target.http.clone(),
        url: target.url.clone(),
        tasks: Arc::default(),
        eras: Eras::default(),
        proof: Proof::fixed(target.headers.clone()),
    }
}

/// Returns a fault with its remedy, if one is known.
fn explain(target: &CallTarget, fault: ClientFault) -> anyhow::Error {
    let fault = fault.of_request();
    let mut text = format!("{}: {fault}", target.url);
    match &fault {
        ClientFault::Refused { status: StatusCode::UNAUTHORIZED, .. } => {
            text.push_str("; set ASP_TOKEN to a token of a caller");
        }
        ClientFault::NotDelivered => {
            text.push_str(
                "; --url or ASP_EDGE_URL name another address, such as the one that `asp dev` prints",
            );
        }
        ClientFault::Error { visits, .. } => {
            for page in visits {
                text = format!("{text}\n{}: {}", page.message, page.url);
            }
        }
        _ => {}
    }
    anyhow!("{text}")
}

fn pieces(result: &Map<String, Value>) -> Vec<Piece> {
    let blocks = result.get("content").and_then(Value::as_array).into_iter().flatten();
    let structured = result.get("structuredContent").filter(|value| !value.is_null());
    blocks.map(piece).chain(structured.cloned().map(Piece::Data)).collect()
}

/// Returns a content block as a piece.
fn piece(block: &Value) -> Piece {
    let text = |pointer: &str| block.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
    let found = match block.get("type").and_then(Value::as_str) {
        Some("text") => text("/text").map(Piece::Text),
        Some("image" | "audio") => text("/mimeType").map(Piece::File),
        Some("resource_link") => text("/uri").map(Piece::Link),
        Some("resource") => {
            text("/resource/text").map(Piece::Text).or_else(|| text("/resource/uri").map(Piece::File))
        }
        _ => None,
    };
    found.unwrap_or_else(|| Piece::Data(block.clone()))
}

/// The person at the terminal.
#[derive(Default)]
struct Person {
    /// Held while a question is asked: one at a time.
    asking: Mutex<()>,
}

#[async_trait]
impl Downstream for Person {
    fn receive_event(&self, event: ServerEvent) {
        if let Some(line) = line(&event) {
            print::note(&line);
        }
    }

    async fn answer_request(&self, method: &str, params: &Json) -> Result<Json, RpcError> {
        if method != ELICIT {
            return Err(RpcError::unknown_method());
        }
        let _one = self.asking.lock().await;
        let text = |name: &str| params.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let reply = match params.get("mode").and_then(Value::as_str) {
            Some("url") => question::ask_page(text("message"), text("url")).await,
            _ => {
                let schema = params.get("requestedSchema").cloned().unwrap_or_default();
                question::ask_form(text("message"), schema).await
            }
        };
        Ok(match reply {
            QuestionReply::Accepted(content) => json!({"action": "accept", "content": content}).into(),
            QuestionReply::Visited => json!({"action": "accept"}).into(),
            QuestionReply::Declined => json!({"action": "decline"}).into(),
        })
    }
}

/// Returns an event as a line for a person.
fn line(event: &ServerEvent) -> Option<String> {
    match event {
        ServerEvent::Progress { progress, total, message } => Some(match (message, total) {
            (Some(message), _) => message.clone(),
            (None, Some(total)) => format!("{progress} of {total}"),
            (None, None) => progress.to_string(),
        }),
        ServerEvent::Log { level, data, .. } => {
            let text = data.as_str().map_or_else(|| data.to_string(), str::to_owned);
            Some(format!("{}: {text}", level.as_deref().unwrap_or("log")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_name_that_is_not_listed_is_asked_about() {
        let tools = [json!({"name": "echo"}), json!({"name": "count"})];
        assert_eq!(suggest_tool("ecko", &tools), ": did you mean echo?");
        assert_eq!(suggest_tool("echo", &tools), "");
    }

    #[test]
    fn content_is_texts_links_and_files() {
        let result = json!({
            "content": [
                {"type": "text", "text": "one"},
                {"type": "image", "mimeType": "image/png", "data": ""},
                {"type": "resource_link", "uri": "https://a", "name": "a"},
                {"type": "resource", "resource": {"uri": "a:1", "text": "two"}},
                {"type": "resource", "resource": {"uri": "a:2", "blob": ""}},
                {"type": "new"},
            ],
            "structuredContent": {"n": 1},
        });
        let expected = [
            Piece::Text("one".into()),
            Piece::File("image/png".into()),
            Piece::Link("https://a".into()),
            Piece::Text("two".into()),
            Piece::File("a:2".into()),
            Piece::Data(json!({"type": "new"})),
            Piece::Data(json!({"n": 1})),
        ];
        assert_eq!(pieces(result.as_object().unwrap()), expected);
        assert!(pieces(&Map::new()).is_empty());
    }

    #[test]
    fn progress_is_its_message_or_its_numbers() {
        let progress = |message: Option<&str>, total: Option<u64>| {
            line(&ServerEvent::Progress {
                progress: 1u64.into(),
                total: total.map(Json::from),
                message: message.map(str::to_owned),
            })
        };
        assert_eq!(progress(Some("half"), Some(2)).as_deref(), Some("half"));
        assert_eq!(progress(None, Some(2)).as_deref(), Some("1 of 2"));
        assert_eq!(progress(None, None).as_deref(), Some("1"));
        let log = |data: Value| {
            line(&ServerEvent::Log { level: Some("info".into()), logger: None, data: data.into() })
        };
        assert_eq!(log(json!("ready")).as_deref(), Some("info: ready"));
        assert_eq!(log(json!({"a": 1})).as_deref(), Some("info: {\"a\":1}"));
    }
}
