//! Edits of operators in imported specs, which a later import keeps.
//!
//! Keeps true: an edit is kept only as long as the same upstream describes the primitive as it was imported (its URL or package,
//! and its pin), or the operation of a document has the same method and path. If that has changed, the value is derived again,
//! and a line says so. The authentication of an operation is kept at the same origin only.

use std::collections::BTreeMap;

use asp_registry::{Source, origin_of};
use serde_json::Value;

/// Members that an import derives from what a pin covers, but that an operator may know better.
const OF_PINNED: [&str; 5] = ["name", "summary", "tags", "security", "mutation"];
/// Members of an OpenAPI operation that an operator may know better; no pin covers its texts. On them depends which calls need
/// an approval.
const OF_OPERATION: [&str; 2] = ["security", "mutation"];

/// Writes the edits in the specs `before` into the new specs at the same paths. Returns a line for each that is not kept.
pub(super) fn keep_edits(files: &mut BTreeMap<String, String>, before: &[Source]) -> Vec<String> {
    let mut lines = Vec::new();
    for source in before {
        let Some(text) = files.get_mut(&source.path) else { continue };
        // The server's file is not JSON, nor are files that no import wrote.
        let read = |text: &str| serde_json::from_str::<Value>(text).ok();
        let (Some(former), Some(mut spec)) = (read(&source.text), read(text)) else { continue };
        let (kept, derived) = select_members(&former, &spec);
        for name in derived {
            if former.get(name).is_some_and(|value| spec.get(name) != Some(value)) {
                lines.push(format!(
                    "derived again: {name} of {}, which is not what was imported under this name; set it again if it still holds",
                    source.path
                ));
            }
        }
        let Some(members) = spec.as_object_mut() else { continue };
        for name in kept {
            if let Some(value) = former.get(name) {
                members.insert((*name).to_owned(), value.clone());
            }
        }
        *text = serde_json::to_string_pretty(&spec).unwrap_or_default() + "\n";
    }
    lines
}

/// Writes the authentication of OpenAPI operations in the specs `before`, or that there is none, into the new specs at the same
/// paths.
pub(super) fn keep_auth(files: &mut BTreeMap<String, String>, before: &[Source]) {
    for source in before {
        let Some(text) = files.get_mut(&source.path) else { continue };
        let read = |text: &str| serde_json::from_str::<Value>(text).ok();
        let (Some(former), Some(mut spec)) = (read(&source.text), read(text)) else { continue };
        if operation(&spec).is_none() || operation(&spec) != operation(&former) {
            continue;
        }
        let Some(runtime) = spec.get_mut("runtime").and_then(Value::as_object_mut) else { continue };
        runtime.shift_remove("auth");
        runtime.extend(former.pointer("/runtime/auth").map(|auth| ("auth".to_owned(), auth.clone())));
        *text = serde_json::to_string_pretty(&spec).unwrap_or_default() + "\n";
    }
}

/// Returns the origin, the method and the path of an operation; `None` for other specs.
fn operation(spec: &Value) -> Option<(&str, &str, Option<String>)> {
    let url = spec.pointer("/runtime/http/url")?.as_str()?;
    Some((origin_of(url), spec.pointer("/runtime/http/method")?.as_str()?, path(spec)))
}

/// Returns the members to keep, and those that are derived again and whose difference is reported.
fn select_members(former: &Value, new: &Value) -> (&'static [&'static str], &'static [&'static str]) {
    let same =
        |pointer: &str| new.pointer(pointer).is_some_and(|value| former.pointer(pointer) == Some(value));
    if (same("/runtime/mcp/pin") && same("/runtime/mcp/tool"))
        || (same("/runtime/a2a/pin") && same("/runtime/a2a/skill"))
        || (same("/runtime/pin") && same("/runtime/tool"))
    {
        match same("/runtime/mcp/url")
            || same("/runtime/a2a/url")
            || package(new).is_some_and(|name| package(former) == Some(name))
        {
            true => (&OF_PINNED, &[]),
            // Another upstream describes its item in the same words, so every difference is an edit.
            false => (&[], &OF_PINNED),
        }
    } else if same("/runtime/http/method") && path(former) == path(new) {
        (&OF_OPERATION, &[])
    } else {
        (&[], &OF_OPERATION)
    }
}

/// Returns the name of a stdio server's package, without its version.
fn package(spec: &Value) -> Option<&str> {
    let package = spec.pointer("/runtime/package")?.as_str()?;
    Some(package.rsplit_once('@').map_or(package, |(name, _)| if name.is_empty() { package } else { name }))
}

/// Returns the path of an operation, in which parameters have no names.
fn path(spec: &Value) -> Option<String> {
    let url = spec.pointer("/runtime/http/url")?.as_str()?;
    let place = url.split_once("://").map_or(url, |(_, place)| place);
    let path = place.find('/').and_then(|at| place.get(at..)).unwrap_or_default();
    let mut pieces = path.split('{');
    let first = pieces.next().unwrap_or_default();
    let rest = pieces.map(|piece| piece.split_once('}').map_or(piece, |(_, rest)| rest));
    Some(std::iter::once(first).chain(rest).collect::<Vec<_>>().join("{}"))
}
