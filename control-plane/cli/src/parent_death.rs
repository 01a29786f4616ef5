//! Child processes that the kernel ends when this process dies, however it dies.

use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::{Signal, set_parent_process_death_signal};

/// Asks the kernel to kill the child when the thread that starts it ends; one of a runtime's lives as long as that.
#[allow(unsafe_code)] // `pre_exec` is unsafe; its closure makes one async-signal-safe system call
pub(crate) fn die_with_parent(command: &mut Command) {
    // SAFETY: prctl(2) is async-signal-safe, and the closure neither allocates nor locks.
    unsafe {
        command.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::KILL))?));
    }
}
