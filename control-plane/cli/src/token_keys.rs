//! The key that signs the tokens of plugins: an operator's file, or `$ASP_STATE_DIR/token-key.json`.
//!
//! Owns: reading both, and the yearly change of the machine's own key. Keeps true: a private key stays in a 0600
//! file; a key that was replaced is published until its last token has died.

use std::path::{Path, PathBuf};
use std::time::Duration;

use asp_gateway::minting::{KeyError, MAX_LIFE, PublicKey, SigningKey, TokenKeys};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use secrecy::ExposeSecret;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::settings::gateway::TokenKeyFiles;
use crate::state_dir;

const FILE: &str = "token-key.json";
/// How long the machine's own key signs.
const CHANGE_AFTER: Duration = Duration::from_secs(365 * 24 * 3600);
/// How long a replaced key is published: its last token's life and a service's wrong clock.
const PUBLISH_FOR: Duration = MAX_LIFE.saturating_mul(2);
/// RFC 7468 section 10.
const PEM_BEGIN: &str = "-----BEGIN PRIVATE KEY-----";
const PEM_END: &str = "-----END PRIVATE KEY-----";

/// Why a key cannot be used. Never holds any of its text.
#[derive(Debug, thiserror::Error)]
pub enum TokenKeyError {
    #[error("{path}: {source}", path = path.display())]
    Io { path: PathBuf, source: std::io::Error },
    #[error("{path}: {source}", path = path.display())]
    Key { path: PathBuf, source: KeyError },
    #[error("{path}: neither PEM with a PKCS #8 private key nor a JWK", path = path.display())]
    Form { path: PathBuf },
}

/// The machine's own file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    /// Unix milliseconds.
    created_ms: u64,
    /// Standard base64 of PKCS #8 DER.
    pkcs8: String,
    previous: Option<Replaced>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Replaced {
    jwk: Value,
    /// Unix milliseconds.
    at_ms: u64,
}

/// The operator's keys.
pub fn read(files: &TokenKeyFiles) -> Result<TokenKeys, TokenKeyError> {
    let current = signing(&files.current, &text(&files.current)?)?;
    let previous = files.previous.as_ref().map(|path| published(path)).transpose()?;
    Ok(TokenKeys { current, previous })
}

/// The keys of a state directory, made when there are none, and changed when they are a year old at `now_ms`.
pub fn own(state_dir: &Path, now_ms: u64) -> Result<TokenKeys, TokenKeyError> {
    let path = state_dir.join(FILE);
    let io = |source| TokenKeyError::Io { path: path.clone(), source };
    let key = |source| TokenKeyError::Key { path: path.clone(), source };
    if !path.try_exists().map_err(io)? {
        let fresh = SigningKey::generate().map_err(key)?;
        state_dir::create_once(&path, &written(&fresh, now_ms, None).map_err(key)?).map_err(io)?;
    }
    let form = || TokenKeyError::Form { path: path.clone() };
    let stored: Stored = serde_json::from_str(&text(&path)?).map_err(|_| form())?;
    let der = STANDARD.decode(&stored.pkcs8).map_err(|_| form())?;
    let current = SigningKey::from_pkcs8(&der).map_err(key)?;
    if now_ms.saturating_sub(stored.created_ms) >= milliseconds(CHANGE_AFTER) {
        let fresh = SigningKey::generate().map_err(key)?;
        let replaced = Replaced { jwk: current.public().jwk(), at_ms: now_ms };
        state_dir::replace(&path, &written(&fresh, now_ms, Some(replaced)).map_err(key)?).map_err(io)?;
        return Ok(TokenKeys { current: fresh, previous: Some(current.public().clone()) });
    }
    let alive = |replaced: &Replaced| now_ms.saturating_sub(replaced.at_ms) < milliseconds(PUBLISH_FOR);
    let previous = stored.previous.filter(alive);
    let previous = previous.map(|replaced| PublicKey::from_jwk(&replaced.jwk)).transpose().map_err(key)?;
    Ok(TokenKeys { current, previous })
}

