//! Installs units where a language runtime finds them: `<plugins>/<id>/<version>/{plugin.json, package/}`, as
//! `runtime/README.md` defines it.
//!
//! Keeps true: an installed version comes from one whole package file, on an author's machine from the files for one, and never
//! changes under the same digest; a reader sees either the old version or the new one, even if this process is killed at any
//! moment (on a file system that cannot exchange two names, it sees neither for a moment).

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use asp_registry::{plugin_manifest, stdio_manifest};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use serde::Serialize;
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use super::fingerprint;
use super::folder::at;
use super::pack::{PackageFile, content, format_for, pack};
use super::stdio;
use super::unit::{MCP_STDIO, Unit};
use super::unpack::{copy, unpack};

/// Prefix of the folders in which versions are prepared. No plugin's id starts with a dot.
const WORK: &str = ".work";
/// Name of the prepared version in such a folder.
const FRESH: &str = "version";
const MANIFEST: &str = "plugin.json";
/// Age at which a work folder counts as abandoned; an installation takes seconds.
const ABANDONED: Duration = Duration::from_secs(24 * 3600);

/// Result of installing one unit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InstalledUnit {
    pub id: String,
    pub version: String,
    pub language: String,
    /// Lower-case hex SHA-256 of the package file.
    #[serde(rename = "artifactSha256")]
    pub artifact_sha256: String,
    pub outcome: InstallOutcome,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum InstallOutcome {
    Installed,
    /// The same package and manifest were installed already.
    Unchanged,
    /// Another package of this version was installed, and `ConflictPolicy::Replace` was requested.
    Replaced,
}

impl InstallOutcome {
    pub const fn word(self) -> &'static str {
        match self {
            InstallOutcome::Installed => "installed",
            InstallOutcome::Unchanged => "unchanged",
            InstallOutcome::Replaced => "replaced",
        }
    }
}

/// Handling of another package installed under the same version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConflictPolicy {
    /// Reject it: a version never changes.
    Keep,
    /// Replace it: during development the code changes without a new version.
    Replace,
}

/// Result of one run.
#[derive(Debug, Default)]
pub struct InstallReport {
    pub installed: Vec<InstalledUnit>,
    /// Ids of units without code next to their spec, which are installed by other means.
    pub without_code: Vec<String>,
}

/// Packs and installs every unit in one of `languages` (`None`: any) that has code. Java must have been built.
pub fn install(
    units: &[Unit],
    plugins: &Path,
    existing: ConflictPolicy,
    languages: Option<&[&str]>,
) -> Result<InstallReport> {
    let mut report = InstallReport::default();
    for unit in units.iter().filter(|unit| unit.is_in(languages)) {
        let Some(folder) = &unit.folder else {
            report.without_code.push(unit.id.clone());
            continue;
        };
        report.installed.push(stage(unit, folder, plugins, existing)?.place()?);
    }
    Ok(report)
}

/// A complete version that no runtime can find yet; dropping it removes it.
#[derive(Debug)]
pub struct StagedUnit {
    installed: InstalledUnit,
    place: PathBuf,
    /// Work folder, on the same file system as `place`.
    work: TempDir,
}

/// Packs a unit's code and unpacks it next to `plugins`, whose content does not change yet.
pub fn stage(unit: &Unit, folder: &Path, plugins: &Path, existing: ConflictPolicy) -> Result<StagedUnit> {
    let work = work(plugins)?;
    let package = pack(unit, folder, work.path()).with_context(|| format!("plugin {}", unit.id))?;
    stage_package(unit, &package, plugins, existing)
}

/// Works like [`stage`], but copies the files without making a package file, which takes seconds if there are many
/// dependencies: for the machine of an author. The digest is that of the sources. A unit whose package is pinned is packed.
pub fn stage_files(
    unit: &Unit,
    folder: &Path,
    plugins: &Path,
    existing: ConflictPolicy,
) -> Result<StagedUnit> {
    // Taken before the files are read: if they change meanwhile, the next digest is another one.
    let sources = fingerprint::of(folder, &unit.language).filter(|_| unit.pins.is_empty());
    let Some(sources) = sources else { return stage(unit, folder, plugins, existing) };
    let digest = Sha256::new().chain_update(sources).chain_update(fingerprint::of_snapshots(folder));
    let sha256: String = digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    let work = work(plugins)?;
    let files = content(unit, folder, work.path()).with_context(|| format!("plugin {}", unit.id))?;
    stage_code(unit, &sha256, (plugins, existing), |code| {
        copy(&files.files, code).with_context(|| format!("plugin {}: its files", unit.id))
    })
}

