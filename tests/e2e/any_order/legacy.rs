//! Steps of clients with a handshake: sessions that live, have ended or never were, batches, streams, answers.

use anyhow::Result;
use asp_e2e::http1::Request;
use serde_json::{Value, json};

use super::{Client, TARGET, remember, some_answer};

const REVISIONS: [&str; 3] = ["2025-03-26", "2025-06-18", "2025-11-25"];
/// How many sessions a client has.
const SESSIONS: usize = 6;

impl Client {
    pub(super) async fn legacy_step(&mut self) -> Result<()> {
        if self.sessions.len() < 2 || self.dice.one_in(20) {
            return self.initialize().await;
        }
        match self.dice.below(12) {
            0 => self.notify().await,
            1 => self.answer().await,
            2 => self.listen().await,
            3 if self.dice.one_in(4) => self.end().await,
            4 => self.batch().await,
            _ => {
                let message = self.request_message();
                self.post(&message).await
            }
        }
    }

    async fn initialize(&mut self) -> Result<()> {
        let revision = *self.dice.of(&REVISIONS);
        let abilities = [
            json!({}),
            json!({"elicitation": {}, "sampling": {}, "roots": {"listChanged": true}}),
            json!({"sampling": {}}),
        ];
        let capabilities = self.dice.of(&abilities).clone();
        let params = json!({"protocolVersion": revision, "capabilities": capabilities,
                            "clientInfo": {"name": "fuzz", "version": "1"}});
        let hello = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params});
        let answer = self.exchange(&request("POST", None, hello.to_string())).await?;
        if let Some(session) = answer.as_ref().and_then(|answer| answer.header("mcp-session-id")) {
            if self.sessions.len() >= SESSIONS {
                self.sessions.remove(0);
            }
            self.sessions.push((session.to_owned(), revision));
        }
        if self.dice.one_in(2) { Ok(()) } else { self.notify().await }
    }

    /// A session of its own, and sometimes none.
    fn session(&mut self) -> Option<(String, &'static str)> {
        if self.dice.one_in(30) { None } else { self.dice.maybe(&self.sessions.clone()) }
    }

    async fn post(&mut self, message: &Value) -> Result<()> {
        let session = self.session();
        self.exchange(&request("POST", session.as_ref(), message.to_string())).await?;
        Ok(())
    }

    fn request_message(&mut self) -> Value {
        let cursor = match self.dice.maybe(&self.cursors.clone()) {
            Some(cursor) if self.dice.one_in(3) => json!({"cursor": cursor}),
            _ => json!({}),
        };
        let uris = ["test://static-text", "test://watched-resource", "test://template/7/data", "test://none"];
        let uri = *self.dice.of(&uris);
        let mut call = self.call();
        if self.dice.one_in(2) {
            call["_meta"] = json!({"progressToken": self.id()});
        }
        let prompt = json!({"name": "test_prompt_with_arguments", "arguments": {"arg1": "a", "arg2": "b"}});
        let complete = json!({"ref": {"type": "ref/prompt", "name": "test_prompt_with_arguments"},
                              "argument": {"name": "arg1", "value": "p"}});
        let (method, params) = match self.dice.below(14) {
            0 => ("ping", json!({})),
            1 => ("tools/list", cursor),
            2 => ("prompts/list", cursor),
            3 => ("resources/list", cursor),
            4 => ("resources/templates/list", cursor),
            5 => ("resources/read", json!({"uri": uri})),
            6 => ("resources/subscribe", json!({"uri": uri})),
            7 => ("resources/unsubscribe", json!({"uri": uri})),
            8 => ("prompts/get", prompt),
            9 => ("completion/complete", complete),
            10 => ("logging/setLevel", json!({"level": "debug"})),
            _ => ("tools/call", call),
        };
        json!({"jsonrpc": "2.0", "id": self.id(), "method": method, "params": params})
    }

    fn notification(&mut self) -> Value {
        let id = self.id();
        let (method, params) = match self.dice.below(4) {
            0 => ("notifications/initialized", json!({})),
            1 => ("notifications/roots/list_changed", json!({})),
            2 => ("notifications/progress", json!({"progressToken": id, "progress": 1})),
            _ => ("notifications/cancelled", json!({"requestId": id, "reason": "fuzz"})),
        };
        json!({"jsonrpc": "2.0", "method": method, "params": params})
    }

    async fn notify(&mut self) -> Result<()> {
        let message = self.notification();
        self.post(&message).await
    }

    /// An answer to a question, in its session, in another one, or to none that was asked.
    async fn answer(&mut self) -> Result<()> {
        let known = self.dice.maybe(&self.questions.clone());
        let (asked_in, id) = known.unwrap_or_else(|| (String::new(), json!("never-asked")));
        let method = *self.dice.of(&["sampling/createMessage", "roots/list", "elicitation/create"]);
        let message = if self.dice.one_in(4) {
            json!({"jsonrpc": "2.0", "id": id, "error": {"code": -1, "message": "the user said no"}})
        } else {
            json!({"jsonrpc": "2.0", "id": id, "result": some_answer(method)})
        };
        let own = self.sessions.iter().find(|(session, _)| *session == asked_in).cloned();
        let session = if self.dice.one_in(4) { self.session() } else { own.or_else(|| self.session()) };
        self.exchange(&request("POST", session.as_ref(), message.to_string())).await?;
        Ok(())
    }

    /// The session's stream, from the beginning or from an event of some stream.
    async fn listen(&mut self) -> Result<()> {
        let session = self.session();
        let mut get = request("GET", session.as_ref(), String::new());
        if let Some(event) = self.dice.maybe(&self.events.clone())
            && self.dice.one_in(2)
        {
            get.headers.push(("last-event-id".into(), event.into_bytes()));
        }
        self.exchange(&get).await?;
        Ok(())
    }

    /// The session stays known: it is used again after its end.
    async fn end(&mut self) -> Result<()> {
        let session = self.session();
        self.exchange(&request("DELETE", session.as_ref(), String::new())).await?;
        Ok(())
    }

    async fn batch(&mut self) -> Result<()> {
        let mut messages = Vec::new();
        for number in 0..=self.dice.below(4) {
            let mut message = if self.dice.one_in(3) { self.notification() } else { self.request_message() };
            if message.get("id").is_some() {
                // Two of a batch are told apart by their ids.
                message["id"] = json!(format!("batch-{number}"));
            }
            messages.push(message);
        }
        let with_batches = self.sessions.iter().find(|(_, revision)| *revision == REVISIONS[0]).cloned();
        let session = if self.dice.one_in(4) { self.session() } else { with_batches };
        let body = Value::Array(messages).to_string();
        self.exchange(&request("POST", session.as_ref(), body)).await?;
        remember(&mut self.cursors, "no-such-cursor".into());
        Ok(())
    }
}

fn request(method: &str, session: Option<&(String, &'static str)>, body: String) -> Request {
    let mut headers = vec![
        ("content-type".to_owned(), b"application/json".to_vec()),
        ("accept".to_owned(), b"application/json, text/event-stream".to_vec()),
    ];
    if let Some((id, revision)) = session {
        headers.push(("mcp-session-id".to_owned(), id.clone().into_bytes()));
        headers.push(("mcp-protocol-version".to_owned(), revision.as_bytes().to_vec()));
    }
    Request { method: method.into(), target: TARGET.into(), headers, body: body.into_bytes() }
}
