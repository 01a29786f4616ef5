//! Who calls the admin API: a bearer token of the admin audience with a role.
//!
//! Refuses client tokens (their audience differs), other algorithms than the key's, token types the issuer does not
//! use (RFC 8725 section 3.11), tokens that live longer than the issuer may let them, and roles in orgs the issuer may
//! not speak for.

use std::sync::Arc;

use asp_edge::names;
use asp_proto::snapshot::EdgeSnapshot;
use axum::extract::FromRequestParts;
use http::request::Parts;
use http::{HeaderMap, header};
use jsonwebtoken::Validation;
use jsonwebtoken::errors::ErrorKind;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::AdminState;
use super::problem::{Code, Problem};
use crate::admin_role::{Role, valid_org};
use crate::clock;
use crate::policy::{self, Presented};
use crate::trusted_issuer::TrustedIssuer;

/// Longer tokens are not even looked at, in bytes.
const MAX_TOKEN: usize = 8 * 1024;
/// Clocks of two machines differ by no more, in seconds.
const LEEWAY: u64 = 30;

/// Verifies admin tokens.
#[derive(Default)]
pub struct Verifier {
    issuers: Vec<TrustedIssuer>,
}

#[derive(Deserialize)]
struct Claims {
    #[serde(default)]
    jti: String,
    iat: u64,
    exp: u64,
    #[serde(flatten)]
    others: Map<String, Value>,
}

impl Claims {
    fn text(&self, name: &str) -> Option<&str> {
        self.others.get(name).and_then(Value::as_str)
    }
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

    /// Verifies a compact token at `now` (Unix seconds); `published` holds the revocations in force.
    pub fn verify(&self, token: &str, published: &EdgeSnapshot, now: u64) -> Result<Admin, Problem> {
        let invalid = || Problem::new(Code::TokenInvalid, "");
        if token.len() > MAX_TOKEN {
            return Err(invalid());
        }
        let token_header = jsonwebtoken::decode_header(token).map_err(|_| invalid())?;
        let kid = token_header.kid.ok_or_else(invalid)?;
        let trusted = self.issuers.iter().find(|issuer| issuer.kid == kid).ok_or_else(invalid)?;
        let issuer = &trusted.rules;
        if !token_header.typ.is_some_and(|typ| issuer.accepts_typ(&typ)) {
            return Err(invalid());
        }
        let mut rules = Validation::new(trusted.algorithm);
        rules.leeway = LEEWAY;
        rules.validate_nbf = true;
        rules.set_audience(&issuer.audiences);
        rules.set_issuer(&[&issuer.iss]);
        rules.set_required_spec_claims(&["exp", "aud", "iss", "sub"]);
        let decoded =
            jsonwebtoken::decode::<Claims>(token, &trusted.key, &rules).map_err(|error| {
                match error.kind() {
                    ErrorKind::ExpiredSignature => Problem::new(Code::TokenExpired, ""),
                    _ => invalid(),
                }
            })?;
        let claims = decoded.claims;
        let lifetime = claims.exp.checked_sub(claims.iat).ok_or_else(invalid)?;
        if lifetime > issuer.max_lifetime || claims.iat > now + LEEWAY {
            return Err(Problem::new(
                Code::TokenInvalid,
                "the token lives longer than its issuer may let it",
            ));
        }
        let name = claims.text(&issuer.user_claim).filter(|name| names::is_name(name)).ok_or_else(invalid)?;
        let role = claims.text(&issuer.role_claim).and_then(Role::parse).ok_or_else(invalid)?;
        if !issuer.accepts_role(&role) {
            return Err(Problem::new(Code::TokenInvalid, "the issuer may not give this role"));
        }
        let presented = Presented {
            iss: &issuer.iss,
            jti: &claims.jti,
            org: role.org().unwrap_or_default(),
            user: name,
            issued_at: claims.iat,
            compact: token,
        };
        if policy::is_revoked(published, &presented) {
            return Err(Problem::new(Code::TokenRevoked, ""));
        }
        Ok(Admin { name: name.to_owned(), role })
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
        Admin::of(&parts.headers, state).await
    }
}

impl Admin {
    /// The admin whose token a request carries.
    pub async fn of(headers: &HeaderMap, state: &AdminState) -> Result<Admin, Problem> {
        let mut values = headers.get_all(header::AUTHORIZATION).iter();
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
        let published = state.publisher.xds_state().borrow().snapshot.clone();
        let edge = published.as_ref().and_then(|published| published.snapshot.edge.as_ref());
        let now = clock::now_ms() / 1_000;
        match edge.filter(|_| !state.publisher.is_stuck()) {
            Some(edge) => state.verifier.verify(token, edge, now),
            None => state.verifier.verify(token, &stored_revocations(state).await?, now),
        }
    }
}

/// The entries that the next snapshot will have: nothing published, or nothing newer, must not open the door to a
/// revoked token.
async fn stored_revocations(state: &AdminState) -> Result<EdgeSnapshot, Problem> {
    let stored = state.store.load().await?.revocations;
    let mut revoked = policy::revoked(&stored, &state.compiler.trusted(), clock::now_ms());
    revoked.tokens.sort_unstable();
    let revoked_before = revoked.before;
    Ok(EdgeSnapshot { revoked: revoked.tokens.concat(), revoked_before, ..EdgeSnapshot::default() })
}
