//! Schemas of other servers, translated to JSON Schema 2020-12.
//!
//! Owns: the keywords of draft-04 to 2019-09 that have another meaning in 2020-12, the shape that MCP requires of a tool's
//! arguments, and which keywords an import leaves to the upstream. Keeps true: a translated schema accepts whatever the
//! original does; null stands for an absent keyword or for a schema that accepts anything (Go), and `[]` for an empty
//! object (PHP).

use serde_json::{Map, Value, json};

use crate::assertable::{MAP, assertable};
use crate::rules::schema::{SchemaRules, without_nullable};

/// Keywords that hold one schema, a list of schemas, or one schema under each name.
const ONE: [&str; 11] = [
    "not",
    "if",
    "then",
    "else",
    "items",
    "additionalProperties",
    "unevaluatedProperties",
    "unevaluatedItems",
    "contains",
    "propertyNames",
    "contentSchema",
];
const LIST: [&str; 4] = ["allOf", "anyOf", "oneOf", "prefixItems"];
/// Keywords whose value may be null.
const NULLABLE: [&str; 2] = ["const", "default"];
/// Dialects that a served schema may name (without a trailing `#`) if it means the same in both.
const SERVED: [&str; 2] =
    ["https://json-schema.org/draft/2020-12/schema", "http://json-schema.org/draft-07/schema"];
/// Keywords that take effect next to a `$ref` in draft-07 and older.
const BESIDE_REF: [&str; 6] = ["$ref", "title", "description", "default", "definitions", "$defs"];

/// Returns the schema of a tool's arguments: an object, however little the upstream describes.
pub fn arguments(written: Option<&Value>) -> Value {
    let mut schema = match written {
        Some(schema @ Value::Object(_)) => modern(schema),
        _ => json!({}),
    };
    if let Some(members) = schema.as_object_mut() {
        let is_object = match members.get("type") {
            None | Some(Value::Null) => true,
            Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == "object"),
            Some(_) => false,
        };
        if is_object {
            members.insert("type".into(), "object".into());
        }
        if let Some(Value::Object(properties)) = members.get_mut("properties") {
            for property in properties.values_mut().filter(|property| property.is_boolean()) {
                *property = if *property == Value::Bool(true) { json!({}) } else { json!({"not": {}}) };
            }
        }
    }
    schema
}

/// Returns the schema of a listed tool's arguments as an import would accept it, for a comparison with an accepted one.
pub fn accepted_arguments(listed: &Value) -> Value {
    let rules = SchemaRules { object_root: true, header_annotations: true };
    without_nullable(&assertable(arguments(Some(listed)), rules))
}

/// Returns the schema of a listed tool's results as an import would accept it.
pub fn accepted_results(listed: &Value) -> Value {
    let rules = SchemaRules { object_root: false, header_annotations: false };
    without_nullable(&assertable(modern(listed), rules))
}

/// Translates the schema to 2020-12; returns it unchanged if it means the same.
pub fn modern(written: &Value) -> Value {
    let dialect = written.get("$schema").and_then(Value::as_str).unwrap_or_default();
    let is_old = ["draft-03", "draft-04", "draft-06", "draft-07"].iter().any(|old| dialect.contains(old));
    let schema = translate(written, is_old, true);
    let is_kept =
        SERVED.contains(&dialect.trim_end_matches('#')) && is_same_without_dialect(&schema, written);
    if is_kept { written.clone() } else { schema }
}

/// Whether the translation only removed the name of the dialect. False if there is a `$ref`, whose neighbours draft-07 ignores.
fn is_same_without_dialect(translated: &Value, written: &Value) -> bool {
    if translated.to_string().contains("\"$ref\"") {
        return false;
    }
    let mut written = written.clone();
    written.as_object_mut().map(|members| members.shift_remove("$schema"));
    *translated == written
}

