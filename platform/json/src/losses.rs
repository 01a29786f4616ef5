//! The parts of a text that its view does not represent.

use std::borrow::Cow;

use crate::cursor::decode::{escape_length, is_lone_surrogate};
use crate::cursor::{Cursor, Syntax, Value, has_repeated};

/// Returns the parts of a text that its view represents differently, as written and in order: rounded numbers, strings
/// with a lone surrogate, objects with equal keys. Empty for most texts. Reads the text once.
pub fn losses(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut read = || {
        let mut cursor = Cursor::new(text.as_bytes())?;
        of_value(&mut cursor, &mut found)?;
        cursor.end()
    };
    let read: Result<(), Syntax> = read();
    read.map_or_else(|Syntax| Vec::new(), |()| found)
}

/// Adds the losses of the next value. The recursion is bounded by the cursor's depth limit.
fn of_value<'a>(cursor: &mut Cursor<'a>, found: &mut Vec<&'a str>) -> Result<(), Syntax> {
    match cursor.peek() {
        Some(b'{') => of_object(cursor, found),
        Some(b'[') => cursor.array(|cursor| of_value(cursor, found)),
        _ => {
            found.extend(changed_scalar(cursor.value()?));
            Ok(())
        }
    }
}

fn of_object<'a>(cursor: &mut Cursor<'a>, found: &mut Vec<&'a str>) -> Result<(), Syntax> {
    let start = cursor.start();
    let before = found.len();
    let mut keys: Vec<Cow<'a, str>> = Vec::new();
    cursor.object_with_keys(|cursor, key| {
        keys.push(key.unescape());
        of_value(cursor, found)
    })?;
    if differ_in_view(keys) {
        // The whole object counts, including the losses in it.
        found.truncate(before);
        found.push(cursor.text_since(start)?);
    }
    Ok(())
}

fn differ_in_view(keys: Vec<Cow<'_, str>>) -> bool {
    // A key with a lone surrogate is a different key in the view.
    keys.iter().any(|key| key.contains('\u{fffd}')) || has_repeated(keys)
}

/// Returns a scalar that the view represents differently.
fn changed_scalar(scalar: Value<'_>) -> Option<&str> {
    match scalar {
        Value::Number(number) => is_rounded(number).then_some(number),
        Value::String(string) => has_lone_surrogate(string.literal).then_some(string.literal),
        _ => None,
    }
}

fn is_rounded(number: &str) -> bool {
    if number.parse::<i64>().is_ok() || number.parse::<u64>().is_ok() {
        return false;
    }
    let mantissa = number.split(['e', 'E']).next().unwrap_or_default();
    let digits = mantissa.trim_start_matches(['-', '0', '.']).bytes().filter(u8::is_ascii_digit).count();
    // Every decimal with so many digits survives a conversion to a double and back (IEEE 754 binary64), unless it is
    // out of range.
    digits > 15 || !number.parse::<f64>().is_ok_and(f64::is_normal) && digits > 0
}

fn has_lone_surrogate(literal: &str) -> bool {
    let mut rest = literal;
    while let Some(from) = rest.find('\\').and_then(|at| rest.get(at..)) {
        let length = escape_length(from);
        if from.get(..length).is_some_and(is_lone_surrogate) {
            return true;
        }
        rest = from.get(length..).unwrap_or_default();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_view_cannot_hold_is_a_loss() {
        let plain =
            r#"{"a":[1,-1,18446744073709551615,0.5,1e3,1E-7,0,-0.0,"\ud83d\ude00\n",null,true],"b":{"a":1}}"#;
        assert!(losses(plain).is_empty(), "{:?}", losses(plain));
        for (text, lost) in [
            ("[18446744073709551616,1]", "18446744073709551616"),
            ("0.1234567890123456789", "0.1234567890123456789"),
            ("[1e400]", "1e400"),
            ("1e-400", "1e-400"),
            (r#"{"a":"x\ud83d"}"#, r#""x\ud83d""#),
            (r#"[{"a":1,"\u0061":2}]"#, r#"{"a":1,"\u0061":2}"#),
            (r#"[ {"a":[1e400],"b":{"c":1,"c":2},"a":1} ]"#, r#"{"a":[1e400],"b":{"c":1,"c":2},"a":1}"#),
        ] {
            assert_eq!(losses(text), [lost], "{text}");
        }
    }

    #[test]
    fn losses_come_in_their_order_and_a_text_that_is_no_json_has_none() {
        let text = r#"{"a":[1e400,{"b":1,"b":1e401}],"c":"\ud83d","d":{"e":1e-400}}"#;
        assert_eq!(losses(text), ["1e400", r#"{"b":1,"b":1e401}"#, r#""\ud83d""#, "1e-400"]);
        assert!(losses("[1e400").is_empty());
        assert!(losses("[1e400] 1").is_empty());
    }

    #[test]
    fn a_deep_text_is_read_once() {
        let long = format!(r#"["{}",1e400]"#, "x".repeat(8 << 20));
        let text = format!("{}{long}{}", "[".repeat(126), "]".repeat(126));
        for _ in 0..16 {
            assert_eq!(losses(&text), ["1e400"]);
        }
    }
}
