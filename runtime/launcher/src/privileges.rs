//! The irreversible change from the supervisor's user to the worker's.

use asp_launcher::Sandbox;
use nix::unistd::{Gid, Uid, getegid, geteuid, setgroups, setresgid, setresuid};
use rustix::io::Errno;
use rustix::thread::{
    CapabilitySet, CapabilitySets, clear_ambient_capability_set, remove_capability_from_bounding_set,
    set_capabilities,
};

use crate::failure::{SetupFailure, StepContext};

/// Gives up every capability, switches to the worker's user and group, and prevents `exec` from regaining any
/// privilege.
pub(crate) fn drop_all(sandbox: &Sandbox) -> Result<(), SetupFailure> {
    empty_bounding_set(sandbox.keeps_user)?;
    // In a user namespace with one user there is nothing to set, and setting it is forbidden.
    if geteuid().is_root() {
        setgroups(&[]).during("user")?;
    }
    let uid = Uid::from_raw(sandbox.uid);
    let gid = Gid::from_raw(sandbox.gid);
    setresgid(gid, gid, gid).during("user")?;
    setresuid(uid, uid, uid).during("user")?;
    if geteuid() != uid || getegid() != gid {
        return Err(SetupFailure::new("user", "the change had no effect"));
    }
    match clear_ambient_capability_set() {
        // Before Linux 4.3 there is none.
        Ok(()) | Err(Errno::INVAL) => {}
        Err(error) => return Err(SetupFailure::new("capabilities", error)),
    }
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })
        .during("capabilities")?;
    nix::sys::prctl::set_no_new_privs().during("no_new_privs")?;
    // No process of the same user may inspect this process; exec of the worker's program reverts this for the worker.
    nix::sys::prctl::set_dumpable(false).during("session")
}

/// Empties the capability bounding set. A worker that keeps the supervisor's user lacks the right to do so
/// (CAP_SETPCAP), but does not need it: after `no_new_privs` no program grants capabilities (capabilities(7)).
fn empty_bounding_set(unprivileged: bool) -> Result<(), SetupFailure> {
    for bit in 0..64 {
        match remove_capability_from_bounding_set(CapabilitySet::from_bits_retain(1 << bit)) {
            Ok(()) => {}
            // One past the last capability that this kernel has.
            Err(Errno::INVAL) if bit > 0 => return Ok(()),
            Err(Errno::PERM) if unprivileged => return Ok(()),
            Err(error) => return Err(SetupFailure::new("capabilities", error)),
        }
    }
    Ok(())
}
