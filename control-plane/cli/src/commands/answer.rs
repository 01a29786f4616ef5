//! Answers of the admin API: their members, and how they are printed.

use asp_command::print;
use serde_json::Value;

/// Returns a member's text; empty if it has none.
pub(super) fn text<'a>(of: &'a Value, member: &str) -> &'a str {
    of.get(member).and_then(Value::as_str).unwrap_or_default()
}

/// Returns a member's number; 0 if it has none.
pub(super) fn number(of: &Value, member: &str) -> u64 {
    of.get(member).and_then(Value::as_u64).unwrap_or_default()
}

/// Whether a member is true.
pub(super) fn is(of: &Value, member: &str) -> bool {
    of.get(member) == Some(&Value::Bool(true))
}

/// Returns the elements of a member; none if it is no list.
pub(super) fn list<'a>(of: &'a Value, member: &str) -> std::slice::Iter<'a, Value> {
    of.get(member).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default().iter()
}

/// Returns the texts in a member that is a list.
pub(super) fn texts<'a>(of: &'a Value, member: &str) -> Vec<&'a str> {
    list(of, member).filter_map(Value::as_str).collect()
}

/// Prints an answer as JSON or in words.
pub(super) fn show(answer: &Value, as_json: bool, words: &str) {
    match as_json {
        true => print::json(answer),
        false => print::line(words),
    }
}

/// Prints a list as JSON or with a line for each element.
pub(super) fn rows(list: &Value, as_json: bool, row: impl Fn(&Value) -> String) {
    if as_json {
        return print::json(list);
    }
    list.as_array().into_iter().flatten().for_each(|one| print::line(&row(one)));
}
