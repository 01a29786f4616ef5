//! What one JSON-RPC message of an upstream is: an answer, a request, a notification, or nothing that MCP knows.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};

use asp_json::Json;
use serde_json::{Map, Value};

use crate::call::event::{Event, LogLevel};
use crate::call::held;
use crate::call::page::Visit;
use crate::executors::outbound::said::shown;

/// A message by its kind.
#[derive(Debug, PartialEq)]
pub(super) enum Message {
    /// To our request with this number.
    Answer {
        id: u64,
        outcome: Result<UpstreamResult, Failure>,
    },
    /// To be answered under this id, a text or a number.
    Request {
        id: Value,
        method: String,
        params: Map<String, Value>,
    },
    Notification {
        method: String,
        params: Map<String, Value>,
    },
}

/// The result of a request: its members, and as it was sent.
#[derive(Debug, PartialEq)]
pub struct UpstreamResult {
    members: Map<String, Value>,
    pub sent: Json,
}

impl Deref for UpstreamResult {
    type Target = Map<String, Value>;

    fn deref(&self) -> &Map<String, Value> {
        &self.members
    }
}

impl DerefMut for UpstreamResult {
    fn deref_mut(&mut self) -> &mut Map<String, Value> {
        &mut self.members
    }
}

/// The upstream's own JSON-RPC error, fit to be shown.
#[derive(Debug, PartialEq)]
pub(super) struct Failure {
    pub code: i64,
    pub message: String,
    /// The pages that the user has to visit first, wherever they are.
    pub visits: Vec<Visit>,
    /// More about it, as the upstream wrote it, without white space between its tokens.
    pub data: Option<Json>,
}

/// MCP 2025-11-25, URL elicitation required.
const URL_ELICITATION_REQUIRED: i64 = -32042;
/// Most pages of one error, and the longest name of one in bytes.
const MAX_VISITS: usize = 16;
const MAX_NAME: usize = 512;
/// Most that the data of one error takes in memory, in bytes; more is left out.
const MAX_DATA: usize = 64 << 10;

impl Message {
    /// `None` for what is no message: it is skipped, as other clients do.
    pub(super) fn of(message: &Json) -> Option<Message> {
        let Value::Object(mut members) = message.view().clone() else { return None };
        let id = members.remove("id").filter(|id| !id.is_null());
        let Some(method) = members.remove("method") else {
            // Nobody else's answer comes here.
            let id = id.as_ref().and_then(Value::as_u64)?;
            let outcome = match (members.remove("result"), members.remove("error")) {
                (Some(Value::Object(members)), None) => {
                    let sent = message.member("result")?;
                    Ok(UpstreamResult { members, sent })
                }
                (_, Some(error)) => {
                    let data = message.member("error").and_then(|error| error.member("data"));
                    Err(failure(&error, data))
                }
                _ => return None,
            };
            return Some(Message::Answer { id, outcome });
        };
        let Value::String(method) = method else { return None };
        let params = match members.remove("params") {
            Some(Value::Object(params)) => params,
            None => Map::new(),
            Some(_) => return None,
        };
        match id {
            None => Some(Message::Notification { method, params }),
            Some(id) if id.is_string() || id.is_i64() || id.is_u64() => {
                Some(Message::Request { id, method, params })
            }
            Some(_) => None,
        }
    }
}

fn failure(error: &Value, data: Option<Json>) -> Failure {
    let said = error.get("message").and_then(Value::as_str).map(shown).filter(|said| !said.is_empty());
    let code = error.get("code").and_then(Value::as_i64).unwrap_or(-32603);
    Failure {
        code,
        message: said.unwrap_or_else(|| "the service answered with an error".into()),
        visits: if code == URL_ELICITATION_REQUIRED { visits(error) } else { Vec::new() },
        data: data.filter(|data| held::of_value(data.view()) <= MAX_DATA).map(|data| data.compact()),
    }
}

