//! The end of a worker, and the signals that report it or ask the worker to end.

use nix::sys::signal::{Signal, kill};
use nix::sys::signalfd::SignalFd;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use crate::failure::{SetupFailure, StepContext};

/// End of a worker, as passed from the first process inside to the outermost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WorkerEnd {
    Code(u8),
    Signal(Signal),
}

/// Converts a wait status; `None` while the process lives.
pub(crate) fn end_of(status: WaitStatus) -> Option<WorkerEnd> {
    match status {
        WaitStatus::Exited(_, code) => Some(WorkerEnd::Code(u8::try_from(code & 0xff).unwrap_or(u8::MAX))),
        WaitStatus::Signaled(_, signal, _) => Some(WorkerEnd::Signal(signal)),
        _ => None,
    }
}

impl WorkerEnd {
    pub(crate) fn to_bytes(self) -> [u8; 2] {
        match self {
            WorkerEnd::Code(code) => [0, code],
            WorkerEnd::Signal(signal) => [1, u8::try_from(signal as i32).unwrap_or(0)],
        }
    }

    pub(crate) fn from_bytes(bytes: [u8; 2]) -> Option<WorkerEnd> {
        match bytes {
            [0, code] => Some(WorkerEnd::Code(code)),
            [1, signal] => Signal::try_from(i32::from(signal)).ok().map(WorkerEnd::Signal),
            _ => None,
        }
    }
}

/// Handles pending signals: SIGTERM asks the worker to end, SIGHUP and SIGINT kill it. Reaps ended processes and
/// returns the end of `child` if it ended.
pub(crate) fn serve_signals(signals: &SignalFd, child: Pid) -> Result<Option<WorkerEnd>, SetupFailure> {
    while let Some(info) = signals.read_signal().during("wait")? {
        let passed_on = match i32::try_from(info.ssi_signo).map(Signal::try_from) {
            Ok(Ok(Signal::SIGTERM)) => Signal::SIGTERM,
            Ok(Ok(Signal::SIGHUP | Signal::SIGINT)) => Signal::SIGKILL,
            _ => continue,
        };
        // Err: it has just ended.
        let _ = kill(child, passed_on);
    }
    let mut end = None;
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(status) if status.pid() == Some(child) => end = end_of(status).or(end),
            Ok(WaitStatus::StillAlive) | Err(_) => return Ok(end),
            Ok(_) => {}
        }
    }
}
