//! The issuers of a snapshot, with the keys, token types and claims of each.
//!
//! Owns the index from the `iss` claim to an issuer and from `kid` to a key. A key is only ever looked up inside its
//! issuer, so that no issuer can sign for another (RFC 8725 section 3.8), and an issuer speaks only for the orgs that
//! the operator assigned to it.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use asp_proto::snapshot as proto;

use super::key::{self, VerificationKey};
use crate::error::SnapshotError;
use crate::machine::MACHINE_ISSUER;
use crate::names;
use crate::pattern::Pattern;

const DEFAULT_TYP: &str = "at+jwt";
/// Entry in a list of accepted `typ` headers that stands for a token without one.
const NO_TYP: &str = "none";
const DEFAULT_LIFETIME_SECONDS: u64 = 86_400;
const MAX_KID_BYTES: usize = 128;

/// One issuer, ready to verify tokens.
pub(crate) struct Issuer {
    pub(crate) name: String,
    pub(crate) iss: String,
    pub(crate) audiences: Vec<String>,
    pub(crate) claims: ClaimNames,
    pub(crate) max_lifetime: u64,
    /// Whether an unknown key may be a newer one.
    pub(crate) keys_refreshed: bool,
    /// Orgs that the issuer may speak for; empty for any.
    orgs: Vec<Pattern>,
    typ: Vec<String>,
    keys: HashMap<String, VerificationKey>,
}

/// Names of the claims that identify the caller, and defaults for tokens without them.
pub(crate) struct ClaimNames {
    pub(crate) org: String,
    pub(crate) user: String,
    pub(crate) groups: String,
    pub(crate) scopes: String,
    /// Claim of the client; if empty, `client_id`, else `azp`.
    pub(crate) client: String,
    /// Default org; if empty, a token must name one.
    pub(crate) org_default: String,
    pub(crate) groups_default: Vec<String>,
    pub(crate) scopes_default: Vec<String>,
}

/// All issuers of a snapshot.
#[derive(Default)]
pub(crate) struct Issuers {
    by_iss: HashMap<String, Issuer>,
    /// Hash over all issuers and their keys; part of every cache key.
    pub(crate) generation: u64,
}

impl Issuers {
    pub(crate) fn index(messages: &[proto::Issuer]) -> Result<Issuers, SnapshotError> {
        let mut by_iss = HashMap::new();
        let mut hasher = DefaultHasher::new();
        for (position, message) in messages.iter().enumerate() {
            let path = format!("issuers[{position}]");
            prost::Message::encode_to_vec(message).hash(&mut hasher);
            let issuer = issuer(message, &path)?;
            if [&issuer.name, &issuer.iss].iter().any(|name| *name == MACHINE_ISSUER) {
                return Err(SnapshotError::invalid(path, "has the name under which machines call"));
            }
            let named_twice = by_iss.values().any(|known: &Issuer| known.name == issuer.name);
            if named_twice || by_iss.insert(issuer.iss.clone(), issuer).is_some() {
                return Err(SnapshotError::invalid(path, "repeats the name or iss of another issuer"));
            }
        }
        Ok(Issuers { by_iss, generation: hasher.finish() })
    }

    pub(crate) fn by_iss(&self, iss: &str) -> Option<&Issuer> {
        self.by_iss.get(iss)
    }

    pub(crate) fn has_name(&self, name: &str) -> bool {
        self.by_name(name).is_some()
    }

    pub(crate) fn by_name(&self, name: &str) -> Option<&Issuer> {
        self.by_iss.values().find(|issuer| issuer.name == name)
    }
}

impl Issuer {
    /// Returns the key that a token names; a token without `kid` only fits an issuer with a single key.
    pub(crate) fn key(&self, kid: Option<&str>) -> Option<&VerificationKey> {
        match kid {
            Some(kid) => self.keys.get(kid),
            None if self.keys.len() == 1 => self.keys.values().next(),
            None => None,
        }
    }

