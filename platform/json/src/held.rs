//! Sizes of JSON values in memory, and of a text once it is read.
//!
//! Keeps true: a value is counted as it lies in memory, because a text like `[[0],[0],…]` takes a hundred times its
//! length there; counting writes nothing, and estimating builds nothing.

use serde_json::{Map, Value};

use crate::Json;

/// Overhead of an object's member besides the text of its name and its value: the name, its hash and its slot in the
/// table.
pub const NODE: usize = 64;
/// Minimum capacity of an array or object that is not empty.
const ROOM: usize = 4;
/// Size of the value that a bracket or brace begins: capacity for four elements or members.
const OF_ARRAY: usize = ROOM * VALUE;
const OF_OBJECT: usize = ROOM * (VALUE + NODE);
/// Size of the value after a comma, in an array with up to twice the capacity that it needs, and the overhead of a
/// member.
const OF_NEXT: usize = 2 * VALUE;
const OF_KEY: usize = 2 * NODE;
const VALUE: usize = size_of::<Value>();
/// Maximum size of an answer in memory, above what 16 MiB of text or 600,000 numbers take.
const MOST_OF_AN_ANSWER: usize = 96 << 20;

/// Returns an upper bound of the size of a JSON text once it is read, in bytes.
pub fn once_read(text: &[u8]) -> usize {
    let mut is_string = false;
    let mut is_escaped = false;
    let values = text.iter().map(|byte| {
        if is_string {
            // Strings end where a JSON parser ends them (RFC 8259 section 7); it rejects the texts for which this is
            // wrong.
            is_string = is_escaped || *byte != b'"';
            is_escaped = !is_escaped && *byte == b'\\';
            return 0;
        }
        match byte {
            b'"' => is_string = true,
            b'[' => return OF_ARRAY,
            b'{' => return OF_OBJECT,
            b',' => return OF_NEXT,
            b':' => return OF_KEY,
            _ => {}
        }
        0
    });
    values.sum::<usize>().saturating_add(VALUE).saturating_add(text.len())
}

/// Whether the answer of a worker or a service is too large to be read.
pub fn is_too_much(answer: &[u8]) -> bool {
    once_read(answer) > MOST_OF_AN_ANSWER
}

/// Returns the size of a value. The depth of the recursion is bounded by the parser that read it.
pub fn of_value(value: &Value) -> usize {
    let held = match value {
        Value::String(text) => text.len(),
        Value::Array(items) => spare(items.len()) * VALUE + of_all(items),
        Value::Object(members) => of_members(members),
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    };
    size_of::<Value>() + held
}

/// Returns the size of a text, and of its view if that was read.
pub fn of_json(json: &Json) -> usize {
    NODE + json.text().len() + json.read_view().map_or(0, of_value)
}

/// Returns the size of several texts.
pub fn of_all_json(all: &[Json]) -> usize {
    all.iter().map(of_json).sum()
}

/// Returns the size of several values.
pub fn of_all(values: &[Value]) -> usize {
    values.iter().map(of_value).sum()
}

/// Returns the size of an object's members.
fn of_members(members: &Map<String, Value>) -> usize {
    let spare = spare(members.len()) * (VALUE + NODE);
    spare + members.iter().map(|(name, value)| NODE + name.len() + of_value(value)).sum::<usize>()
}

/// Returns the spare capacity of a small array or object with this many elements.
fn spare(values: usize) -> usize {
    if values == 0 { 0 } else { ROOM.saturating_sub(values) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn no_text_holds_more_than_was_estimated() {
        let many = |part: &str| format!("[{}]", vec![part; 2_000].join(","));
        let deep = format!("{}{}", "[".repeat(120), "]".repeat(120));
        let members: Vec<String> = (0..1_000).map(|place| format!(r#""k{place}":{place}"#)).collect();
        let texts = [
            many("[0]"),
            many("[]"),
            many("{}"),
            many("0"),
            many(r#""""#),
            many(r#""\"\\""#),
            many(r#"{"":0}"#),
            many(r#"{"a":0,"b":1,"c":2,"d":3,"e":4}"#),
            many("[[[[0]]]]"),
            many(&deep),
            format!("{{{}}}", members.join(",")),
            format!(r#"{{"text":"{}"}}"#, "word ".repeat(2_000)),
            "{}".into(),
            "7".into(),
        ];
        for text in texts {
            let held = of_value(&serde_json::from_str(&text).unwrap());
            let estimate = once_read(text.as_bytes());
            assert!(held <= estimate, "{held} > {estimate}: {}", text.get(..60).unwrap_or(&text));
        }
    }

    #[test]
    fn answers_of_much_text_or_many_numbers_are_read_and_those_of_lists_in_lists_are_not() {
        let of = |part: &str, bytes: usize| vec![part; bytes / part.len()].join("");
        assert!(!is_too_much(format!(r#""{}""#, of(r#"a\",[b,"#, 16 << 20)).as_bytes()));
        assert!(!is_too_much(format!("[{}]", vec!["0.1234"; 600_000].join(",")).as_bytes()));
        assert!(is_too_much(format!("[{}]", vec!["[0]"; 1 << 18].join(",")).as_bytes()));
    }

    #[test]
    fn many_small_values_count_as_what_they_take_in_memory() {
        let zeros = Value::Array(vec![json!(0); 1_000]);
        assert!(zeros.to_string().len() < 2_100);
        assert!(of_value(&zeros) >= 1_000 * size_of::<Value>());
        let deep = json!({"a": {"b": ["text", null]}});
        assert!(of_value(&deep) > 5 * size_of::<Value>() + 2 * NODE);
    }
}
