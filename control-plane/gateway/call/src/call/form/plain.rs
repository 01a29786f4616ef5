//! Rewrites forms as SDKs write them into the constructs that clients know.
//!
//! Keeps true: a field accepts the same values, except null, which omits an optional field.

use serde_json::{Map, Value};

use super::{FormError, MAX_FIELDS};

/// Maximum number of steps that simplify one field, so that a reference to itself ends.
const MAX_STEPS: usize = 8;

/// Returns the form with its type and properties, and one type per field: a field that may be null becomes an optional
/// one of its other type, and a local reference is replaced by its definition. References may add `most` bytes in all.
pub fn plain(schema: Value, most: usize) -> Result<Value, FormError> {
    let Value::Object(mut form) = schema else { return Ok(schema) };
    let mut definitions = Definitions { named: Map::new(), left: most };
    for name in ["$defs", "definitions"] {
        if let Some(Value::Object(named)) = form.shift_remove(name) {
            definitions.named.extend(named);
        }
    }
    form.entry("type").or_insert_with(|| "object".into());
    let properties = form.entry("properties").or_insert_with(|| Value::Object(Map::new()));
    if properties.as_object().is_some_and(|properties| properties.len() > MAX_FIELDS) {
        return Err(FormError::TooMany);
    }
    for field in properties.as_object_mut().into_iter().flat_map(Map::values_mut) {
        of_field(field, &mut definitions)?;
    }
    Ok(Value::Object(form))
}

/// The definitions of a form.
struct Definitions {
    named: Map<String, Value>,
    /// Bytes that references may still add to the form.
    left: usize,
}

impl Definitions {
    /// Returns a copy of the definition that a local reference names; `None` for another reference.
    fn copied(&mut self, reference: &str) -> Result<Option<Map<String, Value>>, FormError> {
        let local = reference.strip_prefix("#/$defs/").or_else(|| reference.strip_prefix("#/definitions/"));
        let Some(Value::Object(named)) = local.and_then(|name| self.named.get(name)) else { return Ok(None) };
        let size = serde_json::to_string(named).map_or(usize::MAX, |text| text.len());
        self.left = self.left.checked_sub(size).ok_or(FormError::TooLarge)?;
        Ok(Some(named.clone()))
    }
}

fn of_field(field: &mut Value, definitions: &mut Definitions) -> Result<(), FormError> {
    let Value::Object(members) = field else { return Ok(()) };
    for _ in 0..MAX_STEPS {
        if !step(members, definitions)? {
            break;
        }
    }
    if members.get("default").is_some_and(Value::is_null) {
        members.shift_remove("default");
    }
    if let Some(constant) = members.shift_remove("const") {
        members.entry("enum").or_insert_with(|| Value::Array(vec![constant]));
    }
    if let Some(Value::Array(values)) = members.get_mut("enum") {
        values.retain(|value| !value.is_null());
    }
    if !members.contains_key("type")
        && let Some(kind) = kind_of_choices(members)
    {
        members.insert("type".into(), kind.into());
    }
    if let Some(Value::Object(items)) = members.get_mut("items") {
        step(items, definitions)?;
    }
    Ok(())
}

/// Returns the common type of the values that a field without a type may have.
fn kind_of_choices(members: &Map<String, Value>) -> Option<&'static str> {
    let choices = |name: &str| members.get(name).and_then(Value::as_array);
    let values: Vec<&Value> = match choices("enum") {
        Some(values) => values.iter().collect(),
        None => {
            let titled = choices("oneOf").or_else(|| choices("anyOf"))?;
            titled.iter().map(|choice| choice.get("const")).collect::<Option<_>>()?
        }
    };
    let all = |is_kind: fn(&Value) -> bool| values.iter().all(|value| is_kind(value));
    if values.is_empty() {
        None
    } else if all(Value::is_string) {
        Some("string")
    } else if all(Value::is_boolean) {
        Some("boolean")
    } else if all(is_integer) {
        Some("integer")
    } else {
        all(Value::is_number).then_some("number")
    }
}

fn is_integer(value: &Value) -> bool {
    value.as_f64().is_some_and(|number| number.fract() == 0.0)
}

/// Resolves a reference, or removes the alternative null; false if nothing is left to do.
fn step(members: &mut Map<String, Value>, definitions: &mut Definitions) -> Result<bool, FormError> {
    let named = match members.get("$ref").and_then(Value::as_str) {
        Some(reference) => definitions.copied(reference)?,
        None => None,
    };
    if let Some(named) = named {
        members.shift_remove("$ref");
        merge(members, named);
        return Ok(true);
    }
    for (name, merges_one) in [("anyOf", false), ("oneOf", false), ("allOf", true)] {
        let Some(Value::Array(choices)) = members.get_mut(name) else { continue };
        let before = choices.len();
        choices.retain(|choice| !is_null(choice));
        let is_one = choices.len() == 1 && (merges_one || choices.len() < before);
        if is_one && let Some(Value::Object(only)) = choices.pop() {
            members.shift_remove(name);
            merge(members, only);
            return Ok(true);
        }
    }
    if let Some(Value::Array(types)) = members.get_mut("type") {
        types.retain(|kind| kind != "null");
        if let (1, Some(only)) = (types.len(), types.first().cloned()) {
            members.insert("type".into(), only);
        }
    }
    Ok(false)
}

