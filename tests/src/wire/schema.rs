//! The official JSON Schemas of MCP, and what each revision says a message must be.
//!
//! Keeps true: which methods there are, and who sends them, is read from the schemas; nothing of it is written here.

use std::collections::BTreeMap;

use anyhow::Result;
use serde_json::Value;

use super::definitions::{Definitions, Problem, vector};

/// Every revision there is a schema of, oldest first.
pub(super) const REVISIONS: [&str; 4] = ["2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"];
pub(super) const MODERN: &str = "2026-07-28";
/// The first revision that knows a JSON-RPC error without an id.
const ERRORS_WITHOUT_ID: &str = "2025-11-25";

/// Who says something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Sender {
    Client,
    Server,
}

/// All revisions.
pub(super) struct Schemas(Vec<Dictionary>);

impl Schemas {
    pub(super) fn read() -> Result<Schemas> {
        Ok(Schemas(REVISIONS.iter().map(|revision| Dictionary::read(revision)).collect::<Result<_>>()?))
    }

    pub(super) fn of(&self, revision: &str) -> Option<&Dictionary> {
        self.0.iter().find(|dictionary| dictionary.revision == revision)
    }

    pub(super) fn all(&self) -> &[Dictionary] {
        &self.0
    }

    /// What is wrong with a JSON-RPC error.
    pub(super) fn error(&self, revision: &str, message: &Value) -> Vec<Problem> {
        // Nobody can name a request that could not be read. Older schemas know no such answer, JSON-RPC does.
        let revision = if message.get("id").is_none() { revision.max(ERRORS_WITHOUT_ID) } else { revision };
        let Some(dictionary) = self.of(revision) else { return Vec::new() };
        let code = message.pointer("/error/code").and_then(Value::as_i64);
        match code.and_then(|code| dictionary.errors.get(&code)) {
            Some(definition) => dictionary.definitions.problems(definition, message),
            None => dictionary.definitions.problems(dictionary.envelope_of_errors(), message),
        }
    }
}

/// One revision; the extensions that are versioned with it belong to it.
pub(super) struct Dictionary {
    pub(super) revision: &'static str,
    definitions: Definitions,
    /// Who sends what as a request: its definition.
    pub(super) requests: BTreeMap<(Sender, String), String>,
    pub(super) notifications: BTreeMap<(Sender, String), String>,
    /// Definitions of errors with a code of their own.
    errors: BTreeMap<i64, String>,
}

impl Dictionary {
    fn read(revision: &'static str) -> Result<Dictionary> {
        let mut definitions = Definitions::new(vector(&format!("mcp-schema/schema-{revision}.json"))?);
        if revision == MODERN {
            definitions.extend(&vector("mcp-schema/tasks-extension.json")?)?;
        }
        let mut dictionary = Dictionary {
            revision,
            definitions,
            requests: BTreeMap::new(),
            notifications: BTreeMap::new(),
            errors: BTreeMap::new(),
        };
        use Sender::{Client, Server};
        for (union, sender) in [
            ("ClientRequest", Client),
            ("TasksClientRequest", Client),
            ("ServerRequest", Server),
            ("InputRequest", Server),
        ] {
            dictionary.requests.extend(dictionary.methods(union, sender));
        }
        for (union, sender) in [
            ("ClientNotification", Client),
            ("ServerNotification", Server),
            ("TasksServerNotification", Server),
        ] {
            dictionary.notifications.extend(dictionary.methods(union, sender));
        }
        dictionary.errors = dictionary.coded_errors();
        Ok(dictionary)
    }

    fn definition(&self, name: &str) -> Option<&Value> {
        self.definitions.get(name)
    }

    /// The methods of a union and their definitions.
    fn methods(&self, union: &str, sender: Sender) -> Vec<((Sender, String), String)> {
        let methods = self.definitions.methods(union);
        methods.into_iter().map(|(method, definition)| ((sender, method), definition)).collect()
    }

    fn coded_errors(&self) -> BTreeMap<i64, String> {
        let code = |definition: &Value| {
            let parts = definition.pointer("/properties/error/allOf")?.as_array()?;
            parts.iter().find_map(|part| part.pointer("/properties/code/const")?.as_i64())
        };
        let coded = |(name, definition): (&String, &Value)| Some((code(definition)?, name.clone()));
        self.definitions.all().filter_map(coded).collect()
    }

