//! The four lists, as their caller may see them (I-10): entitled primitives, in list order, paged.

use std::sync::Arc;

use asp_call::seal::Purpose;
use asp_edge::Reason;
use asp_pipeline::pipeline::entitlement::ServerView;
use asp_proto::snapshot::{Kind, Protocol};
use asp_snapshot::{ListedPrimitive, VirtualServer};
use serde_json::{Map, Value, json};

use super::Context;
use super::all_servers;
use super::codec::{Message, RpcFailure};
use crate::ProtocolRequest;

/// Maximum number of entries on one page.
const PAGE: usize = 500;

/// One of the lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum McpList {
    Tools,
    Prompts,
    Resources,
    Templates,
}

impl McpList {
    /// Returns the list that a method requests.
    pub(super) fn of_method(method: &str) -> Option<McpList> {
        match method {
            "tools/list" => Some(McpList::Tools),
            "prompts/list" => Some(McpList::Prompts),
            "resources/list" => Some(McpList::Resources),
            "resources/templates/list" => Some(McpList::Templates),
            _ => None,
        }
    }

    const fn member(self) -> &'static str {
        match self {
            McpList::Tools => "tools",
            McpList::Prompts => "prompts",
            McpList::Resources => "resources",
            McpList::Templates => "resourceTemplates",
        }
    }

    fn holds(self, entry: &ListedPrimitive) -> bool {
        match self {
            McpList::Tools => matches!(entry.primitive.kind(), Kind::Tool | Kind::Task),
            McpList::Prompts => entry.primitive.kind() == Kind::Prompt,
            McpList::Resources => entry.primitive.kind() == Kind::Resource,
            McpList::Templates => entry.primitive.kind() == Kind::ResourceTemplate,
        }
    }
}

/// Returns the page that `message` requests.
pub(super) fn page(
    request: &ProtocolRequest,
    list: McpList,
    context: &Context,
    message: &Message,
) -> Result<Map<String, Value>, RpcFailure> {
    let revision = context.revision;
    if let (McpList::Tools, Some(reached)) = (list, &request.reached) {
        return Ok(all_servers::page(request, reached, revision));
    }
    let sealed_for = cursor_context(request, list);
    let start = match message.param("cursor") {
        None | Some(Value::Null) => 0,
        Some(cursor) => cursor
            .as_str()
            .and_then(|text| request.gateway.sealer.open(Purpose::Cursor, &sealed_for, text))
            .and_then(|plain| Some(u64::from_be_bytes(plain.try_into().ok()?)))
            .and_then(|start| usize::try_from(start).ok())
            .ok_or_else(|| RpcFailure::with(Reason::InvalidParams, "the cursor is not valid"))?,
    };
    let mut view = view(request);
    let visible: Vec<_> = request
        .server
        .entries
        .iter()
        .filter(|entry| !entry.listing.mcp_name.is_empty() && list.holds(entry))
        .filter(|entry| view.shows(entry) && request.gateway.pipeline.offers(&request.server, entry))
        // A client of a revision with a handshake has no tasks and could never call it.
        .filter(|entry| revision.is_modern() || !entry.primitive.task_required)
        .collect();
    let mut result = Map::new();
    let count = visible.len() + context.listed.len();
    let end = count.min(start.saturating_add(PAGE));
    let more = end < count;
    let own = visible.iter().map(|entry| entry.definition(revision));
    let listed = context.listed.iter().cloned().map(Some);
    let page: Vec<Value> = own.chain(listed).take(end).skip(start).flatten().collect();
    result.insert(list.member().into(), Value::Array(page));
    if more {
        let next = (end as u64).to_be_bytes();
        let cursor = request
            .gateway
            .sealer
            .seal(Purpose::Cursor, &sealed_for, &next)
            .map_err(|_| RpcFailure::of(Reason::Internal))?;
        result.insert("nextCursor".into(), cursor.into());
    }
    Ok(result)
}

/// Whether the caller can see `entry`.
pub(super) fn shows(request: &ProtocolRequest, entry: &ListedPrimitive) -> bool {
    view(request).shows(entry) && request.gateway.pipeline.offers(&request.server, entry)
}

fn view(request: &ProtocolRequest) -> ServerView<'_> {
    ServerView::of(&request.snapshot, &request.server, &request.caller, Protocol::Mcp)
}

/// Returns the context that binds a cursor to one list of one server, for one org and user.
fn cursor_context(request: &ProtocolRequest, list: McpList) -> Vec<u8> {
    let caller = &request.caller;
    [list.member(), &request.server.message.name, &caller.issuer, &caller.org, &caller.user]
        .join("\u{0}")
        .into_bytes()
}

/// Whether the server has resources that may change.
pub(super) fn has_resources(server: &VirtualServer) -> bool {
    let listed = |entry: &&Arc<ListedPrimitive>| !entry.listing.mcp_name.is_empty();
    let is_resource = |kind| matches!(kind, Kind::Resource | Kind::ResourceTemplate);
    server.entries.iter().filter(listed).any(|entry| is_resource(entry.primitive.kind()))
}

/// Whether the server has completions for any caller.
pub(super) fn has_completions(server: &VirtualServer) -> bool {
    let mut listed = server.entries.iter().filter(|entry| !entry.listing.mcp_name.is_empty());
    listed.any(|entry| !entry.primitive.completions.is_empty())
}

/// Returns the capabilities of a server: the kinds it serves, the same for every caller. `listens`: clients can be
/// notified of changes.
pub(super) fn capabilities(request: &ProtocolRequest, listens: bool) -> Value {
    if request.reached.is_some() {
        // Its list depends on the caller's access to every server, and changes are not reported.
        return json!({"tools": {}, "logging": {}});
    }
    let kind = || if listens { json!({"listChanged": true}) } else { json!({}) };
    let mut capabilities = Map::new();
    for entry in request.server.entries.iter().filter(|entry| !entry.listing.mcp_name.is_empty()) {
        let name = match entry.primitive.kind() {
            Kind::Tool | Kind::Task => "tools",
            Kind::Prompt => "prompts",
            Kind::Resource | Kind::ResourceTemplate => "resources",
            Kind::Elicitation | Kind::Delegate | Kind::Unspecified => continue,
        };
        capabilities.entry(name).or_insert_with(kind);
        if entry.may_leave_artifacts() {
            capabilities.entry("resources").or_insert_with(kind);
        }
    }
    if listens
        && has_resources(&request.server)
        && let Some(Value::Object(resources)) = capabilities.get_mut("resources")
    {
        resources.insert("subscribe".into(), true.into());
    }
    if has_completions(&request.server) {
        capabilities.insert("completions".into(), json!({}));
    }
    capabilities.insert("logging".into(), json!({}));
    Value::Object(capabilities)
}
