//! Bearer tokens: identifies the caller by the rules of RFC 8725 (best current practice), RFC 9068 and RFC 6750.
//!
//! Owns the cache of verified tokens, and the order of the checks: form, issuer, algorithm and key, signature; then, on
//! every request, time, issuer and audience of the server, revocation. Refuses to disclose why a token is bad beyond the
//! closed set of reasons. Never follows a header member of the token (`jku`, `x5u`, `jwk`, `x5c` are ignored, `crit` is
//! refused).

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use siphasher::sip128::SipHasher24;

use crate::caller::{Caller, hex};
use crate::reason::Reason;
use crate::revocation::Revocations;
use crate::unauthenticated::{Meter, UnauthenticatedKind};

pub(crate) mod claims;
mod compact;
pub(crate) mod issuer;
mod key;
mod refusal;
mod verified;

use claims::Claims;
use issuer::{Issuer, Issuers};
use verified::VerifiedToken;

pub use claims::{MAX_LISTED, check_use};
pub use refusal::Cause;
pub(crate) use refusal::TokenRefusal;

/// Accepted clock difference between issuer and edge. RFC 8725bis allows half a minute; hosts synchronised by NTP need
/// far less, and every second prolongs the life of an expired token.
pub const LEEWAY_SECONDS: u64 = 10;
/// Bound of one generation of verified tokens; the two together hold 8192 tokens or 8 MiB, whichever comes first.
const GOOD: CacheBound = CacheBound { entries: 4096, bytes: 4 << 20 };
/// Bound of one generation of bad signatures, which only save the cost of checking the same one again.
const BAD: CacheBound = CacheBound { entries: 512, bytes: usize::MAX };

/// Credential in an `Authorization` header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum RequestCredential<'a> {
    Nothing,
    /// A credential after `Bearer`.
    Bearer(&'a str),
    /// Another scheme, or bytes that no bearer token has.
    Other,
}

/// Issuers, revocations and audiences that decide whether a token is valid at a server.
#[derive(Clone, Copy)]
pub(crate) struct ServerTrust<'a> {
    pub(crate) issuers: &'a Issuers,
    pub(crate) revocations: &'a Revocations,
    /// Names of the server's issuers.
    pub(crate) of_server: &'a [String],
    /// Audiences that a token for the server may name.
    pub(crate) audiences: &'a [String],
}

/// Time at which the hash of a token is computed, by which a revocation list may name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hashing {
    /// Hashes at the first evaluation: the caller keeps the hash for checks after the token is gone.
    Always,
    /// Hashes only if there is a list to look it up in. In wasm, hashing takes longer than all other checks except the
    /// signature.
    WhenAsked,
}

/// Verifies tokens and caches the valid ones. Threads may share it.
pub(crate) struct Tokens {
    hashing: Hashing,
    fingerprints: Fingerprints,
    cache: Mutex<Cache>,
}

