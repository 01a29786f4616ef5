//! A plugin's folder as a list of files: which of them are code, and the limits on them.
//!
//! For a Maven project these are Maven's output: its jar, and the jars it depends on in `lib/`. For other folders they are
//! the folder's own files, without those of editors, tests and build tools.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

pub const MAX_FILES: usize = 20_000;
/// Maximum bytes of all files together.
pub const MAX_BYTES: u64 = 256 << 20;
/// Maximum depth of folders; deeper ones are rejected.
pub const MAX_DEPTH: usize = 32;
/// Names that are never packed, wherever they are. `.bin` contains only npm's links to files that are packed anyway.
const LEFT_OUT: [&str; 8] =
    [".git", ".venv", ".pytest_cache", "__pycache__", ".DS_Store", "plugin.json", "tests", ".bin"];
/// The shim, which the runtime provides; authors install it for their editor's types, which npm does by a link.
const NODE_SHIM: &str = "@asp/plugin";
/// File that identifies a Maven project.
const MAVEN: &str = "pom.xml";

/// Files of one folder, sorted by path.
#[derive(Debug)]
pub struct Folder {
    pub files: Vec<File>,
}

#[derive(Debug)]
pub struct File {
    /// Relative path, with `/`.
    pub path: String,
    pub source: PathBuf,
    pub executable: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    #[error("{} has no code", .0.display())]
    Empty(PathBuf),
    #[error("{}: Maven has built no jar yet; run `mvn package` there", .0.display())]
    NotBuilt(PathBuf),
    #[error("{}: Maven's folder has several jars; run `mvn clean package` there", .0.display())]
    SeveralJars(PathBuf),
    #[error("{} is neither a file nor a folder; remove it: a package cannot contain links or devices, except \
             npm's links to @asp/plugin and to devDependencies of package.json, which are left out", .0.display())]
    Special(PathBuf),
    #[error("a file name is not UTF-8: {}", .0.display())]
    Name(PathBuf),
    #[error("more than {MAX_FILES} files, {} MiB or {MAX_DEPTH} levels", MAX_BYTES >> 20)]
    TooLarge,
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: std::io::Error },
}

/// Files found so far and the remaining budget.
struct Walk {
    files: Vec<File>,
    room: u64,
    dev_links: DevLinks,
}

/// Links below `node_modules` that are not packed: to the shim, and to the `devDependencies` of `package.json`.
pub struct DevLinks(BTreeSet<String>);

impl DevLinks {
    pub fn of(folder: &Path) -> DevLinks {
        let text = fs::read(folder.join("package.json")).unwrap_or_default();
        let package: Value = serde_json::from_slice(&text).unwrap_or_default();
        let listed = package.get("devDependencies").and_then(Value::as_object);
        let names = listed.into_iter().flatten().map(|(name, _)| name.clone());
        DevLinks(names.chain([NODE_SHIM.to_owned()]).collect())
    }

    /// Whether a link at this path, relative to the plugin's folder, is not packed.
    pub fn has(&self, relative: &str) -> bool {
        relative.strip_prefix("node_modules/").is_some_and(|name| self.0.contains(name))
    }
}

impl Folder {
    /// Lists the files of a plugin's folder.
    pub fn read(folder: &Path) -> Result<Folder, FolderError> {
        let mut walk = Walk { files: Vec::new(), room: MAX_BYTES, dev_links: DevLinks::of(folder) };
        if is_maven(folder) {
            jars(folder, &mut walk)?;
        } else {
            collect(folder, "", 0, &mut walk)?;
        }
        if walk.files.is_empty() {
            return Err(FolderError::Empty(folder.to_owned()));
        }
        walk.files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(Folder { files: walk.files })
    }
}

/// Whether files and folders of this name are not packed.
pub fn is_left_out(name: &str) -> bool {
    LEFT_OUT.contains(&name) || name.ends_with(".pyc")
}

pub fn is_maven(folder: &Path) -> bool {
    folder.join(MAVEN).is_file()
}

/// Adds the project's jar and those in `lib/`, without the jars of sources, documentation and tests, and the jar from which a
/// shading build started.
fn jars(folder: &Path, walk: &mut Walk) -> Result<(), FolderError> {
    let target = folder.join("target");
    let no_code = ["-sources.jar", "-javadoc.jar", "-tests.jar"];
    for (place, prefix) in [(target.clone(), ""), (target.join("dependency"), "lib/")] {
        let Ok(entries) = fs::read_dir(&place) else { continue };
        for entry in entries {
            let path = entry.map_err(io(&place))?.path();
            let name = text(&path)?;
            let is_code = name.ends_with(".jar") && !no_code.iter().any(|end| name.ends_with(end));
            if is_code && !name.starts_with("original-") {
                walk.add(&path, format!("{prefix}{name}"))?;
            }
        }
    }
    match walk.files.iter().filter(|file| !file.path.contains('/')).count() {
        0 => Err(FolderError::NotBuilt(folder.to_owned())),
        1 => Ok(()),
        _ => Err(FolderError::SeveralJars(folder.to_owned())),
    }
}

fn collect(folder: &Path, prefix: &str, depth: usize, walk: &mut Walk) -> Result<(), FolderError> {
    if depth > MAX_DEPTH {
        return Err(FolderError::TooLarge);
    }
    for entry in fs::read_dir(folder).map_err(io(folder))? {
        let path = entry.map_err(io(folder))?.path();
        let name = text(&path)?;
        if is_left_out(&name) {
            continue;
        }
        let relative = if prefix.is_empty() { name } else { format!("{prefix}/{name}") };
        let kind = fs::symlink_metadata(&path).map_err(io(&path))?.file_type();
        if kind.is_dir() {
            collect(&path, &relative, depth + 1, walk)?;
        } else if kind.is_file() {
            walk.add(&path, relative)?;
        } else if !(kind.is_symlink() && walk.dev_links.has(&relative)) {
            return Err(FolderError::Special(path));
        }
    }
    Ok(())
}

impl Walk {
    fn add(&mut self, path: &Path, relative: String) -> Result<(), FolderError> {
        use std::os::unix::fs::PermissionsExt;
        let metadata = fs::metadata(path).map_err(io(path))?;
        self.room = self.room.checked_sub(metadata.len()).ok_or(FolderError::TooLarge)?;
        if self.files.len() >= MAX_FILES {
            return Err(FolderError::TooLarge);
        }
        let executable = metadata.permissions().mode() & 0o100 != 0;
        self.files.push(File { path: relative, source: path.to_owned(), executable });
        Ok(())
    }
}

fn text(path: &Path) -> Result<String, FolderError> {
    let name = path.file_name().and_then(|name| name.to_str());
    name.map(str::to_owned).ok_or_else(|| FolderError::Name(path.to_owned()))
}

fn io(path: &Path) -> impl FnOnce(std::io::Error) -> FolderError {
    let path = path.to_owned();
    move |source| FolderError::Io { path, source }
}
