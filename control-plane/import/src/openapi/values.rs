//! Values as one request carries them: media types, scalars, lists and texts.

use std::collections::BTreeSet;

use asp_call::media_type::MediaType;
use asp_registry::visible_text;
use serde_json::{Value, json};

/// Maximum length of a summary in bytes.
const MAX_SUMMARY: usize = 4 * 1024;
/// Maximum length of a name or another text in one line, in characters.
const MAX_LINE: usize = 200;
/// Keywords that determine the type of a schema's values.
const TYPING: [&str; 9] =
    ["additionalProperties", "allOf", "anyOf", "const", "enum", "items", "oneOf", "properties", "type"];

/// Whether it is JSON, as the gateway reads it, or stands for any type.
pub(super) fn is_json(kind: &str) -> bool {
    let kind = MediaType::parse(kind);
    kind.is_json() || kind.is("*/*") || kind.is("application/*")
}

/// Returns a media type without its parameters, in lower case.
pub(super) fn essence(kind: &str) -> String {
    kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// A kind of values, by how a parameter or a form field is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// A single text.
    Scalar,
    /// A list of texts.
    List,
    Object,
    /// Lists of lists and of objects, and anything that the schema does not specify.
    Other,
}

/// Returns the kinds of a schema's values; null does not count, since a null parameter is omitted.
pub(super) fn kinds(schema: &Value) -> BTreeSet<Kind> {
    let list = |word: &str| schema.get(word).and_then(Value::as_array);
    if let Some(choices) = list("anyOf").or_else(|| list("oneOf")) {
        return choices.iter().flat_map(kinds).collect();
    }
    match (schema.get("type"), list("allOf"), list("enum")) {
        (Some(Value::Array(names)), ..) => names.iter().filter_map(|name| kind(name, schema)).collect(),
        (Some(name), ..) => kind(name, schema).into_iter().collect(),
        // Parts that do not name a type only have keywords for the others.
        (None, Some(parts), _) => {
            let mut parts = parts.iter().map(kinds);
            parts.find(|part| !part.contains(&Kind::Other)).unwrap_or_else(|| BTreeSet::from([Kind::Other]))
        }
        (None, None, Some(values)) if !values.iter().any(|value| value.is_array() || value.is_object()) => {
            BTreeSet::from([Kind::Scalar])
        }
        _ if schema.get("properties").is_some() => BTreeSet::from([Kind::Object]),
        _ if schema.get("items").is_some() => kind(&"array".into(), schema).into_iter().collect(),
        _ if schema.get("const").is_some_and(|value| !value.is_array() && !value.is_object()) => {
            BTreeSet::from([Kind::Scalar])
        }
        _ => BTreeSet::from([Kind::Other]),
    }
}

/// Returns the kind of values of the named type; `None` for null.
fn kind(name: &Value, schema: &Value) -> Option<Kind> {
    Some(match name.as_str() {
        Some("string" | "number" | "integer" | "boolean") => Kind::Scalar,
        Some("array") => match schema.get("items") {
            Some(items) if !is_untyped(items) && !is_scalar(items) => Kind::Other,
            _ => Kind::List,
        },
        Some("object") => Kind::Object,
        Some("null") => return None,
        _ => Kind::Other,
    })
}

/// Whether the schema's values are written as a single text.
pub(super) fn is_scalar(schema: &Value) -> bool {
    kinds(schema) == BTreeSet::from([Kind::Scalar])
}

/// Whether the schema, if there is one, leaves the type of its values open.
pub(super) fn is_untyped(schema: &Value) -> bool {
    let is_open = |word: &&str| schema.get(*word).is_none();
    *schema != Value::Bool(false) && TYPING.iter().all(is_open)
}

/// Makes an untyped schema one of texts.
pub(super) fn type_as_text(schema: &mut Value) {
    match schema {
        Value::Object(members) => drop(members.insert("type".into(), "string".into())),
        other => *other = json!({"type": "string"}),
    }
}

/// Whether the schema's values are objects.
pub(super) fn is_object(schema: &Value) -> bool {
    match schema.get("type") {
        Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == "object"),
        Some(kind) => kind == "object",
        None => ["properties", "allOf", "oneOf", "anyOf"].iter().any(|word| schema.get(*word).is_some()),
    }
}

/// Whether the schema, or one that it is composed of, requires the property.
pub(super) fn requires(schema: &Value, name: &str) -> bool {
    let own = schema.get("required").and_then(Value::as_array);
    own.is_some_and(|names| names.iter().any(|other| other == name))
        || parts(schema).any(|part| requires(part, name))
}

/// Returns the schemas that the schema is composed of.
pub(super) fn parts(schema: &Value) -> impl Iterator<Item = &Value> {
    schema.get("allOf").and_then(Value::as_array).into_iter().flatten()
}

/// Replaces line breaks and other control characters with spaces, and removes invisible characters.
pub(super) fn one_line(text: &str) -> String {
    let plain: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MAX_LINE).collect();
    visible_text(&plain).trim().to_owned()
}

/// Puts a description before the schema's own.
pub(super) fn describe(schema: &mut Value, description: Option<&Value>) {
    let (Some(Value::String(text)), Value::Object(members)) = (description, schema) else { return };
    let own = members.get("description").and_then(Value::as_str).map(str::trim);
    let own = own.filter(|own| *own != text.trim());
    let said: Vec<&str> =
        [Some(text.trim()), own].into_iter().flatten().filter(|text| !text.is_empty()).collect();
    let said = cut(&said.join(". "));
    if !said.is_empty() {
        members.insert("description".into(), said.into());
    }
}

pub(super) fn cut(text: &str) -> String {
    text.get(..text.floor_char_boundary(MAX_SUMMARY)).unwrap_or_default().trim().to_owned()
}
