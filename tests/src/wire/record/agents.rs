//! Messages of A2A: a request, and its answer or the events of its stream.

use std::fmt;

use http::HeaderMap;
use serde_json::Value;

use super::super::a2a::{AgentAnswer, AgentRequest};
use super::super::definitions::Problem;
use super::{Exchange, Head, Link, Record, Sender, State, shortened, shown};
use crate::journal::Journal;

/// Part that an official client leaves out of its requests and must not be refused for: the client, and the fault. The SDKs for
/// JavaScript have the id of a push configuration in its body alone.
const LEFT_OUT: (&str, &str) =
    ("a client (node)", "a2a.v1.CreateTaskPushNotificationConfigRequest.configId is REQUIRED");

fn is_left_out(client: &str, problem: &Problem) -> bool {
    (client, problem.error.as_str()) == LEFT_OUT
}

/// A request to an agent, until it has been answered.
pub(super) struct AgentExchange {
    request: AgentRequest,
    text: String,
    journals: Vec<Journal>,
    /// Whether the request has been counted, by its first answer.
    is_answered: bool,
}

impl AgentExchange {
    /// The head of its response has come.
    pub(super) fn answered(&self, head: &Head) {
        let kind = head.header("content-type").unwrap_or_default();
        self.note(format_args!("client < {} {kind}", head.status));
    }

    fn note(&self, line: fmt::Arguments<'_>) {
        for journal in &self.journals {
            journal.write(line.to_string());
        }
    }
}

impl Record {
    /// A request has come whole, perhaps to an agent.
    pub(super) fn agent_asked(&self, exchange: &mut Exchange, head: &Head, body: &[u8]) {
        let Some(request) = self.agents.request(head, body) else { return };
        self.state.lock().messages += 1;
        exchange.revision = request.form;
        let body = serde_json::from_slice::<Value>(body).ok();
        let line = format!("{} {}", head.method, head.target);
        let text = format!("{line} {}", body.as_ref().map(shown).unwrap_or_default());
        let agent = AgentExchange { request, text, journals: self.journals_at(head), is_answered: false };
        agent.note(format_args!("client > {line} {}", body.unwrap_or_default()));
        exchange.agent = Some(agent);
    }

    /// An answer of the agent, or an event.
    pub(super) fn agent_says(&self, exchange: &mut Exchange, text: &[u8]) {
        let Some(mut agent) = exchange.agent.take() else { return };
        match serde_json::from_slice::<Value>(text) {
            Ok(message) => {
                agent.note(format_args!("client < {message}"));
                let answer = self.agents.answer(&agent.request, exchange.status, &message);
                let mut state = self.state.lock();
                state.messages += 1;
                state.judge_agent(exchange, &mut agent, &answer, &shown(&message));
            }
            Err(_) => self.unreadable(exchange, text),
        }
        exchange.agent = Some(agent);
    }

    /// A call of gRPC has begun; `None` if it is not one to an agent.
    pub(in crate::wire) fn called(
        &self,
        link: Link,
        path: &str,
        user_agent: Option<&str>,
    ) -> Option<Exchange> {
        let request = self.agents.call(path)?;
        let revision = request.form;
        let agent =
            Some(AgentExchange { request, text: String::new(), journals: Vec::new(), is_answered: false });
        Some(Exchange { agent, revision, ..Exchange::new(link, user_agent) })
    }

    /// A message of the client of a call.
    pub(in crate::wire) fn call_sends(&self, exchange: &mut Exchange, bytes: &[u8]) {
        let Some(agent) = &mut exchange.agent else { return };
        agent.text = shortened(&self.agents.call_message(&mut agent.request, bytes));
        if agent.text.is_empty() {
            agent.text = "an empty message".to_owned();
        }
        self.state.lock().messages += 1;
    }

    /// A message of the agent of a call.
    pub(in crate::wire) fn call_answers(&self, exchange: &mut Exchange, bytes: &[u8]) {
        let Some(mut agent) = exchange.agent.take() else { return };
        let (answer, text) = self.agents.call_result(&agent.request, bytes);
        let mut state = self.state.lock();
        state.messages += 1;
        state.judge_agent(exchange, &mut agent, &answer, &shortened(&text));
        exchange.agent = Some(agent);
    }

    /// The headers with the status of a call, or its end without them.
    pub(in crate::wire) fn call_ends(&self, exchange: &mut Exchange, status: Option<&HeaderMap>) {
        let Some(mut agent) = exchange.agent.take() else { return };
        // A call that is refused before its message has come has shown none.
        let is_judged = agent.is_answered || agent.text.is_empty();
        agent.is_answered = is_judged;
        let faulty = |error: &str| {
            Some(AgentAnswer { is_error: true, problems: vec![Problem::new(error.to_owned())] })
        };
        let answer = match status.map(|headers| self.agents.call_error(headers)) {
            None => faulty("the call ends without a status"),
            Some(None) if !is_judged => faulty("the call succeeds without a result"),
            Some(error) => error,
        };
        if let Some(answer) = answer {
            self.state.lock().judge_agent(exchange, &mut agent, &answer, "");
        }
    }
}

