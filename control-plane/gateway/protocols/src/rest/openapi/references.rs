//! JSON Schemas that move into another document: references within them are adapted to the new location.
//!
//! Refuses: nothing. Anything that is not a reference of a schema, such as an example that looks like one, stays
//! unchanged. Uses nothing else of this crate, so that it can be fuzzed alone.

use serde_json::Value;

/// Keywords whose values are data or texts, not schemas (JSON Schema 2020-12, validation, sections 6 and 9).
const DATA: [&str; 6] = ["const", "default", "enum", "example", "examples", "required"];
/// Keywords whose members are named by the schema's author.
const NAMED: [&str; 5] = ["$defs", "definitions", "dependentSchemas", "patternProperties", "properties"];

/// Returns the schema as it reads at `place`, a JSON pointer with its `#`. A schema with an `$id` is a document of its
/// own, and its references stay valid.
pub fn moved(mut schema: Value, place: &str) -> Value {
    if schema.get("$id").is_none() {
        point(&mut schema, place);
    }
    schema
}

/// Adapts the references. Recursion is bounded by the 128 levels that `serde_json` reads.
fn point(schema: &mut Value, place: &str) {
    match schema {
        Value::Array(all) => all.iter_mut().for_each(|schema| point(schema, place)),
        Value::Object(members) => {
            for (name, value) in members {
                match value {
                    Value::String(to) if name == "$ref" || name == "$dynamicRef" => {
                        if to == "#" {
                            *to = place.to_owned();
                        } else if let Some(pointer) = to.strip_prefix("#/") {
                            *to = format!("{place}/{pointer}");
                        }
                    }
                    Value::Object(named) if NAMED.contains(&name.as_str()) => {
                        named.values_mut().for_each(|schema| point(schema, place));
                    }
                    value if !DATA.contains(&name.as_str()) => point(value, place),
                    _ => {}
                }
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn references_follow_their_schema_and_data_stays() {
        let schema = json!({
            "$defs": {"a": {"type": "string"}, "$ref": {"$ref": "#/$defs/a"}},
            "properties": {
                "own": {"$ref": "#"},
                "$ref": {"items": [{"$ref": "#/$defs/a"}]},
                "enum": {"$ref": "#/$defs/a"},
                "other": {"$ref": "urn:x#/$defs/a"}
            },
            "default": {"$ref": "#/$defs/a"},
            "examples": [{"$ref": "#"}],
            "const": {"$ref": "#"}
        });
        let at = "#/components/schemas/t";
        let there = format!("{at}/$defs/a");
        let expected = json!({
            "$defs": {"a": {"type": "string"}, "$ref": {"$ref": there}},
            "properties": {
                "own": {"$ref": at},
                "$ref": {"items": [{"$ref": there}]},
                "enum": {"$ref": there},
                "other": {"$ref": "urn:x#/$defs/a"}
            },
            "default": {"$ref": "#/$defs/a"},
            "examples": [{"$ref": "#"}],
            "const": {"$ref": "#"}
        });
        assert_eq!(moved(schema, at), expected);
        let whole = json!({"$id": "urn:s", "items": {"$ref": "#"}});
        assert_eq!(moved(whole.clone(), at), whole);
    }
}
