//! Who calls the admin API: a bearer token of the admin audience with a role.
//!
//! Refuses client tokens (their audience differs), other algorithms than the key's, and every token type
//! but `at+jwt` (RFC 8725 section 3.11).

use std::sync::Arc;

use axum::extract::FromRequestParts;
use http::header;
use http::request::Parts;
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use serde::Deserialize;

use super::AdminState;
use super::problem::{Code, Problem};
use crate::admin_role::{Role, valid_org};
use crate::clock;
use crate::issuer::{ADMIN_AUDIENCE, TYP};
use crate::policy;

/// Longer tokens are not even looked at, in bytes.
const MAX_TOKEN: usize = 8 * 1024;
/// Clocks of two machines differ by no more, in seconds.
const LEEWAY: u64 = 30;

/// An issuer whose tokens open the admin API.
pub struct TrustedIssuer {
    pub iss: String,
    pub kid: String,
    pub algorithm: Algorithm,
    pub key: DecodingKey,
}

/// Verifies admin tokens.
#[derive(Default)]
pub struct Verifier {
    issuers: Vec<TrustedIssuer>,
}

#[derive(Deserialize)]
struct Claims {
    iss: String,
    sub: String,
    #[serde(default)]
    jti: String,
    role: String,
}

/// An admin whose token was verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admin {
    pub name: String,
    pub role: Role,
}

impl Verifier {
    pub fn new(issuers: Vec<TrustedIssuer>) -> Verifier {
        Verifier { issuers }
    }

    /// Verifies a compact token; `revoked` are the entries of the published `EdgeSnapshot.revoked`.
    pub fn verify(&self, token: &str, revoked: &[u8]) -> Result<Admin, Problem> {
        let invalid = || Problem::new(Code::TokenInvalid, "");
        if token.len() > MAX_TOKEN {
            return Err(invalid());
        }
        let token_header = jsonwebtoken::decode_header(token).map_err(|_| invalid())?;
        if !token_header.typ.is_some_and(|typ| typ.eq_ignore_ascii_case(TYP)) {
            return Err(invalid());
        }
        let kid = token_header.kid.ok_or_else(invalid)?;
        let issuer = self.issuers.iter().find(|issuer| issuer.kid == kid).ok_or_else(invalid)?;
        let mut rules = Validation::new(issuer.algorithm);
        rules.leeway = LEEWAY;
        rules.validate_nbf = true;
        rules.set_audience(&[ADMIN_AUDIENCE]);
        rules.set_issuer(&[&issuer.iss]);
        rules.set_required_spec_claims(&["exp", "aud", "iss", "sub"]);
        let decoded =
            jsonwebtoken::decode::<Claims>(token, &issuer.key, &rules).map_err(|error| {
                match error.kind() {
                    ErrorKind::ExpiredSignature => Problem::new(Code::TokenExpired, ""),
                    _ => invalid(),
                }
            })?;
        let claims = decoded.claims;
        if policy::is_revoked(revoked, &claims.iss, &claims.jti, token) {
            return Err(Problem::new(Code::TokenRevoked, ""));
        }
        let role = Role::parse(&claims.role).ok_or_else(invalid)?;
        Ok(Admin { name: claims.sub, role })
    }
}

impl Admin {
    /// The name in the audit.
    pub fn actor(&self) -> String {
        let org = self.role.org().unwrap_or("platform");
        format!("{}@{org}", self.name)
    }

    /// The role must reach the whole platform.
    pub fn platform(&self) -> Result<(), Problem> {
        if self.role.is_platform() {
            Ok(())
        } else {
            Err(Problem::new(Code::Forbidden, "needs role platform"))
        }
    }

    /// The role must allow changes.
    pub fn writer(&self) -> Result<(), Problem> {
        if self.role.may_write() {
            Ok(())
        } else {
            Err(Problem::new(Code::Forbidden, "the role may only read"))
        }
    }

    /// The role must reach `org`; another org is as unknown as one that does not exist.
    pub fn of_org(&self, org: &str) -> Result<(), Problem> {
        if valid_org(org) && self.role.covers(org) { Ok(()) } else { Err(Problem::not_found()) }
    }
}

impl FromRequestParts<Arc<AdminState>> for Admin {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &Arc<AdminState>) -> Result<Admin, Problem> {
        let mut values = parts.headers.get_all(header::AUTHORIZATION).iter();
        let missing = || Problem::new(Code::TokenMissing, "");
        let value = values.next().ok_or_else(missing)?;
        if values.next().is_some() {
            return Err(Problem::new(Code::TokenInvalid, "two Authorization headers"));
        }
        let text = value.to_str().map_err(|_| Problem::new(Code::TokenInvalid, ""))?;
        let (scheme, token) = text.split_once(' ').ok_or_else(missing)?;
        if !scheme.eq_ignore_ascii_case("bearer") {
            return Err(missing());
        }
        let published = state.publisher.world().borrow().snapshot.clone();
        let edge = published.as_ref().and_then(|published| published.snapshot.edge.as_ref());
        match edge.filter(|_| !state.publisher.is_stuck()) {
            Some(edge) => state.verifier.verify(token, &edge.revoked),
            None => state.verifier.verify(token, &stored_revocations(state).await?),
        }
    }
}

/// The entries that the next snapshot will have: nothing published, or nothing newer, must not open the door to a
/// revoked token.
async fn stored_revocations(state: &AdminState) -> Result<Vec<u8>, Problem> {
    let stored = state.store.load().await?.revocations;
    let mut entries = policy::revoked(&stored, &state.compiler.trusted(), clock::now_ms()).tokens;
    entries.sort_unstable();
    Ok(entries.concat())
}
