//! An OpenAPI document in JSON or YAML: its server, its operations, and the targets of its references.
//!
//! Refuses: other formats and versions, references to other documents, and endless references. Keeps true: a chain of
//! references is followed for at most 16 steps; the number of operations is bounded.

use reqwest::Url;
use serde_json::{Map, Value};
use serde_saphyr::{DuplicateKeyPolicy, NonFiniteFloatPolicy, UserMessageFormatter};

mod info;
mod parts;
mod servers;
mod texts;

/// Maximum number of operations in a document.
const MAX_OPERATIONS: usize = 5_000;
/// Maximum number of keys, values and ends of lists in YAML: several times that of the largest public documents.
const MAX_EVENTS: usize = 8_000_000;
/// Maximum number of reported parts whose decoded value differs from the text, and the maximum length of each in characters.
const MAX_LOSSES: usize = 100;
const MAX_PART: usize = 100;
/// Maximum length of a chain of references.
const MAX_STEPS: usize = 16;
/// Methods that a tool can have (OpenAPI 3.1, Path Item Object).
const METHODS: [&str; 6] = ["get", "put", "post", "delete", "patch", "head"];
/// Members of a path that are not operations (OpenAPI 3.2, Path Item Object).
const SHARED: [&str; 6] = ["$ref", "summary", "description", "servers", "parameters", "additionalOperations"];

/// A reason for which a document is not read, or a part of it cannot be interpreted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum DocumentFault {
    #[error("this is UTF-16; convert it to UTF-8 first, for example by `iconv -f UTF-16 -t UTF-8`")]
    Encoding,
    #[error(
        "this is a page for people or XML; name the OpenAPI document itself, often at /openapi.json or /v3/api-docs"
    )]
    Markup,
    #[error("this is not JSON: {0}")]
    Json(String),
    #[error("this is neither JSON nor YAML: {0}")]
    Yaml(String),
    #[error(
        "this is not an OpenAPI document of version 3.0, 3.1 or 3.2; convert a document of version 2 (Swagger) first"
    )]
    Version,
    #[error("the document has more than {MAX_OPERATIONS} operations")]
    TooMany,
    #[error("{0} refers to nothing in the document")]
    Reference(String),
    #[error("{0} leads to further references without end")]
    Loop(String),
}

/// A document of version 3.
pub(super) struct OpenApiDocument {
    root: Map<String, Value>,
    losses: Vec<String>,
    /// Number of texts whose invisible characters were removed.
    cleaned: usize,
    /// URL that the document was read from.
    location: Option<Url>,
}

/// An operation in a document.
pub(super) struct DescribedOperation<'a> {
    pub(super) path: &'a str,
    pub(super) method: &'a str,
    pub(super) operation: &'a Map<String, Value>,
    /// Parameters of all operations of the path.
    pub(super) shared: Option<&'a Value>,
    /// Servers of the operation, or those of its path.
    servers: Option<&'a Value>,
}

impl<'a> DescribedOperation<'a> {
    /// Reads an operation of a path; `None` if the value is not an object.
    fn of(
        (path, item): (&'a str, &'a Map<String, Value>),
        method: &'a str,
        operation: &'a Value,
    ) -> Option<DescribedOperation<'a>> {
        let operation = operation.as_object()?;
        let servers = [operation.get("servers"), item.get("servers")];
        let servers = servers.into_iter().flatten().find(|servers| servers.get(0).is_some());
        Some(DescribedOperation { path, method, operation, shared: item.get("parameters"), servers })
    }

    pub(super) fn id(&self) -> &str {
        self.text("operationId")
    }

    pub(super) fn tags(&self) -> Vec<&str> {
        let tags = self.operation.get("tags").and_then(Value::as_array);
        tags.into_iter().flatten().filter_map(Value::as_str).collect()
    }

    pub(super) fn text(&self, name: &str) -> &str {
        self.operation.get(name).and_then(Value::as_str).unwrap_or_default()
    }
}

