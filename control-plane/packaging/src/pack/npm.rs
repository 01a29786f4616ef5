//! npm tarballs as `npm pack` makes them, with every file in the folder, `node_modules` included.
//!
//! Source: npm-pack(1), package.json(5): the files are below `package/`, `name` and `version` are required.

use std::fs::File;
use std::io::{BufWriter, Write};

use anyhow::Context;
use flate2::{Compression, GzBuilder};
use serde_json::json;
use tar::{Builder, EntryType, Header};

use super::{END, Entries, add_own, zip};

pub(super) const DESCRIPTION: &str = "package.json";
/// Time that npm itself gives every file: 1985-10-26T08:15:00Z.
const TIME: u64 = 499_162_500;

/// Returns the `package.json` of a folder that has none.
pub(super) fn description(id: &str, version: &str) -> String {
    let description = json!({"name": id.to_ascii_lowercase(), "version": version});
    format!("{description:#}\n")
}

/// Writes the tarball, with a generated `package.json` if the folder has none.
pub(super) fn write(file: File, mut entries: Entries, id: &str, version: &str) -> anyhow::Result<()> {
    if !entries.contains_key(DESCRIPTION) {
        add_own(&mut entries, DESCRIPTION.to_owned(), description(id, version))?;
    }
    let compressed = GzBuilder::new().mtime(0).write(BufWriter::new(file), Compression::new(zip::LEVEL));
    let mut archive = Builder::new(compressed);
    for (path, entry) in entries {
        let bytes = entry.content.read()?;
        let mut header = Header::new_gnu();
        header.set_entry_type(EntryType::Regular);
        header.set_size(bytes.len() as u64);
        header.set_mode(if entry.executable { 0o755 } else { 0o644 });
        header.set_mtime(TIME);
        header.set_uid(0);
        header.set_gid(0);
        let added = archive.append_data(&mut header, format!("package/{path}"), bytes.as_slice());
        added.with_context(|| path)?;
    }
    let ended = archive.into_inner().and_then(|compressed| compressed.finish());
    ended.and_then(|mut file| file.flush()).context(END)
}
