//! Canonical JSON (RFC 8785): members sorted by their UTF-16 code units, strings with the fewest escapes, numbers as ECMAScript
//! writes doubles. Refuses repeated keys, lone surrogates and numbers beyond a double, which have no canonical form.

use std::fmt::Write;

use asp_json::{Json, losses, write_string};
use serde_json::{Number, Value};

/// The reason why a value has no canonical form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the JSON repeats a key, or has half of a surrogate pair or a number beyond a double")]
pub struct NotCanonical;

/// Returns the canonical text of a value.
pub fn canonical(json: &Json) -> Result<String, NotCanonical> {
    // A number is rounded to a double; what else the view changes would be signed as something else.
    let is_double = |lost: &&str| lost.parse::<f64>().is_ok_and(f64::is_finite);
    if !losses(json.text()).iter().all(is_double) {
        return Err(NotCanonical);
    }
    canonical_value(json.view())
}

/// Returns the canonical text of a decoded value.
pub(super) fn canonical_value(value: &Value) -> Result<String, NotCanonical> {
    let mut text = Vec::new();
    write_value(&mut text, value)?;
    String::from_utf8(text).map_err(|_| NotCanonical)
}

/// Writes everything but ASCII as escapes, as Python does.
pub(super) fn ascii(text: &str) -> String {
    let mut ascii = String::with_capacity(text.len());
    for c in text.chars() {
        if c <= '~' {
            ascii.push(c);
            continue;
        }
        for unit in c.encode_utf16(&mut [0; 2]) {
            // Writing to memory does not fail.
            let _ = write!(ascii, "\\u{unit:04x}");
        }
    }
    ascii
}

/// Writes a value. The depth of the recursion is bounded by the parser that read it.
fn write_value(text: &mut Vec<u8>, value: &Value) -> Result<(), NotCanonical> {
    match value {
        Value::Null => text.extend_from_slice(b"null"),
        Value::Bool(true) => text.extend_from_slice(b"true"),
        Value::Bool(false) => text.extend_from_slice(b"false"),
        Value::Number(number) => text.extend_from_slice(number_text(number)?.as_bytes()),
        // The escapes of serde_json are those of RFC 8785, section 3.2.2.2.
        Value::String(string) => write_string(text, string),
        Value::Array(items) => {
            text.push(b'[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    text.push(b',');
                }
                write_value(text, item)?;
            }
            text.push(b']');
        }
        Value::Object(members) => {
            let mut sorted: Vec<(&String, &Value)> = members.iter().collect();
            sorted.sort_by(|(one, _), (other, _)| one.encode_utf16().cmp(other.encode_utf16()));
            text.push(b'{');
            for (at, (name, value)) in sorted.into_iter().enumerate() {
                if at > 0 {
                    text.push(b',');
                }
                write_string(text, name);
                text.push(b':');
                write_value(text, value)?;
            }
            text.push(b'}');
        }
    }
    Ok(())
}

fn number_text(number: &Number) -> Result<String, NotCanonical> {
    number.as_f64().filter(|double| double.is_finite()).map(double_text).ok_or(NotCanonical)
}

/// Largest power of ten that ECMAScript writes without an exponent, and the smallest.
const PLAIN: std::ops::RangeInclusive<i32> = -5..=21;

