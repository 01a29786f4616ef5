//! Installs plugins: from the code beside the specs into the folder a language runtime reads.
//!
//! Owns `<plugins>/<id>/<version>/{plugin.json, package/}` as `runtime/README.md` defines it. Keeps true: what is
//! installed came whole from one folder and never changes under the same digest; a folder with a link that
//! leads outside, a special file, or more than its bounds is not installed at all.

pub mod build;
pub mod examples;
pub mod languages;
pub mod local;
mod package;
pub mod scaffold;

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use asp_proto::snapshot::{Primitive, runtime::Mode};
use asp_registry::{Catalog, plugin_manifest};
use serde::Serialize;

pub use package::{Package, PackageError};

/// Folder of a server that holds its plugins' code, one folder for each primitive id.
const CODE_FOLDER: &str = "plugins";

/// What became of one plugin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Installed {
    pub id: String,
    pub version: String,
    pub language: String,
    /// Lower-case hex SHA-256 over the package's files.
    #[serde(rename = "artifactSha256")]
    pub artifact_sha256: String,
    pub outcome: Outcome,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    Installed,
    /// The same package and manifest were there.
    Unchanged,
    /// Another package of this version was there and `Existing::Replace` was asked for.
    Replaced,
}

impl Outcome {
    pub const fn word(self) -> &'static str {
        match self {
            Outcome::Installed => "installed",
            Outcome::Unchanged => "unchanged",
            Outcome::Replaced => "replaced",
        }
    }
}

/// What to do about another package under the same version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// A version is what it was: refuse.
    Keep,
    /// Development: the code changes without a new version.
    Replace,
}

#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    #[error("plugin {id}: {source}")]
    Package { id: String, source: PackageError },
    #[error(
        "plugin {id}@{version}: its spec pins the package {pinned}, but the code beside it is {found}; pin that one \
         or restore the code"
    )]
    Pinned { id: String, version: String, pinned: String, found: String },
    #[error("plugin {id}@{version} is installed with other code ({there}); give it a new version")]
    Changed { id: String, version: String, there: String },
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: std::io::Error },
}

/// What one run did.
#[derive(Debug, Default)]
pub struct Report {
    pub installed: Vec<Installed>,
    /// Ids of plugins without code beside their spec: somebody else installs them.
    pub without_code: Vec<String>,
}

/// Id, language and folder of every plugin whose code lies below `root`.
pub fn code(catalog: &Catalog, root: &Path) -> Vec<(String, String, PathBuf)> {
    let mut found = Vec::new();
    for server in &catalog.servers {
        for primitive in &server.primitives {
            let Some(Mode::Plugin(plugin)) = mode(primitive) else { continue };
            if let Some(folder) = code_folder(root, &server.files, &primitive.id) {
                found.push((primitive.id.clone(), plugin.language.clone(), folder));
            }
        }
    }
    found.sort();
    found.dedup();
    found
}

/// Installs every plugin of `catalog` in one of `languages` (`None`: any) whose code lies below `root`, the
/// directory its specs were read from. Java must be built.
pub fn install(
    catalog: &Catalog,
    root: &Path,
    plugins: &Path,
    existing: Existing,
    languages: Option<&[&str]>,
) -> Result<Report, InstallError> {
    let mut report = Report::default();
    let mut seen = BTreeSet::new();
    for server in &catalog.servers {
        for primitive in &server.primitives {
            let Some(Mode::Plugin(plugin)) = mode(primitive) else { continue };
            let wanted = languages.is_none_or(|languages| languages.contains(&plugin.language.as_str()));
            if !wanted || !seen.insert((primitive.id.clone(), primitive.version.clone())) {
                continue;
            }
            let Some(folder) = code_folder(root, &server.files, &primitive.id) else {
                report.without_code.push(primitive.id.clone());
                continue;
            };
            let package = Package::read(&folder)
                .map_err(|source| InstallError::Package { id: primitive.id.clone(), source })?;
            check_pin(primitive, &plugin.artifact_sha256, &package)?;
            let outcome = write(primitive, &package, plugins, existing)?;
            report.installed.push(Installed {
                id: primitive.id.clone(),
                version: primitive.version.clone(),
                language: plugin.language.clone(),
                artifact_sha256: package.sha256,
                outcome,
            });
        }
    }
    Ok(report)
}

fn mode(primitive: &Primitive) -> Option<&Mode> {
    primitive.runtime.as_ref()?.mode.as_ref()
}

/// `<folder of one of the server's files>/plugins/<id>`.
fn code_folder(root: &Path, files: &[String], id: &str) -> Option<PathBuf> {
    let folders: BTreeSet<&Path> = files.iter().filter_map(|file| Path::new(file).parent()).collect();
    let candidates = folders.into_iter().map(|folder| root.join(folder).join(CODE_FOLDER).join(id));
    candidates.into_iter().find(|folder| folder.is_dir())
}

fn check_pin(primitive: &Primitive, pinned: &str, package: &Package) -> Result<(), InstallError> {
    if pinned.is_empty() || pinned == package.sha256 {
        return Ok(());
    }
    Err(InstallError::Pinned {
        id: primitive.id.clone(),
        version: primitive.version.clone(),
        pinned: pinned.to_owned(),
        found: package.sha256.clone(),
    })
}

/// Writes beside the place and renames, so that a reader sees the old plugin or the new one.
fn write(
    primitive: &Primitive,
    package: &Package,
    plugins: &Path,
    existing: Existing,
) -> Result<Outcome, InstallError> {
    let io = |path: &Path| {
        let path = path.to_owned();
        move |source| InstallError::Io { path, source }
    };
    let manifest = plugin_manifest(primitive, &package.sha256).map(|manifest| manifest.to_string());
    let manifest = manifest.unwrap_or_default();
    let home = plugins.join(&primitive.id);
    let place = home.join(&primitive.version);
    let mut outcome = Outcome::Installed;
    if let Ok(there) = fs::read_to_string(place.join("plugin.json")) {
        if there == manifest {
            return Ok(Outcome::Unchanged);
        }
        if existing == Existing::Keep {
            let (id, version) = (primitive.id.clone(), primitive.version.clone());
            return Err(InstallError::Changed { id, version, there: digest_in(&there) });
        }
        outcome = Outcome::Replaced;
    }
    fs::create_dir_all(&home).map_err(io(&home))?;
    let fresh = home.join(format!(".{}.new", primitive.version));
    remove(&fresh)?;
    package
        .write(&fresh.join("package"))
        .map_err(|source| InstallError::Package { id: primitive.id.clone(), source })?;
    let file = fresh.join("plugin.json");
    fs::File::create(&file).and_then(|mut file| file.write_all(manifest.as_bytes())).map_err(io(&file))?;
    remove(&place)?;
    fs::rename(&fresh, &place).map_err(io(&place))?;
    Ok(outcome)
}

fn digest_in(manifest: &str) -> String {
    let manifest: serde_json::Value = serde_json::from_str(manifest).unwrap_or_default();
    manifest.get("artifactSha256").and_then(|digest| digest.as_str()).unwrap_or("unknown").to_owned()
}

fn remove(folder: &Path) -> Result<(), InstallError> {
    match fs::remove_dir_all(folder) {
        Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
            Err(InstallError::Io { path: folder.to_owned(), source })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
