//! The requests both eras share: lists, completions, tool calls, prompts and resources.

use std::sync::Arc;

use asp_edge::{Reason, Trace};
use asp_proto::snapshot::Protocol;
use asp_snapshot::ListedPrimitive;
use asp_snapshot::mcp_revision::Revision;
use http::StatusCode;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::codec::{Failure, Message, header};
use super::completion;
use super::lists::{self, List};
use super::results::{self, Asked};
use super::tasks;
use crate::call::outcome::Refusal;
use crate::call::{Call, ClientAbilities, IdempotencyKey, Invocation};
use crate::clock;
use crate::faces::FaceRequest;
use crate::pipeline::entitlement::entitle;
use crate::pipeline::resolve::{Target, resolve};

/// Longest idempotency key in characters (as Stripe's).
const MAX_KEY: usize = 255;
/// `_meta` member with an explicit idempotency key.
const META_KEY: &str = "asp/idempotencyKey";

/// What the era's half knows about a request.
pub(super) struct Context {
    pub revision: Revision,
    pub abilities: ClientAbilities,
    /// The legacy session's id, else empty.
    pub session: String,
}

/// A request is answered at once or by a call.
pub(super) enum Answer {
    Page(Map<String, Value>),
    /// No list: nobody keeps it.
    Completion(Map<String, Value>),
    Call(Arc<Call>, Asked),
}

/// Dispatches a request; `None` when the method is none of the shared ones.
pub(super) fn dispatch(
    request: &FaceRequest,
    message: &Message,
    context: &Context,
) -> Option<Result<Answer, Failure>> {
    let method = message.method.as_deref()?;
    if let Some(list) = List::of_method(method) {
        return Some(lists::page(request, list, context.revision, message).map(Answer::Page));
    }
    let (what, name) = match method {
        "completion/complete" if completion::is_served(&request.server) => {
            return Some(completion::complete(request, message, context));
        }
        "tools/call" => ("tool", "name"),
        "prompts/get" => ("prompt", "name"),
        "resources/read" => ("resource", "uri"),
        _ => return None,
    };
    Some(match message.text_param(name) {
        None => {
            Err(Failure::with(Reason::InvalidParams, &format!("params.{name} must be a string")).in_call())
        }
        Some(name) => begin(request, message, context, what, name),
    })
}

fn begin(
    request: &FaceRequest,
    message: &Message,
    context: &Context,
    what: &str,
    name: &str,
) -> Result<Answer, Failure> {
    let (target, asked) = match what {
        "tool" => (Target::Tool(name), Asked::Tool),
        "prompt" => (Target::Prompt(name), Asked::Other),
        _ => (Target::Resource(name), Asked::Other),
    };
    let unknown = || results::unknown(what, name, context.revision);
    let (entry, variables) = resolve(&request.server, target).map_err(|_| unknown())?;
    let named = Named { what, name, entry: &entry, variables };
    let invocation = match invocation(request, message, context, named) {
        Ok(invocation) => invocation,
        // What is wrong with a request tells nothing of a primitive that its caller cannot see (I-10).
        Err(_) if !lists::shows(request, &entry) => return Err(unknown()),
        Err(failure) => return Err(failure),
    };
    match request.gateway.pipeline.begin(request.snapshot.clone(), invocation) {
        Ok(call) => Ok(Answer::Call(call, asked)),
        Err(Refusal::MissingScopes { required }) => Err(step_up(request, &required)),
        Err(Refusal::MissingCapabilities { required }) => Err(incapable(&required, context.revision)),
        Err(_) => Err(unknown()),
    }
}

/// What a request names, by the words of its method.
struct Named<'a> {
    what: &'a str,
    name: &'a str,
    entry: &'a Arc<ListedPrimitive>,
    /// Of a matched URI template.
    variables: Map<String, Value>,
}

/// The call that a request asks for, as far as its form goes.
fn invocation(
    request: &FaceRequest,
    message: &Message,
    context: &Context,
    named: Named<'_>,
) -> Result<Invocation, Failure> {
    let Named { what, name, entry, variables } = named;
    let mut arguments = match message.param("arguments") {
        None | Some(Value::Null) => Map::new(),
        Some(Value::Object(arguments)) => arguments.clone(),
        Some(_) => {
            return Err(Failure::with(Reason::InvalidParams, "params.arguments must be an object").in_call());
        }
    };
    if what == "resource" {
        arguments = variables;
        arguments.insert("uri".into(), name.into());
    }
    let arguments = Value::Object(arguments);
    if context.revision.is_modern() {
        check_param_headers(request, entry, &arguments)?;
    }
    Ok(Invocation {
        caller: request.caller.clone(),
        server: request.server.clone(),
        protocol: Protocol::Mcp,
        idempotency_key: idempotency_key(
            request,
            message,
            context,
            &entry.primitive.idempotency_argument,
            &arguments,
        )?,
        entry: entry.clone(),
        arguments,
        completing: None,
        chosen: None,
        protocol_request_id: message.id_text().unwrap_or_default().into(),
        deadline: deadline(request),
        abilities: context.abilities,
        session: context.session.clone(),
        trace: trace(request, message),
        bytes_in: request.body.len(),
        parent: None,
    })
}

