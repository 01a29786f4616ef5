//! A signing key of this machine, in a file in the state directory.
//!
//! Keeps true: the private key stays in a 0600 file and prints as `***`; a malformed file is rejected, and is replaced only
//! on an explicit request for a new key.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, anyhow};
use asp_command::state_dir;
use asp_issuers::trusted_issuer::{IssuerRules, TYP, TrustedIssuer};
use asp_platform::secret::Secret;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// Context of an error of signing.
const SIGN: &str = "the token cannot be signed";

/// An ES256 key.
#[derive(Clone)]
pub struct LocalKey {
    pub kid: String,
    /// Public key (RFC 7517).
    pub jwk: Value,
    /// Private key: standard base64 of its PKCS #8 form.
    pub pkcs8: Secret,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyFile {
    kid: String,
    jwk: Value,
    pkcs8: String,
}

impl LocalKey {
    pub fn generate() -> anyhow::Result<LocalKey> {
        let fault = || anyhow!("the key cannot be generated");
        let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).map_err(|_| fault())?;
        let pkcs8 = pair.to_pkcs8v1().map_err(|_| fault())?;
        // SEC 1 section 2.3.3: 0x04, then x and y of 32 bytes each.
        let point = pair.public_key().as_ref();
        let (Some(x), Some(y)) = (point.get(1..33), point.get(33..65)) else {
            return Err(fault());
        };
        let (x, y) = (URL_SAFE_NO_PAD.encode(x), URL_SAFE_NO_PAD.encode(y));
        // RFC 7638: the thumbprint is over the required members in lexical order.
        let thumbprint = Sha256::digest(format!(r#"{{"crv":"P-256","kty":"EC","x":"{x}","y":"{y}"}}"#));
        let kid = URL_SAFE_NO_PAD.encode(thumbprint);
        let jwk =
            json!({ "kty": "EC", "crv": "P-256", "x": x, "y": y, "kid": kid, "alg": "ES256", "use": "sig" });
        Ok(LocalKey { kid, jwk, pkcs8: Secret::new(STANDARD.encode(pkcs8.as_ref())) })
    }

    /// Reads the key in a file, creating it if there is none.
    pub fn load_or_create(path: &Path) -> anyhow::Result<LocalKey> {
        let place = || path.display().to_string();
        if let Some(parent) = path.parent() {
            state_dir::create(parent).with_context(place)?;
        }
        if !path.try_exists().with_context(place)? {
            state_dir::create_once(path, &LocalKey::fresh()?).with_context(place)?;
        }
        let text = std::fs::read(path).with_context(place)?;
        let stored: KeyFile =
            serde_json::from_slice(&text).with_context(|| format!("{}: not a signing key", place()))?;
        Ok(LocalKey { kid: stored.kid, jwk: stored.jwk, pkcs8: Secret::new(stored.pkcs8) })
    }

    /// Replaces the key in a file with a new one.
    pub fn replace(path: &Path) -> anyhow::Result<()> {
        state_dir::replace(path, &LocalKey::fresh()?).with_context(|| path.display().to_string())
    }

    /// Returns the content of a file with a new key.
    fn fresh() -> anyhow::Result<Vec<u8>> {
        let LocalKey { kid, jwk, pkcs8 } = LocalKey::generate()?;
        let fresh = KeyFile { kid, jwk, pkcs8: pkcs8.expose().to_owned() };
        serde_json::to_vec_pretty(&fresh).context(SIGN)
    }

    /// Returns the key as the admin API trusts it: the public key only.
    pub fn trusted(&self, rules: IssuerRules) -> anyhow::Result<TrustedIssuer> {
        let malformed = || format!("{}: not a signing key", self.kid);
        let jwk: jsonwebtoken::jwk::Jwk = serde_json::from_value(self.jwk.clone()).with_context(malformed)?;
        let key = DecodingKey::from_jwk(&jwk).with_context(malformed)?;
        Ok(TrustedIssuer { kid: self.kid.clone(), algorithm: Algorithm::ES256, key, rules: Arc::new(rules) })
    }

    /// Signs claims as an access token (RFC 9068 section 2.1).
    pub fn sign(&self, claims: &impl Serialize) -> anyhow::Result<Secret> {
        let der = STANDARD.decode(self.pkcs8.expose()).context(SIGN)?;
        let header =
            Header { typ: Some(TYP.into()), kid: Some(self.kid.clone()), ..Header::new(Algorithm::ES256) };
        jsonwebtoken::encode(&header, claims, &EncodingKey::from_ec_der(&der)).map(Secret::new).context(SIGN)
    }
}
