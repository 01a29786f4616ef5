//! Certificates that their authority has taken back: its lists (RFC 5280 section 5), in one PEM file.
//!
//! Keeps true: with a list in use, a certificate of which no list tells anything is refused, so every authority has
//! one. A list that is older than it says it may be stays in force and is told of: what is on it stays refused, and
//! the platform does not stop because a new one is late.

use std::path::Path;
use std::time::{Duration, SystemTime};

use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, CertificateRevocationListDer, UnixTime};
use tokio_rustls::rustls::server::danger::ClientCertVerifier;
use tokio_rustls::rustls::{CertificateError, Error};
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;
use x509_parser::revocation_list::CertificateRevocationList;

use crate::files::{PeerError, fault};

/// What is revoked.
pub(crate) struct Lists {
    pub(crate) der: Vec<CertificateRevocationListDer<'static>>,
    /// When the first of them should have a successor.
    pub(crate) due: Option<SystemTime>,
}

/// Reads the lists of all of `authorities`.
pub(crate) fn read(path: &Path, authorities: &[CertificateDer<'static>]) -> Result<Lists, PeerError> {
    let read = CertificateRevocationListDer::pem_file_iter(path).map_err(|error| fault(path, error))?;
    let der = read.collect::<Result<Vec<_>, _>>().map_err(|error| fault(path, error))?;
    let mut issuers = Vec::new();
    let mut due: Option<SystemTime> = None;
    for list in &der {
        let (_, list) = CertificateRevocationList::from_der(list).map_err(|error| fault(path, error))?;
        issuers.push(list.issuer().as_raw().to_vec());
        let next = list.next_update().and_then(|time| u64::try_from(time.timestamp()).ok());
        let next = next.map(|seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
        due = [due, next].into_iter().flatten().min();
    }
    for authority in authorities {
        let (_, authority) = X509Certificate::from_der(authority).map_err(|error| fault(path, error))?;
        if !issuers.iter().any(|issuer| issuer == authority.subject().as_raw()) {
            let name = authority.subject();
            return Err(fault(path, format_args!("no list (X509 CRL) of the authority {name} in it")));
        }
    }
    Ok(Lists { der, due })
}

/// Whether the lists can judge this process's own `chain`: ones that are signed by another key, or leave out an
/// authority between, would refuse everybody.
pub(crate) fn judge(
    path: &Path,
    verifier: &dyn ClientCertVerifier,
    chain: &[CertificateDer<'static>],
) -> Result<(), PeerError> {
    let Some((own, between)) = chain.split_first() else { return Ok(()) };
    match verifier.verify_client_cert(own, between, UnixTime::now()) {
        Err(Error::InvalidCertificate(CertificateError::Revoked)) => {
            tracing::warn!(
                list = %path.display(),
                "this process's own certificate is revoked and the others refuse it: give it a new one"
            );
            Ok(())
        }
        Err(Error::InvalidCertRevocationList(error)) => {
            Err(fault(path, format_args!("it cannot be judged by: {error:?}")))
        }
        Err(Error::InvalidCertificate(CertificateError::UnknownRevocationStatus)) => {
            Err(fault(path, "no list in it of the authority that has signed this process's certificate"))
        }
        // Others judge this process by themselves.
        _ => Ok(()),
    }
}
