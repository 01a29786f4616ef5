//! The egress forwarder of a worker: connections to a port on its loopback go to the egress proxy's socket for that port.
//!
//! It is a separate process with the worker's user and no more rights, and dies with the first process inside. It does
//! not inspect the forwarded bytes: the proxy decides which hosts a worker may reach.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::failure::{SetupFailure, StepContext};

/// Maximum number of connections: twice as many as a browser opens to one proxy. More wait in the listener's backlog.
const MAX_CONNECTIONS: usize = 64;
/// Buffer size for each direction of each connection: 2 MiB in all.
const BUFFER_BYTES: usize = 16 * 1024;
/// Pause after a failed accept (out of file descriptors): long enough for some to be closed.
const ACCEPT_PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// A listener for the worker, and the proxy's socket to which its connections go.
pub(crate) struct Route {
    pub(crate) listener: TcpListener,
    pub(crate) proxy: OwnedFd,
}

/// Serves until it is killed.
pub(crate) fn run(routes: &[Route]) -> Result<ExitCode, SetupFailure> {
    for route in routes {
        route.listener.set_nonblocking(true).during("egress")?;
    }
    let mut connections: Vec<Connection> = Vec::new();
    let mut accepts = true;
    loop {
        wait(routes, &connections, accepts).during("egress")?;
        accepts = true;
        for route in routes {
            if connections.len() < MAX_CONNECTIONS {
                match route.listener.accept() {
                    // Without a proxy the client's connection is closed.
                    Ok((client, _)) => connections.extend(Connection::open(client, &route.proxy).ok()),
                    Err(error) => accepts &= waits(&error),
                }
            }
        }
        connections.retain_mut(Connection::advance);
    }
}

/// Waits until a connection can advance or another one can be accepted; without `accepts`, ignores the latter for
/// [`ACCEPT_PAUSE`].
fn wait(routes: &[Route], connections: &[Connection], accepts: bool) -> io::Result<()> {
    let has_room = accepts && connections.len() < MAX_CONNECTIONS;
    let accept = if has_room { PollFlags::IN } else { PollFlags::empty() };
    let listeners = routes.iter().map(|route| PollFd::from_borrowed_fd(route.listener.as_fd(), accept));
    let mut wakers: Vec<PollFd<'_>> = listeners.collect();
    for connection in connections {
        let (client, proxy) = connection.interest();
        // A side without interest is left out: its hang-up would wake us for nothing.
        if !client.is_empty() {
            wakers.push(PollFd::from_borrowed_fd(connection.client.as_fd(), client));
        }
        if !proxy.is_empty() {
            wakers.push(PollFd::from_borrowed_fd(connection.proxy.as_fd(), proxy));
        }
    }
    match poll(&mut wakers, (!accepts).then_some(&ACCEPT_PAUSE)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

struct Connection {
    client: TcpStream,
    proxy: UnixStream,
    out: HalfConnection,
    back: HalfConnection,
}

/// One direction: bytes read on one side and not yet written on the other.
#[derive(Default)]
struct HalfConnection {
    buffer: Vec<u8>,
    written: usize,
    /// Whether the reading side has reached its end.
    ended: bool,
    /// Whether the writing side has been shut down after that.
    closed: bool,
}

impl Connection {
    fn open(client: TcpStream, proxy: &OwnedFd) -> io::Result<Connection> {
        let proxy = UnixStream::connect(format!("/proc/self/fd/{}", proxy.as_raw_fd()))?;
        client.set_nonblocking(true)?;
        proxy.set_nonblocking(true)?;
        Ok(Connection { client, proxy, out: HalfConnection::default(), back: HalfConnection::default() })
    }

    fn interest(&self) -> (PollFlags, PollFlags) {
        let mut client = PollFlags::empty();
        let mut proxy = PollFlags::empty();
        client.set(PollFlags::IN, self.out.can_read());
        proxy.set(PollFlags::OUT, self.out.has_more());
        proxy.set(PollFlags::IN, self.back.can_read());
        client.set(PollFlags::OUT, self.back.has_more());
        (client, proxy)
    }

    /// Moves the available bytes; false when both directions are done. A direction that fails is over, but does not
    /// affect the other one: a proxy that no longer reads may still send an answer.
    fn advance(&mut self) -> bool {
        if self.out.advance(&mut self.client, &mut self.proxy).is_err() {
            self.out.abandon();
        }
        if self.out.is_over() && !self.out.closed {
            // Err: the proxy has closed it already. The same below.
            let _ = self.proxy.shutdown(Shutdown::Write);
            self.out.closed = true;
        }
        if self.back.advance(&mut self.proxy, &mut self.client).is_err() {
            self.back.abandon();
        }
        if self.back.is_over() && !self.back.closed {
            let _ = self.client.shutdown(Shutdown::Write);
            self.back.closed = true;
        }
        !(self.out.closed && self.back.closed)
    }
}

impl HalfConnection {
    fn has_more(&self) -> bool {
        self.written < self.buffer.len()
    }

    fn can_read(&self) -> bool {
        !self.ended && !self.has_more()
    }

    fn is_over(&self) -> bool {
        self.ended && !self.has_more()
    }

    fn abandon(&mut self) {
        self.ended = true;
        self.buffer.clear();
        self.written = 0;
    }

    fn advance(&mut self, from: &mut impl Read, to: &mut impl Write) -> io::Result<()> {
        if self.can_read() {
            self.buffer.resize(BUFFER_BYTES, 0);
            self.written = 0;
            let read = from.read(&mut self.buffer);
            self.buffer.truncate(*read.as_ref().unwrap_or(&0));
            match read {
                Ok(0) => self.ended = true,
                Ok(_) => {}
                Err(error) if waits(&error) => {}
                Err(error) => return Err(error),
            }
        }
        if let Some(rest) = self.buffer.get(self.written..).filter(|rest| !rest.is_empty()) {
            match to.write(rest) {
                Ok(count) => self.written += count,
                Err(error) if waits(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

fn waits(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn a_client_wakes_the_forwarder_unless_an_accept_has_just_failed() {
        let route = || Route {
            listener: TcpListener::bind("127.0.0.1:0").unwrap(),
            proxy: UnixStream::pair().unwrap().0.into(),
        };
        let routes = [route(), route()];
        let _client = TcpStream::connect(routes[1].listener.local_addr().unwrap()).unwrap();
        wait(&routes, &[], true).unwrap();
        let began = Instant::now();
        wait(&routes, &[], false).unwrap();
        assert!(began.elapsed() >= Duration::from_millis(100));
    }
}
