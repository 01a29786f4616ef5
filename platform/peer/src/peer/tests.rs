//! Connections between two processes: the certificates that are presented and accepted, from the first files to renewed
//! ones.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use http::Uri;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, IsCa, Issuer, KeyIdMethod,
    KeyPair, KeyUsagePurpose, RevokedCertParams, SanType, SerialNumber, date_time_ymd,
};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::rustls::HandshakeKind;
use tokio_stream::StreamExt;
use tower::Service;

use super::*;
use crate::{connector, incoming};

/// A year in the past, and one in the future.
const PAST: i32 = 2021;
const FUTURE: i32 = 2999;

struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new(name: &str) -> Authority {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        Authority { pem: params.self_signed(&key).unwrap().pem(), issuer: Issuer::new(params, key) }
    }

    /// Writes certificate, key and authority of a process into `directory`.
    fn write(&self, directory: &Path, role: Role, serial: u64, until: i32) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        let uri = format!("spiffe://example.org/asp/{role}/test");
        params.subject_alt_names =
            vec![SanType::URI(uri.try_into().unwrap()), SanType::IpAddress([127, 0, 0, 1].into())];
        params.serial_number = Some(SerialNumber::from(serial));
        params.not_after = date_time_ymd(until, 1, 1);
        fs::write(directory.join("cert.pem"), params.signed_by(&key, &self.issuer).unwrap().pem()).unwrap();
        fs::write(directory.join("key.pem"), key.serialize_pem()).unwrap();
        fs::write(directory.join("ca.pem"), &self.pem).unwrap();
    }

    fn list(&self, revoked: &[u64], until: i32) -> String {
        let revoked = revoked.iter().map(|serial| RevokedCertParams {
            serial_number: SerialNumber::from(*serial),
            revocation_time: date_time_ymd(PAST, 1, 1),
            reason_code: None,
            invalidity_date: None,
        });
        let params = CertificateRevocationListParams {
            this_update: date_time_ymd(PAST - 1, 1, 1),
            next_update: date_time_ymd(until, 1, 1),
            crl_number: SerialNumber::from(1_u64),
            issuing_distribution_point: None,
            revoked_certs: revoked.collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        params.signed_by(&self.issuer).unwrap().pem().unwrap()
    }
}

fn files(directory: &Path) -> PeerFiles {
    let file = |name: &str| directory.join(name);
    let revoked = Some(file("crl.pem")).filter(|path| path.exists());
    PeerFiles { certificate: file("cert.pem"), key: file("key.pem"), authority: file("ca.pem"), revoked }
}

/// Creates a process with files of its own, and with a revocation list if one is given.
struct Process {
    directory: TempDir,
    peer: Peer,
}

impl Process {
    fn of(authority: &Authority, role: Role, serial: u64, list: Option<&str>) -> Process {
        Process::until(authority, role, serial, FUTURE, list)
    }

    fn until(authority: &Authority, role: Role, serial: u64, until: i32, list: Option<&str>) -> Process {
        let directory = tempfile::tempdir().unwrap();
        authority.write(directory.path(), role, serial, until);
        if let Some(list) = list {
            fs::write(directory.path().join("crl.pem"), list).unwrap();
        }
        let peer = Peer::open(files(directory.path()), role).unwrap();
        Process { directory, peer }
    }

    fn replace(&self, name: &str, text: &str) {
        fs::write(self.directory.path().join(name), text).unwrap();
    }

    fn certificate(&self) -> Vec<u8> {
        shown(&self.directory.path().join("cert.pem"))
    }
}

fn shown(path: &Path) -> Vec<u8> {
    certificates(path).unwrap()[0].to_vec()
}

/// Connects a gateway to a control plane; returns the certificate that it received, or the reason of the failure.
async fn meet(control: &Peer, gateway: &Peer) -> Result<Vec<u8>, String> {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let uri: Uri = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    let mut taken = incoming(listener, control.clone(), &[Role::Gateway]);
    let greet = async {
        let mut stream = taken.next().await.unwrap().unwrap();
        stream.write_all(b"!").await.unwrap();
        stream.flush().await.unwrap();
        std::future::pending::<()>().await;
    };
    let come = async {
        let stream = connector(gateway.clone(), Role::Control, None).call(uri).await;
        let mut stream = stream.map_err(|error| format!("{error:?}"))?.into_inner();
        stream.read_exact(&mut [0]).await.map_err(|error| format!("{error:?}"))?;
        let session = stream.get_ref().1;
        assert_eq!(session.handshake_kind(), Some(HandshakeKind::Full), "certificates are judged anew");
        Ok(session.peer_certificates().unwrap()[0].to_vec())
    };
    tokio::select! {
        came = come => came,
        () = greet => unreachable!(),
    }
}

