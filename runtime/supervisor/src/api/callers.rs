//! Keeps workers away from the runtime's own API when they run as the runtime's user.
//!
//! Workers with users of their own are refused by the socket's mode and by [`crate::tunnel::peer::Peer`]. Among
//! processes of the runtime's user, refuses those in a sandbox and those that cannot be inspected.

use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use asp_launcher::is_from_sandbox;
use tokio::net::UnixStream;

/// Interval between log lines about refused connections; a worker can connect as often as it likes.
const LOG_EVERY: Duration = Duration::from_secs(60);

/// Checks connections as they are accepted.
#[derive(Debug)]
pub struct Callers {
    /// Whether workers run as this process's user.
    alike: bool,
    refused: u64,
    logged: Option<Instant>,
}

impl Callers {
    /// Creates the check. `own_user`: workers have users of their own.
    pub fn new(own_user: bool) -> Callers {
        Callers { alike: !own_user, refused: 0, logged: None }
    }

    /// Returns the connection if it may be served.
    pub fn admit(&mut self, stream: UnixStream) -> Option<UnixStream> {
        if !self.alike {
            return Some(stream);
        }
        match is_of_worker(&stream) {
            Ok(false) => return Some(stream),
            Ok(true) => self.note("the peer is a worker"),
            Err(error) => self.note(&format!("the peer cannot be identified: {error}")),
        }
        None
    }

    fn note(&mut self, reason: &str) {
        self.refused += 1;
        if self.logged.is_some_and(|logged| logged.elapsed() < LOG_EVERY) {
            return;
        }
        self.logged = Some(Instant::now());
        tracing::warn!(
            runtime = true,
            refused = self.refused,
            reason,
            "a connection to the runtime's API was refused; if a worker made it, check its plugin"
        );
    }
}

fn is_of_worker(stream: &UnixStream) -> io::Result<bool> {
    let peer = stream.peer_cred()?;
    if peer.uid() != rustix::process::geteuid().as_raw() {
        return Ok(false);
    }
    let pid = peer.pid().ok_or_else(|| io::Error::other("the kernel does not say which process"))?;
    is_from_sandbox(stream.as_fd(), pid)
}
