//! The development issuer: an ES256 key in `$ASP_STATE_DIR/dev-issuer.json` that mints client and admin tokens.
//!
//! Owns: the file, its key and the claims of its tokens. Refuses: lifetimes above [`MAX_TTL`].
//! Keeps true: the private key stays in a 0600 file and prints as `***`; a client token is never accepted as an admin token,
//! because their audiences differ. Without `--dev` nothing trusts this issuer.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use asp_command::state_dir;
use asp_issuers::trusted_issuer::{
    ADMIN_AUDIENCE, DEVELOPMENT_ISS, DEVELOPMENT_NAME, IssuerRules, MAX_TTL, TYP, TrustedIssuer,
};
use asp_platform::clock;
use asp_platform::secret::Secret;
use asp_proto::snapshot;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::local_key::LocalKey;

const FILE: &str = "dev-issuer.json";
const CLIENT_ID: &str = "asp-cli";

/// Error: a token does not live that long.
#[derive(Debug, thiserror::Error)]
#[error("a token lives at least 1 s and at most {} s, not {} s", MAX_TTL.as_secs(), .0.as_secs())]
pub struct TtlError(Duration);

/// Content of the file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct IssuerRecord {
    name: String,
    iss: String,
    alg: String,
    kid: String,
    /// Default audience: the public URL. Written by `asp serve --dev`.
    #[serde(default)]
    audience: String,
    /// Public key (RFC 7517).
    jwk: serde_json::Value,
    /// Private key: standard base64 of its PKCS #8 form.
    pkcs8: String,
}

/// The development issuer with its private key.
pub struct DevIssuer {
    path: PathBuf,
    audience: String,
    key: LocalKey,
}

/// Claims and lifetime of a client token.
#[derive(Clone, Debug)]
pub struct ClientToken {
    pub org: String,
    pub user: String,
    pub scopes: Vec<String>,
    pub groups: Vec<String>,
    pub audience: String,
    pub ttl: Duration,
}

impl DevIssuer {
    /// Reads the issuer of a state directory, creating it if there is none.
    pub fn load_or_create(state_dir: &Path) -> Result<DevIssuer> {
        let path = state_dir.join(FILE);
        let place = || path.display().to_string();
        state_dir::create(state_dir).with_context(place)?;
        if !path.try_exists().with_context(place)? {
            let fresh = stored(&LocalKey::generate()?, "")?;
            state_dir::create_once(&path, &fresh).with_context(place)?;
        }
        DevIssuer::read(path)
    }

    /// Reads the issuer of a state directory; `None` if there is none.
    pub fn load(state_dir: &Path) -> Result<Option<DevIssuer>> {
        let path = state_dir.join(FILE);
        let exists = path.try_exists().with_context(|| path.display().to_string())?;
        exists.then(|| DevIssuer::read(path)).transpose()
    }

    fn read(path: PathBuf) -> Result<DevIssuer> {
        let text = std::fs::read(&path).with_context(|| path.display().to_string())?;
        let malformed = || format!("{}: not a development issuer", path.display());
        let stored: IssuerRecord = serde_json::from_slice(&text).with_context(malformed)?;
        if (stored.name.as_str(), stored.iss.as_str(), stored.alg.as_str())
            != (DEVELOPMENT_NAME, DEVELOPMENT_ISS, "ES256")
        {
            bail!("{}: expected issuer {DEVELOPMENT_NAME} ({DEVELOPMENT_ISS}) with ES256", malformed());
        }
        let key = LocalKey { kid: stored.kid, jwk: stored.jwk, pkcs8: Secret::new(stored.pkcs8) };
        Ok(DevIssuer { audience: stored.audience, key, path })
    }

    /// Returns the default audience, which is empty before the first `asp serve --dev`.
    pub fn audience(&self) -> &str {
        &self.audience
    }

    /// Stores the default audience, so that `asp token` works without a running server.
    pub fn set_audience(&mut self, audience: &str) -> Result<()> {
        if self.audience == audience {
            return Ok(());
        }
        self.audience = audience.to_owned();
        let text = stored(&self.key, &self.audience)?;
        state_dir::replace(&self.path, &text).with_context(|| self.path.display().to_string())
    }

    /// Returns the issuer as edges and gateways receive it: with the public key only.
    pub fn snapshot(&self) -> snapshot::Issuer {
        snapshot::Issuer {
            name: DEVELOPMENT_NAME.into(),
            iss: DEVELOPMENT_ISS.into(),
            keys: vec![snapshot::Key {
                kid: self.key.kid.clone(),
                alg: "ES256".into(),
                jwk: self.key.jwk.to_string(),
            }],
            typ: vec![TYP.into()],
            max_lifetime_seconds: MAX_TTL.as_secs(),
            // In development any user may claim any org. The org for which `make run` prints a token is named, so that
            // policy may name it before its first call.
            orgs: vec!["acme".into(), "*".into()],
            ..snapshot::Issuer::default()
        }
    }

    /// Returns the public key as a JWK with its `kid`, `alg` and `use`.
    pub fn jwk(&self) -> &serde_json::Value {
        &self.key.jwk
    }

    /// Returns the issuer as the admin API trusts it: with the public key only.
    pub fn trusted(&self) -> Result<TrustedIssuer> {
        self.key.trusted(IssuerRules::of(DEVELOPMENT_ISS))
    }

    /// Mints a token for a client of the platform. A lifetime out of bounds is a [`TtlError`].
    pub fn mint_client(&self, token: &ClientToken) -> Result<Secret> {
        let mut own = vec![("org", json!(token.org))];
        if !token.groups.is_empty() {
            own.push(("groups", json!(token.groups)));
        }
        if !token.scopes.is_empty() {
            own.push(("scope", json!(token.scopes.join(" "))));
        }
        self.mint((&token.user, &token.audience), token.ttl, own)
    }

