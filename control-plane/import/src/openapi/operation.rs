//! An operation as a tool: its arguments, the HTTP request that they become, and the schema of its result.
//!
//! Refuses: required parts that a JSON or form request cannot carry (files, lists of lists in a query); optional ones are
//! left out and reported. Keeps true: a credential is never an argument; each argument has one place.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::document::{DescribedOperation, OpenApiDocument};
use super::form;
use super::schema::SchemaTranslator;
use super::skip_reason::SkipReason;
use super::values::{cut, describe, essence, is_json, one_line};

mod output;
mod parameters;
mod unread;

/// Maximum length of a tool's name in bytes.
const MAX_NAME: usize = 100;

/// Media type of a list of changes (RFC 6902). Documents list it first next to types of whole resources, and describe all of
/// them by the schema of a resource.
const JSON_PATCH: &str = "application/json-patch+json";

/// Maximum number of media types that a request accepts by name; with more, the request accepts anything.
const MAX_KINDS: usize = 8;

/// A tool, and the request of a call.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Tool {
    pub(super) name: String,
    pub(super) title: String,
    pub(super) summary: String,
    pub(super) mutation: &'static str,
    pub(super) input: Value,
    /// Schema of the result; `None` if not every successful response is a JSON object.
    pub(super) output: Option<Value>,
    pub(super) method: String,
    /// Templates over the arguments, as in `proxy.http`.
    pub(super) path: String,
    pub(super) query: Map<String, Value>,
    pub(super) headers: Map<String, Value>,
    pub(super) body: Option<Value>,
    /// Encoding of the body; `None` means JSON.
    pub(super) body_format: Option<&'static str>,
    pub(super) body_styles: Map<String, Value>,
    /// Notes on parts that were left out.
    pub(super) notes: Vec<String>,
}

/// Converts an operation to a tool.
pub(super) fn tool(document: &OpenApiDocument, found: &DescribedOperation<'_>) -> Result<Tool, SkipReason> {
    // A document must not choose the host (OpenAPI 3.1, Paths Object: a path begins with a slash).
    if !found.path.starts_with('/') {
        return Err(SkipReason::NoPath);
    }
    // An id in another script leaves no name that clients can use.
    let name = match found.id() {
        id if id.contains(|c: char| c.is_ascii_alphanumeric()) => id.to_owned(),
        _ => format!("{}-{}", found.method, found.path.replace(['{', '}'], "")),
    };
    let name: String = name.chars().take(MAX_NAME).collect();
    let said = [found.text("summary"), found.text("description")];
    let title =
        said.iter().find(|text| !text.is_empty() && text.len() <= 100).map_or(name.as_str(), |text| text);
    let mut summary = said.iter().filter(|text| !text.is_empty()).copied().collect::<Vec<_>>().join(". ");
    if summary.is_empty() {
        summary = format!("{} {}", found.method.to_uppercase(), found.path);
    }
    let mut building = Building {
        document,
        schemas: SchemaTranslator::of(document),
        names: BTreeSet::new(),
        places: BTreeMap::new(),
        properties: Map::new(),
        required: Vec::new(),
        tool: Tool {
            title: one_line(title),
            summary: cut(&summary),
            mutation: mutation(found.method),
            method: found.method.to_uppercase(),
            path: found.path.to_owned(),
            name,
            ..Tool::default()
        },
    };
    if building.tool.summary.len() < summary.trim().len() {
        building.note("its description is too long and is cut".into());
    }
    building.parameters(found)?;
    building.body(found)?;
    building.output(found);
    building.accept(found);
    building.tool.notes.extend(building.schemas.notes());
    building.note_unread(found);
    Ok(building.done())
}

/// Returns the mutation by the semantics of the method (RFC 9110 section 9.2); a call that deletes needs an approval or an
/// explicit allow.
fn mutation(method: &str) -> &'static str {
    match method {
        "get" | "head" => "read_only",
        "put" => "idempotent",
        "delete" => "destructive",
        _ => "non_idempotent",
    }
}

struct Building<'a> {
    document: &'a OpenApiDocument,
    schemas: SchemaTranslator<'a>,
    names: BTreeSet<String>,
    /// Templates of arguments by path placeholder.
    places: BTreeMap<String, String>,
    properties: Map<String, Value>,
    required: Vec<Value>,
    tool: Tool,
}

