//! Signatures of cards: JWS (RFC 7515) over the canonical form, whose payload is left out.
//!
//! Keeps true: a verifier by the specification's text and one of the official SDKs, which drops everything empty, both find a
//! signature of theirs; a header that names critical extensions is refused; only ES256 and EdDSA are known, so that an algorithm
//! cannot be confused with another.

use asp_json::{Json, Members, elements, named, string};
use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED, ED25519, UnparsedPublicKey};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::canonical::{NotCanonical, ascii, canonical, canonical_value};
use super::schema::{former, project, prune};
use crate::json::writer;

/// Maximum number of signatures that are tried, and of keys in a set.
const MAX_TRIED: usize = 16;
/// Length of a coordinate or key of both curves, in bytes.
const KEY_BYTES: usize = 32;

/// Signature algorithm (RFC 7518, RFC 8037).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Algorithm {
    Es256,
    EdDsa,
}

impl Algorithm {
    pub const fn as_str(self) -> &'static str {
        match self {
            Algorithm::Es256 => "ES256",
            Algorithm::EdDsa => "EdDSA",
        }
    }

    fn parse(name: &str) -> Option<Algorithm> {
        [Algorithm::Es256, Algorithm::EdDsa].into_iter().find(|algorithm| algorithm.as_str() == name)
    }
}

/// A key that signs.
pub struct CardSigner<'k> {
    pub algorithm: Algorithm,
    pub kid: &'k str,
    /// URL of the key set with the public key.
    pub jku: Option<&'k str>,
    /// Returns the signature of a message, 64 bytes in both algorithms (for ES256 r and s); `None` if the key cannot be used.
    pub sign: &'k (dyn Fn(&[u8]) -> Option<Vec<u8>> + Sync),
}

/// The reason why a card cannot be signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignFault {
    #[error("the agent card cannot be signed: {0}")]
    NotCanonical(#[from] NotCanonical),
    #[error("the key that signs agent cards cannot be used")]
    Key,
}

/// Returns the card with a signature by each key, instead of those that it had. If the canonical form by the specification and
/// that of the SDKs differ, each key signs both.
pub fn sign(card: &Json, signers: &[CardSigner<'_>]) -> Result<Json, SignFault> {
    // Refuses ambiguous texts.
    canonical(card)?;
    let payloads = payloads(card)?;
    let mut signatures = Vec::new();
    for signer in signers {
        let protected = protected(signer);
        for payload in &payloads {
            let signature = (signer.sign)(&signing_input(&protected, payload)).ok_or(SignFault::Key)?;
            signatures.push(writer::object(|writer| {
                writer.string("protected", &protected);
                writer.string("signature", &URL_SAFE_NO_PAD.encode(&signature));
            }));
        }
    }
    let mut members = Members::of(card);
    members.remove("signatures");
    if !signatures.is_empty() {
        members.insert("signatures", Json::part(format!("[{}]", signatures.join(","))));
    }
    Ok(members.to_json())
}

/// Returns what is signed: the canonical form by the specification, and that of the SDKs if it is another one.
fn payloads(card: &Json) -> Result<Vec<String>, NotCanonical> {
    let projection = project(card.view());
    let mut payloads = vec![canonical_value(&projection)?];
    let pruned = canonical_value(&prune(&projection))?;
    if !payloads.contains(&pruned) {
        payloads.push(pruned);
    }
    Ok(payloads)
}

fn protected(signer: &CardSigner<'_>) -> String {
    let header = writer::object(|writer| {
        writer.string("alg", signer.algorithm.as_str());
        writer.string("typ", "JOSE");
        writer.string("kid", signer.kid);
        writer.option("jku", signer.jku);
    });
    URL_SAFE_NO_PAD.encode(header)
}

fn signing_input(protected: &str, payload: &str) -> Vec<u8> {
    format!("{protected}.{}", URL_SAFE_NO_PAD.encode(payload)).into_bytes()
}

/// Public key for signatures of cards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CardKey {
    pub kid: Option<String>,
    algorithm: Algorithm,
    /// An uncompressed point of P-256, or a key of Ed25519.
    bytes: Vec<u8>,
}

impl CardKey {
    /// Reads a JSON Web Key (RFC 7517) of P-256 or Ed25519; `None` for another key.
    pub fn of_jwk(text: &str) -> Option<CardKey> {
        let [kty, crv, x, y, kid] =
            named(text, ["kty", "crv", "x", "y", "kid"])?.map(|text| text.and_then(string));
        let decode = |text: &str| URL_SAFE_NO_PAD.decode(text).ok().filter(|bytes| bytes.len() == KEY_BYTES);
        let x = decode(&x?)?;
        let (algorithm, bytes) = match (kty?.as_ref(), crv?.as_ref()) {
            ("EC", "P-256") => (Algorithm::Es256, [vec![4], x, decode(&y?)?].concat()),
            ("OKP", "Ed25519") => (Algorithm::EdDsa, x),
            _ => return None,
        };
        Some(CardKey { kid: kid.map(|kid| kid.into_owned()), algorithm, bytes })
    }

