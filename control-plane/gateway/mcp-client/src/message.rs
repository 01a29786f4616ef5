//! One JSON-RPC message of an upstream: an answer, a request, a notification, or nothing that MCP knows.

use std::ops::{Deref, DerefMut};

use asp_json::{Json, integers};
use asp_outbound::service_text::sanitize_message;
use serde_json::{Map, Value};

/// A message by its kind.
#[derive(Debug, PartialEq)]
pub(super) enum Message {
    /// Answer to our request with this id.
    Answer {
        id: u64,
        outcome: Result<UpstreamObject, Failure>,
    },
    /// Request with the id for its answer, a text or a number.
    Request {
        id: Json,
        method: String,
        params: UpstreamObject,
    },
    Notification {
        method: String,
        params: UpstreamObject,
    },
    /// An error without the id of a request of ours: the server could not read which one it answers (JSON-RPC 2.0,
    /// response object).
    Unaddressed(Failure),
}

/// A result or the parameters of a message: the members, and the JSON as it was sent.
#[derive(Debug, PartialEq)]
pub struct UpstreamObject {
    members: Map<String, Value>,
    pub sent: Json,
}

impl Default for UpstreamObject {
    fn default() -> UpstreamObject {
        UpstreamObject { members: Map::new(), sent: Value::Object(Map::new()).into() }
    }
}

impl Deref for UpstreamObject {
    type Target = Map<String, Value>;

    fn deref(&self) -> &Map<String, Value> {
        &self.members
    }
}

impl DerefMut for UpstreamObject {
    fn deref_mut(&mut self) -> &mut Map<String, Value> {
        &mut self.members
    }
}

impl UpstreamObject {
    /// Reads an object, or the empty list that stands for one; `None` for another value.
    pub(super) fn of(sent: Json) -> Option<UpstreamObject> {
        if is_empty_list(&sent) {
            return Some(UpstreamObject::default());
        }
        let members = sent.view().as_object()?.clone();
        Some(UpstreamObject { members, sent })
    }
}

/// The upstream's own JSON-RPC error, safe to display.
#[derive(Debug, PartialEq)]
pub(super) struct Failure {
    pub code: i64,
    pub message: String,
    /// Pages that the user has to visit first, wherever they are.
    pub visits: Vec<RequiredPage>,
    /// Further data, as the upstream wrote it.
    pub data: Option<Json>,
}

/// A page that a server requires its user to visit first.
#[derive(Debug, PartialEq)]
pub struct RequiredPage {
    /// Id that the server gives the visit.
    pub id: String,
    /// One line, safe to show.
    pub message: String,
    /// Address as the server wrote it, which nobody has checked.
    pub url: String,
}

/// A notification about a request, with the parts that the server wrote.
#[derive(Debug, PartialEq)]
pub enum ServerEvent {
    /// `progress` and `total` are numbers.
    Progress {
        progress: Json,
        total: Option<Json>,
        message: Option<String>,
    },
    Log {
        level: Option<String>,
        logger: Option<String>,
        data: Json,
    },
}

/// JSON-RPC 2.0 codes: an internal error, and a method that the receiver does not have.
pub(super) const INTERNAL: i64 = -32603;
pub(super) const METHOD_NOT_FOUND: i64 = -32601;
/// MCP 2025-11-25 code: URL elicitation required.
const URL_ELICITATION_REQUIRED: i64 = -32042;
/// Maximum number of pages in one error, and maximum length of an id in bytes.
const MAX_VISITS: usize = 16;
const MAX_NAME: usize = 512;

impl Message {
    /// Parses a message; `None` if it is not one, which is skipped as other clients do.
    pub(super) fn of(message: &Json) -> Option<Message> {
        let Value::Object(mut members) = message.view().clone() else { return None };
        // Some servers write every member that a message may have: null counts as absent.
        members.retain(|_, value| !value.is_null());
        let id = members.remove("id");
        let Some(method) = members.remove("method") else { return answer(message, members, id.as_ref()) };
        let Value::String(method) = method else { return None };
        let params = match members.remove("params") {
            Some(Value::Object(members)) => UpstreamObject { members, sent: message.member("params")? },
            None => UpstreamObject::default(),
            Some(params) if is_empty_list(&params) => UpstreamObject::default(),
            Some(_) => return None,
        };
        match id {
            None => Some(Message::Notification { method, params }),
            Some(id) if id.is_string() || id.as_f64().is_some_and(|id| id.fract() == 0.0) => {
                Some(Message::Request { id: message.member("id")?, method, params })
            }
            Some(_) => None,
        }
    }
}

