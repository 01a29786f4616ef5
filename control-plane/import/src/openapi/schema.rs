//! A schema of an OpenAPI document as self-contained JSON Schema 2020-12.
//!
//! Owns: the dialects of 3.0 (`nullable`, boolean `exclusiveMinimum`) and of 3.1. Keeps true: references are replaced by
//! their targets; a reference that is recursive or leads nowhere, and whatever exceeds the limits, accepts anything, since
//! the service validates arguments itself; only what clients need to write arguments is kept, and no schema accepts less
//! because of what is left out. A schema of results also accepts what services add to their answers without changing their
//! document.

use serde_json::{Map, Value, json};

use super::document::OpenApiDocument;
use super::values::is_untyped;

mod changes;
mod composition;
mod enumeration;

use changes::{SchemaChange, SchemaChanges};
use composition::Composition;

/// Maximum nesting.
const MAX_DEPTH: usize = 24;
/// Maximum number of schemas in one operation.
const MAX_NODES: usize = 2_000;
/// Maximum bytes of texts, names and values in one operation.
const MAX_BYTES: usize = 200 << 10;
/// The same limits for its results: a client reads the schemas of all tools at once.
const MAX_RESULT_NODES: usize = 500;
const MAX_RESULT_BYTES: usize = 16 << 10;
/// Keywords kept unchanged.
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
/// Formats that help to write an argument. `time` is excluded: a gateway asserts RFC 3339's form, which has an offset, but
/// frameworks mean a time without one (`TimeOnly`, `LocalTime`).
const FORMATS: [&str; 5] = ["date-time", "date", "email", "uri", "uuid"];

/// Direction in which the values of a schema are sent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Arguments,
    Results,
}

impl Direction {
    /// Returns the mark of properties that values of this direction do not have.
    fn mark(self) -> (&'static str, SchemaChange) {
        match self {
            Direction::Arguments => ("readOnly", SchemaChange::ReadOnly),
            Direction::Results => ("writeOnly", SchemaChange::WriteOnly),
        }
    }
}

/// Translates schemas for one operation.
pub(super) struct SchemaTranslator<'a> {
    document: &'a OpenApiDocument,
    direction: Direction,
    /// Number of schemas that may still be translated.
    nodes: usize,
    /// Whether there were more.
    is_cut: bool,
    /// Remaining bytes.
    left: usize,
    /// References that are being resolved.
    within: Vec<&'a str>,
    /// The object whose parts are being translated.
    composition: Composition,
    changes: SchemaChanges,
}

impl<'a> SchemaTranslator<'a> {
    /// Translates schemas of arguments.
    pub(super) fn of(document: &'a OpenApiDocument) -> SchemaTranslator<'a> {
        SchemaTranslator::bounded(document, Direction::Arguments, (MAX_NODES, MAX_BYTES))
    }

    /// Translates schemas of results.
    pub(super) fn of_results(document: &'a OpenApiDocument) -> SchemaTranslator<'a> {
        SchemaTranslator::bounded(document, Direction::Results, (MAX_RESULT_NODES, MAX_RESULT_BYTES))
    }

    fn bounded(
        document: &'a OpenApiDocument,
        direction: Direction,
        (nodes, left): (usize, usize),
    ) -> SchemaTranslator<'a> {
        SchemaTranslator {
            document,
            direction,
            nodes,
            is_cut: false,
            left,
            within: Vec::new(),
            composition: Composition::default(),
            changes: SchemaChanges::default(),
        }
    }

    /// Translates `schema`.
    pub(super) fn take(&mut self, schema: &'a Value) -> Value {
        self.value(schema, 0)
    }

    /// Returns the differences between the translations and the document, one a line.
    pub(super) fn notes(&self) -> impl Iterator<Item = String> {
        let is_cut = self.left == 0 || self.is_cut;
        let cut = "its schemas are too large to be imported completely; the rest accepts any value";
        is_cut.then(|| cut.to_owned()).into_iter().chain(self.changes.lines())
    }

    /// Translates the schema of a value of its own; [`Self::schema`] also translates parts of one.
    fn value(&mut self, schema: &'a Value, depth: usize) -> Value {
        let around = std::mem::take(&mut self.composition);
        let mut taken = self.schema(schema, depth);
        let composition = std::mem::replace(&mut self.composition, around);
        if !composition.left_out.is_empty() {
            composition.relax(&mut taken);
        }
        taken
    }

    fn schema(&mut self, schema: &'a Value, depth: usize) -> Value {
        if depth > MAX_DEPTH {
            self.changes.add(SchemaChange::Depth);
            return json!({});
        }
        if !take(1, &mut self.nodes) {
            self.is_cut = true;
            return json!({});
        }
        let Value::Object(members) = schema else {
            // In 3.1: `true` and `false`.
            if schema.is_boolean() {
                return schema.clone();
            }
            self.changes.add(SchemaChange::Malformed);
            return json!({});
        };
        let Some(reference) = members.get("$ref").and_then(Value::as_str) else {
            return self.members(members, depth);
        };
        if self.within.contains(&reference) {
            self.changes.add(SchemaChange::Recursion);
            return json!({});
        }
        let taken = if let Ok(found) = self.document.find(reference) {
            self.within.push(reference);
            let taken = self.schema(found, depth + 1);
            self.within.pop();
            taken
        } else {
            self.changes.add(SchemaChange::Reference);
            json!({})
        };
        self.with_siblings(taken, members)
    }

    /// Adds the siblings of a reference to its target: the texts and the default (3.1), and `nullable`, which 3.0 ignores but
    /// frameworks write anyway.
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
        if let Value::Object(taken) = &mut taken {
            self.default(siblings, taken);
        }
        self.changes.add_siblings(siblings);
        taken
    }

