//! The official definitions of A2A, and what each version says over each binding a message must be.
//!
//! Keeps true: methods, routes, fields and which of them are required are read from the definitions in
//! `tests/vectors/a2a/official`; only what these do not define is written here: the envelope of JSON-RPC 2.0 around
//! messages of 1.0, and the errors of 1.0 (A2A 1.0.1, sections 9.5 and 11.6).

mod call;
mod message;
mod proto_json;
mod route;

use std::collections::BTreeMap;

use anyhow::{Context, Result, anyhow};
use protox::prost_reflect::{DescriptorPool, MessageDescriptor};
use serde_json::Value;

pub(super) use self::call::STATUS;
use self::proto_json::{ProtoJson, Unknown};
use self::route::Route;
use super::definitions::{Definitions, Problem, vector};
use super::reader::Head;
use crate::tool;

pub(super) const RPC_10: &str = "A2A 1.0 over JSON-RPC";
pub(super) const RPC_03: &str = "A2A 0.3 over JSON-RPC";
pub(super) const REST_10: &str = "A2A 1.0 over REST";
pub(super) const REST_03: &str = "A2A 0.3 over REST";
pub(super) const GRPC_10: &str = "A2A 1.0 over gRPC";
pub(super) const GRPC_03: &str = "A2A 0.3 over gRPC";
const CARD: &str = "A2A, agent card";
const CARD_NAME: &str = "agent-card.json";
/// Requests that name no method, as the place of their errors.
const UNKNOWN: &str = "-";
const RPC_VERSION: &str = "2.0";
/// Definitions of 0.3 by the `kind` of a result, for problems that name the place.
const KINDS: [(&str, &str); 4] = [
    ("task", "Task"),
    ("message", "Message"),
    ("status-update", "TaskStatusUpdateEvent"),
    ("artifact-update", "TaskArtifactUpdateEvent"),
];

/// The definitions of both versions.
pub(super) struct AgentDefinitions {
    pool: DescriptorPool,
    rules: ProtoJson,
    v10: Vec<Method>,
    v03: Vec<Method>,
    /// JSON-RPC of 0.3.
    schema: Definitions,
    /// Its methods, with their definitions.
    rpc_methods: BTreeMap<String, String>,
}

/// A method of a service.
struct Method {
    name: String,
    input: MessageDescriptor,
    output: MessageDescriptor,
    route: Option<Route>,
}

/// A request to an agent.
pub(super) struct AgentRequest {
    /// Version and binding.
    pub(super) form: &'static str,
    pub(super) method: String,
    pub(super) problems: Vec<Problem>,
}

/// Kind of an answer.
pub(super) struct AgentAnswer {
    pub(super) is_error: bool,
    pub(super) problems: Vec<Problem>,
}

impl AgentRequest {
    fn new(form: &'static str, method: &str, problems: Vec<Problem>) -> AgentRequest {
        AgentRequest { form, method: method.to_owned(), problems }
    }

    fn unknown(form: &'static str, error: &str) -> AgentRequest {
        AgentRequest::new(form, UNKNOWN, vec![Problem::new(error.to_owned())])
    }
}

impl AgentDefinitions {
    pub(super) fn read() -> Result<AgentDefinitions> {
        let root = tool::root()?;
        let folders = [root.join("tests/vectors/a2a/official"), root.join("proto")];
        let compiled = protox::Compiler::new(folders)
            .and_then(|mut compiler| {
                compiler.open_files(["v1.proto", "v0_3.proto", "a2a/rpc.proto"])?;
                Ok(compiler.descriptor_pool())
            })
            .map_err(|error| anyhow!("the protocol buffers of A2A: {error}"));
        let pool = compiled?;
        let schema = Definitions::new(vector("a2a/official/a2a-0.3.0.json")?);
        let rpc_methods = schema.methods("A2ARequest").into_iter().collect();
        let v10 = methods(&pool, "lf.a2a.v1.A2AService")?;
        let v03 = methods(&pool, "a2a.v1.A2AService")?;
        Ok(AgentDefinitions { rules: ProtoJson::new(&pool)?, v10, v03, schema, rpc_methods, pool })
    }

