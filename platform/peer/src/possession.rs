//! Proof of possession of a certificate's private key: a signature over a statement of its purpose.
//!
//! Keeps true: the statement cannot be mistaken for a message of TLS, which begins differently, so that no handshake
//! produces such a signature; it names one org, one machine, one certificate and one time, so that it is useless for
//! any other purpose.

use tokio_rustls::rustls::SignatureScheme;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;

/// Accepted clock difference between both sides, including transit time, in seconds.
pub const PROOF_LEEWAY: u64 = 300;
/// Supported signatures, one for each kind of key.
const SCHEMES: [SignatureScheme; 5] = [
    SignatureScheme::ECDSA_NISTP256_SHA256,
    SignatureScheme::ECDSA_NISTP384_SHA384,
    SignatureScheme::ECDSA_NISTP521_SHA512,
    SignatureScheme::ED25519,
    SignatureScheme::RSA_PKCS1_SHA256,
];

/// Returns the text that the holder of the key signs. `fingerprint` is SHA-256 of the certificate's DER in lower-case
/// hex, `at` Unix seconds.
pub fn statement(org: &str, machine: &str, fingerprint: &str, at: u64) -> String {
    format!("asp machine certificate\norg={org}\nmachine={machine}\nsha256={fingerprint}\nat={at}\n")
}

/// Signs the statement with a private key in PEM (PKCS #8, PKCS #1 or SEC 1); the error says what is wrong with the key.
pub fn sign(key_pem: &[u8], statement: &str) -> Result<Vec<u8>, String> {
    let key = PrivateKeyDer::from_pem_slice(key_pem).map_err(|error| error.to_string())?;
    let key = aws_lc_rs::sign::any_supported_type(&key).map_err(|error| error.to_string())?;
    let signer = key.choose_scheme(&SCHEMES).ok_or("no signature is known for this kind of key")?;
    signer.sign(statement.as_bytes()).map_err(|error| error.to_string())
}

/// Certificate of a machine, as received.
#[derive(Clone, Debug)]
pub struct SentCertificate {
    /// The certificate in DER.
    pub der: Vec<u8>,
    /// URIs among its subject alternative names.
    pub uris: Vec<String>,
    key: Vec<u8>,
}

impl SentCertificate {
    /// Reads the first certificate of a PEM text. Its issuer is not verified.
    pub fn from_pem(text: &str) -> Result<SentCertificate, String> {
        let der = CertificateDer::from_pem_slice(text.as_bytes()).map_err(|error| error.to_string())?;
        let (rest, certificate) = X509Certificate::from_der(&der).map_err(|error| error.to_string())?;
        if !rest.is_empty() {
            return Err("the certificate is followed by further bytes".to_owned());
        }
        let names = certificate.subject_alternative_name().map_err(|error| error.to_string())?;
        let names = names.map(|extension| extension.value.general_names.as_slice()).unwrap_or_default();
        let uri = |name: &GeneralName<'_>| match name {
            GeneralName::URI(uri) => Some((*uri).to_owned()),
            _ => None,
        };
        let uris = names.iter().filter_map(uri).collect();
        let key = certificate.public_key().subject_public_key.data.to_vec();
        Ok(SentCertificate { der: der.to_vec(), uris, key })
    }

    /// Whether the certificate's key made the signature, by any algorithm that fits it.
    pub fn has_signed(&self, statement: &str, signature: &[u8]) -> bool {
        let algorithms = aws_lc_rs::default_provider().signature_verification_algorithms.all;
        let is_good = |algorithm: &&dyn tokio_rustls::rustls::pki_types::SignatureVerificationAlgorithm| {
            algorithm.verify_signature(&self.key, statement.as_bytes(), signature).is_ok()
        };
        algorithms.iter().any(is_good)
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{
        CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ED25519,
        PKCS_RSA_SHA256, SanType,
    };

    use super::*;

    /// Invariant I-12.
    #[test]
    fn the_key_of_a_certificate_proves_it_and_no_other_key_or_statement_does() {
        let of = statement("acme", "press", &"ab".repeat(32), 7);
        for algorithm in [&PKCS_ECDSA_P256_SHA256, &PKCS_ECDSA_P384_SHA384, &PKCS_ED25519, &PKCS_RSA_SHA256] {
            let key = KeyPair::generate_for(algorithm).unwrap();
            let mut params = CertificateParams::default();
            params.subject_alt_names = vec![SanType::URI("urn:press".try_into().unwrap())];
            let sent = SentCertificate::from_pem(&params.self_signed(&key).unwrap().pem()).unwrap();
            assert_eq!(sent.uris, ["urn:press"]);
            let signature = sign(key.serialize_pem().as_bytes(), &of).unwrap();
            assert!(sent.has_signed(&of, &signature), "{algorithm:?}");
            let other = KeyPair::generate_for(algorithm).unwrap();
            let foreign = sign(other.serialize_pem().as_bytes(), &of).unwrap();
            assert!(!sent.has_signed(&of, &foreign) && !sent.has_signed(&of, &[]), "{algorithm:?}");
            for changed in [
                statement("globex", "press", &"ab".repeat(32), 7),
                statement("acme", "arm", &"ab".repeat(32), 7),
                statement("acme", "press", &"ac".repeat(32), 7),
                statement("acme", "press", &"ab".repeat(32), 8),
            ] {
                assert!(!sent.has_signed(&changed, &signature), "{changed}");
            }
        }
    }

    #[test]
    fn what_is_no_key_or_certificate_is_refused() {
        assert!(sign(b"x", "x").is_err() && SentCertificate::from_pem("x").is_err());
    }
}
