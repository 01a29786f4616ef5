//! Imported specs in a form that can be served.
//!
//! Owns: the handling of each fault in a spec derived from a foreign server. A schema keyword that the platform cannot assert
//! is removed, because the upstream checks its arguments itself; any other fault leaves out the one primitive. Keeps true:
//! every removal is reported in a line, and no schema accepts less because of it.

use std::collections::{BTreeMap, BTreeSet};

use asp_registry::dialect::MAP;
use asp_registry::{Fault, FaultCode, Source};
use serde_json::Value;

/// Maximum rounds; each removes something from a spec, or leaves a spec out.
const MAX_ROUNDS: usize = 64;
/// Keywords below which a looser schema makes the whole one stricter.
const TURNING: [&str; 8] =
    ["not", "if", "then", "else", "oneOf", "contains", "prefixItems", "dependentSchemas"];

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
        let mut sources = others.to_vec();
        sources.extend(files.iter().map(|(path, text)| Source { path: path.clone(), text: text.clone() }));
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
        let place = keyword(fault)?;
        // A keyword inside a removed one is gone with it.
        if remove(&mut spec, &place) {
            said.push(format!(
                "dropped: {place} of {}: {}; the upstream asserts it",
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

/// Returns the pointer to the keyword to remove: the faulty one, or the outermost one that inverts its meaning.
fn keyword(fault: &Fault) -> Option<String> {
    let is_of_schema = matches!(
        fault.code,
        FaultCode::BadDefault
            | FaultCode::SchemaPattern
            | FaultCode::SchemaBudget
            | FaultCode::BadSchema
            | FaultCode::SchemaRef
            | FaultCode::BadHeaderAnnotation
    );
    let roots = ["/primitiveSchema/input_schema", "/primitiveSchema/output_schema"];
    let (root, rest) = roots.iter().find_map(|root| Some((*root, fault.path.strip_prefix(root)?)))?;
    if !is_of_schema || rest.is_empty() {
        return None;
    }
    let mut place = root.to_owned();
    let mut parts = rest.strip_prefix('/')?.split('/');
    let mut found = None;
    while let Some(part) = parts.next() {
        place = format!("{place}/{part}");
        found = Some(place.clone());
        if TURNING.contains(&part) {
            break;
        }
        if MAP.contains(&part) {
            let Some(name) = parts.next() else { break };
            place = format!("{place}/{name}");
            // A faulty pattern of property names is the keyword itself.
            if part == "patternProperties" && parts.clone().next().is_none() {
                found = Some(place.clone());
            }
        } else if let Some(index) = parts.clone().next().filter(|next| next.parse::<usize>().is_ok()) {
            place = format!("{place}/{index}");
            parts.next();
        }
    }
    // The root must stay an object.
    found.filter(|found| found != &format!("{root}/type") && found != &format!("{root}/properties"))
}

/// Removes a member, and the keywords that would accept less without it.
fn remove(spec: &mut Value, pointer: &str) -> bool {
    let Some((parent, name)) = pointer.rsplit_once('/') else { return false };
    let name = name.replace("~1", "/").replace("~0", "~");
    let removed = spec.pointer_mut(parent).and_then(Value::as_object_mut).and_then(|members| {
        if ["if", "then", "else"].contains(&name.as_str()) {
            ["if", "then", "else"].iter().for_each(|word| drop(members.shift_remove(*word)));
            return Some(());
        }
        members.shift_remove(&name).map(drop)
    });
    // Properties or items that the member evaluated would now count as unevaluated.
    let around = match parent.rsplit_once('/') {
        Some((around, "patternProperties")) => around,
        _ => parent,
    };
    if removed.is_some()
        && ["properties", "patternProperties", "prefixItems", "$ref"]
            .iter()
            .any(|word| pointer.contains(word))
        && let Some(Value::Object(members)) = spec.pointer_mut(around)
        && (around != parent || name == "prefixItems" || name == "$ref" || name == "patternProperties")
    {
        for word in ["additionalProperties", "unevaluatedProperties", "items", "unevaluatedItems"] {
            members.shift_remove(word);
        }
    }
    removed.is_some()
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
    let name = text("/runtime/mcp/tool").or(text("/runtime/tool")).or(text("/id")).unwrap_or_default();
    let plain: String = name.chars().filter(|c| !c.is_control()).take(100).collect();
    format!("{kind} {plain:?}")
}
