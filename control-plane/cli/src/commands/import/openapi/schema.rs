//! A schema of an OpenAPI document as JSON Schema 2020-12 that stands by itself.
//!
//! Owns: the dialects of 3.0 (`nullable`, boolean `exclusiveMinimum`) and of 3.1. Keeps true: references are replaced by
//! what they stand for; one that leads back to itself, and what lies beyond the bounds, accepts anything, since the
//! service judges it itself; nothing but what clients need to write arguments is taken over, and no schema accepts less
//! for what is not.

use serde_json::{Map, Value, json};

use super::document::{Document, Fault};

mod changes;
mod enumeration;

use changes::{Change, Changes};

/// Deepest nesting that is taken over.
const MAX_DEPTH: usize = 24;
/// Most schemas within one operation.
const MAX_NODES: usize = 2_000;
/// Most bytes of texts, names and values within one operation.
const MAX_BYTES: usize = 200 << 10;
/// Taken over as they are.
const PLAIN: [&str; 13] = [
    "title",
    "description",
    "enum",
    "const",
    "multipleOf",
    "maximum",
    "minimum",
    "maxLength",
    "minLength",
    "maxItems",
    "minItems",
    "uniqueItems",
    "required",
];
/// Formats that mean something to whoever writes an argument. Not `time`: a gateway asserts that of RFC 3339, with an offset, and
/// frameworks mean one without (`TimeOnly`, `LocalTime`).
const FORMATS: [&str; 5] = ["date-time", "date", "email", "uri", "uuid"];

/// Takes schemas over, for one operation.
pub(super) struct Schemas<'a> {
    document: &'a Document,
    nodes: usize,
    /// The bytes that may still be taken over.
    left: usize,
    /// The references that lead to where we are.
    within: Vec<&'a str>,
    changes: Changes,
}

impl<'a> Schemas<'a> {
    pub(super) fn of(document: &'a Document) -> Schemas<'a> {
        Schemas { document, nodes: 0, left: MAX_BYTES, within: Vec::new(), changes: Changes::default() }
    }

    /// `schema` by itself.
    pub(super) fn take(&mut self, schema: &'a Value) -> Result<Value, Fault> {
        self.schema(schema, 0)
    }

    /// The differences between what was taken over and the document, a line each.
    pub(super) fn notes(&self) -> impl Iterator<Item = String> {
        let is_cut = self.left == 0 || self.nodes > MAX_NODES;
        let cut = "its schemas are too large to be taken over whole; what lies beyond accepts anything";
        is_cut.then(|| cut.to_owned()).into_iter().chain(self.changes.lines())
    }

    fn schema(&mut self, schema: &'a Value, depth: usize) -> Result<Value, Fault> {
        self.nodes += 1;
        if depth > MAX_DEPTH || self.nodes > MAX_NODES {
            if depth > MAX_DEPTH {
                self.changes.add(Change::Depth);
            }
            return Ok(json!({}));
        }
        let Value::Object(members) = schema else {
            // 3.1: `true` and `false`.
            if schema.is_boolean() {
                return Ok(schema.clone());
            }
            self.changes.add(Change::Malformed);
            return Ok(json!({}));
        };
        let Some(reference) = members.get("$ref").and_then(Value::as_str) else {
            return self.members(members, depth);
        };
        if self.within.contains(&reference) {
            self.changes.add(Change::Recursion);
            return Ok(json!({}));
        }
        let found = self.document.find(reference)?;
        self.within.push(reference);
        let taken = self.schema(found, depth + 1);
        self.within.pop();
        taken.map(|taken| self.with_siblings(taken, members))
    }

    /// A schema that was referred to, with what stands beside the reference: its words (3.1), and `nullable`, which 3.0
    /// ignores and frameworks write all the same.
    fn with_siblings(&mut self, mut taken: Value, siblings: &Map<String, Value>) -> Value {
        if is_nullable(siblings) {
            taken = or_null(taken);
        }
        for name in ["title", "description"] {
            if let (Some(text @ Value::String(_)), Value::Object(taken)) = (siblings.get(name), &mut taken)
                && spend(text, &mut self.left)
            {
                taken.insert(name.into(), text.clone());
            }
        }
        self.changes.add_beside(siblings);
        taken
    }

    fn members(&mut self, members: &'a Map<String, Value>, depth: usize) -> Result<Value, Fault> {
        let mut taken = Map::new();
        for name in PLAIN {
            if let Some(value) = members.get(name)
                && spend(value, &mut self.left)
            {
                taken.insert(name.into(), value.clone());
            }
        }
        kind(members, &mut taken);
        if enumeration::mend(&mut taken) {
            self.changes.add(Change::Enumeration);
        }
        bounds(members, &mut taken);
        if let Some(format) =
            members.get("format").filter(|format| FORMATS.iter().any(|known| *format == known))
        {
            taken.insert("format".into(), format.clone());
        }
        let has_all = self.properties(members, &mut taken, depth)?;
        self.rest(members, &mut taken, (depth, has_all))?;
        for name in ["allOf", "anyOf", "oneOf"] {
            if let Some(Value::Array(choices)) = members.get(name).filter(|choices| **choices != json!([])) {
                let choices: Result<Vec<Value>, Fault> =
                    choices.iter().map(|choice| self.schema(choice, depth + 1)).collect();
                // What tells the choices apart may be what is not taken over: several of them may fit.
                let name = if name == "oneOf" { self.any_of(&taken) } else { name };
                taken.entry(name).or_insert(Value::Array(choices?));
            }
        }
        self.changes.add_left_out(members, &taken);
        // Without a type of its own, `nullable` is of what the schema chooses from.
        let chooses = ["enum", "anyOf", "allOf"].iter().any(|word| taken.contains_key(*word));
        if chooses && is_nullable(members) && !members.contains_key("type") {
            return Ok(or_null(Value::Object(taken)));
        }
        Ok(Value::Object(taken))
    }

    /// Takes the properties over, and returns whether nothing that an object may have is left out.
    fn properties(
        &mut self,
        members: &'a Map<String, Value>,
        taken: &mut Map<String, Value>,
        depth: usize,
    ) -> Result<bool, Fault> {
        let mut has_all = !members.contains_key("patternProperties");
        let Some(Value::Object(properties)) = members.get("properties") else { return Ok(has_all) };
        let mut kept = Map::new();
        for (name, property) in properties {
            if !take(name.len(), &mut self.left) {
                has_all = false;
                break;
            }
            // What only the service writes is no argument.
            if self.document.is_read_only(property) {
                self.changes.add(Change::ReadOnly);
            } else {
                kept.insert(name.clone(), self.schema(property, depth + 1)?);
            }
        }
        let mut names = members.get("required").and_then(Value::as_array).into_iter().flatten();
        if names.any(|name| name.as_str().is_some_and(|name| !properties.contains_key(name))) {
            self.changes.add(Change::Required);
        }
        required(taken, &kept);
        taken.insert("properties".into(), Value::Object(kept));
        Ok(has_all)
    }

    /// The keyword that `oneOf` is taken as; a schema that has that one loses its `oneOf`.
    fn any_of(&mut self, taken: &Map<String, Value>) -> &'static str {
        let is_lost = taken.contains_key("anyOf");
        self.changes.add(if is_lost { Change::Keyword("oneOf") } else { Change::Choice });
        "anyOf"
    }