    /// Whether tokens of this issuer may name `org`.
    pub(crate) fn speaks_for(&self, org: &str) -> bool {
        self.orgs.is_empty() || self.orgs.iter().any(|pattern| pattern.covers(Some(org)))
    }

    /// Whether the header's `typ`, or its absence, is accepted; "application/" may be left out (RFC 7515 section
    /// 4.1.9).
    pub(crate) fn accepts_typ(&self, typ: Option<&str>) -> bool {
        let typ = typ.map_or_else(|| NO_TYP.to_owned(), str::to_ascii_lowercase);
        let typ = typ.strip_prefix("application/").unwrap_or(&typ);
        self.typ.iter().any(|accepted| accepted == typ)
    }
}

/// Whether `kid` is short and printable, without white space: it is only used as a lookup key.
pub(crate) fn is_kid(kid: &str) -> bool {
    (1..=MAX_KID_BYTES).contains(&kid.len()) && kid.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Whether a header's `typ` is that of an access token (RFC 9068 section 2.1); other types serve several uses.
pub(crate) fn is_access_token(typ: Option<&str>) -> bool {
    let typ = typ.unwrap_or_default().to_ascii_lowercase();
    typ.strip_prefix("application/").unwrap_or(&typ) == DEFAULT_TYP
}

fn issuer(message: &proto::Issuer, path: &str) -> Result<Issuer, SnapshotError> {
    if message.name.is_empty() || message.iss.is_empty() {
        return Err(SnapshotError::invalid(path.to_owned(), "needs a name and an iss"));
    }
    let mut keys = HashMap::new();
    for (position, entry) in message.keys.iter().enumerate() {
        let path = format!("{path}.keys[{position}]");
        if !is_kid(&entry.kid) {
            return Err(SnapshotError::invalid(path, "kid is not 1 to 128 visible ASCII characters"));
        }
        let built = key::build(&entry.alg, &entry.jwk);
        let key = built.map_err(|fault| SnapshotError::invalid(path.clone(), &fault))?;
        if keys.insert(entry.kid.clone(), key).is_some() {
            return Err(SnapshotError::invalid(path, "repeats the kid of another key"));
        }
    }
    let default = message.claims.as_ref().map(|claims| claims.org_default.as_str()).unwrap_or_default();
    if !default.is_empty() && names::fault(default).is_some() {
        return Err(SnapshotError::invalid(format!("{path}.claims.org_default"), "is not a valid org name"));
    }
    if message.orgs.iter().any(|pattern| names::pattern_fault(pattern).is_some()) {
        return Err(SnapshotError::invalid(
            format!("{path}.orgs"),
            "has an entry that is not a name, prefix* or *",
        ));
    }
    let typ = match message.typ.as_slice() {
        [] => vec![DEFAULT_TYP.to_owned()],
        listed => listed.iter().map(|typ| typ.to_ascii_lowercase()).collect(),
    };
    let max_lifetime = match message.max_lifetime_seconds {
        0 => DEFAULT_LIFETIME_SECONDS,
        seconds => seconds,
    };
    Ok(Issuer {
        name: message.name.clone(),
        iss: message.iss.clone(),
        audiences: message.audiences.clone(),
        claims: claim_names(message.claims.as_ref()),
        max_lifetime,
        keys_refreshed: message.keys_refreshed,
        orgs: message.orgs.iter().map(|pattern| Pattern::new(pattern)).collect(),
        typ,
        keys,
    })
}

fn claim_names(message: Option<&proto::ClaimNames>) -> ClaimNames {
    let message = message.cloned().unwrap_or_default();
    let or = |name: String, default: &str| if name.is_empty() { default.to_owned() } else { name };
    ClaimNames {
        org: or(message.org, "org"),
        user: or(message.user, "sub"),
        groups: or(message.groups, "groups"),
        scopes: or(message.scopes, "scope"),
        client: message.client,
        org_default: message.org_default,
        groups_default: message.groups_default,
        scopes_default: message.scopes_default,
    }
}
