//! Arguments in the form of URLs, queries, headers and forms: texts and numbers as they were written.
//!
//! Keeps true: an integer written as a float (`7.0`, `1e2`) becomes an integer, because a schema accepts it as one
//! (JSON Schema 2020-12 section 4.2.3) and a strict service does not. A number that a double rounds keeps its text.

use asp_json::{Json, elements, integers, losses, members};
use serde_json::{Map, Value};

/// Values for templates.
pub(super) struct Arguments(Map<String, Value>);

impl Arguments {
    /// Returns the arguments that the client sent.
    pub(super) fn as_sent(arguments: &Json) -> Arguments {
        let mut written = Map::new();
        for (name, text) in members(arguments.text()).unwrap_or_default() {
            written.insert(name.into_owned(), value(text));
        }
        Arguments(written)
    }

    /// Returns the arguments, with the schema's defaults for absent ones: a URL needs a value for each.
    pub(super) fn with_defaults(arguments: &Json) -> Arguments {
        let Arguments(mut written) = Arguments::as_sent(arguments);
        for (name, value) in arguments.as_object().into_iter().flatten() {
            written.entry(name.as_str()).or_insert_with(|| value.clone());
        }
        Arguments(written)
    }

    pub(super) fn as_map(&self) -> &Map<String, Value> {
        &self.0
    }
}

/// Formats a text, number or boolean for a form.
pub(super) fn scalar(text: &str) -> String {
    match one(text) {
        Value::String(written) => written,
        other => other.to_string(),
    }
}

/// Converts a value for a template: a scalar, or a list of scalars.
fn value(text: &str) -> Value {
    match elements(text) {
        Some(elements) => elements.into_iter().map(one).collect(),
        None => one(text),
    }
}

/// Converts a scalar; a number becomes its text, so that it keeps its digits. No template accepts an object or a
/// nested list, so these are not decoded.
fn one(text: &str) -> Value {
    match text.as_bytes().first() {
        Some(b'{') => return Value::Object(Map::new()),
        Some(b'[') => return Value::Array(Vec::new()),
        _ => {}
    }
    let mut value = asp_json::decode(text).unwrap_or_default();
    if !value.is_number() {
        return value;
    }
    // `2.0000000000000000001` is no integer: only its double is one.
    if losses(text).is_empty() {
        integers(&mut value);
    }
    match value.is_f64() {
        true => Value::from(text),
        false => Value::from(value.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_keep_their_digits_and_integers_are_written_as_integers() {
        for (text, written) in [
            ("7.0", "7"),
            ("1e2", "100"),
            ("-0", "0"),
            ("-0.0", "0"),
            ("-7.0", "-7"),
            ("0.10", "0.10"),
            ("18446744073709551615", "18446744073709551615"),
            ("340282366920938463463374607431768211455", "340282366920938463463374607431768211455"),
            ("0.123456789012345678901234567890", "0.123456789012345678901234567890"),
            ("2.0000000000000000000001", "2.0000000000000000000001"),
            ("0.99999999999999999999", "0.99999999999999999999"),
            ("1e-400", "1e-400"),
        ] {
            assert_eq!(value(text), written, "{text}");
        }
        assert_eq!(value("true"), true);
        assert_eq!(value(r#"[7.0, "2.0", 0.10, [1e2], {"a": 1}]"#), json!(["7", "2.0", "0.10", [], {}]));
        assert_eq!(value(r#"{"a": [1]}"#), json!({}));
        assert_eq!(value(r#""2.0""#), "2.0");
    }
}
