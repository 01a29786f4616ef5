//! Texts of a document for people and models.
//!
//! Keeps true: a title, summary or description contains only visible characters, so that an invisible one, which many
//! editors copy along, does not leave out an operation.

use asp_registry::visible_text;
use serde_json::Value;

/// Members that hold such a text.
const TEXTS: [&str; 3] = ["description", "summary", "title"];

/// Removes invisible characters from the texts; returns the number of texts that had any. The parser bounds the depth.
pub(super) fn clean(value: &mut Value) -> usize {
    match value {
        Value::Array(items) => items.iter_mut().map(clean).sum(),
        Value::Object(members) => members.iter_mut().map(|(name, member)| clean_member(name, member)).sum(),
        _ => 0,
    }
}

fn clean_member(name: &str, member: &mut Value) -> usize {
    let Value::String(text) = member else { return clean(member) };
    if !TEXTS.contains(&name) {
        return 0;
    }
    let visible = visible_text(text);
    let is_changed = visible != *text;
    *text = visible;
    usize::from(is_changed)
}
