//! One operation as a tool: its arguments, and the one HTTP request that they become.
//!
//! Refuses: what one request of JSON or of a form cannot carry (files, arrays in a query) where the operation needs it;
//! what is optional is left out and told. Keeps true: a credential is never an argument; each argument has one place.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::document::{Document, Fault, Found};
use super::form;
use super::schema::Schemas;

/// Longest summary in bytes.
const MAX_SUMMARY: usize = 4 * 1024;
/// Longest name of a tool in bytes.
const MAX_NAME: usize = 100;
/// Most parameters of one operation.
const MAX_PARAMETERS: usize = 200;
/// Names of parameters that carry credentials: letters alone, in lower case.
const SECRETS: [&str; 21] = [
    "apikey",
    "accesstoken",
    "authtoken",
    "authorization",
    "token",
    "secret",
    "clientsecret",
    "password",
    "key",
    "session",
    "sessionid",
    "sid",
    "jwt",
    "bearer",
    "signature",
    "sig",
    "otp",
    "pin",
    "passwd",
    "pwd",
    "passphrase",
];
/// Secrets by their whole name only: other words end in them (`shopping`, `monkey`).
const WHOLE: [&str; 8] = ["key", "session", "sid", "sig", "otp", "pin", "pwd", "signature"];
/// Words before `token` that name a place in a list (page tokens of public APIs), no credential.
const PLACES: [&str; 12] = [
    "page",
    "next",
    "nextpage",
    "prev",
    "previous",
    "previouspage",
    "continuation",
    "continue",
    "sync",
    "cursor",
    "start",
    "starting",
];
/// Headers that belong to the request itself, beside those that specs may not set.
const FRAMING: [&str; 2] = ["accept", "content-type"];

/// A tool, and the request of a call.
#[derive(Debug, PartialEq)]
pub(super) struct Tool {
    pub(super) name: String,
    pub(super) title: String,
    pub(super) summary: String,
    pub(super) mutation: &'static str,
    pub(super) input: Value,
    pub(super) method: String,
    /// Templates over the arguments, as `proxy.http` has them.
    pub(super) path: String,
    pub(super) query: Map<String, Value>,
    pub(super) headers: Map<String, Value>,
    pub(super) body: Option<Value>,
    /// The encoding of the body, JSON where nothing is said.
    pub(super) body_format: Option<&'static str>,
    pub(super) body_styles: Map<String, Value>,
    /// What was left out.
    pub(super) notes: Vec<String>,
}

/// Why an operation is no tool.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unfit {
    #[error(transparent)]
    Document(#[from] Fault),
    #[error("its required parameter {name} {why}")]
    Parameter { name: String, why: &'static str },
    #[error("it has more than {MAX_PARAMETERS} parameters")]
    TooMany,
    #[error("its path has a place that no parameter fills: {0}")]
    Path(String),
    #[error("its path does not begin with a slash, so that it would be a part of the host's name")]
    NoPath,
    #[error("its body is neither JSON nor a form: {0}")]
    Body(String),
    #[error("its required form field {name} {why}")]
    Field { name: String, why: &'static str },
    #[error("its form has no field that can be sent as text")]
    NoField,
}

/// What the operation becomes.
pub(super) fn tool(document: &Document, found: &Found<'_>) -> Result<Tool, Unfit> {
    // A document chooses no host (OpenAPI 3.1, Paths Object: a path begins with a slash).
    if !found.path.starts_with('/') {
        return Err(Unfit::NoPath);
    }
    let name = match found.id() {
        "" => format!("{}-{}", found.method, found.path.replace(['{', '}'], "")),
        id => id.to_owned(),
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
        schemas: Schemas::of(document),
        names: BTreeSet::new(),
        properties: Map::new(),
        required: Vec::new(),
        tool: Tool {
            title: one_line(title),
            summary: cut(&summary),
            mutation: mutation(found.method),
            input: Value::Null,
            method: found.method.to_uppercase(),
            path: found.path.to_owned(),
            query: Map::new(),
            headers: Map::new(),
            body: None,
            body_format: None,
            body_styles: Map::new(),
            notes: Vec::new(),
            name,
        },
    };
    building.parameters(found)?;
    building.body(found)?;
    if building.schemas.is_cut() {
        let note = "its schemas are too large to be taken over whole; what lies beyond accepts anything";
        building.tool.notes.push(note.into());
    }
    building.unread(found);
    building.done()
}

/// By the semantics of methods (RFC 9110 section 9.2); what deletes needs an approval or an explicit allow.
fn mutation(method: &str) -> &'static str {
    match method {
        "get" | "head" => "read_only",
        "put" => "idempotent",
        "delete" => "destructive",
        _ => "non_idempotent",
    }
}

struct Building<'a> {
    document: &'a Document,
    schemas: Schemas<'a>,
    names: BTreeSet<String>,
    properties: Map<String, Value>,
    required: Vec<Value>,
    tool: Tool,
}

