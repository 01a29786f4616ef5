//! Jars: the classes at the root, and the jars they need below `META-INF/lib/`.
//!
//! For a Maven project it is Maven's own jar, repacked; for plain sources, the compiled classes, with every other file in the
//! folder as a resource. The worker's class path contains the jar and the jars in it.
//! Source: the JAR file specification, Java SE 17 (the manifest comes first).

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use zip::ZipArchive;

use super::zip::Archive;
use super::{Content, Entries, LIBRARIES, PackEntry, PackError, add_own};
use crate::folder;
use crate::folder::{Folder, MAX_BYTES, MAX_FILES};

const MANIFEST: &str = "META-INF/MANIFEST.MF";
/// Folder of the classes compiled from plain sources.
const CLASSES: &str = "classes/";

pub(super) fn write(file: File, files: Folder, folder: &Path) -> Result<(), PackError> {
    let mut entries = Entries::new();
    let mut classes = 0;
    for found in files.files {
        let path = match found.path.strip_prefix("lib/") {
            Some(library) if library.ends_with(".jar") => format!("{LIBRARIES}{library}"),
            _ if folder::is_maven(folder) => {
                repack(&found.source, &mut entries)?;
                continue;
            }
            _ if found.path.ends_with(".java") => continue,
            _ => found.path.strip_prefix(CLASSES).unwrap_or(&found.path).to_owned(),
        };
        classes += usize::from(path.ends_with(".class"));
        let entry = PackEntry { content: Content::File(found.source), executable: false };
        if entries.insert(path.clone(), entry).is_some() {
            return Err(PackError::Reserved(path));
        }
    }
    if classes == 0 && !folder::is_maven(folder) {
        return Err(folder::FolderError::Empty(folder.to_owned()).into());
    }
    if !entries.contains_key(MANIFEST) {
        add_own(
            &mut entries,
            MANIFEST.to_owned(),
            "Manifest-Version: 1.0\r\nCreated-By: asp\r\n\r\n".to_owned(),
        )?;
    }
    let mut archive = Archive::new(file);
    if let Some(manifest) = entries.remove(MANIFEST) {
        archive.add(MANIFEST, manifest)?;
    }
    for (path, entry) in entries {
        archive.add(&path, entry)?;
    }
    archive.finish()
}

/// Adds the files of Maven's jar.
fn repack(jar: &Path, entries: &mut Entries) -> Result<(), PackError> {
    let fault = |fault: String| PackError::Archive { name: jar.display().to_string(), fault };
    let file = File::open(jar).map_err(|error| fault(error.to_string()))?;
    let mut archive = ZipArchive::new(BufReader::new(file)).map_err(|error| fault(error.to_string()))?;
    let mut room = MAX_BYTES;
    if archive.len() > MAX_FILES {
        return Err(folder::FolderError::TooLarge.into());
    }
    for index in 0..archive.len() {
        let mut entry = archive.by_index(index).map_err(|error| fault(error.to_string()))?;
        if entry.is_dir() {
            continue;
        }
        let path = entry.name().map_err(|error| fault(error.to_string()))?.into_owned();
        let mut bytes = Vec::new();
        let read = (&mut entry).take(room + 1).read_to_end(&mut bytes);
        read.map_err(|error| fault(error.to_string()))?;
        room = room.checked_sub(bytes.len() as u64).ok_or(folder::FolderError::TooLarge)?;
        let entry = PackEntry { content: Content::Bytes(bytes), executable: false };
        if entries.insert(path.clone(), entry).is_some() {
            return Err(PackError::Reserved(path));
        }
    }
    Ok(())
}
