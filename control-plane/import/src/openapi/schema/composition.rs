//! Schemas that describe one object together (`allOf`, choices, subtypes).
//!
//! Keeps true: a part does not reject properties that another part describes, nor require those that are left out of another
//! part. Taken literally, documents of .NET frameworks (`additionalProperties: false` in each part) reject every object.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

/// State shared by the schemas that describe one object.
#[derive(Default)]
pub(super) struct Composition {
    /// Whether there are several parts, none of which names all properties.
    pub(super) has_parts: bool,
    /// Properties left out because only the other side writes them.
    pub(super) left_out: BTreeSet<String>,
}

/// Whether other schemas describe the same object as this one's own keywords: more than one part, or a subtype.
pub(super) fn has_parts(members: &Map<String, Value>) -> bool {
    let parts = |word: &str| members.get(word).and_then(Value::as_array).map_or(0, Vec::len);
    let is_own = ["properties", "additionalProperties"].iter().any(|word| members.contains_key(*word));
    let choices = [parts("anyOf"), parts("oneOf")].iter().filter(|choices| **choices > 0).count();
    let has_subtypes = choices == 0 && members.contains_key("discriminator");
    usize::from(is_own) + parts("allOf") + choices + usize::from(has_subtypes) > 1
}

impl Composition {
    /// Drops requirements for the properties that were left out, from all parts of the object.
    pub(super) fn relax(&self, schema: &mut Value) {
        let Value::Object(members) = schema else { return };
        if let Some(Value::Array(names)) = members.get_mut("required") {
            names.retain(|name| name.as_str().is_none_or(|name| !self.left_out.contains(name)));
            if names.is_empty() {
                members.shift_remove("required");
            }
        }
        for word in ["allOf", "anyOf"] {
            let parts = members.get_mut(word).and_then(Value::as_array_mut);
            parts.into_iter().flatten().for_each(|part| self.relax(part));
        }
    }
}
