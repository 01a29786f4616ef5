//! JSON-RPC 2.0 as an MCP server writes it: one message a line.
//!
//! Keeps true: a result keeps its text; half of a surrogate pair (RFC 8259 section 8.2) passes as the escape that it is, and
//! bytes that are not UTF-8 become U+FFFD.

use asp_json::Json;
use serde::Deserialize;
use serde_json::Value;

/// Longest id of a server's own request in bytes; those of SDKs are numbers or UUIDs.
const MAX_ID: usize = 256;
/// Longest key and number of an [`Envelope`] that matter.
const MAX_TOKEN: usize = 24;

/// A server's message. Batches do not exist in MCP since 2025-06-18.
#[derive(Debug, PartialEq)]
pub(super) enum Message {
    Response { id: u64, answer: Answer },
    Request { id: Value, method: String, params: Value },
    Notification { method: String, params: Value },
}

/// A line that is for somebody.
#[derive(Debug, PartialEq)]
pub(super) enum Incoming {
    Message(Message),
    /// An answer above the bound.
    TooLarge {
        id: u64,
    },
    /// An answer that is not one of JSON-RPC.
    Malformed {
        id: u64,
    },
}

#[derive(Debug, PartialEq)]
pub(super) enum Answer {
    Result(Json),
    Error { code: i64, message: String },
}

#[derive(Deserialize)]
struct Line {
    id: Option<Value>,
    method: Option<String>,
    params: Option<Value>,
    error: Option<ErrorObject>,
}

#[derive(Deserialize)]
struct ErrorObject {
    code: i64,
    #[serde(default)]
    message: String,
}

/// Reads a line; `None` if it is not a message, such as a line of log.
pub(super) fn parse(line: &[u8]) -> Option<Incoming> {
    // A derived structure is read from an array too, which is a batch here.
    if line.trim_ascii_start().first() != Some(&b'{') {
        return None;
    }
    let message = Json::parse(String::from_utf8_lossy(line).as_bytes()).ok().and_then(|json| message(&json));
    message.map(Incoming::Message).or_else(|| {
        let mut envelope = Envelope::default();
        envelope.read(line);
        envelope.answered().map(|id| Incoming::Malformed { id })
    })
}

fn message(json: &Json) -> Option<Message> {
    let line = Line::deserialize(json.view()).ok()?;
    // With its text: it is passed on.
    let result = json.member("result").filter(|result| !result.is_null());
    Some(match line {
        Line { id: Some(id), method: Some(method), params, .. } if is_id(&id) => {
            Message::Request { id, method, params: params.unwrap_or(Value::Null) }
        }
        Line { id: None, method: Some(method), params, .. } => {
            Message::Notification { method, params: params.unwrap_or(Value::Null) }
        }
        Line { id: Some(id), method: None, error: None, .. } => {
            Message::Response { id: own_id(&id)?, answer: Answer::Result(result?) }
        }
        Line { id: Some(id), method: None, error: Some(error), .. } if result.is_none() => {
            let ErrorObject { code, message } = error;
            Message::Response { id: own_id(&id)?, answer: Answer::Error { code, message } }
        }
        _ => return None,
    })
}

/// Our own ids are whole numbers; some servers give them back as text.
fn own_id(id: &Value) -> Option<u64> {
    id.as_u64().or_else(|| id.as_str()?.parse().ok())
}

/// A number or a short text: those of open requests are kept.
fn is_id(id: &Value) -> bool {
    id.is_number() || id.as_str().is_some_and(|text| text.len() <= MAX_ID)
}

/// The outermost members of a message that is not decoded: its id, and whether it is an answer.
#[derive(Debug, Default)]
pub(super) struct Envelope {
    depth: usize,
    in_string: bool,
    escaped: bool,
    /// The text or number that is being read, and the last key.
    token: Vec<u8>,
    key: Vec<u8>,
    id: Option<u64>,
    has_method: bool,
}

