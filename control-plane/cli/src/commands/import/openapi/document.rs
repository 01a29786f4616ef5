//! An OpenAPI document in JSON or YAML: its server, its operations, and what its references stand for.
//!
//! Refuses: other formats and versions, references to elsewhere, and what refers to itself without end. Keeps true: no
//! reference is followed further than 16 steps; operations are bounded.

use serde_json::{Map, Value};

mod parts;

/// Most operations of a document.
const MAX_OPERATIONS: usize = 5_000;
/// Most keys, values and ends of lists in YAML: several times those of the largest public documents.
const MAX_EVENTS: usize = 8_000_000;
/// Maximum number of parts that are named because they are decoded otherwise than they are written, and the characters of each.
const MAX_LOSSES: usize = 100;
const MAX_PART: usize = 100;
/// Most references that stand for one another in turn.
const MAX_STEPS: usize = 16;
/// Methods of tools (OpenAPI 3.1, Path Item Object).
const METHODS: [&str; 6] = ["get", "put", "post", "delete", "patch", "head"];
/// Members of a path that are no operations (OpenAPI 3.2, Path Item Object).
const SHARED: [&str; 6] = ["$ref", "summary", "description", "servers", "parameters", "additionalOperations"];

/// Why a document is not read, or a part of it has no meaning here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Fault {
    #[error("this is UTF-16; convert it to UTF-8 first, for example by `iconv -f UTF-16 -t UTF-8`")]
    Encoding,
    #[error("this is no JSON: {0}")]
    Json(String),
    #[error("this is neither JSON nor YAML: {0}")]
    Yaml(String),
    #[error(
        "this is no OpenAPI document of version 3.0, 3.1 or 3.2; one of version 2 (Swagger) has to be converted first"
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
pub(super) struct Document {
    root: Map<String, Value>,
    losses: Vec<String>,
}

/// An operation of a document.
pub(super) struct Found<'a> {
    pub(super) path: &'a str,
    pub(super) method: &'a str,
    pub(super) operation: &'a Map<String, Value>,
    /// The parameters of all operations of the path.
    pub(super) shared: Option<&'a Value>,
    /// The servers of the operation, or those of its path.
    servers: Option<&'a Value>,
}

impl<'a> Found<'a> {
    /// The operation of a path; `None` for a value that is no object.
    fn of(
        (path, item): (&'a str, &'a Map<String, Value>),
        method: &'a str,
        operation: &'a Value,
    ) -> Option<Found<'a>> {
        let operation = operation.as_object()?;
        let servers = [operation.get("servers"), item.get("servers")];
        let servers = servers.into_iter().flatten().find(|servers| servers.get(0).is_some());
        Some(Found { path, method, operation, shared: item.get("parameters"), servers })
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

impl Document {
    pub(super) fn parse(text: &[u8]) -> Result<Document, Fault> {
        let text = text.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(text);
        // Without a mark too: the first character of a document is of ASCII.
        if let [0xFF, 0xFE, ..] | [0xFE, 0xFF, ..] | [0, _, ..] | [_, 0, ..] = text {
            return Err(Fault::Encoding);
        }
        let (root, losses) = match text.trim_ascii_start().first() {
            // serde_json bounds the depth.
            Some(b'{' | b'[') => (json(text)?, std::str::from_utf8(text).map(losses).unwrap_or_default()),
            _ => {
                let root = yaml(text)?;
                // A number that was rounded has all the digits of a double.
                let losses = losses(&root.to_string());
                (root, losses)
            }
        };
        let Value::Object(root) = root else { return Err(Fault::Version) };
        let version = match root.get("openapi") {
            Some(Value::String(version)) => version.clone(),
            // `openapi: 3.1` is a number in YAML.
            Some(Value::Number(version)) => version.to_string(),
            _ => String::new(),
        };
        if !["3.0", "3.1", "3.2"].iter().any(|known| version.starts_with(known)) {
            return Err(Fault::Version);
        }
        Ok(Document { root, losses })
    }

    /// The first parts of the document that are decoded otherwise than they are written, such as numbers that are rounded: as they
    /// are written in JSON, as they are decoded in YAML.
    pub(super) fn losses(&self) -> &[String] {
        &self.losses
    }

    /// Whether a security scheme of the document is a key in this parameter (OpenAPI 3.1, Security Scheme Object).
    pub(super) fn is_key(&self, name: &str, place: &str) -> bool {
        let schemes = self.root.get("components").and_then(|components| components.get("securitySchemes"));
        schemes.and_then(Value::as_object).into_iter().flatten().any(|(_, scheme)| {
            let Ok(scheme) = self.resolved(scheme) else { return false };
            let said = |member: &str| scheme.get(member).and_then(Value::as_str).unwrap_or_default();
            // Names of headers have no case (RFC 9110 section 5.1).
            let is_name =
                said("name") == name || place == "header" && said("name").eq_ignore_ascii_case(name);
            said("type") == "apiKey" && said("in") == place && is_name
        })
    }

    /// The URL of the document's first server; `None` for one that is relative.
    pub(super) fn server(&self) -> Option<String> {
        first_url(self.root.get("servers")?)
    }

    /// The server that an operation or its path names, where that is not the document's.
    pub(super) fn other_server(&self, found: &Found<'_>) -> Option<String> {
        let servers = found.servers?;
        let url = first_url(servers);
        if url.is_some() && url == self.server() {
            return None;
        }
        let written = || Some(servers.get(0)?.get("url")?.as_str()?.to_owned());
        Some(url.or_else(written).unwrap_or_default())
    }

