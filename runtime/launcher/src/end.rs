//! How a worker ended, and the signals through which its parent learns of it and passes on what asks it to go.

use nix::sys::signal::{Signal, kill};
use nix::sys::signalfd::SignalFd;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use crate::failure::{During, Failure};

/// How a worker ended, as it travels from the first process inside to the outermost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Code(u8),
    Signal(Signal),
}

/// The end that a wait status tells of; `None` while the process lives.
pub(crate) fn end_of(status: WaitStatus) -> Option<End> {
    match status {
        WaitStatus::Exited(_, code) => Some(End::Code(u8::try_from(code & 0xff).unwrap_or(u8::MAX))),
        WaitStatus::Signaled(_, signal, _) => Some(End::Signal(signal)),
        _ => None,
    }
}

impl End {
    pub(crate) fn to_bytes(self) -> [u8; 2] {
        match self {
            End::Code(code) => [0, code],
            End::Signal(signal) => [1, u8::try_from(signal as i32).unwrap_or(0)],
        }
    }

    pub(crate) fn from_bytes(bytes: [u8; 2]) -> Option<End> {
        match bytes {
            [0, code] => Some(End::Code(code)),
            [1, signal] => Signal::try_from(i32::from(signal)).ok().map(End::Signal),
            _ => None,
        }
    }
}

/// Handles what has arrived: SIGTERM asks the worker to go, SIGHUP and SIGINT make it; reaps. Returns the end of
/// `child` when it came.
pub(crate) fn serve_signals(signals: &SignalFd, child: Pid) -> Result<Option<End>, Failure> {
    while let Some(info) = signals.read_signal().during("wait")? {
        let passed_on = match i32::try_from(info.ssi_signo).map(Signal::try_from) {
            Ok(Ok(Signal::SIGTERM)) => Signal::SIGTERM,
            Ok(Ok(Signal::SIGHUP | Signal::SIGINT)) => Signal::SIGKILL,
            _ => continue,
        };
        // Err: it has ended in this moment.
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
