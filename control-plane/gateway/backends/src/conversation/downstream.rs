//! The client side of an upstream's conversation: the client of the call that a request belongs to.
//!
//! Owns: the requests that an upstream may make within a call, as questions of that call, and the answers in
//! JSON-RPC. Refuses: requests that the attached client cannot answer, forms beyond MCP's restricted schema, and
//! requests above their size. Keeps true: an upstream gets an answer or an error to each request; a question that it
//! withdraws is closed.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use asp_call::call::event::{Amount, Event, LogLevel};
use asp_call::call::outcome::Refusal;
use asp_call::call::question::{self, Answer, Ask, Question};
use asp_call::call::{Call, ClientAbilities, form, page};
use asp_json::{Json, Members};
use asp_mcp_client::client::ServerEvent;
use asp_mcp_client::client::downstream::{Downstream, RpcError};
use async_trait::async_trait;
use parking_lot::Mutex;
use serde_json::{Map, Value, json};

use crate::conversation::asking::{MAX_FORM, QuestionFault, put};
use crate::conversation::sampling::read_messages;

/// Maximum size of a sampling request in bytes, as JSON text: it may contain an image.
const MAX_SAMPLING: usize = 1 << 20;
/// Maximum number of pages that a call's user is on, and maximum length of an id in bytes.
const MAX_VISITS: usize = 16;
const MAX_NAME: usize = 512;
/// Codes of JSON-RPC 2.0 errors.
const INVALID_PARAMS: i64 = -32602;
const INTERNAL: i64 = -32603;
/// Code in MCP's own examples for a refusal by the user (2025-11-25, sampling, error handling).
const REJECTED: i64 = -1;

/// Clients of one call.
pub(crate) struct Clients {
    call: Arc<Call>,
    /// Pages below which the upstream may send their users.
    pages: Vec<String>,
    asked: AtomicU64,
    /// Questions whose page a user agreed to visit: the upstream's id and the question's.
    visiting: Mutex<Vec<(String, String)>>,
}

impl Clients {
    pub(crate) fn of(call: Arc<Call>, pages: &[String]) -> Clients {
        Clients { call, pages: pages.to_vec(), asked: AtomicU64::new(0), visiting: Mutex::default() }
    }
}

#[async_trait]
impl Downstream for Clients {
    fn receive_event(&self, event: ServerEvent) {
        if let Some(event) = converted(event) {
            self.call.emit(event);
        }
    }

    async fn answer_request(&self, method: &str, params: &Json) -> Result<Json, RpcError> {
        let visit = text(params, "elicitationId");
        let ask = ask(method, params, &self.pages)?;
        let call = &self.call;
        let visit = visit.filter(|_| matches!(ask, Ask::Page { .. }));
        let number = self.asked.fetch_add(1, Ordering::Relaxed) + 1;
        let id = format!("upstream.{number}");
        let open = Open { call, id: &id };
        let asked = put(call, Question { id: id.clone(), ask: ask.clone() }).map_err(refused)?;
        let answered = asked.answered(call).await;
        drop(open);
        if let (Some(visit), Ok(Answer::Accepted(_))) = (visit, &answered) {
            let mut visiting = self.visiting.lock();
            if visiting.len() < MAX_VISITS {
                visiting.push((visit, id));
            }
        }
        convert_answer(answered, &ask)
    }

    fn visited(&self, visit: &str) {
        let mut visiting = self.visiting.lock();
        if let Some(at) = visiting.iter().position(|(name, _)| name == visit) {
            let (_, id) = visiting.swap_remove(at);
            drop(visiting);
            self.call.emit(Event::Visited { id });
        }
    }
}