/// `Mcp-Param-*` must mirror the arguments that the tool marks (SEP-2243).
pub(super) fn check_param_headers(
    request: &FaceRequest,
    entry: &ListedPrimitive,
    arguments: &Value,
) -> Result<(), Failure> {
    entry.param_headers.check(&request.headers, arguments).map_err(|header| {
        Failure::with(Reason::HeaderMismatch, &format!("header {header} does not match the body"))
    })
}

/// A missing scope is a 403 challenge with every scope of the operation, so that the client can step up
/// (MCP authorization, scope challenge handling).
pub(super) fn step_up(request: &FaceRequest, required: &[String]) -> Failure {
    let mut failure = Failure::of(Reason::InsufficientScope).status(StatusCode::FORBIDDEN);
    failure.challenge = Some(format!(
        r#"Bearer error="insufficient_scope", scope="{}", resource_metadata="{}/.well-known/oauth-protected-resource/{}/mcp""#,
        required.join(" "),
        request.gateway.config.public_url,
        request.server.message.name,
    ));
    failure
}

/// Whoever comes back for a call needs the scopes that it needed; whether they see it is the pipeline's to say.
pub(super) fn has_scopes(request: &FaceRequest, call: &Call) -> Result<(), Failure> {
    match entitle(&request.snapshot, &request.server, &request.caller, &call.entry, Protocol::Mcp) {
        Err(Refusal::MissingScopes { required }) => Err(step_up(request, &required)),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// What the client would have to declare, as it would declare it; revisions with a handshake have no code for that.
pub(super) fn incapable(required: &[String], revision: Revision) -> Failure {
    let message = Refusal::MissingCapabilities { required: required.to_vec() }.public_message();
    let mut capabilities = Map::new();
    for name in required {
        match (name.as_str(), name.split_once('.')) {
            (tasks::ABILITY, _) => {
                capabilities.insert("extensions".into(), json!({tasks::EXTENSION: {}}));
            }
            // A part of a capability, such as a mode of elicitation.
            (_, Some((whole, part))) => {
                let whole = capabilities.entry(whole).or_insert_with(|| json!({}));
                if let Some(whole) = whole.as_object_mut() {
                    whole.insert(part.into(), json!({}));
                }
            }
            (name, None) => {
                capabilities.insert(name.into(), json!({}));
            }
        }
    }
    let failure = Failure::with(Reason::MissingCapability, &message)
        .data("requiredCapabilities", Value::Object(capabilities));
    if revision.is_modern() {
        return failure;
    }
    Failure { code: Reason::InvalidRequest.jsonrpc_code(), ..failure }.in_call()
}

/// The explicit key (`_meta`, `Idempotency-Key`, the argument the spec names), else the JSON-RPC id within a
/// legacy session.
fn idempotency_key(
    request: &FaceRequest,
    message: &Message,
    context: &Context,
    argument: &str,
    arguments: &Value,
) -> Result<Option<IdempotencyKey>, Failure> {
    let explicit = message
        .meta(META_KEY)
        .and_then(Value::as_str)
        .or_else(|| header(&request.headers, "idempotency-key"))
        .or_else(|| if argument.is_empty() { None } else { arguments.get(argument)?.as_str() });
    match explicit {
        Some(key) if key.is_empty() || key.chars().count() > MAX_KEY => Err(Failure::with(
            Reason::InvalidParams,
            &format!("an idempotency key has 1 to {MAX_KEY} characters"),
        )
        .in_call()),
        Some(key) => Ok(Some(IdempotencyKey::Explicit(key.into()))),
        None if context.session.is_empty() => Ok(None),
        None => Ok(message
            .id_text()
            .map(|id| IdempotencyKey::SessionRequest { session: context.session.clone(), id: id.into() })),
    }
}

/// The trace of one message: what its `_meta` says (SEP-414) comes before the request's.
pub(super) fn trace(request: &FaceRequest, message: &Message) -> Trace {
    let own = message.meta("traceparent").and_then(Value::as_str);
    own.and_then(|text| Trace::parse(text.as_bytes())).unwrap_or(request.admitted.trace)
}

/// `X-Deadline-Ms`: an absolute deadline as Unix milliseconds.
fn deadline(request: &FaceRequest) -> Option<Instant> {
    clock::instant(header(&request.headers, "x-deadline-ms")?.parse().ok()?)
}
