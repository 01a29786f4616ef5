//! Compatibility of a changed JSON Schema with existing callers.
//!
//! Schemas of arguments may only accept more, schemas of results may only become narrower. Keywords whose change
//! cannot be evaluated one by one (`allOf`, `not`, `$ref`, …) count as breaking when they differ.

use serde_json::{Map, Value};

use crate::document::escape;

/// Origin of the values that a schema describes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum SchemaDirection {
    /// The caller: accepting less breaks it.
    Input,
    /// The primitive: promising less breaks the caller.
    Output,
}

pub(super) struct Difference {
    /// JSON pointer into the schema.
    pub(super) path: String,
    pub(super) message: String,
    pub(super) breaking: bool,
}

/// Effect of a change on the set of accepted values.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Effect {
    Wider,
    Narrower,
    Unclear,
    /// No effect: the text is for people.
    None,
}

const WORDS: [&str; 9] =
    ["title", "description", "$comment", "examples", "deprecated", "readOnly", "writeOnly", "$schema", "$id"];
const UPPER_BOUNDS: [&str; 5] = ["maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"];
const LOWER_BOUNDS: [&str; 5] = ["minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"];

pub(super) fn differences(old: &Value, new: &Value, direction: SchemaDirection) -> Vec<Difference> {
    let mut comparison = Comparison { direction, found: Vec::new() };
    comparison.schema(old, new, "");
    comparison.found
}

struct Comparison {
    direction: SchemaDirection,
    found: Vec<Difference>,
}

impl Comparison {
    // Recursion is bounded by the depth that the registry accepts.
    fn schema(&mut self, old: &Value, new: &Value, path: &str) {
        if old == new {
            return;
        }
        let everything = Map::new();
        let (old, new) = match (as_object(old, &everything), as_object(new, &everything)) {
            (Some(old), Some(new)) => (old, new),
            (None, _) => return self.push(path, "values are accepted that were not", Effect::Wider),
            (_, None) => return self.push(path, "no value is accepted any more", Effect::Narrower),
        };
        for key in old.keys().chain(new.keys().filter(|key| !old.contains_key(*key))) {
            let before = old.get(key);
            let after = new.get(key);
            if before != after {
                self.keyword(key, (before, after), old, &format!("{path}/{}", escape(key)));
            }
        }
    }

    fn keyword(
        &mut self,
        key: &str,
        (before, after): (Option<&Value>, Option<&Value>),
        old: &Map<String, Value>,
        path: &str,
    ) {
        match (key, before, after) {
            ("properties", before, after) => self.properties(before, after, old, path),
            ("$defs", Some(before), Some(after)) => self.definitions(before, after, path),
            ("$defs", ..) => self.push(path, "definitions were added or removed", Effect::None),
            ("items" | "additionalProperties", before, after) => {
                // An absent schema accepts everything.
                let everything = Value::Bool(true);
                self.schema(before.unwrap_or(&everything), after.unwrap_or(&everything), path);
            }
            ("required", before, after) => {
                self.set(path, (before, after), ("is no longer required", "is required now"), true);
            }
            ("enum", Some(_), Some(_)) => {
                self.set(path, (before, after), ("is no longer allowed", "is allowed now"), false);
            }
            _ => self.push(path, format!("`{key}` differs"), effect(key, before, after)),
        }
    }

    fn properties(
        &mut self,
        before: Option<&Value>,
        after: Option<&Value>,
        old: &Map<String, Value>,
        path: &str,
    ) {
        let none = Map::new();
        let before = before.and_then(Value::as_object).unwrap_or(&none);
        let after = after.and_then(Value::as_object).unwrap_or(&none);
        let was_closed = old.get("additionalProperties") == Some(&Value::Bool(false));
        for (name, property) in before {
            let path = format!("{path}/{}", escape(name));
            match after.get(name) {
                Some(other) => self.schema(property, other, &path),
                // Ignoring a member that callers send, or omitting one that they read, breaks them too.
                None => self.push_as(&path, format!("`{name}` is gone"), true),
            }
        }
        for name in after.keys().filter(|name| !before.contains_key(*name)) {
            let path = format!("{path}/{}", escape(name));
            // A closed result promised that there are no other members.
            let breaking = self.direction == SchemaDirection::Output && was_closed;
            self.push_as(&path, format!("`{name}` is new"), breaking);
        }
    }