/// Converts an event of an upstream; `None` for progress without a number.
fn converted(event: ServerEvent) -> Option<Event> {
    Some(match event {
        ServerEvent::Progress { progress, total, message } => {
            let progress = Amount::of(&progress)?;
            let total = total.as_ref().and_then(Amount::of);
            Event::Progress { progress, total, message, gauges: BTreeMap::new() }
        }
        ServerEvent::Log { level, logger, data } => {
            let level = level.as_deref().and_then(LogLevel::parse);
            Event::Log { level: level.unwrap_or(LogLevel::Info), logger, data }
        }
    })
}

fn text(params: &Value, name: &str) -> Option<String> {
    params.get(name).and_then(Value::as_str).filter(|text| text.len() <= MAX_NAME).map(str::to_owned)
}

/// A question that is withdrawn when its answer is not awaited any more.
struct Open<'a> {
    call: &'a Call,
    id: &'a str,
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        question::take_back(self.call, self.id);
    }
}

/// Returns the capabilities to declare upstream for a client with these abilities.
pub(crate) fn capabilities(abilities: ClientAbilities, pages: &[String]) -> Value {
    let visits = abilities.pages && !pages.is_empty();
    let mut modes = Map::new();
    // A request without a mode asks for a form; older servers do not know modes.
    if visits {
        let named = [("form", abilities.elicitation), ("url", true)];
        named
            .iter()
            .filter(|(_, can)| *can)
            .for_each(|(name, _)| drop(modes.insert((*name).into(), json!({}))));
    }

    let mut model = Map::new();
    for (name, can) in [("tools", abilities.sampling_tools), ("context", abilities.sampling_context)] {
        if can {
            model.insert(name.into(), json!({}));
        }
    }
    let can = [
        ("elicitation", abilities.elicitation || visits, Value::Object(modes)),
        (
            "roots",
            abilities.roots,
            if abilities.roots_change { json!({"listChanged": true}) } else { json!({}) },
        ),
        ("sampling", abilities.sampling, Value::Object(model)),
    ];
    let declared = can.into_iter().filter(|(_, can, _)| *can).map(|(name, _, what)| (name.to_owned(), what));
    Value::Object(declared.collect())
}

const fn refused(fault: QuestionFault) -> RpcError {
    match fault {
        QuestionFault::Unsupported => RpcError::unknown_method(),
        QuestionFault::Full => {
            RpcError { code: INTERNAL, message: Cow::Borrowed("too many requests are open") }
        }
    }
}

const fn invalid(message: &'static str) -> RpcError {
    RpcError { code: INVALID_PARAMS, message: Cow::Borrowed(message) }
}

fn ask(method: &str, params: &Json, pages: &[String]) -> Result<Ask, RpcError> {
    match method {
        "elicitation/create" if params.get("mode").is_some_and(|mode| mode == "url") => visit(params, pages),
        "elicitation/create" => user_form(params),
        "sampling/createMessage" => sampling(params).map(Ask::Sampling),
        "roots/list" => Ok(Ask::Roots),
        _ => Err(RpcError::unknown_method()),
    }
}

/// Returns the question for a page below one that the spec names: an upstream cannot send the user anywhere else.
fn visit(params: &Value, pages: &[String]) -> Result<Ask, RpcError> {
    let member = |name: &str| params.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
    let (Some(message), Some(asked)) = (member("message"), member("url")) else {
        return Err(invalid("a page must have a message and a url"));
    };
    if message.len() > MAX_FORM {
        return Err(invalid("the message is too large"));
    }
    let url = pages.iter().find_map(|page| page::address(page, asked));
    let url = url.ok_or_else(|| invalid("the page is not below one that the spec of this tool declares"))?;
    Ok(Ask::Page { message: message.to_owned(), url })
}

