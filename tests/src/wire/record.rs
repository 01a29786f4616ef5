//! What has passed every tap of a run, judged message by message.
//!
//! Keeps true: bounded: sessions, the ids of each, and different faults; what is beyond them is counted.

mod agents;
mod sessions;
mod verdict;

use std::collections::BTreeMap;
use std::net::SocketAddr;

use anyhow::Result;
use parking_lot::Mutex;
use serde_json::Value;

use self::agents::AgentExchange;
use self::sessions::Sessions;
pub use self::verdict::Verdict;
use super::a2a::AgentDefinitions;
use super::definitions::Problem;
use super::link::Link;
use super::reader::Head;
use super::schema::{MODERN, REVISIONS, Schemas, Sender};
use crate::journal::Journal;

/// What a request without a word of its revision is taken for (MCP 2025-06-18, transports, protocol version header).
const UNNAMED: &str = "2025-03-26";
/// The last revision with a handshake.
const LAST_HANDSHAKE: &str = "2025-11-25";
const LISTEN: &str = "subscriptions/listen";
const ACKNOWLEDGED: &str = "notifications/subscriptions/acknowledged";
const VERSION_IN_BODY: &str = "/params/_meta/io.modelcontextprotocol~1protocolVersion";
const CLIENT_IN_BODY: &str = "/params/_meta/io.modelcontextprotocol~1clientInfo/name";
/// What an official client says wrong on purpose and must not be refused for: the client and the place. The suite sends
/// answers that suit no question, after which a server goes on or asks again (SEP-2322, SEP-2663).
const ON_PURPOSE: &[(&str, &str)] = &[("conformance-test-client", "/params/inputResponses")];
/// Most different faults kept.
const MOST_FAULTS: usize = 200;
/// Bytes of a message shown with its fault.
const SHOWN: usize = 800;

/// Everything that was seen.
pub struct Record {
    schemas: Schemas,
    agents: AgentDefinitions,
    state: Mutex<State>,
    /// Journals of the messages of A2A, with the addresses at which these pass.
    journals: Mutex<Vec<(String, Journal)>>,
}

#[derive(Default)]
struct State {
    sessions: Sessions,
    messages: u64,
    /// Connections that were given up.
    unread: u64,
    seen: BTreeMap<Served, u64>,
    faults: BTreeMap<String, Fault>,
}

