//! Compiled JSON Schemas of one primitive: draft 2020-12, formats asserted, linear-time patterns, no remote
//! references.
//!
//! Refuses: schemas over budget. The registry has already rejected those; compiling fails closed all the same.

use jsonschema::{Draft, PatternOptions, Validator};
use serde_json::{Map, Value};

mod misfit;

pub use misfit::Misfit;

/// Maximum size of a compiled pattern in bytes.
const PATTERN_SIZE_LIMIT: usize = 1 << 20;

/// A compiled schema.
pub struct Schema {
    validator: Validator,
    /// The schema itself, with its defaults.
    source: Value,
    has_defaults: bool,
}

impl Schema {
    /// Compiles the text of a schema. The error tells what is wrong with it.
    pub fn compile(text: &str) -> Result<Schema, String> {
        Schema::with_formats(text, true)
    }

    /// Compiles the schema of an external service. Its `format` is an annotation, since the service and its clients
    /// need not assert it (JSON Schema 2020-12 validation, section 7.2.1).
    pub fn compile_lenient(text: &str) -> Result<Schema, String> {
        Schema::with_formats(text, false)
    }

    fn with_formats(text: &str, asserted: bool) -> Result<Schema, String> {
        let source: Value = serde_json::from_str(text).map_err(|e| e.to_string())?;
        let validator = jsonschema::options()
            .with_draft(Draft::Draft202012)
            .should_validate_formats(asserted)
            .with_pattern_options(PatternOptions::regex().size_limit(PATTERN_SIZE_LIMIT))
            .build(&source)
            .map_err(|e| e.to_string())?;
        Ok(Schema { validator, has_defaults: names_default(&source), source })
    }

    /// Checks `value` against the schema. The error is the first violation.
    pub fn check(&self, value: &Value) -> Result<(), Misfit> {
        if self.validator.is_valid(value) {
            return Ok(());
        }
        match self.validator.iter_errors(value).next() {
            None => Ok(()),
            Some(error) => Err(Misfit::of(&error, value)),
        }
    }

    /// Returns the names of the members that fit if they are completed with the defaults, without those that the schema does
    /// not define. Required ones may be missing.
    pub fn fitting(&self, object: &Map<String, Value>) -> Vec<String> {
        let defined = self.source.get("properties").and_then(Value::as_object);
        let is_defined = |name: &String| defined.is_some_and(|defined| defined.contains_key(name));
        let mut fitting: Map<String, Value> = object
            .iter()
            .filter(|(name, _)| is_defined(name))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        loop {
            let mut completed = Value::Object(fitting.clone());
            self.apply_defaults(&mut completed);
            let errors = self.validator.iter_errors(&completed);
            let pointers = errors.map(|error| Misfit::of(&error, &completed).pointer);
            let misfits: Vec<String> = pointers
                .filter_map(|pointer| Some(pointer.split('/').nth(1)?.replace("~1", "/").replace("~0", "~")))
                .filter(|name| fitting.contains_key(name))
                .collect();
            // Each round removes one at least.
            if misfits.is_empty() {
                return fitting.into_iter().map(|(name, _)| name).collect();
            }
            for name in &misfits {
                fitting.remove(name);
            }
        }
    }

    /// Returns the schema itself.
    pub fn source(&self) -> &Value {
        &self.source
    }

    /// Whether the schema has any defaults.
    pub fn has_defaults(&self) -> bool {
        self.has_defaults
    }

    /// Adds the defaults of missing properties, at every depth that `properties` reaches.
    pub fn apply_defaults(&self, value: &mut Value) {
        apply_defaults(&self.source, value, 0);
    }
}

/// Maximum depth of a schema (the registry rejects deeper ones).
const MAX_DEPTH: usize = 64;

fn names_default(schema: &Value) -> bool {
    let properties = schema.get("properties").and_then(Value::as_object);
    properties
        .into_iter()
        .flat_map(serde_json::Map::values)
        .any(|property| property.get("default").is_some() || names_default(property))
}

