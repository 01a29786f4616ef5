//! The lines of stdio servers, as a gateway sends them.

use asp_json::Json;
use asp_proto::plugin::client_message::Payload as In;
use asp_proto::plugin::server_message::Payload as Out;
use asp_proto::plugin::{Json as Text, LineRequest};
use asp_proto::supervisor::{LineMessage, LineProtocol};
use serde_json::{Value, json};

use super::harness::{Said, Stack, Tunnel};

/// The words of MCP.
pub(super) fn protocol() -> LineProtocol {
    let first = json!({
        "protocolVersion": "2025-11-25", "clientInfo": {"name": "tests", "version": "1"},
        "capabilities": {"elicitation": {}, "sampling": {"tools": {}}, "roots": {}},
    });
    let request = |method: &str, params: &Value, if_object: &str| LineMessage {
        method: method.into(),
        params: params.to_string(),
        is_request: true,
        if_object: if_object.into(),
    };
    let initialized = LineMessage { method: "notifications/initialized".into(), ..LineMessage::default() };
    LineProtocol {
        first: Some(request("initialize", &first, "")),
        after: vec![
            initialized,
            request("logging/setLevel", &json!({"level": "debug"}), "/capabilities/logging"),
        ],
        ping: "ping".into(),
        cancelled: "notifications/cancelled".into(),
        token: "progressToken".into(),
        log: "notifications/message".into(),
        shared: vec!["notifications/tools/list_changed".into()],
    }
}

/// Returns the result of an answer.
pub(super) fn result(said: &Said) -> Option<Json> {
    let Said::Message(Out::LineAnswer(answer)) = said else { return None };
    Json::parse(&answer.result.as_ref()?.value).ok()
}

/// Returns the structured content of a tool's answer.
pub(super) fn structured(said: &Said) -> Option<Json> {
    result(said)?.member("structuredContent")
}

/// Returns the parameters of the notifications of this method.
pub(super) fn notified(said: &[Said], method: &str) -> Vec<Value> {
    let params = said.iter().filter_map(|said| match said {
        Said::Message(Out::LineNotification(sent)) if sent.method == method => sent.params.as_ref(),
        _ => None,
    });
    params.map(|params| serde_json::from_slice(&params.value).unwrap()).collect()
}

impl Tunnel {
    /// Sends a request with its parameters as text.
    pub(super) async fn line(&self, request_id: &str, method: &str, params: &str) {
        let params = Some(Text { value: params.as_bytes().to_vec() });
        let request_id = request_id.to_owned();
        let method = method.to_owned();
        self.say(In::LineRequest(LineRequest { request_id, method, params, ..LineRequest::default() })).await;
    }

    /// Calls a tool, with its arguments as text.
    pub(super) async fn tool(&self, request_id: &str, name: &str, arguments: &str) {
        let params = format!(
            r#"{{"name":"{name}","_meta":{{"progressToken":"{request_id}"}},"arguments":{arguments}}}"#
        );
        self.line(request_id, "tools/call", &params).await;
    }
}

impl Stack {
    /// Makes one request and returns everything that it sent.
    pub(super) async fn line(&self, id: &str, request_id: &str, method: &str, params: &str) -> Vec<Said> {
        let mut tunnel = self.tunnel(id).await;
        tunnel.line(request_id, method, params).await;
        tunnel.rest().await
    }

    /// Calls a tool and returns everything that it sent.
    pub(super) async fn tool(&self, id: &str, request_id: &str, arguments: &Value) -> Vec<Said> {
        let mut tunnel = self.tunnel(id).await;
        tunnel.tool(request_id, "t", &arguments.to_string()).await;
        tunnel.rest().await
    }
}
