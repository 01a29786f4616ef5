//! The examples of specs: inputs that `asp plugin test` calls a plugin with, and the outputs it expects.

use std::collections::BTreeMap;

use anyhow::Context;
use asp_registry::Source;
use serde::Deserialize;
use serde_json::Value;

use super::answers::Answers;

/// One example of a spec.
#[derive(Clone, Debug, Deserialize)]
pub struct Example {
    #[serde(default)]
    pub text: String,
    /// Absent: a text for people and models only.
    pub input: Option<Value>,
    /// Absent: any output that fits the schema.
    pub output: Option<Value>,
    /// What the plugin's questions are answered with.
    #[serde(default)]
    pub answers: Answers,
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
    Ok(specs(sources)?.into_iter().map(|(id, (_, examples))| (id, examples)).collect())
}

/// The path of every spec's file, by primitive id. `sources` must have passed the check.
pub fn spec_files(sources: &[Source]) -> anyhow::Result<BTreeMap<String, String>> {
    Ok(specs(sources)?.into_iter().map(|(id, (path, _))| (id, path)).collect())
}

fn specs(sources: &[Source]) -> anyhow::Result<BTreeMap<String, (String, Vec<Example>)>> {
    let mut found = BTreeMap::new();
    // A file of schemas has the id of its spec.
    for source in sources.iter().filter(|source| !source.is_schema_file()) {
        let spec: Spec =
            serde_saphyr::from_str(&source.text).with_context(|| format!("read {} again", source.path))?;
        if let Some(id) = spec.id {
            found.insert(id, (source.path.clone(), spec.examples));
        }
    }
    Ok(found)
}
