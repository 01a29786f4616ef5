//! Expectations of JSON: matchers by path.

use anyhow::{Result, ensure};
use serde_json::{Map, Value};

use super::table::Expectation;

/// States of a task with their order: before work, at work, ended.
const STATES: [(&str, u8); 8] = [
    ("TASK_STATE_SUBMITTED", 0),
    ("TASK_STATE_WORKING", 1),
    ("TASK_STATE_INPUT_REQUIRED", 1),
    ("TASK_STATE_AUTH_REQUIRED", 1),
    ("TASK_STATE_COMPLETED", 2),
    ("TASK_STATE_FAILED", 2),
    ("TASK_STATE_CANCELED", 2),
    ("TASK_STATE_REJECTED", 2),
];

/// Checks every matcher against what is at its path.
pub(super) fn check(value: &Value, expected: &Expectation) -> Result<()> {
    for (path, matcher) in expected {
        ensure!(fits_at(value, path, matcher), "{path:?} is not {matcher}: {value}");
    }
    Ok(())
}

/// Whether every matcher fits.
pub(super) fn fits(value: &Value, expected: &Expectation) -> bool {
    expected.iter().all(|(path, matcher)| fits_at(value, path, matcher))
}

/// Returns what is at a path without `*`.
pub(super) fn find<'v>(value: &'v Value, path: &str) -> Option<&'v Value> {
    path.split('|').find_map(|path| {
        path.split('.').filter(|name| !name.is_empty()).try_fold(value, |value, name| member(value, name))
    })
}

fn member<'v>(value: &'v Value, name: &str) -> Option<&'v Value> {
    match value {
        Value::Array(items) => items.get(name.parse::<usize>().ok()?),
        _ => value.get(name),
    }
}

fn fits_at(value: &Value, path: &str, matcher: &Value) -> bool {
    let Some((list, rest)) = path.split_once(".*") else {
        return is_match(find(value, path), matcher);
    };
    let items = find(value, list).and_then(Value::as_array);
    let rest = rest.trim_start_matches('.');
    items.is_some_and(|items| items.iter().any(|item| fits_at(item, rest, matcher)))
}

fn is_match(found: Option<&Value>, matcher: &Value) -> bool {
    let Some((name, wanted)) = matcher.as_object().and_then(single) else {
        return found == Some(matcher);
    };
    let Some(found) = found else { return name == "absent" };
    let text = || found.as_str().map_or_else(|| found.to_string(), str::to_owned);
    let wanted_text = wanted.as_str().unwrap_or_default();
    let items = found.as_array();
    let count = || items.map(Vec::len).and_then(|count| u64::try_from(count).ok());
    let number = wanted.as_u64();
    match name {
        "absent" => false,
        "filled" => found.as_str().is_some_and(|text| !text.is_empty()),
        "is" => kind(found) == wanted_text,
        "in" => wanted.as_array().is_some_and(|values| values.contains(found)),
        "not" => found != wanted,
        "starts" => text().starts_with(wanted_text),
        "contains" => text().contains(wanted_text),
        "lacks" => !text().contains(wanted_text),
        "utc" => found.as_str().is_some_and(is_utc),
        "camel" => is_camel(found),
        "order" => items.is_some_and(|items| has_order(items, wanted)),
        "min" => count() >= number,
        "max" => count().is_some() && count() <= number,
        "count" => count().is_some() && count() == number,
        "each" => {
            let expected: Option<Expectation> = serde_json::from_value(wanted.clone()).ok();
            let all = |expected: Expectation| {
                items.is_some_and(|items| !items.is_empty() && items.iter().all(|item| fits(item, &expected)))
            };
            expected.is_some_and(all)
        }
        _ => false,
    }
}

/// Returns the one member of an object that has no other.
fn single(object: &Map<String, Value>) -> Option<(&str, &Value)> {
    let mut members = object.iter();
    let (name, value) = members.next()?;
    members.next().is_none().then_some((name.as_str(), value))
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Whether a text is a timestamp in UTC (RFC 3339): `2026-01-02T03:04:05`, a fraction or none, `Z`.
fn is_utc(text: &str) -> bool {
    let Some((seconds, rest)) = text.split_at_checked(19) else { return false };
    let is_shaped = seconds.bytes().zip("0000-00-00T00:00:00".bytes()).all(|(found, shape)| match shape {
        b'0' => found.is_ascii_digit(),
        mark => found == mark,
    });
    let fraction = rest.strip_suffix('Z').map(|rest| rest.strip_prefix('.').unwrap_or(rest));
    is_shaped && fraction.is_some_and(|digits| digits.bytes().all(|digit| digit.is_ascii_digit()))
}

/// Whether no member's name has an underscore; data of users has names of its own.
fn is_camel(value: &Value) -> bool {
    match value {
        Value::Object(members) => members.iter().all(|(name, value)| {
            !name.contains('_') && (name == "data" || name == "metadata" || is_camel(value))
        }),
        Value::Array(items) => items.iter().all(is_camel),
        _ => true,
    }
}

/// Whether the texts of messages have these among them, in this order.
fn has_order(messages: &[Value], wanted: &Value) -> bool {
    let parts = messages.iter().filter_map(|message| message.get("parts")?.as_array()).flatten();
    let mut texts = parts.filter_map(|part| part.get("text")?.as_str());
    let wanted = wanted.as_array().map(Vec::as_slice).unwrap_or_default();
    wanted.iter().filter_map(Value::as_str).all(|text| texts.any(|found| found == text))
}

/// Checks that the states of events are A2A's, and that none comes before an earlier one.
pub(super) fn check_states(events: &[Value]) -> Result<()> {
    let mut last = 0;
    for event in events {
        let state = find(event, "statusUpdate.status.state|task.status.state").and_then(Value::as_str);
        let Some(state) = state else { continue };
        let order = STATES.iter().find(|(name, _)| *name == state).map(|(_, order)| *order);
        ensure!(order.is_some_and(|order| order >= last), "{state} is unknown or too late: {events:?}");
        last = order.unwrap_or(last);
    }
    ensure!(last == 2, "no last state: {events:?}");
    Ok(())
}
