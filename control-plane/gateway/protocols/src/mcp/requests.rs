//! The requests that both eras share: lists, completions, tool calls, prompts and resources.

use std::sync::Arc;

use asp_call::call::lineage;
use asp_call::call::outcome::Refusal;
use asp_call::call::terms::{self, TermFault};
use asp_call::call::{CallKind, IdempotencyKey, Invocation};
use asp_edge::Reason;
use asp_json::{Json, Members};
use asp_pipeline::pipeline::entitlement::{CallTarget, resolve};
use asp_proto::mcp_revision::{Feature, Revision};
use asp_proto::snapshot::Primitive;
use asp_snapshot::ListedPrimitive;
use futures::future::join_all;
use serde_json::{Map, Value};

use super::all_servers;
use super::codec::{Message, RpcFailure};
use super::completion;
use super::lacking::{incapable, step_up};
use super::lists::{self, McpList};
use super::results::{self, RequestKind};
use super::{Context, RequestAnswer, invocation};
use crate::ProtocolRequest;

/// `_meta` member with an explicit idempotency key.
const META_KEY: &str = "asp/idempotencyKey";

/// Dispatches a request; `None` if its method is not a shared one.
pub(super) fn dispatch(
    request: &ProtocolRequest,
    message: &Message,
    context: &Context,
) -> Option<Result<RequestAnswer, RpcFailure>> {
    let method = message.method.as_deref()?;
    if let Some(list) = McpList::of_method(method) {
        return Some(lists::page(request, list, context, message).map(RequestAnswer::Page));
    }
    if let ("tools/call", Some(reached)) = (method, &request.reached) {
        return Some(all_servers::call(request, reached, message, context));
    }
    let (what, name) = match method {
        "completion/complete" if lists::has_completions(&request.server) => {
            return Some(completion::complete(request, message, context));
        }
        "tools/call" => ("tool", "name"),
        "prompts/get" => ("prompt", "name"),
        "resources/read" => ("resource", "uri"),
        _ => return None,
    };
    Some(match message.text_param(name) {
        None => {
            Err(RpcFailure::with(Reason::InvalidParams, &format!("params.{name} must be a string")).in_call())
        }
        Some(name) => begin(request, message, context, what, name),
    })
}

