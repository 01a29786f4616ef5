//! The directory in which one machine keeps its state (`ASP_STATE_DIR`).
//!
//! Keeps true: a reader never sees half a file, and what may hold a secret is readable by its owner only.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Creates the directory (0700) if it is missing.
pub fn create(dir: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

/// Replaces `path` by `content`, mode 0600: readers see the old file or the new one.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let temporary = write_beside(path, content)?;
    fs::rename(&temporary, path).inspect_err(|_| remove(&temporary))
}

/// Creates `path` with `content`, mode 0600, unless it exists. Returns whether it was created.
pub fn create_once(path: &Path, content: &[u8]) -> io::Result<bool> {
    let temporary = write_beside(path, content)?;
    // A link, unlike a rename, refuses to replace: of two processes starting together one wins.
    let linked = fs::hard_link(&temporary, path);
    remove(&temporary);
    match linked {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error),
    }
}

fn write_beside(path: &Path, content: &[u8]) -> io::Result<PathBuf> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let temporary =
        path.with_file_name(format!(".{name}.{}.{:08x}", std::process::id(), rand::random::<u32>()));
    let mut file: File = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
    file.write_all(content).and_then(|()| file.sync_all()).inspect_err(|_| remove(&temporary))?;
    Ok(temporary)
}

/// Removes a temporary file; one that is left behind does no harm.
fn remove(path: &Path) {
    if let Err(error) = fs::remove_file(path) {
        tracing::debug!(%error, path = %path.display(), "temporary file stays");
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_file_is_created_once_and_replaced_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.json");
        assert!(create_once(&path, b"first").unwrap());
        assert!(!create_once(&path, b"second").unwrap());
        assert_eq!(fs::read(&path).unwrap(), b"first");
        replace(&path, b"third").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"third");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "no temporary file stays");
    }
}
