//! Files that only their owner may read: databases that hold answers, tokens' ids and policy.
//!
//! Keeps true: a file is private before its first byte is written, whatever the umask is, and one that an earlier
//! version left open to others is closed to them. Refuses: opening a file that exists; closing a second descriptor
//! of a database would drop the locks that SQLite holds on it in this process (fcntl(2), advisory locks).

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Read and written by the owner alone.
pub(crate) const FILE: u32 = 0o600;
const DIRECTORY: u32 = 0o700;

/// Makes an empty database file, or takes an existing one and what SQLite keeps beside it from everybody else.
pub(crate) fn database(path: &Path) -> io::Result<()> {
    match OpenOptions::new().write(true).create_new(true).mode(FILE).open(path) {
        // What SQLite makes beside it gets the database's own mode.
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

/// Makes a directory and those above it, or takes an existing one from everybody else.
pub(crate) fn directory(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(DIRECTORY).create(path)?;
    tighten(path, DIRECTORY)
}

/// Writes a new file whole, or an existing one anew.
pub(crate) async fn write(path: &Path, content: impl AsRef<[u8]>) -> io::Result<()> {
    use tokio::io::AsyncWriteExt;
    let mut file =
        tokio::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(FILE).open(path).await?;
    file.write_all(content.as_ref()).await?;
    file.flush().await
}

/// Takes away what `most` does not allow; a file that is not there needs nothing.
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
        // SQLite has removed it in between.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        changed => changed,
    }
}
