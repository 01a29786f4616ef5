//! `completion/complete`: suggestions for an argument while the user types it (MCP "Completion").
//!
//! Owns: matching the typed text against the values that the spec lists. If the spec names the plugin instead, the
//! plugin is called like any other call. Refuses a prompt or template that the caller cannot see with the same answer
//! as one that does not exist (I-10); an argument with neither values nor plugin has no suggestions.

use std::sync::Arc;
use std::time::Duration;

use asp_call::call::outcome::Refusal;
use asp_call::call::{CallKind, Invocation};
use asp_edge::Reason;
use asp_proto::snapshot::Kind;
use asp_snapshot::ListedPrimitive;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::codec::{Message, RpcFailure};
use super::lacking::step_up;
use super::lists;
use super::results::RequestKind;
use super::{Context, RequestAnswer};
use crate::ProtocolRequest;

/// Maximum number of values in one answer (MCP `CompleteResult`).
const MAX_VALUES: usize = 100;
/// Timeout of a plugin's answer, including the start of its worker; longer, and the user no longer waits for
/// suggestions.
const LONGEST: Duration = Duration::from_secs(10);

/// Answers `message`.
pub(super) fn complete(
    request: &ProtocolRequest,
    message: &Message,
    context: &Context,
) -> Result<RequestAnswer, RpcFailure> {
    let (kind, name) = reference(message)?;
    let of_argument =
        |member: &str| message.param("argument").and_then(|argument| argument.get(member)?.as_str());
    let argument = of_argument("name").ok_or_else(|| invalid("params.argument.name must be a string"))?;
    let typed = of_argument("value").ok_or_else(|| invalid("params.argument.value must be a string"))?;
    let unknown =
        || invalid(if kind == Kind::Prompt { "no such prompt" } else { "no such resource template" });
    let named =
        |entry: &&Arc<ListedPrimitive>| entry.primitive.kind() == kind && entry.listing.mcp_name == name;
    let entry = request.server.entries.iter().find(named);
    let entry = entry.filter(|entry| lists::shows(request, entry)).ok_or_else(unknown)?;
    let listed = entry.primitive.completions.iter().find(|completion| completion.argument == argument);
    if listed.is_some_and(|completion| completion.by_runtime) {
        let invocation = invocation(request, message, context, entry, (argument, typed))?;
        return match request.gateway.pipeline.begin(request.snapshot.clone(), invocation) {
            Ok(call) => Ok(RequestAnswer::Call(call, RequestKind::Other)),
            Err(Refusal::MissingScopes { required }) => Err(step_up(request, &required).of_call()),
            Err(_) => Err(unknown().of_call()),
        };
    }
    let found = matching(listed.map(|completion| completion.values.as_slice()).unwrap_or_default(), typed);
    let mut result = Map::new();
    result.insert(
        "completion".into(),
        json!({
            "values": found.iter().take(MAX_VALUES).collect::<Vec<_>>(),
            "total": found.len(),
            "hasMore": found.len() > MAX_VALUES,
        }),
    );
    Ok(RequestAnswer::Completion(result))
}

/// Returns the call of the plugin; it includes the other arguments that are already known (`params.context.arguments`).
fn invocation(
    request: &ProtocolRequest,
    message: &Message,
    context: &Context,
    entry: &Arc<ListedPrimitive>,
    (argument, typed): (&str, &str),
) -> Result<Invocation, RpcFailure> {
    let known = message.param("context").and_then(|context| context.get("arguments"));
    let mut arguments = match known {
        None | Some(Value::Null) => Map::new(),
        Some(Value::Object(known)) if known.values().all(Value::is_string) => known.clone(),
        Some(_) => return Err(invalid("params.context.arguments must be an object of strings")),
    };
    arguments.insert(argument.into(), typed.into());
    let arguments = Value::Object(arguments).into();
    // The call changes nothing, and more typing starts another one: it has no key.
    let mut invocation = super::invocation(request, message, &context.session, (entry, arguments));
    invocation.request.kind = CallKind::Complete(argument.into());
    invocation.deadline = Some(Instant::now() + LONGEST);
    Ok(invocation)
}

/// Returns the primitive named by `params.ref`: a prompt by its name, a template by its text.
fn reference(message: &Message) -> Result<(Kind, &str), RpcFailure> {
    let member = |name: &str| message.param("ref").and_then(|reference| reference.get(name)?.as_str());
    let (kind, name) = match member("type") {
        Some("ref/prompt") => (Kind::Prompt, member("name")),
        Some("ref/resource") => (Kind::ResourceTemplate, member("uri")),
        _ => return Err(invalid("params.ref.type must be ref/prompt or ref/resource")),
    };
    let name =
        name.ok_or_else(|| invalid("params.ref needs the name of a prompt or the uri of a template"))?;
    Ok((kind, name))
}

/// Returns the values that begin with the typed text, then those that contain it, in the order of the spec. ASCII case
/// is ignored.
fn matching<'a>(values: &'a [String], typed: &str) -> Vec<&'a str> {
    let typed = typed.to_ascii_lowercase();
    let place = |value: &str| value.to_ascii_lowercase().find(&typed);
    let mut found: Vec<(bool, &str)> =
        values.iter().filter_map(|value| Some((place(value)? > 0, value.as_str()))).collect();
    found.sort_by_key(|(later, _)| *later);
    found.into_iter().map(|(_, value)| value).collect()
}

fn invalid(what: &str) -> RpcFailure {
    RpcFailure::with(Reason::InvalidParams, what).in_call()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_begins_with_the_text_comes_before_what_holds_it() {
        let values = ["Bypass", "Paris", "Oslo", "Papeete"].map(str::to_owned);
        assert_eq!(matching(&values, "pa"), ["Paris", "Papeete", "Bypass"]);
        assert_eq!(matching(&values, ""), ["Bypass", "Paris", "Oslo", "Papeete"]);
        assert!(matching(&values, "x").is_empty());
    }
}
