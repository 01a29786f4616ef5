//! Throw-away signing keys by name: `dev`, `other` and `attacker` (ES256), `es384`, `rs256`, `rs384`, `rs512`, `eddsa`.

use std::collections::HashMap;
use std::sync::OnceLock;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::{KeyPair as RsaKeyPair, KeySize};
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, EcdsaSigningAlgorithm,
    Ed25519KeyPair, KeyPair, RSA_PKCS1_SHA256, RSA_PKCS1_SHA384, RSA_PKCS1_SHA512, RsaEncoding,
};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

enum Key {
    Ecdsa(EcdsaKeyPair),
    Rsa(RsaKeyPair, &'static dyn RsaEncoding),
    Ed25519(Ed25519KeyPair),
}

/// Set of keys generated for one test run.
pub struct Keys {
    keys: HashMap<&'static str, (&'static str, Key)>,
}

impl Keys {
    /// Returns the keys of this test process; generating RSA keys takes seconds.
    pub fn shared() -> &'static Keys {
        static KEYS: OnceLock<Keys> = OnceLock::new();
        KEYS.get_or_init(Keys::generate)
    }

    pub fn generate() -> Keys {
        let rsa = || RsaKeyPair::generate(KeySize::Rsa2048).expect("make an RSA key");
        let p256 = || Key::Ecdsa(ecdsa(&ECDSA_P256_SHA256_FIXED_SIGNING));
        let keys = HashMap::from([
            ("dev", ("ES256", p256())),
            ("other", ("ES256", p256())),
            ("attacker", ("ES256", p256())),
            ("es384", ("ES384", Key::Ecdsa(ecdsa(&ECDSA_P384_SHA384_FIXED_SIGNING)))),
            ("rs256", ("RS256", Key::Rsa(rsa(), &RSA_PKCS1_SHA256))),
            ("rs384", ("RS384", Key::Rsa(rsa(), &RSA_PKCS1_SHA384))),
            ("rs512", ("RS512", Key::Rsa(rsa(), &RSA_PKCS1_SHA512))),
            ("eddsa", ("EdDSA", Key::Ed25519(Ed25519KeyPair::generate().expect("make an Ed25519 key")))),
        ]);
        Keys { keys }
    }

    /// Returns the JOSE name of the key's algorithm.
    pub fn alg(&self, name: &str) -> &'static str {
        self.find(name).0
    }

    /// Returns the public key as JWK JSON.
    pub fn jwk(&self, name: &str) -> Value {
        let text = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        match &self.find(name).1 {
            Key::Ecdsa(pair) => {
                let point = pair.public_key().as_ref().get(1..).unwrap_or_default();
                let (x, y) = point.split_at(point.len() / 2);
                let curve = if x.len() == 32 { "P-256" } else { "P-384" };
                json!({"kty": "EC", "crv": curve, "x": text(x), "y": text(y)})
            }
            Key::Rsa(pair, _) => {
                let public = pair.public_key();
                let modulus = public.modulus().big_endian_without_leading_zero();
                let exponent = public.exponent().big_endian_without_leading_zero();
                json!({"kty": "RSA", "n": text(modulus), "e": text(exponent)})
            }
            Key::Ed25519(pair) => {
                json!({"kty": "OKP", "crv": "Ed25519", "x": text(pair.public_key().as_ref())})
            }
        }
    }

    /// Returns the JOSE signature over `message`, raw bytes.
    pub fn sign(&self, name: &str, message: &[u8]) -> Vec<u8> {
        match &self.find(name).1 {
            Key::Ecdsa(pair) => pair.sign(&SystemRandom::new(), message).expect("sign").as_ref().to_vec(),
            Key::Rsa(pair, encoding) => {
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(*encoding, &SystemRandom::new(), message, &mut signature).expect("sign");
                signature
            }
            Key::Ed25519(pair) => pair.sign(message).as_ref().to_vec(),
        }
    }

    fn find(&self, name: &str) -> &(&'static str, Key) {
        self.keys.get(name).unwrap_or_else(|| panic!("no key named {name}"))
    }
}

fn ecdsa(algorithm: &'static EcdsaSigningAlgorithm) -> EcdsaKeyPair {
    EcdsaKeyPair::generate(algorithm).expect("make an EC key")
}
