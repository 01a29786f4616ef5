//! Deterministic zip archives.

use std::fs::File;
use std::io::{BufWriter, Write};

use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, DateTime, ZipWriter};

use super::{Entries, PackEntry, PackError};

/// Default compression level, which every zlib supports.
pub(super) const LEVEL: u32 = 6;

/// Writes the entries in order.
pub(super) fn write(file: File, entries: Entries) -> Result<(), PackError> {
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
    pub(super) fn add(&mut self, path: &str, entry: PackEntry) -> Result<Vec<u8>, PackError> {
        let options = SimpleFileOptions::default()
            .compression_method(CompressionMethod::Deflated)
            .compression_level(Some(LEVEL.into()))
            // 1980-01-01, the earliest time in a zip file.
            .last_modified_time(DateTime::default())
            .unix_permissions(if entry.executable { 0o755 } else { 0o644 });
        let bytes = entry.content.read()?;
        let fault = |fault: String| PackError::Archive { name: path.to_owned(), fault };
        self.writer.start_file(path, options).map_err(|error| fault(error.to_string()))?;
        self.writer.write_all(&bytes).map_err(|error| fault(error.to_string()))?;
        Ok(bytes)
    }

    pub(super) fn finish(self) -> Result<(), PackError> {
        let fault = |fault: String| PackError::Archive { name: "the package's end".to_owned(), fault };
        let mut file = self.writer.finish().map_err(|error| fault(error.to_string()))?;
        file.flush().map_err(|error| fault(error.to_string()))
    }
}
