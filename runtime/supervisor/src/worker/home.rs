//! A worker's directory and its user.
//!
//! Keeps true: only the worker and this process can read the directory, and it is removed with the worker.

use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use asp_platform::secret::random_hex;

use super::socket;
use crate::settings::Settings;

/// Name of the directory below the state directory that contains one directory per worker.
pub(super) const HOMES: &str = "w";

/// A worker's name, user and directory. Dropping this removes the directory.
#[derive(Debug)]
pub(super) struct WorkerHome {
    pub(super) id: String,
    pub(super) uid: u32,
    pub(super) path: PathBuf,
}

impl WorkerHome {
    pub(super) fn make(settings: &Settings, number: u32) -> io::Result<WorkerHome> {
        let id = random_hex::<8>();
        let own_uid = rustix::process::geteuid();
        let uid = if own_uid.is_root() { settings.uid_base + number } else { own_uid.as_raw() };
        let path = settings.state.join(HOMES).join(&id);
        make_dir(&path, 0o711)?;
        let home = WorkerHome { id, uid, path };
        for dir in [home.run_dir(), home.work_dir()] {
            make_dir(&dir, 0o700)?;
            own(&dir, uid)?;
        }
        Ok(home)
    }

    pub(super) fn run_dir(&self) -> PathBuf {
        self.path.join("s")
    }

    pub(super) fn socket(&self) -> PathBuf {
        self.run_dir().join(socket::NAME)
    }

    pub(super) fn work_dir(&self) -> PathBuf {
        self.path.join("d")
    }

    pub(super) fn egress_socket(&self) -> PathBuf {
        self.path.join("e")
    }

    /// Socket of a TCP destination; its path is no longer than that of the worker's own socket.
    pub(super) fn tcp_socket(&self, number: usize) -> PathBuf {
        self.path.join(format!("t{number}"))
    }
}

impl Drop for WorkerHome {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.path) {
            tracing::warn!(worker = self.id, %error, "a worker's directory was not removed; remove it manually");
        }
    }
}

pub(super) fn make_dir(path: &Path, mode: u32) -> io::Result<()> {
    std::fs::DirBuilder::new().mode(mode).create(path)?;
    // The mode above is subject to the umask.
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
}

/// Changes the owner of a file to a worker's user, if this process may.
pub(super) fn own(path: &Path, uid: u32) -> io::Result<()> {
    if rustix::process::geteuid().is_root() { chown(path, Some(uid), Some(uid)) } else { Ok(()) }
}