/// Returns all resources that plugins list themselves, in the order of the server's templates and in the form of the
/// request's revision; none for any other request than `resources/list`. Those behind a template that the caller cannot
/// see are not listed (I-10).
pub(super) async fn listed_by_plugins(
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
        let nothing = Value::Object(Map::new()).into();
        let mut list = invocation(request, message, session, (entry, nothing));
        list.request.kind = CallKind::List;
        request.gateway.pipeline.listed(&request.snapshot, list)
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

fn begin(
    request: &ProtocolRequest,
    message: &Message,
    context: &Context,
    what: &str,
    name: &str,
) -> Result<RequestAnswer, RpcFailure> {
    let (target, asked) = match what {
        "tool" => (CallTarget::Tool(name), RequestKind::Tool),
        "prompt" => (CallTarget::Prompt(name), RequestKind::Other),
        _ => (CallTarget::Resource(name), RequestKind::Other),
    };
    let unknown = || results::unknown(what, name, context.revision);
    let (entry, variables) = resolve(&request.server, target).map_err(|_| unknown())?;
    let invocation = arguments(message).and_then(|sent| {
        let arguments = match target {
            CallTarget::Resource(uri) => resource_arguments(variables, uri),
            CallTarget::Tool(_) | CallTarget::Prompt(_) => sent,
        };
        checked_invocation(request, message, context, (&entry, arguments))
    });
    let invocation = match invocation {
        Ok(invocation) => invocation,
        // Errors in a request reveal nothing about a primitive that its caller cannot see (I-10).
        Err(_) if !lists::shows(request, &entry) => return Err(unknown()),
        Err(failure) => return Err(failure),
    };
    match request.gateway.pipeline.begin(request.snapshot.clone(), invocation) {
        Ok(call) => Ok(RequestAnswer::Call(call, asked)),
        Err(Refusal::MissingScopes { required }) => Err(step_up(request, &required).of_call()),
        Err(Refusal::MissingCapabilities { required }) => {
            Err(incapable(&required, context.revision).of_call())
        }
        Err(_) => Err(unknown().of_call()),
    }
}

/// Returns the arguments as they were sent; an empty object if there are none.
fn arguments(message: &Message) -> Result<Json, RpcFailure> {
    match message.sent_param("arguments").filter(|arguments| !arguments.is_null()) {
        None => Ok(Value::Object(Map::new()).into()),
        Some(arguments) if arguments.is_object() => Ok(arguments),
        Some(_) => {
            Err(RpcFailure::with(Reason::InvalidParams, "params.arguments must be an object").in_call())
        }
    }
}

/// Returns the arguments of a resource: the variables of its URI template, and its URI.
fn resource_arguments(mut variables: Map<String, Value>, uri: &str) -> Json {
    variables.insert("uri".into(), uri.into());
    Value::Object(variables).into()
}

/// Builds the call from a request and checks its form.
fn checked_invocation(
    request: &ProtocolRequest,
    message: &Message,
    context: &Context,
    (entry, arguments): (&Arc<ListedPrimitive>, Json),
) -> Result<Invocation, RpcFailure> {
    if context.revision.is_modern() {
        check_param_headers(request, entry, &arguments)?;
    }
    let deadline = terms::deadline(&request.headers).map_err(malformed)?;
    let idempotency_key = idempotency_key(request, message, context, (&entry.primitive, arguments.view()));
    let mut asked = invocation(request, message, &context.session, (entry, arguments));
    asked.request.meta = passed_meta(message);
    Ok(Invocation {
        idempotency_key: idempotency_key.map_err(malformed)?,
        deadline,
        abilities: context.abilities,
        ..asked
    })
}

/// Returns the `_meta` of a request for the service behind the primitive, without the members that MCP or the platform
/// reads itself: those concern one client and its own server. The agents that the call came through are kept.
fn passed_meta(message: &Message) -> Members {
    let is_passed = |name: &str| {
        !name.starts_with("io.modelcontextprotocol/")
            && !name.starts_with("asp/")
            && !matches!(name, "progressToken" | "traceparent" | "tracestate")
    };
    let Some(meta) = message.sent_param("_meta") else { return Members::default() };
    let mut passed = Members::select(meta.text(), is_passed);
    for (name, value) in lineage::passed(Some(&meta)).iter() {
        passed.insert(name, value.clone());
    }
    passed
}

/// Checks that `Mcp-Param-*` headers mirror the arguments that the tool marks (SEP-2243).
pub(super) fn check_param_headers(
    request: &ProtocolRequest,
    entry: &ListedPrimitive,
    arguments: &Json,
) -> Result<(), RpcFailure> {
    entry.param_headers.check(&request.headers, arguments).map_err(|header| {
        RpcFailure::with(Reason::HeaderMismatch, &format!("header {header} does not match the body"))
    })
}

/// Returns the explicit key (`_meta`, `Idempotency-Key`, the argument the spec names), otherwise the JSON-RPC id within
/// a legacy session.
fn idempotency_key(
    request: &ProtocolRequest,
    message: &Message,
    context: &Context,
    (primitive, arguments): (&Primitive, &Value),
) -> Result<Option<IdempotencyKey>, TermFault> {
    let own = message.meta(META_KEY).filter(|key| !key.is_null());
    let session_request =
        |id: &str| IdempotencyKey::SessionRequest { session: context.session.clone(), id: id.to_owned() };
    Ok(match terms::idempotency_key(own, &request.headers, primitive, arguments)? {
        Some(key) => Some(IdempotencyKey::Explicit(key)),
        None if context.session.is_empty() => None,
        None => message.id_text().map(session_request),
    })
}

fn malformed(fault: TermFault) -> RpcFailure {
    RpcFailure::with(Reason::InvalidParams, &fault.to_string()).in_call()
}
