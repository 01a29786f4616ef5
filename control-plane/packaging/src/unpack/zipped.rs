//! Zip archives: wheels, MCP bundles and jars.

use std::fs::File;
use std::io::{BufReader, Read};

use zip::read::{Config, ZipFile};
use zip::unstable::read::ZipIterable;
use zip::{CompressionMethod, ZipArchive};

use super::UnpackError;
use super::place::UnpackFolder;
use crate::folder::MAX_FILES;
use crate::pack::LIBRARIES;

/// File type bits of a Unix mode, and their values for files and folders; archives from other systems have none.
const TYPE: u32 = 0o170_000;
const PLAIN: [u32; 3] = [0, 0o100_000, 0o040_000];

/// Unpacks the whole archive.
pub(super) fn unpack(file: File, place: &mut UnpackFolder) -> Result<(), UnpackError> {
    each(
        file,
        |path, is_folder, executable, content| {
            if is_folder { place.folder(path) } else { place.file(path, executable, content) }
        },
    )
}

/// Unpacks the jars contained in a jar to `lib/`, and checks the names of all other entries.
pub(super) fn unpack_libraries(file: File, place: &mut UnpackFolder) -> Result<(), UnpackError> {
    let mut entries = UnpackFolder::judge_only();
    each(file, |path, is_folder, _, content| {
        if is_folder {
            return Ok(());
        }
        entries.judge(path)?;
        match path.strip_prefix(LIBRARIES) {
            Some(library) if library.ends_with(".jar") && !library.contains('/') => {
                place.file(&format!("lib/{library}"), false, content)
            }
            _ => Ok(()),
        }
    })
}

/// Callback with path, whether it is a folder, whether it is executable, and content.
type Visit<'a> = &'a mut dyn FnMut(&str, bool, bool, &mut dyn Read) -> Result<(), UnpackError>;

fn each(
    file: File,
    mut visit: impl FnMut(&str, bool, bool, &mut dyn Read) -> Result<(), UnpackError>,
) -> Result<(), UnpackError> {
    let wrong = |error: zip::result::ZipError| UnpackError::Archive(error.to_string());
    let mut file = BufReader::new(file);
    // Counted before the archive's index is held in memory: it may have millions of entries.
    let entries = ZipIterable::try_new(&mut file, Config::default()).map_err(wrong)?.len();
    // Folders count too.
    if entries > 2 * MAX_FILES {
        return Err(UnpackError::TooLarge);
    }
    let mut archive = ZipArchive::new(file).map_err(wrong)?;
    if archive.has_duplicate_names() {
        return Err(UnpackError::Twice("an entry".into()));
    }
    if archive.has_overlapping_files().map_err(wrong)? {
        return Err(UnpackError::Archive("entries share their bytes".into()));
    }
    for index in 0..archive.len() {
        let mut entry = archive.by_index(index).map_err(wrong)?;
        one(&mut entry, &mut visit)?;
    }
    Ok(())
}

fn one<R: Read>(entry: &mut ZipFile<'_, R>, visit: Visit<'_>) -> Result<(), UnpackError> {
    let path = entry.name().map_err(|error| UnpackError::Archive(error.to_string()))?.into_owned();
    let mode = entry.unix_mode().unwrap_or(0);
    if !PLAIN.contains(&(mode & TYPE)) || entry.is_symlink() {
        return Err(UnpackError::Special(path));
    }
    let known = [CompressionMethod::Stored, CompressionMethod::Deflated];
    if entry.encrypted() || !known.contains(&entry.compression()) {
        return Err(UnpackError::Archive(format!("`{path}` is encrypted or of an uncommon compression")));
    }
    match path.strip_suffix('/') {
        Some(folder) => visit(folder, true, false, entry),
        None => visit(&path, false, mode & 0o100 != 0, entry),
    }
}
