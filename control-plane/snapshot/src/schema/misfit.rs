//! Schema violations in words that a caller can act on: the location, and the value that is expected there.
//!
//! Refuses: to quote a value, because it may be a secret that would be copied into logs. Only member names appear.

use jsonschema::ValidationError;
use jsonschema::error::ValidationErrorKind;
use serde_json::Value;

/// Maximum number of alternatives that are described for one location.
const MAX_ALTERNATIVES: usize = 5;
/// Maximum length of a member name in a message, in characters.
const MAX_NAME: usize = 100;

/// A schema violation: the JSON Pointer of the value, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misfit {
    pub pointer: String,
    pub message: String,
}

impl Misfit {
    /// Describes an error of `value`, the whole value that was checked.
    pub(super) fn of(error: &ValidationError<'_>, value: &Value) -> Misfit {
        let pointer = error.instance_path().to_string();
        match error.kind() {
            ValidationErrorKind::AdditionalProperties { unexpected }
            | ValidationErrorKind::UnevaluatedProperties { unexpected } => {
                describe_undefined(&pointer, unexpected.first())
            }
            ValidationErrorKind::FalseSchema => describe_forbidden(error, value, pointer),
            ValidationErrorKind::Required { property } => {
                let name = property.as_str().unwrap_or_default();
                Misfit { pointer: below(&pointer, name), message: "is missing".into() }
            }
            ValidationErrorKind::PropertyNames { error } => {
                let name = error.instance().as_str().unwrap_or_default();
                Misfit { pointer: below(&pointer, name), message: "has a name that is not allowed".into() }
            }
            ValidationErrorKind::AnyOf { context } | ValidationErrorKind::OneOfNotValid { context } => {
                Misfit { message: alternatives(&pointer, context, value), pointer }
            }
            ValidationErrorKind::OneOfMultipleValid { .. } => Misfit {
                pointer,
                message: "fits more than one of its alternatives, and must fit exactly one".into(),
            },
            _ => Misfit { pointer, message: error.masked().to_string() },
        }
    }
}

/// Describes a violation of the schema `false`, which forbids one member, or all members without a schema of their
/// own.
fn describe_forbidden(error: &ValidationError<'_>, value: &Value, pointer: String) -> Misfit {
    let keyword = error.schema_path().to_string();
    let is_of_members =
        ["additionalProperties", "unevaluatedProperties"].iter().any(|word| keyword.ends_with(word));
    // The error has the first member's value but not its name.
    let members = value.pointer(&pointer).and_then(Value::as_object).filter(|_| is_of_members);
    let first = members.and_then(|members| members.keys().next().cloned());
    match first {
        Some(name) => describe_undefined(&pointer, Some(&name)),
        None if pointer.is_empty() => Misfit { pointer, message: "no value is allowed".into() },
        None => Misfit { pointer, message: "is not one of this tool's".into() },
    }
}

/// Describes a member that the schema does not define.
fn describe_undefined(pointer: &str, name: Option<&String>) -> Misfit {
    let name = name.map(String::as_str).unwrap_or_default();
    Misfit { pointer: below(pointer, name), message: "is not one of this tool's".into() }
}

/// Describes the expectations of each alternative.
fn alternatives(pointer: &str, context: &[Vec<ValidationError<'_>>], value: &Value) -> String {
    let described = context.iter().take(MAX_ALTERNATIVES).filter_map(|errors| {
        let misfit = Misfit::of(errors.first()?, value);
        Some(match misfit.pointer.strip_prefix(pointer) {
            Some("") | None => misfit.message,
            Some(place) => format!("{place} {}", misfit.message),
        })
    });
    let described: Vec<String> = described.collect();
    format!("matches none of its alternatives: {}", described.join("; or "))
}

/// Appends a member to a JSON Pointer (RFC 6901), without control characters and at most [`MAX_NAME`] long.
fn below(pointer: &str, name: &str) -> String {
    let shown: String = name.chars().filter(|c| !c.is_control()).take(MAX_NAME).collect();
    format!("{pointer}/{}", shown.replace('~', "~0").replace('/', "~1"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::schema::Schema;

    #[test]
    #[allow(clippy::too_many_lines, reason = "a table of cases")]
    fn a_misfit_names_the_member_and_what_is_wanted() {
        let nested = json!({"properties": {"a": {"properties": {"b": {}}, "additionalProperties": false}}});
        let date_or_null =
            json!({"properties": {"d": {"anyOf": [{"type": "string", "format": "date"}, {"type": "null"}]}}});
        let one = json!({"properties": {"d": {"oneOf": [{"type": "integer"}, {"type": "object", "required": ["x"]}]}}});
        for (schema, value, pointer, words) in [
            (
                json!({"type": "object", "additionalProperties": false}),
                json!({"random_string": "dummy"}),
                "/random_string",
                "is not one of this tool's",
            ),
            (
                json!({"properties": {"a": {}}, "additionalProperties": false}),
                json!({"a": 1, "b/c": 1}),
                "/b~1c",
                "is not one of this tool's",
            ),
            (nested, json!({"a": {"b": 1, "c": 1}}), "/a/c", "is not one of this tool's"),
            (
                json!({"properties": {"a": {}}, "unevaluatedProperties": false}),
                json!({"b": 1}),
                "/b",
                "is not one of this tool's",
            ),
            (json!({"properties": {"a": false}}), json!({"a": 1}), "/a", "is not one of this tool's"),
            (json!({"required": ["a"]}), json!({}), "/a", "is missing"),
            (json!({"propertyNames": {"pattern": "^a"}}), json!({"b": 1}), "/b", "name"),
            (date_or_null.clone(), json!({"d": "s3cret"}), "/d", "date"),
            (date_or_null, json!({"d": "s3cret"}), "/d", "null"),
            (one.clone(), json!({"d": {}}), "/d", "/x is missing"),
            (one, json!({"d": "s3cret"}), "/d", "integer"),
        ] {
            let misfit = Schema::compile(&schema.to_string()).unwrap().check(&value).unwrap_err();
            assert_eq!(misfit.pointer, pointer, "{schema}: {misfit:?}");
            assert!(misfit.message.contains(words), "{schema}: {misfit:?}");
            assert!(!misfit.message.contains("s3cret"), "{misfit:?}");
        }
    }
}
