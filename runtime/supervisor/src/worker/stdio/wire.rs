//! JSON-RPC 2.0 as an MCP server writes it: one message a line.

use serde::Deserialize;
use serde_json::Value;

use crate::cause::Cause;

/// Longest id of a server's own request in bytes; those of SDKs are numbers or UUIDs.
const MAX_ID: usize = 256;

/// A server's message. Batches do not exist in MCP since 2025-06-18.
#[derive(Debug, PartialEq)]
pub(super) enum Message {
    Response { id: u64, answer: Answer },
    Request { id: Value, method: String, params: Value },
    Notification { method: String, params: Value },
}

#[derive(Debug, PartialEq)]
pub(super) enum Answer {
    Result(Value),
    Error { code: i64, message: String },
}

#[derive(Deserialize)]
struct Line {
    id: Option<Value>,
    method: Option<String>,
    params: Option<Value>,
    result: Option<Value>,
    error: Option<ErrorObject>,
}

#[derive(Deserialize)]
struct ErrorObject {
    code: i64,
    #[serde(default)]
    message: String,
}

pub(super) fn parse(line: &[u8]) -> Result<Message, Cause> {
    let line: Line = serde_json::from_slice(line)
        .map_err(|_| Cause::Protocol("a line on standard output is no JSON-RPC message"))?;
    match line {
        Line { id: Some(id), method: Some(method), params, .. } if is_id(&id) => {
            Ok(Message::Request { id, method, params: params.unwrap_or(Value::Null) })
        }
        Line { id: None, method: Some(method), params, .. } => {
            Ok(Message::Notification { method, params: params.unwrap_or(Value::Null) })
        }
        Line { id: Some(id), result: Some(result), error: None, .. } => response(&id, Answer::Result(result)),
        Line { id: Some(id), result: None, error: Some(ErrorObject { code, message }), .. } => {
            response(&id, Answer::Error { code, message })
        }
        _ => Err(Cause::Protocol("a JSON-RPC message is neither request, notification nor response")),
    }
}

/// A number or a short text: those of open requests are kept.
fn is_id(id: &Value) -> bool {
    id.is_number() || id.as_str().is_some_and(|text| text.len() <= MAX_ID)
}

/// Our own ids are whole numbers.
fn response(id: &Value, answer: Answer) -> Result<Message, Cause> {
    let id = id.as_u64().ok_or(Cause::Protocol("an answer to an unknown request"))?;
    Ok(Message::Response { id, answer })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_kind_of_message_is_told_apart() {
        let parse = |text: &str| parse(text.as_bytes());
        let result = Message::Response { id: 7, answer: Answer::Result(json!({"a": 1})) };
        assert_eq!(parse(r#"{"jsonrpc":"2.0","id":7,"result":{"a":1}}"#), Ok(result));
        let error = Answer::Error { code: -1, message: "no".into() };
        assert_eq!(
            parse(r#"{"id":7,"error":{"code":-1,"message":"no"}}"#),
            Ok(Message::Response { id: 7, answer: error })
        );
        assert!(matches!(parse(r#"{"id":"x","method":"ping"}"#), Ok(Message::Request { .. })));
        assert!(matches!(parse(r#"{"method":"m"}"#), Ok(Message::Notification { .. })));
        for bad in [
            "hello",
            "[]",
            "{}",
            r#"{"id":7}"#,
            r#"{"id":"7","result":1}"#,
            r#"{"id":7,"result":1,"error":{"code":1}}"#,
            r#"{"id":{},"method":"m"}"#,
            r#"{"id":-7,"result":1}"#,
            &format!(r#"{{"id":"{}","method":"m"}}"#, "x".repeat(MAX_ID + 1)),
        ] {
            assert!(matches!(parse(bad), Err(Cause::Protocol(_))), "{bad}");
        }
    }
}
