//! The messages of Envoy's foreign function `verify_signature`
//! (envoy `source/extensions/common/wasm/ext/verify_signature.proto`).

use jsonwebtoken::Algorithm;
use prost::Message;

use super::{PublicKey, der};

pub(super) const NAME: &str = "verify_signature";

#[derive(Clone, PartialEq, Message)]
struct VerifySignatureArguments {
    #[prost(string, tag = "1")]
    hash_function: String,
    /// SubjectPublicKeyInfo.
    #[prost(bytes = "vec", tag = "2")]
    public_key: Vec<u8>,
    #[prost(bytes = "vec", tag = "3")]
    signature: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    text: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct VerifySignatureResult {
    #[prost(bool, tag = "1")]
    result: bool,
    #[prost(string, tag = "2")]
    error: String,
}

/// Encodes the arguments; `None` if the function does not support the algorithm or the signature cannot be converted.
pub(super) fn arguments(
    algorithm: Algorithm,
    key: &PublicKey<'_>,
    message: &[u8],
    signature: &[u8],
) -> Option<Vec<u8>> {
    let (hash, coordinate) = match algorithm {
        Algorithm::RS256 => ("sha256", None),
        Algorithm::RS384 => ("sha384", None),
        Algorithm::RS512 => ("sha512", None),
        Algorithm::ES256 => ("sha256", Some(32)),
        Algorithm::ES384 => ("sha384", Some(48)),
        _ => return None,
    };
    let (public_key, signature) = match (key, coordinate) {
        (PublicKey::Rsa { modulus, exponent }, None) => (der::rsa_key(modulus, exponent), signature.to_vec()),
        (PublicKey::Ec(point), Some(size)) => (der::ec_key(point)?, der::ecdsa_signature(signature, size)?),
        _ => return None,
    };
    let arguments = VerifySignatureArguments {
        hash_function: hash.to_owned(),
        public_key,
        signature,
        text: message.to_vec(),
    };
    Some(arguments.encode_to_vec())
}

pub(super) fn is_good(answer: &[u8]) -> bool {
    VerifySignatureResult::decode(answer).is_ok_and(|answer| answer.result)
}
