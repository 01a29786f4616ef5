//! Namespaces: what the worker's processes see of the machine's users, processes, network and names.
//!
//! As root the worker gets a real user of its own. Without root the one user that may be mapped is our own, so
//! workers differ from each other and from the supervisor by their namespaces only.

use std::fs;

use asp_launcher::Sandbox;
use nix::errno::Errno;
use nix::libc;
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{Gid, Uid, getegid, geteuid, seteuid, setgroups, sethostname, setresgid};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use rustix::thread::{capabilities, set_capabilities};

use crate::failure::{During, Failure};

/// Whose processes `RLIMIT_NPROC` counts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Counted {
    /// This worker's alone.
    Apart,
    /// Those of every process on the machine that has the worker's user.
    WithOthers,
}

/// Enters new namespaces; the process namespace begins with the next child.
pub(crate) fn enter(sandbox: &Sandbox) -> Result<(), Failure> {
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

/// Makes the worker's control group the root of what it sees; done inside the group.
pub(crate) fn hide_groups() {
    // Only hides the group's name, and is not in every kernel.
    let _ = unshare(CloneFlags::CLONE_NEWCGROUP);
}

/// Without root: a user namespace in which our own user has the worker's number, unless that is its own.
pub(crate) fn map_user_unless_root(sandbox: &Sandbox) -> Result<(), Failure> {
    if geteuid().is_root() || sandbox.keeps_user {
        return Ok(());
    }
    let outside = (geteuid(), getegid());
    unshare(CloneFlags::CLONE_NEWUSER).during("user namespace")?;
    map_user(sandbox, outside)
}

/// Enters a user namespace of the worker's user alone, as which this process goes on, with every privilege in there
/// and none outside. In it `RLIMIT_NPROC` counts this worker's processes and nobody else's: a fork above it is
/// refused before anything is copied, which a control group does only after. Where the kernel gives no such
/// namespace (`user.max_user_namespaces`, a security module), the control group alone counts.
pub(crate) fn count_apart(sandbox: &Sandbox) -> Result<Counted, Failure> {
    if geteuid().is_root() {
        take_user(sandbox)?;
    }
    let outside = (geteuid(), getegid());
    match unshare(CloneFlags::CLONE_NEWUSER) {
        Ok(()) => map_user(sandbox, outside).map(|()| Counted::Apart),
        // Nothing was entered.
        Err(_) => Ok(Counted::WithOthers),
    }
}

/// The namespace belongs to who makes it: the worker's user, who may map himself, with the privilege of root to make
/// one where others may not.
fn take_user(sandbox: &Sandbox) -> Result<(), Failure> {
    let uid = Uid::from_raw(sandbox.uid);
    let gid = Gid::from_raw(sandbox.gid);
    setgroups(&[]).during("user")?;
    setresgid(gid, gid, gid).during("user")?;
    seteuid(uid).during("user")?;
    let mut sets = capabilities(None).during("capabilities")?;
    sets.effective = sets.permitted;
    set_capabilities(None, sets).during("capabilities")
}

/// Gives the worker's numbers to the one user and group that are `outside` the namespace just entered.
fn map_user(sandbox: &Sandbox, (user, group): (Uid, Gid)) -> Result<(), Failure> {
    // The files below belong to root while this process may not be looked into.
    nix::sys::prctl::set_dumpable(true).during("user namespace")?;
    fs::write("/proc/self/setgroups", "deny").during("user namespace")?;
    fs::write("/proc/self/uid_map", format!("{} {user} 1", sandbox.uid)).during("user namespace")?;
    fs::write("/proc/self/gid_map", format!("{} {group} 1", sandbox.gid)).during("user namespace")?;
    nix::sys::prctl::set_dumpable(false).during("user namespace")
}

pub(crate) fn name_host(name: &str) -> Result<(), Failure> {
    sethostname(name).during("hostname")
}

/// Brings `lo` up in the (otherwise empty) network namespace.
pub(crate) fn raise_loopback() -> Result<(), Failure> {
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
