//! Bearer tokens: who the caller is, by the rules of RFC 8725 (best current practice), RFC 9068 and RFC 6750.
//!
//! Owns the order of the checks: form, issuer, algorithm and key, signature; then, on every request, time,
//! issuer and audience of the server, revocation. Refuses to say why a token is bad beyond the closed
//! reasons. Never follows a header member of the token (`jku`, `x5u`, `jwk`, `x5c` are ignored, `crit` refused).

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::caller::{Caller, hex};
use crate::reason::Reason;
use crate::revocation::Revocations;

mod cache;
pub(crate) mod claims;
mod compact;
pub(crate) mod issuer;
mod key;
mod refused;
mod verified;

use cache::{Cache, Fingerprints, Known};
use claims::Claims;
use issuer::{Issuer, Issuers};
use verified::Verified;

pub use claims::{MAX_LISTED, check_use};
pub use refused::Cause;
pub(crate) use refused::Refused;

/// Accepted clock difference between issuer and edge. RFC 8725bis allows half a minute; hosts that keep time
/// by NTP need far less, and every second of it prolongs a dead token's life.
pub const LEEWAY_SECONDS: u64 = 10;

/// What an `Authorization` header offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Offered<'a> {
    Nothing,
    /// A credential after `Bearer`.
    Bearer(&'a str),
    /// Another scheme, or bytes that no bearer token has.
    Other,
}

/// Whose tokens are good where.
#[derive(Clone, Copy)]
pub(crate) struct Trust<'a> {
    pub(crate) issuers: &'a Issuers,
    pub(crate) revocations: &'a Revocations,
    /// The server's issuers, by name.
    pub(crate) of_server: &'a [String],
    /// What a token for the server may name.
    pub(crate) audiences: &'a [String],
}

/// When the hash of a token is taken, by which a list of revoked ones may name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hashing {
    /// With its first judgement: the caller carries it, for whoever asks when the token is there no more.
    Always,
    /// When a list is there to look it up in. In wasm it takes longer than all else about a token but its signature.
    WhenAsked,
}

/// Judges tokens and remembers the good ones. Shared by threads.
pub(crate) struct Tokens {
    hashing: Hashing,
    fingerprints: Fingerprints,
    cache: Mutex<Cache>,
}

/// Reads an `Authorization` value; the scheme is case-insensitive (RFC 9110 section 11.1).
pub(crate) fn offered(authorization: Option<&[u8]>) -> Offered<'_> {
    let Some(value) = authorization else { return Offered::Nothing };
    let Ok(value) = std::str::from_utf8(value) else { return Offered::Other };
    let (scheme, credential) = value.split_once(' ').unwrap_or((value, ""));
    match scheme.eq_ignore_ascii_case("bearer") {
        true => Offered::Bearer(credential.trim_start_matches(' ')),
        false => Offered::Other,
    }
}

/// Whether a bearer credential has the form of a signed token.
pub(crate) fn looks_like_jwt(token: &str) -> bool {
    compact::looks_like_jwt(token)
}

impl Tokens {
    pub(crate) fn new(hashing: Hashing) -> Tokens {
        Tokens { hashing, fingerprints: Fingerprints::default(), cache: Mutex::default() }
    }

    /// Judges `token` for one server at `now` (Unix seconds).
    pub(crate) fn judge(&self, trust: Trust<'_>, token: &str, now: u64) -> Result<Arc<Caller>, Refused> {
        let verified = self.verified(trust.issuers, token)?;
        let caller = &verified.caller;
        if !trust.of_server.iter().any(|name| *name == caller.issuer) {
            return Err(Cause { claim: "iss", fault: "is no issuer of this server" }.into());
        }
        let for_server = verified.audiences.iter().any(|audience| trust.audiences.contains(audience));
        if !for_server && !verified.issuer_audience {
            return Err(Cause { claim: "aud", fault: "does not name this server" }.into());
        }
        if caller.issued_at > now + LEEWAY_SECONDS || verified.not_before > now + LEEWAY_SECONDS {
            return Err(Cause { claim: "iat or nbf", fault: "is in the future" }.into());
        }
        if caller.expires_at.saturating_add(LEEWAY_SECONDS) <= now {
            return Err(Reason::TokenExpired.into());
        }
        if trust.revocations.hit(|| verified.marks(token), caller) {
            return Err(Reason::TokenRevoked.into());
        }
        // It may be revoked, and nobody here knows.
        if !trust.revocations.complete() {
            return Err(Reason::UpstreamUnavailable.into());
        }
        Ok(Arc::clone(caller))
    }

