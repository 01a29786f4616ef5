//! The text of a changed value, in which every unchanged part keeps its text.

use std::borrow::Cow;
use std::collections::HashMap;

use serde_json::Value;

use super::{elements, members};

/// Returns the text of `after`, a value derived from `before`, the view of `text`. Recurses no deeper than the view.
pub(crate) fn patched(text: &str, before: &Value, after: &Value) -> String {
    match (before, after) {
        (before, after) if before == after => text.to_owned(),
        (Value::Object(before), Value::Object(after)) => {
            // The last of equal keys counts, as in the view.
            let known: HashMap<Cow<'_, str>, &str> = members(text).unwrap_or_default().into_iter().collect();
            let written: Vec<String> = after
                .iter()
                .map(|(name, after)| {
                    let old = known.get(name.as_str()).zip(before.get(name));
                    let value = old.map(|(text, before)| patched(text, before, after));
                    format!("{}:{}", Value::from(name.as_str()), value.unwrap_or_else(|| after.to_string()))
                })
                .collect();
            format!("{{{}}}", written.join(","))
        }
        (Value::Array(before), Value::Array(after)) if before.len() == after.len() => {
            let known = elements(text).unwrap_or_default();
            let written: Vec<String> = known
                .iter()
                .zip(before.iter().zip(after))
                .map(|(text, (before, after))| patched(text, before, after))
                .collect();
            format!("[{}]", written.join(","))
        }
        (_, after) => after.to_string(),
    }
}
