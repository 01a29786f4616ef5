//! One ES256 key, identified by the thumbprint of its public half.
//!
//! Keeps true: the private half is never printed, and leaves only sealed (`card_keys.rs`).

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// Size of a coordinate and of a private key on P-256, in bytes.
const COORDINATE: usize = 32;

/// The reason why a key cannot be generated, read or used.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error("not a private key on P-256 in PKCS #8 form")]
    Pkcs8,
    #[error("not an EC key on P-256 as a JWK (RFC 7518 section 6.2): {0}")]
    Jwk(&'static str),
    #[error("the key cannot be generated")]
    Generate,
    #[error("signing failed")]
    Sign,
}

/// The public half of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicKey {
    kid: String,
    x: String,
    y: String,
}

/// A private key and its public half.
pub struct SigningKey {
    pair: EcdsaKeyPair,
    public: PublicKey,
    random: SystemRandom,
}

impl std::fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SigningKey({}, ***)", self.public.kid)
    }
}

impl PublicKey {
    /// Reads a JWK; members that are not needed are ignored.
    pub fn from_jwk(jwk: &Value) -> Result<PublicKey, KeyError> {
        let text = |name: &str| jwk.get(name).and_then(Value::as_str).unwrap_or_default();
        if (text("kty"), text("crv")) != ("EC", "P-256") {
            return Err(KeyError::Jwk("kty must be EC and crv P-256"));
        }
        coordinate(text("x"))?;
        coordinate(text("y"))?;
        Ok(PublicKey::of(text("x"), text("y")))
    }

    fn of(x: &str, y: &str) -> PublicKey {
        // RFC 7638: the thumbprint covers the required members in lexical order.
        let thumbprint = Sha256::digest(format!(r#"{{"crv":"P-256","kty":"EC","x":"{x}","y":"{y}"}}"#));
        PublicKey { kid: URL_SAFE_NO_PAD.encode(thumbprint), x: x.to_owned(), y: y.to_owned() }
    }

    pub fn kid(&self) -> &str {
        &self.kid
    }

    /// Returns a JWK with `kid`, `alg` and `use`.
    pub fn jwk(&self) -> Value {
        json!({
            "kty": "EC", "crv": "P-256", "x": self.x, "y": self.y,
            "kid": self.kid, "alg": "ES256", "use": "sig",
        })
    }
}

impl SigningKey {
    pub fn generate() -> Result<SigningKey, KeyError> {
        let pair =
            EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).map_err(|_| KeyError::Generate)?;
        SigningKey::of(pair)
    }

    /// Reads PKCS #8 DER.
    pub fn from_pkcs8(der: &[u8]) -> Result<SigningKey, KeyError> {
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, der);
        SigningKey::of(pair.map_err(|_| KeyError::Pkcs8)?)
    }

    /// Reads a private JWK.
    pub fn from_jwk(jwk: &Value) -> Result<SigningKey, KeyError> {
        let public = PublicKey::from_jwk(jwk)?;
        let private = jwk.get("d").and_then(Value::as_str).ok_or(KeyError::Jwk("d is missing"))?;
        let private = coordinate(private)?;
        // SEC 1 section 2.3.3: 0x04, then x and y.
        let point = [vec![4], coordinate(&public.x)?, coordinate(&public.y)?].concat();
        let pair =
            EcdsaKeyPair::from_private_key_and_public_key(&ECDSA_P256_SHA256_FIXED_SIGNING, &private, &point);
        SigningKey::of(pair.map_err(|_| KeyError::Jwk("the public key does not match the private key"))?)
    }

    pub fn public(&self) -> &PublicKey {
        &self.public
    }

    /// Returns a compact JWS over the two JSON texts (RFC 7515 section 7.1).
    pub(super) fn sign(&self, header: &[u8], claims: &[u8]) -> Result<String, KeyError> {
        let mut token = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims));
        let signature = self.signature(token.as_bytes())?;
        token.push('.');
        token.push_str(&URL_SAFE_NO_PAD.encode(signature));
        Ok(token)
    }

    /// Returns the signature of a message: r and s, 64 bytes (RFC 7518 section 3.4).
    pub fn signature(&self, message: &[u8]) -> Result<Vec<u8>, KeyError> {
        let signature = self.pair.sign(&self.random, message).map_err(|_| KeyError::Sign)?;
        Ok(signature.as_ref().to_vec())
    }

    /// Returns the key as PKCS #8 DER.
    pub(super) fn to_pkcs8(&self) -> Result<Vec<u8>, KeyError> {
        let der = self.pair.to_pkcs8v1().map_err(|_| KeyError::Pkcs8)?;
        Ok(der.as_ref().to_vec())
    }

    fn of(pair: EcdsaKeyPair) -> Result<SigningKey, KeyError> {
        let point = pair.public_key().as_ref();
        let (Some(x), Some(y)) = (point.get(1..=COORDINATE), point.get(1 + COORDINATE..)) else {
            return Err(KeyError::Generate);
        };
        let public = PublicKey::of(&URL_SAFE_NO_PAD.encode(x), &URL_SAFE_NO_PAD.encode(y));
        Ok(SigningKey { pair, public, random: SystemRandom::new() })
    }
}

pub(super) fn coordinate(text: &str) -> Result<Vec<u8>, KeyError> {
    let bytes = URL_SAFE_NO_PAD.decode(text).ok().filter(|bytes| bytes.len() == COORDINATE);
    bytes.ok_or(KeyError::Jwk("a coordinate is not 32 bytes in base64url"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_public_half_is_the_same_after_it_was_written_and_read() {
        let key = SigningKey::generate().unwrap();
        assert_eq!(PublicKey::from_jwk(&key.public().jwk()).unwrap(), *key.public());
        assert!(!format!("{key:?}").contains(&key.public().x));
    }

    #[test]
    fn a_jwk_is_known_by_its_thumbprint_and_a_bad_one_is_refused() {
        // The key of RFC 7515 appendix A.3.1.
        let jwk = json!({
            "kty": "EC", "crv": "P-256",
            "x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
            "y": "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0",
            "d": "jpsQnnGQmL-YBIffH1136cspYG6-0iY7X1fCE9-E9LI",
        });
        let key = SigningKey::from_jwk(&jwk).unwrap();
        // Computed by `printf '{"crv":…}' | openssl dgst -sha256 -binary | basenc --base64url`.
        assert_eq!(key.public().kid(), "oKIywvGUpTVTyxMQ3bwIIeQUudfr_CkLMjCE19ECD-U");
        for (member, value) in [("crv", "P-384"), ("x", "AAAA"), ("d", ""), ("kty", "RSA")] {
            let mut bad = jwk.clone();
            bad[member] = value.into();
            assert!(SigningKey::from_jwk(&bad).is_err(), "{member}");
        }
        let mut other = jwk;
        other["y"] = other["x"].clone();
        assert!(SigningKey::from_jwk(&other).is_err(), "a point that is not on the curve");
        assert!(SigningKey::from_pkcs8(b"x").is_err());
    }
}
