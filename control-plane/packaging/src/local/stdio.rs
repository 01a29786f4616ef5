//! Stdio MCP servers in a local runtime, which carries their lines: a tool call, the lists, and what they send.

use std::time::{Duration, SystemTime};

use anyhow::bail;
use asp_mcp_client::client::{ClientFault, ServerEvent};
use asp_mcp_client::lines::{self, LineEvent};
use asp_mcp_client::listing::{Lister, Lists};
use asp_mcp_client::message::UpstreamObject;
use asp_proto::plugin::log_line::Level;
use asp_proto::plugin::{Json, LineAnswer, LineRequest, LogLine, Progress, client_message, server_message};
use async_trait::async_trait;
use serde_json::{Value, json};

use super::{DESCRIBE, InstalledUnit, Local, PluginOutcome, REQUEST};
use crate::answers::Answers;

/// Code of JSON-RPC 2.0: invalid parameters.
const INVALID_PARAMS: i64 = -32602;

/// Builds the message that begins a call of a tool.
pub(super) fn tool_call(tool: &str, arguments: &Value, timeout: Duration) -> client_message::Payload {
    let params = json!({"name": tool, "arguments": arguments, "_meta": {"progressToken": REQUEST}});
    request("tools/call", &params, timeout)
}

fn request(method: &str, params: &Value, timeout: Duration) -> client_message::Payload {
    client_message::Payload::LineRequest(LineRequest {
        request_id: REQUEST.into(),
        method: method.to_owned(),
        params: Some(Json { value: params.to_string().into_bytes() }),
        deadline: Some((SystemTime::now() + timeout).into()),
        ..LineRequest::default()
    })
}

/// Returns the outcome of a tool call. A server may answer with content only.
pub(super) fn outcome(answer: &LineAnswer) -> anyhow::Result<PluginOutcome> {
    let result = match lines::outcome(answer) {
        Ok(result) => result,
        Err(ClientFault::Error { code, message, .. }) => {
            let code = if code == INVALID_PARAMS { "INVALID_ARGUMENT" } else { "INTERNAL" };
            return Ok(PluginOutcome::Failed { code: code.to_owned(), message });
        }
        Err(fault) => bail!("{fault}"),
    };
    let member = |name: &str| result.get(name).filter(|value| !value.is_null()).cloned();
    let content = member("content");
    let output = member("structuredContent");
    Ok(match member("isError") {
        Some(Value::Bool(true)) => PluginOutcome::Error(content.or(output).unwrap_or_default()),
        _ => PluginOutcome::Completed(output.or(content).unwrap_or_default()),
    })
}

/// Returns a notification of a server in the form of a plugin's message; `None` for any other message.
pub(super) fn as_of_plugin(payload: &server_message::Payload) -> Option<server_message::Payload> {
    let server_message::Payload::LineNotification(notification) = payload else { return None };
    let LineEvent::Server(event) = lines::event(notification)? else { return None };
    Some(match event {
        ServerEvent::Log { level, data, .. } => server_message::Payload::Log(LogLine {
            level: Level::Info.into(),
            severity: level.unwrap_or_default(),
            message: data.as_str().map_or_else(|| data.to_string(), str::to_owned),
            ..LogLine::default()
        }),
        ServerEvent::Progress { progress, total, message } => {
            let amount = progress.as_f64().unwrap_or_default();
            let total = total.and_then(|total| total.as_f64()).filter(|total| *total > 0.0);
            server_message::Payload::Progress(Progress {
                percent: total.map_or(amount, |total| amount / total * 100.0),
                message: message.unwrap_or_default(),
                ..Progress::default()
            })
        }
    })
}

/// Returns everything that a server lists, run as one of `server`.
pub(super) async fn list(local: &mut Local, plugin: &InstalledUnit, server: &str) -> anyhow::Result<Lists> {
    let (lists, _) = lines::list(&mut LocalPackage { local, plugin, server }).await?;
    Ok(lists)
}

/// A package in a local runtime.
struct LocalPackage<'a> {
    local: &'a mut Local,
    plugin: &'a InstalledUnit,
    server: &'a str,
}

#[async_trait]
impl Lister for LocalPackage<'_> {
    async fn ask(&mut self, method: &str, params: Value) -> Result<UpstreamObject, ClientFault> {
        let begins = (request(method, &params, DESCRIBE), DESCRIBE);
        let answers = Answers::default();
        let heard: &mut (dyn FnMut(&server_message::Payload) + Send) = &mut |_| ();
        let ended = self.local.converse(self.plugin, (self.server, ""), begins, (&answers, heard)).await;
        match ended.map_err(|error| ClientFault::Lost(format!("{error:#}")))? {
            server_message::Payload::LineAnswer(answer) => lines::page(&answer),
            server_message::Payload::Failed(failed) => {
                Err(ClientFault::Lost(format!("{}: {}", failed.code, failed.message)))
            }
            _ => Err(ClientFault::Lost("it is not an MCP server".into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use asp_proto::plugin::LineNotification;

    use super::*;

    fn sent(value: &Value) -> Option<Json> {
        Some(Json { value: value.to_string().into_bytes() })
    }

    #[test]
    fn a_tools_answer_is_its_structure_or_its_content_and_an_error_has_its_code() {
        let content = json!([{"type": "text", "text": "hi"}]);
        for (result, expected) in [
            (json!({"content": content}), PluginOutcome::Completed(content.clone())),
            (
                json!({"content": content, "structuredContent": {"a": 1}}),
                PluginOutcome::Completed(json!({"a": 1})),
            ),
            (json!({"content": content, "isError": true}), PluginOutcome::Error(content.clone())),
        ] {
            let answer = LineAnswer { result: sent(&result), ..LineAnswer::default() };
            assert_eq!(format!("{:?}", outcome(&answer).unwrap()), format!("{expected:?}"), "{result}");
        }
        for (code, word) in [(INVALID_PARAMS, "INVALID_ARGUMENT"), (-32603, "INTERNAL")] {
            let error = sent(&json!({"code": code, "message": "no"}));
            let answer = LineAnswer { error, ..LineAnswer::default() };
            let PluginOutcome::Failed { code, message } = outcome(&answer).unwrap() else { panic!("{code}") };
            assert_eq!((code.as_str(), message.as_str()), (word, "no"));
        }
    }

    #[test]
    fn a_notification_is_shown_as_a_plugins_progress_or_log() {
        let shown = |method: &str, params: Value| {
            let params = sent(&params);
            let method = method.to_owned();
            as_of_plugin(&server_message::Payload::LineNotification(LineNotification {
                method,
                params,
                ..LineNotification::default()
            }))
        };
        let progress = shown("notifications/progress", json!({"progress": 1, "total": 4, "message": "m"}));
        let Some(server_message::Payload::Progress(progress)) = progress else { panic!("{progress:?}") };
        assert_eq!((progress.percent, progress.message.as_str()), (25.0, "m"));
        let log = shown("notifications/message", json!({"level": "alert", "data": {"a": 1}}));
        let Some(server_message::Payload::Log(log)) = log else { panic!("{log:?}") };
        assert_eq!((log.severity.as_str(), log.message.as_str()), ("alert", r#"{"a":1}"#));
        assert!(shown("notifications/unknown", json!({})).is_none());
    }
}
