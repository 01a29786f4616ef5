//! The REST binding of both versions.
//!
//! Owns the routes below an agent's base path, as pure functions, and the forms of bodies, queries and errors. Bodies of 0.3 are
//! ProtoJSON of its protocol buffers, not the objects of its JSON-RPC binding; those are read too. Keeps true: an id is one path
//! segment, so that `/tasks/{id}:subscribe` is never a task of that name, and an encoded slash never ends a segment.

mod client;
mod route;

pub use client::{RestRequest, decode_answer, decode_event, encode_request};
pub use route::{Route, RouteFault, is_id, route};

use asp_json::Json;

use crate::bounds::MAX_LISTED;
use crate::error::{A2aError, A2aFailure};
use crate::json::answer::{write_answer, write_stream_event};
use crate::json::request::{PathIds, read_operation};
use crate::json::{Dialect, read_value, writer};
use crate::model::{A2aAnswer, Operation, OperationKind, Request, StreamEvent};
use crate::version::{Generation, VERSION_HEADER};

/// Preferred media type of bodies in 1.0; answer with the one that the request has, `application/json` otherwise.
pub const MEDIA_TYPE: &str = "application/a2a+json";

/// Reads a request. `query` is the part after `?`; the body of a request without one is empty, which counts as `{}`.
pub fn decode_request(route: Route, query: &str, body: &[u8]) -> Result<Request, A2aFailure> {
    let dialect = Dialect::of_rest(route.generation);
    let is_blank = body.iter().all(u8::is_ascii_whitespace);
    let fields = match route.kind {
        OperationKind::Send
        | OperationKind::Stream
        | OperationKind::CreatePush
        | OperationKind::CancelTask
        | OperationKind::Subscribe
            if !is_blank =>
        {
            let body = Json::parse_request(body).map_err(|_| A2aFailure::from(A2aError::Parse))?;
            body.text().to_owned()
        }
        _ => query_fields(query),
    };
    let ids = PathIds { task: route.task, config: route.config };
    let (tenant, mut operation) =
        read_value(&fields, |object| (object.id("tenant"), read_operation(route.kind, object, dialect, ids)))
            .map_err(A2aFailure::invalid)?;
    // In 0.3 the parameter is the id (`config_id`), whatever the configuration in the body says.
    if let Operation::CreatePush(config) = &mut operation
        && (config.id.is_none() || route.generation == Generation::V03)
        && let Some(id) = query_id(query, "configId")?
    {
        config.id = Some(id);
    }
    let tenant = match route.tenant.or(tenant) {
        None => query_id(query, "tenant")?,
        named => named,
    };
    Ok(Request { generation: route.generation, tenant, operation })
}

/// Returns the parameters of a query as an object of strings, the first values of equal names.
fn query_fields(query: &str) -> String {
    let pairs = form_urlencoded::parse(query.as_bytes()).take(MAX_LISTED);
    writer::object(|writer| {
        let mut seen: Vec<String> = Vec::new();
        for (name, value) in pairs {
            if !seen.iter().any(|own| *own == name) {
                writer.string(&name, &value);
                seen.push(name.into_owned());
            }
        }
    })
}

/// Returns an id of the query; an empty one is none.
fn query_id(query: &str, name: &str) -> Result<Option<String>, A2aFailure> {
    let mut values = form_urlencoded::parse(query.as_bytes());
    match values.find(|(own, value)| own == name && !value.is_empty()) {
        Some((_, id)) if !is_id(&id) => Err(A2aFailure::invalid_field(name, "is not an id")),
        found => Ok(found.map(|(_, id)| id.into_owned())),
    }
}

/// Returns the version that a query names, for [`crate::version::check_version`].
pub fn query_version(query: &str) -> Option<String> {
    let is_version = |name: &str| name.eq_ignore_ascii_case(VERSION_HEADER);
    form_urlencoded::parse(query.as_bytes())
        .find(|(name, _)| is_version(name))
        .map(|(_, value)| value.into_owned())
}

/// Writes the body of an answer.
pub fn encode_answer(generation: Generation, answer: &A2aAnswer) -> String {
    write_answer(answer, Dialect::of_rest(generation))
}

/// Writes an event of a stream, on one line. In 1.0 this is the body of a push, too.
pub fn encode_event(generation: Generation, event: &StreamEvent) -> String {
    write_stream_event(event, Dialect::of_rest(generation))
}

/// Returns the HTTP status and the body of an error. 0.3 defines no form: it is the error object of JSON-RPC there.
pub fn encode_error(generation: Generation, failure: &A2aFailure) -> (u16, String) {
    let status = failure.error.http_status();
    (status, encode_error_as(status, generation, failure))
}

/// Writes the body of an error for a response with this HTTP status.
pub fn encode_error_as(status: u16, generation: Generation, failure: &A2aFailure) -> String {
    let body = match generation {
        Generation::V03 => failure.to_jsonrpc(),
        Generation::V10 => failure.to_rest_as(status),
    };
    body.text().to_owned()
}

#[cfg(test)]
mod tests;