impl Envelope {
    /// Reads on; memory is constant.
    pub(super) fn read(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.take(*byte));
    }

    /// The id of the request that this answers.
    pub(super) fn answered(&self) -> Option<u64> {
        self.id.filter(|_| !self.has_method)
    }

    fn take(&mut self, byte: u8) {
        if self.in_string {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' => self.escaped = true,
                b'"' => self.in_string = false,
                _ => self.keep(byte),
            }
            return;
        }
        match byte {
            b'"' => {
                self.in_string = true;
                self.token.clear();
            }
            b'{' | b'[' => {
                self.depth += 1;
                self.token.clear();
            }
            b'}' | b']' => {
                self.end_member();
                self.depth = self.depth.saturating_sub(1);
            }
            b':' if self.depth == 1 => {
                std::mem::swap(&mut self.key, &mut self.token);
                self.token.clear();
                self.has_method |= self.key == b"method";
            }
            b',' => self.end_member(),
            b' ' | b'\t' | b'\r' | b'\n' => {}
            _ => self.keep(byte),
        }
    }

    fn keep(&mut self, byte: u8) {
        if self.depth == 1 && self.token.len() < MAX_TOKEN {
            self.token.push(byte);
        }
    }

    fn end_member(&mut self) {
        if self.depth == 1 && self.key == b"id" {
            self.id = std::str::from_utf8(&self.token).ok().and_then(|number| number.parse().ok());
        }
        if self.depth == 1 {
            self.key.clear();
        }
        self.token.clear();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(text: &str) -> Option<Incoming> {
        parse(text.as_bytes())
    }

    #[test]
    fn each_kind_of_message_is_told_apart() {
        let response = |answer| Some(Incoming::Message(Message::Response { id: 7, answer }));
        let result = response(Answer::Result(json!({"a": 1}).into()));
        assert_eq!(read(r#"{"jsonrpc":"2.0","id":7,"result":{"a":1}}"#), result);
        assert_eq!(read(r#"{"id":"7","result":{"a":1}}"#), result);
        let error = Answer::Error { code: -1, message: "no".into() };
        assert_eq!(read(r#"{"id":7,"error":{"code":-1,"message":"no"}}"#), response(error));
        let request = read(r#"{"id":"x","method":"ping"}"#);
        assert!(matches!(request, Some(Incoming::Message(Message::Request { .. }))));
        let notification = read(r#"{"method":"m"}"#);
        assert!(matches!(notification, Some(Incoming::Message(Message::Notification { .. }))));
    }

    #[test]
    fn what_is_no_message_is_nobodys_and_a_malformed_answer_is_its_calls() {
        for nobodys in [
            "hello",
            "[]",
            r#"["x",null]"#,
            "{}",
            r#"{"id":"seven","result":1}"#,
            r#"{"id":-7,"result":1}"#,
            r#"{"id":{},"method":"m"}"#,
            r#"{"level":30,"msg":"started","id":}"#,
            &format!(r#"{{"id":"{}","method":"m"}}"#, "x".repeat(MAX_ID + 1)),
        ] {
            assert_eq!(read(nobodys), None, "{nobodys}");
        }
        let deep = format!(r#"{{"id":7,"result":{}1{}}}"#, "[".repeat(1000), "]".repeat(1000));
        for malformed in [
            r#"{"id":7}"#,
            r#"{"id":7,"result":1,"error":{"code":1}}"#,
            r#"{"jsonrpc":"2.0","id":7,"error":{"message":"no code"}}"#,
            r#"{"id":7,"result":nonsense}"#,
            &deep,
        ] {
            assert_eq!(read(malformed), Some(Incoming::Malformed { id: 7 }), "{malformed}");
        }
    }

    #[test]
    fn half_a_surrogate_pair_and_broken_utf8_become_the_replacement_character() {
        let text = |line: &[u8]| match parse(line) {
            Some(Incoming::Message(Message::Response { answer: Answer::Result(value), .. })) => {
                value.view().clone()
            }
            other => panic!("{other:?}"),
        };
        for (escaped, expected) in [
            (r"cut \ud83d", "cut \u{fffd}"),
            (r"\ude00\ud83d", "\u{fffd}\u{fffd}"),
            (r"\ud83d\ud83d\ude00 \ud83d\ude00", "\u{fffd}\u{1f600} \u{1f600}"),
            (r"\\ud83d \ud83d", "\\ud83d \u{fffd}"),
            (r#"\"\uDBFF\n"#, "\"\u{fffd}\n"),
        ] {
            let line = format!(r#"{{"id":7,"result":"{escaped}"}}"#);
            assert_eq!(text(line.as_bytes()), json!(expected), "{escaped}");
        }
        assert_eq!(text(b"{\"id\":7,\"result\":\"a\xff\"}"), json!("a\u{fffd}"));
    }
}
