//! Calls of gRPC: the method by the path, the messages, and the status that ends a call (gRPC over HTTP2).

use http::HeaderMap;
use protox::prost_reflect::{DynamicMessage, MessageDescriptor, Value};
use tonic::metadata::MetadataMap;

use super::super::definitions::Problem;
use super::{AgentAnswer, AgentDefinitions, AgentRequest, GRPC_03, GRPC_10, Method, message};

/// Services, each with the version whose binding it is.
const SERVICES: [(&str, &str); 2] = [("lf.a2a.v1.A2AService", GRPC_10), ("a2a.v1.A2AService", GRPC_03)];
/// Header of the code of a status.
pub(in crate::wire) const STATUS: &str = "grpc-status";
/// Header of a `google.rpc.Status`.
const DETAILS: &str = "grpc-status-details-bin";
/// Largest code (`google.rpc.Code`).
const LAST_CODE: i32 = 16;
const TYPES: &str = "type.googleapis.com/";

impl AgentDefinitions {
    /// Finds the method of a call; `None` if it is not one to an agent.
    pub(in crate::wire) fn call(&self, path: &str) -> Option<AgentRequest> {
        let (service, name) = path.trim_start_matches('/').split_once('/')?;
        let (_, form) = SERVICES.into_iter().find(|(known, _)| *known == service)?;
        Some(match self.method(form, name) {
            Some(_) => AgentRequest::new(form, name, Vec::new()),
            None => AgentRequest::unknown(form, "no version has this method"),
        })
    }

    /// Reads a message of the client, whose faults become those of the request; returns it as text.
    pub(in crate::wire) fn call_message(&self, request: &mut AgentRequest, bytes: &[u8]) -> String {
        let Some(method) = self.method(request.form, &request.method) else { return String::new() };
        let (problems, text) = self.read_message(&method.input, bytes);
        request.problems.extend(problems);
        text
    }

    /// Reads a message of the agent; returns it as text too.
    pub(in crate::wire) fn call_result(&self, request: &AgentRequest, bytes: &[u8]) -> (AgentAnswer, String) {
        let (problems, text) = match self.method(request.form, &request.method) {
            Some(method) => self.read_message(&method.output, bytes),
            None => (vec![Problem::new("a result of no method".into())], String::new()),
        };
        (AgentAnswer { is_error: false, problems }, text)
    }

    /// Reads the status of a call; `None` if it succeeded.
    pub(in crate::wire) fn call_error(&self, headers: &HeaderMap) -> Option<AgentAnswer> {
        let metadata = MetadataMap::from_headers(headers.clone());
        let code = metadata.get(STATUS).and_then(|code| code.to_str().ok()?.parse::<i32>().ok());
        let problems = match code {
            Some(0) => return None,
            Some(code @ 1..=LAST_CODE) => match metadata.get_bin(DETAILS).map(|details| details.to_bytes()) {
                Some(Ok(details)) => self.status_problems(code, &details),
                Some(Err(_)) => vec![Problem::new(format!("{DETAILS} is not base64"))],
                None => Vec::new(),
            },
            _ => vec![Problem::new(format!("{STATUS} is not a code"))],
        };
        Some(AgentAnswer { is_error: true, problems })
    }

    fn status_problems(&self, code: i32, bytes: &[u8]) -> Vec<Problem> {
        let Some(definition) = self.pool.get_message_by_name("google.rpc.Status") else {
            return vec![Problem::new("google.rpc.Status is not defined".into())];
        };
        let status = match DynamicMessage::decode(definition, bytes) {
            Ok(status) => status,
            Err(error) => return vec![Problem::new(format!("{DETAILS} is no google.rpc.Status: {error}"))],
        };
        let mut problems = message::problems(&self.rules, &status);
        let of_details = status.get_field_by_name("code").and_then(|code| code.as_i32());
        if of_details != Some(code) {
            problems.push(Problem::new(format!("{STATUS} is {code}, and the code in {DETAILS} another one")));
        }
        let details = status.get_field_by_name("details");
        let details = details.iter().filter_map(|details| details.as_list()).flatten();
        problems
            .extend(details.filter_map(Value::as_message).flat_map(|detail| self.detail_problems(detail)));
        problems
    }

    /// Faults of a detail, a message of `google.rpc` by the name in its URL.
    fn detail_problems(&self, detail: &DynamicMessage) -> Vec<Problem> {
        let url = detail.get_field_by_name("type_url");
        let value = detail.get_field_by_name("value");
        let name = url.as_ref().and_then(|url| url.as_str()?.strip_prefix(TYPES));
        let bytes = value.as_ref().and_then(|value| value.as_bytes());
        match (name.and_then(|name| self.pool.get_message_by_name(name)), bytes) {
            (Some(definition), Some(bytes)) => self.read_message(&definition, bytes).0,
            _ => vec![Problem::new(format!("a detail of the type {name:?}"))],
        }
    }

    fn read_message(&self, definition: &MessageDescriptor, bytes: &[u8]) -> (Vec<Problem>, String) {
        match DynamicMessage::decode(definition.clone(), bytes) {
            Ok(message) => (message::problems(&self.rules, &message), message.to_string()),
            Err(error) => {
                let problem = Problem::new(format!("this is no {}: {error}", definition.full_name()));
                (vec![problem], format!("{} bytes", bytes.len()))
            }
        }
    }

    fn method(&self, form: &str, name: &str) -> Option<&Method> {
        let methods = if form == GRPC_10 { &self.v10 } else { &self.v03 };
        methods.iter().find(|method| method.name == name)
    }
}
