//! The envelope rules as tables, and the extracted facts compared with `serde_json` over generated messages.

use std::collections::HashSet;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value as Json;
use serde_json::value::RawValue;

use super::*;
use asp_json::generator::Generator;

fn accepted(body: &str) -> Envelope {
    scan(body.as_bytes(), Binding::Mcp).unwrap_or_else(|reason| panic!("{body}: {reason:?}"))
}

fn refused(body: &str) -> Reason {
    scan(body.as_bytes(), Binding::Mcp).err().unwrap_or_else(|| panic!("{body} was accepted"))
}

#[test]
fn a_request_gives_method_id_and_name() {
    let envelope = accepted(
        r#"{"jsonrpc":"2.0","id":"a\"1","method":"tools/call","params":{"name":"e\u0063ho","arguments":{"name":"x"},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#,
    );
    assert_eq!(envelope.kind, EnvelopeKind::Request);
    assert_eq!(envelope.method, "tools/call");
    assert_eq!(envelope.id.as_deref(), Some(r#""a\"1""#));
    assert_eq!(envelope.name.as_deref(), Some("echo"));
    assert_eq!(envelope.meta_version.as_deref(), Some("2026-07-28"));
}

#[test]
fn a_message_that_is_refused_has_the_id_that_could_be_read() {
    for (body, expected) in [
        (r#"{"jsonrpc":"1.0","id":"a\"1","method":"x"}"#, Some(r#""a\"1""#)),
        (r#"{"jsonrpc":"2.0", "id": 7 }"#, Some("7")),
        (r#"{"jsonrpc":"2.0","id":1.5,"method":"x"}"#, None),
        (r#"{"jsonrpc":"2.0","method":7}"#, None),
        (r#"{"jsonrpc":"2.0","id":7,"result":{},"error":{}}"#, None),
        (r#"[{"id":7}]"#, None),
        (r#"{"jsonrpc":"2.0","id":1,"\u0069d":2,"method":"x"}"#, None),
        ("7", None),
    ] {
        assert_eq!(id_of_refused(body.as_bytes(), refused(body)), expected, "{body}");
    }
    assert_eq!(id_of_refused(br#"{"id":7"#, Reason::ParseError), None);
}

/// Invariant I-14.
#[test]
fn numbers_pass_as_they_are_written_and_the_refusal_of_one_beyond_a_double_names_the_rule() {
    let body = |number: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"arguments":{{"n":{number}}}}}}}"#
        )
    };
    for number in
        ["18446744073709551616", "340282366920938463463374607431768211456", "0.1234567890123456789", "1e308"]
    {
        accepted(&body(number));
    }
    for number in ["1e400", "-1e309"] {
        let message = refused(&body(number)).message();
        assert!(message.contains("number beyond the range of a double"), "{number}: {message}");
    }
}

#[test]
fn the_order_of_members_does_not_matter() {
    let envelope = accepted(
        r#"{"params":{"uri":"demo:///x","name":"n"},"method":"resources/read","id":0,"jsonrpc":"2.0"}"#,
    );
    assert_eq!((envelope.name.as_deref(), envelope.id.as_deref()), (Some("demo:///x"), Some("0")));
}

#[test]
fn a_name_is_taken_only_for_methods_that_have_one() {
    for (method, params, name) in [
        ("prompts/get", r#"{"name":"p"}"#, Some("p")),
        ("tools/list", r#"{"name":"p"}"#, None),
        ("tools/call", r#"{"name":7}"#, None),
        ("tools/call", r#"{"uri":"u"}"#, None),
        ("resources/read", r#"{"name":"p"}"#, None),
        ("SendMessage", r#"{"name":"p"}"#, None),
    ] {
        let envelope =
            accepted(&format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#));
        assert_eq!(envelope.name.as_deref(), name, "{method}");
    }
}

#[test]
fn the_task_of_a_message_of_a2a_counts_before_its_context() {
    let long = format!(r#"{{"id":"{}"}}"#, "x".repeat(MAX_ID_BYTES + 1));
    for (params, task) in [
        (r#"{"taskId":"t","id":"c","contextId":"x"}"#, Some("t")),
        (r#"{"message":{"contextId":"x","taskId":"\u0074"}}"#, Some("t")),
        (r#"{"message":{"contextId":"x","taskId":""}}"#, Some("x")),
        (r#"{"message":{"parts":[{"data":{"taskId":"t"}}],"taskId":null}}"#, None),
        (r#"{"message":{"taskId":"t","taskId":"u"}}"#, Some("u")),
        (r#"{"message":"text","contextId":"x"}"#, Some("x")),
        (r#"{"id":"t","historyLength":1}"#, Some("t")),
        (r#"{"id":7}"#, None),
        (r#"{"taskId":{"id":"t"}}"#, None),
        (long.as_str(), None),
        ("[]", None),
    ] {
        let body = format!(r#"{{"jsonrpc":"2.0","id":"r","method":"SendMessage","params":{params}}}"#);
        let envelope = accepted(&body);
        assert_eq!((envelope.task.as_deref(), envelope.id.as_deref()), (task, Some("\"r\"")), "{params}");
    }
}

#[test]
fn notifications_and_responses_are_told_apart() {
    for (body, kind) in [
        (r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#, EnvelopeKind::Notification),
        (r#"{"jsonrpc":"2.0","method":"x","params":null}"#, EnvelopeKind::Notification),
        (r#"{"jsonrpc":"2.0","id":1,"method":"x","params":[]}"#, EnvelopeKind::Request),
        (r#"{"jsonrpc":"2.0","id":1,"result":null}"#, EnvelopeKind::Response),
        (r#"{"jsonrpc":"2.0","id":"1","error":{"code":1,"message":""}}"#, EnvelopeKind::Response),
    ] {
        assert_eq!(accepted(body).kind, kind, "{body}");
    }
}

#[test]
fn ids_survive_as_written_or_are_refused() {
    for id in [
        "0",
        "-1",
        "1.0",
        "1e3",
        "9007199254740993",
        "18446744073709551615",
        "-9223372036854775808",
        "\"\"",
        "\"\\u0041\"",
    ] {
        let envelope = accepted(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"x"}}"#));
        assert_eq!(envelope.id.as_deref(), Some(id));
    }
    let long = format!("\"{}\"", "x".repeat(MAX_ID_BYTES));
    for id in
        ["null", "1.5", "1e-400", "1e300", "true", "{}", "[]", "[1]", "18446744073709551616", long.as_str()]
    {
        assert_eq!(
            refused(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"x"}}"#)),
            Reason::InvalidRequest,
            "{id}"
        );
    }
}

#[test]
fn what_is_json_but_no_message_is_an_invalid_request() {
    let long = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{}"}}"#, "m".repeat(MAX_METHOD_BYTES + 1));
    for body in [
        "{}",
        "null",
        "7",
        "\"x\"",
        r#"{"id":1,"method":"x"}"#,
        r#"{"jsonrpc":"1.0","id":1,"method":"x"}"#,
        r#"{"jsonrpc":2.0,"id":1,"method":"x"}"#,
        r#"{"jsonrpc":"2.0","id":1}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":7}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":null}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"x","params":"p"}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"x","params":1}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"x","result":1}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":1,"error":{}}"#,
        r#"{"jsonrpc":"2.0","id":1,"error":"text"}"#,
        r#"{"jsonrpc":"2.0","result":1}"#,
        long.as_str(),
    ] {
        assert_eq!(refused(body), Reason::InvalidRequest, "{body}");
    }
}

#[test]
fn over_a2a_parameters_of_any_type_reach_the_gateway() {
    for params in ["\"p\"", "1", "true", "[]", "null", "{}"] {
        let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{params}}}"#);
        let envelope = scan(body.as_bytes(), Binding::A2a).unwrap();
        let found = (envelope.kind, envelope.method.as_str(), envelope.task);
        assert_eq!(found, (EnvelopeKind::Request, "GetTask", None), "{params}");
    }
    let batch = br#"[{"jsonrpc":"2.0","id":1,"method":"GetTask"}]"#;
    assert_eq!(scan(batch, Binding::A2a), Err(Reason::InvalidRequest));
}

#[test]
fn repeated_keys_are_refused_where_policy_reads() {
    for body in [
        r#"{"jsonrpc":"2.0","id":1,"method":"a","method":"b"}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"a","\u006dethod":"b"}"#,
        r#"{"jsonrpc":"2.0","jsonrpc":"2.0","id":1,"method":"a"}"#,
        r#"{"jsonrpc":"2.0","id":1,"id":1,"method":"a"}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"a","params":{},"id":1}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"a","params":{},"params":{}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"a","x":1,"x":1}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","name":"b"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","\u006eame":"b"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"a","params":{"_meta":{"k":1,"k":2}}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"a","params":{"_meta":{},"_meta":{}}}"#,
    ] {
        assert_eq!(refused(body), Reason::InvalidRequest, "{body}");
    }
    accepted(r#"{"jsonrpc":"2.0","id":1,"method":"a","params":{"arguments":{"x":1,"x":2}}}"#);
    let keys: Vec<String> = (0..100).chain([7]).map(|number| format!("\"k{number}\":0")).collect();
    let with = |keys: &[String]| {
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"a","params":{{{}}}}}"#, keys.join(","))
    };
    accepted(&with(&keys[..100]));
    assert_eq!(refused(&with(&keys)), Reason::InvalidRequest, "the last one repeats another");
    let many: Vec<String> = (0..2000).map(|number| format!("\"k{number}\":0")).collect();
    assert_eq!(
        refused(&format!(r#"{{"jsonrpc":"2.0","method":"a",{}}}"#, many.join(","))),
        Reason::InvalidRequest
    );
}

#[test]
fn a_syntax_fault_wins_over_an_envelope_fault() {
    assert_eq!(refused(r#"{"jsonrpc":"1.0","id":null,"#), Reason::ParseError);
    assert_eq!(refused(r#"{"id":1,"id":2}x"#), Reason::ParseError);
    assert_eq!(refused("[] []"), Reason::ParseError);
    assert_eq!(refused(""), Reason::ParseError);
}

fn batch_of(count: usize, message: &str) -> String {
    format!("[{}]", vec![message; count].join(","))
}

#[test]
fn a_batch_is_accepted_where_its_revision_is_spoken() {
    let message = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a"}}"#;
    for count in [1, MAX_BATCH] {
        let body = batch_of(count, message);
        let envelope = scan(body.as_bytes(), Binding::McpBatches).unwrap();
        assert_eq!(envelope.kind, EnvelopeKind::Batch(count));
        assert_eq!((envelope.batch.len(), envelope.batch[0].name.as_deref()), (count, Some("a")));
        assert_eq!(refused(&body), Reason::InvalidRequest);
    }
    for body in [
        "[]".to_owned(),
        batch_of(MAX_BATCH + 1, message),
        batch_of(100_000, message),
        "[1]".to_owned(),
        format!("[{message},[{message}]]"),
        format!("[{message},{{}}]"),
        r#"[{"jsonrpc":"2.0","id":1,"method":"a","method":"b"}]"#.to_owned(),
        r#"[{"jsonrpc":"2.0","id":1,"method":"a","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}]"#
            .to_owned(),
    ] {
        assert_eq!(scan(body.as_bytes(), Binding::McpBatches), Err(Reason::InvalidRequest), "{body:.80}");
    }
}

/// Computes the expected result of a scan from a DOM. The caller leaves out texts with repeated keys.
fn expected(message: &Json) -> Option<(EnvelopeKind, String, Option<String>)> {
    let object = message.as_object()?;
    let id = match object.get("id") {
        Some(Json::String(_)) => true,
        Some(Json::Number(number)) => match number.is_i64() || number.is_u64() {
            true => true,
            false => return None,
        },
        Some(_) => return None,
        None => false,
    };
    let method = match object.get("method") {
        Some(Json::String(method)) => Some(method.clone()),
        Some(_) => return None,
        None => None,
    };
    let params = object.get("params").unwrap_or(&Json::Null);
    let error = object.get("error").is_some_and(|error| !error.is_object());
    if object.get("jsonrpc")? != "2.0"
        || error
        || !matches!(params, Json::Null | Json::Array(_) | Json::Object(_))
    {
        return None;
    }
    let kind = match (&method, object.contains_key("result"), object.contains_key("error"), id) {
        (Some(_), false, false, true) => EnvelopeKind::Request,
        (Some(_), false, false, false) => EnvelopeKind::Notification,
        (None, true, false, true) | (None, false, true, true) => EnvelopeKind::Response,
        _ => return None,
    };
    let member = match method.as_deref() {
        Some("tools/call" | "prompts/get") => Some("name"),
        Some("resources/read") => Some("uri"),
        _ => None,
    };
    let name = member.and_then(|member| params.get(member)).and_then(Json::as_str).map(str::to_owned);
    Some((kind, method.unwrap_or_default(), name))
}

/// Returns the members of an object in order, including repeated ones.
struct Members(Vec<(String, Box<RawValue>)>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Members, D::Error> {
        deserializer.deserialize_map(MembersVisitor)
    }
}

struct MembersVisitor;

impl<'de> Visitor<'de> for MembersVisitor {
    type Value = Members;

    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = map.next_entry()? {
            members.push(member);
        }
        Ok(Members(members))
    }
}

/// Whether the message, its params or their `_meta` repeats a key.
fn repeats(text: &[u8]) -> bool {
    let Ok(Members(members)) = serde_json::from_slice(text) else { return false };
    let mut seen = HashSet::new();
    members.iter().any(|(key, value)| {
        let below = matches!(key.as_str(), "params" | "_meta") && repeats(value.get().as_bytes());
        !seen.insert(key) || below
    })
}

/// Generates a message that is often nearly valid.
fn message(generator: &mut Generator) -> String {
    let mut members = Vec::new();
    let mut add = |generator: &mut Generator, odds: usize, key: &str, choices: &[&str]| {
        if generator.below(100) < odds {
            members.push(format!("\"{key}\": {}", generator.pick(choices)));
        }
    };
    add(generator, 97, "jsonrpc", &["\"2.0\"", "\"2.0\"", "\"2.0\"", "\"2\\u002e0\"", "\"1.0\"", "2.0"]);
    add(generator, 80, "id", &["1", "-5", "\"a\"", "\"\\u0041\"", "1.5", "null", "18446744073709551615"]);
    add(
        generator,
        85,
        "method",
        &["\"tools/call\"", "\"resources\\/read\"", "\"prompts/get\"", "\"x\"", "7"],
    );
    add(generator, 10, "result", &["{}", "null"]);
    add(generator, 10, "error", &["{}", "1"]);
    if generator.below(100) < 80 {
        let params = match generator.below(3) {
            0 => generator.value(3),
            _ => format!(
                "{{\"uri\":{},\"name\":{},\"arguments\":{}}}",
                generator.value(1),
                generator.value(0),
                generator.value(4)
            ),
        };
        members.push(format!("\"params\":{params}"));
    }
    if generator.below(3) == 0 {
        members.reverse();
    }
    format!("{{{}}}", members.join(" , "))
}

#[test]
fn the_scan_says_what_a_dom_would_say() {
    let mut generator = Generator::new(0xa5b);
    let mut accepted = 0;
    let mut invalid = 0;
    let mut malformed = 0;
    for _ in 0..40_000 {
        let mut text = message(&mut generator).into_bytes();
        generator.mutate(&mut text);
        let shown = String::from_utf8_lossy(&text).into_owned();
        let text_of = std::str::from_utf8(&text).ok();
        let beyond = |text: &&str| {
            let mut cursor = asp_json::Cursor::new(text.as_bytes()).unwrap();
            cursor.value().is_ok() && cursor.beyond_double
        };
        let dom: Option<Json> =
            text_of.filter(|text| !beyond(text)).and_then(|text| asp_json::decode(text).ok());
        match (scan(&text, Binding::Mcp), dom) {
            (Err(Reason::ParseError), dom) => {
                assert!(dom.is_none(), "{shown}");
                malformed += 1;
            }
            (Ok(envelope), Some(dom)) => {
                let found = (envelope.kind, envelope.method, envelope.name);
                assert!(!repeats(&text), "{shown}");
                assert_eq!(Some(found), expected(&dom), "{shown}");
                let id: Option<Json> = envelope.id.map(|id| asp_json::decode(&id).unwrap());
                assert_eq!(id.as_ref(), dom.get("id"), "{shown}");
                accepted += 1;
            }
            (Err(_), Some(dom)) => {
                assert!(expected(&dom).is_none() || repeats(&text), "{shown}");
                invalid += 1;
            }
            (_, None) => panic!("accepted what is no JSON: {shown}"),
        }
    }
    assert!(accepted > 3_000 && invalid > 3_000 && malformed > 3_000, "{accepted} {invalid} {malformed}");
}
