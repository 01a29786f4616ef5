//! SHA-256 over several texts, canonical text of a JSON value, and short keys.

use asp_json::Json;
use serde_json::Value;
use sha2::{Digest, Sha256};

/// Key of a client's network in budgets of work that is done before the client has proved anything.
pub type PeerKey = [u8; 16];

/// Returns the digest of several parts. Each is preceded by its length, so that different lists have different digests.
pub fn of_parts(parts: &[impl AsRef<[u8]>]) -> [u8; 32] {
    let mut hasher = Sha256::new();
    for part in parts {
        let part = part.as_ref();
        hasher.update((part.len() as u64).to_be_bytes());
        hasher.update(part);
    }
    hasher.finalize().into()
}

/// Returns the digest of a request with these arguments. Numbers and texts that the view of the arguments does not
/// represent count as they are written, so that a request never gets the answer of another one.
pub fn of_request(parts: &[&str], arguments: &Json) -> [u8; 32] {
    let canonical = canonical(arguments);
    let lost = asp_json::losses(arguments.text());
    let all: Vec<&str> = parts.iter().copied().chain([canonical.as_str()]).chain(lost).collect();
    of_parts(&all)
}

/// Returns the first half of the digest of one text, for uses in which a collision gains nothing.
pub fn short(text: &str) -> [u8; 16] {
    shortened(&[text])
}

/// Returns JSON text with the members of every object sorted, so that their order does not make a different request.
pub fn canonical(value: &Value) -> String {
    match value {
        Value::Object(object) => {
            let mut names: Vec<_> = object.iter().collect();
            names.sort_by(|a, b| a.0.cmp(b.0));
            let members: Vec<String> = names
                .into_iter()
                .map(|(name, value)| format!("{}:{}", Value::String(name.clone()), canonical(value)))
                .collect();
            format!("{{{}}}", members.join(","))
        }
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(canonical).collect();
            format!("[{}]", items.join(","))
        }
        plain => plain.to_string(),
    }
}

/// Returns the first half of [`of_parts`], which is enough for a name.
pub fn shortened(parts: &[impl AsRef<[u8]>]) -> [u8; 16] {
    let digest = of_parts(parts);
    let mut first = [0; 16];
    first.copy_from_slice(digest.split_at(16).0);
    first
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn member_order_is_not_part_of_a_request_but_everything_else_is() {
        assert_eq!(
            canonical(&json!({"b": [1, {"d": 1, "c": 2}], "a": "x"})),
            r#"{"a":"x","b":[1,{"c":2,"d":1}]}"#
        );
        assert_ne!(canonical(&json!([1, 2])), canonical(&json!([2, 1])));
        assert_ne!(canonical(&json!({"a": "1"})), canonical(&json!({"a": 1})));
    }

    #[test]
    fn requests_with_other_numbers_differ_and_those_of_an_earlier_version_are_the_same() {
        let of = |text: &str| of_request(&["id"], &Json::parse(text.as_bytes()).unwrap());
        assert_eq!(of(r#"{"b": 1.5, "a":"x"}"#), of_parts(&["id", r#"{"a":"x","b":1.5}"#]));
        assert_ne!(of("[123456789012345678901]"), of("[123456789012345678902]"));
        assert_ne!(of(r#"["\ud83d"]"#), of(r#"["\ud83e"]"#));
        assert_eq!(of("[123456789012345678901]"), of("[ 123456789012345678901 ]"));
    }

    #[test]
    fn parts_do_not_run_into_each_other() {
        assert_ne!(of_parts(&["ab", "c"]), of_parts(&["a", "bc"]));
        assert_ne!(of_parts(&["ab"]), of_parts(&["a", "b"]));
    }
}
