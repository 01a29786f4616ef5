//! Resources listed by plugins, for a caller of `resources/list`.
//!
//! Keeps true: entries behind a template that the caller cannot see are not listed (I-10); entries have the form of the
//! request's revision.

use asp_call::call::{CallKind, ClientAbilities, Invocation};
use asp_json::Members;
use asp_proto::mcp_revision::{Feature, Revision};
use asp_proto::snapshot::Protocol;
use futures::future::join_all;
use serde_json::{Map, Value};

use super::codec::Message;
use super::context::trace_of;
use super::lists::{self, McpList};
use crate::ProtocolRequest;

/// Returns all entries, in the order of the server's templates; none for any other request.
pub(super) async fn of(
    request: &ProtocolRequest,
    message: &Message,
    revision: Revision,
    session: &str,
) -> Vec<Value> {
    if message.method.as_deref().and_then(McpList::of_method) != Some(McpList::Resources) {
        return Vec::new();
    }
    let listing = request.server.entries.iter().filter(|entry| entry.primitive.listed_by_runtime);
    let visible = listing.filter(|entry| lists::shows(request, entry));
    let asked = visible.map(|entry| {
        let invocation = Invocation {
            caller: request.caller.clone(),
            subject: request.subject(),
            server: request.server.clone(),
            protocol: Protocol::Mcp,
            entry: entry.clone(),
            arguments: Value::Object(Map::new()).into(),
            meta: Members::default(),
            kind: CallKind::List,
            chosen: None,
            protocol_request_id: message.id_text().unwrap_or_default().into(),
            idempotency_key: None,
            deadline: None,
            abilities: ClientAbilities::default(),
            session: session.to_owned(),
            trace: trace_of(request, message),
            bytes_in: request.body.len(),
            memory: request.memory.clone(),
            parent: None,
        };
        request.gateway.pipeline.listed(&request.snapshot, invocation)
    });
    let asked: Vec<_> = asked.collect();
    let mut listed: Vec<Value> = join_all(asked).await.iter().flat_map(|list| list.iter().cloned()).collect();
    if !revision.has(Feature::Titles) {
        listed.iter_mut().filter_map(Value::as_object_mut).for_each(|resource| {
            resource.remove("title");
        });
    }
    listed
}
