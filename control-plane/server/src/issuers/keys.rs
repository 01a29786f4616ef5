//! An issuer's public keys, each bound to one algorithm (RFC 8725 section 3.1).
//!
//! Owns what a key must be. Keys that an operator wrote are all good, or the document is refused; of those that an issuer
//! publishes the good ones are taken, because it publishes others for others (RFC 7517 section 5).

use std::collections::HashMap;

use asp_proto::snapshot::{self, EdgeSnapshot};
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ParsedPublicKey};
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, DecodingKey};
use serde_json::Value;

use super::document::Document;

/// Keys of an issuer, at most.
pub(super) const MAX_KEYS: usize = 50;
/// Members of a JWK that are private (RFC 7518 section 6): such a key has no place here.
const PRIVATE_MEMBERS: [&str; 8] = ["d", "p", "q", "dp", "dq", "qi", "oth", "k"];
/// Largest published key, in bytes of JSON: an RSA key of 8,192 bits has less.
const MAX_KEY: usize = 2_048;
/// All published keys of one issuer: what one publishes is not to take the room of others.
const MAX_PUBLISHED: usize = 16 * 1024;
/// What the edge accepts (`snapshot.proto`, `Key.alg`); the first that fits is that of a key that names none.
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

/// The keys of a document that has them.
pub(super) fn written(document: &Document, keys: &[Value]) -> Result<Vec<Key>, String> {
    if keys.is_empty() || keys.len() > MAX_KEYS {
        return Err(format!("jwks must have 1 to {MAX_KEYS} keys"));
    }
    keys.iter().map(|jwk| written_key(document, jwk)).collect()
}

/// One of them.
pub(super) fn written_key(document: &Document, value: &Value) -> Result<Key, String> {
    let kid = kid(value)?;
    // A key without `alg` takes the issuer's only one.
    let alg = match (text(value, "alg"), document.algs.as_slice()) {
        (Some(alg), algs) if algs.iter().any(|allowed| allowed == alg) => alg.to_owned(),
        (None, [only]) => only.clone(),
        _ => return Err(format!("key {kid} must name one of the issuer's algs")),
    };
    key(kid, alg, value.clone())
}

/// The good ones of the keys that an issuer publishes, and what is wrong with the others. Of two with one name neither is
/// taken: which one signed cannot be told.
pub(super) fn published(document: &Document, keys: &[Value]) -> (Vec<Key>, Vec<String>) {
    let mut named: HashMap<&str, usize> = HashMap::new();
    for key in keys {
        *named.entry(text(key, "kid").unwrap_or_default()).or_default() += 1;
    }
    let mut good: Vec<Key> = Vec::new();
    let mut faults = Vec::new();
    let mut bytes = 0;
    for value in keys.iter().take(MAX_KEYS) {
        match published_key(document, value) {
            Ok(key) if named.get(key.kid.as_str()).is_some_and(|count| *count > 1) => {
                faults.push(format!("two keys have the kid {:?}", key.kid));
            }
            Ok(key) => {
                bytes += key.jwk.to_string().len();
                if bytes > MAX_PUBLISHED {
                    faults.push(format!(
                        "its keys take more than {MAX_PUBLISHED} bytes, the first of them are taken"
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

fn published_key(document: &Document, value: &Value) -> Result<Key, String> {
    let kid = kid(value)?;
    let is_allowed =
        |alg: &str| document.algs.is_empty() || document.algs.iter().any(|allowed| allowed == alg);
    let alg = match text(value, "alg") {
        Some(alg) => Some(alg),
        None => ALGS.iter().map(|(alg, _)| *alg).find(|alg| fits(value, alg) && is_allowed(alg)),
    };
    let alg =
        alg.filter(|alg| is_allowed(alg)).ok_or_else(|| format!("key {kid} is for none of the algs"))?;
    // A certificate chain beside a key, or members of another kind of key, would only make snapshots larger.
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
    at_the_edge(&document.name, &document.iss, std::slice::from_ref(&key))?;
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

/// The key's name; whatever else is said of it, it is a public one.
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
        return Err(format!("key {kid} cannot be used: x and y are no point of the curve of {alg}"));
    }
    Ok(Key { kid, alg, algorithm, jwk: value, decoding })
}

/// Whether an elliptic key is a point of its algorithm's curve (RFC 7518 section 6.2): no signature ever fits another.
fn is_on_its_curve(algorithm: Algorithm, key: &DecodingKey) -> bool {
    let curve = match algorithm {
        Algorithm::ES256 => &ECDSA_P256_SHA256_FIXED,
        Algorithm::ES384 => &ECDSA_P384_SHA384_FIXED,
        _ => return true,
    };
    key.try_get_as_bytes().is_ok_and(|point| ParsedPublicKey::new(curve, point).is_ok())
}

/// Any origin: the edge wants one to evaluate a snapshot.
const ORIGIN: &str = "http://localhost";

/// Whether an edge takes the keys: what it would refuse later would refuse the whole snapshot.
pub(super) fn at_the_edge(name: &str, iss: &str, keys: &[Key]) -> Result<(), String> {
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
