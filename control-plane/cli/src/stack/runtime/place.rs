//! The directory of a development machine's runtime: the homes of its workers, and its socket.
//!
//! Keeps true: no other account controls its content. Its name is predictable, and where every account may create files
//! another one may have created it first, so an existing one is used only if it is this account's own directory and no other
//! account could write to it.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use rustix::process::geteuid;
use sha2::{Digest, Sha256};

/// Maximum length of the directory's path: a Unix socket's path has at most 107 bytes, and the runtime needs some of them.
const LONGEST: usize = 70;
/// Mode that lets others pass through: the workers of a runtime that runs as root have users of their own, and homes in the
/// directory.
const PASSABLE: u32 = 0o711;
const CLOSED: u32 = 0o700;
const WRITABLE_BY_OTHERS: u32 = 0o022;
/// Sticky bit, set on a directory in which only the owner of a file may remove or replace it.
const STICKY: u32 = 0o1000;

/// Returns a directory below the state directory or, if its path is too long for sockets, a short one in `temporary` named
/// after it.
pub(super) fn of(state_dir: &Path, temporary: &Path) -> PathBuf {
    let own = std::path::absolute(state_dir).unwrap_or_else(|_| state_dir.to_owned()).join("runtime");
    if own.as_os_str().len() <= LONGEST {
        return own;
    }
    let digest = Sha256::digest(own.as_os_str().as_encoded_bytes());
    let name: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    temporary.join(format!("asp-{name}"))
}

/// Creates the directory; an existing one must be one that no other account could have created or changed.
pub(super) fn make(path: &Path) -> anyhow::Result<()> {
    let context = || format!("make the runtime's directory {}", path.display());
    let mode = if geteuid().is_root() { PASSABLE } else { CLOSED };
    if let Some(above) = path.parent() {
        fs::create_dir_all(above).with_context(context)?;
        refuse(above, replaceable(above).with_context(context)?)?;
    }
    match DirBuilder::new().mode(mode).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(error).with_context(context);
        }
        Ok(()) | Err(_) => {}
    }
    refuse(path, foreign(path).with_context(context)?)?;
    // An earlier version left it readable by others.
    fs::set_permissions(path, Permissions::from_mode(mode)).with_context(context)
}

fn refuse(path: &Path, why: Option<String>) -> anyhow::Result<()> {
    let Some(why) = why else { return Ok(()) };
    bail!(
        "{} {why}: another account could replace its content. Remove it, close it to other accounts, or set \
         ASP_STATE_DIR to your own directory with a path short enough for sockets (else TMPDIR)",
        path.display()
    )
}

/// Returns why other accounts may have created what is at `path`, or put something into it.
fn foreign(path: &Path) -> io::Result<Option<String>> {
    // Looks at a link itself, not at its target, which whoever created it chooses.
    let found = fs::symlink_metadata(path)?;
    let own = geteuid().as_raw();
    Ok(if !found.is_dir() {
        Some("is not a directory".to_owned())
    } else if found.uid() != own {
        Some(format!("belongs to user {}, not to {own}", found.uid()))
    } else {
        open_to_others(found.mode())
    })
}

/// Returns why other accounts may replace what is in `directory`.
fn replaceable(directory: &Path) -> io::Result<Option<String>> {
    let mode = fs::metadata(directory)?.mode();
    Ok(if mode & STICKY == 0 { open_to_others(mode) } else { None })
}

fn open_to_others(mode: u32) -> Option<String> {
    let is_open = mode & WRITABLE_BY_OTHERS != 0;
    is_open.then(|| format!("can be written to by others (mode {:04o})", mode & 0o7777))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{chown, symlink};

    use super::*;

    const SOMEBODY: u32 = 12_345;

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o7777
    }

    /// A directory in which every account may create files, like `/tmp`.
    fn shared() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        set_mode(dir.path(), 0o1777);
        dir
    }

    #[test]
    fn a_long_state_directory_still_has_a_place_for_sockets() {
        let temporary = Path::new("/tmp");
        assert_eq!(of(Path::new("/s"), temporary), Path::new("/s/runtime"));
        let long = Path::new("/a").join("b".repeat(90));
        let first = of(&long, temporary);
        assert!(first.as_os_str().len() <= LONGEST, "{}", first.display());
        assert_ne!(first, of(&long.join("c"), temporary));
        assert_eq!(first, of(&long, temporary));
    }

    #[test]
    fn a_place_is_made_closed_and_one_from_the_last_start_is_closed_again() {
        let shared = shared();
        let path = shared.path().join("asp-0");
        make(&path).unwrap();
        assert_eq!(mode(&path) & 0o066, 0, "others look into it");
        fs::write(path.join("lock"), "").unwrap();
        set_mode(&path, 0o755);
        make(&path).unwrap();
        assert_eq!(mode(&path) & 0o066, 0, "others look into it");
        assert!(path.join("lock").exists());
    }

    #[test]
    fn a_place_that_somebody_else_was_first_to_make_is_refused_with_the_way_out() {
        let shared = shared();
        let at = |name: &str| shared.path().join(name);
        make(&at("own")).unwrap();
        fs::create_dir(at("open")).unwrap();
        set_mode(&at("open"), 0o777);
        fs::create_dir(at("of-a-group")).unwrap();
        set_mode(&at("of-a-group"), 0o770);
        symlink(at("own"), at("link")).unwrap();
        symlink(at("absent"), at("dangling")).unwrap();
        fs::write(at("file"), "").unwrap();
        let mut cases = vec![
            ("open", "mode 0777".to_owned()),
            ("of-a-group", "mode 0770".to_owned()),
            ("link", "is not a directory".to_owned()),
            ("dangling", "is not a directory".to_owned()),
            ("file", "is not a directory".to_owned()),
        ];
        // Only root can give a directory to another account.
        if geteuid().is_root() {
            fs::create_dir(at("other")).unwrap();
            set_mode(&at("other"), 0o700);
            chown(at("other"), Some(SOMEBODY), None).unwrap();
            cases.push(("other", format!("belongs to user {SOMEBODY}")));
        }
        for (name, why) in cases {
            let before = fs::symlink_metadata(at(name)).unwrap().mode();
            let said = make(&at(name)).unwrap_err().to_string();
            for part in [at(name).to_str().unwrap(), &why, "Remove it", "ASP_STATE_DIR"] {
                assert!(said.contains(part), "{name}: {part}: {said}");
            }
            assert_eq!(fs::symlink_metadata(at(name)).unwrap().mode(), before, "{name} was changed");
        }
        assert!(!at("absent").exists(), "a link chose where it is made");
    }

    #[test]
    fn a_place_that_others_may_replace_is_refused() {
        let shared = shared();
        set_mode(shared.path(), 0o777);
        let said = make(&shared.path().join("asp-0")).unwrap_err().to_string();
        assert!(said.contains("mode 0777") && said.contains("TMPDIR"), "{said}");
        assert!(!shared.path().join("asp-0").exists());
    }
}