/// Parses an `Authorization` value; the scheme is case-insensitive (RFC 9110 section 11.1).
pub(crate) fn credential(authorization: Option<&[u8]>) -> RequestCredential<'_> {
    let Some(value) = authorization else { return RequestCredential::Nothing };
    let Ok(value) = std::str::from_utf8(value) else { return RequestCredential::Other };
    let (scheme, credential) = value.split_once(' ').unwrap_or((value, ""));
    match scheme.eq_ignore_ascii_case("bearer") {
        true => RequestCredential::Bearer(credential.trim_start_matches(' ')),
        false => RequestCredential::Other,
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

    /// Evaluates `token` for one server at `now` (Unix seconds).
    pub(crate) fn evaluate(
        &self,
        trust: ServerTrust<'_>,
        token: &str,
        now: u64,
    ) -> Result<Arc<Caller>, TokenRefusal> {
        self.evaluate_within(None, trust, token, now)
    }

    /// Does the same as [`Tokens::evaluate`], and checks no new signature once too many failed.
    pub(crate) fn evaluate_within(
        &self,
        meter: Option<&Meter<'_>>,
        trust: ServerTrust<'_>,
        token: &str,
        now: u64,
    ) -> Result<Arc<Caller>, TokenRefusal> {
        let verified = self.verified(meter, trust.issuers, token)?;
        let caller = &verified.caller;
        if !trust.of_server.iter().any(|name| *name == caller.issuer) {
            return Err(Cause { claim: "iss", fault: "is not an issuer of this server" }.into());
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
        if let Some(notice) = trust.revocations.find(|| verified.marks(token), caller) {
            let org = Some(caller.org.clone());
            return Err(TokenRefusal { org, ..TokenRefusal::revoked(notice) });
        }
        // It may be revoked without being known here.
        if !trust.revocations.complete() {
            return Err(Reason::UpstreamUnavailable.into());
        }
        Ok(Arc::clone(caller))
    }

    /// Returns the token's lasting facts, from the cache or by checking its signature.
    fn verified(
        &self,
        meter: Option<&Meter<'_>>,
        issuers: &Issuers,
        token: &str,
    ) -> Result<Arc<VerifiedToken>, TokenRefusal> {
        if token.len() > compact::MAX_TOKEN_BYTES {
            return Err(Reason::TokenInvalid.into());
        }
        let key = (self.fingerprints.of(token), issuers.generation);
        match self.cache().get(&key) {
            Some(CacheEntry::Good(verified)) => return Ok(verified),
            Some(CacheEntry::Bad(cause)) => return Err(TokenRefusal::invalid(cause)),
            None => {}
        }
        // The lock is not held here: two threads may verify the same token, but never wait for each other.
        match self.verify(meter, issuers, token) {
            Ok(verified) => {
                let verified = Arc::new(verified);
                self.cache().put_good(key, Arc::clone(&verified));
                Ok(verified)
            }
            Err(VerifyError::Cheap) => Err(Reason::TokenInvalid.into()),
            Err(VerifyError::UnknownKey(issuer)) => Err(TokenRefusal::unknown_key(issuer)),
            Err(VerifyError::TooMany(seconds)) => Err(TokenRefusal::too_many(seconds)),
            Err(VerifyError::Costly(cause)) => {
                self.cache().put_bad(key, cause);
                Err(TokenRefusal::invalid(cause))
            }
        }
    }

    fn verify(
        &self,
        meter: Option<&Meter<'_>>,
        issuers: &Issuers,
        token: &str,
    ) -> Result<VerifiedToken, VerifyError> {
        let parts = compact::parse(token).ok_or(VerifyError::Cheap)?;
        let iss = parts.claims.get("iss").and_then(|iss| iss.as_str()).ok_or(VerifyError::Cheap)?;
        let issuer = issuers.by_iss(iss).ok_or(VerifyError::Cheap)?;
        let key = header_key(&parts, issuer)?;
        let taken = meter.map(|meter| meter.take(UnauthenticatedKind::Signature)).transpose();
        let taken = taken.map_err(VerifyError::TooMany)?;
        let signed = parts.signed.as_bytes();
        let good = jsonwebtoken::crypto::verify(parts.signature, signed, &key.decoding, key.algorithm);
        if !good.unwrap_or(false) {
            return Err(VerifyError::Costly(None));
        }
        // Only checks that fail count.
        if let Some(meter) = meter {
            meter.give_back(taken.flatten());
        }
        let costly = |cause| VerifyError::Costly(Some(cause));
        if !issuer::is_access_token(parts.header.get("typ").and_then(Value::as_str)) {
            claims::check_use(&parts.claims).map_err(costly)?;
        }
        let claims = claims::read(&parts.claims, issuer).map_err(costly)?;
        // A token without an id is identified by its hash.
        let digest = match (self.hashing, &claims.jti) {
            (Hashing::WhenAsked, Some(_)) => [0; 32],
            (Hashing::WhenAsked, None) | (Hashing::Always, _) => Sha256::digest(token).into(),
        };
        Ok(facts(claims, issuer, digest))
    }

    fn cache(&self) -> std::sync::MutexGuard<'_, Cache> {
        // Each entry of the cache is either correct or absent; a panic elsewhere does not corrupt it.
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

enum VerifyError {
    /// Found without cryptography; not worth caching.
    Cheap,
    /// The named issuer may have created a key since its keys were fetched.
    UnknownKey(String),
    /// Refusal to check, for this number of seconds: too many checks for this client failed.
    TooMany(u64),
    /// Bad signature, or claims under a good one that can never become acceptable.
    Costly(Option<Cause>),
}

/// Returns the key that the header refers to, if everything else in the header is acceptable.
fn header_key<'a>(
    parts: &compact::Compact<'_>,
    issuer: &'a Issuer,
) -> Result<&'a key::VerificationKey, VerifyError> {
    let header = &parts.header;
    // An absent member is valid, one that is not a string is not.
    let text = |name: &str| match header.get(name) {
        None => Ok(None),
        Some(value) => value.as_str().map(Some).ok_or(VerifyError::Cheap),
    };
    if header.contains_key("crit") || !issuer.accepts_typ(text("typ")?) {
        return Err(VerifyError::Cheap);
    }
    let alg = text("alg")?.ok_or(VerifyError::Cheap)?;
    let kid = text("kid")?;
    if !kid.is_none_or(issuer::is_kid) {
        return Err(VerifyError::Cheap);
    }
    match issuer.key(kid) {
        Some(key) if key.name == alg => Ok(key),
        None if issuer.keys_refreshed && kid.is_some() && key::ALGS.contains(&alg) => {
            Err(VerifyError::UnknownKey(issuer.name.clone()))
        }
        _ => Err(VerifyError::Cheap),
    }
}