    /// Adds the default of an argument: the value that the service assumes.
    fn default(&mut self, members: &Map<String, Value>, taken: &mut Map<String, Value>) {
        if let Some(value) = members.get("default").filter(|_| self.direction == Direction::Arguments)
            && spend(value, &mut self.left)
        {
            taken.insert("default".into(), value.clone());
        }
    }

    fn members(&mut self, members: &'a Map<String, Value>, depth: usize) -> Value {
        let mut taken = Map::new();
        for name in PLAIN {
            if let Some(value) = members.get(name)
                && spend(value, &mut self.left)
            {
                taken.insert(name.into(), value.clone());
            }
        }
        kind(members, &mut taken);
        if enumeration::repair(&mut taken) {
            self.changes.add(SchemaChange::Enumeration);
        }
        bounds(members, &mut taken);
        self.default(members, &mut taken);
        // Clients assert the formats of results, and many frameworks write times without an offset as `date-time`.
        let helps = |format: &&Value| {
            self.direction == Direction::Arguments && FORMATS.iter().any(|known| *format == known)
        };
        if let Some(format) = members.get("format").filter(helps) {
            taken.insert("format".into(), format.clone());
        }
        let had_parts = self.composition.has_parts;
        self.composition.has_parts |= composition::has_parts(members);
        let has_all = self.properties(members, &mut taken, depth);
        self.rest(members, &mut taken, (depth, has_all));
        for name in ["allOf", "anyOf", "oneOf"] {
            if let Some(Value::Array(choices)) = members.get(name).filter(|choices| **choices != json!([])) {
                let choices: Vec<Value> = choices.iter().map(|choice| self.choice(choice, depth)).collect();
                // The keywords that distinguish the choices may have been left out, so several choices may match.
                let name = if name == "oneOf" { self.any_of(&taken) } else { name };
                taken.entry(name).or_insert(Value::Array(choices));
            }
        }
        self.composition.has_parts = had_parts;
        self.changes.add_left_out(members, &taken);
        // Every choice and part of an object would otherwise have to accept null; a type of its own already does.
        let has_parts = ["anyOf", "allOf"].iter().any(|word| taken.contains_key(*word));
        let lists = taken.contains_key("enum") && !members.contains_key("type");
        if (has_parts || lists) && is_nullable(members) {
            return or_null(Value::Object(taken));
        }
        Value::Object(taken)
    }

    /// Translates one of several schemas of a value. schemars describes null by `nullable` alone.
    fn choice(&mut self, choice: &'a Value, depth: usize) -> Value {
        if *choice == json!({"nullable": true}) {
            json!({"type": "null"})
        } else {
            self.schema(choice, depth + 1)
        }
    }