fn is_null(choice: &Value) -> bool {
    choice.get("type").is_some_and(|kind| kind == "null") || choice.get("const").is_some_and(Value::is_null)
}

/// Adds members; those that the field already has take precedence.
fn merge(members: &mut Map<String, Value>, more: Map<String, Value>) {
    for (name, value) in more {
        members.entry(name).or_insert(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::form::check;
    use serde_json::json;

    /// Enough for every form here but the hostile ones.
    const MOST: usize = 64 << 10;

    fn plain(schema: Value) -> Value {
        super::plain(schema, MOST).unwrap()
    }

    #[test]
    fn a_form_does_not_grow_by_its_references_without_bound() {
        let large = json!({"type": "string", "enum": ["x".repeat(30 << 10)]});
        let reference = json!({"$ref": "#/$defs/Large"});
        let items = json!({"type": "array", "items": reference});
        for field in [&reference, &items, &json!({"allOf": [reference]})] {
            let form = |fields: usize| {
                let properties: Map<String, Value> =
                    (0..fields).map(|n| (n.to_string(), field.clone())).collect();
                super::plain(json!({"properties": properties, "$defs": {"Large": large}}), MOST)
            };
            assert!(form(2).is_ok(), "{field}");
            assert_eq!(form(3), Err(FormError::TooLarge), "{field}");
            assert_eq!(form(MAX_FIELDS), Err(FormError::TooLarge), "{field}");
            assert_eq!(form(MAX_FIELDS + 1), Err(FormError::TooMany), "{field}");
        }
    }

    #[test]
    fn fields_that_may_be_null_are_optional_ones_of_their_other_type() {
        for (field, expected) in [
            (
                json!({"anyOf": [{"type": "string"}, {"type": "null"}], "default": null, "title": "Note"}),
                json!({"title": "Note", "type": "string"}),
            ),
            (
                json!({"oneOf": [{"type": "null"}, {"type": "integer", "minimum": 1}]}),
                json!({"type": "integer", "minimum": 1}),
            ),
            (json!({"type": ["boolean", "null"]}), json!({"type": "boolean"})),
            (json!({"type": "string", "default": "a"}), json!({"type": "string", "default": "a"})),
            (json!({"$ref": "#/$defs/Colour"}), json!({"type": "string", "enum": ["red"]})),
            (json!({"allOf": [{"$ref": "#/$defs/Colour"}]}), json!({"type": "string", "enum": ["red"]})),
            (
                json!({"anyOf": [{"$ref": "#/$defs/Colour"}, {"type": "null"}]}),
                json!({"type": "string", "enum": ["red"]}),
            ),
            (json!({"enum": ["a", null]}), json!({"enum": ["a"], "type": "string"})),
            (json!({"const": "a"}), json!({"enum": ["a"], "type": "string"})),
            (json!({"enum": [1, 2, null]}), json!({"enum": [1, 2], "type": "integer"})),
            (json!({"const": 7}), json!({"enum": [7], "type": "integer"})),
            (json!({"enum": [1, 2.5]}), json!({"enum": [1, 2.5], "type": "number"})),
            (json!({"const": true}), json!({"enum": [true], "type": "boolean"})),
            (
                json!({"oneOf": [{"const": 1, "title": "One"}]}),
                json!({"oneOf": [{"const": 1, "title": "One"}], "type": "integer"}),
            ),
            (
                json!({"oneOf": [{"const": "a", "title": "A"}]}),
                json!({"oneOf": [{"const": "a", "title": "A"}], "type": "string"}),
            ),
        ] {
            let form = plain(json!({"type": "object", "properties": {"f": field},
                "$defs": {"Colour": {"type": "string", "enum": ["red"]}, "Loop": {"$ref": "#/$defs/Loop"}}}));
            assert_eq!(form, json!({"type": "object", "properties": {"f": expected}}));
            assert_eq!(check(&form), Ok(()), "{form}");
        }
    }

    #[test]
    fn a_form_without_fields_asks_for_a_yes_and_what_is_no_form_stays_none() {
        for form in [json!({}), json!({"type": "object"}), json!({"properties": {}})] {
            assert_eq!(check(&plain(form)), Ok(()));
        }
        for field in [
            json!({"type": "object"}),
            json!({"anyOf": [{"type": "string"}, {"type": "integer"}, {"type": "null"}]}),
            json!({"$ref": "#/$defs/Loop"}),
            json!({"$ref": "https://example.com/x"}),
            json!({"enum": [1, "a"]}),
            json!({"enum": []}),
            json!({"const": {"a": 1}}),
        ] {
            let form = json!({"properties": {"f": field}, "$defs": {"Loop": {"$ref": "#/$defs/Loop"}}});
            assert!(check(&plain(form.clone())).is_err(), "{form}");
        }
        assert!(check(&plain(json!({"type": "array"}))).is_err());
        assert!(check(&plain(json!(7))).is_err());
    }
}
