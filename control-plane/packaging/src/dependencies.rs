//! Dependencies that a plugin's folder declares in its language's own file: pinned by a lock beside that file, and installed once
//! for each content of the lock, in a cache of the user.
//!
//! Owns the cache. Keeps true: nothing of a dependency runs while it is resolved or installed (wheels only, no install scripts);
//! pip and npm reach the registries of the account alone (`network`); what a package contains is what the lock pins by its hashes; an entry of the cache is complete and never changes. A folder
//! that brings its dependencies itself is taken as it is.

mod network;
mod node;
mod packages;
mod python;

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail};
use asp_command::print;
use sha2::{Digest, Sha256};
use tokio_util::sync::CancellationToken;

pub use packages::{install_npm_package, install_pypi_package};

/// Name of the cache's folder in the platform's directory of the user's caches.
const CACHE: &str = "dependencies";
/// Maximum number of entries; the one that was not used for the longest time is removed first.
const MAX_ENTRIES: usize = 32;
/// Prefix of folders in which entries are prepared.
const WORK: &str = ".work";
/// Timeout of a resolution and of an installation.
const FETCH: Duration = Duration::from_secs(600);

/// Dependencies of one plugin's folder that the platform installs.
#[derive(Debug)]
pub struct Dependencies {
    folder: PathBuf,
    ecosystem: Ecosystem,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ecosystem {
    Python,
    Node,
}

impl Dependencies {
    /// Returns `None` if the folder declares no dependencies, or brings them itself.
    pub fn of(folder: &Path, language: &str) -> Option<Dependencies> {
        let ecosystem = match language {
            "python" if python::is_declared(folder) => Ecosystem::Python,
            "node" if node::is_declared(folder) => Ecosystem::Node,
            _ => return None,
        };
        Some(Dependencies { folder: folder.to_owned(), ecosystem })
    }

    /// Writes the lock unless it is current, and installs what it pins unless that is in the cache.
    pub fn ensure(&self, stop: &CancellationToken) -> Result<()> {
        self.ensure_in(&cache()?, stop)
    }

    /// Fails unless the lock fits the declaration.
    pub fn check(&self, stop: &CancellationToken) -> Result<()> {
        if self.current(stop)?.is_none() {
            bail!("the lock of the dependencies of {} is missing or old", self.folder.display());
        }
        Ok(())
    }

    /// Returns the folder that has what the lock pins, in `site-packages` or `node_modules`.
    pub fn installed(&self) -> Result<PathBuf> {
        let entry = cache()?.join(self.entry_name()?);
        if !entry.is_dir() {
            bail!(
                "the dependencies of {} are not installed; `asp plugin build` installs them",
                self.folder.display()
            );
        }
        Ok(entry)
    }

    /// Returns the name of the folder that has what the lock pins, which no other lock has.
    pub fn entry_name(&self) -> Result<String> {
        self.key(&self.pinned()?)
    }

    fn ensure_in(&self, cache: &Path, stop: &CancellationToken) -> Result<()> {
        let lock = match self.current(stop)? {
            Some(lock) => lock,
            None => {
                self.resolve(cache, stop)?;
                self.pinned()?
            }
        };
        let entry = cache.join(self.key(&lock)?);
        if entry.is_dir() {
            return mark_used(&entry);
        }
        print::error(&format!("installing the dependencies of {}", self.folder.display()));
        let work = work(cache)?;
        let fresh = work.path().join("entry");
        fs::create_dir(&fresh).with_context(|| format!("create {}", fresh.display()))?;
        match self.ecosystem {
            Ecosystem::Python => python::install(&lock, &fresh, work.path(), stop),
            Ecosystem::Node => node::install(&self.folder, &lock, &fresh, stop),
        }
        .with_context(|| format!("install the dependencies of {}", self.folder.display()))?;
        open_to_all(&fresh)?;
        match fs::rename(&fresh, &entry) {
            // Another process may have installed the same.
            Err(error) if !entry.is_dir() => Err(error).with_context(|| format!("write {}", entry.display())),
            Ok(()) | Err(_) => {
                evict(cache, MAX_ENTRIES);
                Ok(())
            }
        }
    }

    /// Returns what the lock pins if the lock fits the declaration.
    fn current(&self, stop: &CancellationToken) -> Result<Option<String>> {
        match self.ecosystem {
            Ecosystem::Python => python::current(&self.folder, stop),
            Ecosystem::Node => node::current(&self.folder),
        }
    }

    /// Returns what the lock pins.
    fn pinned(&self) -> Result<String> {
        match self.ecosystem {
            Ecosystem::Python => python::pinned(&self.folder),
            Ecosystem::Node => node::pinned(&self.folder),
        }
    }

