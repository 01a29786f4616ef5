//! Namespaces: the users, processes, network and names of the machine that the worker's processes can see.
//!
//! If the supervisor is root, the worker gets a real user of its own. Otherwise the only user that can be mapped is our
//! own, so workers are separated from each other and from the supervisor by their namespaces only.

use std::fs;

use asp_launcher::Sandbox;
use nix::errno::Errno;
use nix::libc;
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{Gid, Uid, getegid, geteuid, seteuid, setgroups, sethostname, setresgid};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use rustix::thread::{capabilities, set_capabilities};

use crate::failure::{SetupFailure, StepContext};

/// Processes that `RLIMIT_NPROC` counts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProcessScope {
    /// Only those of this worker.
    Apart,
    /// All processes on the machine that have the worker's user.
    WithOthers,
}

/// Enters new namespaces; the process namespace takes effect for the next child.
pub(crate) fn enter(sandbox: &Sandbox) -> Result<(), SetupFailure> {
    map_user_unless_root(sandbox)?;
    unshare(
        CloneFlags::CLONE_NEWNS
            | CloneFlags::CLONE_NEWPID
            | CloneFlags::CLONE_NEWNET
            | CloneFlags::CLONE_NEWIPC
            | CloneFlags::CLONE_NEWUTS,
    )
    .during("namespaces")
}

/// Makes the worker's control group the visible root; must run inside the group.
pub(crate) fn hide_groups() {
    // This only hides the group's name, and not every kernel supports it.
    let _ = unshare(CloneFlags::CLONE_NEWCGROUP);
}

/// If not root, enters a user namespace in which our own user has the worker's user id, unless the worker keeps our
/// user.
pub(crate) fn map_user_unless_root(sandbox: &Sandbox) -> Result<(), SetupFailure> {
    if geteuid().is_root() || sandbox.keeps_user {
        return Ok(());
    }
    let outside = (geteuid(), getegid());
    unshare(CloneFlags::CLONE_NEWUSER).during("user namespace")?;
    map_user(sandbox, outside)
}

/// Enters a user namespace with only the worker's user; this process continues as that user, with every privilege
/// inside and none outside. In it `RLIMIT_NPROC` counts only this worker's processes: a fork above the limit is refused
/// before anything is copied, whereas a control group refuses it only afterwards. If the kernel does not permit such a
/// namespace (`user.max_user_namespaces`, a security module), only the control group counts.
pub(crate) fn enter_counting_namespace(sandbox: &Sandbox) -> Result<ProcessScope, SetupFailure> {
    if geteuid().is_root() {
        take_user(sandbox)?;
    }
    let outside = (geteuid(), getegid());
    match unshare(CloneFlags::CLONE_NEWUSER) {
        Ok(()) => map_user(sandbox, outside).map(|()| ProcessScope::Apart),
        // No namespace was entered.
        Err(_) => Ok(ProcessScope::WithOthers),
    }
}

/// Becomes the worker's user, keeping root's privileges. The namespace belongs to its creator, who may map himself;
/// root's privileges allow creating one even if ordinary users may not.
fn take_user(sandbox: &Sandbox) -> Result<(), SetupFailure> {
    let uid = Uid::from_raw(sandbox.uid);
    let gid = Gid::from_raw(sandbox.gid);
    setgroups(&[]).during("user")?;
    setresgid(gid, gid, gid).during("user")?;
    seteuid(uid).during("user")?;
    let mut sets = capabilities(None).during("capabilities")?;
    sets.effective = sets.permitted;
    set_capabilities(None, sets).during("capabilities")
}

/// Maps the user and group `outside` the namespace just entered to the worker's ids.
fn map_user(sandbox: &Sandbox, (user, group): (Uid, Gid)) -> Result<(), SetupFailure> {
    // The files below belong to root while this process is not dumpable.
    nix::sys::prctl::set_dumpable(true).during("user namespace")?;
    fs::write("/proc/self/setgroups", "deny").during("user namespace")?;
    fs::write("/proc/self/uid_map", format!("{} {user} 1", sandbox.uid)).during("user namespace")?;
    fs::write("/proc/self/gid_map", format!("{} {group} 1", sandbox.gid)).during("user namespace")?;
    nix::sys::prctl::set_dumpable(false).during("user namespace")
}

pub(crate) fn set_host_name(name: &str) -> Result<(), SetupFailure> {
    sethostname(name).during("hostname")
}

/// Brings `lo` up in the (otherwise empty) network namespace.
pub(crate) fn raise_loopback() -> Result<(), SetupFailure> {
    let socket =
        socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None).during("loopback")?;
    let up = libc::c_short::try_from(libc::IFF_UP).during("loopback")?;
    let mut name = [0; libc::IFNAMSIZ];
    for (place, letter) in name.iter_mut().zip(b"lo") {
        *place = libc::c_char::try_from(*letter).during("loopback")?;
    }
    let request = libc::ifreq { ifr_name: name, ifr_ifru: libc::__c_anonymous_ifr_ifru { ifru_flags: up } };
    // SAFETY: SIOCSIFFLAGS reads one ifreq with a name and flags, which is what is passed.
    #[allow(unsafe_code, reason = "interface flags are set by ioctl only")]
    let done = unsafe {
        libc::ioctl(std::os::fd::AsRawFd::as_raw_fd(&socket), libc::SIOCSIFFLAGS, &raw const request)
    };
    Errno::result(done).map(drop).during("loopback")
}
