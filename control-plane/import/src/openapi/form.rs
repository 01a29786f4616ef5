//! The form that an operation takes as its body: its encoding, and the fields that are sent as text.
//!
//! Refuses: forms that require a file, and bodies that are not objects. Keeps true: a field that is left out is reported; a
//! field is encoded as the document says (Encoding Object of OpenAPI 3.0 and 3.1), or not sent.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::document::{DocumentFault, OpenApiDocument};
use super::schema::SchemaTranslator;
use super::skip_reason::SkipReason;
use super::values::{essence, is_object, is_scalar, one_line, requires};

/// Media types of forms with their names in specs; if an operation takes both, the first is used.
const FORMATS: [(&str, &str); 2] =
    [("application/x-www-form-urlencoded", "form"), ("multipart/form-data", "multipart")];
/// Maximum number of schemas searched for the fields of one form: many times that of the largest public ones.
const MAX_STEPS: usize = 20_000;
/// Maximum nesting of compositions searched for fields, and of lists and choices searched for a file.
const MAX_DEPTH: usize = 8;

/// A form in terms of a spec.
pub(super) struct FormBody<'a> {
    /// Media type as the document writes it.
    pub(super) kind: &'a str,
    pub(super) format: &'static str,
    pub(super) schema: Value,
    /// Styles of fields, for `bodyStyles`.
    pub(super) styles: Map<String, Value>,
    /// Notes on fields that were left out.
    pub(super) notes: Vec<String>,
}

/// A field as the document describes it.
struct Field<'a> {
    name: &'a str,
    schema: &'a Value,
    /// Whether it belongs to one of several forms among which the caller chooses.
    is_in_choice: bool,
}

/// Reads the first form that can be sent; `None` if `content` has none.
pub(super) fn read<'a>(
    document: &'a OpenApiDocument,
    schemas: &mut SchemaTranslator<'a>,
    content: &'a Map<String, Value>,
) -> Result<Option<FormBody<'a>>, SkipReason> {
    let mut refused = None;
    for (kind, format) in FORMATS {
        let Some((kind, media)) = content.iter().find(|(written, _)| essence(written) == kind) else {
            continue;
        };
        let Some(written) = media.get("schema") else { continue };
        document.resolve(written)?;
        let schema = schemas.take(written);
        if !is_object(&schema) {
            continue;
        }
        let form = FormBody { kind, format, schema, styles: Map::new(), notes: Vec::new() };
        match form.with_fields(document, written, media.get("encoding")) {
            Ok(form) => return Ok(Some(form)),
            Err(why) => refused = refused.or(Some(why)),
        }
    }
    refused.map_or(Ok(None), Err)
}

impl<'a> FormBody<'a> {
    fn with_fields(
        mut self,
        document: &'a OpenApiDocument,
        written: &'a Value,
        encodings: Option<&Value>,
    ) -> Result<FormBody<'a>, SkipReason> {
        if let Some(members) = self.schema.as_object_mut() {
            members.insert("type".into(), "object".into());
        }
        let mut search = Search { document, steps: MAX_STEPS };
        let mut fields = Vec::new();
        search.fields((written, false), 0, &mut fields)?;
        let mut sent = 0;
        let mut seen = BTreeSet::new();
        for field in fields.iter().filter(|field| seen.insert(field.name)) {
            let encoding = encodings.and_then(|all| all.get(field.name));
            let Some(why) = search.encoding_fault(field, encoding) else {
                sent += 1;
                self.style(field.name, encoding);
                if encoding.is_some_and(|encoding| encoding.get("headers").is_some()) {
                    self.notes
                        .push(format!("the headers of its form field {} are left out", one_line(field.name)));
                }
                continue;
            };
            let name = one_line(field.name);
            if field.is_in_choice || requires(&self.schema, field.name) {
                return Err(SkipReason::Field { name, why });
            }
            remove(&mut self.schema, field.name);
            self.notes.push(format!("its form field {name} is left out: it {why}"));
        }
        match sent == 0 && !self.notes.is_empty() {
            true => Err(SkipReason::NoField),
            false => Ok(self),
        }
    }

    fn style(&mut self, name: &str, encoding: Option<&Value>) {
        let is_deep =
            encoding.and_then(|encoding| encoding.get("style")).is_some_and(|style| style == "deepObject");
        if is_deep {
            self.styles.insert(name.into(), "deepObject".into());
        } else if name.contains(['[', ']', '\\']) || name.contains("=?") || name.trim() != name {
            // A gateway would take such a name for part of another field, unless the spec lists it.
            self.styles.insert(name.into(), "form".into());
        }
    }
}

