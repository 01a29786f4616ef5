//! Attribution of a full disk that keeps a worker from starting.
//!
//! Below level 3, the worker's socket and files are on the machine's disk. Keeps true: a worker that used up the space
//! itself is distinguished from one that found none, so that a plugin that fills the disk is not mistaken for a machine
//! without space.

use std::io;
use std::path::{Path, PathBuf};

/// Space in bytes that no start needs; a worker that uses more than this found space on the disk.
const ENOUGH: u64 = 1 << 20;
/// Minimum size that a file counts, even an empty one: inodes are scarce too.
const LEAST: u64 = 4096;
/// Unit of `st_blocks` in stat(2).
const BLOCK: u64 = 512;

/// Reason for a full disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FullDisk {
    /// The machine has no space.
    Machine(String),
    /// The worker used it up.
    Worker,
}

/// Checks the disk of a worker's `home`, whose plugin may use `bound` bytes of it; `None`: it has space, or its state
/// is unknown. Blocks while it reads directories, of a worker that uses more than `ENOUGH` only up to that.
pub fn judge(home: &Path, bound: u64) -> Option<FullDisk> {
    // Err: it is not known to be full.
    let disk = rustix::fs::statvfs(home).ok()?;
    // A file system without a limit on inodes reports none.
    let full = disk.f_bavail == 0 || disk.f_files > 0 && disk.f_favail == 0;
    full.then(|| match has_more(home, bound.min(ENOUGH)) {
        true => FullDisk::Worker,
        false => FullDisk::Machine(format!(
            "let the worker make its socket: no space is left for {}",
            home.display()
        )),
    })
}

/// Whether the contents of `home` take more than `bound` bytes. If something is unreadable, the worker made it so.
fn has_more(home: &Path, bound: u64) -> bool {
    let mut used = 0;
    let mut directories = vec![home.to_path_buf()];
    while let Some(directory) = directories.pop() {
        match add(&directory, bound, &mut used, &mut directories) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(_) => return true,
        }
        if used > bound {
            return true;
        }
    }
    false
}

fn add(directory: &Path, bound: u64, used: &mut u64, directories: &mut Vec<PathBuf>) -> io::Result<()> {
    use std::os::unix::fs::MetadataExt;
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        // For a symbolic link, this is the link's own size.
        let metadata = entry.metadata()?;
        *used += (metadata.blocks() * BLOCK).max(LEAST);
        if *used > bound {
            return Ok(());
        }
        if metadata.is_dir() {
            directories.push(entry.path());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_worker_has_counts_in_bytes_and_in_files() {
        let home = tempfile::tempdir().unwrap();
        let deep = home.path().join("d/e");
        std::fs::create_dir_all(&deep).unwrap();
        std::os::unix::fs::symlink("/", deep.join("root")).unwrap();
        assert!(!has_more(home.path(), 3 * LEAST), "two directories and a link");
        std::fs::write(deep.join("empty"), "").unwrap();
        assert!(has_more(home.path(), 3 * LEAST));
        std::fs::write(deep.join("large"), vec![1; 100 << 10]).unwrap();
        assert!(has_more(home.path(), 100 << 10) && !has_more(home.path(), ENOUGH));
        assert_eq!(judge(home.path(), 0), None, "the disk has room");
    }
}