    fn envelope_of_errors(&self) -> &'static str {
        if self.definition("JSONRPCError").is_some() { "JSONRPCError" } else { "JSONRPCErrorResponse" }
    }

    /// What is wrong with a request or a notification.
    pub(super) fn said(&self, sender: Sender, method: &str, message: &Value) -> Vec<Problem> {
        let is_request = message.get("id").is_some();
        let (table, envelope) = match is_request {
            true => (&self.requests, "JSONRPCRequest"),
            false => (&self.notifications, "JSONRPCNotification"),
        };
        let Some(definition) = table.get(&(sender, method.to_owned())) else {
            return vec![Problem::new(format!("{} knows no {method} of the {sender:?}", self.revision))];
        };
        let problems = self.definitions.problems(envelope, message);
        if problems.is_empty() { self.definitions.problems(definition, message) } else { problems }
    }

    /// What is wrong with the result of a request of `sender`.
    pub(super) fn result(&self, sender: Sender, method: &str, message: &Value) -> Vec<Problem> {
        let Some(request) = self.requests.get(&(sender, method.to_owned())) else { return Vec::new() };
        let stem = request.trim_end_matches("Request");
        let kind = message.pointer("/result/resultType").and_then(Value::as_str);
        let envelope = match self.definition("JSONRPCResultResponse") {
            Some(_) => "JSONRPCResultResponse",
            None => "JSONRPCResponse",
        };
        let problems = self.definitions.problems(envelope, message);
        if !problems.is_empty() {
            return problems;
        }
        let whole = format!("{stem}ResultResponse");
        if self.revision == MODERN && kind == Some("task") && method == "tools/call" {
            return self.definitions.problems_at("/result", "CreateTaskResult", message);
        }
        if self.definition(&whole).is_some() {
            return self.definitions.problems(&whole, message);
        }
        let result = format!("{stem}Result");
        let result = if self.definition(&result).is_some() { result } else { "EmptyResult".to_owned() };
        self.definitions.problems_at("/result", &result, message)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn wrong(revision: &str, judge: impl Fn(&Dictionary) -> Vec<Problem>) -> bool {
        let schemas = Schemas::read().unwrap();
        !judge(schemas.of(revision).unwrap()).is_empty()
    }

    #[test]
    fn requests_are_held_against_the_definition_of_their_method() {
        let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"});
        let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"arguments": {}}});
        for revision in ["2025-03-26", "2025-06-18", "2025-11-25"] {
            assert!(!wrong(revision, |all| all.said(Sender::Client, "tools/list", &list)), "{revision}");
            assert!(
                wrong(revision, |all| all.said(Sender::Client, "tools/call", &call)),
                "{revision}: no name"
            );
        }
        assert!(wrong(MODERN, |all| all.said(Sender::Client, "tools/list", &list)), "no params, no _meta");
        assert!(wrong(MODERN, |all| all.said(Sender::Client, "ping", &list)), "there is no ping any more");
        assert!(
            wrong("2025-11-25", |all| all.said(Sender::Server, "tools/list", &list)),
            "the other way round"
        );
    }

    #[test]
    fn results_are_held_against_what_was_asked() {
        let tools = json!({"jsonrpc": "2.0", "id": 1, "result": {"tools": []}});
        assert!(!wrong("2025-11-25", |all| all.result(Sender::Client, "tools/list", &tools)));
        assert!(wrong("2025-11-25", |all| all.result(Sender::Client, "prompts/list", &tools)));
        assert!(
            wrong(MODERN, |all| all.result(Sender::Client, "tools/list", &tools)),
            "it says no resultType"
        );
        let mut task = json!({"jsonrpc": "2.0", "id": 1, "result": {
            "resultType": "task", "taskId": "t", "status": "working", "createdAt": "", "lastUpdatedAt": "",
            "ttlMs": null}});
        assert!(!wrong(MODERN, |all| all.result(Sender::Client, "tools/call", &task)));
        assert!(wrong(MODERN, |all| all.result(Sender::Client, "tasks/get", &task)), "no complete result");
        task["result"]["resultType"] = json!("complete");
        assert!(!wrong(MODERN, |all| all.result(Sender::Client, "tasks/get", &task)));
        task["result"]["status"] = json!("completed");
        assert!(
            wrong(MODERN, |all| all.result(Sender::Client, "tasks/get", &task)),
            "completed without a result"
        );
    }

    #[test]
    fn an_error_without_an_id_fits_and_one_with_a_code_of_its_own_says_what_it_must() {
        let schemas = Schemas::read().unwrap();
        let mut error = json!({"jsonrpc": "2.0", "error": {"code": -32700, "message": "?"}});
        assert!(schemas.error("2025-03-26", &error).is_empty());
        error["id"] = Value::Null;
        assert!(!schemas.error("2025-03-26", &error).is_empty());
        let version =
            json!({"jsonrpc": "2.0", "id": 1, "error": {"code": -32022, "message": "?", "data": {}}});
        assert!(!schemas.error(MODERN, &version).is_empty(), "it must say what is supported");
        assert!(schemas.error("2025-11-25", &version).is_empty());
    }
}