impl OpenApiDocument {
    pub(super) fn parse(text: &[u8]) -> Result<OpenApiDocument, DocumentFault> {
        let text = text.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(text);
        // Recognized without a byte order mark too: the first character of a document is ASCII.
        if let [0xFF, 0xFE, ..] | [0xFE, 0xFF, ..] | [0, _, ..] | [_, 0, ..] = text {
            return Err(DocumentFault::Encoding);
        }
        let (mut root, losses) = match text.trim_ascii_start().first() {
            // serde_json bounds the depth.
            Some(b'<') => return Err(DocumentFault::Markup),
            Some(b'{' | b'[') => (json(text)?, std::str::from_utf8(text).map(losses).unwrap_or_default()),
            _ => {
                let (root, repeated) = yaml(text)?;
                // A rounded number has all the digits of a double.
                let rounded = losses(&root.to_string());
                (root, repeated.into_iter().chain(rounded).collect())
            }
        };
        let cleaned = texts::clean(&mut root);
        let Value::Object(root) = root else { return Err(DocumentFault::Version) };
        let version = match root.get("openapi") {
            Some(Value::String(version)) => version.clone(),
            // `openapi: 3.1` is a number in YAML.
            Some(Value::Number(version)) => version.to_string(),
            _ => String::new(),
        };
        if !["3.0", "3.1", "3.2"].iter().any(|known| version.starts_with(known)) {
            return Err(DocumentFault::Version);
        }
        Ok(OpenApiDocument { root, losses, cleaned, location: None })
    }

    /// Returns the first parts of the document whose decoded value differs from the text, such as rounded numbers: as written
    /// in JSON, as decoded in YAML.
    pub(super) fn losses(&self) -> &[String] {
        &self.losses
    }

    /// Whether a security scheme of the document is a key in this parameter (OpenAPI 3.1, Security Scheme Object).
    pub(super) fn is_key(&self, name: &str, place: &str) -> bool {
        let schemes = self.root.get("components").and_then(|components| components.get("securitySchemes"));
        schemes.and_then(Value::as_object).into_iter().flatten().any(|(_, scheme)| {
            let Ok(scheme) = self.resolve(scheme) else { return false };
            let said = |member: &str| scheme.get(member).and_then(Value::as_str).unwrap_or_default();
            // Header names are case-insensitive (RFC 9110 section 5.1).
            let is_name =
                said("name") == name || place == "header" && said("name").eq_ignore_ascii_case(name);
            said("type") == "apiKey" && said("in") == place && is_name
        })
    }

    /// Returns a security scheme of the document.
    pub(super) fn security_scheme(&self, name: &str) -> Option<&Value> {
        let schemes = self.root.get("components")?.get("securitySchemes")?;
        self.resolve(schemes.get(name)?).ok()
    }

    /// Returns the security of operations that name none of their own.
    pub(super) fn security(&self) -> Option<&Value> {
        self.root.get("security")
    }

    /// Returns the paths without extensions, each with its resolved item or the fault of its reference.
    fn paths(&self) -> impl Iterator<Item = (&str, Result<&Value, DocumentFault>)> {
        let paths = self.root.get("paths").and_then(Value::as_object);
        let paths = paths.into_iter().flatten().filter(|(path, _)| !path.starts_with("x-"));
        paths.map(move |(path, item)| (path.as_str(), self.resolve(item)))
    }

    /// Returns the paths whose operations are in another document.
    pub(super) fn external_paths(&self) -> impl Iterator<Item = (&str, DocumentFault)> {
        self.paths().filter_map(|(path, item)| Some((path, item.err()?)))
    }

    /// Returns the paths whose operations are in this document.
    fn items(&self) -> impl Iterator<Item = (&str, &Map<String, Value>)> {
        self.paths().filter_map(|(path, item)| Some((path, item.ok()?.as_object()?)))
    }

