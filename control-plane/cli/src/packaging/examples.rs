//! The examples of specs: inputs that `asp plugin test` calls a plugin with, and the outputs it expects.

use std::collections::BTreeMap;

use anyhow::Context;
use asp_registry::Source;
use serde::Deserialize;
use serde_json::Value;

/// One example of a spec.
#[derive(Clone, Debug, Deserialize)]
pub struct Example {
    #[serde(default)]
    pub text: String,
    /// Absent: a text for people and models only.
    pub input: Option<Value>,
    /// Absent: any output that fits the schema.
    pub output: Option<Value>,
}

/// What is read of a spec; the whole of it was checked before.
#[derive(Deserialize)]
struct Spec {
    id: Option<String>,
    #[serde(default)]
    examples: Vec<Example>,
}

/// The examples of every spec, by primitive id. `sources` must have passed the check.
pub fn examples(sources: &[Source]) -> anyhow::Result<BTreeMap<String, Vec<Example>>> {
    let mut found = BTreeMap::new();
    for source in sources {
        let spec: Spec = serde_saphyr::from_str(&source.text)
            .with_context(|| format!("read the examples of {}", source.path))?;
        if let Some(id) = spec.id {
            found.insert(id, spec.examples);
        }
    }
    Ok(found)
}
