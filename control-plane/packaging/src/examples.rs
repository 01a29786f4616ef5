//! The examples in specs: inputs with which `asp plugin test` calls a plugin, and the expected outputs.

use std::collections::BTreeMap;

use anyhow::Context;
use asp_registry::Source;
use serde::Deserialize;
use serde_json::Value;

use super::answers::Answers;

/// An example in a spec.
#[derive(Clone, Debug, Deserialize)]
pub struct Example {
    #[serde(default)]
    pub text: String,
    /// `None`: a text for people and models only.
    pub input: Option<Value>,
    /// `None`: any output that matches the schema.
    pub output: Option<Value>,
    /// Answers to the plugin's questions.
    #[serde(default)]
    pub answers: Answers,
}

/// The parts of a spec that are read here; the whole spec was checked before.
#[derive(Deserialize)]
struct Spec {
    id: Option<String>,
    #[serde(default)]
    examples: Vec<Example>,
}

/// Returns the examples of every spec, by primitive id. `sources` must have passed the check.
pub fn examples(sources: &[Source]) -> anyhow::Result<BTreeMap<String, Vec<Example>>> {
    Ok(specs(sources)?.into_iter().map(|(id, (_, examples))| (id, examples)).collect())
}

/// Returns the file path of every spec, by primitive id. `sources` must have passed the check.
pub fn spec_files(sources: &[Source]) -> anyhow::Result<BTreeMap<String, String>> {
    Ok(specs(sources)?.into_iter().map(|(id, (path, _))| (id, path)).collect())
}

fn specs(sources: &[Source]) -> anyhow::Result<BTreeMap<String, (String, Vec<Example>)>> {
    let mut found = BTreeMap::new();
    // A schema file has the id of its spec.
    for source in sources.iter().filter(|source| !source.is_schema_file()) {
        let spec: Spec =
            serde_saphyr::from_str(&source.text).with_context(|| format!("read {} again", source.path))?;
        if let Some(id) = spec.id {
            found.insert(id, (source.path.clone(), spec.examples));
        }
    }
    Ok(found)
}