#[tokio::test]
async fn each_connection_is_judged_anew() {
    let authority = Authority::new("one");
    let control = Process::of(&authority, Role::Control, 1, None);
    let gateway = Process::of(&authority, Role::Gateway, 2, None);
    for _ in 0..3 {
        assert_eq!(meet(&control.peer, &gateway.peer).await, Ok(control.certificate()));
    }
}

#[tokio::test]
async fn expired_foreign_and_misplaced_certificates_are_refused_on_either_side() {
    let authority = Authority::new("one");
    let other = Authority::new("one");
    let control = Process::of(&authority, Role::Control, 1, None);
    let gateway = Process::of(&authority, Role::Gateway, 2, None);
    let expired = Process::until(&authority, Role::Gateway, 3, PAST, None);
    let foreign = Process::of(&other, Role::Gateway, 4, None);
    foreign.replace("ca.pem", &authority.pem);
    let envoy = Process::of(&authority, Role::Envoy, 5, None);
    for refused in [&expired, &foreign, &envoy] {
        assert!(meet(&control.peer, &refused.peer).await.is_err());
    }
    let expired = Process::until(&authority, Role::Control, 6, PAST, None);
    let foreign = Process::of(&other, Role::Control, 7, None);
    foreign.replace("ca.pem", &authority.pem);
    for refused in [&expired, &foreign, &envoy] {
        assert!(meet(&refused.peer, &gateway.peer).await.is_err());
    }
    assert!(meet(&control.peer, &gateway.peer).await.is_ok());
}

#[tokio::test]
async fn what_is_mounted_anew_behind_a_link_is_shown_from_the_next_connection_on() {
    let authority = Authority::new("one");
    let mounted = tempfile::tempdir().unwrap();
    let version = |name: &str, serial: u64| {
        let version = mounted.path().join(name);
        fs::create_dir(&version).unwrap();
        authority.write(&version, Role::Control, serial, FUTURE);
        shown(&version.join("cert.pem"))
    };
    let first = version("..1", 1);
    symlink("..1", mounted.path().join("..data")).unwrap();
    for name in ["cert.pem", "key.pem", "ca.pem"] {
        symlink(format!("..data/{name}"), mounted.path().join(name)).unwrap();
    }
    let control = Peer::open(files(mounted.path()), Role::Control).unwrap();
    let gateway = Process::of(&authority, Role::Gateway, 2, None);
    assert_eq!(meet(&control, &gateway.peer).await, Ok(first));
    let second = version("..2", 3);
    symlink("..2", mounted.path().join("..new")).unwrap();
    fs::rename(mounted.path().join("..new"), mounted.path().join("..data")).unwrap();
    assert_eq!(meet(&control, &gateway.peer).await, Ok(second));
}

#[tokio::test]
async fn files_that_do_not_fit_leave_the_previous_ones_in_use() {
    let authority = Authority::new("one");
    let control = Process::of(&authority, Role::Control, 1, None);
    let gateway = Process::of(&authority, Role::Gateway, 2, None);
    let (first, next) = (control.certificate(), tempfile::tempdir().unwrap());
    authority.write(next.path(), Role::Control, 3, FUTURE);
    let read = |name: &str| fs::read_to_string(next.path().join(name)).unwrap();
    let key = fs::read_to_string(control.directory.path().join("key.pem")).unwrap();
    // Truncated, with another key, with another role, missing.
    control.replace("cert.pem", &read("cert.pem")[..200]);
    assert_eq!(meet(&control.peer, &gateway.peer).await, Ok(first.clone()));
    control.replace("cert.pem", &read("cert.pem"));
    assert_eq!(meet(&control.peer, &gateway.peer).await, Ok(first.clone()));
    authority.write(control.directory.path(), Role::Runtime, 4, FUTURE);
    assert_eq!(meet(&control.peer, &gateway.peer).await, Ok(first.clone()));
    fs::remove_file(control.directory.path().join("key.pem")).unwrap();
    assert_eq!(meet(&control.peer, &gateway.peer).await, Ok(first));
    control.replace("cert.pem", &read("cert.pem"));
    control.replace("key.pem", &key);
    control.replace("key.pem", &read("key.pem"));
    assert_eq!(meet(&control.peer, &gateway.peer).await, Ok(control.certificate()));
}

