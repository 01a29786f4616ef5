//! Signature checks in pure Rust, for hosts without `verify_signature` and for EdDSA.

use jsonwebtoken::Algorithm;
use p256::ecdsa::signature::Verifier;
use rsa::{BoxedUint, Pkcs1v15Sign};
use sha2::{Digest, Sha256, Sha384, Sha512};

use super::PublicKey;

/// Largest key; the snapshot rejects longer ones.
const MAX_RSA_BITS: usize = 8192;

/// Whether the signature is valid; false for a key that does not fit the algorithm.
pub(super) fn verify(algorithm: Algorithm, key: &PublicKey<'_>, message: &[u8], signature: &[u8]) -> bool {
    let verified = match (algorithm, key) {
        (Algorithm::RS256, PublicKey::Rsa { modulus, exponent }) => {
            rsa(modulus, exponent, Pkcs1v15Sign::new::<Sha256>(), &Sha256::digest(message), signature)
        }
        (Algorithm::RS384, PublicKey::Rsa { modulus, exponent }) => {
            rsa(modulus, exponent, Pkcs1v15Sign::new::<Sha384>(), &Sha384::digest(message), signature)
        }
        (Algorithm::RS512, PublicKey::Rsa { modulus, exponent }) => {
            rsa(modulus, exponent, Pkcs1v15Sign::new::<Sha512>(), &Sha512::digest(message), signature)
        }
        (Algorithm::ES256, PublicKey::Ec(point)) => es256(point, message, signature),
        (Algorithm::ES384, PublicKey::Ec(point)) => es384(point, message, signature),
        (Algorithm::EdDSA, PublicKey::Ed25519(point)) => ed25519(point, message, signature),
        _ => None,
    };
    verified.is_some()
}

fn rsa(modulus: &[u8], exponent: &[u8], scheme: Pkcs1v15Sign, hash: &[u8], signature: &[u8]) -> Option<()> {
    let modulus = BoxedUint::from_be_slice_vartime(modulus);
    let exponent = BoxedUint::from_be_slice_vartime(exponent);
    let bits = rsa::PublicKey::MIN_SIZE..=MAX_RSA_BITS;
    let key = rsa::PublicKey::new_with_size_limits(modulus, exponent, bits).ok()?;
    key.verify(scheme, hash, signature).ok()
}

fn es256(point: &[u8], message: &[u8], signature: &[u8]) -> Option<()> {
    let key = p256::ecdsa::VerifyingKey::from_sec1_bytes(point).ok()?;
    key.verify(message, &p256::ecdsa::Signature::from_slice(signature).ok()?).ok()
}

fn es384(point: &[u8], message: &[u8], signature: &[u8]) -> Option<()> {
    let key = p384::ecdsa::VerifyingKey::from_sec1_bytes(point).ok()?;
    key.verify(message, &p384::ecdsa::Signature::from_slice(signature).ok()?).ok()
}

fn ed25519(point: &[u8], message: &[u8], signature: &[u8]) -> Option<()> {
    let key = ed25519_dalek::VerifyingKey::from_bytes(point.try_into().ok()?).ok()?;
    key.verify(message, &ed25519_dalek::Signature::from_slice(signature).ok()?).ok()
}
