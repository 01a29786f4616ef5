//! The part of another server's schema that the platform can assert.
//!
//! Owns: which keyword is removed for a fault of a schema, so that an import and a later comparison with its upstream remove
//! the same ones. Keeps true: no schema accepts less because of a removal.

use serde_json::Value;

use crate::fault::FaultCode;
use crate::rules::schema::{SchemaRules, faults};

/// Keywords that hold one schema under each name.
pub(crate) const MAP: [&str; 5] =
    ["properties", "patternProperties", "$defs", "definitions", "dependentSchemas"];
/// Keywords below which a looser schema makes the whole one stricter.
const TURNING: [&str; 8] =
    ["not", "if", "then", "else", "oneOf", "contains", "prefixItems", "dependentSchemas"];
/// Maximum rounds; each removes all that has a fault, and bounds what a hostile upstream can make a comparison cost.
const MAX_ROUNDS: usize = 16;

/// Returns the schema without the keywords that have faults. If it has a fault that no removal corrects, an import leaves
/// out the whole primitive, and the schema keeps the fault.
pub(crate) fn assertable(mut schema: Value, rules: SchemaRules) -> Value {
    for _ in 0..MAX_ROUNDS {
        let places: Option<Vec<String>> =
            faults(&schema, rules).iter().map(|(code, path)| keyword(*code, path)).collect();
        let removed = places.unwrap_or_default().iter().filter(|place| remove(&mut schema, place)).count();
        if removed == 0 {
            break;
        }
    }
    schema
}

/// Returns the pointer to the keyword to remove for a fault at `path` in a schema: the faulty one, or the outermost one that
/// inverts its meaning. `None` if the schema cannot do without it.
pub fn keyword(code: FaultCode, path: &str) -> Option<String> {
    let is_of_schema = matches!(
        code,
        FaultCode::BadDefault
            | FaultCode::SchemaPattern
            | FaultCode::SchemaBudget
            | FaultCode::BadSchema
            | FaultCode::SchemaRef
            | FaultCode::BadHeaderAnnotation
    );
    if !is_of_schema {
        return None;
    }
    let mut place = String::new();
    let mut parts = path.strip_prefix('/')?.split('/');
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
    found.filter(|found| found != "/type" && found != "/properties")
}

/// Removes a keyword, and those that would accept less without it. Returns whether the schema had it.
pub fn remove(schema: &mut Value, pointer: &str) -> bool {
    let Some((parent, name)) = pointer.rsplit_once('/') else { return false };
    let name = name.replace("~1", "/").replace("~0", "~");
    let removed = schema.pointer_mut(parent).and_then(Value::as_object_mut).and_then(|members| {
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
        && let Some(Value::Object(members)) = schema.pointer_mut(around)
        && (around != parent || name == "prefixItems" || name == "$ref" || name == "patternProperties")
    {
        for word in ["additionalProperties", "unevaluatedProperties", "items", "unevaluatedItems"] {
            members.shift_remove(word);
        }
    }
    removed.is_some()
}