/// None where one of them is none: a user who visits some of the pages is no further.
fn visits(error: &Value) -> Vec<Visit> {
    let all = error.pointer("/data/elicitations").and_then(Value::as_array);
    let all = all.map(Vec::as_slice).filter(|all| all.len() <= MAX_VISITS).unwrap_or_default();
    let visit = |one: &Value| {
        let text = |name: &str| one.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
        text("mode").filter(|mode| *mode == "url")?;
        Some(Visit {
            id: text("elicitationId").filter(|id| id.len() <= MAX_NAME)?.to_owned(),
            message: shown(text("message")?),
            url: text("url")?.to_owned(),
        })
    };
    all.iter().map(visit).collect::<Option<Vec<Visit>>>().unwrap_or_default()
}

/// The page on which a user is done, by the upstream's name of it (2025-11-25, `notifications/elicitation/complete`).
pub(super) fn visited<'a>(method: &str, params: &'a Map<String, Value>) -> Option<&'a str> {
    let is_it = method == "notifications/elicitation/complete";
    params.get("elicitationId").filter(|_| is_it)?.as_str()
}

/// What a notification tells of a request: its progress, by the number that we gave as its token, or a log message.
pub(super) fn event(method: &str, mut params: Map<String, Value>) -> Option<(Option<u64>, Event)> {
    let text =
        |params: &Map<String, Value>, name: &str| params.get(name).and_then(Value::as_str).map(str::to_owned);
    match method {
        "notifications/progress" => {
            let event = Event::Progress {
                progress: params.get("progress").and_then(Value::as_f64)?,
                total: params.get("total").and_then(Value::as_f64),
                message: text(&params, "message"),
                gauges: BTreeMap::new(),
            };
            Some((Some(params.get("progressToken").and_then(Value::as_u64)?), event))
        }
        "notifications/message" => {
            let level = params.get("level").and_then(Value::as_str).and_then(LogLevel::parse);
            let logger = text(&params, "logger");
            let data = params.remove("data").unwrap_or(Value::Null);
            Some((None, Event::Log { level: level.unwrap_or(LogLevel::Info), logger, data }))
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
            json!({"id": "1", "result": {}}),
            json!({"id": -1, "result": {}}),
            json!({"id": 1, "result": 7}),
            json!({"id": 1, "result": null}),
            json!({"method": 1}),
            json!({"method": "m", "params": []}),
            json!({"method": "m", "id": {}}),
            json!({"method": "m", "id": 1.5}),
            json!({"method": "m", "id": true}),
        ] {
            assert_eq!(Message::of(&bad.clone().into()), None, "{bad}");
        }
    }

    #[test]
    fn messages_are_told_apart() {
        let is = |message: Value| Message::of(&message.into()).unwrap();
        assert_eq!(
            is(json!({"jsonrpc": "2.0", "id": 3, "result": {"a": 1}})),
            Message::Answer {
                id: 3,
                outcome: Ok(UpstreamResult {
                    members: json!({"a": 1}).as_object().unwrap().clone(),
                    sent: json!({"a": 1}).into()
                })
            }
        );
        let error = json!({"code": -5, "message": "no\nsecond line", "data": {"n": 1}});
        let failed =
            Failure { code: -5, message: "no".into(), visits: vec![], data: Some(json!({"n": 1}).into()) };
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
            let params = Map::new();
            assert_eq!(is(json!({"id": id, "method": "ping"})), Message::Request { id, method, params });
        }
        let method = "n".to_owned();
        let params = Map::new();
        assert_eq!(is(json!({"id": null, "method": "n"})), Message::Notification { method, params });
    }

    #[test]
    fn progress_names_its_request_and_a_log_names_none() {
        let told = |method: &str, params: Value| event(method, params.as_object().unwrap().clone());
        let (token, _) =
            told("notifications/progress", json!({"progressToken": 4, "progress": 0.5})).unwrap();
        assert_eq!(token, Some(4));
        for bad in [
            json!({"progressToken": "4", "progress": 1}),
            json!({"progressToken": 4}),
            json!({"progress": 1}),
        ] {
            assert_eq!(told("notifications/progress", bad.clone()), None, "{bad}");
        }
        let (token, log) = told("notifications/message", json!({"level": "loud", "data": {"a": 1}})).unwrap();
        assert_eq!(token, None);
        assert_eq!(log, Event::Log { level: LogLevel::Info, logger: None, data: json!({"a": 1}) });
        assert_eq!(told("notifications/tools/list_changed", json!({})), None);
    }
}
