//! Subschemas and their places inside a schema.
//!
//! Owns the keyword table of JSON Schema 2020-12, so that a property called `nullable` or `pattern` is never taken
//! for the keyword.

use serde_json::Value;

use crate::document::escape;

/// The part of a value that a subschema applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SchemaStep {
    /// The same value as the schema around it.
    InPlace,
    /// The property with this name.
    Property,
    /// Properties selected by a pattern, or all that are left over.
    OtherProperties,
    /// Items, or the names of properties.
    Items,
    /// No value: a definition applies only where it is referred to.
    Definition,
}

/// The shape of a keyword's value.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum KeywordShape {
    One,
    List,
    Map,
}

/// A subschema with its JSON pointer from the root.
pub(super) struct Sub<'a> {
    pub(super) pointer: String,
    pub(super) schema: &'a Value,
}

/// Returns the shape and step of a keyword that contains subschemas.
pub(super) fn keyword(key: &str) -> Option<(KeywordShape, SchemaStep)> {
    Some(match key {
        "allOf" | "anyOf" | "oneOf" => (KeywordShape::List, SchemaStep::InPlace),
        "not" | "if" | "then" | "else" => (KeywordShape::One, SchemaStep::InPlace),
        "dependentSchemas" => (KeywordShape::Map, SchemaStep::InPlace),
        "properties" => (KeywordShape::Map, SchemaStep::Property),
        "patternProperties" => (KeywordShape::Map, SchemaStep::OtherProperties),
        "additionalProperties" | "unevaluatedProperties" => (KeywordShape::One, SchemaStep::OtherProperties),
        "prefixItems" => (KeywordShape::List, SchemaStep::Items),
        "items" | "contains" | "unevaluatedItems" | "propertyNames" => (KeywordShape::One, SchemaStep::Items),
        "contentSchema" => (KeywordShape::One, SchemaStep::Definition),
        "$defs" | "definitions" => (KeywordShape::Map, SchemaStep::Definition),
        _ => return None,
    })
}

/// Returns the direct subschemas of `schema`, each with its pointer from there and its step.
pub(super) fn children(schema: &Value) -> Vec<(String, SchemaStep, &Value)> {
    let mut children = Vec::new();
    for (key, value) in schema.as_object().into_iter().flatten() {
        let Some((shape, step)) = keyword(key) else { continue };
        match (shape, value) {
            (KeywordShape::One, value) => children.push((format!("/{}", escape(key)), step, value)),
            (KeywordShape::List, Value::Array(items)) => {
                for (index, item) in items.iter().enumerate() {
                    children.push((format!("/{}/{index}", escape(key)), step, item));
                }
            }
            (KeywordShape::Map, Value::Object(map)) => {
                for (name, item) in map {
                    children.push((format!("/{}/{}", escape(key), escape(name)), step, item));
                }
            }
            // The meta-schema reports a wrong shape.
            _ => {}
        }
    }
    children.retain(|(_, _, child)| child.is_object() || child.is_boolean());
    children
}

/// Returns all subschemas, the root first.
pub(super) fn subschemas(root: &Value) -> Vec<Sub<'_>> {
    let mut found = vec![Sub { pointer: String::new(), schema: root }];
    let mut next = 0;
    while let Some(sub) = found.get(next) {
        let inner: Vec<_> = children(sub.schema)
            .into_iter()
            .map(|(relative, _, schema)| Sub { pointer: format!("{}{relative}", sub.pointer), schema })
            .collect();
        found.extend(inner);
        next += 1;
    }
    found
}
