//! A signed token taken apart and put together again, by somebody who has not its issuer's key.

use anyhow::{Context, Result};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::Value;
use sha2::{Digest, Sha256};

/// A compact JWS (RFC 7515 section 3.1).
pub(super) struct Parts {
    pub(super) header: Value,
    pub(super) claims: Value,
    /// As it is written.
    pub(super) encoded: [String; 3],
}

impl Parts {
    pub(super) fn of(token: &str) -> Result<Parts> {
        let encoded: Vec<String> = token.split('.').map(str::to_owned).collect();
        let encoded: [String; 3] = encoded.try_into().ok().with_context(|| token.to_owned())?;
        let read =
            |part: &str| -> Result<Value> { Ok(serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part)?)?) };
        Ok(Parts { header: read(&encoded[0])?, claims: read(&encoded[1])?, encoded })
    }

    /// Under a header with another member; the signature is the old one.
    pub(super) fn with_header(&self, member: &str, value: &Value) -> String {
        let mut header = self.header.clone();
        set(&mut header, member, value);
        [&part(&header), &self.encoded[1], &self.encoded[2]].map(String::as_str).join(".")
    }

    /// With another claim; the signature is the old one.
    pub(super) fn with_claim(&self, claim: &str, value: &Value) -> String {
        let mut claims = self.claims.clone();
        set(&mut claims, claim, value);
        [&self.encoded[0], &part(&claims), &self.encoded[2]].map(String::as_str).join(".")
    }

    /// With another signature.
    pub(super) fn with_signature(&self, signature: &str) -> String {
        [&self.encoded[0], &self.encoded[1], signature].map(str::to_owned).join(".")
    }

    /// Signed with a secret that everybody knows: the issuer's public key (RFC 8725 section 2.1).
    pub(super) fn by_secret(&self, secret: &[u8]) -> String {
        let mut header = self.header.clone();
        set(&mut header, "alg", &Value::from("HS256"));
        let signed = format!("{}.{}", part(&header), self.encoded[1]);
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(hmac(secret, signed.as_bytes())))
    }
}

/// A token's header; `null` of something else.
pub(super) fn header(token: &str) -> Value {
    Parts::of(token).map(|parts| parts.header).unwrap_or_default()
}

fn part(value: &Value) -> String {
    URL_SAFE_NO_PAD.encode(value.to_string())
}

/// `null` takes the member away.
fn set(object: &mut Value, member: &str, value: &Value) {
    match (value, object.as_object_mut()) {
        (Value::Null, Some(object)) => drop(object.remove(member)),
        _ => object[member] = value.clone(),
    }
}

/// RFC 2104 with SHA-256.
fn hmac(key: &[u8], message: &[u8]) -> Vec<u8> {
    let mut block = [0_u8; 64];
    let hashed = Sha256::digest(key);
    let key = if key.len() > block.len() { hashed.as_slice() } else { key };
    block[..key.len()].copy_from_slice(key);
    let padded = |pad: u8| block.map(|byte| byte ^ pad);
    let inner = Sha256::new().chain_update(padded(0x36)).chain_update(message).finalize();
    Sha256::new().chain_update(padded(0x5c)).chain_update(inner).finalize().to_vec()
}
