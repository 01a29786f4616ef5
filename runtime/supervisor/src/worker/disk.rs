//! Whose fault a full disk is that lets a worker not start.
//!
//! Below level 3 the worker's socket and files are on the machine's disk. Keeps true: a worker that took the room itself
//! is told from one that found none, so that a plugin that fills the disk is not taken for a machine without one.

use std::io;
use std::path::{Path, PathBuf};

/// What no start needs; a worker that has more of the disk than this found room on it.
const ENOUGH: u64 = 1 << 20;
/// What a file takes at least, an empty one too: its inode is as scarce.
const LEAST: u64 = 4096;
/// Of stat(2).
const BLOCK: u64 = 512;

/// Why there is no room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FullDisk {
    /// The machine has none.
    Machine(String),
    /// The worker took it.
    Worker,
}

/// Judges the disk of a worker's `home`, whose plugin may have `bound` bytes of it; `None`: it has room, or nothing is
/// known of it. Blocks while it reads directories: of a worker that has more than `ENOUGH`, up to that.
pub fn judge(home: &Path, bound: u64) -> Option<FullDisk> {
    // Err: it is not known to be full.
    let disk = rustix::fs::statvfs(home).ok()?;
    // A file system without a bound on inodes has none to count.
    let full = disk.f_bavail == 0 || disk.f_files > 0 && disk.f_favail == 0;
    full.then(|| match has_more(home, bound.min(ENOUGH)) {
        true => FullDisk::Worker,
        false => FullDisk::Machine(format!(
            "let the worker make its socket: no space is left for {}",
            home.display()
        )),
    })
}

/// Whether what lies below `home` takes more than `bound` bytes. What cannot be read was made so by the worker.
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
        // Of a link: its own.
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
