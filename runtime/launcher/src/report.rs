//! Reports from `worker-init` to the supervisor: handles of the run and the work directory, the step that failed, and
//! the peak memory of a process of the worker.
//!
//! They use a socket of their own, which the worker's program does not have. Keeps true: a worker cannot forge a
//! report, unlike an exit code and the standard streams.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, send, sendmsg, socketpair,
};
use serde::{Deserialize, Serialize};

/// Maximum size of a report; the longest error text of the system and of this program has a tenth of it.
const MAX_REPORT_BYTES: usize = 8 * 1024;
/// Text of the message that carries the two directories; an empty message would look like the end.
const DIRECTORIES: &[u8] = b"directories";

/// Failure of a step in building the sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetupFault {
    pub step: String,
    pub error: String,
    /// Whether the machine caused it; otherwise the description cannot be fulfilled.
    pub host: bool,
}

/// Peak memory of any one process.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Peak {
    resident_bytes: u64,
}

/// The supervisor's end of the socket.
#[derive(Debug)]
pub struct Report {
    socket: OwnedFd,
    /// The run directory and the work directory.
    directories: OnceLock<[OwnedFd; 2]>,
    fault: OnceLock<SetupFault>,
    peak: OnceLock<u64>,
}

/// The end of the socket in `worker-init`.
#[derive(Debug)]
pub struct Reporter(OwnedFd);

impl Report {
    /// Creates both ends of a report.
    pub fn open() -> io::Result<(Report, Reporter)> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        let report = Report {
            socket: ours,
            directories: OnceLock::new(),
            fault: OnceLock::new(),
            peak: OnceLock::new(),
        };
        Ok((report, Reporter(theirs)))
    }

    /// Returns the worker's run directory at level 3, once it exists; no path outside leads to it. Never blocks.
    #[must_use]
    pub fn run_dir(&self) -> Option<BorrowedFd<'_>> {
        self.directories().map(|[run_dir, _]| run_dir.as_fd())
    }

    /// Returns the worker's work directory at level 3, once it exists. Never blocks.
    #[must_use]
    pub fn work_dir(&self) -> Option<BorrowedFd<'_>> {
        self.directories().map(|[_, work_dir]| work_dir.as_fd())
    }

    fn directories(&self) -> Option<&[OwnedFd; 2]> {
        if self.directories.get().is_none() {
            self.listen();
        }
        self.directories.get()
    }

    /// Returns the failure before the worker's first instruction; `None` if there was none so far. Never blocks.
    #[must_use]
    pub fn fault(&self) -> Option<SetupFault> {
        self.listen();
        self.fault.get().cloned()
    }

    /// Returns the peak resident memory of any one process of the worker, in bytes, as counted by the kernel; `None` if
    /// the worker has not ended, or not by itself. Never blocks.
    #[must_use]
    pub fn peak_bytes(&self) -> Option<u64> {
        self.listen();
        self.peak.get().copied()
    }

    /// Reads new reports; the first of each kind counts.
    fn listen(&self) {
        let mut text = [0; MAX_REPORT_BYTES];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        loop {
            let mut came_along = RecvAncillaryBuffer::new(&mut space);
            let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
            let told = recvmsg(&self.socket, &mut [IoSliceMut::new(&mut text)], &mut came_along, flags);
            // Err: there is no message, as in nearly every start. No byte: there will be no more messages.
            let Some(length) = told.ok().map(|told| told.bytes).filter(|length| *length > 0) else { return };
            for message in came_along.drain() {
                if let RecvAncillaryMessage::ScmRights(handles) = message {
                    // Err: the message is not ours unless it has both handles.
                    let both = <[OwnedFd; 2]>::try_from(handles.collect::<Vec<_>>());
                    let _ = both.map(|both| self.directories.set(both));
                }
            }
            let text = text.get(..length).unwrap_or_default();
            // Err: one is known already.
            if let Ok(fault) = serde_json::from_slice(text) {
                let _ = self.fault.set(fault);
            } else if let Ok(Peak { resident_bytes }) = serde_json::from_slice(text) {
                let _ = self.peak.set(resident_bytes);
            }
        }
    }
}

impl Reporter {
    /// Takes over an inherited descriptor.
    #[must_use]
    pub fn from_descriptor(descriptor: OwnedFd) -> Reporter {
        Reporter(descriptor)
    }

    /// Sends handles of the two directories. Never blocks.
    pub fn hand_over(&self, run_dir: BorrowedFd<'_>, work_dir: BorrowedFd<'_>) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut goes_along = SendAncillaryBuffer::new(&mut space);
        let handles = [run_dir, work_dir];
        // There is room for the two.
        goes_along.push(SendAncillaryMessage::ScmRights(&handles));
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        // Err: the supervisor is gone, or starts a worker that it does not connect to.
        let _ = sendmsg(&self.0, &[IoSlice::new(DIRECTORIES)], &mut goes_along, flags);
    }

    /// Reports a failure. Never blocks.
    pub fn report_failure(&self, fault: &SetupFault) {
        self.send_json(fault);
    }

    /// Reports the peak resident memory of any one process of the worker, in bytes. Never blocks.
    pub fn report_peak(&self, resident_bytes: u64) {
        self.send_json(&Peak { resident_bytes });
    }

    fn send_json(&self, what: &impl Serialize) {
        let text = serde_json::to_vec(what).unwrap_or_default();
        // Err: the supervisor is gone, and this process will end in a moment.
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
        let fault = SetupFault { step: "mounts".into(), error: "No space left on device".into(), host: true };
        reporter.report_failure(&fault);
        reporter.report_peak(5 << 30);
        drop(reporter);
        assert_eq!(report.fault(), Some(fault.clone()));
        assert_eq!(report.peak_bytes(), Some(5 << 30));
        assert_eq!(report.fault(), Some(fault), "what was said stays said");
    }

    #[test]
    fn the_directories_arrive_as_themselves_before_a_fault() {
        let (report, reporter) = Report::open().unwrap();
        assert!(report.run_dir().is_none());
        let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let [run_dir, work_dir] = dirs.each_ref().map(|dir| std::fs::File::open(dir.path()).unwrap());
        reporter.hand_over(run_dir.as_fd(), work_dir.as_fd());
        let fault = SetupFault { step: "landlock".into(), error: "absent".into(), host: true };
        reporter.report_failure(&fault);
        assert_eq!(report.fault(), Some(fault));
        let number = |handle| rustix::fs::fstat(handle).unwrap().st_ino;
        assert_eq!(number(report.run_dir().unwrap()), number(run_dir.as_fd()));
        assert_eq!(number(report.work_dir().unwrap()), number(work_dir.as_fd()));
    }
}
