//! Tokens by the thousand: signed with the key of the stack's development issuer, or with an RSA key of
//! this run. All rows take the same ones.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow};
use asp_proto::snapshot::{self, Key};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::{KeyPair as RsaKeyPair, KeySize};
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair, RSA_PKCS1_SHA256};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde::Deserialize;
use serde_json::{Value, json};

/// The org of every token.
pub(crate) const ORG: &str = "bench";
/// Seconds a token lives: longer than the benchmark.
pub(crate) const LIFE: u64 = 4 * 3600;

/// Unix seconds.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// No `jti` is used twice in a process, so every token is new to whoever sees it first.
static NEXT_JTI: AtomicU64 = AtomicU64::new(1_000_000_000);

/// Somebody who signs tokens, and the public half of the key.
pub(crate) struct Issuer {
    name: String,
    iss: String,
    alg: String,
    kid: String,
    jwk: Value,
    signer: Signer,
}

enum Signer {
    Es256(EcdsaKeyPair),
    Rs256(Box<RsaKeyPair>),
}

/// What is needed of the development issuer's file.
#[derive(Deserialize)]
struct Stored {
    name: String,
    iss: String,
    alg: String,
    kid: String,
    jwk: Value,
    pkcs8: String,
}

impl Issuer {
    /// The development issuer of a state directory.
    pub(crate) fn development(state: &Path) -> Result<Issuer> {
        let text = std::fs::read(state.join("dev-issuer.json")).context("read the development issuer")?;
        let stored: Stored = serde_json::from_slice(&text).context("read the development issuer")?;
        let der = STANDARD.decode(&stored.pkcs8)?;
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &der)
            .map_err(|error| anyhow!("the development issuer's key: {error}"))?;
        Ok(Issuer {
            name: stored.name,
            iss: stored.iss,
            alg: stored.alg,
            kid: stored.kid,
            jwk: stored.jwk,
            signer: Signer::Es256(pair),
        })
    }

    /// An issuer with a fresh key on P-256.
    pub(crate) fn es256(name: &str) -> Result<Issuer> {
        let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING)
            .map_err(|error| anyhow!("a key on P-256: {error}"))?;
        // SEC 1 section 2.3.3: 4, then both coordinates of 32 bytes.
        let point = pair.public_key().as_ref();
        let coordinate = |from: usize| URL_SAFE_NO_PAD.encode(point.get(from..from + 32).unwrap_or_default());
        let jwk = json!({
            "kty": "EC", "crv": "P-256", "kid": name, "alg": "ES256", "use": "sig",
            "x": coordinate(1), "y": coordinate(33),
        });
        Ok(Issuer {
            name: name.into(),
            iss: format!("asp-{name}"),
            alg: "ES256".into(),
            kid: name.into(),
            jwk,
            signer: Signer::Es256(pair),
        })
    }

    /// An issuer with a fresh RSA key of 2048 bits; only Envoy's rows know it.
    pub(crate) fn rsa() -> Result<Issuer> {
        let pair = RsaKeyPair::generate(KeySize::Rsa2048).map_err(|error| anyhow!("an RSA key: {error}"))?;
        let text = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let jwk = json!({
            "kty": "RSA", "kid": "bench-rsa", "alg": "RS256", "use": "sig",
            "n": text(pair.public_key().modulus().big_endian_without_leading_zero()),
            "e": text(pair.public_key().exponent().big_endian_without_leading_zero()),
        });
        Ok(Issuer {
            name: "bench-rsa".into(),
            iss: "asp-bench-rsa".into(),
            alg: "RS256".into(),
            kid: "bench-rsa".into(),
            jwk,
            signer: Signer::Rs256(Box::new(pair)),
        })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn iss(&self) -> &str {
        &self.iss
    }

    /// The public key as a key set (RFC 7517).
    pub(crate) fn jwks(&self) -> Value {
        json!({"keys": [self.jwk]})
    }

    /// The issuer as the edge snapshot names it.
    pub(crate) fn message(&self) -> snapshot::Issuer {
        let key = Key { kid: self.kid.clone(), alg: self.alg.clone(), jwk: self.jwk.to_string() };
        snapshot::Issuer {
            name: self.name.clone(),
            iss: self.iss.clone(),
            keys: vec![key],
            ..Default::default()
        }
    }

    /// A fresh access token (RFC 9068) of [`ORG`].
    pub(crate) fn mint(&self, audience: &str, user: &str) -> Result<String> {
        self.mint_until(audience, user, now() + LIFE)
    }

    /// The same with another `exp`, in Unix seconds; it was issued [`LIFE`] before that.
    pub(crate) fn mint_until(&self, audience: &str, user: &str, exp: u64) -> Result<String> {
        let jti = format!("bench-{}", NEXT_JTI.fetch_add(1, Ordering::Relaxed));
        let header = json!({"alg": self.alg, "typ": "at+jwt", "kid": self.kid});
        let claims = json!({
            "iss": self.iss, "sub": user, "aud": audience, "org": ORG, "client_id": "bench",
            "jti": jti, "iat": exp - LIFE, "exp": exp,
        });
        let encode = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", encode(header), encode(claims));
        let signature = self.sign(signed.as_bytes())?;
        Ok(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }

    fn sign(&self, message: &[u8]) -> Result<Vec<u8>> {
        let random = SystemRandom::new();
        match &self.signer {
            Signer::Es256(pair) => {
                let signature = pair.sign(&random, message).map_err(|error| anyhow!("sign: {error}"))?;
                Ok(signature.as_ref().to_vec())
            }
            Signer::Rs256(pair) => {
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, &random, message, &mut signature)
                    .map_err(|error| anyhow!("sign: {error}"))?;
                Ok(signature)
            }
        }
    }
}
