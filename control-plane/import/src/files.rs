//! The files of an import, in the parts that every source has: ids and paths, the server's file, a spec's `runtime`.

use std::collections::{BTreeMap, BTreeSet};

use asp_registry::Source;
use serde_json::{Map, Value, json};

use crate::args::ImportArgs;

/// Reason for which a number or another part of a spec differs from the upstream's text.
pub(crate) const DECODED: &str = "a spec holds it as it is decoded: numbers as 64-bit integers or doubles, whole characters, each key once";

/// Maximum length of an id's part after the server, in bytes.
const MAX_SLUG: usize = 100;
/// Maximum length of an id, in bytes: 128, without a dot and the number of one of several primitives of the same name.
const MAX_ID: usize = 128 - 1 - 5;

/// Result of an import.
pub(crate) struct ImportResult {
    /// Files by path relative to the primitives' root, including `server.yaml`.
    pub(crate) files: BTreeMap<String, String>,
    /// Ids, in the order of the list.
    pub(crate) ids: Vec<String>,
    /// Summary for a person.
    pub(crate) said: String,
    /// Losses: parts that a spec cannot express, one a line.
    pub(crate) dropped: Vec<String>,
    /// Names that differ from the upstream's, one a line.
    pub(crate) renamed: Vec<String>,
    /// Entries of the operator that specs need.
    pub(crate) requirements: Vec<Requirement>,
}

/// An entry of the operator that specs name.
pub(crate) struct Requirement {
    /// Place of its name in a spec, as a JSON pointer.
    pub(crate) place: &'static str,
    pub(crate) name: String,
    /// The entry, and where it belongs.
    pub(crate) line: String,
}

/// Returns the `runtime` of a spec that forwards calls to `target`, with the credential to use there.
pub(crate) fn proxy(way: &str, target: Value, args: &ImportArgs) -> Value {
    let mut runtime = Map::from_iter([("mode".to_owned(), "proxy".into()), (way.to_owned(), target)]);
    let auth = args.credential.as_ref().map(|name| ("auth".to_owned(), json!({"credential": name})));
    runtime.extend(auth);
    Value::Object(runtime)
}

/// Returns a new `server.yaml` that lists `ids`.
pub(crate) fn server_file(server: &str, description: &str, ids: &[String]) -> String {
    let mut yaml = format!(
        "apiVersion: asp/v1\nname: {server}\ntitle: {server}\ndescription: {description}\n\
         version: 1.0.0\nprotocols: [mcp]\nsessions: stateful\ndefaultExposure: deny\n\
         auth: {{schemes: [jwt], issuers: [dev]}}\nprimitives:\n"
    );
    for id in ids {
        yaml.push_str(&format!("  - ref: {server}/{id}\n"));
    }
    yaml
}

/// Adds the upstream's instructions to a new `server.yaml`. `Err`: the reason if they are not text that the platform serves.
pub(crate) fn add_instructions(file: &str, instructions: Option<&str>) -> Result<String, String> {
    let Some(instructions) = instructions else { return Ok(file.to_owned()) };
    // JSON text is valid YAML in double quotes.
    let line = format!("\ninstructions: {}\nversion: ", Value::from(instructions));
    let text = file.replacen("\nversion: ", &line, 1);
    let Some(name) = file.lines().find_map(|line| line.strip_prefix("name: ")) else { return Ok(text) };
    let source = Source { path: format!("{name}/server.yaml"), text: text.clone() };
    let report = asp_registry::check(&[source]);
    match report.faults.iter().find(|fault| fault.path == "/instructions") {
        None => Ok(text),
        Some(fault) => Err(fault.message.clone()),
    }
}

/// Returns `<server>.<name>` with only the characters allowed in ids, made unique by a number.
pub(crate) fn free_id(server: &str, name: &str, taken: &mut BTreeSet<String>) -> String {
    let plain: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() || "_.-".contains(c) { c } else { '-' }).collect();
    let mut slug = plain.split('-').filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-");
    slug.truncate(MAX_SLUG.min(MAX_ID.saturating_sub(server.len())));
    if slug.trim_matches('.').is_empty() {
        // A name in another script has no allowed characters.
        slug = "item".to_owned();
    }
    let slug = slug.trim_start_matches('.');
    let base = format!("{server}.{slug}");
    let mut id = base.clone();
    let mut next = 2;
    while !taken.insert(id.clone()) {
        id = format!("{base}-{next}");
        next += 1;
    }
    id
}

/// Returns the path of a spec.
pub(crate) fn spec_path(server: &str, id: &str) -> String {
    let file = id.strip_prefix(&format!("{server}.")).unwrap_or(id);
    format!("{server}/{file}.json")
}

/// Returns the sources that stay, and the new files.
pub(super) fn merge_sources(others: &[Source], new: &BTreeMap<String, String>) -> Vec<Source> {
    let files = new.iter().map(|(path, text)| Source { path: path.clone(), text: text.clone() });
    others.iter().cloned().chain(files).collect()
}
