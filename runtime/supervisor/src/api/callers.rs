//! Keeps workers from the runtime's own API where they have its user.
//!
//! With users of their own they are refused by the socket's mode and by [`crate::tunnel::peer::Peer`]. Refuses, of this
//! process's user, whoever is in a sandbox and whoever cannot be looked at.

use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use asp_launcher::is_from_sandbox;
use tokio::net::UnixStream;

/// A worker can connect as often as it likes; a line a minute is enough of that.
const TELL_EVERY: Duration = Duration::from_secs(60);

/// Judges connections as they are accepted.
#[derive(Debug)]
pub struct Callers {
    /// Workers have this process's user.
    alike: bool,
    refused: u64,
    told: Option<Instant>,
}

impl Callers {
    /// `own_user`: workers have users of their own.
    pub fn new(own_user: bool) -> Callers {
        Callers { alike: !own_user, refused: 0, told: None }
    }

    /// The connection, if it may be served.
    pub fn admit(&mut self, stream: UnixStream) -> Option<UnixStream> {
        if !self.alike {
            return Some(stream);
        }
        match is_of_worker(&stream) {
            Ok(false) => return Some(stream),
            Ok(true) => {
                self.note("a worker connected to the runtime's own API: it is refused, look at its plugin")
            }
            Err(error) => self.note(&format!("it is not known who connected to the API ({error}): refused")),
        }
        None
    }

    fn note(&mut self, what: &str) {
        self.refused += 1;
        if self.told.is_some_and(|told| told.elapsed() < TELL_EVERY) {
            return;
        }
        self.told = Some(Instant::now());
        tracing::warn!(runtime = true, refused = self.refused, "{what}");
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
