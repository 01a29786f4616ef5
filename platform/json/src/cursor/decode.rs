//! The view of a text: its content as far as a `serde_json::Value` can hold it.

use serde_json::Value;

use crate::cursor::{Cursor, Syntax};

/// Decodes a text. A lone surrogate becomes U+FFFD, a number beyond the range of a double becomes the largest double of
/// its sign, and the last of equal keys counts.
pub fn decode(text: &str) -> Result<Value, Syntax> {
    serde_json::from_str(text).or_else(|_| serde_json::from_str(&decodable(text)).map_err(|_| Syntax))
}

/// Returns the value of a checked string literal.
pub(crate) fn string(literal: &str) -> String {
    let decoded = serde_json::from_str(literal).or_else(|_| serde_json::from_str(&decodable(literal)));
    decoded.unwrap_or_default()
}

/// Returns the text with the parts replaced that a strict decoder rejects. Text that is not JSON does not become JSON.
fn decodable(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(['"', '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9']) {
        let (before, from) = rest.split_at(at);
        kept.push_str(before);
        rest = match from.strip_prefix('"') {
            Some(inner) => {
                kept.push('"');
                put_string(&mut kept, inner)
            }
            None => put_number(&mut kept, from),
        };
    }
    kept + rest
}

/// Copies a number and returns the text after it.
fn put_number<'a>(kept: &mut String, text: &'a str) -> &'a str {
    let is_part = |c: char| matches!(c, '0'..='9' | '+' | '-' | '.' | 'e' | 'E');
    let end = text.find(|c| !is_part(c)).unwrap_or(text.len());
    let (number, rest) = text.split_at(end);
    match number.parse::<f64>() {
        Ok(value) if value.is_infinite() && is_number(number) => {
            kept.push_str(if number.starts_with('-') {
                "-1.7976931348623157e308"
            } else {
                "1.7976931348623157e308"
            });
        }
        _ => kept.push_str(number),
    }
    rest
}

fn is_number(text: &str) -> bool {
    Cursor::new(text.as_bytes()).and_then(|mut cursor| cursor.value().and_then(|_| cursor.end())).is_ok()
}

/// Copies the rest of a string with its closing quote and returns the text after it.
fn put_string<'a>(kept: &mut String, mut rest: &'a str) -> &'a str {
    while let Some(at) = rest.find(['"', '\\']) {
        let (before, from) = rest.split_at(at);
        kept.push_str(before);
        let length = if from.starts_with('"') { 1 } else { escape_length(from) };
        let (taken, after) = from.split_at_checked(length).unwrap_or((from, ""));
        kept.push_str(if is_lone_surrogate(taken) { "\\ufffd" } else { taken });
        rest = after;
        if taken == "\"" {
            return rest;
        }
    }
    kept.push_str(rest);
    ""
}

/// Returns the length of the escape at the beginning of `text`; of both, if it begins a surrogate pair.
pub(crate) fn escape_length(text: &str) -> usize {
    match (unit(text), text.get(6..).and_then(unit)) {
        (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => 12,
        (Some(_), _) => 6,
        (None, _) => 2,
    }
}

/// Whether an escape is half of a surrogate pair.
pub(crate) fn is_lone_surrogate(escape: &str) -> bool {
    escape.len() == 6 && matches!(unit(escape), Some(0xd800..=0xdfff))
}

/// Returns the UTF-16 unit of a `\u` escape.
fn unit(text: &str) -> Option<u16> {
    let digits = text.strip_prefix("\\u")?.get(..4)?;
    let is_hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    u16::from_str_radix(digits, 16).ok().filter(|_| is_hex)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_value_cannot_hold_becomes_the_nearest_that_it_can() {
        for (text, value) in [
            (r#"{"a":"x\ud83d","b":[1e400,-1e999]}"#, json!({"a": "x\u{fffd}", "b": [f64::MAX, f64::MIN]})),
            (r#"{"\ud83d":1}"#, json!({"\u{fffd}": 1})),
            (r#"{"a":1,"\u0061":2}"#, json!({"a": 2})),
            (r#""1e400 \\ud83d \ud83d\ude00\ud83d""#, json!("1e400 \\ud83d \u{1f600}\u{fffd}")),
            ("340282366920938463463374607431768211455", json!(2f64.powi(128))),
        ] {
            assert_eq!(decode(text).unwrap(), value, "{text}");
        }
    }

    #[test]
    fn what_is_no_json_stays_none() {
        for text in [
            "1e400e1",
            "01e400",
            "\"\\ud83",
            "\"\\ud83d",
            "[1e400",
            "+1e400",
            "\"\n\\ud83d\"",
            "-",
            "1e999 2",
        ] {
            assert!(decode(text).is_err(), "{text}");
        }
    }
}
