//! Versions of imported specs.
//!
//! Keeps true: a primitive keeps the version it was imported with, or that someone has written since, until a change breaks
//! its callers; then its major version is incremented.

use std::collections::{BTreeMap, BTreeSet};

use asp_registry::CompiledServer;
use serde_json::Value;

/// Gives the new specs the versions of the previous ones.
pub(super) fn keep_versions(files: &mut BTreeMap<String, String>, before: Option<&CompiledServer>) {
    for primitive in before.iter().flat_map(|server| &server.primitives) {
        write(files, &primitive.id, &primitive.version);
    }
}

/// Increments the major version of each primitive whose change breaks callers. Returns a line for each.
pub(super) fn raise(
    files: &mut BTreeMap<String, String>,
    before: &CompiledServer,
    after: &CompiledServer,
) -> Vec<String> {
    let is_left = |id: &str| after.primitives.iter().any(|primitive| primitive.id == id);
    let mut lines = Vec::new();
    let changes = asp_registry::compare(before, after);
    let broken: BTreeSet<&str> =
        changes.iter().filter(|change| change.breaking).map(|change| change.primitive.as_str()).collect();
    let is_broken = |id: &str| broken.contains(id) && is_left(id);
    for primitive in before.primitives.iter().filter(|primitive| is_broken(&primitive.id)) {
        let version = next_major(&primitive.version);
        write(files, &primitive.id, &version);
        lines.push(format!("raised: {} to {version}, because its callers break", primitive.id));
    }
    lines
}

/// Returns a `server.yaml` with the major version after `version`, and that version.
pub(super) fn raise_server(text: &str, version: &str) -> (String, String) {
    let version = next_major(version);
    let line = format!("version: {version}");
    let is_key = |key: &str| text.lines().any(|line| line.starts_with(key));
    // A file without a version gets one after its name.
    let replaced = if is_key("version:") { "version:" } else { "name:" };
    let lines = text.lines().map(|former| match former.starts_with(replaced) {
        true if replaced == "name:" => format!("{former}\n{line}"),
        true => line.clone(),
        false => former.to_owned(),
    });
    (lines.collect::<Vec<_>>().join("\n") + "\n", version)
}

fn next_major(version: &str) -> String {
    format!("{}.0.0", asp_registry::version::major(version) + 1)
}

fn write(files: &mut BTreeMap<String, String>, id: &str, version: &str) {
    for text in files.values_mut() {
        let Ok(mut spec) = serde_json::from_str::<Value>(text) else { continue };
        if spec.get("id").and_then(Value::as_str) != Some(id) {
            continue;
        }
        if let Some(members) = spec.as_object_mut() {
            members.insert("version".into(), version.into());
            *text = serde_json::to_string_pretty(&spec).unwrap_or_default() + "\n";
        }
    }
}
