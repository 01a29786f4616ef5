//! A plugin's code as one unit: its files, their digest, and a copy of them.
//!
//! Java code is what Maven made of it: the jars of `target/` and `target/dependency/`. Of the other languages it
//! is the folder itself, without what editors, tests and build tools leave behind.

use std::fs;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

const MAX_FILES: usize = 20_000;
const MAX_BYTES: u64 = 256 << 20;
/// Folders below this depth are refused.
const MAX_DEPTH: usize = 32;
/// Names that are no part of a package, wherever they are.
const LEFT_OUT: [&str; 7] =
    [".git", ".venv", ".pytest_cache", "__pycache__", ".DS_Store", "plugin.json", "tests"];
/// Marks Maven's folder.
const MAVEN: &str = "pom.xml";

/// The files of one plugin, sorted by path.
#[derive(Debug)]
pub struct Package {
    files: Vec<File>,
    /// Lower-case hex SHA-256 over paths, lengths and contents.
    pub sha256: String,
}

#[derive(Debug)]
struct File {
    /// Relative, with `/`.
    path: String,
    source: PathBuf,
    /// Lower-case hex SHA-256 of the content that was hashed; a copy that differs is refused.
    content: [u8; 32],
}

#[derive(Debug, thiserror::Error)]
pub enum PackageError {
    #[error("{} has no code", .0.display())]
    Empty(PathBuf),
    #[error("{}: Maven made no jar yet; run `mvn package` there", .0.display())]
    NotBuilt(PathBuf),
    #[error("{} is neither a file nor a folder; links and devices are no part of a package", .0.display())]
    Special(PathBuf),
    #[error("a file name is not UTF-8: {}", .0.display())]
    Name(PathBuf),
    #[error("more than {MAX_FILES} files, {} MiB or {MAX_DEPTH} levels", MAX_BYTES >> 20)]
    TooLarge,
    #[error("{} changed while it was read", .0.display())]
    Changed(PathBuf),
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: std::io::Error },
}

impl Package {
    /// Reads and hashes a plugin's folder.
    pub fn read(folder: &Path) -> Result<Package, PackageError> {
        let mut found = Vec::new();
        let mut room = MAX_BYTES;
        if folder.join(MAVEN).is_file() {
            jars(folder, &mut found, &mut room)?;
        } else {
            collect(folder, "", 0, &mut found, &mut room)?;
        }
        if found.is_empty() {
            return Err(PackageError::Empty(folder.to_owned()));
        }
        found.sort_by(|a, b| a.path.cmp(&b.path));
        let mut all = Sha256::new();
        for file in &found {
            all.update((file.path.len() as u64).to_be_bytes());
            all.update(file.path.as_bytes());
            all.update(file.content);
        }
        let sha256 = all.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Package { files: found, sha256 })
    }

    /// Copies the files into a new folder: readable for every user, writable for none but its owner.
    pub fn write(&self, folder: &Path) -> Result<(), PackageError> {
        use std::os::unix::fs::PermissionsExt;
        for file in &self.files {
            let target = folder.join(&file.path);
            let parent = target.parent().unwrap_or(folder);
            let mode = if is_executable(&file.source) { 0o755 } else { 0o644 };
            fs::create_dir_all(parent).map_err(io(parent))?;
            let content = fs::read(&file.source).map_err(io(&file.source))?;
            if Sha256::digest(&content)[..] != file.content[..] {
                return Err(PackageError::Changed(file.source.clone()));
            }
            fs::write(&target, content).map_err(io(&target))?;
            fs::set_permissions(&target, fs::Permissions::from_mode(mode)).map_err(io(&target))?;
        }
        Ok(())
    }
}

fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    fs::metadata(path).is_ok_and(|metadata| metadata.permissions().mode() & 0o100 != 0)
}

fn jars(folder: &Path, found: &mut Vec<File>, room: &mut u64) -> Result<(), PackageError> {
    let target = folder.join("target");
    for place in [target.clone(), target.join("dependency")] {
        let Ok(entries) = fs::read_dir(&place) else { continue };
        for entry in entries {
            let path = entry.map_err(io(&place))?.path();
            let name = text(&path)?;
            let of_code = name.ends_with(".jar") && !name.ends_with("-sources.jar");
            if of_code && !found.iter().any(|file| file.path == name) {
                add(&path, name, found, room)?;
            }
        }
    }
    if found.is_empty() { Err(PackageError::NotBuilt(folder.to_owned())) } else { Ok(()) }
}

fn collect(
    folder: &Path,
    prefix: &str,
    depth: usize,
    found: &mut Vec<File>,
    room: &mut u64,
) -> Result<(), PackageError> {
    if depth > MAX_DEPTH {
        return Err(PackageError::TooLarge);
    }
    for entry in fs::read_dir(folder).map_err(io(folder))? {
        let path = entry.map_err(io(folder))?.path();
        let name = text(&path)?;
        if LEFT_OUT.contains(&name.as_str()) || name.ends_with(".pyc") {
            continue;
        }
        let relative = if prefix.is_empty() { name } else { format!("{prefix}/{name}") };
        let kind = fs::symlink_metadata(&path).map_err(io(&path))?.file_type();
        if kind.is_dir() {
            collect(&path, &relative, depth + 1, found, room)?;
        } else if kind.is_file() {
            add(&path, relative, found, room)?;
        } else {
            return Err(PackageError::Special(path));
        }
    }
    Ok(())
}

fn add(path: &Path, relative: String, found: &mut Vec<File>, room: &mut u64) -> Result<(), PackageError> {
    let length = fs::metadata(path).map_err(io(path))?.len();
    *room = room.checked_sub(length).ok_or(PackageError::TooLarge)?;
    if found.len() >= MAX_FILES {
        return Err(PackageError::TooLarge);
    }
    let content = Sha256::digest(fs::read(path).map_err(io(path))?).into();
    found.push(File { path: relative, source: path.to_owned(), content });
    Ok(())
}

fn text(path: &Path) -> Result<String, PackageError> {
    let name = path.file_name().and_then(|name| name.to_str());
    name.map(str::to_owned).ok_or_else(|| PackageError::Name(path.to_owned()))
}

fn io(path: &Path) -> impl FnOnce(std::io::Error) -> PackageError {
    let path = path.to_owned();
    move |source| PackageError::Io { path, source }
}
