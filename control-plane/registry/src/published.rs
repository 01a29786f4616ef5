//! The JSON Schemas of the two file formats.
//!
//! They are generated from the Rust types and checked in under `primitives/schema/`. Editors use them, and so does
//! the check, to find every structural fault of a file at once. Keeps true: the published schema is the one that
//! files are checked against.

use std::sync::OnceLock;

use jsonschema::Validator;
use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use schemars::{JsonSchema, Schema};
use serde_json::Value;

use crate::server_file::ServerFile;
use crate::spec::Spec;

/// Returns the JSON Schema 2020-12 of a primitive spec.
pub fn spec_schema() -> Value {
    generate::<Spec>("Primitive spec")
}

/// Returns the JSON Schema 2020-12 of `server.yaml`.
pub fn server_schema() -> Value {
    generate::<ServerFile>("Server")
}

/// The format of a file: its schema, and the validator compiled from it.
pub(crate) struct FileFormat {
    schema: Value,
    pub(crate) validator: Validator,
}

impl FileFormat {
    /// Returns `None` only if the generated schema were invalid, which a test rules out.
    pub(crate) fn of(schema: Value) -> Option<FileFormat> {
        let validator = jsonschema::options().offline().build(&schema).ok()?;
        Some(FileFormat { schema, validator })
    }

    /// Returns the keys of the object whose `additionalProperties` is at this place of the schema.
    pub(crate) fn keys(&self, place: &str) -> impl Iterator<Item = &str> {
        let object = place.strip_suffix("/additionalProperties");
        let object = object.and_then(|object| self.schema.pointer(object));
        let keys = object.and_then(|object| object.get("properties")?.as_object());
        keys.into_iter().flatten().map(|(key, _)| key.as_str())
    }
}

/// Returns the format of primitive specs, compiled once.
pub(crate) fn spec_format() -> Option<&'static FileFormat> {
    static FORMAT: OnceLock<Option<FileFormat>> = OnceLock::new();
    FORMAT.get_or_init(|| FileFormat::of(spec_schema())).as_ref()
}

/// Returns the format of `server.yaml`, compiled once.
pub(crate) fn server_format() -> Option<&'static FileFormat> {
    static FORMAT: OnceLock<Option<FileFormat>> = OnceLock::new();
    FORMAT.get_or_init(|| FileFormat::of(server_schema())).as_ref()
}

/// Generates the JSON Schema 2020-12 of a file format.
pub(crate) fn generate<T: JsonSchema>(title: &str) -> Value {
    let settings =
        SchemaSettings::draft2020_12().with_transform(RecursiveTransform(without_null as fn(&mut Schema)));
    let mut schema = settings.into_generator().into_root_schema_for::<T>();
    without_null(&mut schema);
    schema.insert("title".into(), Value::String(title.into()));
    schema.to_value()
}

/// Removes null alternatives and number formats. An optional key is absent, never null: `null` in a spec is a
/// mistake, and the plain form gives one exact fault where `anyOf` with null gives two vague ones. Number formats
/// such as `uint32` are not part of JSON Schema.
fn without_null(schema: &mut Schema) {
    let Some(object) = schema.as_object_mut() else { return };
    object.remove("format");
    if object.get("default").is_some_and(Value::is_null) {
        object.remove("default");
    }
    if let Some(Value::Array(types)) = object.get_mut("type") {
        types.retain(|name| name != "null");
        if let [only] = types.as_slice() {
            let only = only.clone();
            object.insert("type".into(), only);
        }
    }
    let Some(Value::Array(choices)) = object.get_mut("anyOf") else { return };
    let is_null = |choice: &Value| choice.get("type").is_some_and(|name| name == "null");
    if !choices.iter().any(is_null) {
        return;
    }
    choices.retain(|choice| !is_null(choice));
    if let [Value::Object(only)] = choices.as_slice() {
        let only = only.clone();
        object.remove("anyOf");
        object.extend(only);
    }
}