/// A method that a revision of MCP, or a version of A2A over a binding, serves, and who sends it.
type Served = (&'static str, Sender, String);

/// The same thing wrong, however often.
struct Fault {
    times: u64,
    text: String,
}

/// One request and its response.
pub(super) struct Exchange {
    link: Link,
    is_mcp: bool,
    /// The exchange of A2A.
    agent: Option<AgentExchange>,
    pub(super) is_head: bool,
    who: String,
    /// Whether the client says what it is, as official ones do and the tests' own requests, also wrong ones, do not.
    is_named: bool,
    /// For A2A the version and the binding.
    revision: &'static str,
    session: Option<String>,
    status: u16,
    sent: Vec<Sent>,
}

/// A message of the client, until it is known whether it was taken.
struct Sent {
    id: Option<Value>,
    /// Of a request or a notification.
    method: Option<String>,
    problems: Vec<Problem>,
    text: String,
    open: bool,
}

impl Exchange {
    fn new(link: Link, user_agent: Option<&str>) -> Exchange {
        Exchange {
            link,
            is_mcp: false,
            agent: None,
            is_head: false,
            who: format!("{} ({})", link.client, user_agent.unwrap_or("unnamed")),
            is_named: user_agent.is_some(),
            revision: UNNAMED,
            session: None,
            status: 0,
            sent: Vec::new(),
        }
    }

    /// Whether its messages are held against definitions.
    pub(super) fn is_read(&self) -> bool {
        self.is_mcp || self.agent.is_some()
    }
}

impl Record {
    pub(super) fn new() -> Result<Record> {
        let schemas = Schemas::read()?;
        let agents = AgentDefinitions::read()?;
        Ok(Record { schemas, agents, state: Mutex::default(), journals: Mutex::default() })
    }

    /// Writes the messages of A2A at an address into a journal from now on: `client > <method> <path> <body>`,
    /// `client < <status> <content type>`, and `client < <JSON>` for a response or an event of a stream.
    pub fn write_agents_at(&self, edge: SocketAddr, journal: &Journal) {
        self.journals.lock().push((edge.to_string(), journal.clone()));
    }

    /// Returns the journals of the address that a request names as its host.
    fn journals_at(&self, head: &Head) -> Vec<Journal> {
        let journals = self.journals.lock();
        let at_host = journals.iter().filter(|(edge, _)| head.header("host") == Some(edge.as_str()));
        at_host.map(|(_, journal)| journal.clone()).collect()
    }

    pub(super) fn unread(&self) {
        self.state.lock().unread += 1;
    }

    /// A request of HTTP has come whole.
    pub(super) fn asked(&self, link: Link, head: &Head, body: &[u8]) -> Exchange {
        let header = |name: &str| head.header(name).map(str::to_owned);
        let path = head.target.split('?').next().unwrap_or_default();
        let mut exchange = Exchange {
            // Of a server of ours, or of an upstream.
            is_mcp: path
                .strip_suffix("/mcp")
                .is_some_and(|server| server.rfind('/').is_none_or(|at| at == 0)),
            is_head: head.method == "HEAD",
            session: header("mcp-session-id"),
            ..Exchange::new(link, head.header("user-agent"))
        };
        if !exchange.is_mcp {
            self.agent_asked(&mut exchange, head, body);
            return exchange;
        }
        let bodies = if head.method == "POST" { messages(body).unwrap_or_default() } else { Vec::new() };
        let mut state = self.state.lock();
        exchange.revision =
            self.revision(&state.sessions, &exchange, header("mcp-protocol-version"), &bodies);
        for message in &bodies {
            state.messages += 1;
            let sent = self.sent(&mut state.sessions, &exchange, message);
            exchange.sent.push(sent);
        }
        exchange
    }

    /// The revision that a request is of: its body counts, then its session, then its header.
    fn revision(
        &self,
        sessions: &Sessions,
        exchange: &Exchange,
        header: Option<String>,
        bodies: &[Value],
    ) -> &'static str {
        let known = |text: &str| REVISIONS.into_iter().find(|revision| *revision == text);
        let of_body = bodies.iter().find_map(|body| body.pointer(VERSION_IN_BODY)?.as_str());
        if let Some(text) = of_body {
            // One that is not known is refused in the words of the era that says it in the body.
            return known(text).unwrap_or(MODERN);
        }
        let proposed = bodies.iter().find_map(|body| body.pointer("/params/protocolVersion")?.as_str());
        // A handshake is one of the revisions that have it, whatever it proposes.
        let with_handshake =
            |text: &str| known(text).filter(|revision| *revision != MODERN).unwrap_or(LAST_HANDSHAKE);
        let of_session = exchange.session.as_deref().and_then(|session| sessions.revision(session));
        of_session.or(proposed.map(with_handshake)).or(header.as_deref().and_then(known)).unwrap_or(UNNAMED)
    }

    fn sent(&self, sessions: &mut Sessions, exchange: &Exchange, message: &Value) -> Sent {
        let id = message.get("id").cloned();
        let method = message.get("method").and_then(Value::as_str).map(str::to_owned);
        let dictionary = self.schemas.of(exchange.revision);
        let session = exchange.session.as_deref().unwrap_or_default();
        let mut problems = match (&method, &id, dictionary) {
            (_, _, None) => vec![Problem::new("no such revision".into())],
            (Some(method), _, Some(dictionary)) => dictionary.said(Sender::Client, method, message),
            (None, Some(id), Some(_)) if message.get("error").is_some() => {
                sessions.asked(session, Sender::Server, id);
                self.schemas.error(exchange.revision, message)
            }
            (None, Some(id), Some(dictionary)) => match sessions.asked(session, Sender::Server, id) {
                Some(method) => dictionary.result(Sender::Server, &method, message),
                // To a question that nobody asked: it is dropped.
                None => Vec::new(),
            },
            (None, None, Some(_)) => vec![Problem::new("neither a method nor an id".into())],
        };
        let client = message.pointer(CLIENT_IN_BODY).and_then(Value::as_str).unwrap_or_default();
        problems.retain(|problem| !is_on_purpose(client, &problem.pointer));
        if let (Some(method), Some(id)) = (&method, &id) {
            sessions.ask(session, Sender::Client, id, method);
        }
        Sent { id, method, problems, text: shown(message), open: true }
    }

    /// The head of its response has come.
    pub(super) fn answered(&self, exchange: &mut Exchange, head: &Head) {
        exchange.status = head.status;
        if let Some(agent) = &exchange.agent {
            agent.answered(head);
        }
        if let Some(session) = head.header("mcp-session-id") {
            exchange.session = Some(session.to_owned());
        }
    }

    /// A message of the server, or a batch of them.
    pub(super) fn told(&self, exchange: &mut Exchange, text: &[u8]) {
        if exchange.agent.is_some() {
            return self.agent_says(exchange, text);
        }
        let Some(all) = messages(text) else { return self.unreadable(exchange, text) };
        let mut state = self.state.lock();
        for message in &all {
            state.messages += 1;
            let method = message.get("method").and_then(Value::as_str);
            match method {
                Some(method) => self.server_says(&mut state, exchange, method, message),
                None if message.get("error").is_some() => self.failed(&mut state, exchange, message),
                None => self.result(&mut state, exchange, message),
            }
        }
    }

    fn unreadable(&self, exchange: &Exchange, text: &[u8]) {
        let problem = Problem::new("this is no JSON".into());
        let shown = shortened(&String::from_utf8_lossy(text));
        self.state.lock().fault(exchange, Sender::Server, "-", &problem, &shown);
    }

    /// A request or a notification of the server.
    fn server_says(&self, state: &mut State, exchange: &mut Exchange, method: &str, message: &Value) {
        let Some(dictionary) = self.schemas.of(exchange.revision) else { return };
        if let Some(id) = message.get("id") {
            let session = exchange.session.as_deref().unwrap_or_default();
            state.sessions.ask(session, Sender::Server, id, method);
        }
        let problems = dictionary.said(Sender::Server, method, message);
        state.judge(exchange, Sender::Server, method, &problems, &shown(message));
        if method == ACKNOWLEDGED {
            // It has no other answer until it ends.
            let listening = exchange.sent.iter().position(|sent| sent.method.as_deref() == Some(LISTEN));
            if let Some(sent) = listening.map(|at| exchange.sent.remove(at)) {
                state.judge(exchange, Sender::Client, LISTEN, &sent.problems, &sent.text);
                exchange.sent.push(Sent { problems: Vec::new(), ..sent });
            }
        }
    }

    fn failed(&self, state: &mut State, exchange: &mut Exchange, message: &Value) {
        let id = message.get("id");
        let session = exchange.session.as_deref().unwrap_or_default();
        let asked = id.and_then(|id| state.sessions.asked(session, Sender::Client, id));
        let mut method = asked.unwrap_or_else(|| "-".into());
        if let Some(sent) = exchange.sent.iter_mut().find(|sent| sent.open && sent.id.as_ref() == id) {
            sent.open = false;
            method = sent.method.clone().unwrap_or(method);
        }
        for problem in self.schemas.error(exchange.revision, message) {
            state.fault(exchange, Sender::Server, &method, &problem, &shown(message));
        }
    }

    fn result(&self, state: &mut State, exchange: &mut Exchange, message: &Value) {
        let id = message.get("id").cloned().unwrap_or_default();
        let session = exchange.session.clone().unwrap_or_default();
        let of_session = state.sessions.asked(&session, Sender::Client, &id);
        let at = exchange.sent.iter().position(|sent| sent.open && sent.id.as_ref() == Some(&id));
        let taken = at.map(|at| exchange.sent.remove(at));
        let of_exchange = taken.as_ref().and_then(|sent| sent.method.clone());
        let Some(method) = of_exchange.or(of_session) else {
            let problem = Problem::new("an answer to a request that nobody sent".into());
            return state.fault(exchange, Sender::Server, "-", &problem, &shown(message));
        };
        if method == "initialize" {
            let agreed = message.pointer("/result/protocolVersion").and_then(Value::as_str);
            let agreed = REVISIONS.into_iter().find(|revision| Some(*revision) == agreed);
            exchange.revision = agreed.unwrap_or(exchange.revision);
            state.sessions.open(&session, exchange.revision);
        }
        let Some(dictionary) = self.schemas.of(exchange.revision) else { return };
        let problems = dictionary.result(Sender::Client, &method, message);
        for problem in &problems {
            state.fault(exchange, Sender::Server, &method, problem, &shown(message));
        }
        // What the client said was taken.
        if let Some(sent) = taken {
            state.judge(exchange, Sender::Client, &method, &sent.problems, &sent.text);
        }
        let asks = message.pointer("/result/inputRequests").and_then(Value::as_object);
        for request in asks.into_iter().flat_map(serde_json::Map::values) {
            let method = request.get("method").and_then(Value::as_str).unwrap_or_default();
            state.judge(exchange, Sender::Server, method, &[], "");
        }
    }

    /// The response is over: what needs no answer was taken, if it was not refused.
    pub(super) fn ended(&self, exchange: Exchange) {
        let mut state = self.state.lock();
        let refused = !(200..300).contains(&exchange.status);
        for sent in &exchange.sent {
            let is_request = sent.method.is_some() && sent.id.is_some();
            if sent.open && !is_request && !refused {
                let method = sent.method.as_deref().unwrap_or("-");
                state.judge(&exchange, Sender::Client, method, &sent.problems, &sent.text);
            } else if !exchange.link.at_the_edge {
                // We are never wrong on purpose.
                for problem in &sent.problems {
                    let method = sent.method.as_deref().unwrap_or("-");
                    state.fault(&exchange, Sender::Client, method, problem, &sent.text);
                }
            }
        }
    }
}

