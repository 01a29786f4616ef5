//! A call's outcome as MCP shows it, per revision.

use asp_edge::Reason;
use asp_snapshot::VirtualServer;
use asp_snapshot::mcp_revision::Revision;
use serde_json::{Map, Value, json};

use super::codec::Failure;
use crate::call::outcome::{Outcome, Output, Refusal, text_block};

/// MCP up to 2025-11-25, resources, error handling; 2026-07-28 has -32602 for it.
const RESOURCE_NOT_FOUND: i32 = -32002;

/// What kind of request the outcome answers: only a tool call can carry an error in its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    Tool,
    Other,
}

/// The result, or the error, of a finished call.
pub(super) fn of_outcome(
    outcome: &Outcome,
    asked: Asked,
    revision: Revision,
) -> Result<Map<String, Value>, Failure> {
    match outcome {
        Outcome::Done { output, replayed } => {
            let mut result = of_output(output, revision);
            if *replayed {
                set_meta(&mut result, "asp/replayed", true.into());
            }
            Ok(result)
        }
        Outcome::Refused(refusal) => of_refusal(refusal, asked, revision),
    }
}

fn of_output(output: &Output, revision: Revision) -> Map<String, Value> {
    let mut result = Map::new();
    match output {
        Output::Tool { content, structured, is_error, meta } => {
            let mut content: Vec<Value> = content.iter().map(|block| known_block(block, revision)).collect();
            if let Some(value) = structured.as_ref().filter(|_| !is_error) {
                if takes_structured(value, revision) {
                    result.insert("structuredContent".into(), value.clone());
                } else if content.is_empty() {
                    content.push(text_block(&value.to_string()));
                }
            }
            result.insert("content".into(), Value::Array(content));
            result.insert("isError".into(), (*is_error).into());
            if !meta.is_empty() {
                result.insert("_meta".into(), Value::Object(meta.clone()));
            }
        }
        Output::Contents { contents } => {
            result.insert("contents".into(), Value::Array(contents.clone()));
        }
        Output::Messages { description, messages } => {
            if let Some(description) = description {
                result.insert("description".into(), description.clone().into());
            }
            result.insert("messages".into(), Value::Array(messages.clone()));
        }
    }
    result
}

/// MCP `CallToolResult.structuredContent`: unknown to 2025-03-26, an object until 2025-11-25, then any JSON value.
fn takes_structured(value: &Value, revision: Revision) -> bool {
    revision.is_modern() || (revision >= Revision::V2025_06_18 && value.is_object())
}

/// 2025-03-26 knows no resource links: a client of that revision would refuse the whole result.
fn known_block(block: &Value, revision: Revision) -> Value {
    if revision < Revision::V2025_06_18 && block.get("type").and_then(Value::as_str) == Some("resource_link")
    {
        let uri = block.get("uri").and_then(Value::as_str).unwrap_or_default();
        return text_block(uri);
    }
    block.clone()
}

/// A refusal inside a tool call is a tool error where the model can act on it, else a JSON-RPC error.
fn of_refusal(refusal: &Refusal, asked: Asked, revision: Revision) -> Result<Map<String, Value>, Failure> {
    let message = refusal.public_message();
    if asked == Asked::Tool {
        match refusal {
            Refusal::Limited { limit, retry_after_ms } => {
                let mut result = tool_error(&format!("{message}; retry after {retry_after_ms} ms"), refusal);
                set_meta(&mut result, "asp/retryAfterMs", (*retry_after_ms).into());
                set_meta(&mut result, "asp/limit", (*limit).into());
                return Ok(result);
            }
            // SEP-1303: from 2025-11-25 on the model sees what is wrong with its arguments.
            Refusal::InvalidArguments { .. } if revision >= Revision::V2025_11_25 => {
                return Ok(tool_error(&message, refusal));
            }
            Refusal::NotApproved(_)
            | Refusal::InputExpired
            | Refusal::Upstream(_)
            | Refusal::Declined(_)
            | Refusal::OutcomeUnknown
            | Refusal::InvalidOutput { .. } => return Ok(tool_error(&message, refusal)),
            _ => {}
        }
    }
    let mut failure = Failure::with(refusal.reason(), &message).in_call();
    match refusal {
        // Codes that this protocol gives a meaning of their own stay ours.
        Refusal::Relayed { code: code @ (-32603..=-32601), .. } => failure.code = *code as i32,
        Refusal::Relayed { .. } => failure.code = Reason::Internal.jsonrpc_code(),
        Refusal::UnknownResource { uri } => failure = no_resource(failure, uri, revision),
        Refusal::InvalidArguments { pointer, .. } => {
            failure = failure.data("pointer", pointer.clone().into())
        }
        Refusal::Limited { limit, retry_after_ms } => {
            failure = failure.data("retryAfterMs", (*retry_after_ms).into()).data("limit", (*limit).into());
        }
        _ => {}
    }
    Err(failure)
}

/// `isError` without `structuredContent`: clients validate that even on errors.
fn tool_error(text: &str, refusal: &Refusal) -> Map<String, Value> {
    let mut result = Map::new();
    result.insert("content".into(), json!([text_block(text)]));
    result.insert("isError".into(), true.into());
    set_meta(&mut result, "asp/reason", refusal.reason().as_str().into());
    result
}

/// Sets a member of the result's `_meta`.
pub(super) fn set_meta(result: &mut Map<String, Value>, name: &str, value: Value) {
    match result.get_mut("_meta") {
        Some(Value::Object(meta)) => drop(meta.insert(name.into(), value)),
        _ => drop(result.insert("_meta".into(), json!({name: value}))),
    }
}

/// Unknown names are answered alike whether they are hidden or do not exist (I-10). A resource that is not
/// found names its URI (SEP-2164).
pub(super) fn unknown(what: &str, name: &str, revision: Revision) -> Failure {
    let failure = Failure::with(Reason::UnknownPrimitive, &format!("unknown {what}: {name}")).in_call();
    if what == "resource" { no_resource(failure, name, revision) } else { failure }
}

fn no_resource(failure: Failure, uri: &str, revision: Revision) -> Failure {
    let mut failure = failure.data("uri", uri.into());
    if !revision.is_modern() {
        failure.code = RESOURCE_NOT_FOUND;
    }
    failure
}

/// MCP `Implementation` of a server; a title from 2025-06-18 on.
pub(super) fn server_info(server: &VirtualServer, revision: Revision) -> Value {
    let server = &server.message;
    let mut info = json!({"name": server.name, "version": server.version});
    if let Some(info) = info.as_object_mut()
        && revision >= Revision::V2025_06_18
        && !server.title.is_empty()
    {
        info.insert("title".into(), server.title.clone().into());
    }
    info
}
