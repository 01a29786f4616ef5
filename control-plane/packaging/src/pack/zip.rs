//! Deterministic zip archives.

use std::fs::File;
use std::io::{BufWriter, Write};

use anyhow::Context;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, DateTime, ZipWriter};

use super::{END, Entries, PackEntry};

/// Default compression level, which every zlib supports.
pub(super) const LEVEL: u32 = 6;

/// Writes the entries in order.
pub(super) fn write(file: File, entries: Entries) -> anyhow::Result<()> {
    let mut archive = Archive::new(file);
    for (path, entry) in entries {
        archive.add(&path, entry)?;
    }
    archive.finish()
}

/// A zip file being written.
pub(super) struct Archive {
    writer: ZipWriter<BufWriter<File>>,
}

impl Archive {
    pub(super) fn new(file: File) -> Archive {
        Archive { writer: ZipWriter::new(BufWriter::new(file)) }
    }

    /// Adds a file and returns its content.
    pub(super) fn add(&mut self, path: &str, entry: PackEntry) -> anyhow::Result<Vec<u8>> {
        let options = SimpleFileOptions::default()
            .compression_method(CompressionMethod::Deflated)
            .compression_level(Some(LEVEL.into()))
            // 1980-01-01, the earliest time in a zip file.
            .last_modified_time(DateTime::default())
            .unix_permissions(if entry.executable { 0o755 } else { 0o644 });
        let bytes = entry.content.read()?;
        self.writer.start_file(path, options).with_context(|| path.to_owned())?;
        self.writer.write_all(&bytes).with_context(|| path.to_owned())?;
        Ok(bytes)
    }

    pub(super) fn finish(self) -> anyhow::Result<()> {
        self.writer.finish().context(END)?.flush().context(END)
    }
}
