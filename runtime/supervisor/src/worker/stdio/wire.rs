//! JSON-RPC 2.0 as a stdio server writes it: one message per line.
//!
//! Refuses lines without `"jsonrpc": "2.0"`: a log line in JSON may also have an `id`, a `method` or a `result`. Keeps
//! true: contents keep their text and are not decoded, so that memory depends on the length of a line and not on the
//! number of its values; half of a surrogate pair (RFC 8259 section 8.2) passes as the escape that it is, and bytes
//! that are not UTF-8 become U+FFFD.

mod envelope;

use std::borrow::Cow;

use asp_json::{Json, first_elements, integers, named, unmarked};

pub(super) use envelope::Envelope;

/// Maximum size of a message in bytes, the same as for the answer of an upstream over HTTP.
pub(super) const MAX_LINE: usize = 16 << 20;
/// Maximum length of the id of a server's own request in bytes; SDKs use numbers or UUIDs.
const MAX_ID: usize = 256;

/// A server's message. Batches do not exist in MCP since 2025-06-18.
#[derive(Debug, PartialEq)]
pub(super) enum RpcMessage {
    Response { id: u64, answer: RpcAnswer },
    Request { id: Json, method: String, params: Json },
    Notification { method: String, params: Json },
}

/// A line of the server that must be handled.
#[derive(Debug, PartialEq)]
pub(super) enum ServerLine {
    Message(RpcMessage),
    /// An answer above the maximum size.
    TooLarge {
        id: u64,
    },
    /// An answer that is not valid JSON-RPC.
    Malformed {
        id: u64,
    },
}

/// The answer to a request of the runtime.
#[derive(Debug, PartialEq)]
pub(super) enum RpcAnswer {
    /// An object, or an empty list in place of one, with its text.
    Result(Json),
    /// Any value, with its text.
    Error(Json),
}

/// Parses a line; `None` if it is not a message, such as a log line.
pub(super) fn parse(line: &[u8]) -> Option<ServerLine> {
    // Some servers begin their output with a byte order mark.
    let line = unmarked(line);
    let text = String::from_utf8_lossy(line);
    // A replacement character is longer than the byte that it replaces.
    if text.len() > MAX_LINE {
        return Envelope::of(line).answered_id().map(|id| ServerLine::TooLarge { id });
    }
    match named(&text, ["jsonrpc", "id", "method", "params", "result", "error"]) {
        Some([Some(version), id, method, params, result, error])
            if string(version).is_some_and(|version| version == "2.0") =>
        {
            let [id, method] = [id, method].map(|member| member.filter(|text| *text != "null"));
            match (method, id) {
                (Some(method), id) => call(method, id, params).map(ServerLine::Message),
                (None, Some(id)) => answer(own_id(id)?, result, error),
                (None, None) => None,
            }
        }
        Some(_) => None,
        None => Envelope::of(line).answered_id().map(|id| ServerLine::Malformed { id }),
    }
}

/// Returns a request, or a notification if there is no id.
fn call(method: &str, id: Option<&str>, params: Option<&str>) -> Option<RpcMessage> {
    let method = string(method)?;
    let params = Json::part(params.filter(|params| *params != "null").unwrap_or("{}"));
    Some(match id {
        Some(id) => RpcMessage::Request { id: server_id(id)?, method, params },
        None => RpcMessage::Notification { method, params },
    })
}

/// Returns an answer; `None`: the line answers nothing. Some servers write both members, one of which is null.
fn answer(id: u64, result: Option<&str>, error: Option<&str>) -> Option<ServerLine> {
    if result.is_none() && error.is_none() {
        return None;
    }
    let [result, error] = [result, error].map(|member| member.filter(|text| *text != "null"));
    let answer = match (result, error) {
        (_, Some(error)) => Some(RpcAnswer::Error(Json::part(error))),
        (Some(result), None) if is_object(result) => Some(RpcAnswer::Result(Json::part(result))),
        _ => None,
    };
    Some(match answer {
        Some(answer) => ServerLine::Message(RpcMessage::Response { id, answer }),
        None => ServerLine::Malformed { id },
    })
}

