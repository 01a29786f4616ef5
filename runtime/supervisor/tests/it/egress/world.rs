//! A network in which the test is the whole internet: names, public, private and link-local addresses, a web server at
//! all of them, and an authority that the machine trusts. Nothing leaves the machine.

use std::fs::{self, File, Permissions};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

/// Names and their addresses.
pub(super) const HOSTS: [(&str, &str); 6] = [
    ("service.test", "1.1.1.1"),
    ("unlisted.test", "1.0.0.1"),
    ("internal.test", "10.9.8.7"),
    ("alias.test", "10.9.8.7"),
    ("secret.test", "10.200.0.1"),
    ("metadata.test", "169.254.169.254"),
];

pub(super) struct World {
    dir: tempfile::TempDir,
    tls: TlsAcceptor,
    /// The `Host` of each request that was served.
    served: Arc<Mutex<Vec<String>>>,
}

impl World {
    pub(super) fn make() -> World {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let mut addresses: Vec<&str> = HOSTS.iter().map(|(_, address)| *address).collect();
        addresses.dedup();
        fs::write(path("addresses"), addresses.join("\n")).unwrap();
        let hosts: Vec<String> = HOSTS.iter().map(|(name, address)| format!("{address} {name}\n")).collect();
        fs::write(path("hosts"), format!("127.0.0.1 localhost\n{}", hosts.concat())).unwrap();
        fs::write(path("world.py"), include_str!("world.py")).unwrap();
        let (authority, tls) = certificates();
        trust(&authority, dir.path());
        World { dir, tls, served: Arc::default() }
    }

    /// Wraps the runtime's command to run within this network.
    pub(super) fn around(&self, runtime: &Command) -> Command {
        let python = std::env::var("ASP_PLUGIN_PYTHON").unwrap();
        let mut command = Command::new("unshare");
        command.args(["--mount", "--net", "--", &python, "-I"]).arg(self.dir.path().join("world.py"));
        command.arg(self.dir.path()).arg(java_home().join("lib/security/cacerts").canonicalize().unwrap());
        command.arg(runtime.get_program());
        command
    }

    /// Serves HTTP and HTTPS at every address in the namespace of the process `runtime`.
    pub(super) async fn serve(&self, runtime: u32) {
        for port in [80, 443] {
            let listener = within(runtime, move || std::net::TcpListener::bind(("0.0.0.0", port)).unwrap());
            listener.set_nonblocking(true).unwrap();
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            let tls = self.tls.clone();
            let served = Arc::clone(&self.served);
            tokio::spawn(async move {
                while let Ok((stream, _)) = listener.accept().await {
                    let tls = tls.clone();
                    let served = Arc::clone(&served);
                    tokio::spawn(async move {
                        if port == 80 {
                            answer(stream, &served).await;
                        } else {
                            match tls.accept(stream).await {
                                Ok(stream) => answer(stream, &served).await,
                                // Captured: a failed test shows why the client was not served.
                                Err(error) => println!("TLS: {error}"),
                            }
                        }
                    });
                }
            });
        }
    }

    pub(super) fn served(&self) -> Vec<String> {
        self.served.lock().unwrap().clone()
    }
}

/// Runs `work` in the network of the process `pid`; sockets opened there stay there.
pub(super) fn within<T: Send + 'static>(pid: u32, work: impl FnOnce() -> T + Send + 'static) -> T {
    let thread = std::thread::spawn(move || {
        let network = File::open(format!("/proc/{pid}/ns/net")).unwrap();
        move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
        work()
    });
    thread.join().unwrap()
}

async fn answer(mut stream: impl AsyncRead + AsyncWrite + Unpin, served: &Mutex<Vec<String>>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") && head.len() < 16 << 10 {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            // A client that only checked whether the port is open.
            Err(_) => return,
        }
    }
    let head = String::from_utf8(head).unwrap();
    let host = head.lines().find_map(|line| line.to_lowercase().strip_prefix("host: ").map(str::to_owned));
    let host = host.unwrap_or_default();
    let body = format!("hello from {host}");
    served.lock().unwrap().push(host);
    let length = body.len();
    let text = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}");
    stream.write_all(text.as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
}

/// Creates an authority (PEM), and a server with a certificate from it for every name.
fn certificates() -> (String, TlsAcceptor) {
    let key = KeyPair::generate().unwrap();
    let mut authority = CertificateParams::new(Vec::new()).unwrap();
    authority.distinguished_name.push(DnType::CommonName, "the test's authority");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    let pem = authority.self_signed(&key).unwrap().pem();
    let server_key = KeyPair::generate().unwrap();
    let names: Vec<String> = HOSTS.iter().map(|(name, _)| (*name).to_owned()).collect();
    let mut server = CertificateParams::new(names).unwrap();
    // Required by Python 3.13 and later.
    server.use_authority_key_identifier_extension = true;
    let certificate = server.signed_by(&server_key, &Issuer::new(authority, &key)).unwrap();
    let private = PrivateKeyDer::try_from(server_key.serialize_der()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], private)
        .unwrap();
    (pem, TlsAcceptor::from(Arc::new(config)))
}

/// Installs the authority as a machine does: for OpenSSL by the hash of its name, and for Java.
fn trust(authority: &str, dir: &Path) {
    let certs = dir.join("certs");
    fs::create_dir_all(certs.join("java")).unwrap();
    let bundle = certs.join("ca-certificates.crt");
    fs::write(&bundle, authority).unwrap();
    let hash = run(Command::new("openssl").args(["x509", "-noout", "-hash", "-in"]).arg(&bundle));
    fs::copy(&bundle, certs.join(format!("{}.0", hash.trim()))).unwrap();
    let store = dir.join("cacerts");
    let mut keytool = Command::new(java_home().join("bin/keytool"));
    // Readable without its password, as Java reads it.
    keytool.args(["-storetype", "JKS"]);
    keytool
        .args(["-importcert", "-noprompt", "-alias", "test", "-storepass", "changeit", "-file"])
        .arg(&bundle);
    run(keytool.arg("-keystore").arg(&store));
    // The path on Debian; it is mounted there.
    fs::write(certs.join("java/cacerts"), "").unwrap();
    for (path, mode) in [(&certs, 0o755), (&certs.join("java"), 0o755), (&store, 0o644)] {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }
}

fn java_home() -> PathBuf {
    let java = Path::new(&std::env::var("ASP_PLUGIN_JAVA").unwrap()).canonicalize().unwrap();
    java.parent().and_then(Path::parent).unwrap().to_path_buf()
}

fn run(command: &mut Command) -> String {
    let ended = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(ended.status.success(), "{command:?}: {}", String::from_utf8_lossy(&ended.stderr));
    String::from_utf8(ended.stdout).unwrap()
}