/// Whether a value is an empty list, as PHP writes an object without members.
fn is_empty_list(value: &Value) -> bool {
    value.as_array().is_some_and(Vec::is_empty)
}

/// Parses an answer with its outcome; `None` for one to no request of ours.
fn answer(message: &Json, mut members: Map<String, Value>, id: Option<&Value>) -> Option<Message> {
    let failed = members.remove("error").map(|error| {
        let data = message.member("error").and_then(|error| error.member("data"));
        let data = data.filter(|data| !data.is_null());
        failure(&error, data)
    });
    // Only answers to our requests arrive here. Some servers give a request that they could not read an id of their own,
    // such as `server-error`.
    let Some(number) = id.and_then(request_number) else {
        return failed.filter(|_| id.is_none_or(Value::is_string)).map(Message::Unaddressed);
    };
    let outcome = match (failed, members.remove("result")) {
        (Some(failure), _) => Err(failure),
        (None, Some(Value::Object(members))) => {
            Ok(UpstreamObject { members, sent: message.member("result")? })
        }
        (None, Some(result)) if is_empty_list(&result) => Ok(UpstreamObject::default()),
        // Every MCP result is an object.
        (None, _) if message.get("result").is_some() => Err(Failure {
            code: INTERNAL,
            message: "the service's answer is malformed: result is not an object".into(),
            visits: Vec::new(),
            data: None,
        }),
        (None, _) => return None,
    };
    Some(Message::Answer { id: number, outcome })
}

/// Returns the id of our request as its server writes it: some write numbers as floats or as texts.
fn request_number(id: &Value) -> Option<u64> {
    match id {
        Value::String(text) => text.parse().ok().filter(|number: &u64| number.to_string() == *text),
        _ => {
            let mut number = id.clone();
            integers(&mut number);
            number.as_u64()
        }
    }
}

pub(super) fn failure(error: &Value, data: Option<Json>) -> Failure {
    // Some servers write only the text, and some write numbers as floats.
    let said = error.as_str().or_else(|| error.get("message")?.as_str());
    let said = said.map(sanitize_message).filter(|said| !said.is_empty());
    let mut code = error.get("code").cloned().unwrap_or_default();
    integers(&mut code);
    let code = code.as_i64().unwrap_or(INTERNAL);
    Failure {
        code,
        message: said.unwrap_or_else(|| "the service answered with an error".into()),
        visits: if code == URL_ELICITATION_REQUIRED { visits(error) } else { Vec::new() },
        data,
    }
}

/// Parses the pages of an error. If one is invalid, none is returned: visiting only some of the pages does not help
/// the user.
fn visits(error: &Value) -> Vec<RequiredPage> {
    let all = error.pointer("/data/elicitations").and_then(Value::as_array);
    let all = all.map(Vec::as_slice).filter(|all| all.len() <= MAX_VISITS).unwrap_or_default();
    let visit = |one: &Value| {
        let text = |name: &str| one.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
        text("mode").filter(|mode| *mode == "url")?;
        Some(RequiredPage {
            id: text("elicitationId").filter(|id| id.len() <= MAX_NAME)?.to_owned(),
            message: sanitize_message(text("message")?),
            url: text("url")?.to_owned(),
        })
    };
    all.iter().map(visit).collect::<Option<Vec<RequiredPage>>>().unwrap_or_default()
}

/// Returns the upstream's id of the page on which the user has finished (2025-11-25,
/// `notifications/elicitation/complete`).
pub(super) fn visited<'a>(method: &str, params: &'a Map<String, Value>) -> Option<&'a str> {
    let is_it = method == "notifications/elicitation/complete";
    params.get("elicitationId").filter(|_| is_it)?.as_str()
}

/// Converts a notification about a request: its progress, with the request id that we gave as its token, or a log
/// message.
pub(super) fn event(method: &str, params: &UpstreamObject) -> Option<(Option<u64>, ServerEvent)> {
    let event = server_event(method, params)?;
    let token = match event {
        ServerEvent::Progress { .. } => Some(params.get("progressToken").and_then(request_number)?),
        ServerEvent::Log { .. } => None,
    };
    Some((token, event))
}