    /// The token's lasting facts, from the cache or by checking its signature.
    fn verified(&self, issuers: &Issuers, token: &str) -> Result<Arc<Verified>, Refused> {
        if token.len() > compact::MAX_TOKEN_BYTES {
            return Err(Reason::TokenInvalid.into());
        }
        let key = (self.fingerprints.of(token), issuers.generation);
        match self.cache().get(&key) {
            Some(Known::Good(verified)) => return Ok(verified),
            Some(Known::Bad(cause)) => return Err(Refused::invalid(cause)),
            None => {}
        }
        // The lock is not held here: threads may check the same token twice, and never wait for each other.
        match self.verify(issuers, token) {
            Ok(verified) => {
                let verified = Arc::new(verified);
                self.cache().put_good(key, Arc::clone(&verified));
                Ok(verified)
            }
            Err(Fault::Cheap) => Err(Reason::TokenInvalid.into()),
            Err(Fault::UnknownKey(issuer)) => Err(Refused::unknown_key(issuer)),
            Err(Fault::Costly(cause)) => {
                self.cache().put_bad(key, cause);
                Err(Refused::invalid(cause))
            }
        }
    }

    fn verify(&self, issuers: &Issuers, token: &str) -> Result<Verified, Fault> {
        let parts = compact::parse(token).ok_or(Fault::Cheap)?;
        let iss = parts.claims.get("iss").and_then(|iss| iss.as_str()).ok_or(Fault::Cheap)?;
        let issuer = issuers.by_iss(iss).ok_or(Fault::Cheap)?;
        let key = header_key(&parts, issuer)?;
        let signed = parts.signed.as_bytes();
        let good = jsonwebtoken::crypto::verify(parts.signature, signed, &key.decoding, key.algorithm);
        if !good.unwrap_or(false) {
            return Err(Fault::Costly(None));
        }
        let costly = |cause| Fault::Costly(Some(cause));
        if !issuer::is_access_token(parts.header.get("typ").and_then(Value::as_str)) {
            claims::check_use(&parts.claims).map_err(costly)?;
        }
        let claims = claims::read(&parts.claims, issuer).map_err(costly)?;
        // A token without an id is named by its hash.
        let digest = match (self.hashing, &claims.jti) {
            (Hashing::WhenAsked, Some(_)) => [0; 32],
            (Hashing::WhenAsked, None) | (Hashing::Always, _) => Sha256::digest(token).into(),
        };
        Ok(facts(claims, issuer, digest))
    }

    fn cache(&self) -> std::sync::MutexGuard<'_, Cache> {
        // A cache is right or absent in each entry; a panic elsewhere does not make it wrong.
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

enum Fault {
    /// Found without cryptography; not worth remembering.
    Cheap,
    /// The issuer of this name may have made a new key since its keys were fetched.
    UnknownKey(String),
    /// A bad signature, or claims under a good one that no time makes acceptable.
    Costly(Option<Cause>),
}

/// The key the header points to, if everything else in the header is acceptable.
fn header_key<'a>(
    parts: &compact::Compact<'_>,
    issuer: &'a Issuer,
) -> Result<&'a key::VerificationKey, Fault> {
    let header = &parts.header;
    // Absent is one thing, no text another.
    let text = |name: &str| match header.get(name) {
        None => Ok(None),
        Some(value) => value.as_str().map(Some).ok_or(Fault::Cheap),
    };
    if header.contains_key("crit") || !issuer.accepts_typ(text("typ")?) {
        return Err(Fault::Cheap);
    }
    let alg = text("alg")?.ok_or(Fault::Cheap)?;
    let kid = text("kid")?;
    if !kid.is_none_or(issuer::is_kid) {
        return Err(Fault::Cheap);
    }
    match issuer.key(kid) {
        Some(key) if key.name == alg => Ok(key),
        None if issuer.keys_refreshed && kid.is_some() && key::is_alg(alg) => {
            Err(Fault::UnknownKey(issuer.name.clone()))
        }
        _ => Err(Fault::Cheap),
    }
}