impl<'a> Building<'a> {
    /// Returns an unused argument name with only the characters that templates allow (RFC 6570 section 2.3).
    fn argument(&mut self, name: &str) -> String {
        let plain: String = name
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() || c == '_' { c } else { '_' })
            .take(64)
            .collect();
        let plain = if plain.is_empty() { "value".to_owned() } else { plain };
        let mut argument = plain.clone();
        let mut next = 2;
        while !self.names.insert(argument.clone()) {
            argument = format!("{plain}_{next}");
            next += 1;
        }
        argument
    }

    fn body(&mut self, found: &DescribedOperation<'a>) -> Result<(), SkipReason> {
        let Some(written) = found.operation.get("requestBody") else { return Ok(()) };
        let body = self.document.resolve(written)?;
        let content = body.get("content").and_then(Value::as_object).filter(|content| !content.is_empty());
        let Some(content) = content else { return self.handle_untyped_body(body) };
        let json = content.iter().filter(|(kind, media)| is_json(kind) && !self.is_bytes(media));
        let json = json.min_by_key(|(kind, _)| essence(kind) == JSON_PATCH);
        let Some((kind, media)) = json else { return self.form(body, content) };
        self.note_unread_media_types(content, kind);
        self.note_unread_members("body", media);
        let schema = match media.get("schema") {
            Some(schema) => self.schemas.take(schema),
            None => json!({}),
        };
        // A tool's property must be an object (MCP up to 2025-11-25).
        let schema = if schema.is_object() { schema } else { json!({}) };
        let kind = kind.trim();
        if !kind.eq_ignore_ascii_case("application/json") && !kind.contains(['*', '{', '}']) {
            self.tool.headers.insert("content-type".into(), kind.into());
        }
        self.add_body(body, schema);
        Ok(())
    }

    /// Handles a body without a media type: an operation that does not require it is served without it.
    fn handle_untyped_body(&mut self, body: &Value) -> Result<(), SkipReason> {
        if is_required(body) {
            return Err(SkipReason::Body(String::new()));
        }
        self.note("its body is left out: the document names no media type of it".into());
        Ok(())
    }

    /// Adds the body of an operation that does not take JSON.
    fn form(&mut self, body: &Value, content: &'a Map<String, Value>) -> Result<(), SkipReason> {
        if content.values().all(|media| self.is_empty(media)) {
            return Ok(());
        }
        let Some(form) = form::read(self.document, &mut self.schemas, content)? else {
            let kinds: Vec<String> = content.keys().map(|kind| one_line(kind)).collect();
            return Err(SkipReason::Body(kinds.join(", ")));
        };
        self.note_unread_media_types(content, form.kind);
        if let Some(media) = content.get(form.kind) {
            self.note_unread_members("body", media);
        }
        self.tool.body_format = Some(form.format);
        self.tool.body_styles = form.styles;
        self.tool.notes.extend(form.notes);
        self.add_body(body, form.schema);
        Ok(())
    }

    fn add_body(&mut self, body: &Value, mut schema: Value) {
        describe(&mut schema, body.get("description"));
        let argument = self.argument("body");
        self.tool.body = Some(format!("/{argument}").into());
        self.properties.insert(argument.clone(), schema);
        if is_required(body) {
            self.required.push(argument.into());
        }
    }

    /// Accepts the media types of the successful responses by name if plain JSON is not among them: some services return
    /// these only if the request names them.
    fn accept(&mut self, found: &DescribedOperation<'a>) {
        let document = self.document;
        let responses = found.operation.get("responses").and_then(Value::as_object);
        let successes = responses.into_iter().flatten().filter(|(status, _)| status.starts_with('2'));
        let contents = successes
            .filter_map(|(_, response)| document.resolve(response).ok()?.get("content")?.as_object());
        let kinds: BTreeSet<&str> = contents.flat_map(Map::keys).map(|kind| kind.trim()).collect();
        if kinds.is_empty()
            || kinds.len() > MAX_KINDS
            || kinds.iter().any(|kind| is_accepted_by_default(kind))
            || !kinds.iter().all(|kind| is_media_type(kind))
            || self.tool.headers.contains_key("accept")
        {
            return;
        }
        let kinds: Vec<&str> = kinds.into_iter().collect();
        self.tool.headers.insert("accept".into(), format!("{}, */*;q=0.5", kinds.join(", ")).into());
    }

    /// Whether a body is binary, which some documents describe under `*/*`.
    fn is_bytes(&self, media: &Value) -> bool {
        let schema = media.get("schema").and_then(|schema| self.document.resolve(schema).ok());
        schema.and_then(|schema| schema.get("format")).is_some_and(|format| format == "binary")
    }

    /// Whether a form has no fields, which is how some documents describe a request without a body.
    fn is_empty(&self, media: &Value) -> bool {
        let Some(schema) = media.get("schema").and_then(|schema| self.document.resolve(schema).ok()) else {
            return false;
        };
        let without = |member: &str| schema.get(member).is_none_or(|value| value == &json!({}));
        schema.get("type").is_some_and(|kind| kind == "object")
            && without("properties")
            && schema.as_object().is_some_and(|members| {
                members
                    .keys()
                    .all(|member| ["type", "properties", "description", "title"].contains(&member.as_str()))
            })
    }

    fn done(mut self) -> Tool {
        let mut input = Map::from_iter([
            ("type".to_owned(), "object".into()),
            ("properties".to_owned(), Value::Object(self.properties)),
        ]);
        if !self.required.is_empty() {
            input.insert("required".into(), Value::Array(self.required));
        }
        self.tool.input = Value::Object(input);
        self.tool
    }
}

/// Whether a request accepts the media type without naming it.
fn is_accepted_by_default(kind: &str) -> bool {
    ["application/json", "application/*", "*/*"].contains(&essence(kind).as_str())
}

/// Whether a header can name the media type.
fn is_media_type(kind: &str) -> bool {
    kind.contains('/') && kind.bytes().all(|byte| (b' '..=b'~').contains(&byte) && !b"{},".contains(&byte))
}

fn is_required(body: &Value) -> bool {
    body.get("required") == Some(&Value::Bool(true))
}

#[cfg(test)]
mod tests;