/// Creates a work folder for an installation, on the same file system as `plugins`, which is created too. Removes the work
/// folders of installations that were killed.
pub fn work(plugins: &Path) -> Result<TempDir> {
    fs::create_dir_all(plugins).with_context(at(plugins))?;
    for entry in fs::read_dir(plugins).with_context(at(plugins))?.flatten() {
        let is_work = entry.file_name().to_str().is_some_and(|name| name.starts_with(WORK));
        let changed = entry.metadata().and_then(|metadata| metadata.modified()).ok();
        if is_work && changed.and_then(|at| at.elapsed().ok()).is_some_and(|age| age > ABANDONED) {
            // Err: tried again next time.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
    tempfile::Builder::new().prefix(WORK).tempdir_in(plugins).with_context(at(plugins))
}

/// Installs a unit from a package file, whose digest must be the one that the specs pin.
pub fn install_package(
    unit: &Unit,
    package: &PackageFile,
    plugins: &Path,
    existing: ConflictPolicy,
) -> Result<InstalledUnit> {
    stage_package(unit, package, plugins, existing)?.place()
}

fn stage_package(
    unit: &Unit,
    package: &PackageFile,
    plugins: &Path,
    existing: ConflictPolicy,
) -> Result<StagedUnit> {
    check_pins(unit, package)?;
    let format = format_for(&unit.language)
        .with_context(|| format!("plugin {}: nothing runs {} code", unit.id, unit.language))?;
    stage_code(unit, &package.sha256, (plugins, existing), |code| {
        unpack(&package.path, format, &package.name, code)
            .with_context(|| format!("plugin {}: the package", unit.id))
    })
}

/// Prepares a version whose code `write` puts into the folder that it is given, which it creates.
fn stage_code(
    unit: &Unit,
    sha256: &str,
    (plugins, existing): (&Path, ConflictPolicy),
    write: impl FnOnce(&Path) -> Result<()>,
) -> Result<StagedUnit> {
    let work = work(plugins)?;
    let fresh = work.path().join(FRESH);
    fs::create_dir(&fresh).with_context(at(&fresh))?;
    readable(&fresh)?;
    let code = fresh.join("package");
    write(&code)?;
    let manifest = manifest(unit, &code, sha256)?;
    let file = fresh.join(MANIFEST);
    write_manifest(&file, &manifest)?;
    let place = plugins.join(&unit.id).join(&unit.version);
    let installed = InstalledUnit {
        id: unit.id.clone(),
        version: unit.version.clone(),
        language: unit.language.clone(),
        artifact_sha256: sha256.to_owned(),
        outcome: outcome(unit, &place, &manifest, existing)?,
    };
    Ok(StagedUnit { installed, place, work })
}

/// Determines the outcome of installing a version with this manifest.
fn outcome(unit: &Unit, place: &Path, manifest: &str, existing: ConflictPolicy) -> Result<InstallOutcome> {
    let Ok(there) = fs::read_to_string(place.join(MANIFEST)) else { return Ok(InstallOutcome::Installed) };
    if there == manifest {
        return Ok(InstallOutcome::Unchanged);
    }
    if existing == ConflictPolicy::Keep {
        bail!(
            "plugin {}@{} is installed with other code or another spec ({}); give it a new version",
            unit.id,
            unit.version,
            digest_in(&there)
        );
    }
    Ok(InstallOutcome::Replaced)
}

impl StagedUnit {
    pub fn installed(&self) -> &InstalledUnit {
        &self.installed
    }

    /// Moves the version to where a runtime finds it, then removes the one it replaces.
    pub fn place(self) -> Result<InstalledUnit> {
        let StagedUnit { installed, place, work } = self;
        if installed.outcome != InstallOutcome::Unchanged {
            let home = place.parent().unwrap_or(&place);
            fs::create_dir_all(home).with_context(at(home))?;
            readable(home)?;
            exchange(&work.path().join(FRESH), &place).with_context(at(&place))?;
        }
        Ok(installed)
    }
}

/// Gives `fresh` the name `place`; the former `place` is then named `fresh`, or `old` next to it.
fn exchange(fresh: &Path, place: &Path) -> std::io::Result<()> {
    match renameat_with(CWD, fresh, CWD, place, RenameFlags::EXCHANGE) {
        Err(Errno::NOENT) => fs::rename(fresh, place),
        // The file system cannot exchange names (NFS among others): two steps, of which the first is undone if the second fails.
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {
            let old = fresh.with_file_name("old");
            match fs::rename(place, &old) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            fs::rename(fresh, place).inspect_err(|_| {
                // Err: the first of the two faults is reported.
                let _ = fs::rename(&old, place);
            })
        }
        done => Ok(done?),
    }
}

/// Returns the unit's installation if exactly this package is installed with this spec.
pub fn installed(unit: &Unit, plugins: &Path, sha256: &str) -> Option<InstalledUnit> {
    let place = plugins.join(&unit.id).join(&unit.version);
    let there = fs::read_to_string(place.join(MANIFEST)).ok()?;
    let made = manifest(unit, &place.join("package"), sha256).ok()?;
    (there == made).then(|| InstalledUnit {
        id: unit.id.clone(),
        version: unit.version.clone(),
        language: unit.language.clone(),
        artifact_sha256: sha256.to_owned(),
        outcome: InstallOutcome::Unchanged,
    })
}

fn check_pins(unit: &Unit, package: &PackageFile) -> Result<()> {
    match unit.pins.iter().find(|pin| **pin != package.sha256) {
        None => Ok(()),
        Some(pin) => bail!(
            "plugin {}@{}: its spec pins the package {pin}, but its code builds {}; pin that one or restore the \
             code",
            unit.id,
            unit.version,
            package.sha256
        ),
    }
}

/// Returns the content of `plugin.json`.
fn manifest(unit: &Unit, code: &Path, sha256: &str) -> Result<String> {
    let primitives: Vec<_> = unit.primitives.iter().collect();
    let named = (unit.id.as_str(), unit.version.as_str());
    if unit.language == MCP_STDIO {
        let launch = stdio::launch(code)
            .with_context(|| format!("plugin {}: manifest.json of the package", unit.id))?;
        return Ok(stdio_manifest(named, &primitives, (&*launch.command, &launch.env), sha256).to_string());
    }
    let made = plugin_manifest(named, &primitives, sha256).with_context(|| {
        format!(
            "plugin {}: its primitives may reach different hosts; state the same security.allowedDomains and security.allowedTcp",
            unit.id
        )
    })?;
    Ok(made.to_string())
}

/// Writes `plugin.json`, readable for workers, which run as other users, regardless of the process's umask.
fn write_manifest(file: &Path, manifest: &str) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::write(file, manifest).with_context(at(file))?;
    fs::set_permissions(file, fs::Permissions::from_mode(0o644)).with_context(at(file))
}

/// Makes a folder readable for workers, which run as other users.
fn readable(folder: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).with_context(at(folder))
}

fn digest_in(manifest: &str) -> String {
    let manifest: serde_json::Value = serde_json::from_str(manifest).unwrap_or_default();
    manifest.get("artifactSha256").and_then(|digest| digest.as_str()).unwrap_or("unknown").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the test again in a child process with a restrictive umask, which in this process would affect other tests.
    #[test]
    fn a_processs_mask_keeps_no_worker_from_its_manifest() {
        use std::os::unix::fs::PermissionsExt;
        const AGAIN: &str = "ASP_TEST_INSTALL_MASK";
        let this = "install::tests::a_processs_mask_keeps_no_worker_from_its_manifest";
        if std::env::var_os(AGAIN).is_none() {
            let mut again = std::process::Command::new("sh");
            again.args(["-c", "umask 077; exec \"$0\" --exact \"$1\""]).arg(std::env::current_exe().unwrap());
            let done = again.arg(this).env(AGAIN, "1").output().unwrap();
            let said = String::from_utf8_lossy(&done.stdout);
            assert!(done.status.success() && said.contains("1 passed"), "{said}");
            return;
        }
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join(MANIFEST);
        write_manifest(&file, "{}").unwrap();
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o644);
    }
}
