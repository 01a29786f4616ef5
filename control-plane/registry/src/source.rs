//! Source files of a catalog.
//!
//! Owns reading a primitives folder. Refuses links that leave the folder, other file types, too many and too large
//! files. Keeps true: the list is sorted by path, so the same folder gives the same list everywhere.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// Maximum number of files in one primitives folder.
pub const MAX_FILES: usize = 10_000;
/// Number of path segments of a file: `<server>/<file>`.
const MAX_LEVELS: usize = 2;
/// Folders at the level of servers that contain no sources.
const SKIPPED: [&str; 2] = ["invalid", "schema"];

/// One file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// Path relative to the primitives root, with `/` between the parts, such as `demo/server.yaml`.
    pub path: String,
    pub text: String,
}

/// The reason why a primitives folder could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("read {path}: {source}")]
    Io { path: String, source: io::Error },
    #[error("{path} is a link that leaves the primitives folder")]
    Outside { path: String },
    #[error("{path} is not a regular file")]
    NotAFile { path: String },
    #[error("{path} has more than {MAX_BYTES} bytes")]
    TooLarge { path: String },
    #[error("{path} is not UTF-8 text")]
    NotText { path: String },
    #[error("{path}: the name contains a control character")]
    Name { path: String },
    #[error("more than {MAX_FILES} files")]
    TooMany,
}

impl Source {
    /// Returns the folder, which is the server's name; "" for a file outside any folder.
    pub(crate) fn folder(&self) -> &str {
        self.path.split_once('/').map_or("", |(folder, _)| folder)
    }

    /// Returns the last part of the path.
    pub(crate) fn file_name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }

    pub(crate) fn is_json(&self) -> bool {
        self.path.ends_with(".json")
    }

    /// Whether the file declares a server, not a primitive.
    pub(crate) fn is_server(&self) -> bool {
        matches!(self.file_name(), "server.yaml" | "server.yml" | "server.json")
    }

    /// Suffix of files with the schemas of a plugin's code.
    pub(crate) const SCHEMA_FILE: &'static str = ".schema.json";

    /// Whether it is a file of `asp plugin build` with the schemas of a plugin's code.
    pub fn is_schema_file(&self) -> bool {
        self.path.ends_with(Source::SCHEMA_FILE)
    }

    pub(crate) fn is_spec_name(name: &str) -> bool {
        name.ends_with(".yaml") || name.ends_with(".yml") || name.ends_with(".json")
    }
}

/// Reads every `.yaml`, `.yml` and `.json` file of the server folders below `root`, sorted by path. Skips `invalid/`,
/// `schema/` and names that start with a dot.
pub fn read_dir(root: &Path) -> Result<Vec<Source>, ReadError> {
    let root = root.canonicalize().map_err(|source| io_error(root, source))?;
    let mut found = Vec::new();
    collect(&root, &root, 1, &mut found)?;
    let mut sources = Vec::with_capacity(found.len());
    for path in found {
        sources.push(read_file(&root, &path)?);
    }
    sources.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(sources)
}

fn collect(root: &Path, folder: &Path, level: usize, found: &mut Vec<PathBuf>) -> Result<(), ReadError> {
    for entry in fs::read_dir(folder).map_err(|source| io_error(folder, source))? {
        let path = entry.map_err(|source| io_error(folder, source))?.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
            return Err(ReadError::NotText { path: path.display().to_string() });
        };
        // A line end in a name would forge lines wherever the name is shown.
        if name.chars().any(char::is_control) {
            return Err(ReadError::Name { path: relative_path(root, &path).escape_debug().to_string() });
        }
        if name.starts_with('.') || (level == 1 && SKIPPED.contains(&name)) {
            continue;
        }
        let real = path.canonicalize().map_err(|source| io_error(&path, source))?;
        if !real.starts_with(root) {
            return Err(ReadError::Outside { path: relative_path(root, &path) });
        }
        // A plugin's own folder is deeper and not part of the catalog.
        if real.is_dir() {
            if level < MAX_LEVELS {
                collect(root, &path, level + 1, found)?;
            }
            continue;
        }
        if !Source::is_spec_name(name) {
            continue;
        }
        if !real.is_file() {
            return Err(ReadError::NotAFile { path: relative_path(root, &path) });
        }
        if found.len() >= MAX_FILES {
            return Err(ReadError::TooMany);
        }
        found.push(path);
    }
    Ok(())
}

fn read_file(root: &Path, path: &Path) -> Result<Source, ReadError> {
    let length = fs::metadata(path).map_err(|source| io_error(path, source))?.len();
    if length > MAX_BYTES as u64 {
        return Err(ReadError::TooLarge { path: relative_path(root, path) });
    }
    let bytes = fs::read(path).map_err(|source| io_error(path, source))?;
    let text =
        String::from_utf8(bytes).map_err(|_| ReadError::NotText { path: relative_path(root, path) })?;
    Ok(Source { path: relative_path(root, path), text })
}

fn relative_path(root: &Path, path: &Path) -> String {
    let relative = path.strip_prefix(root).unwrap_or(path);
    let parts: Vec<_> = relative.components().map(|part| part.as_os_str().to_string_lossy()).collect();
    parts.join("/")
}

fn io_error(path: &Path, source: io::Error) -> ReadError {
    ReadError::Io { path: path.display().to_string(), source }
}

/// Maximum size of a file in bytes. The largest real spec is a few KiB; a static resource may be longer.
pub(crate) const MAX_BYTES: usize = 1024 * 1024;
