//! Conditions of a binding on a call's arguments (`when`).
//!
//! Refuses: conditions beyond their bounds, and numbers that not all JSON readers read alike. Keeps true: a condition
//! costs one walk along its pointer and one pass over the text it finds; missing values, arrays and objects never
//! fulfil a condition, except one that names what a value must not be. Numbers are compared by value: 64-bit integers exactly, also beyond 2^53, all others as
//! doubles; 1 and 1.0 are equal. Texts are compared byte by byte.

use std::cmp::Ordering;

use asp_proto::snapshot::condition::Test as Message;
use asp_proto::snapshot::{Condition as ConditionMessage, Range, Scalars};
use serde_json::{Number, Value};

/// Maximum number of conditions of one binding.
pub const MAX_CONDITIONS: usize = 8;
/// Maximum length of a pointer in bytes.
pub const MAX_POINTER: usize = 256;
/// Maximum number of values of one `in`.
pub const MAX_VALUES: usize = 64;
/// Maximum length of one value, as JSON text, and of a glob, in bytes.
pub const MAX_TEXT: usize = 512;
/// Magnitude beyond which doubles no longer represent every integer (2^53).
const EXACT_DOUBLE: f64 = 9_007_199_254_740_992.0;

/// One condition, compiled.
#[derive(Clone, Debug)]
pub struct Condition {
    pointer: String,
    test: Test,
}

#[derive(Clone, Debug)]
enum Test {
    /// Equality with one of these values.
    In(Vec<Value>),
    /// No value, or none of these.
    NotIn(Vec<Value>),
    Glob(Glob),
    /// No text that fits.
    NotGlob(Glob),
    Range {
        min: Option<Number>,
        max: Option<Number>,
    },
}

impl Condition {
    /// Compiles a snapshot's condition. The error tells what is wrong with it.
    pub fn compile(message: &ConditionMessage) -> Result<Condition, String> {
        let pointer = message.pointer.clone();
        if pointer.len() > MAX_POINTER {
            return Err(format!("pointer: longer than {MAX_POINTER} bytes"));
        }
        if !is_pointer(&pointer) {
            return Err(
                "pointer: not a JSON Pointer (RFC 6901): empty, or `/` before each name, `~` only in `~0` and `~1`"
                    .into(),
            );
        }
        let test = match &message.test {
            Some(Message::Equals(one)) if one.json.len() == 1 => Test::In(scalars("equals", one)?),
            Some(Message::Equals(_)) => return Err("equals: not one value".into()),
            Some(Message::In(some)) => Test::In(several("in", some)?),
            Some(Message::NotIn(some)) => Test::NotIn(several("notIn", some)?),
            Some(Message::Glob(glob)) => Test::Glob(glob_of("glob", glob)?),
            Some(Message::NotGlob(glob)) => Test::NotGlob(glob_of("notGlob", glob)?),
            Some(Message::Range(range)) => range_of(range)?,
            None => return Err("one of equals, in, glob, range, notIn and notGlob is needed".into()),
        };
        Ok(Condition { pointer, test })
    }

    /// Returns the JSON Pointer of the argument.
    pub fn pointer(&self) -> &str {
        &self.pointer
    }

    /// Whether `arguments` fulfil the condition.
    pub fn holds(&self, arguments: &Value) -> bool {
        let found = arguments.pointer(&self.pointer);
        match &self.test {
            Test::NotIn(values) => {
                return !found.is_some_and(|found| values.iter().any(|value| same(value, found)));
            }
            Test::NotGlob(glob) => {
                return !found.and_then(Value::as_str).is_some_and(|text| glob.matches(text));
            }
            Test::In(_) | Test::Glob(_) | Test::Range { .. } => {}
        }
        let Some(found) = found else { return false };
        match (&self.test, found) {
            (_, Value::Array(_) | Value::Object(_)) => false,
            (Test::In(values), found) => values.iter().any(|value| same(value, found)),
            (Test::Glob(glob), Value::String(text)) => glob.matches(text),
            (Test::Range { min, max }, Value::Number(number)) => {
                let is_above = |min: &Number| compare(number, min).is_ge();
                let is_below = |max: &Number| compare(number, max).is_le();
                min.as_ref().is_none_or(is_above) && max.as_ref().is_none_or(is_below)
            }
            _ => false,
        }
    }
}

/// Whether a text is a JSON Pointer (RFC 6901, section 3).
fn is_pointer(text: &str) -> bool {
    let escapes = |token: &str| token.split('~').skip(1).all(|rest| rest.starts_with(['0', '1']));
    text.is_empty() || (text.starts_with('/') && escapes(text))
}

