//! Messages of revision 2026-07-28 and later: no session; headers repeat parts of the body (MCP, Streamable HTTP).

use std::collections::HashMap;

use asp_json::Json;
use asp_mcp_client::client::is_event_stream;
use asp_mcp_client::client::modern::{method_headers, mirrored};
use asp_mcp_client::client::session::SessionHeaders;
use asp_snapshot::param_headers::ParamHeaders;
use parking_lot::Mutex;
use reqwest::StatusCode;
use reqwest::header::{HeaderMap, HeaderValue};
use serde_json::{Value, json};

use super::connection::RequestFault;
use super::{Bridge, id_of};

const REVISION: &str = "/params/_meta/io.modelcontextprotocol~1protocolVersion";
/// Error code: a header differs from the body.
const HEADER_MISMATCH: i64 = -32020;
/// Maximum number of pages of tools read for their header parameters.
const MAX_PAGES: usize = 100;
/// Maximum number of tools whose header parameters are kept.
const MAX_TOOLS: usize = 10_000;

/// Header parameters of tools: the arguments that are also sent as headers, as far as tool lists have been seen.
#[derive(Default)]
pub(super) struct ModernEra {
    tools: Mutex<HashMap<String, ParamHeaders>>,
}

/// Returns the revision that a message carries; messages of the legacy era do not, they agree on it in the handshake.
pub(super) fn revision(message: &Value) -> Option<&str> {
    message.pointer(REVISION).and_then(Value::as_str)
}

impl ModernEra {
    pub(super) async fn request(
        &self,
        bridge: &Bridge,
        revision: &str,
        message: &Json,
    ) -> Result<(), RequestFault> {
        let method = text(message, "/method");
        if method == "tools/call" && !self.knows(text(message, "/params/name")) {
            self.list_tools(bridge, revision, message).await?;
        }
        let headers = self.headers(revision, message)?;
        let id = id_of(message);
        let mut response = bridge.connection.post(&headers, message).await?;
        let status = response.status();
        if method == "tools/call" && status == StatusCode::BAD_REQUEST {
            let body = bridge.connection.body(response).await?;
            let said = Json::parse(&body).unwrap_or_else(|_| Value::Null.into());
            if said.pointer("/error/code").and_then(Value::as_i64) != Some(HEADER_MISMATCH) {
                return bridge.relay_body(status, &body, &id, |_| {}).await;
            }
            // Nothing ran. The tool's header parameters may have changed since.
            self.list_tools(bridge, revision, message).await?;
            response = bridge.connection.post(&self.headers(revision, message)?, message).await?;
        }
        bridge.relay(response, None, &id, |answer| self.read_tools(answer)).await
    }

    fn knows(&self, tool: &str) -> bool {
        self.tools.lock().contains_key(tool)
    }

    /// Lists the tools that the caller of `message` can see. A refused list changes nothing.
    async fn list_tools(&self, bridge: &Bridge, revision: &str, message: &Value) -> Result<(), RequestFault> {
        let mut meta = message.pointer("/params/_meta").cloned().unwrap_or_default();
        if let Some(members) = meta.as_object_mut() {
            members.remove("progressToken");
        }
        let mut cursor = Value::Null;
        for page in 0..MAX_PAGES {
            let params = match cursor {
                Value::Null => json!({"_meta": meta}),
                cursor => json!({"_meta": meta, "cursor": cursor}),
            };
            let id = format!("asp-mcp-tools-{page}");
            let list = json!({"jsonrpc": "2.0", "id": id, "method": "tools/list", "params": params});
            let list = Json::from(list);
            let response = bridge.connection.post(&self.headers(revision, &list)?, &list).await?;
            if is_event_stream(&response) || !response.status().is_success() {
                return Ok(());
            }
            let answer = bridge.connection.body(response).await?;
            let answer = Json::parse(&answer).unwrap_or_else(|_| Value::Null.into());
            self.read_tools(&answer);
            cursor = answer.pointer("/result/nextCursor").cloned().unwrap_or_default();
            if cursor.is_null() {
                break;
            }
        }
        Ok(())
    }

    /// Stores the header parameters of the tools in an answer, if it lists any.
    fn read_tools(&self, answer: &Value) {
        let listed = answer.pointer("/result/tools").and_then(Value::as_array).into_iter().flatten();
        let mut tools = self.tools.lock();
        for tool in listed {
            let name = text(tool, "/name").to_owned();
            let schema = tool.get("inputSchema").map(Value::to_string).unwrap_or_default();
            if tools.len() < MAX_TOOLS || tools.contains_key(&name) {
                tools.insert(name, ParamHeaders::of(&schema));
            }
        }
    }

    fn headers(&self, revision: &str, message: &Json) -> Result<HeaderMap, RequestFault> {
        let method = text(message, "/method");
        let params = message.get("params").unwrap_or(&Value::Null);
        let unsendable =
            |_| RequestFault::Unsendable("its method or revision has letters no header can hold".into());
        let revision = Some(HeaderValue::from_str(revision).map_err(unsendable)?);
        let mut headers = SessionHeaders { id: None, revision }.headers();
        headers.extend(method_headers(method, params).map_err(unsendable)?);
        if method == "tools/call" {
            let marks = self.tools.lock().get(text(params, "/name")).cloned().unwrap_or_default();
            let arguments = message.pointed("/params/arguments").unwrap_or_else(|| Value::Null.into());
            headers.extend(mirrored(marks.mirror(&arguments)));
        }
        Ok(headers)
    }
}

fn text<'v>(value: &'v Value, pointer: &str) -> &'v str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}
