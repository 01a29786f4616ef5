//! `completion/complete`: what a client offers for an argument while somebody types it (MCP "Completion").
//!
//! Owns the match of what was typed with the values that the spec lists. Refuses a prompt or template that the caller
//! cannot see as it refuses one that does not exist (I-10); an argument without a list has no values.

use asp_edge::Reason;
use asp_proto::snapshot::Kind;
use asp_snapshot::{ListedPrimitive, VirtualServer};
use serde_json::{Map, Value, json};

use super::codec::{Failure, Message};
use super::{McpRequest, lists};

/// Most values of one answer (MCP `CompleteResult`).
const MAX_VALUES: usize = 100;

/// Whether the server has anything to offer, whoever asks: then it names the capability.
pub(super) fn is_served(server: &VirtualServer) -> bool {
    let mut listed = server.entries.iter().filter(|entry| !entry.listing.mcp_name.is_empty());
    listed.any(|entry| !entry.primitive.completions.is_empty())
}

/// The result for `message`.
pub(super) fn complete(request: &McpRequest, message: &Message) -> Result<Map<String, Value>, Failure> {
    let (kind, name) = reference(message)?;
    let of_argument =
        |member: &str| message.param("argument").and_then(|argument| argument.get(member)?.as_str());
    let argument = of_argument("name").ok_or_else(|| invalid("params.argument.name must be a string"))?;
    let typed = of_argument("value").ok_or_else(|| invalid("params.argument.value must be a string"))?;
    let named = |entry: &&ListedPrimitive| entry.primitive.kind() == kind && entry.listing.mcp_name == name;
    let entry = request.server.entries.iter().map(|entry| &**entry).find(named);
    let entry = entry.filter(|entry| lists::shows(request, entry)).ok_or_else(|| {
        invalid(if kind == Kind::Prompt { "no such prompt" } else { "no such resource template" })
    })?;
    let listed = entry.primitive.completions.iter().find(|completion| completion.argument == argument);
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
    Ok(result)
}

/// What `params.ref` names: a prompt by its name, a template by its text.
fn reference(message: &Message) -> Result<(Kind, &str), Failure> {
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

/// The values that begin with what was typed, then those that hold it, in the order of the spec; ASCII letters count
/// the same in either case.
fn matching<'a>(values: &'a [String], typed: &str) -> Vec<&'a str> {
    let typed = typed.to_ascii_lowercase();
    let place = |value: &str| value.to_ascii_lowercase().find(&typed);
    let mut found: Vec<(bool, &str)> =
        values.iter().filter_map(|value| Some((place(value)? > 0, value.as_str()))).collect();
    found.sort_by_key(|(later, _)| *later);
    found.into_iter().map(|(_, value)| value).collect()
}

fn invalid(what: &str) -> Failure {
    Failure::with(Reason::InvalidParams, what).in_call()
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
