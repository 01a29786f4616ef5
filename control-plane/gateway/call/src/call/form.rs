//! MCP's restricted form schema: which forms may be asked, and whether an answer fills one.
//!
//! Owns: the subset of JSON Schema that elicitation allows (MCP 2025-11-25 and 2026-07-28,
//! `PrimitiveSchemaDefinition`): a flat object of strings, numbers, booleans and choices. Refuses: everything else, so
//! that a form from a plugin is cheap to check.

use std::collections::HashSet;

use asp_json::{Json, Members};
use serde_json::{Map, Value};

// With its path, because a fuzz target compiles this file alone.
#[path = "form/plain.rs"]
mod plain;

pub use plain::plain;

/// Maximum number of fields of a form.
const MAX_FIELDS: usize = 64;

/// Reason why a form cannot be asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormError {
    #[error("the form is not a flat object with properties")]
    Shape,
    #[error("the form has more than {MAX_FIELDS} fields")]
    TooMany,
    #[error("the form is too large once its references are resolved")]
    TooLarge,
    #[error("field {0} has a type that forms do not support")]
    Type(String),
}

/// Checks that `schema` is a form that clients can show.
pub fn check(schema: &Value) -> Result<(), FormError> {
    check_fields(schema, |items| choices(items).is_some())
}

/// Checks a form of an upstream, which checks the answer itself. SDKs also ask for lists of free texts.
pub fn check_relayed(schema: &Value) -> Result<(), FormError> {
    check_fields(schema, |items| choices(items).is_some() || text(items, "type") == Some("string"))
}

fn check_fields(schema: &Value, are_items: impl Fn(&Value) -> bool) -> Result<(), FormError> {
    let properties = schema.get("properties").and_then(Value::as_object).ok_or(FormError::Shape)?;
    if schema.get("type").and_then(Value::as_str) != Some("object") {
        return Err(FormError::Shape);
    }
    if properties.len() > MAX_FIELDS {
        return Err(FormError::TooMany);
    }
    for (name, field) in properties {
        let known = match text(field, "type") {
            Some("string" | "number" | "integer" | "boolean") => true,
            Some("array") => field.get("items").is_some_and(&are_items),
            _ => false,
        };
        if !known {
            return Err(FormError::Type(name.clone()));
        }
    }
    Ok(())
}

/// Returns the asked fields of `content` if they fill the form; `None` if one is missing or does not fit.
pub fn filled(schema: &Value, content: &Json) -> Option<Json> {
    let empty = Map::new();
    let properties = schema.get("properties").and_then(Value::as_object).unwrap_or(&empty);
    if !(content.is_object() || content.is_null()) {
        return None;
    }
    let content = Members::of(content);
    let required = required(schema);
    let answered: HashSet<&str> = content.iter().map(|(name, _)| name).collect();
    if !required.is_subset(&answered) {
        return None;
    }
    let mut kept = Members::default();
    for (name, value) in content.iter() {
        if is_left_empty(&required, name, value) {
            continue;
        }
        // Fields that were not asked for are dropped.
        let Some(field) = properties.get(name) else { continue };
        if !fits(field, value) {
            return None;
        }
        kept.insert(name, value.clone());
    }
    Some(kept.to_json())
}

/// Returns the answer for an asker that checks it itself: unchanged, except that fields which a client wrote as null
/// because its user left them empty are removed.
pub fn without_empty_fields(schema: &Value, content: &Json) -> Json {
    if !(content.is_object() || content.is_null()) {
        return content.clone();
    }
    let members = Members::of(content);
    let required = required(schema);
    let given = members.iter().filter(|(name, value)| !is_left_empty(&required, name, value));
    given.map(|(name, value)| (name, value.clone())).collect::<Members>().to_json()
}

/// Names of the required fields. A set, because a form may list any number of them, and an answer may leave any number
/// empty.
fn required(schema: &Value) -> HashSet<&str> {
    let names = schema.get("required").and_then(Value::as_array);
    names.into_iter().flatten().filter_map(Value::as_str).collect()
}

fn is_left_empty(required: &HashSet<&str>, name: &str, value: &Value) -> bool {
    value.is_null() && !required.contains(name)
}

fn fits(field: &Value, value: &Value) -> bool {
    let bound = |name: &str| field.get(name).and_then(Value::as_f64);
    let within = |size: f64, least: &str, most: &str| {
        bound(least).is_none_or(|least| size >= least) && bound(most).is_none_or(|most| size <= most)
    };
    match (text(field, "type"), value) {
        (Some("string"), Value::String(given)) => {
            choices(field).is_none_or(|choices| choices.contains(&given.as_str()))
                && within(given.chars().count() as f64, "minLength", "maxLength")
        }
        (Some("boolean"), Value::Bool(_)) => true,
        (Some("number"), Value::Number(given)) => {
            given.as_f64().is_some_and(|given| within(given, "minimum", "maximum"))
        }
        (Some("integer"), Value::Number(given)) => {
            given.as_f64().is_some_and(|given| given.fract() == 0.0 && within(given, "minimum", "maximum"))
        }
        (Some("array"), Value::Array(given)) => {
            let choices = field.get("items").and_then(choices).unwrap_or_default();
            within(given.len() as f64, "minItems", "maxItems")
                && given.iter().all(|item| item.as_str().is_some_and(|item| choices.contains(&item)))
        }
        _ => false,
    }
}

/// Returns the values that a field may have: `enum`, or the constants of `oneOf` or `anyOf`.
fn choices(field: &Value) -> Option<Vec<&str>> {
    if let Some(values) = field.get("enum").and_then(Value::as_array) {
        return Some(values.iter().filter_map(Value::as_str).collect());
    }
    let titled = field.get("oneOf").or_else(|| field.get("anyOf")).and_then(Value::as_array)?;
    Some(titled.iter().filter_map(|choice| text(choice, "const")).collect())
}