    /// Mints a token for the admin API. `role`: `platform`, `platform:read`, `org:<id>` or `org:<id>:read`.
    pub fn mint_admin(&self, user: &str, role: &str, groups: &[String], ttl: Duration) -> Result<Secret> {
        let mut own = vec![("role", json!(role))];
        if !groups.is_empty() {
            own.push(("groups", json!(groups)));
        }
        self.mint((user, ADMIN_AUDIENCE), ttl, own)
    }

    /// Mints a token with these claims in addition to those of every token.
    fn mint(&self, (sub, aud): (&str, &str), ttl: Duration, own: Vec<(&str, Value)>) -> Result<Secret> {
        if ttl < Duration::from_secs(1) || ttl > MAX_TTL {
            return Err(TtlError(ttl).into());
        }
        let iat = clock::now_ms() / 1_000;
        let common = [
            ("iss", json!(DEVELOPMENT_ISS)),
            ("sub", json!(sub)),
            ("aud", json!(aud)),
            ("iat", json!(iat)),
            ("exp", json!(iat + ttl.as_secs())),
            ("jti", json!(uuid::Uuid::now_v7().to_string())),
            ("client_id", json!(CLIENT_ID)),
        ];
        self.key.sign(&common.into_iter().chain(own).collect::<BTreeMap<_, _>>())
    }
}

/// Returns the content of the file.
fn stored(key: &LocalKey, audience: &str) -> Result<Vec<u8>> {
    let stored = IssuerRecord {
        name: DEVELOPMENT_NAME.into(),
        iss: DEVELOPMENT_ISS.into(),
        alg: "ES256".into(),
        kid: key.kid.clone(),
        audience: audience.to_owned(),
        jwk: key.jwk.clone(),
        pkcs8: key.pkcs8.expose().to_owned(),
    };
    serde_json::to_vec_pretty(&stored).context("the file cannot be written")
}

/// Makes aws-lc the only crypto provider of this process. Must be called first at every process start.
pub fn install_crypto() {
    // Err: already installed, by a test in the same process.
    let _ = jsonwebtoken::crypto::aws_lc::DEFAULT_PROVIDER.install_default();
}

#[cfg(test)]
mod tests {
    use jsonwebtoken::{Algorithm, DecodingKey, Validation};

    use super::*;

    fn token() -> ClientToken {
        ClientToken {
            org: "acme".into(),
            user: "alice".into(),
            scopes: vec!["a".into(), "b".into()],
            groups: vec!["ops".into()],
            audience: "http://127.0.0.1:8080".into(),
            ttl: Duration::from_secs(60),
        }
    }

    #[test]
    fn a_minted_token_verifies_with_the_published_key_and_carries_the_claims() {
        install_crypto();
        let dir = tempfile::tempdir().unwrap();
        let issuer = DevIssuer::load_or_create(dir.path()).unwrap();
        let minted = issuer.mint_client(&token()).unwrap();

        let published = issuer.snapshot();
        let jwk: jsonwebtoken::jwk::Jwk = serde_json::from_str(&published.keys[0].jwk).unwrap();
        let mut rules = Validation::new(Algorithm::ES256);
        rules.set_audience(&["http://127.0.0.1:8080"]);
        rules.set_issuer(&[DEVELOPMENT_ISS]);
        let decoded = jsonwebtoken::decode::<serde_json::Value>(
            minted.expose(),
            &DecodingKey::from_jwk(&jwk).unwrap(),
            &rules,
        )
        .unwrap();
        assert_eq!(decoded.header.typ.as_deref(), Some("at+jwt"));
        assert_eq!(decoded.header.kid.as_deref(), Some(published.keys[0].kid.as_str()));
        let claims = decoded.claims;
        assert_eq!(
            (claims["org"].as_str(), claims["sub"].as_str(), claims["scope"].as_str()),
            (Some("acme"), Some("alice"), Some("a b"))
        );
        assert_eq!(claims["groups"], serde_json::json!(["ops"]));
        assert_eq!(claims["exp"].as_u64().unwrap() - claims["iat"].as_u64().unwrap(), 60);
        assert!(claims["jti"].as_str().unwrap().len() > 16);
        assert!(claims.get("role").is_none());
    }

    #[test]
    fn the_issuer_survives_a_restart_and_remembers_the_audience() {
        let dir = tempfile::tempdir().unwrap();
        let mut first = DevIssuer::load_or_create(dir.path()).unwrap();
        first.set_audience("http://x").unwrap();
        let second = DevIssuer::load_or_create(dir.path()).unwrap();
        assert_eq!((second.key.kid.as_str(), second.audience()), (first.key.kid.as_str(), "http://x"));
        assert_eq!(second.key.pkcs8.expose(), first.key.pkcs8.expose());
    }

    #[test]
    fn a_token_never_outlives_a_day() {
        install_crypto();
        let dir = tempfile::tempdir().unwrap();
        let issuer = DevIssuer::load_or_create(dir.path()).unwrap();
        let long = ClientToken { ttl: MAX_TTL + Duration::from_secs(1), ..token() };
        for token in [long, ClientToken { ttl: Duration::ZERO, ..token() }] {
            assert!(issuer.mint_client(&token).unwrap_err().is::<TtlError>());
        }
    }

    #[test]
    fn a_file_that_is_no_issuer_is_refused_not_replaced() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(FILE), "{}").unwrap();
        let error = DevIssuer::load_or_create(dir.path()).err().unwrap();
        assert!(error.to_string().ends_with("not a development issuer"), "{error}");
        assert_eq!(std::fs::read(dir.path().join(FILE)).unwrap(), b"{}");
    }
}
