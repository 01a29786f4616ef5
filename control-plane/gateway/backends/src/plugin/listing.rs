//! Lists of plugins: the resources behind a template whose spec says `listed: plugin`.
//!
//! Keeps true: a list is bounded; every URI in it leads back to the primitive that listed it, so that a plugin cannot
//! list a resource of another primitive. Items that violate this are left out; the others are kept.

use std::collections::HashSet;

use asp_call::call::Call;
use asp_call::call::outcome::Output;
use asp_json::Json;
use asp_proto::plugin::{ListResourcesResponse, ResourceInfo};
use serde_json::{Map, Value};

/// Maximum number of resources in one list.
const MAX_LISTED: usize = 1000;
/// Maximum size in bytes of the texts of one list: it is cached for a while for each user.
const MAX_TEXT: usize = 256 << 10;

/// Converts the resources into the call's output, each as MCP's `Resource`.
pub(super) fn read(call: &Call, said: ListResourcesResponse) -> Output {
    let given = said.resources.len();
    let leads_back = |uri: &str| {
        let found = call.server.resource(uri);
        found.is_some_and(|(entry, _)| entry.primitive.id == call.entry.primitive.id)
    };
    let contents = resources(said.resources, leads_back);
    if contents.len() < given {
        tracing::warn!(
            call = %call.id, trace = %call.trace, primitive = %call.entry.primitive.id, left_out = given - contents.len(),
            "a plugin's list was cut: resources are left out that are not behind its own template, listed twice, or beyond 1000 resources or 256 KiB"
        );
    }
    Output::contents(contents.into_iter().map(Json::from).collect())
}

fn resources(said: Vec<ResourceInfo>, leads_back: impl Fn(&str) -> bool) -> Vec<Value> {
    let mut left = MAX_TEXT;
    let mut seen = HashSet::new();
    let mut listed = Vec::new();
    for info in said {
        let ResourceInfo { uri, name, title, description, mime_type } = &info;
        let size = [uri, name, title, description, mime_type].into_iter().map(String::len).sum();
        let Some(rest) = left.checked_sub(size) else { break };
        if listed.len() >= MAX_LISTED {
            break;
        }
        if !leads_back(uri) || !seen.insert(uri.clone()) {
            continue;
        }
        left = rest;
        listed.push(Value::Object(definition(info)));
    }
    listed
}

fn definition(info: ResourceInfo) -> Map<String, Value> {
    let ResourceInfo { uri, name, title, description, mime_type } = info;
    // Every MCP `Resource` has a name.
    let name = if name.is_empty() { uri.clone() } else { name };
    let members = [
        ("uri", uri),
        ("name", name),
        ("title", title),
        ("description", description),
        ("mimeType", mime_type),
    ];
    let given = members.into_iter().filter(|(_, text)| !text.is_empty());
    given.map(|(member, text)| (member.to_owned(), text.into())).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn info(uri: &str) -> ResourceInfo {
        ResourceInfo { uri: uri.into(), ..ResourceInfo::default() }
    }

    #[test]
    fn a_list_has_what_leads_back_once_and_no_more_than_its_bounds() {
        let behind = |uri: &str| uri.starts_with("page://");
        let full = ResourceInfo {
            uri: "page://1".into(),
            name: "One".into(),
            title: "The first".into(),
            description: "It is short.".into(),
            mime_type: "text/plain".into(),
        };
        let said = vec![full, info("page://2"), info("other://3"), info("page://2")];
        let first = json!({"uri": "page://1", "name": "One", "title": "The first", "description": "It is short.",
                           "mimeType": "text/plain"});
        assert_eq!(resources(said, behind), [first, json!({"uri": "page://2", "name": "page://2"})]);
        let many = (0..=MAX_LISTED).map(|n| info(&format!("page://{n}"))).collect();
        assert_eq!(resources(many, behind).len(), MAX_LISTED);
        let long =
            |n: u8| ResourceInfo { description: "x".repeat(MAX_TEXT / 2), ..info(&format!("page://{n}")) };
        assert_eq!(resources(vec![long(1), long(2)], behind).len(), 1);
    }
}
