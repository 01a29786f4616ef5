//! Steps of clients without a handshake: every request says all; retries with states, tasks, subscriptions.

use anyhow::Result;
use asp_e2e::http1::Request;
use serde_json::{Map, Value, json};

use super::{Client, TARGET, some_answer};

const REVISION: &str = "2026-07-28";

impl Client {
    pub(super) async fn modern_step(&mut self) -> Result<()> {
        let cursor = match self.dice.maybe(&self.cursors.clone()) {
            Some(cursor) if self.dice.one_in(3) => json!({"cursor": cursor}),
            _ => json!({}),
        };
        let uri = *self.dice.of(&["test://static-text", "test://template/7/data", "test://none"]);
        let prompt = json!({"name": "test_prompt_with_arguments", "arguments": {"arg1": "a", "arg2": "b"}});
        let complete = json!({"ref": {"type": "ref/resource", "uri": "test://template/{id}/data"},
                              "argument": {"name": "id", "value": "7"}});
        let (method, params) = match self.dice.below(18) {
            0 => ("server/discover", json!({})),
            1 => ("tools/list", cursor),
            2 => ("prompts/list", cursor),
            3 => ("resources/list", cursor),
            4 => ("resources/templates/list", cursor),
            5 => ("resources/read", json!({"uri": uri})),
            6 => ("prompts/get", prompt),
            7 => ("completion/complete", complete),
            8 => ("prompts/get", json!({"name": "test_input_required_result_prompt"})),
            9 => ("subscriptions/listen", self.subscription()),
            10 => return self.cancel().await,
            11 | 12 => self.of_task(),
            13..=15 => ("tools/call", self.retry()),
            _ => ("tools/call", self.call()),
        };
        let request = self.request(method, params);
        self.exchange(&request).await?;
        Ok(())
    }

    fn subscription(&mut self) -> Value {
        let mut filter = Map::new();
        if self.dice.one_in(2) {
            filter.insert("toolsListChanged".into(), true.into());
        }
        if self.dice.one_in(2) {
            filter.insert("resourceSubscriptions".into(), json!(["test://watched-resource"]));
        }
        if let Some(task) = self.dice.maybe(&self.tasks.clone()) {
            filter.insert("taskIds".into(), json!([task, "no-such-task"]));
        }
        json!({"notifications": filter})
    }

    fn of_task(&mut self) -> (&'static str, Value) {
        let known = self.dice.maybe(&self.tasks.clone());
        let task = known.unwrap_or_else(|| "0190f5fe-7c8b-7000-8000-000000000000".into());
        let answers = json!({"confirm_file": some_answer("elicitation/create")});
        match self.dice.below(3) {
            0 => ("tasks/get", json!({"taskId": task})),
            1 => ("tasks/update", json!({"taskId": task, "inputResponses": answers})),
            _ => ("tasks/cancel", json!({"taskId": task})),
        }
    }

    /// A call that goes on with a state, also one that was used, with answers to some of its questions.
    fn retry(&mut self) -> Value {
        let Some((mut params, state, questions)) = self.dice.maybe(&self.states.clone()) else {
            return self.call();
        };
        if self.dice.one_in(5) {
            params = self.call();
        }
        let mut answers = Map::new();
        for (id, question) in questions.as_object().into_iter().flatten() {
            if !self.dice.one_in(4) {
                answers.insert(id.clone(), some_answer(question["method"].as_str().unwrap_or_default()));
            }
        }
        params["requestState"] = state;
        params["inputResponses"] = Value::Object(answers);
        params
    }

    async fn cancel(&mut self) -> Result<()> {
        let id = self.id();
        let mut request = self.request("notifications/cancelled", json!({"requestId": id}));
        let mut body: Value = serde_json::from_slice(&request.body)?;
        if let Some(body) = body.as_object_mut() {
            body.remove("id");
        }
        request.body = body.to_string().into_bytes();
        self.exchange(&request).await?;
        Ok(())
    }

    fn request(&mut self, method: &str, mut params: Value) -> Request {
        let abilities = [
            json!({}),
            json!({"elicitation": {}, "sampling": {}, "roots": {}}),
            json!({"elicitation": {}, "sampling": {}, "roots": {},
                   "extensions": {"io.modelcontextprotocol/tasks": {}}}),
        ];
        let mut meta = json!({"io.modelcontextprotocol/protocolVersion": REVISION,
                              "io.modelcontextprotocol/clientCapabilities": self.dice.of(&abilities)});
        if self.dice.one_in(3) {
            meta["progressToken"] = self.id();
        }
        if self.dice.one_in(3) {
            meta["io.modelcontextprotocol/logLevel"] = json!("debug");
        }
        params["_meta"] = meta;
        let named = params.get("name").or(params.get("uri")).or(params.get("taskId"));
        let mut headers = vec![
            ("content-type".to_owned(), b"application/json".to_vec()),
            ("accept".to_owned(), b"application/json, text/event-stream".to_vec()),
            ("mcp-protocol-version".to_owned(), REVISION.as_bytes().to_vec()),
            ("mcp-method".to_owned(), method.as_bytes().to_vec()),
        ];
        if let Some(name) = named.and_then(Value::as_str) {
            headers.push(("mcp-name".to_owned(), name.as_bytes().to_vec()));
        }
        let body = json!({"jsonrpc": "2.0", "id": self.id(), "method": method, "params": params});
        Request { method: "POST".into(), target: TARGET.into(), headers, body: body.to_string().into_bytes() }
    }
}
