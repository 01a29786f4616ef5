//! What JSON values hold in memory.
//!
//! Keeps true: a value is counted as it lies in memory, because a text of `[0,0,…]` takes there many times what it takes on
//! the wire; nothing is written to be counted.

use serde_json::{Map, Value};

/// What a member of a map takes beside its name and its value.
pub(super) const NODE: usize = 64;

/// A value, however deep: it was read by a parser that bounds the depth.
pub(crate) fn of_value(value: &Value) -> usize {
    let held = match value {
        Value::String(text) => text.len(),
        Value::Array(items) => of_all(items),
        Value::Object(members) => of_members(members),
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    };
    size_of::<Value>() + held
}

/// Several values.
pub(crate) fn of_all(values: &[Value]) -> usize {
    values.iter().map(of_value).sum()
}

/// The members of an object.
pub(super) fn of_members(members: &Map<String, Value>) -> usize {
    members.iter().map(|(name, value)| NODE + name.len() + of_value(value)).sum()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn many_small_values_count_as_what_they_take_in_memory() {
        let zeros = Value::Array(vec![json!(0); 1_000]);
        assert!(zeros.to_string().len() < 2_100);
        assert!(of_value(&zeros) >= 1_000 * size_of::<Value>());
        let deep = json!({"a": {"b": ["text", null]}});
        assert!(of_value(&deep) > 5 * size_of::<Value>() + 2 * NODE);
    }
}
