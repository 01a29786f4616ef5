//! Tokens by the thousand: signed with the key of the stack's development issuer, or with an RSA key of
//! this run. All rows take the same ones.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use asp_edge::testkit::SigningKey;
use asp_proto::snapshot::{self, Key};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
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

/// An issuer that signs tokens with its key.
pub(crate) struct Issuer {
    name: String,
    iss: String,
    kid: String,
    jwk: Value,
    key: SigningKey,
}

/// What is needed of the development issuer's file.
#[derive(Deserialize)]
struct Stored {
    name: String,
    iss: String,
    kid: String,
    jwk: Value,
    pkcs8: String,
}

impl Issuer {
    pub(crate) fn new(name: &str, key: SigningKey) -> Issuer {
        let jwk = key.jwk_named(name);
        Issuer { name: name.into(), iss: format!("asp-{name}"), kid: name.into(), jwk, key }
    }

    /// The development issuer of a state directory.
    pub(crate) fn development(state: &Path) -> Result<Issuer> {
        let text = std::fs::read(state.join("dev-issuer.json")).context("read the development issuer")?;
        let Stored { name, iss, kid, jwk, pkcs8 } =
            serde_json::from_slice(&text).context("read the development issuer")?;
        let key = SigningKey::es256_of(&STANDARD.decode(pkcs8)?);
        Ok(Issuer { name, iss, kid, jwk, key })
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
        let key = Key { kid: self.kid.clone(), alg: self.key.alg().to_owned(), jwk: self.jwk.to_string() };
        snapshot::Issuer {
            name: self.name.clone(),
            iss: self.iss.clone(),
            keys: vec![key],
            ..Default::default()
        }
    }

    /// A fresh access token (RFC 9068) of [`ORG`].
    pub(crate) fn mint(&self, audience: &str, user: &str) -> String {
        self.mint_until(audience, user, now() + LIFE)
    }

    /// The same with another `exp`, in Unix seconds; it was issued [`LIFE`] before that.
    pub(crate) fn mint_until(&self, audience: &str, user: &str, exp: u64) -> String {
        let jti = format!("bench-{}", NEXT_JTI.fetch_add(1, Ordering::Relaxed));
        let claims = json!({
            "iss": self.iss, "sub": user, "aud": audience, "org": ORG, "client_id": "bench",
            "jti": jti, "iat": exp - LIFE, "exp": exp,
        });
        self.key.access_token(&self.kid, &claims)
    }
}
