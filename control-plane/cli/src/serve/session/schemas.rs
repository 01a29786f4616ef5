//! The schema files next to the specs, rewritten when the types in the code changed.
//!
//! Keeps true: a file is written only once its content is in force, and is never removed; code whose schemas cannot be
//! derived does not load, and replaces no plugin.

use std::path::{Path, PathBuf};
use std::slice::from_ref;

use asp_command::print;
use asp_packaging::schemas::{PluginSchemas, from_code};
use asp_packaging::{Unit, output};
use asp_registry::Source;

/// Schemas derived from the current code of some plugins.
#[derive(Default)]
pub(super) struct DerivedSchemas {
    /// Schemas that differ from the committed files.
    stale: Vec<PluginSchemas>,
    /// Id, version and error of each plugin that does not load.
    pub(super) broken: Vec<(String, String, anyhow::Error)>,
    /// Messages for a person.
    pub(super) notes: Vec<String>,
}

/// Derives the schemas of each plugin in a sandbox of its own, so that one that does not load does not affect the others.
pub(super) async fn derive_schemas(root: &Path, sources: &[Source], units: &[Unit]) -> DerivedSchemas {
    let mut asked = DerivedSchemas::default();
    for unit in units {
        match from_code(root, sources, from_ref(unit)).await {
            Ok(found) => asked.stale.extend(found.into_iter().filter(|schemas| !schemas.is_current())),
            Err(error) => {
                let text = format!("{error:#}");
                asked.notes.extend(text.lines().skip(1).map(|line| output::prefix_line(&unit.id, line)));
                asked.broken.push((unit.id.clone(), unit.version.clone(), error));
            }
        }
    }
    for silent in asked.stale.extract_if(.., |schemas| schemas.said.is_none()) {
        let root = root.display();
        let said =
            format!("the code of {} declares no types any more: run asp plugin build {root}", silent.id);
        asked.notes.push(said);
    }
    asked
}

impl DerivedSchemas {
    pub(super) fn has_stale(&self) -> bool {
        !self.stale.is_empty()
    }

    /// Returns the files of `root` with the schemas of the code in place of the committed ones.
    pub(super) fn with(&self, root: &Path, mut sources: Vec<Source>) -> Vec<Source> {
        for schemas in &self.stale {
            let path =
                schemas.path.strip_prefix(root).unwrap_or(&schemas.path).to_string_lossy().into_owned();
            let text = schemas.said.clone().unwrap_or_default();
            sources.retain(|source| source.path != path);
            sources.push(Source { path, text });
        }
        sources.sort_by(|one, other| one.path.cmp(&other.path));
        sources
    }

    /// Writes the files and returns their paths; the outcome of each is added to the notes.
    pub(super) fn write(&mut self) -> Vec<PathBuf> {
        let mut written = Vec::new();
        for schemas in std::mem::take(&mut self.stale) {
            let said = schemas.write();
            self.notes.push(
                said.unwrap_or_else(|error| format!("fault: {}: {}", schemas.id, print::in_full(&error))),
            );
            written.push(schemas.path);
        }
        written
    }
}