impl State {
    /// A message that was taken: seen, or a fault.
    fn judge(&mut self, exchange: &Exchange, sender: Sender, method: &str, problems: &[Problem], text: &str) {
        for problem in problems {
            self.fault(exchange, sender, method, problem, text);
        }
        if problems.is_empty() && exchange.link.at_the_edge {
            *self.seen.entry((exchange.revision, sender, method.to_owned())).or_default() += 1;
        }
    }

    fn fault(&mut self, exchange: &Exchange, sender: Sender, method: &str, problem: &Problem, text: &str) {
        if sender == Sender::Client && exchange.link.at_the_edge && !exchange.is_named {
            return;
        }
        let who = match sender {
            Sender::Client => exchange.who.as_str(),
            Sender::Server => exchange.link.server,
        };
        let place: String = problem.pointer.chars().filter(|letter| !letter.is_ascii_digit()).collect();
        let key = format!("{who} {} {method} {place} {}", exchange.revision, problem.error);
        let full = self.faults.len() >= MOST_FAULTS;
        if let Some(fault) = self.faults.get_mut(&key) {
            fault.times += 1;
        } else if !full {
            let Problem { pointer, error } = problem;
            let at = if pointer.is_empty() { "the message itself" } else { pointer };
            let revision = exchange.revision;
            let text = format!("{who}, {revision}, {method}, at {at}: {error}\n    {text}");
            self.faults.insert(key, Fault { times: 1, text });
        }
    }
}

fn is_on_purpose(client: &str, pointer: &str) -> bool {
    ON_PURPOSE.iter().any(|(who, place)| client == *who && pointer.starts_with(place))
}

fn shown(message: &Value) -> String {
    shortened(&message.to_string())
}

fn shortened(text: &str) -> String {
    text.chars().take(SHOWN).collect()
}

/// As JSON: one message, or the messages of a batch.
fn messages(text: &[u8]) -> Option<Vec<Value>> {
    match serde_json::from_slice(text).ok()? {
        Value::Array(batch) => Some(batch),
        message => Some(vec![message]),
    }
}
