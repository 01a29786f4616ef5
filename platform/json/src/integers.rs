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
    let is_whole = |value: f64| value.fract() == 0.0 && value.abs() <= EXACT;
    number.parse::<i64>().is_ok()
        || number.parse::<u64>().is_ok()
        || number.parse::<f64>().is_ok_and(is_whole)
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
            ("1.5", false),
            ("1e-3", false),
            ("18446744073709551616", false),
            ("1e300", false),
            ("", false),
            ("true", false),
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
