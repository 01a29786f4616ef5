//! Peer certificates: access of subscribers, and the control planes that a gateway accepts.

use std::net::SocketAddr;
use std::time::Duration;

use asp_peer::{Peer, PeerFiles, Role};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use crate::support::{Control, Gateway};

/// A hang guard, not an expectation.
const GUARD: Duration = Duration::from_secs(60);

/// An authority and what it signed, as PEM files.
struct Authority {
    issuer: rcgen::Issuer<'static, rcgen::KeyPair>,
    pem: String,
    directory: tempfile::TempDir,
}

impl Authority {
    fn new() -> Authority {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut parameters = rcgen::CertificateParams::new(Vec::new()).unwrap();
        parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let pem = parameters.self_signed(&key).unwrap().pem();
        Authority {
            issuer: rcgen::Issuer::new(parameters, key),
            pem,
            directory: tempfile::tempdir().unwrap(),
        }
    }

    /// Files of a process with this role and address, which trusts `authority`.
    fn files(&self, role: Role, address: &str, authority: &Authority) -> PeerFiles {
        let key = rcgen::KeyPair::generate().unwrap();
        let names = vec!["localhost".to_owned(), address.to_owned()];
        let names = if role == Role::Gateway { names[1..].to_vec() } else { names };
        let mut parameters = rcgen::CertificateParams::new(names).unwrap();
        let uri = format!("spiffe://example.org/asp/{role}/test").try_into().unwrap();
        parameters.subject_alt_names.push(rcgen::SanType::URI(uri));
        let certificate = parameters.signed_by(&key, &self.issuer).unwrap();
        let file = |name: &str, text: String| {
            let path = self.directory.path().join(format!("{role}-{address}-{name}"));
            std::fs::write(&path, text).unwrap();
            path
        };
        PeerFiles {
            certificate: file("cert.pem", certificate.pem()),
            key: file("key.pem", key.serialize_pem()),
            authority: file("ca.pem", authority.pem.clone()),
            revoked: None,
        }
    }

    fn peer(&self, role: Role, address: &str, authority: &Authority) -> Peer {
        Peer::open(self.files(role, address, authority), role).unwrap()
    }
}

#[tokio::test]
async fn with_peer_certificates_only_the_platforms_own_processes_subscribe() {
    let own = Authority::new();
    let foreign = Authority::new();
    let here = "127.0.0.1";
    let control = Control::start_at("127.0.0.1:0", Some(own.peer(Role::Control, here, &own))).await;
    let url = format!("https://{}", control.address);
    let start = |advertise: &str, peer: Peer| Gateway::start_as(url.clone(), advertise, Some(peer));
    let refused = [
        start("127.0.0.1:4712", foreign.peer(Role::Gateway, here, &own)),
        Gateway::start_as(control.url(), "127.0.0.1:4713", None),
        start("127.0.0.1:4714", own.peer(Role::Envoy, here, &own)),
        start("127.0.0.1:4715", own.peer(Role::Runtime, here, &own)),
        start("127.0.0.1:4716", own.peer(Role::Gateway, "127.0.0.2", &own)),
    ];
    let gateway = start("127.0.0.1:4711", own.peer(Role::Gateway, here, &own));
    let named = start("127.0.0.1:4717", own.peer(Role::Gateway, "localhost", &own));
    gateway.has(1).await;
    named.has(1).await;
    control.serves(&["127.0.0.1:4711", "127.0.0.1:4717"]).await;
    control.publish(2);
    gateway.has(2).await;
    for (number, impostor) in refused.iter().enumerate() {
        assert!(impostor.applied.lock().is_empty(), "{number}");
    }
    control.serves(&["127.0.0.1:4711", "127.0.0.1:4717"]).await;
}

#[tokio::test]
async fn a_gateway_takes_snapshots_of_a_control_plane_only() {
    let own = Authority::new();
    for (role, taken) in [(Role::Gateway, false), (Role::Control, true)] {
        let control = Control::start_at("127.0.0.1:0", Some(own.peer(role, "localhost", &own))).await;
        let (between, mut attempts) = counted(control.address).await;
        let peer = own.peer(Role::Gateway, "127.0.0.1", &own);
        let gateway = Gateway::start_as(format!("https://{between}"), "127.0.0.1:4711", Some(peer));
        if taken {
            gateway.has(1).await;
        } else {
            // The next attempt comes after the one before has failed.
            for _ in 0..3 {
                let attempt = tokio::time::timeout(GUARD, attempts.recv()).await;
                assert_eq!(attempt.expect("another attempt"), Some(()));
            }
            assert!(gateway.applied.lock().is_empty(), "{role}");
        }
    }
}

/// An address that forwards every connection to `target`, and reports each.
async fn counted(target: SocketAddr) -> (SocketAddr, mpsc::UnboundedReceiver<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (tell, told) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let _ = tell.send(());
            tokio::spawn(async move {
                if let Ok(mut server) = TcpStream::connect(target).await {
                    let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
                }
            });
        }
    });
    (address, told)
}

#[tokio::test]
async fn a_renewed_certificate_is_used_from_the_next_connection_on_and_a_broken_one_is_not() {
    let own = Authority::new();
    let next = Authority::new();
    let files = own.files(Role::Control, "localhost", &own);
    let control = Peer::open(files.clone(), Role::Control).unwrap();
    let control = Control::start_at("127.0.0.1:0", Some(control)).await;
    let url = format!("https://{}", control.address);
    let start = |authority: &Authority, port: u16| {
        let peer = authority.peer(Role::Gateway, "127.0.0.1", authority);
        Gateway::start_as(url.clone(), &format!("127.0.0.1:{port}"), Some(peer))
    };
    start(&own, 4711).has(1).await;
    std::fs::write(&files.certificate, "half a fi").unwrap();
    start(&own, 4712).has(1).await;
    let renewed = next.files(Role::Control, "localhost", &next);
    std::fs::copy(&renewed.key, &files.key).unwrap();
    std::fs::copy(&renewed.authority, &files.authority).unwrap();
    std::fs::copy(&renewed.certificate, &files.certificate).unwrap();
    start(&next, 4713).has(1).await;
}
