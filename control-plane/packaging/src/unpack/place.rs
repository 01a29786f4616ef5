//! The folder that a package is unpacked to; the only code that turns entries into files.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::UnpackError;
use crate::folder::{MAX_DEPTH, MAX_FILES};

const MAX_PATH: usize = 1024;
/// Maximum length of a file name on ext4 and most other file systems.
const MAX_PART: usize = 255;

pub(super) struct UnpackFolder {
    folder: PathBuf,
    seen: BTreeSet<String>,
    /// Bytes that may still be written.
    room: u64,
}

impl UnpackFolder {
    /// Creates the folder. At most `room` bytes are written to it.
    pub(super) fn new(folder: &Path, room: u64) -> Result<UnpackFolder, UnpackError> {
        fs::create_dir(folder).map_err(io(folder))?;
        open_to_all(folder)?;
        Ok(UnpackFolder { folder: folder.to_owned(), seen: BTreeSet::new(), room })
    }

    /// Creates a place that only checks names.
    pub(super) fn judge_only() -> UnpackFolder {
        UnpackFolder { folder: PathBuf::new(), seen: BTreeSet::new(), room: 0 }
    }

    /// Checks and counts an entry.
    pub(super) fn judge(&mut self, path: &str) -> Result<(), UnpackError> {
        if !is_within(path) {
            return Err(UnpackError::Path(path.chars().take(80).collect()));
        }
        if path.split('/').count() > MAX_DEPTH || self.seen.len() >= MAX_FILES {
            return Err(UnpackError::TooLarge);
        }
        if !self.seen.insert(path.to_owned()) {
            return Err(UnpackError::Twice(path.to_owned()));
        }
        Ok(())
    }

    /// Creates a folder of the package, which may be named repeatedly.
    pub(super) fn folder(&mut self, path: &str) -> Result<(), UnpackError> {
        if self.seen.contains(path) && self.folder.join(path).is_dir() {
            return Ok(());
        }
        self.judge(path)?;
        make(&self.folder.join(path))
    }

    /// Writes a file of the package.
    pub(super) fn file(
        &mut self,
        path: &str,
        executable: bool,
        content: impl Read,
    ) -> Result<(), UnpackError> {
        let target = self.target(path)?;
        self.write(&target, executable, content)
    }

    /// Adds a file that never changes and has the permissions of a package's file: by a second name for it, or by a copy if it is
    /// on another file system.
    pub(super) fn fixed_file(
        &mut self,
        path: &str,
        executable: bool,
        source: &Path,
    ) -> Result<(), UnpackError> {
        let target = self.target(path)?;
        match fs::hard_link(source, &target) {
            Ok(()) => Ok(()),
            Err(_) => self.write(&target, executable, fs::File::open(source).map_err(io(source))?),
        }
    }

    /// Checks the name of a file, and creates the folder that it is in.
    fn target(&mut self, path: &str) -> Result<PathBuf, UnpackError> {
        self.judge(path)?;
        let target = self.folder.join(path);
        make(target.parent().unwrap_or(&self.folder))?;
        Ok(target)
    }

    fn write(&mut self, target: &Path, executable: bool, mut content: impl Read) -> Result<(), UnpackError> {
        let mode = if executable { 0o755 } else { 0o644 };
        let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(target);
        let mut file = file.map_err(io(target))?;
        let mut buffer = vec![0; 1 << 16];
        loop {
            let read = content.read(&mut buffer).map_err(|error| UnpackError::Archive(error.to_string()))?;
            if read == 0 {
                break;
            }
            self.room = self.room.checked_sub(read as u64).ok_or(UnpackError::TooLarge)?;
            file.write_all(buffer.get(..read).unwrap_or_default()).map_err(io(target))?;
        }
        // Set regardless of the process's umask, because workers run as other users.
        file.set_permissions(fs::Permissions::from_mode(mode)).map_err(io(target))
    }
}

/// Creates a folder and its parents below the place's own folder, which exists. A file in the way is an I/O error.
fn make(folder: &Path) -> Result<(), UnpackError> {
    if folder.is_dir() {
        return Ok(());
    }
    if let Some(above) = folder.parent() {
        make(above)?;
    }
    fs::create_dir(folder).map_err(io(folder))?;
    open_to_all(folder)
}

/// Makes a folder readable for all, regardless of the process's umask.
fn open_to_all(folder: &Path) -> Result<(), UnpackError> {
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).map_err(io(folder))
}

/// Whether the text is a relative path of plain parts, with `/`.
fn is_within(path: &str) -> bool {
    let plain = |part: &str| !part.is_empty() && part != "." && part != ".." && part.len() <= MAX_PART;
    path.len() <= MAX_PATH
        && !path.contains(['\\', '\0'])
        && !path.chars().any(char::is_control)
        && path.split('/').all(plain)
}

fn io(path: &Path) -> impl FnOnce(std::io::Error) -> UnpackError {
    let path = path.to_owned();
    move |source| UnpackError::Io { path, source }
}

#[cfg(test)]
mod tests {
    use super::is_within;

    #[test]
    fn a_path_stays_within() {
        for good in ["a", "a/b.py", "..a/b..", "a b/c"] {
            assert!(is_within(good), "{good}");
        }
        let long = "x/".repeat(600);
        for bad in
            ["", "/", "/a", "a/", "a//b", ".", "..", "a/../b", "./a", "a\\b", "C:\\a", "a\0", "a\nb", &long]
        {
            assert!(!is_within(bad), "{bad:?}");
        }
    }
}
