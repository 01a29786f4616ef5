//! Accounts of this machine whose processes are accepted without a certificate.
//!
//! The kernel reports the owner of a socket (proc_pid_net(5), `tcp` and `tcp6`), whatever its process claims. Keeps
//! true: only a connection with both ends open on this machine has an owner; a connection without an owner is not
//! accepted.

use std::net::SocketAddr;
use std::sync::Arc;

use procfs::ProcError;
use procfs::net::{TcpNetEntry, TcpState, tcp, tcp6};

const ROOT: u32 = 0;

/// Accepted accounts: that of this process, root, and those that the operator lists.
#[derive(Clone, Debug)]
pub struct Accounts(Arc<[u32]>);

impl Accounts {
    /// Accepts the `listed` user ids in addition.
    pub fn new(listed: &[u32]) -> Accounts {
        let own = rustix::process::geteuid().as_raw();
        Accounts([own, ROOT].iter().chain(listed).copied().collect())
    }

    /// Checks that the process that opened this connection belongs to one of the accounts; the error names the owner.
    /// Reads the kernel's whole table of sockets.
    pub fn admit(&self, opened_by: SocketAddr, own: SocketAddr) -> Result<(), String> {
        match owner(opened_by, own) {
            Ok(Some(user)) if self.0.contains(&user) => Ok(()),
            Ok(Some(user)) => Err(format!("{opened_by} is a socket of the account with user id {user}")),
            Ok(None) => Err(format!(
                "{opened_by} is not an open socket of this machine; it belongs to another machine or a container, or is behind a proxy"
            )),
            Err(error) => Err(format!("the owner of socket {opened_by} could not be read: {error}")),
        }
    }
}

/// Returns the user id of the process at the other end of a connection from `remote` to `own`.
fn owner(remote: SocketAddr, own: SocketAddr) -> procfs::ProcResult<Option<u32>> {
    let remote = normalize(remote);
    let own = normalize(own);
    // A closing socket counts as root's, whoever owned it.
    let is_it = |entry: &TcpNetEntry| {
        entry.state == TcpState::Established
            && normalize(entry.local_address) == remote
            && normalize(entry.remote_address) == own
    };
    let found = tcp()?.into_iter().find(is_it);
    // An IPv6 socket may be connected to an IPv4 address; a kernel without IPv6 has no such table.
    let found = match found {
        None => match tcp6() {
            Err(ProcError::NotFound(_)) => None,
            sockets => sockets?.into_iter().find(is_it),
        },
        found => found,
    };
    Ok(found.map(|entry| entry.uid))
}

fn normalize(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    fn connected(listen: &str, connect: impl Fn(u16) -> String) -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind(listen).unwrap();
        let port = listener.local_addr().unwrap().port();
        let client = TcpStream::connect(connect(port)).unwrap();
        (client, listener.accept().unwrap().0)
    }

    fn judged(accounts: &Accounts, server: &TcpStream) -> Result<(), String> {
        accounts.admit(server.peer_addr().unwrap(), server.local_addr().unwrap())
    }

    #[test]
    fn a_connection_of_this_process_is_of_its_account() {
        let own = rustix::process::geteuid().as_raw();
        let (client, server) = connected("127.0.0.1:0", |port| format!("127.0.0.1:{port}"));
        let addresses = (server.peer_addr().unwrap(), server.local_addr().unwrap());
        assert_eq!(owner(addresses.0, addresses.1).unwrap(), Some(own));
        assert_eq!(judged(&Accounts::new(&[]), &server), Ok(()));
        let others = Accounts([own + 1].into());
        assert!(judged(&others, &server).unwrap_err().ends_with(&format!("user id {own}")));
        drop(client);
    }

    /// Only root can act as another account.
    #[test]
    fn another_account_is_refused_unless_it_is_listed() {
        const NOBODY: u32 = 65_534;
        if !rustix::process::geteuid().is_root() {
            println!("left out: another account's connection, which only root can open");
            return;
        }
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        // The kernel gives each thread its own account.
        let other = std::thread::spawn(move || {
            rustix::thread::set_thread_uid(rustix::process::Uid::from_raw(NOBODY)).unwrap();
            TcpStream::connect(address).unwrap()
        });
        let (server, _) = listener.accept().unwrap();
        let client = other.join().unwrap();
        assert!(judged(&Accounts::new(&[]), &server).unwrap_err().ends_with("user id 65534"));
        assert_eq!(judged(&Accounts::new(&[NOBODY]), &server), Ok(()));
        drop(client);
    }

    #[test]
    fn a_socket_of_ipv6_that_is_connected_to_ipv4_is_found() {
        if TcpListener::bind("[::1]:0").is_err() {
            return;
        }
        let mapped = |port| format!("[::ffff:127.0.0.1]:{port}");
        let (client, server) = connected("127.0.0.1:0", mapped);
        assert_eq!(judged(&Accounts::new(&[]), &server), Ok(()));
        drop(client);
        let (client, server) = connected("[::1]:0", |port| format!("[::1]:{port}"));
        assert_eq!(judged(&Accounts::new(&[]), &server), Ok(()));
        drop(client);
    }

    #[test]
    fn a_socket_that_its_process_has_closed_is_nobodys() {
        let (client, server) = connected("127.0.0.1:0", |port| format!("127.0.0.1:{port}"));
        let addresses = (server.peer_addr().unwrap(), server.local_addr().unwrap());
        drop(client);
        // The end of the stream shows that the other side is closed.
        let mut rest = Vec::new();
        std::io::Read::read_to_end(&mut &server, &mut rest).unwrap();
        assert_eq!(owner(addresses.0, addresses.1).unwrap(), None);
        assert!(judged(&Accounts::new(&[]), &server).is_err());
    }
}