    /// Returns every operation, in the document's order.
    pub(super) fn operations(&self) -> Result<Vec<DescribedOperation<'_>>, DocumentFault> {
        let mut found = Vec::new();
        for (path, item) in self.items() {
            let written = METHODS.iter().filter_map(|method| Some((*method, item.get(*method)?)));
            for operation in
                written.filter_map(|(method, written)| DescribedOperation::of((path, item), method, written))
            {
                if found.len() >= MAX_OPERATIONS {
                    return Err(DocumentFault::TooMany);
                }
                found.push(operation);
            }
        }
        Ok(found)
    }

    /// Returns the operations with methods that no tool can have, including `additionalOperations` (OpenAPI 3.2) and unknown
    /// members of a path.
    pub(super) fn unserved(&self) -> Vec<DescribedOperation<'_>> {
        let mut found = Vec::new();
        for (path, item) in self.items() {
            let others = item.iter().filter(|(name, _)| is_unserved(name));
            let more = item.get("additionalOperations").and_then(Value::as_object).into_iter().flatten();
            found.extend(others.chain(more).filter_map(|(method, written)| {
                DescribedOperation::of((path, item), method.as_str(), written)
            }));
        }
        found
    }

    /// Follows references to the value itself; returns other values unchanged.
    pub(super) fn resolve<'a>(&'a self, mut value: &'a Value) -> Result<&'a Value, DocumentFault> {
        for _ in 0..MAX_STEPS {
            let Some(reference) = value.get("$ref").and_then(Value::as_str) else { return Ok(value) };
            value = self.find(reference)?;
        }
        Err(DocumentFault::Loop(value.get("$ref").and_then(Value::as_str).unwrap_or_default().to_owned()))
    }

    /// Whether only one side writes this property (`readOnly`: the service, `writeOnly`: clients), according to the reference's
    /// target or to the reference itself (3.1).
    pub(super) fn is_marked(&self, property: &Value, mark: &str) -> bool {
        let says = |schema: &Value| schema.get(mark) == Some(&Value::Bool(true));
        says(property) || self.resolve(property).is_ok_and(says)
    }

    /// Resolves `#/…` (RFC 6901, as a URI fragment).
    pub(super) fn find(&self, reference: &str) -> Result<&Value, DocumentFault> {
        let unknown = || DocumentFault::Reference(reference.to_owned());
        let pointer = reference.strip_prefix("#/").ok_or_else(unknown)?;
        let mut parts = pointer.split('/').map(part);
        let first = parts.next().ok_or_else(unknown)?;
        let mut found = self.root.get(&first).ok_or_else(unknown)?;
        for part in parts {
            let next = match found {
                Value::Array(items) => part.parse::<usize>().ok().and_then(|index| items.get(index)),
                other => other.get(&part),
            };
            found = next.ok_or_else(unknown)?;
        }
        Ok(found)
    }
}

/// Whether a member of a path is an operation with a method that no tool can have, or with an unknown method.
fn is_unserved(name: &str) -> bool {
    !METHODS.contains(&name) && !SHARED.contains(&name) && !name.starts_with("x-")
}

/// Returns the first parts of a JSON text whose decoded value differs from the text.
fn losses(text: &str) -> Vec<String> {
    let losses = asp_json::losses(text).into_iter().take(MAX_LOSSES);
    losses.map(|part| part.chars().take(MAX_PART).collect()).collect()
}

/// Parses JSON, accepting half a surrogate pair and numbers beyond a double, which are decoded with loss.
fn json(text: &[u8]) -> Result<Value, DocumentFault> {
    serde_json::from_slice(text).or_else(|error| match asp_json::Json::parse(text) {
        Ok(document) => Ok(document.view().clone()),
        // This error names the place.
        Err(_) => Err(DocumentFault::Json(error.to_string())),
    })
}

/// Parses YAML 1.2 as used in OpenAPI documents; aliases and depth are bounded. If a key is written twice, the last one wins,
/// as in JSON, and the parser's words for the first such key are returned as well.
fn yaml(text: &[u8]) -> Result<(Value, Option<String>), DocumentFault> {
    let error = match serde_saphyr::from_slice_with_options(text, options(DuplicateKeyPolicy::Error)) {
        Ok(root) => return Ok((root, None)),
        Err(error) => error,
    };
    let first_line = |said: String| said.lines().next().unwrap_or_default().to_owned();
    match serde_saphyr::from_slice_with_options(text, options(DuplicateKeyPolicy::LastWins)) {
        Ok(root) => Ok((root, Some(first_line(error.render_with_formatter(&UserMessageFormatter))))),
        Err(_) => Err(DocumentFault::Yaml(first_line(error.to_string()))),
    }
}

fn options(duplicate_keys: DuplicateKeyPolicy) -> serde_saphyr::Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_events: MAX_EVENTS,
            max_nodes: MAX_EVENTS,
            max_depth: 128,
            // Documents refer to one set of parameters or responses from hundreds of operations.
            enforce_alias_anchor_ratio: false,
        },
        duplicate_keys: duplicate_keys,
        // Some examples read as numbers that are too large, such as the digest 1e9999.
        non_finite_float_policy: NonFiniteFloatPolicy::AsString,
        strict_booleans: true,
    }
}

/// Decodes a part of a pointer: first the percent-encoding of its URI fragment (RFC 6901 section 6), then `~1` and `~0`.
fn part(written: &str) -> String {
    let plain = percent_encoding::percent_decode_str(written).decode_utf8_lossy();
    plain.replace("~1", "/").replace("~0", "~")
}

#[cfg(test)]
mod tests;
