//! Unpacks package files, whose content is not trusted.
//!
//! Refuses: absolute paths, `..`, links, devices, two entries with one name, encrypted and overlapping entries, and more
//! files, bytes or depth than a plugin's folder may have, or far more bytes than the package file has (a decompression bomb).
//! Keeps true: nothing is written outside of the given folder, and files are readable for every user and writable for their
//! owner only.

mod place;
mod tarball;
mod zipped;

use std::fs::File;
use std::path::{Path, PathBuf};

use asp_control::package_format::Format;

use super::folder::{self, MAX_BYTES};
use place::UnpackFolder;

/// Bytes that a package may have in addition to [`MAX_RATIO`] times its file's size.
const SLACK: u64 = 16 << 20;
/// Maximum compression ratio: source code shrinks to a fifth, tables to a fiftieth; deflate's limit is a thousandth.
const MAX_RATIO: u64 = 100;

#[derive(Debug, thiserror::Error)]
pub enum UnpackError {
    #[error("`{0}` is not a path within the package")]
    Path(String),
    #[error("`{0}` is neither a file nor a folder")]
    Special(String),
    #[error("`{0}` occurs twice")]
    Twice(String),
    #[error("it unpacks to more files, bytes or levels than a package may have")]
    TooLarge,
    #[error("it is not a valid package of its kind: {0}")]
    Archive(String),
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: std::io::Error },
}

/// Unpacks `package` into `folder`, which is created and must not exist. `name` is the package's own file name, under which a
/// jar is kept.
pub fn unpack(package: &Path, format: Format, name: &str, folder: &Path) -> Result<(), UnpackError> {
    let io = |source| UnpackError::Io { path: package.to_owned(), source };
    let file = File::open(package).map_err(io)?;
    let size = file.metadata().map_err(io)?.len();
    if size > MAX_BYTES {
        return Err(UnpackError::TooLarge);
    }
    let room = MAX_BYTES.min(size.saturating_mul(MAX_RATIO).saturating_add(SLACK));
    let mut place = UnpackFolder::new(folder, room)?;
    match format {
        Format::Wheel | Format::Bundle => zipped::unpack(file, &mut place),
        Format::Jar => {
            zipped::unpack_libraries(file, &mut place)?;
            let file = File::open(package).map_err(io)?;
            place.file(name, false, file)
        }
        Format::Npm => tarball::unpack(file, room, &mut place),
    }
}

/// Writes the files into `folder`, as unpacking a package with them would.
pub(super) fn copy(files: &[folder::File], folder: &Path) -> Result<(), UnpackError> {
    let mut place = UnpackFolder::new(folder, MAX_BYTES)?;
    for file in files {
        if file.is_fixed {
            place.fixed_file(&file.path, file.executable, &file.source)?;
            continue;
        }
        let content = File::open(&file.source);
        let content = content.map_err(|source| UnpackError::Io { path: file.source.clone(), source })?;
        place.file(&file.path, file.executable, content)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