    /// Translates the properties, and returns whether all that an object may have are kept.
    fn properties(
        &mut self,
        members: &'a Map<String, Value>,
        taken: &mut Map<String, Value>,
        depth: usize,
    ) -> bool {
        let mut has_all = !members.contains_key("patternProperties");
        let Some(Value::Object(properties)) = members.get("properties") else { return has_all };
        let (mark, change) = self.direction.mark();
        let mut kept = Map::new();
        for (name, property) in properties {
            if !take(name.len(), &mut self.left) {
                has_all = false;
                break;
            }
            // A property that only the service writes is not an argument, and a result has none that only clients write.
            if self.document.is_marked(property, mark) {
                self.changes.add(change);
                self.composition.left_out.insert(name.clone());
                continue;
            }
            let value = self.value(property, depth + 1);
            let is_optional = self.direction == Direction::Results && !requires(members, name);
            kept.insert(name.clone(), if is_optional { accept_null(value) } else { value });
        }
        let mut names = members.get("required").and_then(Value::as_array).into_iter().flatten();
        if names.any(|name| name.as_str().is_some_and(|name| !properties.contains_key(name))) {
            self.changes.add(SchemaChange::Required);
        }
        required(taken, &kept);
        taken.insert("properties".into(), Value::Object(kept));
        has_all
    }

    /// Returns the keyword that replaces `oneOf`; a schema that already has it loses its `oneOf`.
    fn any_of(&mut self, taken: &Map<String, Value>) -> &'static str {
        let is_lost = taken.contains_key("anyOf");
        self.changes.add(if is_lost { SchemaChange::Keyword("oneOf") } else { SchemaChange::Choice });
        "anyOf"
    }

    /// Translates the schemas of properties without a name, unless a named one is left out or described by another part.
    fn rest(
        &mut self,
        members: &'a Map<String, Value>,
        taken: &mut Map<String, Value>,
        (depth, has_all): (usize, bool),
    ) {
        if let Some(items) = members.get("items").filter(|_| !members.contains_key("prefixItems")) {
            taken.insert("items".into(), self.value(items, depth + 1));
        }
        let names_all = has_all && !self.composition.has_parts;
        // A later version of a service adds members to its answers.
        let is_kept = |values: &&Value| {
            names_all && (self.direction == Direction::Arguments || **values != Value::Bool(false))
        };
        let Some(values) = members.get("additionalProperties").filter(is_kept) else { return };
        // springdoc describes `Map<String, Object>` this way, whose values have any type.
        let values = if *values == json!({"type": "object"}) {
            self.changes.add(SchemaChange::Values);
            json!({})
        } else {
            self.value(values, depth + 1)
        };
        taken.insert("additionalProperties".into(), values);
    }
}

fn or_null(schema: Value) -> Value {
    json!({"anyOf": [schema, {"type": "null"}]})
}

/// Accepts null as well, which many services write for a member without a value.
fn accept_null(mut schema: Value) -> Value {
    let kinds = schema.get("type").and_then(Value::as_array);
    if is_untyped(&schema) || kinds.is_some_and(|kinds| kinds.iter().any(|kind| kind == "null")) {
        return schema;
    }
    let is_plain = ["enum", "const", "allOf", "anyOf"].iter().all(|word| schema.get(*word).is_none());
    match schema.get_mut("type") {
        Some(kind) if is_plain && kind.is_string() => *kind = json!([kind.clone(), "null"]),
        _ => return or_null(schema),
    }
    schema
}

/// Whether an object must have the property.
fn requires(members: &Map<String, Value>, name: &str) -> bool {
    let required = members.get("required").and_then(Value::as_array);
    required.is_some_and(|names| names.iter().any(|other| other == name))
}

/// Deducts a value's bytes from the remaining ones; false, with nothing remaining, if it is larger. Stops as soon as that is
/// clear.
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

/// Translates `type`, and `nullable` of 3.0.
fn kind(members: &Map<String, Value>, taken: &mut Map<String, Value>) {
    let known = |name: &Value| {
        matches!(
            name.as_str(),
            Some("string" | "number" | "integer" | "boolean" | "array" | "object" | "null")
        )
    };
    // YAML reads an unquoted `null` in a list of types as the value.
    let name = |name: &Value| if name.is_null() { "null".into() } else { name.clone() };
    let mut kinds: Vec<Value> = match members.get("type") {
        Some(Value::Array(kinds)) => kinds.iter().map(name).collect(),
        Some(kind) => vec![kind.clone()],
        None => return,
    };
    kinds.retain(known);
    if is_nullable(members) && !kinds.contains(&json!("null")) {
        kinds.push("null".into());
        // The enumeration would otherwise reject null.
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

/// Translates bounds: in 3.0 a separate flag makes a bound exclusive (JSON Schema draft 4), later there is a separate keyword.
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

/// Drops requirements for properties that were left out.
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