impl<'a> Building<'a> {
    fn parameters(&mut self, found: &Found<'a>) -> Result<(), Unfit> {
        let own = found.operation.get("parameters");
        let mut seen = BTreeSet::new();
        // An operation's own parameter replaces one of its path (OpenAPI 3.1, Operation Object).
        for list in [own, found.shared].into_iter().flatten() {
            for written in list.as_array().into_iter().flatten() {
                let parameter = self.document.resolved(written)?;
                let text = |name: &str| parameter.get(name).and_then(Value::as_str).unwrap_or_default();
                let name = text("name");
                let place = text("in");
                if seen.insert((name.to_owned(), place.to_owned())) {
                    self.parameter(parameter, name, place)?;
                }
                if seen.len() > MAX_PARAMETERS {
                    return Err(Unfit::TooMany);
                }
            }
        }
        let path = &self.tool.path;
        let open = path.split('{').skip(1).filter_map(|rest| rest.split('}').next());
        let unfilled = open.into_iter().find(|name| !self.properties.contains_key(*name)).map(str::to_owned);
        unfilled.map_or(Ok(()), |name| Err(Unfit::Path(name)))
    }

    fn parameter(&mut self, parameter: &'a Value, name: &str, place: &str) -> Result<(), Unfit> {
        let is_required = place == "path" || parameter.get("required") == Some(&Value::Bool(true));
        let lower = name.to_ascii_lowercase();
        let schema = match parameter.get("schema") {
            Some(schema) => self.schemas.take(schema)?,
            None => Value::Null,
        };
        let misfit = match place {
            _ if name.is_empty() => Some("has no name"),
            "path" if !self.tool.path.contains(&format!("{{{name}}}")) => Some("is not in its path"),
            "query" | "header" if self.document.is_key(name, place) => {
                let left = format!(
                    "its {place} parameter {} is left out: it is a key of the document's security, for which the \
                     operator names a credential (`--credential`)",
                    one_line(name)
                );
                self.tool.notes.push(left);
                return Ok(());
            }
            "query" | "header" if is_secret(&lower) => {
                Some("looks like a credential, which is never an argument")
            }
            "header" if FRAMING.contains(&lower.as_str()) || asp_registry::is_refused_header(&lower) => {
                self.tool.notes.push(format!("its header parameter {} is left out", one_line(name)));
                return Ok(());
            }
            "path" | "query" | "header" => unwritable(parameter, place, &schema),
            "cookie" => Some("is a cookie"),
            _ => Some("is in no place that is known here"),
        };
        if let Some(why) = misfit {
            if is_required {
                return Err(Unfit::Parameter { name: one_line(name), why });
            }
            self.tool.notes.push(format!("its {place} parameter {} is left out: it {why}", one_line(name)));
            return Ok(());
        }
        let argument = self.argument(name);
        let template = format!("{{{argument}}}");
        match place {
            "path" => self.tool.path = self.tool.path.replace(&format!("{{{name}}}"), &template),
            "query" => drop(self.tool.query.insert(name.to_owned(), template.into())),
            _ => drop(self.tool.headers.insert(lower, template.into())),
        }
        let mut schema = schema;
        if let (Some(text), Value::Object(members)) = (parameter.get("description"), &mut schema) {
            members.insert("description".into(), cut(text.as_str().unwrap_or_default()).into());
        }
        self.properties.insert(argument.clone(), schema);
        if is_required {
            self.required.push(argument.into());
        }
        Ok(())
    }

