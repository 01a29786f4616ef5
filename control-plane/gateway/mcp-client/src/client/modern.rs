//! A client of MCP 2026-07-28: each request carries what a session establishes in the legacy era.
//!
//! Owns: which upstreams speak only that revision, and a request's headers, rounds and result. Keeps true: an
//! upstream is greeted as a legacy one first; its questions go to the call's own client, and the answers are sent
//! with the repeated request, a bounded number of times; a cancel is a dropped response; no message contains
//! credentials.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use asp_json::{Json, Members};
use asp_proto::mcp_revision::Revision;
use asp_snapshot::param_headers::encode;
use futures::future::try_join_all;
use parking_lot::Mutex;
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, InvalidHeaderValue};
use reqwest::{StatusCode, Url};
use serde_json::{Map, Value, json};

use super::downstream::Downstream;
use super::exchange::{StreamRequests, until_answered};
use super::reading::{Messages, loss};
use super::session::{Offers, Session, SessionHeaders};
use super::{Client, ClientFault, Exchange, fetch};
use crate::message::{INTERNAL, METHOD_NOT_FOUND, UpstreamObject};

pub(super) const REVISION: &str = Revision::V2026_07_28.as_str();
const VERSION: &str = "io.modelcontextprotocol/protocolVersion";
const CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";
const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
/// Log level that is requested: all, because each client of the call gets the levels that it asked for.
const ALL_LOGS: &str = "debug";
/// Error codes that refuse a greeting of the legacy era: invalid request, method or parameters, a missing header, an
/// unsupported revision.
const REFUSES_GREETING: [i64; 5] = [-32600, -32601, -32602, -32020, UNSUPPORTED_VERSION];
pub(super) const UNSUPPORTED_VERSION: i64 = -32022;
/// Maximum number of remembered upstreams. Beyond it one of them is greeted again, which costs a round trip.
const MAX_REMEMBERED: usize = 1024;
/// Maximum number of times that one request is sent: a server that keeps asking is not served.
const MAX_ROUNDS: u64 = 10;
/// Maximum number of an upstream's requests in one round, as in a stream of the legacy era.
const MAX_ASKED: usize = 16;
/// Pause before a request is repeated for a server that asked nothing, and so only wants a delay.
const PAUSE: Duration = Duration::from_secs(1);
/// Bit from which the ids of one request's rounds differ: above any id that a gateway reaches, and exact as a JSON
/// number.
const ROUND: u32 = 48;

/// Upstreams known to refuse the legacy era, and their capabilities.
#[derive(Clone, Default)]
pub struct Eras {
    modern: Arc<Mutex<HashMap<String, Offers>>>,
}

impl Eras {
    /// Returns the upstream's capabilities, if it is known to be modern.
    pub(super) fn modern(&self, url: &Url) -> Option<Offers> {
        self.modern.lock().get(url.as_str()).copied()
    }

    fn remember(&self, url: &Url, offers: Offers) {
        let mut modern = self.modern.lock();
        if modern.len() >= MAX_REMEMBERED && !modern.contains_key(url.as_str()) {
            let one = modern.keys().next().cloned();
            if let Some(one) = one {
                modern.remove(&one);
            }
        }
        modern.insert(url.to_string(), offers);
    }

    fn forget(&self, url: &Url) {
        self.modern.lock().remove(url.as_str());
    }
}

/// Creates a session for a client with these capabilities, without a request to the server.
pub(super) fn session(client: &Client, capabilities: Value, offers: Offers) -> Session {
    let at = SessionHeaders { id: None, revision: Some(HeaderValue::from_static(REVISION)) };
    let mut session = Session::new(client.clone(), at);
    session.modern = Some(capabilities);
    session.offers = offers;
    session
}

/// Whether a server that answered a greeting like this may be of this era.
pub(super) fn may_be(status: StatusCode, fault: &ClientFault) -> bool {
    let refuses = match fault {
        ClientFault::Error { code, .. } => REFUSES_GREETING.contains(code),
        ClientFault::Refused { .. } => true,
        _ => false,
    };
    refuses && matches!(status, StatusCode::BAD_REQUEST | StatusCode::NOT_FOUND)
}

/// Asks the server which revisions it speaks; `None` if this one is not among them.
pub(super) async fn discover(client: &Client, capabilities: Value) -> Option<Session> {
    let mut session = session(client, capabilities, Offers::default());
    let exchange = client.alone("server/discover", json!({}));
    let said = request(client, &session, &exchange).await.ok()?;
    let versions = said.get("supportedVersions").and_then(Value::as_array)?;
    if !versions.iter().any(|version| version == REVISION) {
        return None;
    }
    session.offers = Offers::of(&said);
    session.instructions = super::session::instructions(&said);
    client.eras.remember(&client.url, session.offers);
    Some(session)
}

