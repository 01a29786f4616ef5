//! Jars: the classes at the root, and the jars they need below `META-INF/lib/`.
//!
//! For a Maven project it is Maven's own jar, repacked; for plain sources, the compiled classes, with every other file in the
//! folder as a resource. The worker's class path contains the jar and the jars in it.
//! Source: the JAR file specification, Java SE 17 (the manifest comes first).

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use anyhow::Context;
use zip::ZipArchive;

use super::zip::Archive;
use super::{Content, Entries, LIBRARIES, PackEntry, add_own, reserved};
use crate::folder;
use crate::folder::{Folder, MAX_BYTES, MAX_FILES, at};

const MANIFEST: &str = "META-INF/MANIFEST.MF";
/// Folder of the classes compiled from plain sources.
const CLASSES: &str = "classes/";

pub(super) fn write(file: File, files: Folder, folder: &Path) -> anyhow::Result<()> {
    let mut entries = Entries::new();
    let mut classes = 0;
    for found in files.files {
        let path = match found.path.strip_prefix("lib/") {
            Some(library) if is_library(&found.path) => format!("{LIBRARIES}{library}"),
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
            return Err(reserved(&path));
        }
    }
    if classes == 0 && !folder::is_maven(folder) {
        return Err(folder::empty(folder));
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

/// Whether a file of the folder is one of the jars that the code needs.
pub(super) fn is_library(path: &str) -> bool {
    path.starts_with("lib/") && path.ends_with(".jar")
}

/// Adds the files of Maven's jar.
fn repack(jar: &Path, entries: &mut Entries) -> anyhow::Result<()> {
    let file = File::open(jar).with_context(at(jar))?;
    let mut archive = ZipArchive::new(BufReader::new(file)).with_context(at(jar))?;
    let mut room = MAX_BYTES;
    if archive.len() > MAX_FILES {
        return Err(folder::too_large());
    }
    for index in 0..archive.len() {
        let mut entry = archive.by_index(index).with_context(at(jar))?;
        if entry.is_dir() {
            continue;
        }
        let path = entry.name().with_context(at(jar))?.into_owned();
        let mut bytes = Vec::new();
        let read = (&mut entry).take(room + 1).read_to_end(&mut bytes);
        read.with_context(at(jar))?;
        room = room.checked_sub(bytes.len() as u64).ok_or_else(folder::too_large)?;
        let entry = PackEntry { content: Content::Bytes(bytes), executable: false };
        if entries.insert(path.clone(), entry).is_some() {
            return Err(reserved(&path));
        }
    }
    Ok(())
}
