//! npm tarballs: a gzipped tar whose files are below one folder, which is stripped as npm does.

use std::fs::File;
use std::io::{BufReader, Read};

use flate2::read::GzDecoder;
use tar::{Archive, EntryType};

use super::UnpackError;
use super::place::UnpackFolder;

/// Maximum bytes of headers and padding in a tar: they are not content, but a bomb may consist of them.
const HEADERS: u64 = 64 << 20;

/// Unpacks the tarball, which may inflate to at most `room` bytes and its headers.
pub(super) fn unpack(file: File, room: u64, place: &mut UnpackFolder) -> Result<(), UnpackError> {
    let wrong = |error: std::io::Error| UnpackError::Archive(error.to_string());
    let inflated =
        BoundedReader { inner: GzDecoder::new(BufReader::new(file)), room: room.saturating_add(HEADERS) };
    let mut archive = Archive::new(inflated);
    let mut top: Option<String> = None;
    for entry in archive.entries().map_err(wrong)? {
        let entry = entry.map_err(wrong)?;
        let path = String::from_utf8(entry.path_bytes().into_owned())
            .map_err(|_| UnpackError::Path("a name that is not UTF-8".into()))?;
        let kind = entry.header().entry_type();
        // A comment that git puts at the start of its archives.
        if kind == EntryType::XGlobalHeader {
            continue;
        }
        if !matches!(kind, EntryType::Regular | EntryType::Directory) {
            return Err(UnpackError::Special(path));
        }
        let (first, rest) = path.split_once('/').unwrap_or((path.as_str(), ""));
        if top.get_or_insert_with(|| first.to_owned()) != first || first.is_empty() || first == ".." {
            return Err(UnpackError::Path(path));
        }
        let mode = entry.header().mode().map_err(wrong)?;
        match (kind, rest.strip_suffix('/').unwrap_or(rest)) {
            (EntryType::Directory, "") => {}
            (EntryType::Directory, folder) => place.folder(folder)?,
            _ => place.file(rest, mode & 0o100 != 0, entry)?,
        }
    }
    Ok(())
}

/// A reader that fails if there are more bytes than allowed.
struct BoundedReader<R> {
    inner: R,
    room: u64,
}

impl<R: Read> Read for BoundedReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.room = self
            .room
            .checked_sub(read as u64)
            .ok_or_else(|| std::io::Error::other("it inflates to more than a package may"))?;
        Ok(read)
    }
}
