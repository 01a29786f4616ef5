//! The caller's calls of one tool, latest first.
//!
//! Keeps true: a page is bounded work, so it may show few calls or none and still have a next page; a cursor is valid
//! for one list of one caller.

use asp_call::call::chosen::Put;
use asp_call::call::remote::{CallCursor, ListOrder, ListedCall};
use asp_call::clock::rfc3339;
use asp_call::seal::Purpose;
use asp_proto::snapshot::Protocol;
use axum::response::Response;
use http::StatusCode;
use serde_json::{Value, json};

use super::json as respond;
use super::problem::Problem;
use super::resource;
use crate::ProtocolRequest;

/// Maximum and default number of records that one page examines.
const MOST: u32 = 100;

pub(super) async fn list(request: &ProtocolRequest, tool: &str) -> Result<Response, Problem> {
    let entry = request.tool(tool)?;
    let limit = match request.parameter("limit") {
        None => MOST,
        Some(text) => text.parse().ok().filter(|limit| (1..=MOST).contains(limit)).ok_or_else(|| {
            Problem::invalid(StatusCode::BAD_REQUEST, &format!("limit must be a number from 1 to {MOST}"))
        })?,
    };
    let context = context(request, tool);
    let before = match request.parameter("cursor") {
        None => None,
        Some(cursor) => {
            let opened = request.gateway.sealer.open(Purpose::Cursor, &context, cursor);
            let place = opened.and_then(|plain| read(&plain));
            let invalid = || Problem::invalid(StatusCode::BAD_REQUEST, "the cursor is not valid");
            Some(place.ok_or_else(invalid)?)
        }
    };
    let server = &request.server.message.name;
    let page =
        request.gateway.pipeline.list(&request.caller, server, ListOrder::Created, before, limit).await;
    let page = page.map_err(Problem::of_store)?;
    let is_of_tool = |put: &Put| put.protocol == Protocol::Rest && put.is_of(&entry.primitive);
    let of_tool = page.calls.iter().filter(|listed| is_of_tool(&listed.put));
    let calls: Vec<Value> = of_tool.map(|listed| call(request, listed)).collect();
    let mut body = json!({"calls": calls});
    if let (Some(next), Some(body)) = (page.next, body.as_object_mut()) {
        let sealed = request.gateway.sealer.seal(Purpose::Cursor, &context, &write(next));
        let failed =
            |_| Problem::of(&asp_call::call::outcome::Refusal::Internal("a cursor is not sealed".into()));
        body.insert("nextCursor".into(), sealed.map_err(failed)?.into());
    }
    Ok(respond(StatusCode::OK, &body))
}

fn call(request: &ProtocolRequest, listed: &ListedCall) -> Value {
    let name = listed.put.name.as_str();
    json!({
        "id": name,
        "status": resource::listed(listed.state),
        "createdAt": rfc3339(listed.created_ms),
        "updatedAt": rfc3339(listed.updated_ms),
        "links": {"self": format!("{}/{name}", request.uri.path())},
    })
}

fn context(request: &ProtocolRequest, tool: &str) -> Vec<u8> {
    let caller = &request.caller;
    let server = &request.server.message.name;
    ["rest calls", tool, server, &caller.issuer, &caller.org, &caller.user, &caller.client]
        .join("\u{0}")
        .into_bytes()
}

fn write((created_ms, call): CallCursor) -> Vec<u8> {
    [created_ms.to_be_bytes().as_slice(), &call].concat()
}

fn read(plain: &[u8]) -> Option<CallCursor> {
    let (created_ms, call) = plain.split_at_checked(8)?;
    Some((i64::from_be_bytes(created_ms.try_into().ok()?), call.try_into().ok()?))
}
