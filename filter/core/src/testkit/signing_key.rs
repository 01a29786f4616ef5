//! A throw-away private key: its public half as a JWK, its signatures, and tokens signed by it.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::{KeyPair as RsaKeyPair, KeySize};
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair,
    RSA_PKCS1_SHA256, RSA_PKCS1_SHA384, RSA_PKCS1_SHA512, RsaEncoding,
};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

enum Pair {
    Ecdsa(EcdsaKeyPair),
    Rsa(RsaKeyPair, &'static dyn RsaEncoding),
    Ed25519(Ed25519KeyPair),
}

/// Private key of one algorithm.
pub struct SigningKey {
    alg: &'static str,
    pair: Pair,
}

impl SigningKey {
    pub fn es256() -> SigningKey {
        let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).expect("make a key on P-256");
        SigningKey { alg: "ES256", pair: Pair::Ecdsa(pair) }
    }

    /// Reads an ES256 key in PKCS #8.
    pub fn es256_of(pkcs8: &[u8]) -> SigningKey {
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8);
        SigningKey { alg: "ES256", pair: Pair::Ecdsa(pair.expect("read a key on P-256")) }
    }

    pub fn es384() -> SigningKey {
        let pair = EcdsaKeyPair::generate(&ECDSA_P384_SHA384_FIXED_SIGNING).expect("make a key on P-384");
        SigningKey { alg: "ES384", pair: Pair::Ecdsa(pair) }
    }

    /// Generates a key of 2048 bits, which can take a second.
    pub fn rs256() -> SigningKey {
        SigningKey::rsa("RS256", &RSA_PKCS1_SHA256)
    }

    pub fn rs384() -> SigningKey {
        SigningKey::rsa("RS384", &RSA_PKCS1_SHA384)
    }

    pub fn rs512() -> SigningKey {
        SigningKey::rsa("RS512", &RSA_PKCS1_SHA512)
    }

    pub fn eddsa() -> SigningKey {
        let pair = Ed25519KeyPair::generate().expect("make an Ed25519 key");
        SigningKey { alg: "EdDSA", pair: Pair::Ed25519(pair) }
    }

    fn rsa(alg: &'static str, encoding: &'static dyn RsaEncoding) -> SigningKey {
        let pair = RsaKeyPair::generate(KeySize::Rsa2048).expect("make an RSA key");
        SigningKey { alg, pair: Pair::Rsa(pair, encoding) }
    }

    /// Returns the JOSE name of the key's algorithm.
    pub fn alg(&self) -> &'static str {
        self.alg
    }

    /// Returns the public key as JWK JSON.
    pub fn jwk(&self) -> Value {
        let text = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        match &self.pair {
            Pair::Ecdsa(pair) => {
                // SEC 1 section 2.3.3: 4, then both coordinates.
                let point = pair.public_key().as_ref().get(1..).unwrap_or_default();
                let (x, y) = point.split_at(point.len() / 2);
                let curve = if x.len() == 32 { "P-256" } else { "P-384" };
                json!({"kty": "EC", "crv": curve, "x": text(x), "y": text(y)})
            }
            Pair::Rsa(pair, _) => {
                let public = pair.public_key();
                let modulus = public.modulus().big_endian_without_leading_zero();
                let exponent = public.exponent().big_endian_without_leading_zero();
                json!({"kty": "RSA", "n": text(modulus), "e": text(exponent)})
            }
            Pair::Ed25519(pair) => {
                json!({"kty": "OKP", "crv": "Ed25519", "x": text(pair.public_key().as_ref())})
            }
        }
    }

    /// Returns the public key as a JWK that names itself, its algorithm and its use.
    pub fn jwk_named(&self, kid: &str) -> Value {
        let mut jwk = self.jwk();
        jwk["kid"] = json!(kid);
        jwk["alg"] = json!(self.alg);
        jwk["use"] = json!("sig");
        jwk
    }

    /// Returns the JOSE signature over `message`, raw bytes.
    pub fn sign(&self, message: &[u8]) -> Vec<u8> {
        match &self.pair {
            Pair::Ecdsa(pair) => pair.sign(&SystemRandom::new(), message).expect("sign").as_ref().to_vec(),
            Pair::Rsa(pair, encoding) => {
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(*encoding, &SystemRandom::new(), message, &mut signature).expect("sign");
                signature
            }
            Pair::Ed25519(pair) => pair.sign(message).as_ref().to_vec(),
        }
    }

    /// Returns an access token (RFC 9068) of these claims, signed under the name `kid`.
    pub fn access_token(&self, kid: &str, claims: &Value) -> String {
        self.token(&json!({"alg": self.alg, "typ": "at+jwt", "kid": kid}), claims)
    }

    /// Returns a compact JWS (RFC 7515) with this header and payload.
    pub fn token(&self, header: &Value, payload: &Value) -> String {
        let text = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", text(header), text(payload));
        let signature = URL_SAFE_NO_PAD.encode(self.sign(signed.as_bytes()));
        format!("{signed}.{signature}")
    }
}