fn apply_defaults(schema: &Value, value: &mut Value, depth: usize) {
    let (Some(properties), Some(object)) =
        (schema.get("properties").and_then(Value::as_object), value.as_object_mut())
    else {
        return;
    };
    if depth >= MAX_DEPTH {
        return;
    }
    for (name, property) in properties {
        match object.get_mut(name) {
            Some(present) => apply_defaults(property, present, depth + 1),
            None => {
                if let Some(default) = property.get("default") {
                    object.insert(name.clone(), default.clone());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn schema(value: Value) -> Schema {
        Schema::compile(&value.to_string()).unwrap()
    }

    #[test]
    fn a_misfit_names_the_place_and_never_quotes_the_value() {
        let schema = schema(
            json!({"type": "object", "properties": {"a": {"type": "array", "items": {"type": "integer"}}}}),
        );
        let misfit = schema.check(&json!({"a": [1, "s3cret"]})).unwrap_err();
        assert_eq!(misfit.pointer, "/a/1");
        assert!(!misfit.message.contains("s3cret"), "{}", misfit.message);
        assert!(misfit.message.contains("integer"), "{}", misfit.message);
    }

    #[test]
    fn what_fits_of_an_object_is_defined_and_valid_and_may_be_less_than_all() {
        let schema =
            schema(json!({"type": "object", "additionalProperties": false, "required": ["a", "b", "d"],
            "properties": {"a": {"type": "string"}, "b": {"type": "integer"}, "c/d": {"enum": ["x"]},
                "d": {"type": "integer", "default": 1},
                "e": {"type": "object", "properties": {"f": {"type": "integer"}}}}}));
        let fitting = |value: Value| {
            let mut names = schema.fitting(value.as_object().unwrap());
            names.sort();
            names.join(" ")
        };
        assert_eq!(fitting(json!({"a": "x", "b": 1, "c/d": "x", "e": {"f": 1}})), "a b c/d e");
        assert_eq!(fitting(json!({"b": 1})), "b", "a required one may be missing");
        assert_eq!(fitting(json!({"a": 1, "b": "x", "c/d": "y", "d": 2, "e": {"f": "x"}})), "d");
        assert_eq!(fitting(json!({"a": "x", "other": 1})), "a");
        let free = Schema::compile(r#"{"type": "object"}"#).unwrap();
        assert!(free.fitting(json!({"a": 1}).as_object().unwrap()).is_empty(), "no name is known");
    }

    #[test]
    fn a_format_of_a_service_is_an_annotation() {
        let text = json!({"type": "string", "format": "date-time"}).to_string();
        let schema = Schema::compile_lenient(&text).unwrap();
        assert!(schema.check(&json!("2025-01-02T03:04:05")).is_ok());
        assert!(schema.check(&json!(5)).is_err());
    }

    #[test]
    fn formats_are_asserted() {
        let schema = schema(json!({"type": "string", "format": "date-time"}));
        assert!(schema.check(&json!("2026-07-28T00:00:00Z")).is_ok());
        assert!(schema.check(&json!("yesterday")).is_err());
    }

    #[test]
    fn defaults_fill_missing_members_at_every_depth_and_nothing_else() {
        let schema = schema(json!({"type": "object", "properties": {
            "n": {"type": "integer", "default": 3},
            "inner": {"type": "object", "properties": {"b": {"type": "boolean", "default": false}}},
            "absent": {"type": "object", "properties": {"b": {"type": "boolean", "default": true}}}}}));
        let mut value = json!({"inner": {}, "extra": 1});
        schema.apply_defaults(&mut value);
        assert_eq!(value, json!({"inner": {"b": false}, "extra": 1, "n": 3}));
        let mut given = json!({"n": 5});
        schema.apply_defaults(&mut given);
        assert_eq!(given, json!({"n": 5}));
    }

    #[test]
    fn a_schema_that_names_draft_07_is_evaluated_as_2020_12() {
        let schema = schema(json!({"$schema": "http://json-schema.org/draft-07/schema#", "type": "object",
            "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": false}));
        assert!(schema.check(&json!({"a": "x"})).is_ok());
        for bad in [json!({}), json!({"a": 1}), json!({"a": "x", "b": 1})] {
            assert!(schema.check(&bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn remote_references_and_backtracking_patterns_do_not_compile() {
        for bad in [
            json!({"$ref": "http://127.0.0.1:1/x.json"}),
            json!({"$ref": "file:///etc/passwd"}),
            json!({"type": "string", "pattern": "(a)\\1"}),
            json!({"type": 7}),
        ] {
            assert!(Schema::compile(&bad.to_string()).is_err(), "{bad}");
        }
    }
}
