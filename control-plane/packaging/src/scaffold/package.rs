//! The package that another primitive of a server joins: the one that its first plugin of the same language has.

use std::fs;
use std::path::Path;

use serde::Deserialize;

#[derive(Deserialize)]
struct ExistingSpec {
    id: String,
    version: String,
    runtime: Option<ExistingRuntime>,
}

#[derive(Deserialize)]
struct ExistingRuntime {
    mode: String,
    language: Option<String>,
    package: Option<String>,
}

/// A package of an existing server.
pub(super) struct ExistingPackage {
    /// `runtime.package` for a spec that joins it.
    pub package: String,
    /// Version for such a spec.
    pub version: String,
}

impl ExistingPackage {
    /// Finds the package that a spec in `folder` uses for code in this language.
    pub(super) fn find(folder: &Path, language: &str) -> Option<ExistingPackage> {
        let entries = fs::read_dir(folder).ok()?;
        let mut files: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
        files.sort();
        files.iter().find_map(|file| {
            let is_yaml = file.extension().is_some_and(|extension| extension == "yaml" || extension == "yml");
            let text = if is_yaml { fs::read_to_string(file).ok()? } else { return None };
            let ExistingSpec { id, version, runtime } = serde_saphyr::from_str(&text).ok()?;
            let runtime = runtime.filter(|runtime| runtime.mode == "plugin")?;
            (runtime.language.as_deref() == Some(language))
                .then(|| ExistingPackage { package: runtime.package.unwrap_or(id), version })
        })
    }

    /// Returns the name of its folder.
    pub(super) fn folder(&self) -> &str {
        self.package.split_once('@').map_or(&self.package, |(name, _)| name)
    }
}
