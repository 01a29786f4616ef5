//! The issuers of admin tokens, and constants for all tokens of the platform's issuers.
//!
//! Owns the rules of an admin issuer: token types, audiences, names of claims, maximum lifetime, and its orgs.

use std::sync::Arc;
use std::time::Duration;

use asp_edge::names;
use jsonwebtoken::{Algorithm, DecodingKey};

use crate::admin_role::AdminRole;

/// Name of the development issuer in `server.yaml`.
pub const DEVELOPMENT_NAME: &str = "dev";
/// The `iss` claim of the development issuer.
pub const DEVELOPMENT_ISS: &str = "asp-dev";
/// `iss` claim of emergency tokens, minted by anyone who can read the control plane's state.
pub const BREAK_GLASS_ISS: &str = "asp-break-glass";
/// The `typ` header of access tokens (RFC 9068 section 2.1).
pub const TYP: &str = "at+jwt";
/// The audience of admin tokens.
pub const ADMIN_AUDIENCE: &str = "asp-admin";
/// Maximum lifetime of a token; the edge refuses longer ones.
pub const MAX_TTL: Duration = Duration::from_secs(86_400);

/// A key of an issuer of admin tokens.
#[derive(Clone)]
pub struct TrustedIssuer {
    pub kid: String,
    pub algorithm: Algorithm,
    pub key: DecodingKey,
    pub rules: Arc<IssuerRules>,
}

/// Rules for the tokens of an admin issuer.
pub struct IssuerRules {
    pub iss: String,
    /// Accepted `typ` headers, lower case.
    pub typ: Vec<String>,
    /// Accepted `aud` values.
    pub audiences: Vec<String>,
    /// Claims with the admin's name and role; with an empty name there is no role claim.
    pub user_claim: String,
    pub role_claim: String,
    /// Claim with the admin's groups: a name, or a JSON Pointer.
    pub groups_claim: String,
    /// Roles that groups give if the token has no role claim.
    pub roles: Vec<(String, AdminRole)>,
    /// Roles that several claims give together.
    pub grants: Vec<RoleGrant>,
    /// Maximum accepted `exp - iat` in seconds; a revocation lasts as long.
    pub max_lifetime: u64,
    /// Orgs in which its admins may have a role, as patterns; empty for all orgs and the platform.
    pub orgs: Vec<String>,
}

/// A role for tokens with all of these claims.
pub struct RoleGrant {
    pub role: AdminRole,
    /// Names or JSON Pointers of claims, each with its value as text.
    pub claims: Vec<(String, String)>,
}

impl IssuerRules {
    /// Returns the default rules of an issuer.
    pub fn of(iss: &str) -> IssuerRules {
        IssuerRules {
            iss: iss.to_owned(),
            typ: vec![TYP.to_owned()],
            audiences: vec![ADMIN_AUDIENCE.to_owned()],
            user_claim: "sub".to_owned(),
            role_claim: "role".to_owned(),
            groups_claim: "groups".to_owned(),
            roles: Vec::new(),
            grants: Vec::new(),
            max_lifetime: MAX_TTL.as_secs(),
            orgs: Vec::new(),
        }
    }

    /// Whether a `typ` header is accepted; `none` stands for a missing one.
    pub fn accepts_typ(&self, typ: Option<&str>) -> bool {
        // "application/" may be left out (RFC 7515 section 4.1.9).
        let typ = typ.unwrap_or("none").to_ascii_lowercase();
        let typ = typ.strip_prefix("application/").unwrap_or(&typ);
        self.typ.iter().any(|accepted| accepted == typ)
    }

    pub fn accepts_role(&self, role: &AdminRole) -> bool {
        let covered = |org: &str| self.orgs.iter().any(|pattern| names::matches(pattern, org));
        self.orgs.is_empty()
            || match role.org() {
                Some(org) => covered(org),
                None => self.orgs.iter().any(|pattern| pattern == "*"),
            }
    }

    /// Returns the role with the widest reach among those given by the groups and by the claims for which `has` returns
    /// true.
    pub fn role_of<'a>(
        &self,
        groups: impl Iterator<Item = &'a str> + Clone,
        has: impl Fn(&str, &str) -> bool,
    ) -> Option<AdminRole> {
        let by_group = self.roles.iter().filter(|(group, _)| groups.clone().any(|own| own == group));
        let has_all = |grant: &&RoleGrant| grant.claims.iter().all(|(claim, value)| has(claim, value));
        let by_claims = self.grants.iter().filter(has_all).map(|grant| &grant.role);
        by_group
            .map(|(_, role)| role)
            .chain(by_claims)
            .filter(|role| self.accepts_role(role))
            .max_by_key(|role| role.rank())
            .cloned()
    }
}