/// Converts a notification about a request that is known.
pub(super) fn server_event(method: &str, params: &UpstreamObject) -> Option<ServerEvent> {
    let text = |name: &str| params.get(name).and_then(Value::as_str).map(str::to_owned);
    match method {
        "notifications/progress" => {
            let number = |name: &str| params.sent.member(name).filter(|number| number.is_number());
            Some(ServerEvent::Progress {
                progress: number("progress")?,
                total: number("total"),
                message: text("message"),
            })
        }
        "notifications/message" => {
            let data = params.sent.member("data").unwrap_or_else(|| Value::Null.into());
            Some(ServerEvent::Log { level: text("level"), logger: text("logger"), data })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_no_message_is_none() {
        for bad in [
            json!(null),
            json!([]),
            json!("x"),
            json!({}),
            json!({"id": 1}),
            json!({"id": "a", "result": {}}),
            json!({"id": "01", "result": {}}),
            json!({"id": "+1", "result": {}}),
            json!({"id": 1.5, "result": {}}),
            json!({"id": [1], "result": {}}),
            json!({"id": -1, "result": {}}),
            json!({"result": 7}),
            json!({"id": null, "result": {}}),
            json!({"id": 1, "error": null}),
            json!({"id": [1], "error": {"code": 1}}),
            json!({"method": 1}),
            json!({"method": "m", "params": [1]}),
            json!({"method": "m", "id": {}}),
            json!({"method": "m", "id": 1.5}),
            json!({"method": "m", "id": true}),
        ] {
            assert_eq!(Message::of(&bad.clone().into()), None, "{bad}");
        }
    }

    #[test]
    fn the_number_of_a_request_is_known_as_a_float_or_a_text_too() {
        for id in [json!(3), json!(3.0), json!("3")] {
            let answer = Message::of(&json!({"id": id, "result": {}}).into());
            assert!(matches!(answer, Some(Message::Answer { id: 3, .. })), "{answer:?}");
            let progress = json!({"progressToken": id, "progress": 1}).to_string();
            let (token, _) = told("notifications/progress", &progress).unwrap();
            assert_eq!(token, Some(3), "{id}");
        }
    }

    #[test]
    fn null_members_and_empty_lists_for_objects_are_as_good_as_none() {
        let is = |message: Value| Message::of(&message.into());
        let result = is(json!({"id": 1, "method": null, "params": null, "result": {}, "error": null}));
        assert_eq!(result, is(json!({"id": 1, "result": {}})));
        assert!(matches!(result, Some(Message::Answer { id: 1, outcome: Ok(_) })), "{result:?}");
        let error = is(json!({"id": 1, "result": null, "error": {"code": -5, "message": "no"}}));
        assert_eq!(error, is(json!({"id": 1, "error": {"code": -5, "message": "no"}})));
        for (message, without) in [
            (json!({"id": 1, "method": "ping", "params": null}), json!({"id": 1, "method": "ping"})),
            (json!({"method": "n", "params": null, "result": null}), json!({"method": "n"})),
            (json!({"id": 1, "method": "ping", "params": []}), json!({"id": 1, "method": "ping"})),
            (json!({"method": "n", "params": []}), json!({"method": "n"})),
            (json!({"id": 1, "result": []}), json!({"id": 1, "result": {}})),
            (json!({"id": 1, "error": {"code": -5, "data": null}}), json!({"id": 1, "error": {"code": -5}})),
        ] {
            assert!(is(without.clone()).is_some() && is(message) == is(without.clone()), "{without}");
        }
    }

    #[test]
    fn an_answer_without_a_result_of_mcp_says_so() {
        for result in [json!(null), json!(7), json!("text"), json!([{}])] {
            let answer = Message::of(&json!({"id": 1, "result": result}).into());
            let Some(Message::Answer { id: 1, outcome: Err(failure) }) = answer else { panic!("{answer:?}") };
            assert!(failure.message.contains("malformed: result is not an object"), "{failure:?}");
        }
    }

    #[test]
    fn an_error_keeps_its_words_and_its_code_however_they_are_written() {
        let error = |message: Value| match Message::of(&message.into()) {
            Some(Message::Answer { outcome: Err(failure), .. } | Message::Unaddressed(failure)) => {
                (failure.code, failure.message)
            }
            other => panic!("{other:?}"),
        };
        assert_eq!(error(json!({"id": 1, "error": "no such tool"})), (-32603, "no such tool".into()));
        let lines = "not-found: item 7 is missing\n  at shelf 3";
        assert_eq!(error(json!({"id": 1, "error": {"code": 4, "message": lines}})), (4, lines.into()));
        let refused = json!({"code": -32602.0, "message": "name required"});
        for id in [json!(1), json!(null), json!("server-error")] {
            let said = error(json!({"id": id, "error": refused}));
            assert_eq!(said, (-32602, "name required".into()), "{id}");
        }
        let unnamed = Message::of(&json!({"error": refused}).into());
        assert!(matches!(unnamed, Some(Message::Unaddressed(_))), "{unnamed:?}");
    }

    #[test]
    fn messages_are_told_apart() {
        let is = |message: Value| Message::of(&message.into()).unwrap();
        assert_eq!(
            is(json!({"jsonrpc": "2.0", "id": 3, "result": {"a": 1}})),
            Message::Answer {
                id: 3,
                outcome: Ok(UpstreamObject {
                    members: json!({"a": 1}).as_object().unwrap().clone(),
                    sent: json!({"a": 1}).into()
                })
            }
        );
        let error = json!({"code": -5, "message": "no\nsecond line", "data": {"n": 1}});
        let failed = Failure {
            code: -5,
            message: "no\nsecond line".into(),
            visits: vec![],
            data: Some(json!({"n": 1}).into()),
        };
        assert_eq!(is(json!({"id": 3, "error": error})), Message::Answer { id: 3, outcome: Err(failed) });
        let plain = Failure {
            code: -32603,
            message: "the service answered with an error".into(),
            visits: vec![],
            data: None,
        };
        assert_eq!(is(json!({"id": 3, "error": 0})), Message::Answer { id: 3, outcome: Err(plain) });
        for id in [json!("a"), json!(1), json!(-1)] {
            let method = "ping".to_owned();
            let params = UpstreamObject::default();
            let asked = is(json!({"id": id, "method": "ping"}));
            assert_eq!(asked, Message::Request { id: id.into(), method, params });
        }
        let method = "n".to_owned();
        let params = UpstreamObject::default();
        assert_eq!(is(json!({"id": null, "method": "n"})), Message::Notification { method, params });
    }

    /// Returns the event of a notification with these parameters.
    fn told(method: &str, params: &str) -> Option<(Option<u64>, ServerEvent)> {
        let sent = Json::parse(params.as_bytes()).unwrap();
        event(method, &UpstreamObject { members: sent.as_object().unwrap().clone(), sent })
    }

    #[test]
    fn progress_names_its_request_and_a_log_names_none() {
        let told = |method: &str, params: Value| told(method, &params.to_string());
        let (token, _) =
            told("notifications/progress", json!({"progressToken": 4, "progress": 0.5})).unwrap();
        assert_eq!(token, Some(4));
        for bad in [
            json!({"progressToken": "four", "progress": 1}),
            json!({"progressToken": 4}),
            json!({"progressToken": 4, "progress": "1"}),
            json!({"progress": 1}),
        ] {
            assert_eq!(told("notifications/progress", bad.clone()), None, "{bad}");
        }
        let (token, log) = told("notifications/message", json!({"level": "loud", "data": {"a": 1}})).unwrap();
        assert_eq!(token, None);
        let level = Some("loud".to_owned());
        assert_eq!(log, ServerEvent::Log { level, logger: None, data: json!({"a": 1}).into() });
        assert_eq!(told("notifications/tools/list_changed", json!({})), None);
    }

    #[test]
    fn what_an_event_holds_is_as_it_was_written() {
        let data = r#"{"n":340282366920938463463374607431768211455,"d":1.50,"s":"\ud83d"}"#;
        let (_, log) =
            told("notifications/message", &format!(r#"{{"level":"info","data":{data}}}"#)).unwrap();
        let ServerEvent::Log { data: kept, .. } = log else { panic!("{log:?}") };
        assert_eq!(kept.text(), data);
        let progress = r#"{"progressToken":4,"progress":9007199254740993,"total":1e30}"#;
        let (_, event) = told("notifications/progress", progress).unwrap();
        let ServerEvent::Progress { progress, total, .. } = event else { panic!("{event:?}") };
        assert_eq!((progress.text(), total.unwrap().text()), ("9007199254740993", "1e30"));
    }
}