    /// Takes over the schemas of what others do not name, unless some of the others are left out.
    fn rest(
        &mut self,
        members: &'a Map<String, Value>,
        taken: &mut Map<String, Value>,
        (depth, has_all): (usize, bool),
    ) -> Result<(), Fault> {
        if let Some(items) = members.get("items").filter(|_| !members.contains_key("prefixItems")) {
            taken.insert("items".into(), self.schema(items, depth + 1)?);
        }
        let Some(values) = members.get("additionalProperties").filter(|_| has_all) else { return Ok(()) };
        // springdoc describes a `Map<String, Object>` so, of which the values are of any type.
        let values = if *values == json!({"type": "object"}) {
            self.changes.add(Change::Values);
            json!({})
        } else {
            self.schema(values, depth + 1)?
        };
        taken.insert("additionalProperties".into(), values);
        Ok(())
    }
}

fn or_null(schema: Value) -> Value {
    json!({"anyOf": [schema, {"type": "null"}]})
}

/// Takes a value's bytes from what is left; false, with nothing left, where it is larger. Stops as soon as that is clear.
pub(super) fn spend(value: &Value, left: &mut usize) -> bool {
    match value {
        Value::String(text) => take(text.len() + 2, left),
        Value::Array(items) => take(2, left) && items.iter().all(|item| spend(item, left)),
        Value::Object(members) => {
            take(2, left) && members.iter().all(|(name, item)| take(name.len(), left) && spend(item, left))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => take(8, left),
    }
}

fn take(bytes: usize, left: &mut usize) -> bool {
    let rest = left.checked_sub(bytes);
    *left = rest.unwrap_or(0);
    rest.is_some()
}

fn is_nullable(members: &Map<String, Value>) -> bool {
    members.get("nullable") == Some(&Value::Bool(true))
}

/// `type`, and `nullable` of 3.0.
fn kind(members: &Map<String, Value>, taken: &mut Map<String, Value>) {
    let known = |name: &Value| {
        matches!(
            name.as_str(),
            Some("string" | "number" | "integer" | "boolean" | "array" | "object" | "null")
        )
    };
    let mut kinds: Vec<Value> = match members.get("type") {
        Some(Value::Array(kinds)) => kinds.clone(),
        Some(kind) => vec![kind.clone()],
        None => return,
    };
    kinds.retain(known);
    if is_nullable(members) && !kinds.contains(&json!("null")) {
        kinds.push("null".into());
        // An enumeration would refuse it all the same.
        if let Some(Value::Array(values)) = members.get("enum")
            && !values.contains(&Value::Null)
        {
            let values = values.iter().cloned().chain([Value::Null]).collect();
            taken.insert("enum".into(), Value::Array(values));
        }
    }
    match kinds.as_slice() {
        [] => {}
        [only] => drop(taken.insert("type".into(), only.clone())),
        _ => drop(taken.insert("type".into(), Value::Array(kinds))),
    }
}

/// In 3.0 a bound is exclusive by a word beside it (JSON Schema draft 4), later it is a bound of its own.
fn bounds(members: &Map<String, Value>, taken: &mut Map<String, Value>) {
    for (exclusive, bound) in [("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")] {
        match members.get(exclusive) {
            Some(Value::Bool(true)) => {
                if let Some(bound) = taken.remove(bound) {
                    taken.insert(exclusive.into(), bound);
                }
            }
            Some(value @ Value::Number(_)) => drop(taken.insert(exclusive.into(), value.clone())),
            _ => {}
        }
    }
}

/// Only what is there can be required.
fn required(taken: &mut Map<String, Value>, kept: &Map<String, Value>) {
    let Some(Value::Array(names)) = taken.get_mut("required") else {
        taken.remove("required");
        return;
    };
    names.retain(|name| name.as_str().is_some_and(|name| kept.contains_key(name)));
    if names.is_empty() {
        taken.remove("required");
    }
}

#[cfg(test)]
#[path = "schema/tests.rs"]
mod tests;
