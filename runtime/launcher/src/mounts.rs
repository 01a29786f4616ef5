//! The worker's file system at level 3: an empty one in memory, with the permitted files mounted into it.
//!
//! Everything is read-only except the work directory, the run directory and the devices. The machine's own tree is
//! detached at the end: a path that is not listed does not exist. Sources: mount_namespaces(7), pivot_root(2),
//! mount_setattr(2), proc(5), tmpfs(5).

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use asp_launcher::Sandbox;
use nix::libc;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::stat::{Mode, umask};
use rustix::fs::{OFlags, open};

use crate::failure::{self, SetupFailure, StepContext};
use crate::system;

/// Options of the root, which holds directories, links and five small files.
const ROOT_OPTIONS: &str = "mode=0755,size=256k,nr_inodes=1024";
/// Bytes of the work directory for each inode, within the bounds below.
const BYTES_PER_INODE: u64 = 4096;
const INODES: (u64, u64) = (256, 65_536);
/// Options of the run directory, which holds the worker's socket and few more files: each is an inode, and in a
/// directory of the machine their number would be unlimited.
const RUN_OPTIONS: &str = "mode=0700,size=4k,nr_inodes=16";
const STEP: &str = "mounts";

/// Attributes that a mount forbids in addition to those that every mount forbids (set-user-id programs).
#[derive(Debug, Clone, Copy)]
struct Deny(u64);

const READ_ONLY: Deny = Deny(libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NODEV);
const DEVICE: Deny = Deny(libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOEXEC);

/// Builds the tree and makes it this process's root; the work directory is current afterwards.
pub(crate) fn build(sandbox: &Sandbox) -> Result<(), SetupFailure> {
    umask(Mode::from_bits_truncate(0o022));
    // Mounts made here must not show outside.
    mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>)
        .during(STEP)?;
    let root = Root(sandbox.work_dir.clone());
    mount_tmpfs(&root.0, ROOT_OPTIONS, MsFlags::empty())?;
    for path in system::PROGRAMS {
        root.mount_read_only(Path::new(path))?;
    }
    for path in system::settings() {
        root.mount_read_only(&path)?;
    }
    for (path, text) in system::written_settings(sandbox) {
        let target = root.place(Path::new(path))?;
        fs::write(&target, text).map_err(|error| at(&target, error))?;
    }
    root.make_devices(sandbox)?;
    root.make_proc()?;
    for path in &sandbox.read_only {
        root.mount_read_only(path)?;
    }
    let run_dir = root.make_run_dir(sandbox)?;
    let work_dir = root.make_work_dir(sandbox)?;
    // They are invisible outside, so the supervisor gets handles.
    failure::hand_over(run_dir.as_fd(), work_dir.as_fd());
    forbid(&root.0, READ_ONLY, false)?;
    root.enter()?;
    std::env::set_current_dir(&sandbox.work_dir).map_err(|error| at(&sandbox.work_dir, error))
}

/// The new root, while it is still a directory in the old one.
struct Root(PathBuf);

impl Root {
    /// Returns the current location of `path` and creates its parents.
    fn place(&self, path: &Path) -> Result<PathBuf, SetupFailure> {
        let target = self.0.join(path.strip_prefix("/").unwrap_or(path));
        let parent = target.parent().unwrap_or(&self.0);
        fs::create_dir_all(parent).map_err(|error| at(parent, error))?;
        Ok(target)
    }

    /// Mounts the machine's file or directory read-only at the same path. A link stays a link; programs may be absent.
    fn mount_read_only(&self, path: &Path) -> Result<(), SetupFailure> {
        let Ok(metadata) = path.symlink_metadata() else {
            let optional = system::PROGRAMS.iter().any(|program| path == Path::new(program));
            return if optional {
                Ok(())
            } else {
                Err(SetupFailure::new(STEP, format_args!("{}: absent", path.display())))
            };
        };
        if metadata.is_symlink() && path.starts_with("/etc") || is_program_link(path, &metadata) {
            let link = fs::read_link(path).map_err(|error| at(path, error))?;
            let target = self.place(path)?;
            return symlink(link, &target).map_err(|error| at(path, error));
        }
        self.bind(path, READ_ONLY)
    }

    fn bind(&self, path: &Path, deny: Deny) -> Result<(), SetupFailure> {
        let target = self.place(path)?;
        let is_dir = fs::metadata(path).map_err(|error| at(path, error))?.is_dir();
        if is_dir {
            fs::create_dir_all(&target).map_err(|error| at(path, error))?;
        } else if !target.exists() {
            fs::write(&target, "").map_err(|error| at(path, error))?;
        }
        let flags = MsFlags::MS_BIND | MsFlags::MS_REC;
        mount(Some(path), &target, None::<&str>, flags, None::<&str>).map_err(|error| at(path, error))?;
        forbid(&target, deny, true)
    }

