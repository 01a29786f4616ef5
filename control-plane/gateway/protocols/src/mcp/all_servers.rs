//! The server that stands for all others: tools only, each as `server__tool`.
//!
//! Refuses: prompts, resources and reports of changed lists, which belong to one server. Keeps true: the list holds what
//! its caller may call (I-10), because both follow the view of each server; a call is evaluated as one to the tool's own
//! server, by the caller whom that server admits, and its result is unchanged.

use std::iter;
use std::sync::Arc;

use asp_call::call::outcome::text_block;
use asp_edge::{Caller, Reason};
use asp_json::Json;
use asp_pipeline::pipeline::entitlement::ServerView;
use asp_proto::mcp_revision::{Feature, Revision};
use asp_proto::snapshot::Protocol;
use asp_snapshot::ListedPrimitive;
use asp_snapshot::search::{find_among, is_tool};
use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::codec::{Message, RpcFailure};
use super::results;
use super::{Context, RequestAnswer};
use crate::{ProtocolRequest, ReachedServer};

/// Maximum number of tools that are listed; beyond it, the list holds the two tools that find and call the others.
const MAX_LISTED: usize = 100;
const FIND: &str = "find_tools";
const CALL: &str = "call_tool";
/// Separator of server and tool. Names of servers have no underscore.
const SEPARATOR: &str = "__";
/// Number of tools that a search returns by default, and its maximum.
const FOUND: u64 = 5;
const MAX_FOUND: u64 = 20;
/// Maximum number of servers that the description of the search names.
const MAX_NAMED: usize = 50;

/// Splits the name of a tool here into those of its server and of the tool there.
pub fn split_name(name: &str) -> Option<(&str, &str)> {
    name.split_once(SEPARATOR)
}

/// The tools of one server that its caller sees.
struct VisibleServer<'a> {
    reached: &'a ReachedServer,
    /// Positions of the tools among the server's entries, ascending.
    tools: Vec<usize>,
}

impl VisibleServer<'_> {
    fn name(&self) -> &str {
        &self.reached.server.message.name
    }

    fn tool(&self, at: usize) -> Option<&ListedPrimitive> {
        self.reached.server.entries.get(at).map(Arc::as_ref)
    }

    /// Returns the definition of a tool under its name here.
    fn definition(&self, at: usize, revision: Revision) -> Option<Value> {
        let tool = self.tool(at)?;
        let mut definition = tool.definition(revision)?;
        *definition.get_mut("name")? = [self.name(), &tool.listing.mcp_name].join(SEPARATOR).into();
        Some(definition)
    }
}

/// Returns the servers of which the caller sees any tool.
fn visible<'a>(
    request: &ProtocolRequest,
    reached: &'a [ReachedServer],
    revision: Revision,
) -> Vec<VisibleServer<'a>> {
    let of_server = |reached: &'a ReachedServer| {
        let ReachedServer { server, caller } = reached;
        let mut view = ServerView::of(&request.snapshot, server, caller, Protocol::Mcp);
        let mut is_visible = |entry: &ListedPrimitive| {
            is_tool(&entry.primitive)
                && !entry.listing.mcp_name.is_empty()
                // A client of a revision with a handshake has no tasks and could never call it.
                && (revision.is_modern() || !entry.primitive.task_required)
                && view.shows(entry)
                && request.gateway.pipeline.offers(server, entry)
        };
        let entries = server.entries.iter().enumerate();
        let tools: Vec<usize> = entries.filter(|(_, entry)| is_visible(entry)).map(|(at, _)| at).collect();
        VisibleServer { reached, tools }
    };
    reached.iter().map(of_server).filter(|server| !server.tools.is_empty()).collect()
}

