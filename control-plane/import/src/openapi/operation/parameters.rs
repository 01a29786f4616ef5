//! The parameters of an operation as arguments of its tool.
//!
//! Refuses: credentials, cookies, and required parameters whose serialization a spec's templates cannot express.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::super::document::DescribedOperation;
use super::super::skip_reason::{MAX_PARAMETERS, SkipReason};
use super::super::values::{
    Kind, describe, is_json, is_untyped, kinds, one_line, parts, requires, type_as_text,
};
use super::{Building, is_accepted_by_default, is_media_type};

mod path;

/// Names of parameters that carry credentials: letters only, in lower case.
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
/// Names of secrets that must match as a whole, because other words end in them (`shopping`, `monkey`).
const WHOLE: [&str; 8] = ["key", "session", "sid", "sig", "otp", "pin", "pwd", "signature"];
/// Words before `token` that name a position in a list (page tokens of public APIs) rather than a credential.
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
/// Headers that belong to the request itself, in addition to those that specs may not set.
const FRAMING: [&str; 2] = ["accept", "content-type"];

/// Serialization of a parameter's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    /// A single text, or a list separated by commas.
    Plain,
    /// A list that repeats the parameter, or an object in brackets.
    Exploded,
    /// A list that repeats the parameter, with brackets after its name.
    Bracketed,
    /// An object each of whose members is a parameter.
    Members,
}

/// A parameter, or a member of one that is serialized in the same way.
struct Parameter<'p> {
    name: &'p str,
    place: &'p str,
    /// The parameter object with style, description and media type.
    written: &'p Value,
    schema: Value,
    is_required: bool,
    is_member: bool,
}

impl<'a> Building<'a> {
    pub(super) fn parameters(&mut self, found: &DescribedOperation<'a>) -> Result<(), SkipReason> {
        let own = found.operation.get("parameters");
        let mut seen = BTreeSet::new();
        // An operation's own parameter replaces one of its path (OpenAPI 3.1, Operation Object).
        for list in [own, found.shared].into_iter().flatten() {
            for written in list.as_array().into_iter().flatten() {
                let written = self.document.resolve(written)?;
                let text = |name: &str| written.get(name).and_then(Value::as_str).unwrap_or_default();
                let (name, place) = (text("name"), text("in"));
                if seen.insert((name, place)) {
                    let schema = self.schema_of(written, place);
                    let is_required = place == "path" || written.get("required") == Some(&Value::Bool(true));
                    let is_member = false;
                    self.parameter(Parameter { name, place, written, schema, is_required, is_member })?;
                }
                if seen.len().max(self.properties.len()) > MAX_PARAMETERS {
                    return Err(SkipReason::TooMany);
                }
            }
        }
        self.path(found.path, |name| seen.contains(&(name, "query")));
        Ok(())
    }

    /// Returns the schema of an argument. A value serialized as JSON is a text argument, because the request carries it
    /// unchanged.
    fn schema_of(&mut self, written: &'a Value, place: &str) -> Value {
        let Some(media) = json_media(written, place) else {
            return written.get("schema").map_or(Value::Null, |schema| self.schemas.take(schema));
        };
        self.note_unread_members("parameters", media);
        let content = media.get("schema").map_or_else(|| json!({}), |schema| self.schemas.take(schema));
        json!({"type": "string", "contentMediaType": "application/json", "contentSchema": content})
    }