    /// Every method by version and binding.
    pub(super) fn served(&self) -> impl Iterator<Item = (&'static str, String)> {
        let of = |form: &'static str, methods: &[Method]| -> Vec<(&'static str, String)> {
            methods.iter().map(|method| (form, method.name.clone())).collect()
        };
        let over_rpc_03 = self.rpc_methods.keys().map(|method| (RPC_03, method.clone())).collect();
        let card = vec![(CARD, CARD_NAME.to_owned())];
        let of_10 = [RPC_10, REST_10, GRPC_10].map(|form| of(form, &self.v10));
        let of_03 = [REST_03, GRPC_03].map(|form| of(form, &self.v03));
        of_10.into_iter().chain(of_03).chain([over_rpc_03, card]).flatten()
    }

    /// Reads a request; `None` if it is not to an agent.
    pub(super) fn request(&self, head: &Head, body: &[u8]) -> Option<AgentRequest> {
        let (path, query) = head.target.split_once('?').unwrap_or((head.target.as_str(), ""));
        let segments: Vec<&str> = path.trim_start_matches('/').split('/').collect();
        match segments.as_slice() {
            [".well-known", CARD_NAME] | [_, ".well-known", CARD_NAME] => {
                Some(AgentRequest::new(CARD, CARD_NAME, Vec::new()))
            }
            [_, "a2a"] | [_, "a2a", ""] => Some(self.rpc_request(body)),
            [_, "a2a", below @ ..] => Some(self.rest_request(&head.method, &below.join("/"), query, body)),
            _ => None,
        }
    }

    fn rpc_request(&self, body: &[u8]) -> AgentRequest {
        let Ok(message) = serde_json::from_slice::<Value>(body) else {
            return AgentRequest::new(RPC_10, UNKNOWN, vec![no_json()]);
        };
        let name = message.get("method").and_then(Value::as_str).unwrap_or_default();
        if let Some(definition) = self.rpc_methods.get(name) {
            return AgentRequest::new(RPC_03, name, self.schema.problems(definition, &message));
        }
        let Some(method) = self.v10.iter().find(|method| method.name == name) else {
            return AgentRequest::unknown(RPC_10, "no version has this method");
        };
        let mut problems = envelope(&message);
        let empty = Value::Object(serde_json::Map::new());
        let params = message.get("params").unwrap_or(&empty);
        let wrong = self.rules.problems(&method.input, params, Unknown::RefusedInRequest);
        problems.extend(wrong.into_iter().map(|problem| problem.below("/params")));
        AgentRequest::new(RPC_10, name, problems)
    }

    fn rest_request(&self, http_method: &str, path: &str, query: &str, body: &[u8]) -> AgentRequest {
        let is_03 = path == "v1" || path.starts_with("v1/");
        let (form, methods) = if is_03 { (REST_03, &self.v03) } else { (REST_10, &self.v10) };
        let found = methods.iter().find_map(|method| {
            let route = method.route.as_ref()?;
            Some((method, route, route.matches(http_method, path)?))
        });
        let Some((method, route, variables)) = found else {
            return AgentRequest::unknown(form, "no method has this route");
        };
        let body = match body {
            [] => Value::Null,
            body => match serde_json::from_slice(body) {
                Ok(body) => body,
                Err(_) => return AgentRequest::new(form, &method.name, vec![no_json()]),
            },
        };
        // The text of 0.3 shows the parameters of JSON-RPC, and SDKs send them.
        let is_of_the_text = is_03
            && method.input.name() == "SendMessageRequest"
            && self.schema.problems("MessageSendParams", &body).is_empty();
        if is_of_the_text {
            return AgentRequest::new(form, &method.name, Vec::new());
        }
        let whole = route.request(&method.input, variables, query, body);
        let problems = self.rules.problems(&method.input, &whole, Unknown::RefusedInRequest);
        AgentRequest::new(form, &method.name, problems)
    }

    /// Reads an answer, or an event of a stream, with the HTTP status of the response.
    pub(super) fn answer(&self, request: &AgentRequest, status: u16, message: &Value) -> AgentAnswer {
        let is_error = message.get("error").is_some() || status >= 400;
        let problems = match (request.form, is_error) {
            (RPC_03, true) => self.schema.problems("JSONRPCErrorResponse", message),
            (RPC_03, false) => self.rpc_03_result(&request.method, message),
            (RPC_10, true) => self.rpc_error(message),
            (RPC_10, false) => {
                let mut problems = envelope(message);
                let result = message.get("result").unwrap_or(&Value::Null);
                let wrong = self.output(&self.v10, &request.method, result);
                problems.extend(wrong.into_iter().map(|problem| problem.below("/result")));
                problems
            }
            (REST_10, true) => self.rest_error(message),
            (REST_10, false) => self.output(&self.v10, &request.method, message),
            (REST_03, false) => self.output(&self.v03, &request.method, message),
            (CARD, false) => self.card(message),
            // 0.3 has no errors over REST, and neither version has one of a card.
            _ => Vec::new(),
        };
        AgentAnswer { is_error, problems }
    }

    fn output(&self, methods: &[Method], name: &str, message: &Value) -> Vec<Problem> {
        let Some(method) = methods.iter().find(|method| method.name == name) else {
            return vec![Problem::new("a result of no method".into())];
        };
        // Cards serve readers of both versions.
        let is_card = method.output.name() == "AgentCard";
        let unknown = if is_card { Unknown::Ignored } else { Unknown::Refused };
        self.rules.problems(&method.output, message, unknown)
    }

    fn rpc_03_result(&self, method: &str, message: &Value) -> Vec<Problem> {
        let request = self.rpc_methods.get(method).map(String::as_str).unwrap_or_default();
        let definition = format!("{}SuccessResponse", request.trim_end_matches("Request"));
        let is_defined = self.schema.get(&definition).is_some();
        // A subscription is answered as the stream that it joins.
        let definition = if is_defined { definition.as_str() } else { "SendStreamingMessageSuccessResponse" };
        let problems = self.schema.problems(definition, message);
        let kind = message.pointer("/result/kind").and_then(Value::as_str);
        let of_kind = KINDS.iter().find(|(name, _)| !problems.is_empty() && Some(*name) == kind);
        let Some((_, definition)) = of_kind else { return problems };
        let closer = self.schema.problems_at("/result", definition, message);
        if closer.is_empty() { problems } else { closer }
    }

    /// Faults of a card: each version reads its own members of it.
    fn card(&self, message: &Value) -> Vec<Problem> {
        let mut problems = self.schema.problems("AgentCard", message);
        match self.pool.get_message_by_name("lf.a2a.v1.AgentCard") {
            Some(definition) => {
                problems.extend(self.rules.problems(&definition, message, Unknown::Ignored));
            }
            None => problems.push(Problem::new("1.0 has no agent card".into())),
        }
        problems
    }

    fn rpc_error(&self, message: &Value) -> Vec<Problem> {
        let mut problems = envelope(message);
        let code = message.pointer("/error/code");
        hold(&mut problems, code.is_some_and(Value::is_i64), "/error/code", "an integer");
        let text = message.pointer("/error/message");
        hold(&mut problems, text.is_some_and(Value::is_string), "/error/message", "a string");
        problems.extend(self.details(message, "/error/data"));
        problems
    }

    fn rest_error(&self, message: &Value) -> Vec<Problem> {
        let mut problems = Vec::new();
        let code = message.pointer("/error/code");
        hold(&mut problems, code.is_some_and(Value::is_u64), "/error/code", "an HTTP status");
        for pointer in ["/error/status", "/error/message"] {
            let text = message.pointer(pointer);
            hold(&mut problems, text.is_some_and(Value::is_string), pointer, "a string");
        }
        problems.extend(self.details(message, "/error/details"));
        problems
    }

    /// Faults of the details of an error, each of which names its message.
    fn details(&self, message: &Value, pointer: &str) -> Vec<Problem> {
        let Some(details) = message.pointer(pointer) else { return Vec::new() };
        let Some(details) = details.as_array() else {
            return vec![Problem::new("this is not an array".into()).below(pointer)];
        };
        let mut problems = Vec::new();
        for (index, detail) in details.iter().enumerate() {
            let at = format!("{pointer}/{index}");
            let mut detail = detail.clone();
            let kind = detail.as_object_mut().and_then(|members| members.remove("@type"));
            let name = kind.as_ref().and_then(Value::as_str).and_then(|url| url.rsplit('/').next());
            match name.and_then(|name| self.pool.get_message_by_name(name)) {
                Some(definition) => {
                    let wrong = self.rules.problems(&definition, &detail, Unknown::Refused);
                    problems.extend(wrong.into_iter().map(|problem| problem.below(&at)));
                }
                None => hold(&mut problems, false, &at, "a message of google.rpc by its @type"),
            }
        }
        problems
    }
}

