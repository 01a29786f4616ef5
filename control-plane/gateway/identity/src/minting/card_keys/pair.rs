//! One key that signs agent cards, on P-256 or Ed25519, identified by the thumbprint of its public half.
//!
//! Keeps true: the private half is never printed, and leaves only sealed (`card_keys.rs`); a key has one algorithm.

use asp_store::published_keys::{ED25519_CARDS, P256_CARDS};
use asp_store::records::OwnerId;
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::minting::keys::{KeyError, PublicKey, SigningKey, coordinate};

/// Algorithm of a card's signature (A2A 1.0, section 8.4; RFC 7518 section 3.4, RFC 8037 section 3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CardAlgorithm {
    Es256,
    EdDsa,
}

impl CardAlgorithm {
    pub(super) const ALL: [CardAlgorithm; 2] = [CardAlgorithm::Es256, CardAlgorithm::EdDsa];

    /// Returns the owner of the algorithm's keys in the store.
    pub(super) const fn owner(self) -> OwnerId {
        match self {
            CardAlgorithm::Es256 => P256_CARDS,
            CardAlgorithm::EdDsa => ED25519_CARDS,
        }
    }
}

/// Public half of a key that signs cards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CardPublicKey {
    algorithm: CardAlgorithm,
    kid: String,
    jwk: Value,
}

/// Private key that signs cards, with its public half.
pub struct CardSigningKey {
    pair: Pair,
    public: CardPublicKey,
}

enum Pair {
    P256(SigningKey),
    Ed25519(Ed25519KeyPair),
}

impl CardPublicKey {
    /// Reads a JWK; members that are not needed are ignored.
    pub(super) fn from_jwk(jwk: &Value) -> Result<CardPublicKey, KeyError> {
        let text = |name: &str| jwk.get(name).and_then(Value::as_str).unwrap_or_default();
        match (text("kty"), text("crv")) {
            ("OKP", "Ed25519") => Ok(CardPublicKey::of_ed25519(&coordinate(text("x"))?)),
            _ => Ok(CardPublicKey::of_p256(&PublicKey::from_jwk(jwk)?)),
        }
    }

    fn of_p256(key: &PublicKey) -> CardPublicKey {
        CardPublicKey { algorithm: CardAlgorithm::Es256, kid: key.kid().to_owned(), jwk: key.jwk() }
    }