/// Returns the caller of a token that its issuer reports as active, by the rules for claims.
pub(crate) fn introspected(
    issuer: &Issuer,
    said: &Map<String, Value>,
    (digest, of_server, accepted): ([u8; 32], &[String], &[String]),
    now: u64,
) -> Result<Caller, Cause> {
    let mut said = said.clone();
    if said.get("iss").is_some_and(|iss| iss.as_str() != Some(issuer.iss.as_str())) {
        return Err(Cause { claim: "iss", fault: "differs from the issuer that introspected the token" });
    }
    claims::check_use(&said)?;
    let kind = said.get("token_type").map(|kind| kind.as_str().unwrap_or_default());
    if kind.is_some_and(|kind| !kind.eq_ignore_ascii_case("bearer")) {
        return Err(Cause { claim: "token_type", fault: "is not Bearer" });
    }
    // Members are optional in an introspection response. Without `exp`, the token is valid for the maximum lifetime
    // from now, and its issuer is asked again soon. Without `iat`, it counts as the oldest possible, so that no
    // revocation of its user misses it.
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

fn facts(claims: Claims, issuer: &Issuer, digest: [u8; 32]) -> VerifiedToken {
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
    VerifiedToken {
        iss: issuer.iss.clone(),
        marks: OnceLock::new(),
        caller: Arc::new(caller),
        audiences: claims.audiences,
        issuer_audience,
        not_before: claims.not_before,
    }
}

/// Fingerprint of the compact token, and the generation of the issuers that it was verified against.
type CacheKey = (u128, u64);

/// Computes fingerprints with SipHash-2-4-128, a pseudo-random function, under a secret key drawn by this process, so
/// that nobody can construct two tokens with the same fingerprint.
struct Fingerprints {
    key: (u64, u64),
}

impl Default for Fingerprints {
    fn default() -> Fingerprints {
        let drawn = RandomState::new();
        Fingerprints { key: (drawn.hash_one(0), drawn.hash_one(1)) }
    }
}

impl Fingerprints {
    fn of(&self, token: &str) -> u128 {
        SipHasher24::new_with_keys(self.key.0, self.key.1).hash(token.as_bytes()).as_u128()
    }
}

/// Cache of verified tokens, so that a signature is checked once and not on every request.
///
/// A bounded map with two generations: when the young one is full it becomes the old one, so that recently used entries
/// stay. Keys include the key generation of the snapshot: after a key change, older entries are no longer found. Only
/// the result of the signature check is cached; time, audience and revocation are checked on each request. A token is
/// identified by a keyed fingerprint: it is computed on every request, and in wasm the SHA-256 of a token costs several
/// times as much as all other work on a cached one.
#[derive(Default)]
struct Cache {
    good: Generations<Arc<VerifiedToken>>,
    bad: Generations<Option<Cause>>,
}

enum CacheEntry {
    Good(Arc<VerifiedToken>),
    Bad(Option<Cause>),
}

impl Cache {
    fn get(&mut self, key: &CacheKey) -> Option<CacheEntry> {
        let good = self.good.get(key, GOOD).map(CacheEntry::Good);
        good.or_else(|| self.bad.get(key, BAD).map(CacheEntry::Bad))
    }

    fn put_good(&mut self, key: CacheKey, verified: Arc<VerifiedToken>) {
        let bytes = verified.size();
        self.good.put(key, verified, bytes, GOOD);
    }

    fn put_bad(&mut self, key: CacheKey, cause: Option<Cause>) {
        self.bad.put(key, cause, 0, BAD);
    }
}

#[derive(Clone, Copy)]
struct CacheBound {
    entries: usize,
    bytes: usize,
}

struct Generations<V> {
    young: HashMap<CacheKey, (V, usize)>,
    /// Sum of the sizes in `young`.
    young_bytes: usize,
    old: HashMap<CacheKey, (V, usize)>,
}

impl<V> Default for Generations<V> {
    fn default() -> Generations<V> {
        Generations { young: HashMap::new(), young_bytes: 0, old: HashMap::new() }
    }
}

impl<V: Clone> Generations<V> {
    fn get(&mut self, key: &CacheKey, bound: CacheBound) -> Option<V> {
        if let Some((value, _)) = self.young.get(key) {
            return Some(value.clone());
        }
        let (value, bytes) = self.old.remove(key)?;
        self.put(*key, value.clone(), bytes, bound);
        Some(value)
    }

    fn put(&mut self, key: CacheKey, value: V, bytes: usize, bound: CacheBound) {
        if self.young.len() >= bound.entries || self.young_bytes >= bound.bytes {
            self.old = std::mem::take(&mut self.young);
            self.young_bytes = 0;
        }
        if self.young.insert(key, (value, bytes)).is_none() {
            self.young_bytes += bytes;
        }
    }
}

#[cfg(test)]
mod tests;