fn methods(pool: &DescriptorPool, service: &str) -> Result<Vec<Method>> {
    let http = pool.get_extension_by_name("google.api.http").context("routes of methods")?;
    let service = pool.get_service_by_name(service).with_context(|| service.to_owned())?;
    let method = |method: protox::prost_reflect::MethodDescriptor| Method {
        name: method.name().to_owned(),
        input: method.input(),
        output: method.output(),
        route: method.options().get_extension(&http).as_message().and_then(Route::read),
    };
    Ok(service.methods().map(method).collect())
}

/// Faults of the envelope of JSON-RPC 2.0.
fn envelope(message: &Value) -> Vec<Problem> {
    let mut problems = Vec::new();
    let is_versioned = message.get("jsonrpc").and_then(Value::as_str) == Some(RPC_VERSION);
    hold(&mut problems, is_versioned, "/jsonrpc", "2.0");
    // The error of a request that could not be read has null.
    let is_null = message.get("id").is_some_and(Value::is_null) && message.get("error").is_some();
    let is_id = message.get("id").is_some_and(|id| id.is_string() || id.is_number()) || is_null;
    hold(&mut problems, is_id, "/id", "a string or a number");
    problems
}

fn hold(problems: &mut Vec<Problem>, fits: bool, at: &str, wanted: &str) {
    if !fits {
        problems.push(Problem { pointer: at.to_owned(), error: format!("this is not {wanted}") });
    }
}

fn no_json() -> Problem {
    Problem::new("this is no JSON".into())
}

#[cfg(test)]
mod tests;