    fn of_ed25519(key: &[u8]) -> CardPublicKey {
        let x = URL_SAFE_NO_PAD.encode(key);
        // RFC 8037 section 2: the thumbprint covers the required members in lexical order.
        let thumbprint = Sha256::digest(format!(r#"{{"crv":"Ed25519","kty":"OKP","x":"{x}"}}"#));
        let kid = URL_SAFE_NO_PAD.encode(thumbprint);
        let jwk = json!({"kty": "OKP", "crv": "Ed25519", "x": x, "kid": kid, "alg": "EdDSA", "use": "sig"});
        CardPublicKey { algorithm: CardAlgorithm::EdDsa, kid, jwk }
    }

    pub fn algorithm(&self) -> CardAlgorithm {
        self.algorithm
    }

    pub fn kid(&self) -> &str {
        &self.kid
    }

    /// Returns a JWK with `kid`, `alg` and `use`.
    pub fn jwk(&self) -> Value {
        self.jwk.clone()
    }
}

impl CardSigningKey {
    pub(super) fn generate(algorithm: CardAlgorithm) -> Result<CardSigningKey, KeyError> {
        Ok(CardSigningKey::of(match algorithm {
            CardAlgorithm::Es256 => Pair::P256(SigningKey::generate()?),
            CardAlgorithm::EdDsa => {
                Pair::Ed25519(Ed25519KeyPair::generate().map_err(|_| KeyError::Generate)?)
            }
        }))
    }

    /// Reads PKCS #8 DER.
    pub(super) fn from_pkcs8(algorithm: CardAlgorithm, der: &[u8]) -> Result<CardSigningKey, KeyError> {
        Ok(CardSigningKey::of(match algorithm {
            CardAlgorithm::Es256 => Pair::P256(SigningKey::from_pkcs8(der)?),
            CardAlgorithm::EdDsa => {
                Pair::Ed25519(Ed25519KeyPair::from_pkcs8(der).map_err(|_| KeyError::Pkcs8)?)
            }
        }))
    }

    fn of(pair: Pair) -> CardSigningKey {
        let public = match &pair {
            Pair::P256(key) => CardPublicKey::of_p256(key.public()),
            Pair::Ed25519(key) => CardPublicKey::of_ed25519(key.public_key().as_ref()),
        };
        CardSigningKey { pair, public }
    }

    pub fn public(&self) -> &CardPublicKey {
        &self.public
    }

    /// Returns the signature of a message, 64 bytes in both algorithms.
    pub fn signature(&self, message: &[u8]) -> Result<Vec<u8>, KeyError> {
        match &self.pair {
            Pair::P256(key) => key.signature(message),
            Pair::Ed25519(key) => Ok(key.sign(message).as_ref().to_vec()),
        }
    }

    /// Returns the key as PKCS #8 DER.
    pub(super) fn to_pkcs8(&self) -> Result<Vec<u8>, KeyError> {
        match &self.pair {
            Pair::P256(key) => key.to_pkcs8(),
            Pair::Ed25519(key) => {
                let der = key.to_pkcs8v1().map_err(|_| KeyError::Pkcs8)?;
                Ok(der.as_ref().to_vec())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use ed25519_dalek::VerifyingKey;
    use p256::ecdsa::signature::Verifier;

    use super::*;

    /// Verifies with other libraries than the one that signs.
    fn verifies(jwk: &Value, message: &[u8], signature: &[u8]) -> bool {
        let bytes = |name: &str| URL_SAFE_NO_PAD.decode(jwk[name].as_str().unwrap()).unwrap();
        match jwk["alg"].as_str() {
            Some("ES256") => {
                let point = [vec![4], bytes("x"), bytes("y")].concat();
                let key = p256::ecdsa::VerifyingKey::from_sec1_bytes(&point).unwrap();
                key.verify(message, &p256::ecdsa::Signature::from_slice(signature).unwrap()).is_ok()
            }
            Some("EdDSA") => {
                let key = VerifyingKey::from_bytes(&bytes("x").try_into().unwrap()).unwrap();
                key.verify(message, &ed25519_dalek::Signature::from_slice(signature).unwrap()).is_ok()
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn signatures_verify_with_the_published_half_in_other_libraries() {
        for (algorithm, name) in [(CardAlgorithm::Es256, "ES256"), (CardAlgorithm::EdDsa, "EdDSA")] {
            let key = CardSigningKey::generate(algorithm).unwrap();
            let jwk = key.public().jwk();
            assert_eq!((&jwk["alg"], &jwk["kid"]), (&json!(name), &json!(key.public().kid())));
            let signature = key.signature("Größe".as_bytes()).unwrap();
            assert_eq!(signature.len(), 64, "{name}");
            assert!(verifies(&jwk, "Größe".as_bytes(), &signature), "{name}");
            assert!(!verifies(&jwk, "Grösse".as_bytes(), &signature), "{name}");
        }
    }

    #[test]
    fn a_key_is_the_same_after_it_was_written_and_read_and_never_of_another_algorithm() {
        let keys = CardAlgorithm::ALL.map(|algorithm| CardSigningKey::generate(algorithm).unwrap());
        for key in &keys {
            let (public, der) = (key.public(), key.to_pkcs8().unwrap());
            assert_eq!(CardPublicKey::from_jwk(&public.jwk()).unwrap(), *public);
            let read = CardSigningKey::from_pkcs8(public.algorithm(), &der).unwrap();
            assert_eq!(read.public(), public);
            for other in CardAlgorithm::ALL.into_iter().filter(|other| *other != public.algorithm()) {
                assert!(CardSigningKey::from_pkcs8(other, &der).is_err());
            }
        }
    }

    #[test]
    fn a_key_of_ed25519_is_known_by_its_thumbprint() {
        // RFC 8037, appendix A.2 and A.3.
        let jwk = json!({"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"});
        let key = CardPublicKey::from_jwk(&jwk).unwrap();
        assert_eq!(key.kid(), "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k");
        for (member, value) in [("crv", "X25519"), ("x", "AAAA"), ("kty", "EC")] {
            let mut bad = jwk.clone();
            bad[member] = value.into();
            assert!(CardPublicKey::from_jwk(&bad).is_err(), "{member}");
        }
    }
}
