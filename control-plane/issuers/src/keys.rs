//! An issuer's public keys, each bound to one algorithm (RFC 8725 section 3.1).
//!
//! Owns the rules for keys. If one of the keys that an operator wrote is invalid, the document is refused. Of the keys
//! that an issuer publishes, the valid ones are used, because the others may be for other consumers (RFC 7517 section
//! 5).

use std::collections::HashMap;

use asp_proto::snapshot::{self, EdgeSnapshot};
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ParsedPublicKey};
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, DecodingKey};
use serde_json::Value;

use super::document::Document;

/// Maximum number of keys of an issuer.
pub(super) const MAX_KEYS: usize = 50;
/// Private members of a JWK (RFC 7518 section 6); a key with one is refused.
const PRIVATE_MEMBERS: [&str; 8] = ["d", "p", "q", "dp", "dq", "qi", "oth", "k"];
/// Maximum size of a published key, in bytes of JSON; an RSA key of 8,192 bits is smaller.
const MAX_KEY: usize = 2_048;
/// Maximum size of all published keys of one issuer, so that one issuer does not use up the budget of others.
const MAX_PUBLISHED: usize = 16 * 1024;
/// Algorithms that the edge accepts (`snapshot.proto`, `Key.alg`). A key that names none gets the first one that fits.
pub(super) const ALGS: [(&str, Algorithm); 6] = [
    ("RS256", Algorithm::RS256),
    ("ES256", Algorithm::ES256),
    ("ES384", Algorithm::ES384),
    ("EdDSA", Algorithm::EdDSA),
    ("RS384", Algorithm::RS384),
    ("RS512", Algorithm::RS512),
];

/// A key that tokens may be signed with.
#[derive(Clone)]
pub(super) struct Key {
    pub(super) kid: String,
    pub(super) alg: String,
    pub(super) algorithm: Algorithm,
    pub(super) jwk: Value,
    pub(super) decoding: DecodingKey,
}

impl Key {
    pub(super) fn message(&self) -> snapshot::Key {
        snapshot::Key { kid: self.kid.clone(), alg: self.alg.clone(), jwk: self.jwk.to_string() }
    }
}

/// Reads the keys in a document.
pub(super) fn read_keys(document: &Document, keys: &[Value]) -> Result<Vec<Key>, String> {
    if keys.is_empty() || keys.len() > MAX_KEYS {
        return Err(format!("jwks must have 1 to {MAX_KEYS} keys"));
    }
    keys.iter().map(|jwk| read_key(document, jwk)).collect()
}

/// Reads one key in a document.
pub(super) fn read_key(document: &Document, value: &Value) -> Result<Key, String> {
    let kid = kid(value)?;
    // A key without `alg` takes the issuer's only one.
    let alg = match (text(value, "alg"), document.algs.as_slice()) {
        (Some(alg), algs) if algs.iter().any(|allowed| allowed == alg) => alg.to_owned(),
        (None, [only]) => only.clone(),
        _ => return Err(format!("key {kid} must name one of the issuer's algs")),
    };
    key(kid, alg, value.clone())
}

/// Returns the usable keys that an issuer publishes, and the faults of the others. If two keys have the same id,
/// neither is used: it would be unknown which one signed.
pub(super) fn usable_keys(document: &Document, keys: &[Value]) -> (Vec<Key>, Vec<String>) {
    let mut named: HashMap<&str, usize> = HashMap::new();
    for key in keys {
        *named.entry(text(key, "kid").unwrap_or_default()).or_default() += 1;
    }
    let mut good: Vec<Key> = Vec::new();
    let mut faults = Vec::new();
    let mut bytes = 0;
    for value in keys.iter().take(MAX_KEYS) {
        match usable_key(document, value) {
            Ok(key) if named.get(key.kid.as_str()).is_some_and(|count| *count > 1) => {
                faults.push(format!("two keys have the kid {:?}", key.kid));
            }
            Ok(key) => {
                bytes += key.jwk.to_string().len();
                if bytes > MAX_PUBLISHED {
                    faults.push(format!(
                        "its keys have more than {MAX_PUBLISHED} bytes; only the first of them are used"
                    ));
                    break;
                }
                good.push(key);
            }
            Err(fault) => faults.push(fault),
        }
    }
    if keys.len() > MAX_KEYS {
        faults.push(format!("it publishes {} keys, the first {MAX_KEYS} are looked at", keys.len()));
    }
    faults.dedup();
    (good, faults)
}

