//! An amount of progress: a number that is passed on as it was written (I-14).
//!
//! Keeps true: its text is bounded; integers are compared by their digits, other numbers as doubles. Uses nothing else
//! of this crate, so that it can be fuzzed alone.

use std::borrow::Cow;
use std::cmp::Ordering;

use asp_json::Json;
use serde::de::{Deserialize, Deserializer, Error};
use serde::ser::{Serialize, Serializer};
use serde_json::Value;

/// Maximum length of a number that is kept as it was written, in bytes; a longer one is replaced by the nearest double.
const MAX_WRITTEN: usize = 64;
/// Bound below which whole numbers are written without a fraction: a double represents each of them exactly.
const WHOLE: f64 = 9e15;

/// A number as it was written, with the nearest double.
#[derive(Clone, Debug, PartialEq)]
pub struct Amount {
    value: f64,
    /// Text of the number; `None` for one made here.
    written: Option<Json>,
}

impl Amount {
    /// Reads a number; `None` for anything else.
    pub fn of(json: &Json) -> Option<Amount> {
        let value = json.as_f64()?;
        let written = (json.text().len() <= MAX_WRITTEN).then(|| json.clone());
        Some(Amount { value, written })
    }

    /// Returns the nearest double.
    pub const fn value(&self) -> f64 {
        self.value
    }

    /// Whether it is higher than another amount.
    pub fn is_above(&self, other: &Amount) -> bool {
        match (self.integer(), other.integer()) {
            (Some(own), Some(other)) => compare(&own, &other).is_gt(),
            _ => self.value > other.value,
        }
    }

    /// Returns the digits of an integer, with its sign; `None` for a number in any other notation.
    fn integer(&self) -> Option<Cow<'_, str>> {
        let text: Cow<'_, str> = match &self.written {
            Some(written) => written.text().into(),
            None if self.value.fract() == 0.0 => format!("{:.0}", self.value).into(),
            None => return None,
        };
        let digits = text.strip_prefix('-').unwrap_or(&text);
        let is_integer = text != "-0" && digits.bytes().all(|byte| byte.is_ascii_digit());
        is_integer.then_some(text)
    }

    /// Returns the number as JSON; null for a number that JSON cannot represent.
    pub fn as_json(&self) -> Json {
        self.written.clone().unwrap_or_else(|| {
            let is_whole = self.value.fract() == 0.0 && self.value.abs() < WHOLE;
            Json::from(if is_whole { Value::from(self.value as i64) } else { Value::from(self.value) })
        })
    }
}

/// Compares integers by their digits: JSON has no leading zeros.
fn compare(own: &str, other: &str) -> Ordering {
    let size = |digits: &str| digits.len();
    match (own.strip_prefix('-'), other.strip_prefix('-')) {
        (None, None) => size(own).cmp(&size(other)).then_with(|| own.cmp(other)),
        (Some(own), Some(other)) => size(other).cmp(&size(own)).then_with(|| other.cmp(own)),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
    }
}

impl From<f64> for Amount {
    fn from(value: f64) -> Amount {
        Amount { value, written: None }
    }
}

impl Serialize for Amount {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.as_json().raw().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Amount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Amount, D::Error> {
        Amount::of(&Json::deserialize(deserializer)?).ok_or_else(|| D::Error::custom("an amount is a number"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amount(text: &str) -> Option<Amount> {
        Amount::of(&Json::parse(text.as_bytes()).unwrap())
    }

    #[test]
    fn a_number_is_told_as_it_was_written_and_known_as_a_double() {
        for (text, value) in [("1.50", 1.5), ("1e2", 100.0), ("9007199254740993", 9_007_199_254_740_992.0)] {
            let read = amount(text).unwrap();
            assert_eq!((read.as_json().text(), read.value()), (text, value));
            let stored = serde_json::to_string(&read).unwrap();
            assert_eq!(stored, text);
            assert_eq!(serde_json::from_str::<Amount>(&stored).unwrap().as_json().text(), text);
        }
        let long = format!("0.5{}", "0".repeat(MAX_WRITTEN));
        assert_eq!(amount(&long).unwrap().as_json().text(), "0.5");
        for other in [r#""1""#, "null", "[1]"] {
            assert_eq!(amount(other), None, "{other}");
        }
    }

    #[test]
    fn integers_rise_by_their_digits_and_other_numbers_as_doubles() {
        for (low, high) in [
            ("9007199254740992", "9007199254740993"),
            ("340282366920938463463374607431768211455", "340282366920938463463374607431768211456"),
            ("-9007199254740993", "-9007199254740992"),
            ("-1", "0"),
            ("9", "10"),
            ("-10", "-9"),
            ("1", "1.5"),
            ("0.5", "1"),
            ("99", "1e2"),
        ] {
            let (low, high) = (amount(low).unwrap(), amount(high).unwrap());
            assert!(high.is_above(&low) && !low.is_above(&high), "{low:?} {high:?}");
            assert!(!low.is_above(&low) && !high.is_above(&high), "{low:?} {high:?}");
        }
        let made = Amount::from(9_007_199_254_740_992.0);
        assert!(amount("9007199254740993").unwrap().is_above(&made));
        assert!(!amount("9007199254740992").unwrap().is_above(&made));
        assert!(!amount("0").unwrap().is_above(&Amount::from(-0.0)), "zero is zero");
        assert!(!Amount::from(f64::NAN).is_above(&made) && !made.is_above(&Amount::from(f64::NAN)));
    }

    #[test]
    fn a_double_is_written_as_short_as_it_is() {
        for (value, text) in [(3.0, "3"), (0.5, "0.5"), (-2.0, "-2"), (1e300, "1e+300"), (f64::NAN, "null")] {
            assert_eq!(Amount::from(value).as_json().text(), text);
        }
    }
}
