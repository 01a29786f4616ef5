//! Integers that are written as floats.

use serde_json::{Number, Value};

/// Largest integer that a double distinguishes from its neighbours (RFC 7493 section 2.2).
const EXACT: f64 = 9_007_199_254_740_991.0;

/// Converts numbers without a fraction (`2.0`, `1e2`) to integers at every depth, as JSON Schema 2020-12 counts them
/// (section 4.2.3). Numbers that a double does not represent exactly stay as they are.
pub fn integers(value: &mut Value) {
    match value {
        Value::Number(number) => {
            if let Some(integer) = integer(number) {
                *value = Value::from(integer);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(integers),
        Value::Object(members) => members.values_mut().for_each(integers),
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

fn integer(number: &Number) -> Option<i64> {
    if !number.is_f64() {
        return None;
    }
    number.as_f64().filter(|value| value.fract() == 0.0 && value.abs() <= EXACT).map(|value| value as i64)
}

/// Whether the text of a number is an integer of 64 bits, or one without a fraction that a double represents exactly.
pub fn is_integer(number: &str) -> bool {
    number.parse::<i64>().is_ok()
        || number.parse::<u64>().is_ok()
        || (is_whole(number) && number.parse::<f64>().is_ok_and(|value| value.abs() <= EXACT))
}

/// Whether a number has no fraction, by its digits: a double rounds `1e-400` to zero, and `0.99999999999999999999` to one.
fn is_whole(number: &str) -> bool {
    let (digits, exponent) = number.split_once(['e', 'E']).unwrap_or((number, "0"));
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if digits.bytes().all(|digit| matches!(digit, b'-' | b'0' | b'.')) {
        return true;
    }
    // Number of places by which the exponent must move the point; negative if zeros at the end allow the other way.
    let length = |text: &str| i64::try_from(text.len()).unwrap_or(i64::MAX);
    let places = match fraction.trim_end_matches('0') {
        "" => length(whole.trim_end_matches('0')) - length(whole),
        fraction => length(fraction),
    };
    exponent.parse::<i64>().is_ok_and(|exponent| exponent >= places)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_text_of_an_integer_is_known_however_it_is_written() {
        for (text, expected) in [
            ("0", true),
            ("-7", true),
            ("18446744073709551615", true),
            ("1.0", true),
            ("-0.0", true),
            ("1e3", true),
            ("1.50E+1", true),
            ("-12.30e2", true),
            ("1200e-2", true),
            ("0e-400", true),
            ("9007199254740991.0", true),
            ("1.5", false),
            ("1e-3", false),
            ("1200e-3", false),
            ("1.25e1", false),
            ("1e-400", false),
            ("0.99999999999999999999", false),
            ("9007199254740990.6", false),
            ("9007199254740992.0", false),
            ("1e99999999999999999999", false),
            ("1e-99999999999999999999", false),
            ("18446744073709551616", false),
            ("1e300", false),
            ("", false),
            ("true", false),
            ("{}", false),
        ] {
            assert_eq!(is_integer(text), expected, "{text}");
        }
    }

    #[test]
    fn a_number_without_a_fraction_is_an_integer() {
        let mut value =
            json!({"a": [2.0, 1e2, -0.0, 0.5, 1e300, 7, u64::MAX], "b": {"c": 9_007_199_254_740_991.0}});
        integers(&mut value);
        assert_eq!(
            value.to_string(),
            format!(r#"{{"a":[2,100,0,0.5,1e+300,7,{}],"b":{{"c":9007199254740991}}}}"#, u64::MAX)
        );
    }
}