impl State {
    fn judge_agent(
        &mut self,
        exchange: &Exchange,
        agent: &mut AgentExchange,
        answer: &AgentAnswer,
        text: &str,
    ) {
        let method = agent.request.method.as_str();
        if answer.is_error {
            // It shows no result of the method.
            for problem in &answer.problems {
                self.fault(exchange, Sender::Server, method, problem, text);
            }
        } else {
            self.judge(exchange, Sender::Server, method, &answer.problems, text);
        }
        if agent.is_answered {
            return;
        }
        agent.is_answered = true;
        // What is wrong must be refused. A right request may be, and was seen.
        let problems = match &*agent.request.problems {
            [problem] if is_left_out(&exchange.who, problem) => &[],
            problems => problems,
        };
        if problems.is_empty() || !answer.is_error {
            self.judge(exchange, Sender::Client, method, problems, &agent.text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::reader::{Part, Reader};

    const SEND: &str = r#"{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":
        {"messageId":"m","role":"ROLE_USER","parts":[{"text":"hello"}]}}}"#;
    const WRONG: &str = r#"{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":
        {"messageId":"m","role":"user","parts":[{"text":"hello"}]}}}"#;
    const TASK: &str = r#"{"jsonrpc":"2.0","id":1,"result":{"task":
        {"id":"t","status":{"state":"TASK_STATE_COMPLETED"}}}}"#;
    const REFUSED: &str = r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"no"}}"#;

    fn head(mut reader: Reader, text: &str) -> Head {
        reader.push(text.as_bytes());
        match reader.next(false).unwrap() {
            Some(Part::Head(head)) => head,
            _ => panic!("no head"),
        }
    }

    /// The record of one exchange.
    fn record(client: &str, body: &str, answer: &str) -> Record {
        let record = Record::new().unwrap();
        pass(&record, client, body, answer);
        record
    }

    fn pass(record: &Record, client: &str, body: &str, answer: &str) {
        let request = head(Reader::requests(), &format!("POST /demo/a2a HTTP/1.1\r\n{client}\r\n"));
        let mut exchange = record.asked(Link::EDGE, &request, body.as_bytes());
        record.answered(&mut exchange, &head(Reader::responses(), "HTTP/1.1 200 OK\r\n\r\n"));
        record.told(&mut exchange, answer.as_bytes());
        record.ended(exchange);
    }

    #[test]
    fn a_journal_has_the_messages_at_its_address_in_order() {
        let record = Record::new().unwrap();
        let journal = Journal::default();
        record.write_agents_at("127.0.0.1:80".parse().unwrap(), &journal);
        pass(&record, "host: 127.0.0.1:81\r\n", SEND, TASK);
        pass(&record, "host: 127.0.0.1:80\r\n", SEND, TASK);
        let lines = journal.take();
        assert!(lines[0].starts_with(r#"client > POST /demo/a2a {"jsonrpc":"2.0","id":1,"#), "{lines:?}");
        assert_eq!(lines[1].trim_end(), "client < 200");
        assert!(lines[2].starts_with(r#"client < {"jsonrpc":"2.0","id":1,"result":{"task":"#), "{lines:?}");
        assert_eq!(lines.len(), 3);
    }

    #[test]
    fn what_an_agent_sends_must_fit() {
        assert!(record("", SEND, TASK).verdict(false).holds);
        let verdict = record("", SEND, &TASK.replace("TASK_STATE_COMPLETED", "completed")).verdict(false);
        assert!(!verdict.holds && verdict.report.contains("/result/task/status/state"), "{}", verdict.report);
    }

    #[test]
    fn a_wrong_request_of_a_named_client_must_be_refused() {
        let named = "user-agent: sdk\r\n";
        let verdict = record(named, WRONG, TASK).verdict(false);
        assert!(!verdict.holds && verdict.report.contains("/params/message/role"), "{}", verdict.report);
        assert!(record(named, WRONG, REFUSED).verdict(false).holds);
        assert!(record("", WRONG, TASK).verdict(false).holds, "written by hand");
    }

    #[test]
    fn a_method_was_used_by_an_agent_once_it_has_had_a_result() {
        let seen = |answer: &str, sender: Sender| {
            let record = record("", SEND, answer);
            let state = record.state.lock();
            state.seen.keys().any(|(_, who, method)| *who == sender && method == "SendMessage")
        };
        assert!(seen(TASK, Sender::Client) && seen(TASK, Sender::Server));
        assert!(seen(REFUSED, Sender::Client) && !seen(REFUSED, Sender::Server));
    }
}
