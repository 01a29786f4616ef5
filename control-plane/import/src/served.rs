//! Imported specs in a form that can be served.
//!
//! Owns: the handling of each fault in a spec derived from a foreign server. A schema keyword that the platform cannot assert
//! is removed, because the upstream checks its arguments itself; any other fault leaves out the one primitive. Keeps true:
//! every removal is reported in a line, and no schema accepts less because of it.

use std::collections::{BTreeMap, BTreeSet};

use asp_registry::{Fault, Source, assertable};
use serde_json::Value;

/// Maximum rounds; each removes something from a spec, or leaves a spec out.
const MAX_ROUNDS: usize = 64;

/// New specs that can be served.
pub(super) struct Selection {
    pub(super) files: BTreeMap<String, String>,
    /// A line for each removed keyword and each primitive that was left out.
    pub(super) lines: Vec<String>,
    pub(super) left_out: BTreeSet<String>,
}

/// Selects the specs that can be served together with the `others` that stay; `server` writes the server's file for these.
pub(super) fn select_servable(
    mut files: BTreeMap<String, String>,
    others: &[Source],
    server: impl Fn(&BTreeSet<String>) -> (String, String),
) -> Selection {
    let mut lines = Vec::new();
    let mut left_out = BTreeSet::new();
    for _ in 0..MAX_ROUNDS {
        let mut sources = crate::files::merge_sources(others, &files);
        let (path, text) = server(&left_out);
        sources.push(Source { path, text });
        let report = asp_registry::check(&sources);
        let mut of_files: BTreeMap<&str, Vec<&Fault>> = BTreeMap::new();
        for fault in report.faults.iter().filter(|fault| files.contains_key(&fault.file)) {
            of_files.entry(&fault.file).or_default().push(fault);
        }
        if of_files.is_empty() {
            break;
        }
        for (file, faults) in of_files {
            let looser = files.get(file).and_then(|text| without_faulty_keywords(text, &faults, &mut lines));
            match (looser, faults.first()) {
                (Some(looser), _) => drop(files.insert(file.to_owned(), looser)),
                (None, Some(fault)) => {
                    let spec = files.remove(file).unwrap_or_default();
                    lines.push(format!("left out: {}: {}", kind_and_name(&spec), describe_fault(fault)));
                    left_out.insert(id(&spec));
                }
                (None, None) => {}
            }
        }
    }
    Selection { files, lines, left_out }
}

/// Removes the keywords that have faults from the spec; `None` if another part of it has one.
fn without_faulty_keywords(text: &str, faults: &[&Fault], lines: &mut Vec<String>) -> Option<String> {
    let mut spec: Value = serde_json::from_str(text).ok()?;
    let mut said = Vec::new();
    for fault in faults {
        let (root, place) = keyword(fault)?;
        // A keyword inside a removed one is gone with it.
        if spec.pointer_mut(root).is_some_and(|schema| assertable::remove(schema, &place)) {
            said.push(format!(
                "dropped: {root}{place} of {}: {}; the upstream asserts it",
                kind_and_name(text),
                describe_fault(fault)
            ));
        }
    }
    if said.is_empty() {
        return None;
    }
    lines.append(&mut said);
    serde_json::to_string_pretty(&spec).ok().map(|text| text + "\n")
}

/// Returns the schema that has the fault, and the pointer to the keyword to remove in it.
fn keyword(fault: &Fault) -> Option<(&'static str, String)> {
    let roots = ["/primitiveSchema/input_schema", "/primitiveSchema/output_schema"];
    let (root, rest) = roots.iter().find_map(|root| Some((*root, fault.path.strip_prefix(root)?)))?;
    Some((root, assertable::keyword(fault.code, rest)?))
}

fn describe_fault(fault: &Fault) -> String {
    match fault.path.as_str() {
        "" => format!("{} ({})", fault.message, fault.code.as_str()),
        path => format!("{path}: {} ({})", fault.message, fault.code.as_str()),
    }
}

fn id(spec: &str) -> String {
    let spec: Value = serde_json::from_str(spec).unwrap_or_default();
    spec.get("id").and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// Returns a spec's kind and its name at the upstream.
fn kind_and_name(spec: &str) -> String {
    let spec: Value = serde_json::from_str(spec).unwrap_or_default();
    let text = |pointer: &str| spec.pointer(pointer).and_then(Value::as_str);
    let kind = text("/type").unwrap_or("primitive");
    let of_upstream = text("/runtime/mcp/tool").or(text("/runtime/a2a/skill")).or(text("/runtime/tool"));
    let name = of_upstream.or(text("/id")).unwrap_or_default();
    let plain: String = name.chars().filter(|c| !c.is_control()).take(100).collect();
    format!("{kind} {plain:?}")
}
