//! A plugin's folder as a list of files: which of them are code, and the limits on them.
//!
//! For a Maven project these are Maven's output: its jar, and the jars it depends on in `lib/`. For other folders they are
//! the folder's own files, without those of editors, tests and build tools (`development.rs`), and the dependencies that its
//! lock pins (`dependencies.rs`).

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};

use super::dependencies::Dependencies;
use super::development::DevelopmentFiles;

pub const MAX_FILES: usize = 20_000;
/// Maximum bytes of all files together.
pub const MAX_BYTES: u64 = 256 << 20;
/// Maximum depth of folders; deeper ones are rejected.
pub const MAX_DEPTH: usize = 32;
/// Names that are never packed, wherever they are. `.bin` contains only npm's links to files that are packed anyway.
const LEFT_OUT: [&str; 13] = [
    ".git",
    ".gitignore",
    ".venv",
    ".idea",
    ".vscode",
    ".mypy_cache",
    ".pytest_cache",
    ".ruff_cache",
    "__pycache__",
    ".DS_Store",
    "plugin.json",
    "tests",
    ".bin",
];
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
    /// Whether the source never changes.
    pub is_fixed: bool,
}

/// Files found so far and the remaining budget.
struct Walk {
    files: Vec<File>,
    room: u64,
    development: DevelopmentFiles,
    /// Whether the files being found never change.
    is_fixed: bool,
}

impl Folder {
    /// Lists the files of a plugin's folder, with those of its dependencies.
    pub fn read(folder: &Path, language: &str) -> anyhow::Result<Folder> {
        let dependencies = Dependencies::of(folder, language).map(|declared| declared.installed());
        Folder::with(folder, language, dependencies.transpose()?.as_deref())
    }

    /// Lists the files of a plugin's folder, and those below `dependencies`.
    fn with(folder: &Path, language: &str, dependencies: Option<&Path>) -> anyhow::Result<Folder> {
        let development = DevelopmentFiles::of(folder, language);
        let mut walk = Walk { files: Vec::new(), room: MAX_BYTES, development, is_fixed: false };
        if is_maven(folder) {
            jars(folder, &mut walk)?;
        } else {
            collect(folder, "", 0, &mut walk)?;
        }
        if walk.files.is_empty() {
            return Err(empty(folder));
        }
        if let Some(installed) = dependencies {
            walk.development = DevelopmentFiles::of(installed, language);
            walk.is_fixed = true;
            collect(installed, "", 0, &mut walk)?;
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
fn jars(folder: &Path, walk: &mut Walk) -> anyhow::Result<()> {
    let target = folder.join("target");
    let no_code = ["-sources.jar", "-javadoc.jar", "-tests.jar"];
    for (place, prefix) in [(target.clone(), ""), (target.join("dependency"), "lib/")] {
        let Ok(entries) = fs::read_dir(&place) else { continue };
        for entry in entries {
            let path = entry.with_context(at(&place))?.path();
            let name = text(&path)?;
            let is_code = name.ends_with(".jar") && !no_code.iter().any(|end| name.ends_with(end));
            if is_code && !name.starts_with("original-") {
                walk.add(&path, format!("{prefix}{name}"))?;
            }
        }
    }
    match walk.files.iter().filter(|file| !file.path.contains('/')).count() {
        0 => bail!("{}: Maven has built no jar yet; run `mvn package` there", folder.display()),
        1 => Ok(()),
        _ => bail!("{}: Maven's folder has several jars; run `mvn clean package` there", folder.display()),
    }
}

fn collect(folder: &Path, prefix: &str, depth: usize, walk: &mut Walk) -> anyhow::Result<()> {
    if depth > MAX_DEPTH {
        return Err(too_large());
    }
    for entry in fs::read_dir(folder).with_context(at(folder))? {
        let path = entry.with_context(at(folder))?.path();
        let name = text(&path)?;
        if is_left_out(&name) {
            continue;
        }
        let relative = if prefix.is_empty() { name } else { format!("{prefix}/{name}") };
        if walk.development.has(&relative) {
            continue;
        }
        let kind = fs::symlink_metadata(&path).with_context(at(&path))?.file_type();
        if kind.is_dir() {
            collect(&path, &relative, depth + 1, walk)?;
        } else if kind.is_file() {
            walk.add(&path, relative)?;
        } else if !(kind.is_symlink() && walk.development.has_link(&relative)) {
            bail!(
                "{} is neither a file nor a folder; remove it: a package cannot contain links or devices, except \
                 npm's links to @asp/plugin and to devDependencies of package.json, which are left out",
                path.display()
            );
        }
    }
    Ok(())
}

impl Walk {
    fn add(&mut self, path: &Path, relative: String) -> anyhow::Result<()> {
        use std::os::unix::fs::PermissionsExt;
        let metadata = fs::metadata(path).with_context(at(path))?;
        self.room = self.room.checked_sub(metadata.len()).ok_or_else(too_large)?;
        if self.files.len() >= MAX_FILES {
            return Err(too_large());
        }
        let executable = metadata.permissions().mode() & 0o100 != 0;
        let is_fixed = self.is_fixed;
        self.files.push(File { path: relative, source: path.to_owned(), executable, is_fixed });
        Ok(())
    }
}

fn text(path: &Path) -> anyhow::Result<String> {
    let name = path.file_name().and_then(|name| name.to_str());
    name.map(str::to_owned).with_context(|| format!("a file name is not UTF-8: {}", path.display()))
}

pub(super) fn empty(folder: &Path) -> anyhow::Error {
    anyhow!("{} has no code", folder.display())
}

pub(super) fn too_large() -> anyhow::Error {
    anyhow!("more than {MAX_FILES} files, {} MiB or {MAX_DEPTH} levels", MAX_BYTES >> 20)
}

/// Returns the context of an error: the path that it is about.
pub(super) fn at(path: &Path) -> impl FnOnce() -> String {
    move || path.display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, file: &str) {
        let path = root.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "{}").unwrap();
    }

    #[test]
    fn installed_dependencies_take_the_place_of_the_authors_own() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("plugin");
        let installed = root.path().join("installed");
        write(&folder, "main.mjs");
        write(&folder, "node_modules/lib/old.js");
        fs::write(folder.join("package.json"), r#"{"dependencies": {"lib": "1"}}"#).unwrap();
        write(&folder, "package-lock.json");
        write(&installed, "node_modules/lib/index.js");
        write(&installed, "node_modules/@types/lib/index.d.ts");
        let found = Folder::with(&folder, "node", Some(&installed)).unwrap();
        let paths: Vec<&str> = found.files.iter().map(|file| file.path.as_str()).collect();
        assert_eq!(paths, ["main.mjs", "node_modules/lib/index.js", "package.json"]);
        assert!(found.files.iter().all(|file| file.is_fixed == file.path.starts_with("node_modules")));
        let own = Folder::with(&folder, "mcp-stdio", None).unwrap();
        assert!(own.files.iter().any(|file| file.path == "node_modules/lib/old.js"));
    }
}