/// Sends a request, as often as the server asks for input, and waits for its result.
pub(super) async fn request(
    client: &Client,
    session: &Session,
    exchange: &Exchange<'_>,
) -> Result<UpstreamObject, ClientFault> {
    let rounds = async {
        let mut said = Members::default();
        for round in 0..MAX_ROUNDS {
            let result = send(client, session, exchange, (round, said)).await?;
            match result.get("resultType").and_then(Value::as_str).unwrap_or("complete") {
                "complete" => return Ok(result),
                "input_required" => said = answers(exchange, result).await?,
                _ => return Err(loss("the service answered with a result of an undeclared kind")),
            }
        }
        Err(loss("the service asks more often than a call allows"))
    };
    tokio::select! {
        result = rounds => result,
        () = exchange.cancelled.cancelled() => Err(ClientFault::Cancelled),
    }
}

async fn send(
    client: &Client,
    session: &Session,
    exchange: &Exchange<'_>,
    (round, said): (u64, Members),
) -> Result<UpstreamObject, ClientFault> {
    let id = exchange.id + (round << ROUND);
    let capabilities = session.modern.clone().unwrap_or_else(|| json!({}));
    let params = Value::Object(params(&exchange.params, capabilities));
    let headers = headers(&session.at, exchange)?;
    let message = exchange.sent.request(id, exchange.method, &params, &said);
    let request = client.http.post(client.url.clone()).headers(client.proof.headers()).headers(headers);
    let response = fetch(request.body(message), &session.at).await?;
    let status = response.status();
    let mut messages = Messages::answering(response, exchange.method);
    let answered = until_answered(&mut messages, &mut StreamRequests::default(), id, exchange).await;
    let speaks_no_more = match &answered {
        Err(ClientFault::Error { code, .. }) => {
            *code == UNSUPPORTED_VERSION || (status == StatusCode::NOT_FOUND && *code != METHOD_NOT_FOUND)
        }
        Err(ClientFault::Refused { .. }) => status == StatusCode::NOT_FOUND,
        _ => false,
    };
    if !speaks_no_more {
        return answered;
    }
    client.eras.forget(&client.url);
    // Once the server has asked something, the call does not begin again.
    if round == 0 { Err(ClientFault::SessionEnded) } else { answered }
}

/// Adds the metadata to the parameters that a session would have established.
pub(super) fn params(params: &Value, capabilities: Value) -> Map<String, Value> {
    let mut params = params.as_object().cloned().unwrap_or_default();
    let mut meta = match params.remove("_meta") {
        Some(Value::Object(meta)) => meta,
        _ => Map::new(),
    };
    if meta.contains_key("progressToken") {
        meta.insert(LOG_LEVEL.into(), ALL_LOGS.into());
    }
    meta.insert(VERSION.into(), REVISION.into());
    meta.insert(CLIENT_INFO.into(), json!({"name": "asp", "version": env!("CARGO_PKG_VERSION")}));
    meta.insert(CAPABILITIES.into(), capabilities);
    params.insert("_meta".into(), Value::Object(meta));
    params
}

/// Builds the headers of a request, which mirror its body (SEP-2243).
pub(super) fn headers(at: &SessionHeaders, exchange: &Exchange<'_>) -> Result<HeaderMap, ClientFault> {
    let mut headers = at.headers();
    headers.extend(exchange.headers.clone());
    headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let mirrored = method_headers(exchange.method, &exchange.params);
    headers.extend(mirrored.map_err(|_| ClientFault::NotDelivered)?);
    Ok(headers)
}

/// Returns the headers that mirror a request's method, and the name of what it asks for.
pub fn method_headers(method: &str, params: &Value) -> Result<HeaderMap, InvalidHeaderValue> {
    let name = match method {
        "tools/call" | "prompts/get" => params.get("name"),
        "resources/read" => params.get("uri"),
        "tasks/get" | "tasks/update" | "tasks/cancel" => params.get("taskId"),
        _ => None,
    };
    let mut headers = HeaderMap::new();
    headers.insert("mcp-method", HeaderValue::from_str(method)?);
    if let Some(name) = name.and_then(Value::as_str).filter(|name| !name.is_empty()) {
        headers.insert("mcp-name", HeaderValue::from_str(&encode(name))?);
    }
    Ok(headers)
}

/// Converts mirrored arguments to headers. A name that is invalid for a header is left out; the server refuses it
/// anyway.
pub fn mirrored(pairs: Vec<(&str, String)>) -> HeaderMap {
    let header = |(name, value): (&str, String)| {
        let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
        Some((name, HeaderValue::from_str(&value).ok()?))
    };
    pairs.into_iter().filter_map(header).collect()
}

