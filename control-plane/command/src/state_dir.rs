//! The directory in which one machine keeps its state (`ASP_STATE_DIR`).
//!
//! Keeps true: a reader never sees a partly written file, and files that may hold a secret are readable by their owner only.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Mode of a directory: access for the owner only.
const DIRECTORY: u32 = 0o700;
/// Permission of group or others to change entries of a directory.
const WRITE: u32 = 0o022;
/// Permission of group or others to use entries of a directory.
const SEARCH: u32 = 0o011;
/// Sticky bit, set on a directory in which every account may create files.
const STICKY: u32 = 0o1000;
/// Files whose permissions are tightened at start: they are created private, but an operator or a copy may have opened
/// them. The databases are tightened by the code that opens them.
const SECRETS: [&str; 6] =
    ["seal-key", "vault-key", "dev-issuer.json", "break-glass.json", "env", "ports.json"];

/// Returns the path of a per-user file: `asp/NAME` below `$XDG_CONFIG_HOME` or `~/.config`; `None` without a home
/// directory. `variable` reads the environment; an empty value counts as unset.
pub fn of_user(variable: impl Fn(&str) -> Option<String>, name: &str) -> Option<PathBuf> {
    let config = variable("XDG_CONFIG_HOME").map(PathBuf::from);
    let config = config.or_else(|| Some(PathBuf::from(variable("HOME")?).join(".config")));
    Some(config?.join("asp").join(name))
}

/// Creates the directory with mode 0700, or removes the permissions of group and others from an existing one and the
/// secrets in it.
pub fn create(dir: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(DIRECTORY).create(dir)?;
    let mode = fs::metadata(dir)?.permissions().mode() & 0o7777;
    if mode & STICKY != 0 {
        tracing::warn!(
            directory = %dir.display(),
            "state directory is writable for every account, like /tmp, and stays so; its files are private, but \
             set ASP_STATE_DIR to a private directory"
        );
    } else if mode & !DIRECTORY != 0 {
        if was_exposed(dir, mode) {
            tracing::warn!(
                directory = %dir.display(),
                mode = %format!("{mode:o}"),
                "state directory with keys and results was open to other accounts; their access has been removed"
            );
        }
        fs::set_permissions(dir, fs::Permissions::from_mode(mode & DIRECTORY))?;
    }
    SECRETS.iter().try_for_each(|name| tighten(&dir.join(name)))
}

/// Whether another account could write to the directory of this mode, or use a file in it. A directory with the mode that
/// a usual umask gives, 0755, exposes no private file.
fn was_exposed(dir: &Path, mode: u32) -> bool {
    let is_open = |entry: io::Result<fs::DirEntry>| {
        // Err: the file has been removed since.
        entry
            .and_then(|entry| entry.metadata())
            .is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o077 != 0)
    };
    let has_open_file = || fs::read_dir(dir).is_ok_and(|mut entries| entries.any(is_open));
    mode & WRITE != 0 || (mode & SEARCH != 0 && has_open_file())
}

/// Removes the permissions of group and others from a file, if it exists.
fn tighten(path: &Path) -> io::Result<()> {
    match fs::metadata(path) {
        Ok(metadata) if metadata.permissions().mode() & 0o077 != 0 => {
            fs::set_permissions(path, fs::Permissions::from_mode(0o600))
        }
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Replaces `path` with `content`, mode 0600: readers see either the old file or the new one.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let temporary = write_atomically(path, content)?;
    fs::rename(&temporary, path).inspect_err(|_| remove(&temporary))
}

/// Creates `path` with `content`, mode 0600, unless it exists. Returns whether it was created.
pub fn create_once(path: &Path, content: &[u8]) -> io::Result<bool> {
    let temporary = write_atomically(path, content)?;
    // A link, unlike a rename, does not replace an existing file: if two processes start together, only one succeeds.
    let linked = fs::hard_link(&temporary, path);
    remove(&temporary);
    match linked {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error),
    }
}

fn write_atomically(path: &Path, content: &[u8]) -> io::Result<PathBuf> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let temporary =
        path.with_file_name(format!(".{name}.{}.{:08x}", std::process::id(), rand::random::<u32>()));
    let mut file: File = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
    file.write_all(content).and_then(|()| file.sync_all()).inspect_err(|_| remove(&temporary))?;
    Ok(temporary)
}

/// Removes a temporary file; a leftover does no harm.
fn remove(path: &Path) {
    if let Err(error) = fs::remove_file(path) {
        tracing::debug!(%error, path = %path.display(), "temporary file stays");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_directory_is_closed_with_its_secrets_and_a_shared_one_stays() {
        let parent = tempfile::tempdir().unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
        let open = |path: &Path, mode: u32| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        let dir = parent.path().join("state");
        let key = parent.path().join("state/seal-key");
        create(&dir).unwrap();
        fs::write(&key, "secret").unwrap();
        open(&dir, 0o755);
        open(&key, 0o644);
        create(&dir).unwrap();
        assert_eq!((mode(&dir), mode(&key)), (0o700, 0o600));
        open(&dir, 0o1777);
        create(&dir).unwrap();
        assert_eq!(mode(&dir), 0o1777);
    }

    #[test]
    fn only_a_directory_that_let_others_in_was_exposed() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("asp.db");
        fs::write(&file, "results").unwrap();
        for (of_file, of_dir, expected) in [
            (0o600, 0o755, false),
            (0o644, 0o755, true),
            (0o644, 0o744, false),
            (0o600, 0o777, true),
            (0o600, 0o770, true),
            (0o640, 0o710, true),
        ] {
            fs::set_permissions(&file, fs::Permissions::from_mode(of_file)).unwrap();
            assert_eq!(was_exposed(dir.path(), of_dir), expected, "{of_file:o} in {of_dir:o}");
        }
    }

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