fn translate(written: &Value, is_old: bool, is_root: bool) -> Value {
    let Value::Object(written) = written else {
        return if written.is_null() || is_empty_list(written) { json!({}) } else { written.clone() };
    };
    let mut members = written.clone();
    members.shift_remove("$schema");
    members.retain(|name, value| !value.is_null() || NULLABLE.contains(&name.as_str()));
    if is_old && !is_root && members.contains_key("$ref") {
        members.retain(|name, _| BESIDE_REF.contains(&name.as_str()));
    }
    tuples(&mut members);
    dependencies(&mut members);
    recursion(&mut members);
    bounds(&mut members);
    for (name, value) in &mut members {
        let name = name.as_str();
        match value {
            Value::Array(items) if LIST.contains(&name) => {
                items.iter_mut().for_each(|item| *item = translate(item, is_old, false));
            }
            Value::Object(schemas) if MAP.contains(&name) => {
                schemas.values_mut().for_each(|schema| *schema = translate(schema, is_old, false));
            }
            empty @ Value::Array(_)
                if is_empty_list(empty) && (MAP.contains(&name) || ONE.contains(&name)) =>
            {
                *empty = json!({});
            }
            schema @ Value::Object(_) if ONE.contains(&name) => *schema = translate(schema, is_old, false),
            _ => {}
        }
    }
    Value::Object(members)
}

/// Whether a value is an empty list, as PHP writes an object without members.
fn is_empty_list(value: &Value) -> bool {
    value.as_array().is_some_and(Vec::is_empty)
}

/// Converts a list of `items` to `prefixItems`, and `additionalItems` to `items`, as renamed in 2020-12.
fn tuples(members: &mut Map<String, Value>) {
    let rest = members.shift_remove("additionalItems");
    if let Some(Value::Array(_)) = members.get("items")
        && let Some(places) = members.shift_remove("items")
    {
        if places != json!([]) {
            members.insert("prefixItems".into(), places);
        }
        if let Some(rest) = rest {
            members.insert("items".into(), rest);
        }
    }
}

/// Splits `dependencies` as 2019-09 does.
fn dependencies(members: &mut Map<String, Value>) {
    let Some(Value::Object(written)) = members.shift_remove("dependencies") else { return };
    let (names, schemas): (Map<_, _>, Map<_, _>) =
        written.into_iter().partition(|(_, needs)| needs.is_array() || needs.is_string());
    let list = |needs: Value| if needs.is_string() { json!([needs]) } else { needs };
    let names: Map<_, _> = names.into_iter().map(|(name, needs)| (name, list(needs))).collect();
    for (keyword, needs) in [("dependentRequired", names), ("dependentSchemas", schemas)] {
        if !needs.is_empty() {
            members.insert(keyword.into(), Value::Object(needs));
        }
    }
}

/// Converts `$recursiveRef` of 2019-09, which refers to the root unless there is another anchor.
fn recursion(members: &mut Map<String, Value>) {
    members.shift_remove("$recursiveAnchor");
    if let Some(reference) = members.shift_remove("$recursiveRef")
        && !members.contains_key("$ref")
    {
        members.insert("$ref".into(), reference);
    }
}

