//! What JSON values hold in memory, and what a text will hold once it is read.
//!
//! Keeps true: a value is counted as it lies in memory, because a text of `[[0],[0],…]` takes there a hundred times what it
//! takes on the wire; nothing is written to be counted, and nothing is built to be estimated.

use asp_json::Json;
use serde_json::{Map, Value};

/// What a member of a map takes beside its name's text and its value: the name, its hash and its place in the table.
pub(super) const NODE: usize = 64;
/// Of an array or object that is not empty, at least.
const ROOM: usize = 4;
/// What the value takes that a byte of a text begins: of a list or object, room for four.
const OF_ARRAY: usize = ROOM * VALUE;
const OF_OBJECT: usize = ROOM * (VALUE + NODE);
/// The next value, in a list that has up to twice the room that it needs; and what a member has beside it.
const OF_NEXT: usize = 2 * VALUE;
const OF_KEY: usize = 2 * NODE;
const VALUE: usize = size_of::<Value>();
/// What somebody else's answer may hold: above what 16 MiB of text or 600,000 numbers take.
const MOST_OF_AN_ANSWER: usize = 96 << 20;

/// An upper bound of what a JSON text holds once it is read, in bytes.
pub(crate) fn once_read(text: &[u8]) -> usize {
    let mut is_string = false;
    let mut is_escaped = false;
    let values = text.iter().map(|byte| {
        if is_string {
            // As a reader does (RFC 8259 section 7): what is none to it either is refused there.
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

/// Whether the answer of a worker or a service is too much to be read.
pub(crate) fn is_too_much(answer: &[u8]) -> bool {
    once_read(answer) > MOST_OF_AN_ANSWER
}

/// A value, however deep: it was read by a parser that bounds the depth.
pub(crate) fn of_value(value: &Value) -> usize {
    let held = match value {
        Value::String(text) => text.len(),
        Value::Array(items) => spare(items.len()) * VALUE + of_all(items),
        Value::Object(members) => of_members(members),
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    };
    size_of::<Value>() + held
}

/// A text, and its view where it was read.
pub(crate) fn of_json(json: &Json) -> usize {
    NODE + json.text().len() + json.read_view().map_or(0, of_value)
}

/// Several of them.
pub(crate) fn of_all_json(all: &[Json]) -> usize {
    all.iter().map(of_json).sum()
}

/// Several values.
pub(crate) fn of_all(values: &[Value]) -> usize {
    values.iter().map(of_value).sum()
}

/// The members of an object.
pub(super) fn of_members(members: &Map<String, Value>) -> usize {
    let spare = spare(members.len()) * (VALUE + NODE);
    spare + members.iter().map(|(name, value)| NODE + name.len() + of_value(value)).sum::<usize>()
}

/// How many more values a list or object of so many has room for, where these are few.
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
