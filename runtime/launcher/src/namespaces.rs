//! Namespaces: what the worker's processes see of the machine's users, processes, network and names.
//!
//! As root no user namespace is made: the worker gets a real user of its own. Without root the one user that may
//! be mapped is our own, so workers differ from each other and from the supervisor by their namespaces only.

use std::fs;

use asp_launcher::Sandbox;
use nix::libc;
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{getegid, geteuid, sethostname};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use crate::failure::{During, Failure};

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

/// Without root: a user namespace in which our own user has the worker's number.
pub(crate) fn map_user_unless_root(sandbox: &Sandbox) -> Result<(), Failure> {
    let (user, group) = (geteuid(), getegid());
    if user.is_root() {
        return Ok(());
    }
    unshare(CloneFlags::CLONE_NEWUSER).during("user namespace")?;
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
    nix::errno::Errno::result(done).map(drop).during("loopback")
}