/// Converts bounds of draft-04, which a separate flag makes exclusive.
fn bounds(members: &mut Map<String, Value>) {
    for (exclusive, bound) in [("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")] {
        let Some(Value::Bool(is_exclusive)) = members.get(exclusive).cloned() else { continue };
        members.shift_remove(exclusive);
        if is_exclusive && let Some(value) = members.shift_remove(bound) {
            members.insert(exclusive.into(), value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::schema::{MAX_ENUM, MAX_PATTERNS};

    #[test]
    fn words_of_older_dialects_are_translated() {
        let table = [
            (
                json!({"items": [{"type": "number"}, true], "additionalItems": false}),
                json!({"prefixItems": [{"type": "number"}, true], "items": false}),
            ),
            (json!({"items": {"items": [{}]}}), json!({"items": {"prefixItems": [{}]}})),
            (
                json!({"dependencies": {"a": ["b"], "c": {"required": ["d"]}}}),
                json!({"dependentRequired": {"a": ["b"]}, "dependentSchemas": {"c": {"required": ["d"]}}}),
            ),
            (json!({"minimum": 0, "exclusiveMinimum": true}), json!({"exclusiveMinimum": 0})),
            (
                json!({"$schema": "https://json-schema.org/draft/2019-09/schema", "$recursiveAnchor": true,
                    "properties": {"a": {"$recursiveRef": "#"}}}),
                json!({"properties": {"a": {"$ref": "#"}}}),
            ),
            (
                json!({"$schema": "http://json-schema.org/draft-07/schema#",
                    "properties": {"a": {"$ref": "#/definitions/b", "minLength": 9}}}),
                json!({"properties": {"a": {"$ref": "#/definitions/b"}}}),
            ),
            (
                json!({"properties": {"a": [], "b": {"additionalProperties": [], "items": null, "default": null}, "c": null},
                    "$defs": [], "required": null, "const": null}),
                json!({"properties": {"a": {}, "b": {"additionalProperties": {}, "default": null}, "c": {}},
                    "$defs": {}, "const": null}),
            ),
            // Properties with the names of keywords.
            (
                json!({"properties": {"dependencies": {"type": "array"}, "items": {"items": {}}}}),
                json!({"properties": {"dependencies": {"type": "array"}, "items": {"items": {}}}}),
            ),
        ];
        for (written, expected) in table {
            assert_eq!(modern(&written), expected, "{written}");
        }
    }

    #[test]
    fn arguments_are_an_object() {
        for written in [None, Some(json!(null)), Some(json!({})), Some(json!({"type": null}))] {
            assert_eq!(arguments(written.as_ref()), json!({"type": "object"}), "{written:?}");
        }
        for empty in
            [json!({"type": "object", "properties": []}), json!({"properties": {}, "required": null})]
        {
            assert_eq!(arguments(Some(&empty)), json!({"type": "object", "properties": {}}), "{empty}");
        }
        assert_eq!(
            arguments(Some(&json!({"type": "object", "properties": null}))),
            json!({"type": "object"})
        );
        let loose = json!({"type": ["object", "null"], "properties": {"a": true}});
        assert_eq!(arguments(Some(&loose)), json!({"type": "object", "properties": {"a": {}}}));
        assert_eq!(arguments(Some(&json!({"type": "string"}))), json!({"type": "string"}));
    }

    #[test]
    fn what_the_platform_cannot_assert_is_no_part_of_an_accepted_schema() {
        let many: Vec<usize> = (0..=MAX_ENUM).collect();
        let listed = json!({"properties": {
            "mail": {"type": "string", "pattern": "^(?!\\.)a$"}, "name": {"type": "string", "pattern": "^a$"},
            "note": {"type": "string", "nullable": true}, "pattern": {"enum": many}}});
        let expected = json!({"type": "object", "properties": {
            "mail": {"type": "string"}, "name": {"type": "string", "pattern": "^a$"},
            "note": {"type": ["string", "null"]}, "pattern": {}}});
        assert_eq!(accepted_arguments(&listed), expected);
        for (listed, expected) in [
            (json!({"not": {"pattern": "(?=a)"}, "maxLength": 9}), json!({"maxLength": 9})),
            (
                json!({"patternProperties": {"(?!a)": {"type": "string"}, "^b": {}}, "additionalProperties": false}),
                json!({"patternProperties": {"^b": {}}}),
            ),
            (
                json!({"properties": {"a": {"$ref": "#/$defs/gone", "title": "A"}, "b": {"default": 1, "type": "string"}}}),
                json!({"properties": {"a": {"title": "A"}, "b": {"type": "string"}}}),
            ),
        ] {
            assert_eq!(accepted_results(&listed), expected, "{listed}");
        }
        let patterns: Map<_, _> =
            (0..=MAX_PATTERNS).map(|n| (n.to_string(), json!({"pattern": "a"}))).collect();
        let accepted = accepted_results(&json!({"properties": patterns}));
        let kept = accepted["properties"].as_object().into_iter().flat_map(Map::values);
        assert_eq!(kept.filter(|property| property.get("pattern").is_some()).count(), MAX_PATTERNS);
    }
}
