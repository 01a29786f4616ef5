//! Package files: a plugin as the usual package of its language, and a stdio MCP server as an MCP bundle.
//!
//! Owns the formats: wheel (Python), npm tarball (Node), jar (Java), `.mcpb` (stdio). Keeps true: the same files under the
//! same id and version yield the same bytes: entries are sorted, and times, owners and permissions are fixed.

mod jar;
mod npm;
mod wheel;
mod zip;

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use asp_control::package_format::Format;
use sha2::{Digest, Sha256};

use super::folder::{File, Folder, MAX_BYTES, at};
use super::unit::{MCP_STDIO, Unit};

/// Folder in a jar for the jars it depends on; a runtime unpacks them next to it.
pub const LIBRARIES: &str = "META-INF/lib/";

/// Returns the format for a unit's language; `None` if no runtime runs that language.
pub(super) fn format_for(language: &str) -> Option<Format> {
    match language {
        "python" => Some(Format::Wheel),
        "node" => Some(Format::Npm),
        "java" => Some(Format::Jar),
        MCP_STDIO => Some(Format::Bundle),
        _ => None,
    }
}

/// A finished package file.
#[derive(Clone, Debug)]
pub struct PackageFile {
    pub path: PathBuf,
    pub name: String,
    /// Size in bytes.
    pub size: u64,
    /// SHA-256 in lower-case hex.
    pub sha256: String,
}

/// Context of an error in the part of an archive that belongs to no file.
const END: &str = "the package's end";

/// A file in a package.
pub(super) struct PackEntry {
    pub(super) content: Content,
    pub(super) executable: bool,
}

pub(super) enum Content {
    File(PathBuf),
    Bytes(Vec<u8>),
}

/// Content by path (with `/`), in the order of the package.
pub(super) type Entries = BTreeMap<String, PackEntry>;

/// Packs the code in `folder` as the package file of `unit` in `out`, which must exist. Replaces a file of the same name.
pub fn pack(unit: &Unit, folder: &Path, out: &Path) -> anyhow::Result<PackageFile> {
    let format =
        format_for(&unit.language).with_context(|| format!("{} code cannot be packaged", unit.language))?;
    let files = Folder::read(folder, &unit.language)?;
    let id = unit.id.as_str();
    let version = unit.version.as_str();
    let name = file_name(unit, format);
    // Written in a folder of its own first, so that no reader sees a partial package under the final name.
    let work = tempfile::Builder::new().prefix(".pack").tempdir_in(out).with_context(at(out))?;
    let written = work.path().join("package");
    let file = fs::File::create(&written).with_context(at(&written))?;
    match format {
        Format::Wheel => wheel::write(file, entries(files), id, version)?,
        Format::Npm => npm::write(file, entries(files), id, version)?,
        Format::Jar => jar::write(file, files, folder)?,
        Format::Bundle => {
            launch(folder)?;
            zip::write(file, entries(files))?;
        }
    }
    let (size, sha256) = digest(&written)?;
    let path = out.join(&name);
    fs::rename(&written, &path).with_context(at(&path))?;
    Ok(PackageFile { path, name, size, sha256 })
}

/// Returns the files that unpacking a unit's package would make, but for a wheel's metadata. What the format adds is written
/// into `work`: `package.json`, or the jar of the unit's own classes.
pub(super) fn content(unit: &Unit, folder: &Path, work: &Path) -> anyhow::Result<Folder> {
    let format =
        format_for(&unit.language).with_context(|| format!("{} code cannot be packaged", unit.language))?;
    let mut files = Folder::read(folder, &unit.language)?;
    let is_described = files.files.iter().any(|file| file.path == npm::DESCRIPTION);
    let add = |files: &mut Folder, path: String| {
        let source = work.join(&path);
        files.files.push(File { path, source: source.clone(), executable: false, is_fixed: false });
        source
    };
    match format {
        Format::Npm if !is_described => {
            let source = add(&mut files, npm::DESCRIPTION.to_owned());
            fs::write(&source, npm::description(&unit.id, &unit.version)).with_context(at(&source))?;
        }
        Format::Jar => {
            let is_own = |file: &mut File| !jar::is_library(&file.path);
            let own = Folder { files: files.files.extract_if(.., is_own).collect() };
            let source = add(&mut files, file_name(unit, Format::Jar));
            let jar = fs::File::create(&source).with_context(at(&source))?;
            jar::write(jar, own, folder)?;
        }
        Format::Bundle => drop(launch(folder)?),
        Format::Wheel | Format::Npm => {}
    }
    Ok(files)
}

/// Returns the command line of a stdio MCP server, without which it makes no bundle.
fn launch(folder: &Path) -> anyhow::Result<super::stdio::Launch> {
    super::stdio::launch(folder).context("a stdio MCP server's folder has a manifest.json")
}

fn file_name(unit: &Unit, format: Format) -> String {
    let id = unit.id.as_str();
    let version = unit.version.as_str();
    match format {
        Format::Wheel => wheel::file_name(id, version),
        Format::Npm => format!("{id}-{version}.tgz"),
        Format::Jar => format!("{id}-{version}.jar"),
        Format::Bundle => format!("{id}-{version}.mcpb"),
    }
}

fn entries(folder: Folder) -> Entries {
    let entry = |file: File| {
        (file.path, PackEntry { content: Content::File(file.source), executable: file.executable })
    };
    folder.files.into_iter().map(entry).collect()
}

/// Adds a file that the format itself requires.
pub(super) fn add_own(entries: &mut Entries, path: String, text: String) -> anyhow::Result<()> {
    if entries.contains_key(&path) {
        return Err(reserved(&path));
    }
    entries.insert(path, PackEntry { content: Content::Bytes(text.into_bytes()), executable: false });
    Ok(())
}

pub(super) fn reserved(path: &str) -> anyhow::Error {
    anyhow!("{path} is a name of the package format's own; rename the file")
}

impl Content {
    pub(super) fn read(self) -> anyhow::Result<Vec<u8>> {
        match self {
            Content::Bytes(bytes) => Ok(bytes),
            Content::File(path) => {
                let mut bytes = Vec::new();
                // The limits were checked before; a file that has grown since is cut here, and rejected by its reader.
                let file = fs::File::open(&path).with_context(at(&path))?;
                file.take(MAX_BYTES).read_to_end(&mut bytes).with_context(at(&path))?;
                Ok(bytes)
            }
        }
    }
}

/// Returns size and lower-case hex SHA-256 of a file.
pub fn digest(path: &Path) -> anyhow::Result<(u64, String)> {
    let mut file = fs::File::open(path).with_context(at(path))?;
    let mut digest = Sha256::new();
    let mut buffer = vec![0; 1 << 16];
    let mut size = 0;
    loop {
        let read = file.read(&mut buffer).with_context(at(path))?;
        if read == 0 {
            break;
        }
        size += read as u64;
        digest.update(buffer.get(..read).unwrap_or_default());
    }
    Ok((size, digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()))
}

#[cfg(test)]
mod tests;
