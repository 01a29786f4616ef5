//! Differences between the schemas of a document and those of a tool, for the report.
//!
//! Keeps true: each keyword that is left out is named once per tool; a document cannot make the list longer than that of the
//! known keywords.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

/// Keywords that are reported if they are left out (JSON Schema draft 4 to 2020-12; OpenAPI 3.2, Schema Object).
const KEYWORDS: [&str; 40] = [
    "$dynamicRef",
    "additionalItems",
    "additionalProperties",
    "const",
    "contains",
    "contentEncoding",
    "contentMediaType",
    "contentSchema",
    "default",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "deprecated",
    "discriminator",
    "else",
    "enum",
    "example",
    "examples",
    "externalDocs",
    "format",
    "if",
    "items",
    "maxContains",
    "maxItems",
    "maxLength",
    "maxProperties",
    "minContains",
    "minItems",
    "minLength",
    "minProperties",
    "not",
    "pattern",
    "patternProperties",
    "prefixItems",
    "propertyNames",
    "then",
    "type",
    "unevaluatedItems",
    "unevaluatedProperties",
    "xml",
];
/// Keywords that are converted, mean nothing for arguments, or only hold the targets of references.
const REWRITTEN: [&str; 23] = [
    "$anchor",
    "$comment",
    "$defs",
    "$dynamicAnchor",
    "$id",
    "$ref",
    "$schema",
    "allOf",
    "anyOf",
    "definitions",
    "description",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "maximum",
    "minimum",
    "multipleOf",
    "nullable",
    "oneOf",
    "properties",
    "readOnly",
    "required",
    "title",
    "writeOnly",
];
/// Members next to a reference that are kept or mean nothing for arguments.
const BESIDE: [&str; 8] =
    ["$comment", "$ref", "default", "description", "nullable", "readOnly", "title", "writeOnly"];

/// A difference between a schema in the document and the tool's schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub(super) enum SchemaChange {
    #[error(
        "an `enum` of its schemas contradicts its `type`: the values are taken as those of the type; where they cannot be, \
         the `type` is left out, of a list or an object the `enum`"
    )]
    Enumeration,
    /// The values of a map were described as objects without members.
    #[error(
        "`additionalProperties: {{type: object}}` of its schemas accepts any value: frameworks describe values of any type \
         so"
    )]
    Values,
    /// A property that only the service writes.
    #[error("properties of its schemas that are `readOnly` are left out")]
    ReadOnly,
    /// A property that only clients write.
    #[error("properties of its schemas that are `writeOnly` are left out")]
    WriteOnly,
    #[error("`oneOf` of its schemas is imported as `anyOf`")]
    Choice,
    #[error("`{0}` of its schemas is left out")]
    Keyword(&'static str),
    #[error("members of its schemas that are not known keywords are left out")]
    Unknown,
    #[error("members next to a `$ref` of its schemas are left out")]
    Beside,
    /// A reference that leads back to itself.
    #[error("a schema of it within itself accepts anything")]
    Recursion,
    /// A reference to another document, or to a part that this one lacks.
    #[error("a `$ref` of its schemas that leads to nothing in the document accepts anything")]
    Reference,
    #[error("schemas of it that are neither objects nor booleans accept anything")]
    Malformed,
    #[error("names in `required` of its schemas that are not in `properties` are left out")]
    Required,
    #[error("schemas of it that are nested too deep accept anything")]
    Depth,
}

/// Changes to the schemas of one operation.
#[derive(Default)]
pub(super) struct SchemaChanges(BTreeSet<SchemaChange>);

impl SchemaChanges {
    pub(super) fn add(&mut self, change: SchemaChange) {
        self.0.insert(change);
    }

    /// Adds the members of a schema that are left out. Extensions (`x-`) mean nothing to a schema.
    pub(super) fn add_left_out(&mut self, written: &Map<String, Value>, taken: &Map<String, Value>) {
        let is_left_out =
            |name: &str| !taken.contains_key(name) && !REWRITTEN.contains(&name) && !name.starts_with("x-");
        for name in written.keys().filter(|name| is_left_out(name)) {
            let keyword = KEYWORDS.iter().copied().find(|keyword| keyword == name);
            self.add(keyword.map_or(SchemaChange::Unknown, SchemaChange::Keyword));
        }
    }

    /// Adds the members next to a reference that are left out.
    pub(super) fn add_siblings(&mut self, written: &Map<String, Value>) {
        if written.keys().any(|name| !BESIDE.contains(&name.as_str()) && !name.starts_with("x-")) {
            self.add(SchemaChange::Beside);
        }
    }

    /// Returns the changes, one a line.
    pub(super) fn lines(&self) -> impl Iterator<Item = String> {
        self.0.iter().map(SchemaChange::to_string)
    }
}
