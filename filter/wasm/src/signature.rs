//! The filter's provider of signature checks for `jsonwebtoken`.
//!
//! Owns the choice of the implementation: Envoy's BoringSSL through the foreign function `verify_signature`, if this
//! Envoy has it (about fifteen times faster than wasm), else pure Rust. EdDSA always uses pure Rust, because the
//! foreign function does not support it. Never signs.

use std::cell::Cell;

use jsonwebtoken::crypto::{CryptoProvider, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{Error, ErrorKind};
use jsonwebtoken::signature::{Error as SignatureError, Verifier};
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey, DecodingKeyKind};

mod der;
mod foreign;
mod pure;

/// Result of calling a foreign function.
pub enum ForeignResult {
    Answer(Vec<u8>),
    /// This Envoy has no such function.
    Absent,
    /// The arguments were not accepted.
    Refused,
}

/// Calls a foreign function of the host.
pub type ForeignFunction = fn(name: &str, arguments: &[u8]) -> ForeignResult;

thread_local! {
    /// `None` if the host does not have the function, and in native tests.
    static FOREIGN: Cell<Option<ForeignFunction>> = const { Cell::new(None) };
}

static PROVIDER: CryptoProvider = CryptoProvider {
    signer_factory: |_, _| Err(Error::from(ErrorKind::UnsupportedAlgorithm)),
    verifier_factory: |algorithm, key| Ok(Box::new(Check { key: key.clone(), algorithm: *algorithm })),
    key_utils: KeyUtils::new_unimplemented(),
};

/// Installs this provider for the whole module; called once when the VM starts.
pub fn install(foreign: ForeignFunction) {
    FOREIGN.set(Some(foreign));
    // A second installation, by a second root context, has no effect.
    let _ = PROVIDER.install_default();
}

/// Public key in the form that its algorithm needs.
pub(crate) enum PublicKey<'a> {
    Rsa {
        modulus: &'a [u8],
        exponent: &'a [u8],
    },
    /// Uncompressed point (SEC 1 section 2.3.3).
    Ec(&'a [u8]),
    Ed25519(&'a [u8]),
}

struct Check {
    key: DecodingKey,
    algorithm: Algorithm,
}

impl JwtVerifier for Check {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}

impl Verifier<Vec<u8>> for Check {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> Result<(), SignatureError> {
        let key = public_key(&self.key).ok_or_else(SignatureError::new)?;
        let by_host = by_host(self.algorithm, &key, message, signature);
        let good = by_host.unwrap_or_else(|| pure::verify(self.algorithm, &key, message, signature));
        if good { Ok(()) } else { Err(SignatureError::new()) }
    }
}

/// Verifies a signature with the host's function; `None` if the host cannot.
fn by_host(algorithm: Algorithm, key: &PublicKey<'_>, message: &[u8], signature: &[u8]) -> Option<bool> {
    let call = FOREIGN.get()?;
    let arguments = foreign::arguments(algorithm, key, message, signature)?;
    match call(foreign::NAME, &arguments) {
        ForeignResult::Answer(answer) => Some(foreign::is_good(&answer)),
        ForeignResult::Refused => Some(false),
        ForeignResult::Absent => {
            FOREIGN.set(None);
            None
        }
    }
}

fn public_key(key: &DecodingKey) -> Option<PublicKey<'_>> {
    match (key.family(), key.kind()) {
        (AlgorithmFamily::Rsa, DecodingKeyKind::RsaModulusExponent { n, e }) => {
            Some(PublicKey::Rsa { modulus: n, exponent: e })
        }
        (AlgorithmFamily::Ec, DecodingKeyKind::SecretOrDer(point)) => Some(PublicKey::Ec(point)),
        (AlgorithmFamily::Ed, DecodingKeyKind::SecretOrDer(point)) => Some(PublicKey::Ed25519(point)),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
