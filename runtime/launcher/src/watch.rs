//! The outermost process: the supervisor's child, outside the sandbox.
//!
//! It creates the namespaces, starts the processes in them and in the control group, and then only waits: for the
//! worker's end, which it repeats as its own (same exit code, same signal), and for the supervisor's, after which
//! nothing here continues. It watches the supervisor by a handle on its process rather than by `PR_SET_PDEATHSIG`,
//! which follows the one thread that forked and would kill workers when that thread ends.

use std::fs::{self, File};
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::process::ExitCode;

use asp_launcher::{Description, Level, MAX_DESCRIPTION_BYTES, Reporter, Sandbox};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, kill, raise, sigprocmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{Id, WaitPidFlag, waitid, waitpid};
use nix::unistd::{ForkResult, Pid, geteuid, getpid, getppid, setsid};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{PidfdFlags, pidfd_open};

use crate::end::{WorkerEnd, end_of, serve_signals};
use crate::failure::{self, SetupFailure, StepContext};
use crate::fork::fork_into;
use crate::namespaces::ProcessScope;
use crate::syscalls::User;
use crate::{init, limits, namespaces, privileges, syscalls, worker};

/// Starts the worker that the description on `descriptor` describes and returns when it has ended. Failures are also
/// sent to `report`, if the caller gave one.
pub(crate) fn run(descriptor: u32, report: Option<u32>) -> Result<ExitCode, SetupFailure> {
    if let Some(report) = report {
        failure::report_to(Reporter::from_descriptor(take(report)?));
    }
    let description = read_description(descriptor, report)?;
    let supervisor = follow(description.supervisor)?;
    // Ctrl-C on the supervisor's terminal is for the supervisor only.
    setsid().during("session")?;
    nix::sys::prctl::set_dumpable(false).during("session")?;
    limits::no_core_dumps()?;
    // If SIGCHLD were ignored by inheritance, the ends of children would go unnoticed.
    worker::default_action(Signal::SIGCHLD);
    let signals = SignalFd::with_flags(&block_signals()?, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)
        .during("signals")?;
    let sandbox = description.sandbox;
    match sandbox.level {
        Level::L3 => namespaces::enter(&sandbox)?,
        Level::L1 | Level::L2 => namespaces::map_user_unless_root(&sandbox)?,
    }
    nix::sys::prctl::set_child_subreaper(true).during("session")?;
    let (report, reporter) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).during("fork")?;
    match fork_into(description.group.as_ref())? {
        ForkResult::Child => {
            drop((report, supervisor));
            if sandbox.level == Level::L3 {
                return init::run(&sandbox, reporter, &signals);
            }
            become_without_namespaces(&sandbox)
        }
        ForkResult::Parent { child } => {
            drop(reporter);
            let status = wait_for(child, &signals, &supervisor)?;
            kill_children();
            report_peak();
            Ok(end_as(read_end(&report).unwrap_or(status)))
        }
    }
}

fn read_description(descriptor: u32, report: Option<u32>) -> Result<Description, SetupFailure> {
    let file = File::from(take(descriptor)?);
    // One byte more than allowed, so that an oversized description is detected. Read by position: a command started
    // twice shares the file.
    let mut text = vec![0; MAX_DESCRIPTION_BYTES + 1];
    let mut length = 0;
    while let Some(rest) = text.get_mut(length..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, length as u64).during("description")? {
            0 => break,
            more => length += more,
        }
    }
    drop(file);
    close_others(report);
    let described = Description::parse(text.get(..length).unwrap_or_default());
    described.map_err(|error| SetupFailure::of_description("description", error))
}

/// Takes over an inherited descriptor and keeps programs started from here from inheriting it.
fn take(descriptor: u32) -> Result<OwnedFd, SetupFailure> {
    let descriptor = RawFd::try_from(descriptor).during("description")?;
    if descriptor <= 2 {
        return Err(SetupFailure::new("description", "a standard stream cannot carry it"));
    }
    // SAFETY: only checks whether it is open, and then marks it.
    #[allow(unsafe_code, reason = "an inherited descriptor is a bare number")]
    let borrowed = unsafe { BorrowedFd::borrow_raw(descriptor) };
    rustix::io::fcntl_setfd(borrowed, rustix::io::FdFlags::CLOEXEC).during("description")?;
    // SAFETY: it is open, and nothing in this process owns it: this is the first use of any descriptor.
    #[allow(unsafe_code, reason = "an inherited descriptor is a bare number")]
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Closes all other inherited descriptors.
fn close_others(but: Option<u32>) {
    let last = nix::libc::c_uint::MAX;
    let ranges = match but {
        Some(but) => [(3, but.saturating_sub(1)), (but.saturating_add(1), last)],
        None => [(3, last), (last, last)],
    };
    for (from, to) in ranges.into_iter().filter(|(from, to)| from <= to) {
        // SAFETY: nothing in this process owns a descriptor above the standard streams except that one.
        #[allow(unsafe_code, reason = "close_range has no safe form")]
        unsafe {
            nix::libc::close_range(from, to, 0);
        }
    }
}

fn follow(supervisor: u32) -> Result<OwnedFd, SetupFailure> {
    let pid = i32::try_from(supervisor).during("supervisor")?;
    let handle = rustix::process::Pid::from_raw(pid)
        .ok_or_else(|| SetupFailure::new("supervisor", "no process id"))
        .and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).during("supervisor"))?;
    // The handle was taken while the process is our parent, so it cannot refer to a later process with the same id.
    if getppid() == Pid::from_raw(pid) { Ok(handle) } else { Err(SetupFailure::new("supervisor", "gone")) }
}