    /// A free name for an argument, of what templates allow (RFC 6570 section 2.3).
    fn argument(&mut self, name: &str) -> String {
        let plain: String = name
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() || c == '_' { c } else { '_' })
            .take(64)
            .collect();
        let mut argument = plain.clone();
        let mut next = 2;
        while !self.names.insert(argument.clone()) {
            argument = format!("{plain}_{next}");
            next += 1;
        }
        argument
    }

    fn body(&mut self, found: &Found<'a>) -> Result<(), Unfit> {
        let Some(written) = found.operation.get("requestBody") else { return Ok(()) };
        let body = self.document.resolved(written)?;
        let is_required = body.get("required") == Some(&Value::Bool(true));
        let content = body.get("content").and_then(Value::as_object);
        let json = content.into_iter().flatten().find(|(kind, _)| is_json(kind));
        let Some((kind, media)) = json else { return self.form(content, is_required) };
        let schema = match media.get("schema") {
            Some(schema) => self.schemas.take(schema)?,
            None => json!({}),
        };
        // A property of a tool is an object (MCP up to 2025-11-25).
        let schema = if schema.is_object() { schema } else { json!({}) };
        let kind = kind.trim();
        if !kind.eq_ignore_ascii_case("application/json") && !kind.contains(['*', '{', '}']) {
            self.tool.headers.insert("content-type".into(), kind.into());
        }
        self.add_body(schema, is_required)
    }

    /// The body of an operation that takes no JSON.
    fn form(&mut self, content: Option<&'a Map<String, Value>>, is_required: bool) -> Result<(), Unfit> {
        let Some(content) = content else {
            return if is_required { Err(Unfit::Body(String::new())) } else { Ok(()) };
        };
        if content.values().all(|media| self.is_empty(media)) {
            return Ok(());
        }
        let Some(form) = form::read(self.document, &mut self.schemas, content)? else {
            let kinds: Vec<String> = content.keys().map(|kind| one_line(kind)).collect();
            return Err(Unfit::Body(kinds.join(", ")));
        };
        self.tool.body_format = Some(form.format);
        self.tool.body_styles = form.styles;
        self.tool.notes.extend(form.notes);
        self.add_body(form.schema, is_required)
    }

    fn add_body(&mut self, schema: Value, is_required: bool) -> Result<(), Unfit> {
        let argument = self.argument("body");
        if argument != "body" {
            let why = "has the name of the argument that its body becomes";
            return Err(Unfit::Parameter { name: "body".into(), why });
        }
        self.tool.body = Some("/body".into());
        self.properties.insert(argument.clone(), schema);
        if is_required {
            self.required.push(argument.into());
        }
        Ok(())
    }

    /// Whether a form has no fields, as some documents describe a request without a body.
    fn is_empty(&self, media: &Value) -> bool {
        let Some(schema) = media.get("schema").and_then(|schema| self.document.resolved(schema).ok()) else {
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

    /// Says what of the operation means nothing here.
    fn unread(&mut self, found: &Found<'a>) {
        let is_there = |value: Option<&Value>| {
            value.is_some_and(|value| {
                !matches!(value, Value::Null) && value != &json!([]) && value != &json!({})
            })
        };
        if is_there(found.operation.get("security").or(self.document.security())) {
            let note = "its security is left out: the operator names a credential (`--credential`)";
            self.tool.notes.push(note.into());
        }
        for member in ["callbacks", "servers"] {
            if is_there(found.operation.get(member)) {
                self.tool.notes.push(format!("its {member} are left out"));
            }
        }
        let responses = found.operation.get("responses").and_then(Value::as_object);
        for (member, are) in [("content", "is"), ("headers", "are"), ("links", "are")] {
            let has = |response: &Value| {
                self.document.resolved(response).is_ok_and(|response| is_there(response.get(member)))
            };
            if responses.into_iter().flatten().any(|(_, response)| has(response)) {
                let note = format!("the {member} of its responses {are} left out");
                self.tool.notes.push(note);
            }
        }
    }

    fn done(mut self) -> Result<Tool, Unfit> {
        if self.tool.input.is_null() {
            self.tool.input = json!({"type": "object", "properties": self.properties});
            if let (false, Value::Object(input)) = (self.required.is_empty(), &mut self.tool.input) {
                input.insert("required".into(), Value::Array(self.required));
            }
        }
        Ok(self.tool)
    }
}

/// `application/json`, and whatever says `+json` or stands for any type, whatever its case and parameters.
fn is_json(kind: &str) -> bool {
    let kind = essence(kind);
    kind == "application/json"
        || kind == "text/json"
        || kind.ends_with("+json")
        || kind == "*/*"
        || kind == "application/*"
}

/// A media type without its parameters, in lower case.
pub(super) fn essence(kind: &str) -> String {
    kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// Returns the reason for which a value is not one text in its place; `None` where it is (OpenAPI 3.1, Parameter Object).
fn unwritable(parameter: &Value, place: &str, schema: &Value) -> Option<&'static str> {
    let style = parameter.get("style").and_then(Value::as_str);
    if parameter.get("content").is_some() {
        Some("is written in a media type of its own")
    } else if place == "path" && matches!(style, Some("label" | "matrix")) {
        Some("is written in a style that is not served here")
    } else if !is_scalar(schema) {
        Some("is more than one text or number")
    } else {
        None
    }
}

/// Whether its values are written as one text.
pub(super) fn is_scalar(schema: &Value) -> bool {
    if let Some(choices) = ["anyOf", "oneOf"].iter().find_map(|word| schema.get(*word)?.as_array()) {
        return !choices.is_empty()
            && choices.iter().all(|choice| is_scalar(choice) || choice.get("type") == Some(&json!("null")));
    }
    if let Some([only]) = schema.get("allOf").and_then(Value::as_array).map(Vec::as_slice)
        && schema.get("type").is_none()
    {
        return is_scalar(only);
    }
    let scalar = |kind: &Value| matches!(kind.as_str(), Some("string" | "number" | "integer" | "boolean"));
    match schema.get("type") {
        Some(Value::Array(kinds)) => {
            !kinds.is_empty() && kinds.iter().all(|kind| scalar(kind) || kind == "null")
        }
        Some(kind) => scalar(kind),
        None => schema
            .get("enum")
            .and_then(Value::as_array)
            .is_some_and(|values| values.iter().all(Value::is_string)),
    }
}

fn is_secret(lower: &str) -> bool {
    let letters: String = lower.chars().filter(char::is_ascii_alphabetic).collect();
    if letters.strip_suffix("token").is_some_and(|place| PLACES.iter().any(|word| place.ends_with(word))) {
        return false;
    }
    SECRETS.iter().any(|secret| letters == *secret || letters.ends_with(secret) && !WHOLE.contains(secret))
}

/// Text without line ends and other controls.
pub(super) fn one_line(text: &str) -> String {
    let plain: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(200).collect();
    plain.trim().to_owned()
}

fn cut(text: &str) -> String {
    let mut end = text.len().min(MAX_SUMMARY);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default().trim().to_owned()
}
