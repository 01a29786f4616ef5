//! `nullable: true`, the one keyword the platform rewrites.
//!
//! It belongs to OpenAPI 3.0, not to JSON Schema; a validator ignores it and rejects the null that its author meant
//! to allow. Everything else is kept as written.

use serde_json::{Map, Value, json};

use super::walk::{KeywordShape, keyword};

/// Replaces every `nullable: true` by a union with null. Key order is kept.
pub(crate) fn without_nullable(schema: &Value) -> Value {
    let Value::Object(object) = schema else { return schema.clone() };
    let mut rewritten = Map::new();
    for (key, value) in object {
        let value = match (keyword(key).map(|(shape, _)| shape), value) {
            (Some(KeywordShape::One), value) => without_nullable(value),
            (Some(KeywordShape::List), Value::Array(items)) => items.iter().map(without_nullable).collect(),
            (Some(KeywordShape::Map), Value::Object(map)) => {
                Value::Object(map.iter().map(|(name, item)| (name.clone(), without_nullable(item))).collect())
            }
            _ => value.clone(),
        };
        rewritten.insert(key.clone(), value);
    }
    if rewritten.get("nullable") != Some(&Value::Bool(true)) {
        return Value::Object(rewritten);
    }
    // `remove` would move the last key into the gap.
    rewritten.shift_remove("nullable");
    union_with_null(rewritten)
}

fn union_with_null(mut schema: Map<String, Value>) -> Value {
    // Another keyword could still reject null, so such a schema becomes one branch of two.
    let evaluated_elsewhere = ["$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "not", "if", "const"];
    let is_plain = !evaluated_elsewhere.iter().any(|keyword| schema.contains_key(*keyword));
    match schema.get_mut("type") {
        Some(Value::String(name)) if is_plain => {
            let union = json!([name, "null"]);
            schema.insert("type".into(), union);
        }
        Some(Value::Array(names)) if is_plain => {
            if !names.iter().any(|name| name == "null") {
                names.push(json!("null"));
            }
        }
        _ => return json!({"anyOf": [schema, {"type": "null"}]}),
    }
    if let Some(Value::Array(values)) = schema.get_mut("enum")
        && !values.contains(&Value::Null)
    {
        values.push(Value::Null);
    }
    Value::Object(schema)
}
