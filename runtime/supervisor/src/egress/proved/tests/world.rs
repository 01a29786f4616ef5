//! A service that records everything that it receives, and the proxy of a worker that calls it.

use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

use super::super::*;
use crate::egress::{ActiveCredentials, CredentialUse, EgressRules, PrivateRoute, Proxy, ProxyContext};

pub(super) const KEY: &str = "hunter2-hunter2-hunter2";
pub(super) const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello";

/// A service on this machine that records what it receives on each connection.
pub(super) struct Service {
    pub(super) port: u16,
    pub(super) tls: bool,
    pub(super) heard: mpsc::UnboundedReceiver<String>,
    pub(super) trust: ServiceTrust,
}

impl Service {
    /// Starts a service that answers each request with `answer`.
    pub(super) async fn start(tls: bool, answer: &'static str) -> Service {
        Service::when(tls, answer, is_whole).await
    }

    /// Starts a service that answers when the received bytes satisfy `is_enough`.
    pub(super) async fn when(tls: bool, answer: &'static str, is_enough: fn(&[u8]) -> bool) -> Service {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (trust, acceptor) = certificates();
        let (sender, heard) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (sender, acceptor) = (sender.clone(), acceptor.clone());
                tokio::spawn(async move {
                    let text = match tls {
                        true => match acceptor.accept(stream).await {
                            Ok(stream) => serve(stream, answer, is_enough).await,
                            Err(_) => "no TLS".to_owned(),
                        },
                        false => serve(stream, answer, is_enough).await,
                    };
                    // Err: the test has ended.
                    let _ = sender.send(text);
                });
            }
        });
        Service { port, tls, heard, trust }
    }

    pub(super) fn origin(&self) -> String {
        let scheme = if self.tls { "https" } else { "http" };
        format!("{scheme}://localhost:{}", self.port)
    }

    /// Waits for the end of the next connection, and returns everything received on it.
    pub(super) async fn heard(&mut self) -> String {
        tokio::time::timeout(Duration::from_secs(20), self.heard.recv()).await.unwrap().unwrap()
    }

    pub(super) fn heard_nothing(&mut self) -> bool {
        self.heard.try_recv().is_err()
    }
}

/// Answers once, and reads to the end of the connection.
async fn serve(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    answer: &str,
    is_enough: fn(&[u8]) -> bool,
) -> String {
    let mut heard = Vec::new();
    let mut answered = false;
    let mut part = [0; 4096];
    while let Ok(length @ 1..) = stream.read(&mut part).await {
        heard.extend_from_slice(&part[..length]);
        if !answered && is_enough(&heard) {
            answered = true;
            stream.write_all(answer.as_bytes()).await.unwrap();
            stream.flush().await.unwrap();
        }
    }
    String::from_utf8_lossy(&heard).into_owned()
}

fn is_whole(heard: &[u8]) -> bool {
    let text = String::from_utf8_lossy(heard).to_lowercase();
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
    match (length, head.contains("transfer-encoding: chunked")) {
        (Some(length), _) => body.len() >= length,
        (None, true) => body.ends_with("0\r\n\r\n"),
        (None, false) => true,
    }
}

pub(super) fn certificates() -> (ServiceTrust, TlsAcceptor) {
    let key = KeyPair::generate().unwrap();
    let mut authority = CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let root = authority.self_signed(&key).unwrap();
    let own = KeyPair::generate().unwrap();
    let leaf = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let leaf = leaf.signed_by(&own, &Issuer::new(authority, &key)).unwrap();
    let provider = Arc::new(aws_lc_rs::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add(root.der().clone()).unwrap();
    let client = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let server = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![leaf.der().clone()], PrivateKeyDer::try_from(own.serialize_der()).unwrap())
        .unwrap();
    let trust = ServiceTrust(Arc::new(OnceLock::from(Some(TlsConnector::from(Arc::new(client))))));
    (trust, TlsAcceptor::from(Arc::new(server)))
}

/// The proxy of one worker, whose call brought a credential for the service.
pub(super) struct Worker {
    pub(super) proxy: Proxy,
    pub(super) credentials: Arc<ActiveCredentials>,
    pub(super) lease: Arc<CredentialLease>,
    pub(super) active: Option<CredentialUse>,
}

impl Worker {
    pub(super) fn of(service: &Service) -> Worker {
        Worker::with(service, &["localhost"], service.trust.clone())
    }

    pub(super) fn with(service: &Service, domains: &[&str], trust: ServiceTrust) -> Worker {
        let domains: Vec<String> = domains.iter().map(|domain| (*domain).to_owned()).collect();
        let routes =
            domains.iter().flat_map(|domain| ["127.0.0.0/8", "::1"].map(|to| format!("{domain}={to}")));
        let private: Vec<PrivateRoute> =
            routes.map(|route| PrivateRoute::parse(&route, vec!["*".into()]).unwrap()).collect();
        Worker::by(EgressRules::new(&domains).with_private(&private), service, trust)
    }

    /// Creates the proxy of a worker without a credential, which may connect to this machine on any port.
    pub(super) fn plain(service: &Service) -> Worker {
        let rules = EgressRules::new(&["localhost".to_owned()]).for_development();
        let mut worker = Worker::by(rules, service, service.trust.clone());
        worker.active = None;
        worker
    }

    fn by(rules: EgressRules, service: &Service, trust: ServiceTrust) -> Worker {
        let shared = ProxyContext { trust, ..ProxyContext::default() };
        let proxy = Proxy::new(rules, "p@1".into(), "w".into(), &shared);
        let credentials = proxy.credentials();
        let lease = Arc::new(CredentialLease::new("crm", &service.origin(), "x-api-key", KEY).unwrap());
        let active = Some(credentials.activate(&lease));
        Worker { proxy, credentials, lease, active }
    }

    /// Returns the answer to what a plugin writes to its proxy.
    pub(super) async fn ask(&self, request: impl AsRef<[u8]>) -> String {
        let (client, stream) = UnixStream::pair().unwrap();
        let (mut read, mut write) = client.into_split();
        let request = request.as_ref().to_vec();
        let writing = tokio::spawn(async move {
            // Err: it was answered before its end.
            let _ = write.write_all(&request).await;
            write
        });
        self.proxy.carry(stream).await;
        let mut answer = Vec::new();
        let _ = read.read_to_end(&mut answer).await;
        drop(writing.await);
        String::from_utf8_lossy(&answer).into_owned()
    }
}

/// Returns the header lines of a request, in lower case.
pub(super) fn head(heard: &str) -> Vec<String> {
    let head = heard.split("\r\n\r\n").next().unwrap();
    head.lines().skip(1).map(str::to_lowercase).collect()
}
