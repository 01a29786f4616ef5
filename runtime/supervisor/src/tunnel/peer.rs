//! Identity of the other end of a connection: a handle is valid only for the peer that requested it.

use sha2::{Digest, Sha256};
use tonic::transport::server::UdsConnectInfo;
use tonic::{Request, Status};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Peer {
    /// A process on this machine, as the kernel identifies it (`SO_PEERCRED`).
    Process { uid: u32, pid: i32 },
    /// SHA-256 of the client's certificate.
    Certificate([u8; 32]),
}

impl Peer {
    /// Returns the sender of `request`.
    pub fn of<T>(request: &Request<T>) -> Result<Peer, Status> {
        if let Some(certificates) = request.peer_certs()
            && let Some(own) = certificates.first()
        {
            return Ok(Peer::Certificate(Sha256::digest(own).into()));
        }
        let credentials = request.extensions().get::<UdsConnectInfo>().and_then(|info| info.peer_cred);
        match credentials.map(|credentials| (credentials.uid(), credentials.pid())) {
            // The socket's mode admits nobody else; this check also covers connections made before the mode was set.
            Some((uid, Some(pid))) if uid == 0 || uid == rustix::process::geteuid().as_raw() => {
                Ok(Peer::Process { uid, pid })
            }
            _ => Err(Status::unauthenticated("the peer is not known")),
        }
    }
}
