//! Certificates and keys for the connections of the edge and of the admin API, and those between the platform's own processes.

use std::path::PathBuf;

use asp_command::http_client::ENV_PEER_PLAINTEXT;
use asp_peer::PeerFiles;
use clap::{ArgAction, Args};

use super::source::Checks;
use super::values::{absolute, choice};

pub const ENV_ADMIN_TLS_CERT: &str = "ASP_ADMIN_TLS_CERT";
pub const ENV_PEER_CERT: &str = "ASP_PEER_CERT";

/// Certificate and key (PEM files) of a listener whose clients present no certificate.
#[derive(Clone, Debug)]
pub struct Tls {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// Settings of certificates
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Certificates")]
pub struct TlsArgs {
    /// PEM file: certificate chain of this process for mutual TLS with the others (docs/certificates.md)
    #[arg(long, env = ENV_PEER_CERT)]
    peer_cert: Option<PathBuf>,
    /// PEM file: key of that certificate
    #[arg(long, env = "ASP_PEER_KEY")]
    peer_key: Option<PathBuf>,
    /// PEM file: authority of both sides' certificates
    #[arg(long, env = "ASP_PEER_CA")]
    peer_ca: Option<PathBuf>,
    /// PEM file: revocation list of that authority [default: no certificate is revoked]
    #[arg(long, env = "ASP_PEER_CRL")]
    peer_crl: Option<PathBuf>,
    /// Name in the control plane's certificate [default: the host of `ASP_XDS_URL`]
    #[arg(long, env = "ASP_PEER_NAME")]
    pub peer_name: Option<String>,
    /// `mesh` if a service mesh encrypts and authenticates between the processes; commands may then use plain HTTP too
    #[arg(long, env = ENV_PEER_PLAINTEXT, action = ArgAction::Set, default_value = "off",
        value_parser = choice(&[("mesh", true), ("off", false)]))]
    pub mesh: bool,
    /// PEM file: certificate chain of the admin API, with `ASP_ADMIN_TLS_KEY` (docs/certificates.md) [default: plain HTTP]
    #[arg(long, env = ENV_ADMIN_TLS_CERT, value_parser = absolute)]
    admin_tls_cert: Option<PathBuf>,
    /// PEM file: key of that certificate
    #[arg(long, env = "ASP_ADMIN_TLS_KEY", value_parser = absolute)]
    admin_tls_key: Option<PathBuf>,
    /// PEM file: certificate chain of the edge for `--stack`, with `ASP_TLS_KEY` [default: plain HTTP]
    #[arg(long, env = "ASP_TLS_CERT", value_parser = absolute)]
    tls_cert: Option<PathBuf>,
    /// PEM file: key of that certificate
    #[arg(long, env = "ASP_TLS_KEY", value_parser = absolute)]
    tls_key: Option<PathBuf>,
}

impl TlsArgs {
    pub(super) fn edge(&self, checks: &mut Checks<'_>) -> Option<Tls> {
        pair(checks, ("ASP_TLS_CERT", &self.tls_cert), ("ASP_TLS_KEY", &self.tls_key))
    }

    pub(super) fn admin(&self, checks: &mut Checks<'_>) -> Option<Tls> {
        pair(checks, (ENV_ADMIN_TLS_CERT, &self.admin_tls_cert), ("ASP_ADMIN_TLS_KEY", &self.admin_tls_key))
    }

    pub(super) fn peer(&self, checks: &mut Checks<'_>) -> Option<PeerFiles> {
        let files = [
            (ENV_PEER_CERT, &self.peer_cert),
            ("ASP_PEER_KEY", &self.peer_key),
            ("ASP_PEER_CA", &self.peer_ca),
        ];
        if let [(_, Some(certificate)), (_, Some(key)), (_, Some(authority))] = files {
            return Some(PeerFiles {
                certificate: certificate.clone(),
                key: key.clone(),
                authority: authority.clone(),
                revoked: self.peer_crl.clone(),
            });
        }
        if files.iter().all(|(_, file)| file.is_none()) {
            if self.peer_crl.is_some() {
                checks.fault("ASP_PEER_CRL", "needs ASP_PEER_CERT, ASP_PEER_KEY and ASP_PEER_CA");
            }
            return None;
        }
        for (name, _) in files.iter().filter(|(_, file)| file.is_none()) {
            checks.fault(name, "is required: set certificate, key and authority together");
        }
        None
    }
}

/// Returns a certificate and its key, which are given together or not at all.
fn pair(
    checks: &mut Checks<'_>,
    (certificate_name, certificate): (&str, &Option<PathBuf>),
    (key_name, key): (&str, &Option<PathBuf>),
) -> Option<Tls> {
    match (certificate, key) {
        (Some(certificate), Some(key)) => {
            return Some(Tls { certificate: certificate.clone(), key: key.clone() });
        }
        (Some(_), None) => checks.fault(key_name, format!("is required with {certificate_name}")),
        (None, Some(_)) => checks.fault(certificate_name, format!("is required with {key_name}")),
        (None, None) => {}
    }
    None
}
