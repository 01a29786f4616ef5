//! Puts units where a language runtime finds them: `<plugins>/<id>/<version>/{plugin.json, package/}`, as
//! `runtime/README.md` defines it.
//!
//! Keeps true: what is installed came whole from one package file and never changes under the same digest; a reader
//! sees the old version or the new one, also when this process is killed at any moment (where the file system cannot
//! exchange two names, none for a moment).

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use asp_registry::{plugin_manifest, stdio_manifest};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use serde::Serialize;
use tempfile::TempDir;

use super::pack::{PackError, PackageFile, format_for, pack};
use super::stdio;
use super::unit::{MCP_STDIO, Unit};
use super::unpack::{UnpackError, unpack};

/// Of the folders in which versions are made. A leading dot: no id of a plugin begins so.
const WORK: &str = ".work";
/// In such a folder, the version as it is made.
const FRESH: &str = "version";
const MANIFEST: &str = "plugin.json";
/// An installation takes seconds.
const ABANDONED: Duration = Duration::from_secs(24 * 3600);

/// What became of one unit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Installed {
    pub id: String,
    pub version: String,
    pub language: String,
    /// Lower-case hex SHA-256 of the package file.
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
    Pack { id: String, source: PackError },
    #[error("plugin {id}: the package: {source}")]
    Unpack { id: String, source: UnpackError },
    #[error("plugin {id}: manifest.json of the package: {source}")]
    Command { id: String, source: stdio::CommandError },
    #[error(
        "plugin {id}@{version}: its spec pins the package {pinned}, but the code beside it makes {found}; pin that \
         one or restore the code"
    )]
    Pinned { id: String, version: String, pinned: String, found: String },
    #[error(
        "plugin {id}@{version} is installed with other code or another spec ({there}); give it a new version"
    )]
    Changed { id: String, version: String, there: String },
    #[error("plugin {id}: nothing runs {language} code")]
    Language { id: String, language: String },
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: std::io::Error },
}

/// What one run did.
#[derive(Debug, Default)]
pub struct Report {
    pub installed: Vec<Installed>,
    /// Ids of units without code beside their spec: somebody else installs them.
    pub without_code: Vec<String>,
}

/// Packs and installs every unit in one of `languages` (`None`: any) that has code. Java must be built.
pub fn install(
    units: &[Unit],
    plugins: &Path,
    existing: Existing,
    languages: Option<&[&str]>,
) -> Result<Report, InstallError> {
    let mut report = Report::default();
    for unit in units.iter().filter(|unit| unit.is_in(languages)) {
        let Some(folder) = &unit.folder else {
            report.without_code.push(unit.id.clone());
            continue;
        };
        report.installed.push(stage(unit, folder, plugins, existing)?.place()?);
    }
    Ok(report)
}

/// A version that was made whole and is not yet where a runtime finds it; when dropped it is gone.
#[derive(Debug)]
pub struct Staged {
    installed: Installed,
    place: PathBuf,
    /// On the file system of `place`.
    work: TempDir,
}

/// Packs and unpacks the code of a unit beside `plugins`, of which nothing changes yet.
pub fn stage(unit: &Unit, folder: &Path, plugins: &Path, existing: Existing) -> Result<Staged, InstallError> {
    let work = work(plugins)?;
    let package = pack(unit, folder, work.path())
        .map_err(|source| InstallError::Pack { id: unit.id.clone(), source })?;
    stage_package(unit, &package, plugins, existing)
}