    fn parameter(&mut self, mut parameter: Parameter<'_>) -> Result<(), SkipReason> {
        let Parameter { name, place, .. } = parameter;
        let is_untyped = is_untyped(&parameter.schema);
        if is_untyped {
            type_as_text(&mut parameter.schema);
        }
        let lower = name.to_ascii_lowercase();
        let is_key = matches!(place, "query" | "header" | "cookie") && self.document.is_key(name, place);
        // In a header or a cookie, such a name cannot be what the operation is about.
        let credential = match place {
            _ if is_key => Some("is a key of the document's security"),
            "header" | "cookie" if is_secret(&lower) => Some("looks like a credential"),
            _ => None,
        };
        if let Some(credential) = credential {
            self.leave_out_credential(place, name, credential);
            return Ok(());
        }
        let shape = match place {
            _ if name.is_empty() => Err("has no name"),
            "path" if !self.tool.path.contains(&format!("{{{name}}}")) => Err("is not in its path"),
            "query" if is_secret(&lower) => Err("looks like a credential, which is never an argument"),
            "header" if FRAMING.contains(&lower.as_str()) || asp_registry::is_refused_header(&lower) => {
                self.handle_framing_header(&parameter, &lower);
                return Ok(());
            }
            "path" | "query" | "header" => shape(&parameter),
            "cookie" => Err("is a cookie"),
            _ => Err("is in no place that is known here"),
        };
        let shape = match shape {
            Ok(shape) if self.is_taken(name, place, shape) => Err("has the name of another one"),
            shape => shape,
        };
        match shape {
            Ok(Shape::Members) => self.members(&parameter),
            Ok(shape) => {
                if is_untyped {
                    self.note_parameter(place, name, "has no type: it is imported as text");
                }
                self.add(parameter, shape);
                Ok(())
            }
            Err(why) if parameter.is_required => Err(SkipReason::Parameter { name: one_line(name), why }),
            Err(why) => {
                self.note_parameter(place, name, &format!("is left out: it {why}"));
                Ok(())
            }
        }
    }

    /// Handles a header that belongs to the request itself. If the document gives `Accept` one value, that is sent: some
    /// services choose a version by it.
    fn handle_framing_header(&mut self, parameter: &Parameter<'_>, lower: &str) {
        match self.only_media_type(parameter.written) {
            Some(kind) if lower == "accept" => drop(self.tool.headers.insert(lower.into(), kind.into())),
            _ => self.note_parameter("header", parameter.name, "is left out"),
        }
    }

    /// Returns the only or default value of a parameter, if it is a media type other than plain JSON.
    fn only_media_type(&self, written: &Value) -> Option<String> {
        let schema = self.document.resolve(written.get("schema")?).ok()?;
        let only = match schema.get("enum").and_then(Value::as_array).map(Vec::as_slice) {
            Some([only]) => Some(only),
            _ => schema.get("const").or(schema.get("default")),
        };
        let kind = only?.as_str()?.trim();
        (is_media_type(kind) && !is_accepted_by_default(kind)).then(|| kind.to_owned())
    }

    fn leave_out_credential(&mut self, place: &str, name: &str, why: &str) {
        let remedy = "for which the operator names one (`--credential`)";
        self.note_parameter(place, name, &format!("is left out: it {why}, {remedy}"));
    }

    fn note_parameter(&mut self, place: &str, name: &str, said: &str) {
        self.tool.notes.push(format!("its {place} parameter {} {said}", one_line(name)));
    }

    /// Whether another parameter is already written under this one's name.
    fn is_taken(&self, name: &str, place: &str, shape: Shape) -> bool {
        match place {
            "query" => self.tool.query.contains_key(&query_name(name, shape)),
            "header" => self.tool.headers.contains_key(&name.to_ascii_lowercase()),
            _ => false,
        }
    }

    /// Adds the members of an object, each as a parameter. An object without members writes nothing, so an object whose
    /// members have no names is not required.
    fn members(&mut self, parameter: &Parameter<'_>) -> Result<(), SkipReason> {
        let members = properties(&parameter.schema);
        if members.is_empty() {
            let said = "is left out: the document names none of its members";
            self.note_parameter("query", parameter.name, said);
        }
        self.note_unread_members("parameters", parameter.written);
        if parameter.written.get("description").is_some() {
            let name = one_line(parameter.name);
            self.note(format!(
                "the description of its query parameter {name} is left out: each member is a parameter"
            ));
        }
        for (name, member) in members {
            self.parameter(Parameter {
                name,
                place: parameter.place,
                written: &Value::Null,
                schema: member.clone(),
                is_required: parameter.is_required && requires(&parameter.schema, name),
                is_member: true,
            })?;
        }
        Ok(())
    }