fn block_signals() -> Result<SigSet, SetupFailure> {
    let mut set = SigSet::empty();
    for signal in [Signal::SIGCHLD, Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        set.add(signal);
    }
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&set), None).during("signals")?;
    Ok(set)
}

/// Becomes the worker at levels 1 and 2, where the child is the worker itself.
fn become_without_namespaces(sandbox: &Sandbox) -> Result<ExitCode, SetupFailure> {
    let user = if geteuid().is_root() { User::Own } else { User::Supervisors };
    privileges::drop_all(sandbox)?;
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL).during("supervisor")?;
    syscalls::restrict(sandbox, user)?;
    worker::exec_worker(sandbox, ProcessScope::WithOthers)
}

/// Waits for the child's end and passes signals on to it; kills it when the supervisor is gone.
fn wait_for(child: Pid, signals: &SignalFd, supervisor: &OwnedFd) -> Result<WorkerEnd, SetupFailure> {
    loop {
        let mut wakers = [
            PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(supervisor.as_fd(), PollFlags::IN),
        ];
        match poll(&mut wakers, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(SetupFailure::new("wait", error)),
        }
        if wakers.get(1).is_some_and(|waker| !waker.revents().is_empty()) {
            let _ = kill(child, Signal::SIGKILL);
            let status = waitpid(child, None).during("wait")?;
            return Ok(end_of(status).unwrap_or(WorkerEnd::Signal(Signal::SIGKILL)));
        }
        if let Some(end) = serve_signals(signals, child)? {
            return Ok(end);
        }
    }
}

/// Kills orphans of the worker: without a process namespace they become children of this process, the subreaper.
fn kill_children() {
    let list = format!("/proc/self/task/{}/children", getpid());
    while waitid(Id::All, WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG).is_ok() {
        let children = fs::read_to_string(&list).unwrap_or_default();
        for child in children.split_whitespace().filter_map(|pid| pid.parse().ok()) {
            let _ = kill(Pid::from_raw(child), Signal::SIGKILL);
        }
        if children.trim().is_empty() || waitid(Id::All, WaitPidFlag::WEXITED).is_err() {
            return;
        }
    }
}

/// Reports the worker's peak memory, which sampling would miss; the kernel records it for each process that was waited
/// for, in KiB, and for those that it had waited for (getrusage(2)).
fn report_peak() {
    // Err: the arguments would be invalid, which they are not.
    let kibibytes = getrusage(UsageWho::RUSAGE_CHILDREN).map(|usage| usage.max_rss());
    if let Ok(kibibytes) = u64::try_from(kibibytes.unwrap_or(0)) {
        failure::report_peak(kibibytes.saturating_mul(1024));
    }
}

fn read_end(report: &OwnedFd) -> Option<WorkerEnd> {
    let mut bytes = [0; 2];
    let fd: BorrowedFd<'_> = report.as_fd();
    // All writers are gone with the first process inside, so this does not block.
    (rustix::io::read(fd, &mut bytes) == Ok(2)).then_some(bytes).and_then(WorkerEnd::from_bytes)
}

/// Ends this process in the same way as the worker.
fn end_as(end: WorkerEnd) -> ExitCode {
    match end {
        WorkerEnd::Code(code) => ExitCode::from(code),
        WorkerEnd::Signal(signal) => {
            let mut all = SigSet::all();
            all.remove(signal);
            let _ = sigprocmask(SigmaskHow::SIG_SETMASK, Some(&all), None);
            worker::default_action(signal);
            let _ = raise(signal);
            // Only a signal that ends nothing by default gets here, and no such signal ended the worker.
            ExitCode::from(u8::try_from(128 + signal as i32).unwrap_or(u8::MAX))
        }
    }
}