/// Reads the values of a test that has 1 to [`MAX_VALUES`].
fn several(place: &str, list: &Scalars) -> Result<Vec<Value>, String> {
    match list.json.len() {
        0 => Err(format!("{place}: no values")),
        1..=MAX_VALUES => scalars(place, list),
        _ => Err(format!("{place}: more than {MAX_VALUES} values")),
    }
}

fn glob_of(place: &str, glob: &str) -> Result<Glob, String> {
    match glob.len() <= MAX_TEXT {
        true => Ok(Glob::read(glob)),
        false => Err(format!("{place}: longer than {MAX_TEXT} bytes")),
    }
}

fn scalars(place: &str, list: &Scalars) -> Result<Vec<Value>, String> {
    let scalar = |text: &String| {
        if text.len() > MAX_TEXT {
            return Err(format!("{place}: a value is longer than {MAX_TEXT} bytes"));
        }
        match serde_json::from_str(text) {
            Ok(Value::Array(_) | Value::Object(_)) => {
                Err(format!("{place}: arrays and objects are not compared"))
            }
            Ok(Value::Number(number)) => exact(place, number).map(Value::Number),
            Ok(value) => Ok(value),
            Err(_) => Err(format!("{place}: a value is not JSON")),
        }
    };
    list.json.iter().map(scalar).collect()
}

fn range_of(range: &Range) -> Result<Test, String> {
    let end = |text: &str| match text {
        "" => Ok(None),
        text if text.len() > MAX_TEXT => Err(format!("range: a number is longer than {MAX_TEXT} bytes")),
        text => match serde_json::from_str(text) {
            Ok(number) => exact("range", number).map(Some),
            Err(_) => Err("range: min and max are numbers".to_owned()),
        },
    };
    let (min, max) = (end(&range.min)?, end(&range.max)?);
    match (&min, &max) {
        (None, None) => Err("range: neither min nor max".into()),
        (Some(min), Some(max)) if compare(min, max).is_gt() => Err("range: min is above max".into()),
        _ => Ok(Test::Range { min, max }),
    }
}

/// Rejects a number that some JSON readers would round.
fn exact(place: &str, number: Number) -> Result<Number, String> {
    let is_exact = integer(&number).is_some() || number.as_f64().is_some_and(|n| n.abs() < EXACT_DOUBLE);
    if is_exact {
        Ok(number)
    } else {
        Err(format!("{place}: a number beyond 64 bits, or beyond 2^53 with a fraction or an exponent"))
    }
}

fn integer(number: &Number) -> Option<i128> {
    number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from))
}

fn same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => compare(one, other).is_eq(),
        (one, other) => one == other,
    }
}

/// Compares numbers by value.
fn compare(one: &Number, other: &Number) -> Ordering {
    match (integer(one), integer(other)) {
        (Some(one), Some(other)) => one.cmp(&other),
        (Some(one), None) => integer_to_double(one, double(other)),
        (None, Some(other)) => integer_to_double(other, double(one)).reverse(),
        (None, None) => double(one).total_cmp(&double(other)),
    }
}

/// Returns a number as a double, with `-0.0` as 0. JSON has no NaN and no infinity.
fn double(number: &Number) -> f64 {
    number.as_f64().unwrap_or_default() + 0.0
}

/// Compares without rounding the integer, which has at most 65 bits.
fn integer_to_double(integer: i128, double: f64) -> Ordering {
    // The cast saturates far beyond all 65-bit integers.
    let whole = double.trunc() as i128;
    integer.cmp(&whole).then_with(|| 0.0_f64.total_cmp(&(double.fract() + 0.0)))
}

/// A text in which `*` stands for any text, including the empty one.
#[derive(Clone, Debug)]
struct Glob {
    first: String,
    /// Texts between two stars.
    between: Vec<String>,
    /// Text after the last star; `None` if there is no star.
    last: Option<String>,
}

impl Glob {
    fn read(text: &str) -> Glob {
        let mut pieces: Vec<String> = text.split('*').map(str::to_owned).collect();
        let last = if pieces.len() > 1 { pieces.pop() } else { None };
        let first = pieces.remove(0);
        pieces.retain(|piece| !piece.is_empty());
        Glob { first, between: pieces, last }
    }

    /// Matches in one pass. Each piece takes its first position after the piece before, which leaves the most text to
    /// the rest.
    fn matches(&self, text: &str) -> bool {
        let Some(last) = &self.last else { return text == self.first };
        let Some(mut rest) =
            text.strip_prefix(self.first.as_str()).and_then(|rest| rest.strip_suffix(last.as_str()))
        else {
            return false;
        };
        for piece in &self.between {
            let Some((_, after)) = rest.split_once(piece.as_str()) else { return false };
            rest = after;
        }
        true
    }
}

#[cfg(test)]
mod tests;
