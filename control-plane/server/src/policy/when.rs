//! Conditions of a binding on a call's arguments: the forms of the admin API, the store and the snapshot.
//!
//! Refuses, with its position, a condition that gateways would not accept (`asp_snapshot::policy::condition`).

use asp_proto::snapshot::condition::Test;
use asp_proto::snapshot::{Condition, Range as RangeMessage, Scalars};
use asp_snapshot::policy::condition;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Number, Value};
use utoipa::ToSchema;

/// One condition: exactly one of `equals`, `in`, `glob`, `range`, `notIn` and `notGlob`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = When)]
pub struct ArgumentCondition {
    /// JSON Pointer (RFC 6901) into the arguments, their defaults filled in
    pub pointer: String,
    /// A string, number, boolean or null. Numbers are compared by value, integers of 64 bits exactly
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "even_null")]
    #[schema(value_type = Option<Object>)]
    pub equals: Option<Value>,
    /// 1 to 64 of such values
    #[serde(default, rename = "in", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<Object>>)]
    pub any_of: Option<Vec<Value>>,
    /// Pattern for a string: `*` stands for any text, nothing else is special
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub glob: Option<String>,
    /// Range for a number
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<Range>,
    /// 1 to 64 values, of which the argument is none: it is missing, an array, an object or another value
    #[serde(default, rename = "notIn", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<Object>>)]
    pub none_of: Option<Vec<Value>>,
    /// Pattern that the argument does not fit: it is missing, no string, or another string
    #[serde(default, rename = "notGlob", skip_serializing_if = "Option::is_none")]
    pub not_glob: Option<String>,
}

/// A range of numbers. The ends are included; one of them may be left out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Range {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<f64>)]
    pub min: Option<Number>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<f64>)]
    pub max: Option<Number>,
}

/// Reads an explicit null as a value; only a missing member is none.
fn even_null<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

/// Returns the stored text; the error says which condition is wrong, and why.
pub fn to_store(list: &[ArgumentCondition]) -> Result<String, String> {
    if list.is_empty() {
        return Ok(String::new());
    }
    if list.len() > condition::MAX_CONDITIONS {
        return Err(format!("when: at most {} conditions", condition::MAX_CONDITIONS));
    }
    for (place, when) in list.iter().enumerate() {
        let compiled = message(when).and_then(|message| condition::Condition::compile(&message));
        compiled.map_err(|fault| format!("when[{place}]: {fault}"))?;
    }
    serde_json::to_string(list).map_err(|error| error.to_string())
}

/// Converts a stored text to the form for gateways.
pub fn to_gateway_form(text: &str) -> Result<Vec<Condition>, String> {
    to_admin_form(text)?.iter().map(message).collect()
}

/// Converts a stored text to the form for admins.
pub fn to_admin_form(text: &str) -> Result<Vec<ArgumentCondition>, String> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    serde_json::from_str(text).map_err(|error| error.to_string())
}

fn message(when: &ArgumentCondition) -> Result<Condition, String> {
    let ArgumentCondition { pointer, equals, any_of, glob, range, none_of, not_glob } = when;
    let json = |value: &Value| value.to_string();
    let scalars = |json: Vec<String>| Scalars { json };
    let test = match (equals, any_of, glob, range, none_of, not_glob) {
        (Some(value), None, None, None, None, None) => Test::Equals(scalars(vec![json(value)])),
        (None, Some(values), None, None, None, None) => Test::In(scalars(values.iter().map(json).collect())),
        (None, None, Some(glob), None, None, None) => Test::Glob(glob.clone()),
        (None, None, None, None, Some(values), None) => {
            Test::NotIn(scalars(values.iter().map(json).collect()))
        }
        (None, None, None, None, None, Some(glob)) => Test::NotGlob(glob.clone()),
        (None, None, None, Some(Range { min, max }), None, None) => {
            let end = |number: &Option<Number>| number.as_ref().map(Number::to_string).unwrap_or_default();
            Test::Range(RangeMessage { min: end(min), max: end(max) })
        }
        _ => return Err("exactly one of equals, in, glob, range, notIn and notGlob is needed".to_owned()),
    };
    Ok(Condition { pointer: pointer.clone(), test: Some(test) })
}

/// Converts a snapshot's condition to the form for admins.
pub fn body(condition: &Condition) -> ArgumentCondition {
    let values = |scalars: &Scalars| {
        let values = scalars.json.iter().map(|text| serde_json::from_str(text).unwrap_or_default());
        values.collect::<Vec<Value>>()
    };
    let pointer = condition.pointer.clone();
    let mut when = ArgumentCondition { pointer, ..ArgumentCondition::default() };
    match &condition.test {
        Some(Test::Equals(one)) => when.equals = values(one).into_iter().next(),
        Some(Test::In(some)) => when.any_of = Some(values(some)),
        Some(Test::Glob(glob)) => when.glob = Some(glob.clone()),
        Some(Test::NotIn(some)) => when.none_of = Some(values(some)),
        Some(Test::NotGlob(glob)) => when.not_glob = Some(glob.clone()),
        Some(Test::Range(RangeMessage { min, max })) => {
            let end = |text: &str| serde_json::from_str(text).ok();
            when.range = Some(Range { min: end(min), max: end(max) });
        }
        None => {}
    }
    when
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_written_is_stored_published_and_shown_alike() {
        let written = json!([
            {"pointer": "/amount", "range": {"min": 1000.5}},
            {"pointer": "/amount", "range": {"min": -1, "max": 9_007_199_254_740_993_u64}},
            {"pointer": "/to", "glob": "*@example.com"},
            {"pointer": "", "equals": null},
            {"pointer": "/mode", "in": ["a", 1, true, null]},
            {"pointer": "/mode", "notIn": ["b", 2]},
            {"pointer": "/to", "notGlob": "*@example.org"},
        ]);
        let list: Vec<ArgumentCondition> = serde_json::from_value(written.clone()).unwrap();
        let text = to_store(&list).unwrap();
        assert_eq!(to_admin_form(&text).unwrap(), list);
        let published = to_gateway_form(&text).unwrap();
        assert_eq!(published.iter().map(body).collect::<Vec<_>>(), list);
        assert_eq!(serde_json::to_value(&list).unwrap(), written);
        assert_eq!((to_store(&[]).as_deref(), to_gateway_form("").map(|list| list.len())), (Ok(""), Ok(0)));
    }
}