/// Puts the server's requests to the call's client; returns what is added to the repeated request. The state is the
/// server's own and is returned as it was written.
async fn answers(exchange: &Exchange<'_>, result: UpstreamObject) -> Result<Members, ClientFault> {
    let mut said = Members::default();
    if let Some(state) = result.sent.member("requestState").filter(|state| !state.is_null()) {
        said.insert("requestState", state);
    }
    let asked = result.sent.member("inputRequests").map(|asked| Members::of(&asked)).unwrap_or_default();
    if asked.iter().count() > MAX_ASKED {
        return Err(loss("the service asks too many questions at once"));
    }
    if !asked.is_empty() {
        let answers =
            asked.iter().map(|(key, asked)| answer(&exchange.downstream, key.to_owned(), asked.clone()));
        let answers: Members = try_join_all(answers).await?.into_iter().collect();
        said.insert("inputResponses", answers.to_json());
    } else if said.is_empty() {
        return Err(loss("the service requires input and asks no question"));
    } else {
        tokio::time::sleep(PAUSE).await;
    }
    Ok(said)
}

/// Returns an answer with its key. This era has no form for an error, so an error ends the call.
async fn answer(
    downstream: &Arc<dyn Downstream>,
    key: String,
    asked: Json,
) -> Result<(String, Json), ClientFault> {
    if !asked.is_object() {
        return Err(loss("the service asks a question that MCP does not define"));
    }
    let method = asked.get("method").and_then(Value::as_str).unwrap_or_default();
    let params = asked.member("params").filter(|params| params.is_object());
    let params = params.unwrap_or_else(|| json!({}).into());
    let answered = downstream.answer_request(method, &params).await;
    let answered = answered.map_err(|error| ClientFault::Error {
        code: INTERNAL,
        visits: Vec::new(),
        data: None,
        message: format!("the service's question was not answered: {}", error.message),
    })?;
    Ok((key, answered))
}

#[cfg(test)]
mod tests {
    use tokio_util::sync::CancellationToken;

    use super::super::ClientParams;
    use super::super::downstream::NoDownstream;
    use super::*;
    use crate::message::Message;

    #[test]
    fn one_upstream_too_many_has_one_other_forgotten() {
        let eras = Eras::default();
        let url = |number: usize| Url::parse(&format!("https://u{number}.example.com/mcp")).unwrap();
        for number in 0..=MAX_REMEMBERED {
            eras.remember(&url(number), Offers::default());
        }
        let known = (0..=MAX_REMEMBERED).filter(|number| eras.modern(&url(*number)).is_some()).count();
        assert_eq!(known, MAX_REMEMBERED);
        assert!(eras.modern(&url(MAX_REMEMBERED)).is_some());
    }

    #[test]
    fn a_request_has_headers_with_its_method_and_the_name_of_what_it_asks_for() {
        let all = json!({"name": "café", "uri": "a:1", "taskId": "t"});
        for (method, name) in [
            ("tools/call", Some("=?base64?Y2Fmw6k=?=")),
            ("prompts/get", Some("=?base64?Y2Fmw6k=?=")),
            ("resources/read", Some("a:1")),
            ("tasks/get", Some("t")),
            ("tasks/update", Some("t")),
            ("tasks/cancel", Some("t")),
            ("tools/list", None),
        ] {
            let headers = method_headers(method, &all).unwrap();
            assert_eq!(headers["mcp-method"], method);
            assert_eq!(headers.get("mcp-name").map(|name| name.to_str().unwrap()), name, "{method}");
        }
        for nameless in [json!({}), json!({"name": ""}), json!({"name": 7}), json!(null)] {
            assert!(!method_headers("tools/call", &nameless).unwrap().contains_key("mcp-name"), "{nameless}");
        }
        assert!(method_headers("tools\ncall", &all).is_err());
    }

    #[tokio::test]
    async fn a_request_state_goes_back_as_it_was_written() {
        let state = r#"{"s":"cut \ud83d","n":1.50,"a":1,"a":2}"#;
        let text = format!(r#"{{"id":1,"result":{{"resultType":"input_required","requestState":{state}}}}}"#);
        let message = Message::of(&Json::parse(text.as_bytes()).unwrap());
        let Some(Message::Answer { outcome: Ok(result), .. }) = message else { panic!("{message:?}") };
        let exchange = Exchange {
            id: 1,
            method: "tools/call",
            params: json!({"name": "echo"}),
            sent: ClientParams::default(),
            headers: HeaderMap::new(),
            downstream: Arc::new(NoDownstream),
            cancelled: CancellationToken::new(),
        };
        let null =
            r#"{"id":1,"result":{"resultType":"input_required","requestState":null,"inputRequests":null}}"#;
        let Some(Message::Answer { outcome: Ok(nothing), .. }) =
            Message::of(&Json::parse(null.as_bytes()).unwrap())
        else {
            panic!("{null}")
        };
        let fault = answers(&exchange, nothing).await.unwrap_err();
        assert!(matches!(&fault, ClientFault::Lost(why) if why.contains("asks no question")), "{fault}");
        let said = answers(&exchange, result).await.unwrap();
        let request = exchange.sent.request(2, exchange.method, &exchange.params, &said);
        assert!(request.contains(&format!(r#""name":"echo","requestState":{state}"#)), "{request}");
    }
}