fn usable_key(document: &Document, value: &Value) -> Result<Key, String> {
    let kid = kid(value)?;
    let is_allowed =
        |alg: &str| document.algs.is_empty() || document.algs.iter().any(|allowed| allowed == alg);
    let alg = match text(value, "alg") {
        Some(alg) => Some(alg),
        None => ALGS.iter().map(|(alg, _)| *alg).find(|alg| fits(value, alg) && is_allowed(alg)),
    };
    let alg = alg
        .filter(|alg| is_allowed(alg))
        .ok_or_else(|| format!("key {kid} fits none of the allowed algorithms"))?;
    // A certificate chain, or members of another kind of key, would only make snapshots larger.
    let of_kind: &[&str] = match text(value, "kty") {
        Some("RSA") => &["n", "e"],
        _ => &["crv", "x", "y"],
    };
    let kept = value.as_object().into_iter().flatten();
    let is_kept = |member: &str| ["kty", "kid", "alg", "use"].contains(&member) || of_kind.contains(&member);
    let kept = kept.filter(|(member, _)| is_kept(member));
    let jwk: Value =
        kept.map(|(member, value)| (member.clone(), value.clone())).collect::<serde_json::Map<_, _>>().into();
    if jwk.to_string().len() > MAX_KEY {
        return Err(format!(
            "key {} takes more than {MAX_KEY} bytes",
            kid.chars().take(40).collect::<String>()
        ));
    }
    let alg = alg.to_owned();
    let key = key(kid, alg, jwk)?;
    check_edge_accepts(&document.name, &document.iss, std::slice::from_ref(&key))?;
    Ok(key)
}

/// Whether a key that names no algorithm may be one for `alg` (RFC 7518 section 6, RFC 8037 section 2).
fn fits(value: &Value, alg: &str) -> bool {
    match (text(value, "kty"), text(value, "crv")) {
        (Some("RSA"), _) => alg.starts_with("RS"),
        (Some("EC"), Some("P-256")) => alg == "ES256",
        (Some("EC"), Some("P-384")) => alg == "ES384",
        (Some("OKP"), Some("Ed25519")) => alg == "EdDSA",
        _ => false,
    }
}

fn text<'a>(value: &'a Value, name: &str) -> Option<&'a str> {
    value.get(name).and_then(Value::as_str)
}

/// Returns the key's id; fails if the key has private members.
fn kid(value: &Value) -> Result<String, String> {
    let kid = text(value, "kid").filter(|kid| !kid.is_empty()).ok_or("a key has no kid")?.to_owned();
    match PRIVATE_MEMBERS.iter().find(|member| value.get(**member).is_some()) {
        Some(member) => Err(format!("key {kid} has the private member `{member}`: give the public key")),
        None => Ok(kid),
    }
}

fn key(kid: String, alg: String, value: Value) -> Result<Key, String> {
    let algorithm = ALGS.iter().find(|(name, _)| *name == alg);
    let algorithm = algorithm.ok_or_else(|| format!("alg {alg} is not supported"))?.1;
    let unusable = |error: &dyn std::fmt::Display| format!("key {kid} cannot be used: {error}");
    let jwk: Jwk = serde_json::from_value(value.clone()).map_err(|error| unusable(&error))?;
    let decoding = DecodingKey::from_jwk(&jwk).map_err(|error| unusable(&error))?;
    if decoding.family() != algorithm.family() {
        return Err(format!("key {kid} does not fit alg {alg}"));
    }
    if !is_on_its_curve(algorithm, &decoding) {
        return Err(format!("key {kid} cannot be used: x and y are not a point on the curve of {alg}"));
    }
    Ok(Key { kid, alg, algorithm, jwk: value, decoding })
}

/// Whether an elliptic key is a point on its algorithm's curve (RFC 7518 section 6.2): no signature verifies with
/// another.
fn is_on_its_curve(algorithm: Algorithm, key: &DecodingKey) -> bool {
    let curve = match algorithm {
        Algorithm::ES256 => &ECDSA_P256_SHA256_FIXED,
        Algorithm::ES384 => &ECDSA_P384_SHA384_FIXED,
        _ => return true,
    };
    key.try_get_as_bytes().is_ok_and(|point| ParsedPublicKey::new(curve, point).is_ok())
}

/// Placeholder origin, which the edge needs to evaluate a snapshot.
const ORIGIN: &str = "http://localhost";

/// Checks that an edge accepts the keys: otherwise it would reject the whole snapshot later.
pub(super) fn check_edge_accepts(name: &str, iss: &str, keys: &[Key]) -> Result<(), String> {
    let kids: Vec<String> = keys.iter().map(|key| format!("{:?}", key.kid)).collect();
    let issuer = snapshot::Issuer {
        name: name.to_owned(),
        iss: iss.to_owned(),
        keys: keys.iter().map(Key::message).collect(),
        ..snapshot::Issuer::default()
    };
    let alone =
        EdgeSnapshot { public_url: ORIGIN.to_owned(), issuers: vec![issuer], ..EdgeSnapshot::default() };
    let evaluated = asp_edge::Snapshot::from_message(alone).map(drop);
    evaluated.map_err(|fault| format!("key {} cannot be used: {fault}", kids.join(", ")))
}