    /// Adds a parameter as an argument.
    fn add(&mut self, parameter: Parameter<'_>, shape: Shape) {
        let Parameter { name, place, written, mut schema, is_required, .. } = parameter;
        let argument = self.argument(name);
        let template = match shape {
            Shape::Exploded | Shape::Bracketed => format!("{{{argument}*}}"),
            Shape::Plain | Shape::Members => format!("{{{argument}}}"),
        };
        match place {
            "path" => drop(self.places.insert(name.to_owned(), prefix(name, written) + &template)),
            "query" => drop(self.tool.query.insert(query_name(name, shape), template.into())),
            _ => drop(self.tool.headers.insert(name.to_ascii_lowercase(), template.into())),
        }
        describe(&mut schema, written.get("description"));
        // Nothing is left of a name in another script.
        if !argument.contains(|c: char| c.is_ascii_alphanumeric())
            && let Value::Object(members) = &mut schema
        {
            members.entry("title").or_insert_with(|| one_line(name).into());
        }
        self.note_unread_members("parameters", written);
        self.properties.insert(argument.clone(), schema);
        if is_required {
            self.required.push(argument.into());
        }
    }
}

/// Returns the text before a value in a path (RFC 6570 sections 3.2.5 and 3.2.7).
fn prefix(name: &str, written: &Value) -> String {
    match written.get("style").and_then(Value::as_str) {
        Some("label") => ".".to_owned(),
        Some("matrix") => format!(";{name}="),
        _ => String::new(),
    }
}

/// Returns the name under which a parameter is written in a query.
fn query_name(name: &str, shape: Shape) -> String {
    let brackets = if shape == Shape::Bracketed { "[]" } else { "" };
    format!("{name}{brackets}")
}

/// Returns the properties of a schema and of those that it is composed of, each once.
fn properties(schema: &Value) -> Vec<(&str, &Value)> {
    let own = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
    let own = own.map(|(name, property)| (name.as_str(), property));
    let mut seen = BTreeSet::new();
    own.chain(parts(schema).flat_map(properties)).filter(|(name, _)| seen.insert(*name)).collect()
}

/// Returns the media type object of a parameter that is serialized as JSON: the only entry of its `content`.
fn json_media<'v>(written: &'v Value, place: &str) -> Option<&'v Value> {
    let (kind, media) = written.get("content")?.as_object()?.iter().next()?;
    let has_place = matches!(place, "path" | "query" | "header");
    (has_place && is_json(kind) && !kind.contains('*')).then_some(media)
}

/// Returns how a value is serialized, or why that is not supported (OpenAPI 3.1, Parameter Object).
fn shape(parameter: &Parameter<'_>) -> Result<Shape, &'static str> {
    let Parameter { place, written, schema, .. } = parameter;
    if written.get("content").is_some() && json_media(written, place).is_none() {
        return Err("is written in a media type of its own");
    }
    let kinds = kinds(schema);
    let usual = if *place == "query" { "form" } else { "simple" };
    let style = written.get("style").and_then(Value::as_str).unwrap_or(usual);
    let is_exploded = written.get("explode").and_then(Value::as_bool).unwrap_or(style == "form");
    let has = |kind: Kind| kinds.contains(&kind);
    let is_one_kind = kinds.len() == 1;
    let may_have_members = !parameter.is_member && schema.get("anyOf").is_none();
    match (*place, style, has(Kind::List), has(Kind::Object)) {
        _ if kinds.is_empty() || has(Kind::Other) => Err("is more than one text or number"),
        (_, _, false, false) => Ok(Shape::Plain),
        // Exploded, the styles with other separators are that of forms.
        ("query", "form" | "spaceDelimited" | "pipeDelimited", true, false) if is_exploded => {
            Ok(Shape::Exploded)
        }
        ("query", "form", true, false) | ("path" | "header", "simple", true, false) => Ok(Shape::Plain),
        ("path", "label" | "matrix", true, false) if !is_exploded => Ok(Shape::Plain),
        ("query", "form", false, true) if is_exploded && is_one_kind && may_have_members => {
            Ok(Shape::Members)
        }
        ("query", "deepObject", false, true) => Ok(Shape::Exploded),
        ("query", "deepObject", true, false) if is_one_kind => Ok(Shape::Bracketed),
        (_, _, true, false) | (_, "deepObject", ..) => Err("is written in a style that is not served here"),
        _ => Err("is more than one text or number"),
    }
}

fn is_secret(lower: &str) -> bool {
    let letters: String = lower.chars().filter(char::is_ascii_alphabetic).collect();
    if letters.strip_suffix("token").is_some_and(|place| PLACES.iter().any(|word| place.ends_with(word))) {
        return false;
    }
    SECRETS.iter().any(|secret| letters == *secret || letters.ends_with(secret) && !WHOLE.contains(secret))
}

#[cfg(test)]
#[path = "parameters/tests.rs"]
mod tests;
