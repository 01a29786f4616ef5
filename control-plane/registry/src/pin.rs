//! The pinned part of an upstream's tool, prompt or resource: the words and schemas that clients and models act on.
//!
//! Owns: the digest that `asp import` writes into a spec, by which an upstream's list is compared with what was
//! accepted. Keeps true: neither the order of members nor members that clients do not act on (`_meta`, icons) change
//! the digest.

use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::diff;

/// Pinned members of all kinds of items: MCP's `Tool`, `Prompt`, `Resource` and `ResourceTemplate`.
const PINNED: [&str; 8] = [
    "title",
    "description",
    "inputSchema",
    "outputSchema",
    "annotations",
    "arguments",
    "mimeType",
    "execution",
];

/// Returns the digest of a listed item: SHA-256 in hex.
pub fn pin(item: &Value) -> String {
    let mut hasher = Sha256::new();
    for name in PINNED {
        let Some(value) = item.get(name) else { continue };
        hasher.update(name.as_bytes());
        hash(value, &mut hasher);
    }
    hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Whether arguments that fit `pinned` may not fit `now`. True unless the contrary can be proved.
pub fn refuses_what_fitted(pinned: &Value, now: &Value) -> bool {
    diff::narrows_arguments(pinned, now)
}

/// Whether results that fit `now` may not fit `pinned`. True unless the contrary can be proved.
pub fn promises_less(pinned: &Value, now: &Value) -> bool {
    diff::weakens_results(pinned, now)
}

/// Hashes a value without ambiguity: each text ends with a byte that JSON text cannot contain. serde_json bounds the
/// depth of what it reads.
fn hash(value: &Value, hasher: &mut Sha256) {
    match value {
        Value::Object(members) => {
            let mut names: Vec<&String> = members.keys().collect();
            names.sort();
            hasher.update([0, b'{']);
            for name in names {
                hasher.update(name.as_bytes());
                hasher.update([0]);
                hash(members.get(name).unwrap_or(&Value::Null), hasher);
            }
            hasher.update([0, b'}']);
        }
        Value::Array(items) => {
            hasher.update([0, b'[']);
            items.iter().for_each(|item| hash(item, hasher));
            hasher.update([0, b']']);
        }
        plain => {
            hasher.update([0]);
            hasher.update(plain.to_string().as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pin_changes_with_what_clients_act_by_and_with_nothing_else() {
        let tool = json!({"name": "t", "title": "T", "description": "d", "annotations": {"readOnlyHint": true},
            "inputSchema": {"type": "object", "properties": {"a": {"type": "string"}, "b": {}}}});
        let same = json!({"inputSchema": {"properties": {"b": {}, "a": {"type": "string"}}, "type": "object"},
            "annotations": {"readOnlyHint": true}, "title": "T", "description": "d", "name": "t",
            "_meta": {"x": 1}, "icons": []});
        assert_eq!(pin(&tool), pin(&same));
        assert_eq!(pin(&tool).len(), 64);
        for (pointer, value) in [
            ("/title", json!("U")),
            ("/description", json!("d\u{200b}")),
            ("/annotations/readOnlyHint", json!(false)),
            ("/inputSchema/properties/a/type", json!("number")),
            ("/inputSchema/properties/b", json!({"description": "x"})),
        ] {
            let mut other = tool.clone();
            *other.pointer_mut(pointer).unwrap() = value;
            assert_ne!(pin(&tool), pin(&other), "{pointer}");
        }
        for name in PINNED {
            let mut other = tool.clone();
            other[name] = json!("another");
            assert_ne!(pin(&tool), pin(&other), "{name}");
        }
    }

    #[test]
    fn no_two_values_have_one_pin() {
        let of = |value: Value| pin(&json!({"arguments": value}));
        let values = [
            json!([]),
            json!([[]]),
            json!([1, 2]),
            json!([12]),
            json!(["1", 2]),
            json!({"a": {}}),
            json!({"a": 1}),
        ];
        let pins: std::collections::BTreeSet<String> = values.into_iter().map(of).collect();
        assert_eq!(pins.len(), 7);
    }

    #[test]
    fn a_schema_may_accept_more_and_not_less() {
        let pinned = json!({"type": "object", "properties": {"a": {"type": "string"}}});
        let more =
            json!({"type": "object", "properties": {"a": {"type": "string", "description": "x"}, "b": {}}});
        assert!(!refuses_what_fitted(&pinned, &pinned));
        assert!(!refuses_what_fitted(&pinned, &more));
        let mut needs = pinned.clone();
        needs["required"] = json!(["a"]);
        assert!(refuses_what_fitted(&pinned, &needs));
        let other = json!({"type": "object", "properties": {"a": {"type": "number"}}});
        assert!(refuses_what_fitted(&pinned, &other));
        let closed = json!({"type": "object", "properties": {}, "additionalProperties": false});
        assert!(refuses_what_fitted(&pinned, &closed));
    }

    #[test]
    fn a_schema_of_results_may_promise_more_and_not_less() {
        let pinned = json!({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]});
        let mut more = pinned.clone();
        more["required"] = json!(["a", "b"]);
        assert!(!promises_less(&pinned, &pinned));
        assert!(!promises_less(&pinned, &more));
        assert!(!promises_less(&Value::Bool(true), &pinned));
        let mut less = pinned.clone();
        less["required"] = json!([]);
        let other = json!({"type": "object", "properties": {"a": {"type": "number"}}, "required": ["a"]});
        for now in [less, other, Value::Bool(true)] {
            assert!(promises_less(&pinned, &now), "{now}");
        }
    }
}