/// Whether a result is an object, as every result of MCP. PHP writes an empty list where an object has no members.
fn is_object(result: &str) -> bool {
    result.starts_with('{') || first_elements(result, 1).is_some_and(|items| items.is_empty())
}

/// Parses an id of the runtime's requests. These are whole numbers; some servers return them as texts or as floats.
fn own_id(text: &str) -> Option<u64> {
    let number = Some(text.trim_matches('"')).filter(|number| number.len() <= MAX_ID)?;
    let mut id = asp_json::decode(number).ok()?;
    integers(&mut id);
    id.as_u64()
}

/// Returns the id of a server's own request, a number or a short text, which is kept while the request is open.
pub(super) fn server_id(text: &str) -> Option<Json> {
    let is_short = text.len() <= MAX_ID + 2;
    let is_id = text.starts_with(['"', '-']) || text.starts_with(|first: char| first.is_ascii_digit());
    (is_short && is_id).then(|| Json::part(text))
}

/// Returns the contents of a JSON text that is a string.
pub(super) fn string(text: &str) -> Option<String> {
    asp_json::string(text).map(Cow::into_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(text: &str) -> Option<ServerLine> {
        parse(text.as_bytes())
    }

    #[test]
    fn each_kind_of_message_is_told_apart() {
        let response = |answer| Some(ServerLine::Message(RpcMessage::Response { id: 7, answer }));
        let result = response(RpcAnswer::Result(json!({"a": 1}).into()));
        for text in [
            r#"{"jsonrpc":"2.0","id":7,"result":{"a":1}}"#,
            r#"{"result":{"a":1},"id":"7","jsonrpc":"2.0"}"#,
            r#"{"jsonrpc":"2.0","id":7.0,"result":{"a":1}}"#,
            "\u{feff}{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{\"a\":1}}",
            r#"{"jsonrpc":"2.0","id":7,"method":null,"params":null,"result":{"a":1}}"#,
            r#"{"jsonrpc":"2.0","id":7,"result":{"a":1},"error":null}"#,
            " {\"jsonrpc\" : \"2.0\", \"\\u0069d\": 7, \"result\": {\"a\": 1}, \"x\": []} \r\n",
        ] {
            assert_eq!(read(text), result, "{text}");
        }
        let empty = response(RpcAnswer::Result(Json::part("[ ]")));
        assert_eq!(
            read(r#"{"jsonrpc":"2.0","id":7,"result":[ ]}"#),
            empty,
            "an object of PHP without members"
        );
        for error in [
            r#"{"code":-1,"message":"no"}"#,
            r#"{"code":-1.0,"message":null,"data":[1.50]}"#,
            r#"{"message":"no code"}"#,
            r#""no such tool""#,
            "[]",
        ] {
            for result in ["", r#""result":null,"#, r#""result":{},"#] {
                let text = format!(r#"{{"jsonrpc":"2.0","id":7,{result}"error":{error}}}"#);
                let Some(ServerLine::Message(RpcMessage::Response {
                    id: 7,
                    answer: RpcAnswer::Error(passed),
                })) = read(&text)
                else {
                    panic!("{text}")
                };
                assert_eq!(passed.text(), error, "{text}");
            }
        }
        for id in ["\"x\"", "7", "-1.5", "123456789012345678901234567890"] {
            let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#);
            let Some(ServerLine::Message(RpcMessage::Request { id: read, params, .. })) = read(&text) else {
                panic!("{text}")
            };
            assert_eq!((read.text(), params.text()), (id, "{}"));
        }
        for text in
            [r#"{"jsonrpc":"2.0","method":"m"}"#, r#"{"jsonrpc":"2.0","method":"m","id":null,"params":null}"#]
        {
            let notification = RpcMessage::Notification { method: "m".into(), params: json!({}).into() };
            assert_eq!(read(text), Some(ServerLine::Message(notification)), "{text}");
        }
    }

    #[test]
    fn no_line_of_log_ends_a_call_or_asks_anything() {
        for nobodys in [
            "hello",
            "",
            "7",
            "[]",
            r#"["x",null]"#,
            r#"[{"jsonrpc":"2.0","id":7,"result":{}}]"#,
            "{}",
            r#"{"id":7}"#,
            r#"{"id":7,"result":{}}"#,
            r#"{"id":7,"result":{"a":1},"level":30,"msg":"request completed"}"#,
            r#"{"id":7,"error":{"code":1,"message":"logged"}}"#,
            r#"{"id":7,"method":"ping"}"#,
            r#"{"method":"GET","path":"/"}"#,
            r#"{"id":7,"result":nonsense}"#,
            r#"{"level":30,"msg":"started","id":}"#,
            r#"{"jsonrpc":"1.0","id":7,"result":{}}"#,
            r#"{"jsonrpc":2.0,"id":7,"result":{}}"#,
            r#"{"jsonrpc":null,"id":7,"result":{}}"#,
            r#"{"log":{"jsonrpc":"2.0","id":7,"result":{}}}"#,
            r#"{"jsonrpc":"2.0","id":7}"#,
            r#"{"jsonrpc":"2.0","id":7,"params":{}}"#,
            r#"{"jsonrpc":"2.0","result":{}}"#,
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"parse error"}}"#,
            r#"{"jsonrpc":"2.0","id":"seven","result":{}}"#,
            r#"{"jsonrpc":"2.0","id":-7,"result":{}}"#,
            r#"{"jsonrpc":"2.0","id":7.5,"result":{}}"#,
            r#"{"jsonrpc":"2.0","id":[7],"result":{}}"#,
            r#"{"jsonrpc":"2.0","id":{},"method":"m"}"#,
            r#"{"jsonrpc":"2.0","id":7,"method":{}}"#,
            r#"{"jsonrpc":"2.0","id":7,"method":"m","result":nonsense}"#,
            r#"INFO {"jsonrpc":"2.0","id":7,"result":{}}"#,
            &format!(r#"{{"jsonrpc":"2.0","id":"{}","method":"m"}}"#, "x".repeat(MAX_ID + 1)),
            &format!(r#"{{"jsonrpc":"2.0","id":{},"method":"m"}}"#, "1".repeat(MAX_ID + 3)),
        ] {
            assert_eq!(read(nobodys), None, "{nobodys}");
        }
    }

    #[test]
    fn an_answer_that_is_none_of_json_rpc_fails_its_own_call() {
        let deep =
            format!(r#"{{"jsonrpc":"2.0","id":7,"result":{}1{}}}"#, "[".repeat(1000), "]".repeat(1000));
        for malformed in [
            r#"{"jsonrpc":"2.0","id":7,"result":null}"#,
            r#"{"jsonrpc":"2.0","id":7,"result":[1]}"#,
            r#"{"jsonrpc":"2.0","id":7,"result":nonsense}"#,
            r#"{"jsonrpc":"2.0","id":7,"result":{"a":"cut"#,
            r#"{"jsonrpc":"2.0","id":7,"result":{}} and a line of log"#,
            &deep,
        ] {
            assert_eq!(read(malformed), Some(ServerLine::Malformed { id: 7 }), "{malformed}");
        }
    }

    #[test]
    fn half_a_surrogate_pair_and_broken_utf8_become_the_replacement_character() {
        let text = |line: &[u8]| match parse(line) {
            Some(ServerLine::Message(RpcMessage::Response { answer: RpcAnswer::Result(value), .. })) => {
                value.view()["t"].clone()
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
            let line = format!(r#"{{"jsonrpc":"2.0","id":7,"result":{{"t":"{escaped}"}}}}"#);
            assert_eq!(text(line.as_bytes()), json!(expected), "{escaped}");
        }
        let broken = b"{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{\"t\":\"a\xff\"}}";
        assert_eq!(text(broken), json!("a\u{fffd}"));
    }
}
