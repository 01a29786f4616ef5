//! The parts of a text that its view does not hold.

use std::borrow::Cow;

use crate::cursor::decode::{escape_length, is_lone_surrogate};
use crate::cursor::{Cursor, Syntax, Value};
use crate::json::{elements, members};

/// The parts of a text that its view holds otherwise, as they are written and in their order: numbers that are rounded,
/// strings with a lone surrogate, objects with equal keys. None for most texts.
pub fn losses(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut open = vec![text];
    while let Some(text) = open.pop() {
        if let Some(members) = members(text) {
            if has_equal_keys(&members) {
                found.push(text);
                continue;
            }
            open.extend(members.into_iter().rev().map(|(_, text)| text));
        } else if let Some(elements) = elements(text) {
            open.extend(elements.into_iter().rev());
        } else if is_lost(text) {
            found.push(text);
        }
    }
    found
}

fn has_equal_keys(members: &[(Cow<'_, str>, &str)]) -> bool {
    let mut keys: Vec<&str> = members.iter().map(|(key, _)| key.as_ref()).collect();
    keys.sort_unstable();
    // A key with a lone surrogate is another key in the view.
    keys.windows(2).any(|pair| matches!(pair, [one, next] if one == next))
        || keys.iter().any(|key| key.contains('\u{fffd}'))
}

fn is_lost(text: &str) -> bool {
    let scalar = Cursor::new(text.as_bytes()).and_then(|mut cursor| cursor.value());
    match scalar {
        Ok(Value::Number(number)) => is_rounded(number),
        Ok(Value::String(string)) => has_lone_surrogate(string.literal),
        Ok(_) | Err(Syntax) => false,
    }
}

fn is_rounded(number: &str) -> bool {
    if number.parse::<i64>().is_ok() || number.parse::<u64>().is_ok() {
        return false;
    }
    let mantissa = number.split(['e', 'E']).next().unwrap_or_default();
    let digits = mantissa.trim_start_matches(['-', '0', '.']).bytes().filter(u8::is_ascii_digit).count();
    // Every decimal of so many digits comes back from a double (IEEE 754 binary64), unless it is beyond one.
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
        ] {
            assert_eq!(losses(text), [lost], "{text}");
        }
    }
}