#[tokio::test]
async fn a_revoked_certificate_is_refused_on_either_side_as_soon_as_the_list_says_so() {
    let authority = Authority::new("one");
    let nobody = authority.list(&[], FUTURE);
    let control = Process::of(&authority, Role::Control, 1, Some(&nobody));
    let gateway = Process::of(&authority, Role::Gateway, 2, Some(&nobody));
    assert!(meet(&control.peer, &gateway.peer).await.is_ok());
    control.replace("crl.pem", &authority.list(&[2], FUTURE));
    let refused = meet(&control.peer, &gateway.peer).await.unwrap_err();
    assert!(refused.contains("CertificateRevoked"), "{refused}");
    let other = Process::of(&authority, Role::Gateway, 3, None);
    assert!(meet(&control.peer, &other.peer).await.is_ok());
    control.replace("crl.pem", &nobody);
    gateway.replace("crl.pem", &authority.list(&[1], FUTURE));
    let refused = meet(&control.peer, &gateway.peer).await.unwrap_err();
    assert!(refused.contains("Revoked"), "{refused}");
    gateway.replace("crl.pem", &nobody);
    assert!(meet(&control.peer, &gateway.peer).await.is_ok());
}

#[tokio::test]
async fn a_list_that_is_late_broken_or_gone_leaves_what_is_revoked_revoked() {
    let authority = Authority::new("one");
    let control = Process::of(&authority, Role::Control, 1, Some(&authority.list(&[2], PAST)));
    let revoked = Process::of(&authority, Role::Gateway, 2, None);
    let gateway = Process::of(&authority, Role::Gateway, 3, None);
    let list = control.directory.path().join("crl.pem");
    let foreign = Authority::new("another").list(&[], FUTURE);
    // The same name with another key: its signature is wrong.
    let forged = Authority::new("one").list(&[], FUTURE);
    for broken in [None, Some("half a li"), Some(foreign.as_str()), Some(forged.as_str())] {
        if let Some(broken) = broken {
            fs::write(&list, broken).unwrap();
        }
        assert!(meet(&control.peer, &revoked.peer).await.is_err(), "{broken:?}");
        assert!(meet(&control.peer, &gateway.peer).await.is_ok(), "{broken:?}");
    }
    fs::remove_file(&list).unwrap();
    assert!(meet(&control.peer, &revoked.peer).await.is_err());
    // A list that revokes the process's own certificate is still accepted.
    fs::write(&list, authority.list(&[1, 3], FUTURE)).unwrap();
    assert!(meet(&control.peer, &gateway.peer).await.is_err());
    assert!(meet(&control.peer, &revoked.peer).await.is_ok());
}

#[tokio::test]
async fn an_open_connection_ends_when_its_certificate_is_revoked_and_no_other() {
    let authority = Authority::new("one");
    let control = Process::of(&authority, Role::Control, 1, Some(&authority.list(&[], FUTURE)));
    let [stolen, genuine] = [2, 3].map(|serial| Process::of(&authority, Role::Gateway, serial, None));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let uri: Uri = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    let mut taken = incoming(listener, control.peer.clone(), &[Role::Gateway]);
    let mut open = Vec::new();
    for gateway in [&stolen, &genuine] {
        let came = connector(gateway.peer.clone(), Role::Control, None).call(uri.clone()).await.unwrap();
        open.push((came.into_inner(), taken.next().await.unwrap().unwrap()));
    }
    // From here on, only the next check of the files remains.
    tokio::time::pause();
    control.replace("crl.pem", &authority.list(&[2], FUTURE));
    let (mut client, mut server) = open.remove(0);
    let error = server.read_u8().await.unwrap_err();
    assert!(error.to_string().contains("revoked"), "{error}");
    drop(server);
    assert!(client.read_u8().await.is_err());
    let (mut client, mut server) = open.remove(0);
    client.write_all(b"!").await.unwrap();
    client.flush().await.unwrap();
    assert_eq!(server.read_u8().await.unwrap(), b'!');
}

#[test]
fn a_list_must_be_of_every_authority_from_the_start() {
    let (one, another) = (Authority::new("one"), Authority::new("another"));
    let directory = tempfile::tempdir().unwrap();
    one.write(directory.path(), Role::Control, 1, FUTURE);
    let list = directory.path().join("crl.pem");
    let forged = Authority::new("one").list(&[], FUTURE);
    for (text, said) in [
        ("", "no list (X509 CRL) of the authority CN=one"),
        (another.list(&[], FUTURE).as_str(), "no list (X509 CRL) of the authority CN=one"),
        (forged.as_str(), "BadSignature"),
    ] {
        fs::write(&list, text).unwrap();
        let error = Peer::open(files(directory.path()), Role::Control).unwrap_err().to_string();
        assert!(error.contains(said) && error.contains("crl.pem"), "{error}");
    }
    // While one authority replaces another, both have lists.
    fs::write(directory.path().join("ca.pem"), format!("{}{}", one.pem, another.pem)).unwrap();
    fs::write(&list, one.list(&[], FUTURE)).unwrap();
    let error = Peer::open(files(directory.path()), Role::Control).unwrap_err().to_string();
    assert!(error.contains("CN=another"), "{error}");
    fs::write(&list, format!("{}{}", one.list(&[], FUTURE), another.list(&[], FUTURE))).unwrap();
    assert!(Peer::open(files(directory.path()), Role::Control).is_ok());
}
