//! The question of an elicitation as MCP's restricted JSON Schema (2025-06-18, client/elicitation).

use serde_json::{Value, json};

use crate::spec::{FormField, Spec};

/// Returns the schema of the answers: the author's own, or one made from the fields.
pub(crate) fn requested_schema(spec: &Spec) -> Value {
    if let Some(schema) = &spec.schema.requested_schema {
        return schema.clone();
    }
    let fields = spec.schema.fields.as_deref().unwrap_or_default();
    let properties: serde_json::Map<_, _> =
        fields.iter().map(|field| (field.name.clone(), field_schema(field))).collect();
    let required: Vec<_> = fields.iter().filter(|field| field.required).map(|field| &field.name).collect();
    json!({"type": "object", "properties": properties, "required": required})
}

fn field_schema(field: &FormField) -> Value {
    let mut schema = json!({"type": field.kind.word()});
    let Some(object) = schema.as_object_mut() else { return schema };
    if let Some(label) = &field.label {
        object.insert("title".into(), json!(label));
    }
    if let Some(description) = &field.description {
        object.insert("description".into(), json!(description));
    }
    if !field.choices.is_empty() {
        object.insert("enum".into(), json!(field.choices));
    }
    if let Some(default) = &field.default {
        object.insert("default".into(), default.clone());
    }
    schema
}