fn text<'a>(value: &'a Value, name: &str) -> Option<&'a str> {
    value.get(name)?.as_str()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn form() -> Value {
        json!({"type": "object", "required": ["id"], "properties": {
            "id": {"type": "string", "maxLength": 3},
            "n": {"type": "integer", "minimum": 1},
            "share": {"type": "number", "maximum": 1.0},
            "yes": {"type": "boolean"},
            "colour": {"type": "string", "enum": ["red", "blue"]},
            "size": {"type": "string", "oneOf": [{"const": "s", "title": "Small"}]},
            "tags": {"type": "array", "maxItems": 1, "items": {"type": "string", "enum": ["a", "b"]}}}})
    }

    fn filled(schema: &Value, content: Value) -> Option<Value> {
        super::filled(schema, &content.into()).map(|filled| filled.view().clone())
    }

    #[test]
    fn an_answer_keeps_its_numbers_and_texts_as_they_were_written() {
        let schema =
            json!({"type": "object", "properties": {"n": {"type": "integer"}, "s": {"type": "string"}}});
        let written = r#"{"n":340282366920938463463374607431768211455,"s":"\ud83d"}"#;
        let content = Json::parse(written.as_bytes()).unwrap();
        assert_eq!(super::filled(&schema, &content).unwrap().text(), written);
        assert_eq!(super::without_empty_fields(&schema, &content).text(), written);
    }

    #[test]
    fn an_answer_keeps_what_was_asked_and_nothing_else() {
        let full = json!({"id": "abc", "n": 2, "share": 0.5, "yes": true, "colour": "red", "size": "s", "tags": ["b"]});
        assert_eq!(filled(&form(), full.clone()), Some(full));
        assert_eq!(filled(&form(), json!({"id": "a", "other": 1})), Some(json!({"id": "a"})));
        assert_eq!(filled(&form(), json!({"id": "a", "n": null})), Some(json!({"id": "a"})));
        assert_eq!(filled(&form(), json!({"id": null})), None);
        let given = |content: Value| super::without_empty_fields(&form(), &content.into()).view().clone();
        let odd = json!({"id": null, "n": "7", "other": 1});
        assert_eq!(given(odd.clone()), odd);
        assert_eq!(given(json!({"id": "a", "n": null})), json!({"id": "a"}));
        assert_eq!(given(Value::Null), json!({}));
    }

    /// Each name is looked up once: searching the whole list for each takes minutes here.
    #[test]
    fn an_answer_with_many_empty_fields_is_read_in_linear_time() {
        const FIELDS: usize = 100_000;
        let names = |kind: &str| (0..FIELDS).map(|n| format!("{kind}{n}")).collect::<Vec<_>>();
        let empty: Map<String, Value> = names("empty").into_iter().map(|name| (name, Value::Null)).collect();
        let content = Json::from(Value::Object(empty));
        let schema = json!({"type": "object", "properties": {}, "required": names("needed")});
        assert_eq!(super::without_empty_fields(&schema, &content).text(), "{}");
        assert_eq!(super::filled(&schema, &content), None);
        let all = json!({"type": "object", "properties": {}, "required": names("empty")});
        assert_eq!(super::filled(&all, &content).unwrap().text(), "{}");
        assert_eq!(super::without_empty_fields(&all, &content), content);
    }

    #[test]
    fn an_answer_that_does_not_fill_the_form_is_none() {
        for bad in [
            json!({}),
            Value::Null,
            json!([1]),
            json!({"id": 7}),
            json!({"id": "long"}),
            json!({"id": "a", "n": 0}),
            json!({"id": "a", "n": 1.5}),
            json!({"id": "a", "share": 2}),
            json!({"id": "a", "yes": "true"}),
            json!({"id": "a", "colour": "green"}),
            json!({"id": "a", "size": "m"}),
            json!({"id": "a", "tags": ["c"]}),
            json!({"id": "a", "tags": ["a", "b"]}),
        ] {
            assert_eq!(filled(&form(), bad.clone()), None, "{bad}");
        }
    }

    #[test]
    fn only_flat_forms_can_be_asked() {
        assert_eq!(check(&form()), Ok(()));
        for bad in
            [json!({}), json!({"type": "object"}), json!({"type": "array", "properties": {}}), json!(1)]
        {
            assert_eq!(check(&bad), Err(FormError::Shape), "{bad}");
        }
        for field in [
            json!({"type": "object"}),
            json!({"$ref": "#/x"}),
            json!({"type": "array", "items": {"type": "string"}}),
        ] {
            let form = json!({"type": "object", "properties": {"f": field}});
            assert_eq!(check(&form), Err(FormError::Type("f".into())), "{form}");
        }
        let texts =
            json!({"type": "object", "properties": {"f": {"type": "array", "items": {"type": "string"}}}});
        assert_eq!(check_relayed(&texts), Ok(()));
        for items in [json!({}), json!({"type": "integer"}), json!({"type": "object"})] {
            let form = json!({"type": "object", "properties": {"f": {"type": "array", "items": items}}});
            assert_eq!(check_relayed(&form), Err(FormError::Type("f".into())), "{form}");
        }
        let many: Map<String, Value> =
            (0..=MAX_FIELDS).map(|n| (n.to_string(), json!({"type": "boolean"}))).collect();
        assert_eq!(check(&json!({"type": "object", "properties": many})), Err(FormError::TooMany));
    }
}
