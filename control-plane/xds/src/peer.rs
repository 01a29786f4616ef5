//! Access of subscribers to resources: with certificates, by the role in the subscriber's certificate.
//!
//! A gateway receives all policies and clients' requests with their tokens; an Envoy receives what the edge needs.
//! Keeps true: a certificate of another role, stolen from an Envoy or a runtime, gives access to neither, and requests
//! are only sent to addresses in a subscriber's certificate. Without certificates, a process on this machine must run
//! as an accepted account, and may advertise only loopback addresses; in a mesh, everyone who reaches the port may
//! subscribe, with any address.

use std::net::SocketAddr;
use std::time::Duration;

use asp_peer::{Accounts, Identity, Peer, Role};
use tonic::{Request, Status};

use super::contract::Kind;

/// Roles that may connect to the port.
pub const SUBSCRIBERS: &[Role] = &[Role::Gateway, Role::Envoy];
/// Longest wait for the addresses of a name in a certificate.
const RESOLVE: Duration = Duration::from_secs(2);
/// Maximum number of names in a certificate that are resolved.
const MAX_NAMES: usize = 8;

/// Proof of identity that subscribers must give.
#[derive(Clone)]
pub enum PeerProof {
    /// Certificate; holds this process's own side of the connection.
    Certificate(Peer),
    /// Account that their processes run as; the port is reachable from this machine only.
    Account(Accounts),
    /// Left to the mesh around the port.
    Mesh,
}

impl PeerProof {
    /// Returns this process's side if certificates are in use.
    pub fn peer(&self) -> Option<&Peer> {
        match self {
            PeerProof::Certificate(peer) => Some(peer),
            PeerProof::Account(_) | PeerProof::Mesh => None,
        }
    }
}

/// The other end of a stream.
#[derive(Clone, Debug)]
pub enum Caller {
    /// A process on this machine, with an accepted account.
    Local,
    /// Any caller that the mesh lets through.
    InMesh,
    Proved(Box<Identity>),
}

impl Caller {
    /// Identifies the sender of `request`.
    pub fn of<T>(request: &Request<T>, proof: &PeerProof) -> Result<Caller, Status> {
        let peer = match proof {
            PeerProof::Certificate(peer) => peer,
            PeerProof::Account(accounts) => return Caller::local(request, accounts),
            PeerProof::Mesh => return Ok(Caller::InMesh),
        };
        let certificates = request.peer_certs();
        let own = certificates.as_ref().and_then(|chain| chain.first());
        let own = own.ok_or_else(|| Status::unauthenticated("a certificate is required"))?;
        match peer.admit(own, SUBSCRIBERS) {
            Ok(identity) => Ok(Caller::Proved(Box::new(identity))),
            Err(reason) => Err(Status::permission_denied(reason.to_string())),
        }
    }

    fn local<T>(request: &Request<T>, accounts: &Accounts) -> Result<Caller, Status> {
        let (Some(remote), Some(own)) = (request.remote_addr(), request.local_addr()) else {
            return Err(Status::unauthenticated("the connection has no addresses"));
        };
        accounts.admit(remote, own).map(|()| Caller::Local).map_err(|whose| {
            tracing::warn!(
                %whose,
                "subscription refused: without certificates only this process's account, root and those in ASP_XDS_ACCOUNTS may \
                 subscribe"
            );
            Status::permission_denied(format!(
                "{whose}: give it a certificate (ASP_PEER_*), list its user id in ASP_XDS_ACCOUNTS of the control plane, or set \
                 ASP_PEER_PLAINTEXT=mesh where a mesh encrypts and authenticates"
            ))
        })
    }

    /// Returns the identity in the caller's certificate; `None` without certificates.
    pub fn identity(&self) -> Option<String> {
        match self {
            Caller::Proved(identity) => Some(identity.to_string()),
            Caller::Local | Caller::InMesh => None,
        }
    }

    /// Checks that the caller may have this kind of resource; the error says why not.
    pub fn may_subscribe(&self, kind: Kind) -> Result<(), String> {
        let wanted = match kind {
            Kind::Edge | Kind::Revocations | Kind::Endpoints => Role::Envoy,
            Kind::Gateway => Role::Gateway,
        };
        match self {
            Caller::Proved(identity) if !identity.role.may_act_as(wanted) => {
                Err(format!("{identity} subscribes to resources that are only for the role {wanted}"))
            }
            _ => Ok(()),
        }
    }

    /// Checks that clients' requests may be sent to `address` on behalf of the caller.
    pub async fn may_advertise(&self, address: SocketAddr) -> Result<(), String> {
        let identity = match self {
            Caller::Proved(identity) => identity,
            Caller::InMesh => return Ok(()),
            // Without a certificate, a caller must not lead clients' tokens away from this machine.
            Caller::Local if address.ip().to_canonical().is_loopback() => return Ok(()),
            Caller::Local => {
                return Err(format!(
                    "a subscriber without a certificate advertises {address}, and may advertise loopback addresses only: \
                     give the gateway a certificate (ASP_PEER_*), or set ASP_PEER_PLAINTEXT=mesh where a mesh encrypts and authenticates"
                ));
            }
        };
        if identity.has_address(address.ip()) {
            return Ok(());
        }
        for name in identity.dns_names().take(MAX_NAMES) {
            // A name that does not resolve has no addresses.
            let Ok(Ok(mut found)) = tokio::time::timeout(RESOLVE, tokio::net::lookup_host((name, 0))).await
            else {
                continue;
            };
            if found.any(|resolved| resolved.ip().to_canonical() == address.ip().to_canonical()) {
                return Ok(());
            }
        }
        Err(format!(
            "{identity} advertises {address}, which is neither an IP address in its certificate nor the address of \
             a DNS name in it"
        ))
    }
}

impl std::fmt::Display for Caller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Caller::Local => f.write_str("a process of this machine"),
            Caller::InMesh => f.write_str("in the mesh"),
            Caller::Proved(identity) => identity.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use tonic::Code;
    use tonic::transport::server::TcpConnectInfo;

    use super::*;

    fn from(connection: Option<(SocketAddr, SocketAddr)>) -> Request<()> {
        let mut request = Request::new(());
        if let Some((remote, own)) = connection {
            let info = TcpConnectInfo { local_addr: Some(own), remote_addr: Some(remote) };
            request.extensions_mut().insert(info);
        }
        request
    }

    #[test]
    fn without_certificates_a_process_of_an_account_that_is_taken_may_subscribe_and_nobody_else() {
        let proof = PeerProof::Account(Accounts::new(&[]));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, remote) = listener.accept().unwrap();
        let own = server.local_addr().unwrap();
        assert!(matches!(Caller::of(&from(Some((remote, own))), &proof), Ok(Caller::Local)));
        let elsewhere = SocketAddr::from(([127, 0, 0, 1], 1));
        let refused = Caller::of(&from(Some((elsewhere, own))), &proof).unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied);
        assert!(refused.message().contains("ASP_XDS_ACCOUNTS"), "{refused}");
        assert_eq!(Caller::of(&from(None), &proof).unwrap_err().code(), Code::Unauthenticated);
        drop(client);
    }
}