    /// The security of operations that name none of their own.
    pub(super) fn security(&self) -> Option<&Value> {
        self.root.get("security")
    }

    /// The paths without extensions, each with what its operations are in, or with what its reference lacks.
    fn paths(&self) -> impl Iterator<Item = (&str, Result<&Value, Fault>)> {
        let paths = self.root.get("paths").and_then(Value::as_object);
        let paths = paths.into_iter().flatten().filter(|(path, _)| !path.starts_with("x-"));
        paths.map(move |(path, item)| (path.as_str(), self.resolved(item)))
    }

    /// The paths whose operations are elsewhere.
    pub(super) fn unread(&self) -> impl Iterator<Item = (&str, Fault)> {
        self.paths().filter_map(|(path, item)| Some((path, item.err()?)))
    }

    /// The paths whose operations are here.
    fn items(&self) -> impl Iterator<Item = (&str, &Map<String, Value>)> {
        self.paths().filter_map(|(path, item)| Some((path, item.ok()?.as_object()?)))
    }

    /// Every operation, in the document's order.
    pub(super) fn operations(&self) -> Result<Vec<Found<'_>>, Fault> {
        let mut found = Vec::new();
        for (path, item) in self.items() {
            let written = METHODS.iter().filter_map(|method| Some((*method, item.get(*method)?)));
            for operation in written.filter_map(|(method, written)| Found::of((path, item), method, written))
            {
                if found.len() >= MAX_OPERATIONS {
                    return Err(Fault::TooMany);
                }
                found.push(operation);
            }
        }
        Ok(found)
    }

    /// The operations of methods that no tool has, `additionalOperations` (OpenAPI 3.2) and unknown members of a path among them.
    pub(super) fn unserved(&self) -> Vec<Found<'_>> {
        let mut found = Vec::new();
        for (path, item) in self.items() {
            let others = item.iter().filter(|(name, _)| is_unserved(name));
            let more = item.get("additionalOperations").and_then(Value::as_object).into_iter().flatten();
            found.extend(
                others
                    .chain(more)
                    .filter_map(|(method, written)| Found::of((path, item), method.as_str(), written)),
            );
        }
        found
    }

    /// What a value stands for, where it is a reference; else the value.
    pub(super) fn resolved<'a>(&'a self, mut value: &'a Value) -> Result<&'a Value, Fault> {
        for _ in 0..MAX_STEPS {
            let Some(reference) = value.get("$ref").and_then(Value::as_str) else { return Ok(value) };
            value = self.find(reference)?;
        }
        Err(Fault::Loop(value.get("$ref").and_then(Value::as_str).unwrap_or_default().to_owned()))
    }

    /// Whether only the service writes this property: a part of a reference's target, or beside the reference (3.1).
    pub(super) fn is_read_only(&self, property: &Value) -> bool {
        let says = |schema: &Value| schema.get("readOnly") == Some(&Value::Bool(true));
        says(property) || self.resolved(property).is_ok_and(says)
    }

    /// What `#/…` names (RFC 6901, as a URI fragment).
    pub(super) fn find(&self, reference: &str) -> Result<&Value, Fault> {
        let unknown = || Fault::Reference(reference.to_owned());
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

/// Whether a member of a path is an operation of a method that no tool has, or none that is known.
fn is_unserved(name: &str) -> bool {
    !METHODS.contains(&name) && !SHARED.contains(&name) && !name.starts_with("x-")
}

/// The first parts of a text in JSON that are decoded otherwise than they are written.
fn losses(text: &str) -> Vec<String> {
    let losses = asp_json::losses(text).into_iter().take(MAX_LOSSES);
    losses.map(|part| part.chars().take(MAX_PART).collect()).collect()
}

/// The first server's URL, its variables at their defaults; `None` for one that is relative.
fn first_url(servers: &Value) -> Option<String> {
    let server = servers.get(0)?;
    let mut url = server.get("url")?.as_str()?.to_owned();
    for (name, variable) in server.get("variables").and_then(Value::as_object).into_iter().flatten() {
        let default = variable.get("default").and_then(Value::as_str)?;
        url = url.replace(&format!("{{{name}}}"), default);
    }
    let is_whole = (url.starts_with("https://") || url.starts_with("http://")) && !url.contains(['{', '}']);
    is_whole.then(|| url.trim_end_matches('/').to_owned())
}

/// JSON, of which half a surrogate pair and a number beyond a double are decoded as losses.
fn json(text: &[u8]) -> Result<Value, Fault> {
    serde_json::from_slice(text).or_else(|error| match asp_json::Json::parse(text) {
        Ok(document) => Ok(document.view().clone()),
        // It says where.
        Err(_) => Err(Fault::Json(error.to_string())),
    })
}

/// YAML 1.2 as OpenAPI documents have it; aliases and depth are bounded.
fn yaml(text: &[u8]) -> Result<Value, Fault> {
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_events: MAX_EVENTS,
            max_nodes: MAX_EVENTS,
            max_depth: 128,
        },
        strict_booleans: true,
    };
    serde_saphyr::from_slice_with_options(text, options).map_err(|error| {
        let said = error.to_string();
        Fault::Yaml(said.lines().next().unwrap_or_default().to_owned())
    })
}

/// A part of a pointer, whose URI fragment is percent-decoded first (RFC 6901 section 6).
fn part(written: &str) -> String {
    let plain = percent_encoding::percent_decode_str(written).decode_utf8_lossy();
    plain.replace("~1", "/").replace("~0", "~")
}
