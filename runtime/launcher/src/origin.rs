//! Origin of a process that connects to one of our sockets: a sandbox, or not.
//!
//! Without root a worker has our own user, so the user does not tell. Its user namespace does: `worker-init` enters one
//! of its own before it forks, no process that a worker starts can leave it (user_namespaces(7)), and the check does
//! not depend on a living parent. Keeps true: a process that has ended or cannot be inspected is an error, never "not
//! from a sandbox".

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

use nix::errno::Errno;
use nix::libc;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Whether the process that connected `socket` is in another user namespace than this one. `pid` is the peer's from
/// `SO_PEERCRED`. Before Linux 6.5 a reused process id is not detected.
pub fn is_from_sandbox(socket: BorrowedFd<'_>, pid: i32) -> io::Result<bool> {
    if pid == 0 {
        // It has no id in our process namespace, in which every process that we started has one.
        return Ok(false);
    }
    let process = handle_of_peer(socket)?;
    let theirs = user_namespace(&pid.to_string())?;
    if let Some(process) = process {
        // The id belongs to the process as long as it lives, so the namespace read above is the right one.
        let mut ended = [PollFd::new(&process, PollFlags::IN)];
        poll(&mut ended, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))?;
        if ended.iter().any(|handle| !handle.revents().is_empty()) {
            return Err(Errno::ESRCH.into());
        }
    }
    Ok(theirs != user_namespace("self")?)
}

/// Returns device and inode of a process's user namespace, which identify it.
fn user_namespace(process: &str) -> io::Result<(u64, u64)> {
    let metadata = fs::metadata(format!("/proc/{process}/ns/user"))?;
    Ok((metadata.dev(), metadata.ino()))
}

/// Returns a handle of the process that connected; `None` if the kernel does not support it (before Linux 6.5).
fn handle_of_peer(socket: BorrowedFd<'_>) -> io::Result<Option<OwnedFd>> {
    let mut handle: libc::c_int = -1;
    let mut length = libc::socklen_t::try_from(size_of::<libc::c_int>()).map_err(io::Error::other)?;
    // SAFETY: the kernel writes one integer, for which there is room, and its length.
    #[allow(unsafe_code, reason = "SO_PEERPIDFD has no safe form in what we use")]
    let done = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERPIDFD,
            (&raw mut handle).cast(),
            &raw mut length,
        )
    };
    match Errno::result(done) {
        // SAFETY: the kernel has just created it for us.
        #[allow(unsafe_code, reason = "a new descriptor is a bare number")]
        Ok(_) => Ok(Some(unsafe { OwnedFd::from_raw_fd(handle) })),
        Err(Errno::ENOPROTOOPT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::process::{Child, Command, Stdio};

    use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

    use super::*;

    const CONNECT: &str = "import socket,sys\ns=socket.socket(socket.AF_UNIX)\ns.connect(sys.argv[1])\n";

    /// Accepts the connection of a Python that `wrapper` starts and `then` continues.
    fn accept_from(wrapper: &[&str], then: &str) -> (UnixStream, Child, i32) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let mut argv: Vec<&str> = wrapper.to_vec();
        let code = format!("{CONNECT}{then}");
        argv.extend(["python3", "-I", "-c", &code, path.to_str().unwrap()]);
        let child = Command::new(argv[0]).args(&argv[1..]).stdin(Stdio::piped()).spawn().unwrap();
        let stream = listener.accept().unwrap().0;
        let credentials = rustix::net::sockopt::socket_peercred(&stream).unwrap();
        (stream, child, credentials.pid.as_raw_nonzero().get())
    }

    #[test]
    fn a_process_in_a_user_namespace_of_its_own_is_from_a_sandbox_and_another_is_not() {
        for (wrapper, expected) in [(&["env"][..], false), (&["unshare", "--user"][..], true)] {
            let (stream, mut child, pid) = accept_from(wrapper, "sys.stdin.read()");
            assert_eq!(is_from_sandbox(stream.as_fd(), pid).unwrap(), expected, "{wrapper:?}");
            drop(child.stdin.take());
            child.wait().unwrap();
        }
    }

    #[test]
    fn of_a_process_that_has_gone_nothing_is_said() {
        let (stream, mut child, pid) = accept_from(&["env"], "");
        let ended = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        waitid(WaitId::Pid(Pid::from_child(&child)), ended).unwrap();
        // It is not reaped, so its process id is not reused yet.
        is_from_sandbox(stream.as_fd(), pid).unwrap_err();
        child.wait().unwrap();
        is_from_sandbox(stream.as_fd(), pid).unwrap_err();
    }

    #[test]
    fn a_process_beyond_our_process_namespace_is_from_no_sandbox() {
        let (stream, _other) = UnixStream::pair().unwrap();
        assert!(!is_from_sandbox(stream.as_fd(), 0).unwrap());
    }
}