/// Search through the schemas of one form.
struct Search<'a> {
    document: &'a OpenApiDocument,
    /// Number of schemas that may still be searched.
    steps: usize,
}

impl<'a> Search<'a> {
    /// Deducts schemas from the remaining ones; false if there are fewer.
    fn step(&mut self, schemas: usize) -> bool {
        let left = self.steps.checked_sub(schemas);
        self.steps = left.unwrap_or(0);
        left.is_some()
    }

    /// Adds the fields of a schema and of the schemas it is composed of.
    fn fields(
        &mut self,
        (written, is_in_choice): (&'a Value, bool),
        depth: usize,
        found: &mut Vec<Field<'a>>,
    ) -> Result<(), DocumentFault> {
        let schema = self.document.resolve(written)?;
        let properties = schema.get("properties").and_then(Value::as_object);
        if depth > MAX_DEPTH || !self.step(1 + properties.map_or(0, Map::len)) {
            return Ok(());
        }
        for (name, property) in properties.into_iter().flatten() {
            if !self.document.is_marked(property, "readOnly") {
                found.push(Field { name, schema: self.document.resolve(property)?, is_in_choice });
            }
        }
        for (word, is_choice) in [("allOf", false), ("oneOf", true), ("anyOf", true)] {
            for part in schema.get(word).and_then(Value::as_array).into_iter().flatten() {
                self.fields((part, is_in_choice || is_choice), depth + 1, found)?;
            }
        }
        Ok(())
    }

    /// Returns why a field cannot be sent as the document describes it.
    fn encoding_fault(&mut self, field: &Field<'a>, encoding: Option<&Value>) -> Option<&'static str> {
        if self.is_file(field.schema, 0) {
            return Some("is a file");
        }
        let says = |member: &str| encoding.and_then(|encoding| encoding.get(member));
        let text = |member: &str| says(member).and_then(Value::as_str);
        let is_object = field.schema.get("type").is_some_and(|kind| kind == "object");
        match text("contentType").map(essence).as_deref() {
            None | Some("text/plain") => {}
            Some("application/json") if is_object => {}
            Some(_) => return Some("has a content type of its own"),
        }
        match text("style") {
            Some("deepObject") => None,
            Some("form") if is_object => Some("is an object that is sent as one field per member"),
            None | Some("form")
                if is_scalar(field.schema) || says("explode") != Some(&Value::Bool(false)) =>
            {
                None
            }
            _ => Some("is a list in one text"),
        }
    }

    /// Whether the value is binary: `format: binary` in 3.0, `contentMediaType` in 3.1.
    fn is_file(&mut self, written: &'a Value, depth: usize) -> bool {
        let Ok(schema) = self.document.resolve(written) else { return false };
        let text = |member: &str| schema.get(member).and_then(Value::as_str);
        let is_media = text("contentMediaType")
            .is_some_and(|kind| !kind.starts_with("text/") && essence(kind) != "application/json");
        if text("format") == Some("binary") || is_media && text("contentEncoding").is_none() {
            return true;
        }
        if depth == MAX_DEPTH || !self.step(1) {
            return false;
        }
        let choices = ["allOf", "anyOf", "oneOf"].iter().filter_map(|word| schema.get(*word)?.as_array());
        let mut parts = choices.flatten().chain(schema.get("items"));
        parts.any(|part| self.is_file(part, depth + 1))
    }
}

/// Removes a property from a schema and from those it is composed of.
fn remove(schema: &mut Value, name: &str) {
    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        properties.shift_remove(name);
    }
    for part in schema.get_mut("allOf").and_then(Value::as_array_mut).into_iter().flatten() {
        remove(part, name);
    }
}

#[cfg(test)]
#[path = "form/tests.rs"]
mod tests;