/// Writes a double as ECMAScript does (ECMA-262, Number::toString).
fn double_text(double: f64) -> String {
    if double == 0.0 {
        return "0".to_owned();
    }
    // Rust's shortest digits that read back as the same double are ECMAScript's.
    let scientific = format!("{:e}", double.abs());
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let digits: String = mantissa.chars().filter(|c| *c != '.').collect();
    // The value is 0.DIGITS × 10^point.
    let point = exponent.parse::<i32>().unwrap_or_default() + 1;
    let mut text = if double < 0.0 { "-".to_owned() } else { String::new() };
    let count = i32::try_from(digits.len()).unwrap_or_default();
    let zeros = |count: i32| "0".repeat(usize::try_from(count).unwrap_or_default());
    if !PLAIN.contains(&point) {
        let (first, rest) = digits.split_at_checked(1).unwrap_or((&digits, ""));
        let dot = if rest.is_empty() { "" } else { "." };
        // Writing to memory does not fail.
        let _ = write!(text, "{first}{dot}{rest}e{:+}", point - 1);
    } else if point <= 0 {
        text += &format!("0.{}{digits}", zeros(-point));
    } else if count <= point {
        text += &format!("{digits}{}", zeros(point - count));
    } else {
        let at = usize::try_from(point).unwrap_or_default();
        let (whole, fraction) = digits.split_at_checked(at).unwrap_or((&digits, ""));
        text += &format!("{whole}.{fraction}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<String, NotCanonical> {
        canonical(&Json::parse(text.as_bytes()).unwrap())
    }

    #[test]
    fn doubles_are_written_as_in_appendix_b_of_rfc_8785() {
        for (bits, text) in [
            (0x0000_0000_0000_0000, "0"),
            (0x8000_0000_0000_0000, "0"),
            (0x0000_0000_0000_0001, "5e-324"),
            (0x8000_0000_0000_0001, "-5e-324"),
            (0x7fef_ffff_ffff_ffff, "1.7976931348623157e+308"),
            (0xffef_ffff_ffff_ffff, "-1.7976931348623157e+308"),
            (0x4340_0000_0000_0000, "9007199254740992"),
            (0xc340_0000_0000_0000, "-9007199254740992"),
            (0x4430_0000_0000_0000, "295147905179352830000"),
            (0x44b5_2d02_c7e1_4af5, "9.999999999999997e+22"),
            (0x44b5_2d02_c7e1_4af6, "1e+23"),
            (0x44b5_2d02_c7e1_4af7, "1.0000000000000001e+23"),
            (0x444b_1ae4_d6e2_ef4e, "999999999999999700000"),
            (0x444b_1ae4_d6e2_ef4f, "999999999999999900000"),
            (0x444b_1ae4_d6e2_ef50, "1e+21"),
            (0x3eb0_c6f7_a0b5_ed8c, "9.999999999999997e-7"),
            (0x3eb0_c6f7_a0b5_ed8d, "0.000001"),
            (0x41b3_de43_5555_5553, "333333333.3333332"),
            (0x41b3_de43_5555_5554, "333333333.33333325"),
            (0x41b3_de43_5555_5555, "333333333.3333333"),
        ] {
            assert_eq!(double_text(f64::from_bits(bits)), text, "{bits:x}");
        }
        for (double, text) in [
            (1.0, "1"),
            (-1.5, "-1.5"),
            (1e-6, "0.000001"),
            (1.2e-7, "1.2e-7"),
            (123.456, "123.456"),
            (1e20, "100000000000000000000"),
        ] {
            assert_eq!(double_text(double), text);
        }
    }

    #[test]
    fn the_example_of_rfc_8785_has_its_canonical_form() {
        let text = r#"{
            "numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
            "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
            "literals": [null, true, false]
        }"#;
        let expected = concat!(
            r#"{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],"#,
            r#""string":"€$\u000f\nA'B\"\\\\\"/"}"#
        );
        assert_eq!(of(text).as_deref(), Ok(expected));
    }

    #[test]
    fn members_are_sorted_by_utf_16() {
        let text = r#"{"\u20ac":1,"\r":2,"\ufb33":3,"1":4,"\ud83d\ude00":5,"\u0080":6,"\u00f6":7}"#;
        let expected = "{\"\\r\":2,\"1\":4,\"\u{80}\":6,\"ö\":7,\"€\":1,\"😀\":5,\"\u{fb33}\":3}";
        assert_eq!(of(text).as_deref(), Ok(expected));
    }

    #[test]
    fn what_is_ambiguous_has_no_canonical_form() {
        for text in
            [r#"{"a":1,"a":2}"#, r#"[{"b":{"\u0061":1,"a":1}}]"#, r#""\ud800""#, r#"{"\udc00":1}"#, "[1e400]"]
        {
            assert_eq!(of(text), Err(NotCanonical), "{text}");
        }
        assert_eq!(of("12345678901234567890").as_deref(), Ok("12345678901234567000"));
    }
}
