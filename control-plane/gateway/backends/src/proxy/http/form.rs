//! The body of a request as a form: `application/x-www-form-urlencoded` (WHATWG URL, section 5) or
//! `multipart/form-data` with text parts (RFC 7578); and the query parameters that a list or an object becomes.
//!
//! Refuses: a body that is not an object, a null in a list, a name that would be another member's field, anything
//! beyond the bounds. Keeps true: texts and numbers are written as the client wrote them; no name and no value can
//! end its field; the same fields have the same bytes, so that a repeated request is identical.

use asp_call::call::outcome::Refusal;
use asp_call::digest;
use asp_json::{Json, Members};
use asp_proto::snapshot::ProxyHttp;
use asp_proto::snapshot::proxy_http::BodyFormat;
use form_urlencoded::byte_serialize;

use super::arguments::scalar;

/// Maximum total size of names and values in bytes, before they are encoded: twice the largest request, whose values
/// a form contains once and whose names it repeats.
const MAX_BYTES: usize = 8 << 20;
/// Maximum number of fields, including lists and objects in brackets: ten times what PHP accepts (`max_input_vars`).
const MAX_FIELDS: usize = 10_000;
/// Maximum number of brackets in a name.
const MAX_BRACKETS: usize = 16;
/// Maximum length of a name in an error, in characters.
const MAX_NAMED: usize = 100;
/// Description of names that a service may read as another field's.
const AMBIGUOUS: &str = "brackets, a null character, spaces around it, or in a multipart form a backslash or `=?`: some \
                         services would read it as another field";
/// The style of members that are written in brackets, as the compiler writes it.
const DEEP_OBJECT: &str = "deepObject";

/// An encoded body.
#[derive(Debug, PartialEq)]
pub(super) struct Form {
    pub(super) media_type: String,
    pub(super) text: String,
}

/// Encodes the members of `body` as fields.
pub(super) fn encoded(mapping: &ProxyHttp, body: &Json) -> Result<Form, Refusal> {
    let fields = Fields::of(mapping, body)?;
    Ok(match mapping.body_format() {
        BodyFormat::Multipart => multipart(&fields),
        BodyFormat::Form | BodyFormat::Unspecified => urlencoded(&fields),
    })
}

/// Returns the parameters of a query that an argument becomes: a list repeats the name, an object is written in brackets.
pub(super) fn exploded(name: &str, argument: &str, value: &Json) -> Result<Vec<(String, String)>, Refusal> {
    let mut fields = Fields { member: argument, ..Fields::default() };
    match value.text().starts_with('{') {
        true => fields.deep(name, value, 0)?,
        false => fields.plain(name, value)?,
    }
    Ok(fields.all.into_iter().map(|field| (field.name, field.value)).collect())
}

struct Field {
    name: String,
    value: String,
    /// Whether the value is the JSON of a list or an object.
    is_json: bool,
}

/// Collects the fields of a body.
#[derive(Default)]
struct Fields<'a> {
    is_multipart: bool,
    /// JSON pointer of the object whose members are written.
    at: &'a str,
    /// The member that is being written.
    member: &'a str,
    count: usize,
    bytes: usize,
    all: Vec<Field>,
}