    fn make_devices(&self, sandbox: &Sandbox) -> Result<(), SetupFailure> {
        for name in system::devices(sandbox) {
            self.bind(&Path::new("/dev").join(name), DEVICE)?;
        }
        let mut links = vec![
            ("/dev/fd", Path::new("/proc/self/fd")),
            ("/dev/stdin", Path::new("/proc/self/fd/0")),
            ("/dev/stdout", Path::new("/proc/self/fd/1")),
            ("/dev/stderr", Path::new("/proc/self/fd/2")),
            // Shared memory counts towards the one quota.
            ("/dev/shm", &sandbox.work_dir),
        ];
        // So do temporary files of programs that ignore TMPDIR.
        if !system::uses(sandbox, Path::new("/tmp")) {
            links.push(("/tmp", &sandbox.work_dir));
        }
        for (path, link) in links {
            let target = self.place(Path::new(path))?;
            symlink(link, &target).map_err(|error| at(Path::new(path), error))?;
        }
        Ok(())
    }

    /// Mounts /proc with processes only, and only those that the worker may inspect: no settings or statistics of the
    /// machine.
    fn make_proc(&self) -> Result<(), SetupFailure> {
        let target = self.place(Path::new("/proc"))?;
        fs::create_dir_all(&target).map_err(|error| at(&target, error))?;
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
        mount(Some("proc"), &target, Some("proc"), flags, Some("hidepid=invisible,subset=pid"))
            .map_err(|error| at(Path::new("/proc"), error))
    }

    /// Creates the directory for the worker's socket.
    fn make_run_dir(&self, sandbox: &Sandbox) -> Result<OwnedFd, SetupFailure> {
        let target = self.place(&sandbox.run_dir)?;
        fs::create_dir_all(&target).map_err(|error| at(&target, error))?;
        let options = format!("{RUN_OPTIONS},uid={},gid={}", sandbox.uid, sandbox.gid);
        mount_tmpfs(&target, &options, MsFlags::MS_NODEV | MsFlags::MS_NOEXEC)?;
        handle_of(&target)
    }

    fn make_work_dir(&self, sandbox: &Sandbox) -> Result<OwnedFd, SetupFailure> {
        let target = self.place(&sandbox.work_dir)?;
        fs::create_dir_all(&target).map_err(|error| at(&target, error))?;
        let size = sandbox.limits.disk_bytes;
        let inodes = (size / BYTES_PER_INODE).clamp(INODES.0, INODES.1);
        let uid = sandbox.uid;
        let gid = sandbox.gid;
        let options = format!("mode=0700,uid={uid},gid={gid},size={size},nr_inodes={inodes}");
        mount_tmpfs(&target, &options, MsFlags::MS_NODEV)?;
        handle_of(&target)
    }

    /// Swaps the roots and detaches the old one (pivot_root(2), "pivot_root(\".\", \".\")").
    fn enter(&self) -> Result<(), SetupFailure> {
        std::env::set_current_dir(&self.0).during(STEP)?;
        nix::unistd::pivot_root(".", ".").during("pivot_root")?;
        umount2(".", MntFlags::MNT_DETACH).during("pivot_root")
    }
}

fn handle_of(directory: &Path) -> Result<OwnedFd, SetupFailure> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    open(directory, flags, rustix::fs::Mode::empty()).map_err(|error| at(directory, error))
}

fn is_program_link(path: &Path, metadata: &fs::Metadata) -> bool {
    metadata.is_symlink() && system::PROGRAMS.iter().any(|program| path == Path::new(program))
}

fn mount_tmpfs(target: &Path, options: &str, flags: MsFlags) -> Result<(), SetupFailure> {
    let flags = flags | MsFlags::MS_NOSUID;
    mount(Some("tmpfs"), target, Some("tmpfs"), flags, Some(options)).map_err(|error| at(target, error))
}

/// Removes rights from a mount, and with `below` from those under it.
fn forbid(target: &Path, deny: Deny, below: bool) -> Result<(), SetupFailure> {
    let attributes = libc::mount_attr {
        attr_set: deny.0 | libc::MOUNT_ATTR_NOSUID,
        attr_clr: 0,
        propagation: 0,
        userns_fd: 0,
    };
    let path = std::ffi::CString::new(target.as_os_str().as_encoded_bytes()).during(STEP)?;
    let flags = if below { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: both pointers refer to live values, and the size is the value's.
    #[allow(unsafe_code, reason = "mount_setattr, which alone reaches mounts below, has no safe form")]
    let done = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            path.as_ptr(),
            flags,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    };
    nix::errno::Errno::result(done).map(drop).map_err(|error| at(target, error))
}

fn at(path: &Path, error: impl std::fmt::Display) -> SetupFailure {
    SetupFailure::new(STEP, format_args!("{}: {error}", path.display()))
}