fn user_form(params: &Json) -> Result<Ask, RpcError> {
    if params.get("mode").is_some_and(|mode| !mode.is_null() && mode != "form") {
        return Err(invalid("this mode of elicitation was not declared"));
    }
    let message = params.get("message").and_then(Value::as_str).map(str::to_owned);
    let (Some(message), Some(asked)) = (message, params.member("requestedSchema")) else {
        return Err(invalid("a form must have a message and a requestedSchema"));
    };
    if message.len() + asked.text().len() > MAX_FORM {
        return Err(invalid("the form is too large"));
    }
    let fault = |fault: form::FormError| RpcError { code: INVALID_PARAMS, message: fault.to_string().into() };
    let plain = form::plain(asked.view().clone(), MAX_FORM).map_err(fault)?;
    form::check_relayed(&plain).map_err(fault)?;
    Ok(Ask::Form { message, requested_schema: asked.changed_to(plain), relayed: true })
}

/// Returns the request without the tokens for progress and tasks, which belong to the upstream's own connection.
fn sampling(params: &Json) -> Result<Json, RpcError> {
    let mut own = Members::of(params);
    own.retain(|name| name != "_meta" && name != "task");
    let params = own.to_json();
    if read_messages(params.get("messages")).is_none() {
        return Err(invalid("a sampling request must have 1 to 256 messages with role and content"));
    }
    if !params.get("maxTokens").is_some_and(Value::is_number) {
        return Err(invalid("a sampling request must have maxTokens"));
    }
    if params.text().len() > MAX_SAMPLING {
        return Err(invalid("the sampling request is too large"));
    }
    Ok(params)
}

