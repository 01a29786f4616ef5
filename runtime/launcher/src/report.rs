//! What `worker-init` tells the supervisor: where its sockets are, and the step at which it failed.
//!
//! Travels on a socket of its own that closes when the worker's program starts. Keeps true: a worker cannot forge it;
//! an exit code and the standard streams it can.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair};
use serde::{Deserialize, Serialize};

/// The longest text that the system and our own words make has a tenth of it.
const MAX_REPORT_BYTES: usize = 8 * 1024;

/// A step of building the sandbox that did not work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    pub step: String,
    pub error: String,
    /// The machine could not do it; else what was described cannot be done.
    pub host: bool,
}

/// The supervisor's end.
#[derive(Debug)]
pub struct Report(OwnedFd);

/// The end of `worker-init`.
#[derive(Debug)]
pub struct Reporter(OwnedFd);

impl Report {
    /// Both ends of a new report.
    pub fn open() -> io::Result<(Report, Reporter)> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        Ok((Report(ours), Reporter(theirs)))
    }

    /// What went wrong before the worker's first instruction; `None`: nothing so far. Never waits.
    #[must_use]
    pub fn fault(&self) -> Option<Fault> {
        let mut text = [0; MAX_REPORT_BYTES];
        // Err: nothing was said, which is how nearly every start goes.
        let (_, length) = recv(&self.0, &mut text[..], RecvFlags::DONTWAIT).ok()?;
        serde_json::from_slice(text.get(..length)?).ok()
    }
}

impl Reporter {
    /// Takes over an inherited descriptor.
    #[must_use]
    pub fn from_descriptor(descriptor: OwnedFd) -> Reporter {
        Reporter(descriptor)
    }

    /// Tells what went wrong. Never waits.
    pub fn tell(&self, fault: &Fault) {
        let text = serde_json::to_vec(fault).unwrap_or_default();
        // Err: the supervisor is gone, and so is this process in a moment.
        let _ = send(&self.0, &text, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    }
}

impl AsFd for Reporter {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_reaches_the_supervisor_and_silence_is_none() {
        let (report, reporter) = Report::open().unwrap();
        assert_eq!(report.fault(), None);
        let fault = Fault { step: "mounts".into(), error: "No space left on device".into(), host: true };
        reporter.tell(&fault);
        drop(reporter);
        assert_eq!(report.fault(), Some(fault));
        assert_eq!(report.fault(), None);
    }
}
