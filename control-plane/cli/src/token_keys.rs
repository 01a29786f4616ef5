//! The operator's key for signing the platform's tokens, if there is one (`ASP_TOKEN_KEY`).
//!
//! Owns: reading it. Refuses: writing keys; those that gateways create are kept in memory only.

use std::path::Path;

use anyhow::{Context, anyhow};
use asp_identity::minting::{PublicKey, SigningKey};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// First line of a PEM file with a PKCS #8 private key (RFC 7468 section 10).
const PEM_BEGIN: &str = "-----BEGIN PRIVATE KEY-----";
const PEM_END: &str = "-----END PRIVATE KEY-----";

/// Reads the operator's keys: the signing key, and the previous one. An error never contains any part of a key.
pub fn read(current: &Path, previous: Option<&Path>) -> anyhow::Result<(SigningKey, Option<PublicKey>)> {
    Ok((signing(current, &text(current)?)?, previous.map(retired_public_key).transpose()?))
}

fn text(path: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(path).with_context(|| path.display().to_string())
}

fn signing(path: &Path, text: &str) -> anyhow::Result<SigningKey> {
    let form = || anyhow!("{}: neither PEM with a PKCS #8 private key nor a JWK", path.display());
    let key = if let Some((_, rest)) = text.split_once(PEM_BEGIN) {
        let (body, _) = rest.split_once(PEM_END).ok_or_else(form)?;
        let body: String = body.chars().filter(|c| !c.is_ascii_whitespace()).collect();
        SigningKey::from_pkcs8(&STANDARD.decode(body).map_err(|_| form())?)
    } else {
        SigningKey::from_jwk(&serde_json::from_str(text).map_err(|_| form())?)
    };
    key.with_context(|| path.display().to_string())
}

/// Reads the public half of a key that no longer signs.
fn retired_public_key(path: &Path) -> anyhow::Result<PublicKey> {
    let text = text(path)?;
    match serde_json::from_str(&text) {
        Ok(jwk) => PublicKey::from_jwk(&jwk).with_context(|| path.display().to_string()),
        Err(_) => Ok(signing(path, &text)?.public().clone()),
    }
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
    use serde_json::json;

    use super::*;

    fn pkcs8() -> String {
        let random = aws_lc_rs::rand::SystemRandom::new();
        STANDARD.encode(EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap())
    }

    #[test]
    fn an_operators_key_is_pem_or_jwk_and_its_predecessor_may_be_public_only() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = dir.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let der = pkcs8();
        let key = SigningKey::from_pkcs8(&STANDARD.decode(&der).unwrap()).unwrap();
        let lines = der.as_bytes().chunks(64).map(|line| std::str::from_utf8(line).unwrap());
        let pem = format!("{PEM_BEGIN}\n{}\n{PEM_END}\n", lines.collect::<Vec<_>>().join("\n"));
        let former = SigningKey::generate().unwrap().public().jwk();
        let current = file("current.pem", &pem);
        let previous = file("previous.json", &former.to_string());
        let (signs, signed) = read(&current, Some(&previous)).unwrap();
        assert_eq!(signs.public(), key.public());
        assert_eq!(signed.unwrap().jwk(), former);
        let (_, both) = read(&current, Some(&current)).unwrap();
        assert_eq!(both.unwrap(), *key.public());
        for bad in ["", "{}", "-----BEGIN PRIVATE KEY-----\nAAAA", &json!({"kty": "RSA"}).to_string()] {
            let current = file("bad", bad);
            let error = read(&current, None).err().unwrap();
            assert!(error.to_string().contains("bad"), "{error}");
        }
    }
}