fn written(key: &SigningKey, created_ms: u64, previous: Option<Replaced>) -> Result<Vec<u8>, KeyError> {
    let pkcs8 = STANDARD.encode(key.to_pkcs8()?.expose_secret());
    serde_json::to_vec_pretty(&Stored { created_ms, pkcs8, previous }).map_err(|_| KeyError::Generate)
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn text(path: &Path) -> Result<String, TokenKeyError> {
    std::fs::read_to_string(path).map_err(|source| TokenKeyError::Io { path: path.to_owned(), source })
}

fn signing(path: &Path, text: &str) -> Result<SigningKey, TokenKeyError> {
    let form = || TokenKeyError::Form { path: path.to_owned() };
    let key = if let Some((_, rest)) = text.split_once(PEM_BEGIN) {
        let (body, _) = rest.split_once(PEM_END).ok_or_else(form)?;
        let body: String = body.chars().filter(|c| !c.is_ascii_whitespace()).collect();
        SigningKey::from_pkcs8(&STANDARD.decode(body).map_err(|_| form())?)
    } else {
        SigningKey::from_jwk(&serde_json::from_str(text).map_err(|_| form())?)
    };
    key.map_err(|source| TokenKeyError::Key { path: path.to_owned(), source })
}

/// Of a key that signs no more, the public half is enough.
fn published(path: &Path) -> Result<PublicKey, TokenKeyError> {
    let text = text(path)?;
    match serde_json::from_str(&text) {
        Ok(jwk) => {
            PublicKey::from_jwk(&jwk).map_err(|source| TokenKeyError::Key { path: path.to_owned(), source })
        }
        Err(_) => Ok(signing(path, &text)?.public().clone()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn kids(keys: &TokenKeys) -> Vec<String> {
        let set = keys.jwks();
        let kids = set["keys"].as_array().unwrap().iter().map(|key| key["kid"].as_str().unwrap().to_owned());
        kids.collect()
    }

    #[test]
    fn the_machines_own_key_survives_a_restart_and_is_published_after_its_change() {
        let dir = tempfile::tempdir().unwrap();
        let first = kids(&own(dir.path(), 0).unwrap());
        assert_eq!(kids(&own(dir.path(), 1000).unwrap()), first);
        let year = milliseconds(CHANGE_AFTER);
        let changed = kids(&own(dir.path(), year).unwrap());
        assert_eq!((changed.len(), &changed[1]), (2, &first[0]));
        assert_ne!(changed[0], first[0]);
        assert_eq!(kids(&own(dir.path(), year + 1000).unwrap()), changed);
        assert_eq!(kids(&own(dir.path(), year + milliseconds(PUBLISH_FOR)).unwrap()), changed[..1]);
    }

    #[test]
    fn an_operators_key_is_pem_or_jwk_and_its_predecessor_may_be_public_only() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = dir.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let key = SigningKey::generate().unwrap();
        let pem = STANDARD.encode(key.to_pkcs8().unwrap().expose_secret());
        let pem = pem.as_bytes().chunks(64).map(|line| std::str::from_utf8(line).unwrap());
        let pem = format!("{PEM_BEGIN}\n{}\n{PEM_END}\n", pem.collect::<Vec<_>>().join("\n"));
        let former = SigningKey::generate().unwrap().public().jwk();
        let current = file("current.pem", &pem);
        let previous = file("previous.json", &former.to_string());
        let keys = read(&TokenKeyFiles { current: current.clone(), previous: Some(previous) }).unwrap();
        assert_eq!(kids(&keys), [key.public().kid(), former["kid"].as_str().unwrap()]);
        let both = read(&TokenKeyFiles { current: current.clone(), previous: Some(current) }).unwrap();
        assert_eq!(kids(&both)[1], key.public().kid());
        for bad in ["", "{}", "-----BEGIN PRIVATE KEY-----\nAAAA", &json!({"kty": "RSA"}).to_string()] {
            let current = file("bad", bad);
            let error = read(&TokenKeyFiles { current, previous: None }).err().unwrap();
            assert!(error.to_string().contains("bad"), "{error}");
        }
    }
}
