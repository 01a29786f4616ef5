//! The step from the supervisor's user to the worker's, with no way back.

use asp_launcher::Sandbox;
use nix::unistd::{Gid, Uid, getegid, geteuid, setgroups, setresgid, setresuid};
use rustix::io::Errno;
use rustix::thread::{
    CapabilitySet, CapabilitySets, clear_ambient_capability_set, remove_capability_from_bounding_set,
    set_capabilities,
};

use crate::failure::{During, Failure};

/// Gives up every capability, takes the worker's user and group, and bars `exec` from giving any back.
pub(crate) fn drop_all(sandbox: &Sandbox) -> Result<(), Failure> {
    empty_bounding_set(sandbox.keeps_user)?;
    // In a user namespace of one user there is nothing to set, and setting it is barred.
    if geteuid().is_root() {
        setgroups(&[]).during("user")?;
    }
    let uid = Uid::from_raw(sandbox.uid);
    let gid = Gid::from_raw(sandbox.gid);
    setresgid(gid, gid, gid).during("user")?;
    setresuid(uid, uid, uid).during("user")?;
    if geteuid() != uid || getegid() != gid {
        return Err(Failure::new("user", "the change had no effect"));
    }
    match clear_ambient_capability_set() {
        // Before Linux 4.3 there is none.
        Ok(()) | Err(Errno::INVAL) => {}
        Err(error) => return Err(Failure::new("capabilities", error)),
    }
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })
        .during("capabilities")?;
    nix::sys::prctl::set_no_new_privs().during("no_new_privs")?;
    // Nobody of the same user may look into this process; exec of the worker's program undoes it for that.
    nix::sys::prctl::set_dumpable(false).during("session")
}

/// Who keeps his user has no right to empty it (CAP_SETPCAP), nor any use of what is in it: after `no_new_privs` no
/// program gives capabilities (capabilities(7)).
fn empty_bounding_set(unprivileged: bool) -> Result<(), Failure> {
    for bit in 0..64 {
        match remove_capability_from_bounding_set(CapabilitySet::from_bits_retain(1 << bit)) {
            Ok(()) => {}
            // One past the last that this kernel has.
            Err(Errno::INVAL) if bit > 0 => return Ok(()),
            Err(Errno::PERM) if unprivileged => return Ok(()),
            Err(error) => return Err(Failure::new("capabilities", error)),
        }
    }
    Ok(())
}