impl Fields<'_> {
    fn of(mapping: &ProxyHttp, body: &Json) -> Result<Vec<Field>, Refusal> {
        let members = Members::of(body);
        let at = Some(mapping.body.as_str()).filter(|pointer| pointer.starts_with('/')).unwrap_or_default();
        let is_multipart = mapping.body_format() == BodyFormat::Multipart;
        let mut fields = Fields { is_multipart, at, ..Fields::default() };
        if !body.text().starts_with('{') {
            return Err(fields.refused("is not an object, as a form must be"));
        }
        for (name, value) in members.iter() {
            fields.member = name;
            match mapping.body_styles.get(name).map(String::as_str) {
                None if fields.is_ambiguous(name) => {
                    return Err(fields.refused(&format!("has a name with {AMBIGUOUS}")));
                }
                Some(DEEP_OBJECT) => fields.deep(name, value, 0)?,
                _ => fields.plain(name, value)?,
            }
        }
        Ok(fields.all)
    }

    /// Adds a member in OpenAPI's style `form`, exploded: a list repeats the name.
    fn plain(&mut self, name: &str, value: &Json) -> Result<(), Refusal> {
        let Some(elements) = value.elements() else { return self.add(name, value) };
        elements.iter().try_for_each(|element| {
            self.refuse_null(element)?;
            self.add(name, element)
        })
    }

    /// Adds a member in OpenAPI's style `deepObject`, with its usual extension to lists and nested objects.
    fn deep(&mut self, name: &str, value: &Json, depth: usize) -> Result<(), Refusal> {
        if !is_composite(value) {
            return self.add(name, value);
        }
        self.spend(name.len())?;
        if depth == MAX_BRACKETS {
            return Err(self.refused("is nested too deeply for a form"));
        }
        let Some(elements) = value.elements() else {
            let members = Members::of(value);
            return members.iter().try_for_each(|(key, value)| {
                if key.is_empty() || self.is_ambiguous(key) {
                    return Err(self.refused(&format!("has a key that is empty or has {AMBIGUOUS}")));
                }
                self.deep(&format!("{name}[{key}]"), value, depth + 1)
            });
        };
        // Without numbers it would be ambiguous which element a field belongs to.
        let is_numbered = elements.iter().any(is_composite);
        elements.iter().enumerate().try_for_each(|(number, element)| {
            self.refuse_null(element)?;
            let name = if is_numbered { format!("{name}[{number}]") } else { format!("{name}[]") };
            self.deep(&name, element, depth + 1)
        })
    }

    /// Adds a field; skips null.
    fn add(&mut self, name: &str, value: &Json) -> Result<(), Refusal> {
        if is_null(value) {
            return Ok(());
        }
        let is_json = is_composite(value);
        let value = if is_json { value.text().to_owned() } else { scalar(value.text()) };
        self.spend(name.len() + value.len())?;
        self.all.push(Field { name: name.to_owned(), value, is_json });
        Ok(())
    }

    fn spend(&mut self, bytes: usize) -> Result<(), Refusal> {
        self.count += 1;
        self.bytes += bytes;
        match self.count > MAX_FIELDS || self.bytes > MAX_BYTES {
            true => Err(self.refused(&format!(
                "makes the request larger than {MAX_FIELDS} fields or {} MiB",
                MAX_BYTES >> 20
            ))),
            false => Ok(()),
        }
    }

    /// Whether some services read a name as that of another field: PHP strips spaces and everything after a null
    /// character; parsers of multipart forms may take backslashes for escapes, and `=?` for an encoded word (RFC
    /// 2047).
    fn is_ambiguous(&self, name: &str) -> bool {
        name.contains(['[', ']', '\0'])
            || name.trim() != name
            || self.is_multipart && (name.contains('\\') || name.contains("=?"))
    }

    fn refuse_null(&self, element: &Json) -> Result<(), Refusal> {
        match is_null(element) {
            true => Err(self.refused("has a null in a list, which a form cannot express")),
            false => Ok(()),
        }
    }

    fn refused(&self, message: &str) -> Refusal {
        let mut pointer = self.at.to_owned();
        if !self.member.is_empty() {
            let member: String = self.member.chars().take(MAX_NAMED).collect();
            pointer = format!("{pointer}/{}", member.replace('~', "~0").replace('/', "~1"));
        }
        Refusal::InvalidArguments { pointer, message: message.into() }
    }
}

fn is_null(value: &Json) -> bool {
    value.text() == "null"
}

fn is_composite(value: &Json) -> bool {
    value.text().starts_with(['{', '['])
}

fn urlencoded(fields: &[Field]) -> Form {
    let mut text = String::new();
    for Field { name, value, .. } in fields {
        if !text.is_empty() {
            text.push('&');
        }
        text.extend(byte_serialize(name.as_bytes()));
        text.push('=');
        text.extend(byte_serialize(value.as_bytes()));
    }
    Form { media_type: "application/x-www-form-urlencoded".into(), text }
}

fn multipart(fields: &[Field]) -> Form {
    let boundary = boundary(fields);
    let mut text = String::new();
    for Field { name, value, is_json } in fields {
        let name = quoted(name);
        let kind = if *is_json { "Content-Type: application/json\r\n" } else { "" };
        text.push_str(&format!(
            "--{boundary}\r\nContent-Disposition: form-data; name=\"{name}\"\r\n{kind}\r\n{value}\r\n"
        ));
    }
    text.push_str(&format!("--{boundary}--\r\n"));
    Form { media_type: format!("multipart/form-data; boundary={boundary}"), text }
}

/// Escapes a name for its quotes (HTML, section 4.10.21.8).
fn quoted(name: &str) -> String {
    name.replace('"', "%22").replace('\r', "%0D").replace('\n', "%0A")
}

/// Returns a delimiter that occurs in no field: a digest of the fields.
fn boundary(fields: &[Field]) -> String {
    let parts: Vec<&str> =
        fields.iter().flat_map(|field| [field.name.as_str(), field.value.as_str()]).collect();
    let mut boundary = hex(digest::of_parts(&parts));
    while parts.iter().any(|part| part.contains(&boundary)) {
        boundary = hex(digest::of_parts(&[boundary]));
    }
    boundary
}

fn hex(digest: [u8; 32]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
#[path = "form/tests.rs"]
mod tests;