    fn definitions(&mut self, before: &Value, after: &Value, path: &str) {
        for (name, schema) in before.as_object().into_iter().flatten() {
            if let Some(other) = after.get(name) {
                self.schema(schema, other, &format!("{path}/{}", escape(name)));
            }
        }
    }

    /// Compares lists whose order does not matter; with `grows_narrower` an additional item excludes values.
    fn set(
        &mut self,
        path: &str,
        (before, after): (Option<&Value>, Option<&Value>),
        (gone, come): (&str, &str),
        grows_narrower: bool,
    ) {
        let list = |value: Option<&Value>| value.and_then(Value::as_array).cloned().unwrap_or_default();
        let before = list(before);
        let after = list(after);
        let (shrunk, grown) = if grows_narrower {
            (Effect::Wider, Effect::Narrower)
        } else {
            (Effect::Narrower, Effect::Wider)
        };
        for item in before.iter().filter(|item| !after.contains(item)) {
            self.push(path, format!("{item} {gone}"), shrunk);
        }
        for item in after.iter().filter(|item| !before.contains(item)) {
            self.push(path, format!("{item} {come}"), grown);
        }
    }

    fn push(&mut self, path: &str, message: impl Into<String>, effect: Effect) {
        let breaking = match effect {
            Effect::None => false,
            Effect::Unclear => true,
            Effect::Narrower => self.direction == SchemaDirection::Input,
            Effect::Wider => self.direction == SchemaDirection::Output,
        };
        self.push_as(path, message, breaking);
    }

    fn push_as(&mut self, path: &str, message: impl Into<String>, breaking: bool) {
        self.found.push(Difference { path: path.to_string(), message: message.into(), breaking });
    }
}

/// Returns a schema as an object: empty for `true`, `None` for `false`.
fn as_object<'a>(schema: &'a Value, everything: &'a Map<String, Value>) -> Option<&'a Map<String, Value>> {
    match schema {
        Value::Object(object) => Some(object),
        Value::Bool(false) => None,
        _ => Some(everything),
    }
}

fn effect(key: &str, before: Option<&Value>, after: Option<&Value>) -> Effect {
    if WORDS.contains(&key) || key == "default" {
        return Effect::None;
    }
    if key == "type" {
        return type_effect(before, after);
    }
    if UPPER_BOUNDS.contains(&key) || LOWER_BOUNDS.contains(&key) {
        let bound = |value: Option<&Value>| value.and_then(Value::as_f64);
        return match (bound(before), bound(after)) {
            (None, _) => Effect::Narrower,
            (_, None) => Effect::Wider,
            (Some(before), Some(after)) if (after > before) == UPPER_BOUNDS.contains(&key) => Effect::Wider,
            _ => Effect::Narrower,
        };
    }
    match (key, before, after) {
        ("pattern" | "format" | "const" | "enum" | "multipleOf", None, Some(_)) => Effect::Narrower,
        ("pattern" | "format" | "const" | "enum" | "multipleOf", Some(_), None) => Effect::Wider,
        ("uniqueItems", _, Some(Value::Bool(true))) => Effect::Narrower,
        ("uniqueItems", ..) => Effect::Wider,
        _ => Effect::Unclear,
    }
}

fn type_effect(before: Option<&Value>, after: Option<&Value>) -> Effect {
    let before = types(before);
    let after = types(after);
    let covers = |wide: &[String], narrow: &[String]| {
        narrow.iter().all(|name| {
            wide.contains(name) || (name == "integer" && wide.iter().any(|name| name == "number"))
        })
    };
    match (before, after) {
        (None, _) => Effect::Narrower,
        (_, None) => Effect::Wider,
        (Some(before), Some(after)) if covers(&after, &before) => Effect::Wider,
        (Some(before), Some(after)) if covers(&before, &after) => Effect::Narrower,
        _ => Effect::Unclear,
    }
}

/// Returns the type names; `None` if every type is allowed.
fn types(value: Option<&Value>) -> Option<Vec<String>> {
    match value? {
        Value::String(name) => Some(vec![name.clone()]),
        Value::Array(names) => {
            Some(names.iter().filter_map(|name| name.as_str().map(str::to_string)).collect())
        }
        _ => None,
    }
}
