//! Enumerations whose values do not have the type that their schema declares.
//!
//! Keeps true: a schema accepts what its author listed, even if the document, taken literally, would reject every value.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

/// Fixes an `enum` with values that do not have the declared `type`, by converting them to the type. If a value cannot be
/// converted, the schema accepts the values as written and, for lists and objects, any value of the type. Returns
/// whether it was fixed.
pub(super) fn repair(taken: &mut Map<String, Value>) -> bool {
    let kinds: Vec<&str> = match taken.get("type") {
        Some(Value::String(kind)) => vec![kind],
        Some(Value::Array(kinds)) => kinds.iter().filter_map(Value::as_str).collect(),
        _ => return false,
    };
    let Some(kind) = kinds.iter().copied().find(|kind| *kind != "null") else { return false };
    let Some(Value::Array(values)) = taken.get("enum") else { return false };
    let fits = |value: &Value| value.is_null() || kinds.iter().any(|kind| is_of(value, kind));
    if values.iter().all(fits) {
        return false;
    }
    let mended = |value: &Value| if fits(value) { Some(value.clone()) } else { convert(value, kind) };
    if let Some(mut values) = values.iter().map(mended).collect::<Option<Vec<Value>>>() {
        // A value may have been listed in both forms.
        let mut seen = BTreeSet::new();
        values.retain(|value| seen.insert(value.to_string()));
        taken.insert("enum".into(), Value::Array(values));
    } else {
        let contradiction = if matches!(kind, "array" | "object") { "enum" } else { "type" };
        taken.shift_remove(contradiction);
    }
    true
}

fn is_of(value: &Value, kind: &str) -> bool {
    match kind {
        "string" => value.is_string(),
        "number" => value.is_number(),
        "integer" => value.as_f64().is_some_and(|number| number.fract() == 0.0),
        "boolean" => value.is_boolean(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => value.is_null(),
    }
}

/// Converts a value of another type: `"1"` to the integer 1, and YAML's `1` or `true` to text.
fn convert(value: &Value, kind: &str) -> Option<Value> {
    let converted = match (kind, value) {
        ("string", Value::Number(_) | Value::Bool(_)) => Value::String(value.to_string()),
        ("integer" | "number" | "boolean", Value::String(text)) => serde_json::from_str(text).ok()?,
        _ => return None,
    };
    is_of(&converted, kind).then_some(converted)
}
