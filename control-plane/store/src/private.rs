//! Files that only their owner may access: databases with answers, token ids and policy.
//!
//! Keeps true: a file is private before its first byte is written, regardless of the umask, and an existing file that
//! an earlier version left accessible to others is made private. Refuses: to open an existing file, because closing a
//! second descriptor of a database would release the locks that SQLite holds on it in this process (fcntl(2), advisory
//! locks).

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Mode that only the owner may read and write.
pub(crate) const FILE: u32 = 0o600;
const DIRECTORY: u32 = 0o700;

/// Creates an empty database file, or makes an existing one and SQLite's files for it private.
pub(crate) fn database(path: &Path) -> io::Result<()> {
    match OpenOptions::new().write(true).create_new(true).mode(FILE).open(path) {
        // SQLite creates its further files with the mode of the database.
        Ok(_) => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    for suffix in ["", "-wal", "-shm", "-journal"] {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        tighten(&PathBuf::from(name), FILE)?;
    }
    Ok(())
}

/// Creates a directory and its parents, or makes an existing one private.
pub(crate) fn directory(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(DIRECTORY).create(path)?;
    tighten(path, DIRECTORY)
}

/// Writes a file, replacing the content of an existing one.
pub(crate) async fn write(path: &Path, content: impl AsRef<[u8]>) -> io::Result<()> {
    use tokio::io::AsyncWriteExt;
    let mut file =
        tokio::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(FILE).open(path).await?;
    file.write_all(content.as_ref()).await?;
    file.flush().await
}

/// Removes permissions that `most` does not include; ignores a missing file.
fn tighten(path: &Path, most: u32) -> io::Result<()> {
    let mode = match fs::metadata(path) {
        Ok(metadata) => metadata.permissions().mode() & 0o7777,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if mode & !most == 0 {
        return Ok(());
    }
    match fs::set_permissions(path, fs::Permissions::from_mode(mode & most)) {
        // SQLite has removed it since.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        changed => changed,
    }
}
