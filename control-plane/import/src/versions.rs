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

/// Increments the major version of each primitive whose change breaks callers.
pub(super) fn raise(files: &mut BTreeMap<String, String>, before: &CompiledServer, after: &CompiledServer) {
    let changes = asp_registry::compare(before, after);
    let broken: BTreeSet<&str> =
        changes.iter().filter(|change| change.breaking).map(|change| change.primitive.as_str()).collect();
    for primitive in before.primitives.iter().filter(|primitive| broken.contains(primitive.id.as_str())) {
        let major = asp_registry::version::major(&primitive.version);
        write(files, &primitive.id, &format!("{}.0.0", major + 1));
    }
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