/// Returns the list of tools.
pub(super) fn page(
    request: &ProtocolRequest,
    reached: &[ReachedServer],
    revision: Revision,
) -> Map<String, Value> {
    let servers = visible(request, reached, revision);
    let count: usize = servers.iter().map(|server| server.tools.len()).sum();
    let tools: Vec<Value> = match count > MAX_LISTED {
        true => vec![find_tool(&servers), call_tool()],
        false => {
            let all = servers.iter().flat_map(|server| server.tools.iter().map(move |at| (server, *at)));
            all.filter_map(|(server, at)| server.definition(at, revision)).collect()
        }
    };
    Map::from_iter([("tools".to_owned(), Value::Array(tools))])
}

fn find_tool(servers: &[VisibleServer<'_>]) -> Value {
    let names: Vec<&str> = servers.iter().map(VisibleServer::name).take(MAX_NAMED).collect();
    let description = format!(
        "Finds the tools for a task, best first, with their input schemas. Call one with {CALL}. Servers: {}{}.",
        names.join(", "),
        if servers.len() > MAX_NAMED { " and more" } else { "" }
    );
    json!({
        "name": FIND,
        "description": description,
        "inputSchema": {
            "type": "object",
            "properties": {
                "query": {"type": "string", "description": "The task in a few words, with the server if it is known"},
                "limit": {"type": "integer", "minimum": 1, "maximum": MAX_FOUND, "default": FOUND},
            },
            "required": ["query"],
        },
        "annotations": {"readOnlyHint": true},
    })
}

fn call_tool() -> Value {
    json!({
        "name": CALL,
        "description": format!("Calls a tool that {FIND} returned, and returns its result."),
        "inputSchema": {
            "type": "object",
            "properties": {
                "name": {"type": "string", "description": "Name of the tool, e.g. server__tool"},
                "arguments": {"type": "object", "description": "Arguments by the tool's input schema"},
            },
            "required": ["name"],
        },
    })
}

/// Answers a call that has no server: a search, or a call of an unknown tool.
pub(super) fn call(
    request: &ProtocolRequest,
    reached: &[ReachedServer],
    message: &Message,
    context: &Context,
) -> Result<RequestAnswer, RpcFailure> {
    let name = message.text_param("name").ok_or_else(|| invalid("params.name must be a string"))?;
    let argument = |name: &str| message.param("arguments").and_then(|arguments| arguments.get(name));
    match name {
        FIND => {
            let query = argument("query").and_then(Value::as_str);
            let query = query.ok_or_else(|| invalid("params.arguments.query must be a string"))?;
            let limit = argument("limit").and_then(Value::as_u64).unwrap_or(FOUND).clamp(1, MAX_FOUND);
            let visible = visible(request, reached, context.revision);
            let found = find(&visible, (query, limit), context.revision);
            Ok(RequestAnswer::Completion(result(&found, context.revision)))
        }
        CALL => {
            let name = argument("name").and_then(Value::as_str);
            let name = name.ok_or_else(|| invalid("params.arguments.name must be a string"))?;
            Err(results::unknown("tool", name, context.revision))
        }
        name => Err(results::unknown("tool", name, context.revision)),
    }
}

fn invalid(fault: &str) -> RpcFailure {
    RpcFailure::with(Reason::InvalidParams, fault).in_call()
}

/// Searches the visible tools.
fn find(servers: &[VisibleServer<'_>], (query, limit): (&str, u64), revision: Revision) -> Value {
    let indexes: Vec<_> =
        servers.iter().map(|server| (server.reached.server.search_index(), server.name())).collect();
    let is_shown = |server: usize, at: usize| {
        servers.get(server).is_some_and(|server| server.tools.binary_search(&at).is_ok())
    };
    let found = find_among(&indexes, query, is_shown);
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let tools: Vec<Value> = found
        .iter()
        .take(limit)
        .filter_map(|(server, at)| {
            let definition = servers.get(*server)?.definition(*at, revision)?;
            let member = |name: &str| definition.get(name).cloned().unwrap_or_default();
            let [name, description, schema] = ["name", "description", "inputSchema"].map(member);
            Some(json!({"name": name, "description": description, "inputSchema": schema}))
        })
        .collect();
    json!({"tools": tools, "more": found.len().saturating_sub(limit)})
}

/// Returns the result of a tool call with this structured content.
fn result(structured: &Value, revision: Revision) -> Map<String, Value> {
    let mut result = Map::new();
    if revision.has(Feature::StructuredOutput) {
        result.insert("structuredContent".into(), structured.clone());
    }
    result.insert("content".into(), json!([text_block(&structured.to_string())]));
    result.insert("isError".into(), false.into());
    result
}

/// Returns the call of a server's tool, directly or by `call_tool`, as a request to that server; `None` for any other
/// request and if the server is not reached.
pub(super) fn route(request: &ProtocolRequest, message: &Message) -> Option<(ProtocolRequest, Message)> {
    let reached = request.reached.as_ref()?;
    if message.method.as_deref() != Some("tools/call") {
        return None;
    }
    let arguments = message.sent_param("arguments");
    let (name, arguments, is_wrapped) = match message.text_param("name")? {
        CALL => {
            let wrapped = arguments?;
            (wrapped.get("name")?.as_str()?.to_owned(), wrapped.member("arguments"), true)
        }
        name => (name.to_owned(), arguments, false),
    };
    let (server, tool) = split_name(&name)?;
    let mut routed = at(request, reached, server)?;
    if is_wrapped && let (Some(entry), Some(arguments)) = (routed.server.tool(tool), &arguments) {
        mirror(&mut routed.headers, entry, arguments);
    }
    Some((routed, message.for_tool(tool, arguments)))
}

/// Returns a request about a task as one to the server of its call, which the id does not name; `None` for any other
/// request and if the task is unknown.
pub(super) async fn route_task(request: &ProtocolRequest, message: &Message) -> Option<ProtocolRequest> {
    let reached = request.reached.as_ref()?;
    if !matches!(message.method.as_deref(), Some("tasks/get" | "tasks/update" | "tasks/cancel")) {
        return None;
    }
    let id = message.text_param("taskId").and_then(|id| Uuid::parse_str(id).ok())?;
    // If the store does not answer, the lookup of the call reports that.
    let server = request.gateway.pipeline.server_of(id).await.ok().flatten()?;
    at(request, reached, &server)
}

/// Returns the request as one to a server that it reaches.
fn at(request: &ProtocolRequest, reached: &[ReachedServer], server: &str) -> Option<ProtocolRequest> {
    let ReachedServer { server, caller } =
        reached.iter().find(|reached| reached.server.message.name == server)?;
    Some(ProtocolRequest {
        gateway: request.gateway.clone(),
        snapshot: request.snapshot.clone(),
        server: server.clone(),
        caller: caller.clone(),
        admitted: request.admitted.clone(),
        reached: None,
        method: request.method.clone(),
        uri: request.uri.clone(),
        headers: request.headers.clone(),
        body: request.body.clone(),
        memory: request.memory.clone(),
    })
}

/// Adds the headers that a client which calls the tool itself sends with these arguments: a wrapped call has none.
fn mirror(headers: &mut HeaderMap, entry: &ListedPrimitive, arguments: &Json) {
    for (name, value) in entry.param_headers.mirror(arguments) {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
            headers.insert(name, value);
        }
    }
}

/// Returns the callers and servers under which a call of this request's client may have begun.
pub(super) fn holders(request: &ProtocolRequest) -> impl Iterator<Item = (&Arc<Caller>, &str)> {
    let own = (&request.caller, request.server.message.name.as_str());
    let reached = request.reached.iter().flatten();
    iter::once(own).chain(reached.map(|reached| (&reached.caller, reached.server.message.name.as_str())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_may_have_the_separator_in_its_name_and_a_server_may_not() {
        assert_eq!(split_name("demo__echo"), Some(("demo", "echo")));
        assert_eq!(split_name("demo__echo__twice"), Some(("demo", "echo__twice")));
        assert_eq!(split_name("demo__"), Some(("demo", "")));
        for name in [FIND, CALL, "demo_echo", ""] {
            assert_eq!(split_name(name), None, "{name}");
        }
    }
}