/// A folder for the time of an installation, on the same file system as `plugins`, which is made. What
/// installations that were killed left there is removed.
pub fn work(plugins: &Path) -> Result<TempDir, InstallError> {
    fs::create_dir_all(plugins).map_err(io(plugins))?;
    for entry in fs::read_dir(plugins).map_err(io(plugins))?.flatten() {
        let is_work = entry.file_name().to_str().is_some_and(|name| name.starts_with(WORK));
        let changed = entry.metadata().and_then(|metadata| metadata.modified()).ok();
        if is_work && changed.and_then(|at| at.elapsed().ok()).is_some_and(|age| age > ABANDONED) {
            // Err: it is tried again the next time.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
    tempfile::Builder::new().prefix(WORK).tempdir_in(plugins).map_err(io(plugins))
}

/// Installs a unit from a package file, whose digest must be what the specs pin.
pub fn install_package(
    unit: &Unit,
    package: &PackageFile,
    plugins: &Path,
    existing: Existing,
) -> Result<Installed, InstallError> {
    stage_package(unit, package, plugins, existing)?.place()
}

fn stage_package(
    unit: &Unit,
    package: &PackageFile,
    plugins: &Path,
    existing: Existing,
) -> Result<Staged, InstallError> {
    check_pins(unit, package)?;
    let format = format_for(&unit.language)
        .ok_or_else(|| InstallError::Language { id: unit.id.clone(), language: unit.language.clone() })?;
    let work = work(plugins)?;
    let fresh = work.path().join(FRESH);
    fs::create_dir(&fresh).map_err(io(&fresh))?;
    readable(&fresh)?;
    let code = fresh.join("package");
    unpack(&package.path, format, &package.name, &code)
        .map_err(|source| InstallError::Unpack { id: unit.id.clone(), source })?;
    let manifest = manifest(unit, &code, &package.sha256)?;
    let file = fresh.join(MANIFEST);
    fs::write(&file, &manifest).map_err(io(&file))?;
    let place = plugins.join(&unit.id).join(&unit.version);
    let installed = Installed {
        id: unit.id.clone(),
        version: unit.version.clone(),
        language: unit.language.clone(),
        artifact_sha256: package.sha256.clone(),
        outcome: outcome(unit, &place, &manifest, existing)?,
    };
    Ok(Staged { installed, place, work })
}

/// What putting a version with this manifest into its place will be.
fn outcome(unit: &Unit, place: &Path, manifest: &str, existing: Existing) -> Result<Outcome, InstallError> {
    let Ok(there) = fs::read_to_string(place.join(MANIFEST)) else { return Ok(Outcome::Installed) };
    if there == manifest {
        return Ok(Outcome::Unchanged);
    }
    if existing == Existing::Keep {
        let id = unit.id.clone();
        let version = unit.version.clone();
        return Err(InstallError::Changed { id, version, there: digest_in(&there) });
    }
    Ok(Outcome::Replaced)
}

impl Staged {
    pub fn installed(&self) -> &Installed {
        &self.installed
    }

    /// Puts it where a runtime finds it. What was there is removed afterwards.
    pub fn place(self) -> Result<Installed, InstallError> {
        let Staged { installed, place, work } = self;
        if installed.outcome != Outcome::Unchanged {
            let home = place.parent().unwrap_or(&place);
            fs::create_dir_all(home).map_err(io(home))?;
            readable(home)?;
            exchange(&work.path().join(FRESH), &place).map_err(io(&place))?;
        }
        Ok(installed)
    }
}

/// Gives `fresh` the name `place`; what had it is called `fresh` then, or is beside it.
fn exchange(fresh: &Path, place: &Path) -> std::io::Result<()> {
    match renameat_with(CWD, fresh, CWD, place, RenameFlags::EXCHANGE) {
        Err(Errno::NOENT) => fs::rename(fresh, place),
        // The file system cannot (NFS among them): two steps, the first of which is taken back.
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {
            let old = fresh.with_file_name("old");
            match fs::rename(place, &old) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            fs::rename(fresh, place).inspect_err(|_| {
                // Err: the first of the two faults is told.
                let _ = fs::rename(&old, place);
            })
        }
        done => Ok(done?),
    }
}

/// The unit, when this package of it is installed with this spec.
pub fn installed(unit: &Unit, plugins: &Path, sha256: &str) -> Option<Installed> {
    let place = plugins.join(&unit.id).join(&unit.version);
    let there = fs::read_to_string(place.join(MANIFEST)).ok()?;
    let made = manifest(unit, &place.join("package"), sha256).ok()?;
    (there == made).then(|| Installed {
        id: unit.id.clone(),
        version: unit.version.clone(),
        language: unit.language.clone(),
        artifact_sha256: sha256.to_owned(),
        outcome: Outcome::Unchanged,
    })
}

fn check_pins(unit: &Unit, package: &PackageFile) -> Result<(), InstallError> {
    match unit.pins.iter().find(|pin| **pin != package.sha256) {
        None => Ok(()),
        Some(pin) => Err(InstallError::Pinned {
            id: unit.id.clone(),
            version: unit.version.clone(),
            pinned: pin.clone(),
            found: package.sha256.clone(),
        }),
    }
}

/// The text of `plugin.json`.
fn manifest(unit: &Unit, code: &Path, sha256: &str) -> Result<String, InstallError> {
    if unit.language == MCP_STDIO {
        let launch =
            stdio::launch(code).map_err(|source| InstallError::Command { id: unit.id.clone(), source })?;
        let primitives: Vec<_> = unit.primitives.iter().collect();
        let (named, launch) = ((unit.id.as_str(), unit.version.as_str()), (&*launch.command, &launch.env));
        return Ok(stdio_manifest(named, &primitives, launch, sha256).to_string());
    }
    let made = unit.primitives.first().and_then(|primitive| plugin_manifest(primitive, sha256));
    Ok(made.map(|manifest| manifest.to_string()).unwrap_or_default())
}

/// Workers are other users, and read what is installed.
fn readable(folder: &Path) -> Result<(), InstallError> {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).map_err(io(folder))
}

fn digest_in(manifest: &str) -> String {
    let manifest: serde_json::Value = serde_json::from_str(manifest).unwrap_or_default();
    manifest.get("artifactSha256").and_then(|digest| digest.as_str()).unwrap_or("unknown").to_owned()
}

fn io(path: &Path) -> impl FnOnce(std::io::Error) -> InstallError {
    let path = path.to_owned();
    move |source| InstallError::Io { path, source }
}