/// The caller whose token an issuer says is active, by the rules for claims.
pub(crate) fn introspected(
    issuer: &Issuer,
    said: &Map<String, Value>,
    (digest, of_server, accepted): ([u8; 32], &[String], &[String]),
    now: u64,
) -> Result<Caller, Cause> {
    let mut said = said.clone();
    if said.get("iss").is_some_and(|iss| iss.as_str() != Some(issuer.iss.as_str())) {
        return Err(Cause { claim: "iss", fault: "is another than the issuer that was asked" });
    }
    claims::check_use(&said)?;
    let kind = said.get("token_type").map(|kind| kind.as_str().unwrap_or_default());
    if kind.is_some_and(|kind| !kind.eq_ignore_ascii_case("bearer")) {
        return Err(Cause { claim: "token_type", fault: "is not Bearer" });
    }
    // Members are optional there. Without an end it lives as long as one may that begins now: its issuer is asked again
    // soon. Without a beginning it is as old as it may be, so that no revocation of its user misses it.
    let is_undated = !said.contains_key("iat");
    let begin = match said.get("exp").and_then(Value::as_u64) {
        Some(end) => end.saturating_sub(issuer.max_lifetime),
        None => now,
    };
    let begin = said.entry("iat").or_insert_with(|| begin.into()).as_u64().unwrap_or(now);
    said.entry("exp").or_insert_with(|| begin.saturating_add(issuer.max_lifetime).into());
    let any = accepted.iter().any(|audience| audience == "*");
    if any {
        said.entry("aud").or_insert_with(|| Value::Array(Vec::new()));
    }
    let claims = claims::read(&said, issuer)?;
    let names = |listed: &[String]| {
        listed.iter().any(|audience| claims.audiences.contains(&claims::canonical_audience(audience)))
    };
    if !any && !names(of_server) && !names(accepted) && !names(&issuer.audiences) {
        return Err(Cause { claim: "aud", fault: "does not name this server" });
    }
    if claims.issued_at > now + LEEWAY_SECONDS || claims.not_before > now + LEEWAY_SECONDS {
        return Err(Cause { claim: "iat or nbf", fault: "is in the future" });
    }
    let mut caller = Arc::unwrap_or_clone(facts(claims, issuer, digest).caller);
    if is_undated {
        caller.issued_at = now.saturating_sub(issuer.max_lifetime).min(caller.issued_at);
    }
    Ok(caller)
}

fn facts(claims: Claims, issuer: &Issuer, digest: [u8; 32]) -> Verified {
    let issuer_audience = issuer.audiences.iter().any(|accepted| {
        let accepted = claims::canonical_audience(accepted);
        claims.audiences.contains(&accepted)
    });
    let caller = Caller {
        org: claims.org,
        user: claims.user,
        groups: claims.groups,
        scopes: claims.scopes,
        client: claims.client,
        wcit: claims.jti.unwrap_or_else(|| hex(&digest)),
        digest,
        issuer: issuer.name.clone(),
        issued_at: claims.issued_at,
        expires_at: claims.expires_at,
    };
    Verified {
        iss: issuer.iss.clone(),
        marks: OnceLock::new(),
        caller: Arc::new(caller),
        audiences: claims.audiences,
        issuer_audience,
        not_before: claims.not_before,
    }
}

#[cfg(test)]
mod tests;
