//! Creation of a child process, in the same control group or in the worker's.

use std::fs::{self, File};
use std::os::fd::AsRawFd;

use asp_launcher::GroupFiles;
use nix::libc;
use nix::unistd::{ForkResult, Pid};

use crate::failure::{SetupFailure, StepContext};

/// Flag from linux/sched.h; the constant of the crate is too narrow for it.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// Forks. The child shares nothing with this process but open files.
pub(crate) fn fork() -> Result<ForkResult, SetupFailure> {
    // SAFETY: this program never starts a thread.
    #[allow(unsafe_code, reason = "fork has no safe form; a single-threaded process keeps its rules")]
    unsafe { nix::unistd::fork() }.during("fork")
}

/// Forks a child that is in the control group before it does anything else.
pub(crate) fn fork_into(group: Option<&GroupFiles>) -> Result<ForkResult, SetupFailure> {
    let Some(group) = group else { return fork() };
    let forked = match &group.unified {
        Some(dir) => {
            let dir = File::open(dir).map_err(|error| failed(dir, error))?;
            clone_into(&dir).during("cgroup")?
        }
        None => fork()?,
    };
    if matches!(forked, ForkResult::Child) {
        for file in &group.tasks {
            fs::write(file, "0").map_err(|error| failed(file, error))?;
        }
    }
    Ok(forked)
}

/// Forks a child that starts in the control group `dir` (clone3(2), CLONE_INTO_CGROUP).
fn clone_into(dir: &File) -> nix::Result<ForkResult> {
    let none = 0;
    let arguments = libc::clone_args {
        flags: CLONE_INTO_CGROUP,
        cgroup: u64::from(dir.as_raw_fd().unsigned_abs()),
        exit_signal: u64::from(libc::SIGCHLD.unsigned_abs()),
        pidfd: none,
        child_tid: none,
        parent_tid: none,
        stack: none,
        stack_size: none,
        tls: none,
        set_tid: none,
        set_tid_size: none,
    };
    // SAFETY: without a stack of its own the child is a copy, as after fork; this program never starts a thread.
    #[allow(unsafe_code, reason = "only clone3 makes a process in another control group")]
    let pid = unsafe { libc::syscall(libc::SYS_clone3, &raw const arguments, size_of::<libc::clone_args>()) };
    match nix::errno::Errno::result(pid)? {
        0 => Ok(ForkResult::Child),
        pid => Ok(ForkResult::Parent { child: Pid::from_raw(i32::try_from(pid).unwrap_or(i32::MAX)) }),
    }
}

fn failed(path: &std::path::Path, error: std::io::Error) -> SetupFailure {
    SetupFailure::new("cgroup", format_args!("{}: {error}", path.display()))
}
