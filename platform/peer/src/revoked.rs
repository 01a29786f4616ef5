//! Certificate revocation lists (RFC 5280 section 5) of the authorities, in one PEM file.
//!
//! Keeps true: if lists are in use, a certificate that no list covers is refused, so every authority needs one. An
//! overdue list stays in force and is reported: its entries stay refused, and the platform does not stop because a new
//! list is late.

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

/// Revocation lists of all authorities.
pub(crate) struct RevocationLists {
    pub(crate) der: Vec<CertificateRevocationListDer<'static>>,
    /// Earliest time at which one of them is due for replacement.
    pub(crate) due: Option<SystemTime>,
}

/// Reads the lists; each of `authorities` must have one.
pub(crate) fn read(
    path: &Path,
    authorities: &[CertificateDer<'static>],
) -> Result<RevocationLists, PeerError> {
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
            return Err(fault(path, format_args!("it has no list (X509 CRL) of the authority {name}")));
        }
    }
    Ok(RevocationLists { der, due })
}

/// Checks that the lists can verify this process's own `chain`: lists signed by another key, or without an intermediate
/// authority, would refuse everybody.
pub(crate) fn check_chain(
    path: &Path,
    verifier: &dyn ClientCertVerifier,
    chain: &[CertificateDer<'static>],
) -> Result<(), PeerError> {
    let Some((own, between)) = chain.split_first() else { return Ok(()) };
    match verifier.verify_client_cert(own, between, UnixTime::now()) {
        Err(Error::InvalidCertificate(CertificateError::Revoked)) => {
            tracing::warn!(
                list = %path.display(),
                "this process's own certificate is revoked and other processes refuse it; replace it"
            );
            Ok(())
        }
        Err(Error::InvalidCertRevocationList(error)) => {
            Err(fault(path, format_args!("certificates cannot be verified with it: {error:?}")))
        }
        Err(Error::InvalidCertificate(CertificateError::UnknownRevocationStatus)) => {
            Err(fault(path, "it has no list of the authority that signed this process's certificate"))
        }
        // Other processes verify this process themselves.
        _ => Ok(()),
    }
}
