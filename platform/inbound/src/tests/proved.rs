//! The listener for processes of the platform: which peers it accepts, and the identity that requests carry.

use asp_peer::{Peer, PeerFiles, Role};
use axum::Extension;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, SanType};

use super::*;

struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Authority {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Authority { pem: params.self_signed(&key).unwrap().pem(), issuer: Issuer::new(params, key) }
    }

    /// Creates certificate and key of a process of this role on this machine.
    fn sign(&self, role: &str) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        let uri = format!("spiffe://example.org/asp/{role}/test");
        params.subject_alt_names =
            vec![SanType::URI(uri.try_into().unwrap()), SanType::IpAddress([127, 0, 0, 1].into())];
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }

    fn gateway(&self) -> Peer {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = directory.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let (certificate, key) = self.sign("gateway");
        let files = PeerFiles {
            certificate: file("cert.pem", &certificate),
            key: file("key.pem", &key),
            authority: file("ca.pem", &self.pem),
            revoked: None,
        };
        // The loaded files stay in use after they are gone.
        Peer::open(files, Role::Gateway).unwrap()
    }

    fn client(&self, own: Option<(String, String)>) -> reqwest::Client {
        let root = reqwest::Certificate::from_pem(self.pem.as_bytes()).unwrap();
        let mut builder = reqwest::Client::builder().tls_certs_only([root]);
        if let Some((certificate, key)) = own {
            let identity = reqwest::Identity::from_pem(format!("{certificate}{key}").as_bytes()).unwrap();
            builder = builder.identity(identity);
        }
        builder.build().unwrap()
    }
}

fn whoami() -> Router {
    let large = || async { vec![b'x'; 1 << 20] };
    let who = |Extension(identity): Extension<asp_peer::Identity>| async move { identity.to_string() };
    Router::new().route("/", get(who)).route("/large", get(large))
}

async fn start(authority: &Authority) -> Server {
    let (listener, address) = bind("127.0.0.1".parse().unwrap(), 0, "test").await.unwrap();
    let stop = CancellationToken::new();
    let roles: &[Role] = &[Role::Envoy];
    let peer = (authority.gateway(), roles);
    let task = tokio::spawn(serve_proved(listener, whoami(), peer, stop.clone(), Duration::from_secs(20)));
    Server { address, stop, task }
}

async fn ask(
    client: &reqwest::Client,
    server: &Server,
    path: &str,
) -> Result<reqwest::Response, reqwest::Error> {
    let sent = client.get(format!("https://{}{path}", server.address)).send();
    tokio::time::timeout(GUARD, sent).await.unwrap()
}

#[tokio::test]
async fn a_request_knows_who_has_proved_itself_on_its_connection() {
    let authority = Authority::new();
    let server = start(&authority).await;
    let envoy = authority.client(Some(authority.sign("envoy")));
    for _ in 0..2 {
        let answer = ask(&envoy, &server, "/").await.unwrap();
        assert_eq!(answer.version(), Version::HTTP_2);
        assert_eq!(answer.text().await.unwrap(), "spiffe://example.org/asp/envoy/test");
    }
    let large = ask(&envoy, &server, "/large").await.unwrap().bytes().await.unwrap();
    assert!(large.len() == 1 << 20 && large.iter().all(|byte| *byte == b'x'));
    server.stop.cancel();
    tokio::time::timeout(GUARD, server.task).await.unwrap().unwrap();
}

#[tokio::test]
async fn nobody_else_is_let_in() {
    let authority = Authority::new();
    let server = start(&authority).await;
    let other = Authority::new();
    let strangers = [
        None,
        Some(authority.sign("gateway")),
        Some(authority.sign("control")),
        Some(authority.sign("runtime")),
        Some(authority.sign("envoys")),
        Some(other.sign("envoy")),
    ];
    for own in strangers {
        assert!(ask(&authority.client(own), &server, "/").await.is_err());
    }
    let plain = reqwest::Client::new().get(format!("http://{}/", server.address)).send();
    assert!(tokio::time::timeout(GUARD, plain).await.unwrap().is_err(), "it speaks no plain HTTP");
    assert!(ask(&authority.client(Some(authority.sign("envoy"))), &server, "/").await.is_ok());
}