    /// Reads the usable keys of a JSON Web Key Set, at most 16.
    pub fn of_jwks(text: &str) -> Vec<CardKey> {
        let keys = named(text, ["keys"]).and_then(|[keys]| keys).and_then(elements).unwrap_or_default();
        keys.into_iter().filter_map(CardKey::of_jwk).take(MAX_TRIED).collect()
    }

    /// Returns the thumbprint (RFC 7638), by which a key is known whatever its `kid` is.
    pub fn thumbprint(&self) -> String {
        let encode = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let jwk = match self.algorithm {
            Algorithm::Es256 => {
                let mut point = self.bytes.get(1..).unwrap_or_default().chunks(KEY_BYTES).map(encode);
                let x = point.next().unwrap_or_default();
                let y = point.next().unwrap_or_default();
                format!(r#"{{"crv":"P-256","kty":"EC","x":"{x}","y":"{y}"}}"#)
            }
            Algorithm::EdDsa => {
                format!(r#"{{"crv":"Ed25519","kty":"OKP","x":"{}"}}"#, encode(self.bytes.as_slice()))
            }
        };
        encode(digest(&SHA256, jwk.as_bytes()).as_ref())
    }

    fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        let key = match self.algorithm {
            Algorithm::Es256 => UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, &self.bytes),
            Algorithm::EdDsa => UnparsedPublicKey::new(&ED25519, &self.bytes),
        };
        key.verify(message, signature).is_ok()
    }
}

/// One signature of a card, not yet verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CardSignature {
    pub kid: Option<String>,
    /// URL of a key set, which is the word of whoever wrote the card.
    pub jku: Option<String>,
    algorithm: Algorithm,
    protected: String,
    signature: Vec<u8>,
}

impl CardSignature {
    /// Returns the signatures of a card that can be verified, at most 16.
    pub fn all_of(card: &Json) -> Vec<CardSignature> {
        let signatures = card.member("signatures").and_then(|list| list.elements()).unwrap_or_default();
        signatures.iter().filter_map(CardSignature::read).take(MAX_TRIED).collect()
    }

    fn read(json: &Json) -> Option<CardSignature> {
        let [protected, signature] =
            named(json.text(), ["protected", "signature"])?.map(|text| text.and_then(string));
        let protected = protected?;
        let header = String::from_utf8(URL_SAFE_NO_PAD.decode(protected.as_bytes()).ok()?).ok()?;
        let [alg, kid, jku, critical, encoded] = named(&header, ["alg", "kid", "jku", "crit", "b64"])?;
        if critical.is_some() || encoded.is_some() {
            return None;
        }
        let owned = |text: Option<&str>| text.and_then(string).map(|text| text.into_owned());
        Some(CardSignature {
            kid: owned(kid),
            jku: owned(jku),
            algorithm: Algorithm::parse(&alg.and_then(string)?)?,
            signature: URL_SAFE_NO_PAD.decode(signature?.as_bytes()).ok()?,
            protected: protected.into_owned(),
        })
    }
}

/// The reason why a card counts as unsigned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VerifyFault {
    #[error("the agent card has no signature of a known algorithm")]
    Unsigned,
    #[error("none of the given keys is one of the agent card's signatures")]
    UnknownKey,
    #[error("no signature of the agent card verifies")]
    Mismatch,
    #[error("the agent card has no canonical form: {0}")]
    NotCanonical(#[from] NotCanonical),
}

/// Verifies a card, and returns the signature by which it holds. A signature may cover the card as the specification says, as the
/// SDKs do, or the whole document with fields that the schema of 1.0 does not have, also in the form of the Python SDK for 0.3.
pub fn verify(card: &Json, keys: &[CardKey]) -> Result<CardSignature, VerifyFault> {
    let signatures = CardSignature::all_of(card);
    if signatures.is_empty() {
        return Err(VerifyFault::Unsigned);
    }
    let mut whole = Members::of(card);
    whole.remove("signatures");
    let mut payloads = payloads(card)?;
    let whole = whole.to_json();
    payloads.push(canonical(&whole)?);
    payloads.push(ascii(&canonical_value(&former(whole.view()))?));
    let mut fault = VerifyFault::UnknownKey;
    for signature in signatures {
        for key in keys.iter().take(MAX_TRIED) {
            let is_named = key.kid.is_none() || signature.kid.is_none() || key.kid == signature.kid;
            if !is_named || key.algorithm != signature.algorithm {
                continue;
            }
            fault = VerifyFault::Mismatch;
            let verifies = |payload: &String| {
                key.verifies(&signing_input(&signature.protected, payload), &signature.signature)
            };
            if payloads.iter().any(verifies) {
                return Ok(signature);
            }
        }
    }
    Err(fault)
}

#[cfg(test)]
mod tests;