    fn resolve(&self, cache: &Path, stop: &CancellationToken) -> Result<()> {
        print::error(&format!("resolving the dependencies of {}", self.folder.display()));
        let work = work(cache)?;
        match self.ecosystem {
            Ecosystem::Python => python::resolve(&self.folder, work.path(), stop),
            Ecosystem::Node => node::resolve(&self.folder, work.path(), stop),
        }
        .with_context(|| format!("resolve the dependencies of {}", self.folder.display()))
    }

    /// Returns the name of the cache's entry for this lock: code that was compiled fits one system and one interpreter.
    fn key(&self, lock: &str) -> Result<String> {
        let interpreter = match self.ecosystem {
            Ecosystem::Python => python::interpreter()?.display().to_string(),
            Ecosystem::Node => "node".to_owned(),
        };
        let mut digest = Sha256::new();
        for part in [std::env::consts::OS, std::env::consts::ARCH, interpreter.as_str(), lock] {
            digest.update((part.len() as u64).to_be_bytes());
            digest.update(part);
        }
        Ok(digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
    }
}

fn cache() -> Result<PathBuf> {
    cache_folder(CACHE)
}

/// Returns a folder of this name in the user's cache directory.
pub(crate) fn cache_folder(name: &str) -> Result<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = || variable("HOME").map(|home| home.join(".cache"));
    let caches = variable("XDG_CACHE_HOME").or_else(home);
    Ok(caches.context("no HOME to keep dependencies in; set XDG_CACHE_HOME")?.join("asp").join(name))
}

/// Creates a work folder, on the same file system as the cache's entries.
fn work(cache: &Path) -> Result<tempfile::TempDir> {
    fs::create_dir_all(cache).with_context(|| format!("create {}", cache.display()))?;
    let made = tempfile::Builder::new().prefix(WORK).tempdir_in(cache);
    made.with_context(|| format!("create a folder in {}", cache.display()))
}

/// Writes a lock as a new file: a link in its place, which a stranger's folder may have, is replaced and not followed.
fn write_lock(path: &Path, text: &str) -> Result<()> {
    let at = || format!("write {}", path.display());
    let folder = path.parent().unwrap_or(Path::new("."));
    let readable = fs::Permissions::from_mode(0o644);
    let made = tempfile::Builder::new().prefix(WORK).permissions(readable).tempfile_in(folder);
    let mut fresh = made.with_context(at)?;
    fresh.write_all(text.as_bytes()).with_context(at)?;
    fresh.persist(path).map(drop).map_err(|failed| failed.error).with_context(at)
}

/// Marks an entry of a cache as used now.
pub(crate) fn mark_used(entry: &Path) -> Result<()> {
    let marked = fs::File::open(entry).and_then(|folder| folder.set_modified(SystemTime::now()));
    marked.with_context(|| format!("mark {}", entry.display()))
}

/// Removes the entries that were not used for the longest time; work that was abandoned counts as an entry.
pub(crate) fn evict(cache: &Path, max_entries: usize) {
    let mut found: Vec<(SystemTime, PathBuf)> = Vec::new();
    for entry in fs::read_dir(cache).into_iter().flatten().flatten() {
        let used = entry.metadata().and_then(|metadata| metadata.modified());
        let is_work = entry.file_name().to_str().is_some_and(|name| name.starts_with(WORK));
        // Err: it was removed since.
        let Ok(used) = used else { continue };
        if !is_work || used.elapsed().is_ok_and(|age| age > 2 * FETCH) {
            found.push((used, entry.path()));
        }
    }
    found.sort();
    let excess = found.len().saturating_sub(max_entries);
    for (_, path) in found.into_iter().take(excess) {
        // Err: tried again after the next installation.
        let _ = fs::remove_dir_all(path);
    }
}

/// Makes folders and files readable for workers, which run as other users, regardless of the process's umask.
fn open_to_all(folder: &Path) -> Result<()> {
    let at = |path: &Path| format!("open {}", path.display());
    let set = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).with_context(|| at(path))
    };
    set(folder, 0o755)?;
    for entry in fs::read_dir(folder).with_context(|| at(folder))? {
        let path = entry.with_context(|| at(folder))?.path();
        let metadata = fs::symlink_metadata(&path).with_context(|| at(&path))?;
        if metadata.is_dir() {
            open_to_all(&path)?;
        } else if metadata.is_file() {
            let is_executable = metadata.permissions().mode() & 0o100 != 0;
            set(&path, if is_executable { 0o755 } else { 0o644 })?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