/// Converts an answer for the upstream. A form that was not answered in time counts as closed.
fn convert_answer(answered: Result<Answer, Refusal>, ask: &Ask) -> Result<Json, RpcError> {
    match answered {
        Ok(answer) => answer
            .into_result(ask)
            .map_err(|_| RpcError { code: REJECTED, message: "the client refused the request".into() }),
        Err(_) if matches!(ask, Ask::Form { .. } | Ask::Page { .. }) => {
            Ok(json!({"action": "cancel"}).into())
        }
        Err(_) => Err(RpcError { code: REJECTED, message: "the client did not answer".into() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::sampling::MAX_MESSAGES;

    const METHOD_NOT_FOUND: i64 = -32601;

    fn asked(method: &str, params: Value) -> Result<Ask, i64> {
        ask(method, &Json::from(params), &["https://pay.example.com/cards".into()])
            .map_err(|error| error.code)
    }

    #[test]
    fn a_request_that_is_none_gets_its_error_and_no_question() {
        let message = json!({"role": "user", "content": {"type": "text", "text": "x"}});
        let form = json!({"type": "object", "properties": {"a": {"type": "string"}}});
        let nested = json!({"type": "object", "properties": {"a": {"type": "object"}}});
        let fields: Map<String, Value> =
            (0..60).map(|n| (n.to_string(), json!({"$ref": "#/$defs/Large"}))).collect();
        let large = json!({"type": "string", "enum": ["x".repeat(MAX_FORM / 2)]});
        let growing = json!({"type": "object", "properties": fields, "$defs": {"Large": large}});
        for (method, params, code) in [
            ("elicitation/create", json!({}), INVALID_PARAMS),
            ("elicitation/create", json!({"message": 1, "requestedSchema": form}), INVALID_PARAMS),
            ("elicitation/create", json!({"message": "m", "requestedSchema": nested}), INVALID_PARAMS),
            ("elicitation/create", json!({"message": "m", "requestedSchema": 7}), INVALID_PARAMS),
            ("elicitation/create", json!({"message": "m", "requestedSchema": growing}), INVALID_PARAMS),
            (
                "elicitation/create",
                json!({"mode": "url", "message": "m", "url": "https://a"}),
                INVALID_PARAMS,
            ),
            ("elicitation/create", json!({"mode": "url", "message": "m"}), INVALID_PARAMS),
            (
                "elicitation/create",
                json!({"mode": "url", "message": "m", "url": "https://pay.example.com/other"}),
                INVALID_PARAMS,
            ),
            (
                "elicitation/create",
                json!({"message": "m".repeat(MAX_FORM), "requestedSchema": form}),
                INVALID_PARAMS,
            ),
            ("sampling/createMessage", json!({}), INVALID_PARAMS),
            ("sampling/createMessage", json!({"messages": [], "maxTokens": 1}), INVALID_PARAMS),
            ("sampling/createMessage", json!({"messages": [message]}), INVALID_PARAMS),
            (
                "sampling/createMessage",
                json!({"messages": [{"role": "system"}], "maxTokens": 1}),
                INVALID_PARAMS,
            ),
            (
                "sampling/createMessage",
                json!({"messages": vec![message.clone(); MAX_MESSAGES + 1], "maxTokens": 1}),
                INVALID_PARAMS,
            ),
            (
                "sampling/createMessage",
                json!({"messages": [message], "maxTokens": 1, "systemPrompt": "x".repeat(MAX_SAMPLING)}),
                INVALID_PARAMS,
            ),
            ("tools/call", json!({}), METHOD_NOT_FOUND),
            ("", json!({}), METHOD_NOT_FOUND),
        ] {
            assert_eq!(asked(method, params.clone()), Err(code), "{method} {}", params.to_string().len());
        }
    }

    #[test]
    fn what_is_asked_is_the_upstreams_without_what_belongs_to_its_connection() {
        let message = json!({"role": "user", "content": {"type": "text", "text": "x"}});
        let params =
            json!({"messages": [message], "maxTokens": 9, "_meta": {"progressToken": 1}, "task": {}});
        let expected = json!({"messages": [message], "maxTokens": 9}).into();
        assert_eq!(asked("sampling/createMessage", params), Ok(Ask::Sampling(expected)));
        assert_eq!(asked("roots/list", json!({})), Ok(Ask::Roots));
        let form =
            json!({"mode": null, "message": "m", "requestedSchema": {"type": "object", "properties": {}}});
        assert!(matches!(asked("elicitation/create", form), Ok(Ask::Form { .. })), "null is no mode");
        let tags = json!({"properties": {"tags": {"type": "array", "items": {"type": "string"}}}});
        let form = json!({"message": "m", "requestedSchema": tags});
        assert!(matches!(asked("elicitation/create", form), Ok(Ask::Form { .. })), "a list of free texts");
        let page = json!({"mode": "url", "message": "Pay", "url": "https://pay.example.com/cards/7", "elicitationId": "e"});
        let expected = Ask::Page { message: "Pay".into(), url: "https://pay.example.com/cards/7".into() };
        assert_eq!(asked("elicitation/create", page), Ok(expected));
    }

    #[test]
    fn what_is_asked_is_as_the_upstream_wrote_it() {
        let numbers = r#""maximum":340282366920938463463374607431768211455,"minimum":1.50"#;
        let field = format!(r#"{{"type":"number",{numbers},"title":"cut \ud83d"}}"#);
        let params = format!(
            r#"{{"message":"?","requestedSchema":{{"properties":{{"n":{field}}},"$defs":{{"x":{{"type":"string"}}}}}}}}"#
        );
        let asked = |method: &str, params: &str| ask(method, &Json::parse(params.as_bytes()).unwrap(), &[]);
        let Ok(Ask::Form { requested_schema, .. }) = asked("elicitation/create", &params) else { panic!() };
        assert!(requested_schema.text().contains(&field), "{requested_schema}");
        assert!(requested_schema.get("$defs").is_none(), "{requested_schema}");
        assert_eq!(requested_schema["type"], "object");
        let message = format!(r#"{{"role":"user","content":{{"type":"text","text":"x","later":{field}}}}}"#);
        let params = format!(r#"{{"messages":[{message}],"_meta":{{"progressToken":1}},"maxTokens":1e3}}"#);
        let Ok(Ask::Sampling(sent)) = asked("sampling/createMessage", &params) else { panic!() };
        assert_eq!(sent.text(), format!(r#"{{"messages":[{message}],"maxTokens":1e3}}"#));
    }

    #[test]
    fn a_client_is_declared_with_what_it_can_do_and_nothing_else() {
        let abilities = ClientAbilities { elicitation: true, roots: true, ..ClientAbilities::default() };
        assert_eq!(capabilities(abilities, &[]), json!({"elicitation": {}, "roots": {}}));
        let changing = ClientAbilities { roots_change: true, ..abilities };
        assert_eq!(capabilities(changing, &[])["roots"], json!({"listChanged": true}));
        let model = ClientAbilities {
            sampling: true,
            sampling_tools: true,
            pages: true,
            ..ClientAbilities::default()
        };
        assert_eq!(capabilities(model, &[]), json!({"sampling": {"tools": {}}}));
        assert_eq!(capabilities(ClientAbilities::default(), &[]), json!({}));
        let pages = ["https://pay.example.com".to_owned()];
        assert_eq!(capabilities(model, &pages)["elicitation"], json!({"url": {}}));
        let both = ClientAbilities { elicitation: true, ..model };
        assert_eq!(capabilities(both, &pages)["elicitation"], json!({"form": {}, "url": {}}));
        assert_eq!(capabilities(abilities, &pages)["elicitation"], json!({}));
    }

    #[test]
    fn an_event_keeps_its_numbers_and_has_a_level_that_clients_know() {
        let json = |text: &str| Json::parse(text.as_bytes()).unwrap();
        let progress = |progress: &str| {
            let progress = json(progress);
            converted(ServerEvent::Progress { progress, total: Some(json("1e30")), message: None })
        };
        let Some(Event::Progress { progress: amount, total, .. }) = progress("9007199254740993") else {
            panic!("no progress")
        };
        let total = total.unwrap().as_json();
        assert_eq!((amount.as_json().text(), total.text()), ("9007199254740993", "1e30"));
        assert_eq!(progress(r#""1""#), None);
        for (level, expected) in
            [(Some("warning"), LogLevel::Warning), (Some("loud"), LogLevel::Info), (None, LogLevel::Info)]
        {
            let event = |level: Option<&str>| {
                let level = level.map(str::to_owned);
                converted(ServerEvent::Log { level, logger: None, data: json!([1]).into() })
            };
            let data = json!([1]).into();
            assert_eq!(event(level), Some(Event::Log { level: expected, logger: None, data }));
        }
    }

    #[test]
    fn every_answer_has_its_result_or_its_error() {
        let cancelled = json!({"action": "cancel"});
        let form = Ask::Form { message: "?".into(), requested_schema: json!({}).into(), relayed: true };
        let page = Ask::Page { message: "?".into(), url: "https://pay.example.com".into() };
        let model = Ask::Sampling(json!({}).into());
        let filled = || Ok(Answer::Accepted(json!({"a": 1}).into()));
        for (answered, ask, expected) in [
            (filled(), &form, Ok(json!({"action": "accept", "content": {"a": 1}}))),
            (filled(), &page, Ok(json!({"action": "accept"}))),
            (Ok(Answer::Declined), &form, Ok(json!({"action": "decline"}))),
            (Ok(Answer::Cancelled), &form, Ok(cancelled.clone())),
            (Err(Refusal::InputExpired), &form, Ok(cancelled)),
            (Ok(Answer::Roots(json!([]).into())), &Ask::Roots, Ok(json!({"roots": []}))),
            (Ok(Answer::Sampled(json!({"m": 1}).into())), &model, Ok(json!({"m": 1}))),
            (Ok(Answer::Failed("Bearer x".into())), &Ask::Roots, Err(REJECTED)),
            (Err(Refusal::InputExpired), &Ask::Roots, Err(REJECTED)),
        ] {
            assert_eq!(convert_answer(answered, ask).map_err(|error| error.code), expected.map(Json::from));
        }
    }
}
