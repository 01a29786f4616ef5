//! Authentication for the admin API: a bearer token for the admin audience, with a role. And permissions: the roles that each
//! resource admits.
//!
//! Refuses client tokens (their audience differs), algorithms other than the key's, token types that the issuer does
//! not use (RFC 8725 section 3.11), tokens with a longer lifetime than the issuer may give, and roles in orgs that are
//! not the issuer's.

use std::sync::Arc;

use asp_edge::names;
use asp_issuers::admin_role::{AdminRole, valid_org};
use asp_issuers::trust::{FetchedIssuer, Trust};
use asp_issuers::trusted_issuer::{BREAK_GLASS_ISS, IssuerRules, TrustedIssuer};
use asp_platform::clock;
use asp_proto::snapshot::EdgeSnapshot;
use asp_store::control::{MAX_REVOCATIONS, Precondition, Side};
use axum::extract::{FromRequestParts, RawPathParams};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::request::Parts;
use http::{HeaderMap, Method, header};
use jsonwebtoken::Validation;
use jsonwebtoken::errors::ErrorKind;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::AdminState;
use super::emergency::{self, Emergency};
use super::in_flight;
use super::problem::{Code, Problem, Result};
use crate::policy::{self, PresentedToken, RevokedList};

/// Maximum length of a token, in bytes; longer ones are not parsed.
const MAX_TOKEN: usize = 8 * 1024;
/// Maximum difference between the clocks of two machines, in seconds.
const LEEWAY: u64 = 30;
/// Additional leeway compared to callers' tokens: the `iat` of a revoked admin's token may be later by that.
pub(super) const MORE_LEEWAY: u64 = LEEWAY - asp_edge::LEEWAY_SECONDS;

/// Maximum number of groups in a token that are evaluated.
const MAX_GROUPS: usize = 256;

/// Verifies admin tokens.
pub struct Verifier {
    trust: Trust,
}

#[derive(Deserialize)]
struct AdminClaims {
    #[serde(default)]
    jti: String,
    iat: u64,
    exp: u64,
    #[serde(flatten)]
    others: Map<String, Value>,
}

impl AdminClaims {
    /// Returns the claim with this name, or the value at this JSON Pointer (RFC 6901).
    fn find(&self, path: &str) -> Option<&Value> {
        let Some(pointer) = path.strip_prefix('/') else { return self.others.get(path) };
        let first = pointer.split('/').next().unwrap_or_default();
        let rest = pointer.get(first.len()..).unwrap_or_default();
        self.others.get(&first.replace("~1", "/").replace("~0", "~"))?.pointer(rest)
    }

    fn text(&self, path: &str) -> Option<&str> {
        self.find(path).and_then(Value::as_str)
    }

    /// Whether a claim is this text, number or boolean.
    fn is(&self, path: &str, value: &str) -> bool {
        match self.find(path) {
            Some(Value::String(text)) => text == value,
            Some(Value::Number(number)) => {
                let text = number.to_string();
                text == value
            }
            Some(Value::Bool(flag)) => value == if *flag { "true" } else { "false" },
            _ => false,
        }
    }

    /// Returns the role that the token names, or else the one that its groups or claims give.
    fn role(&self, issuer: &IssuerRules) -> Option<AdminRole> {
        let named = if issuer.role_claim.is_empty() { None } else { self.text(&issuer.role_claim) };
        if let Some(role) = named.and_then(AdminRole::parse) {
            return Some(role);
        }
        let groups = self.groups(issuer);
        issuer.role_of(groups.iter().copied(), |path, value| self.is(path, value))
    }

    fn groups(&self, issuer: &IssuerRules) -> Vec<&str> {
        match self.find(&issuer.groups_claim) {
            Some(Value::String(one)) => vec![one.as_str()],
            Some(Value::Array(many)) => many.iter().take(MAX_GROUPS).filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        }
    }

    /// Whether a client got the token for itself: its subject is the client (RFC 9068 section 2.2), or its issuer says so
    /// (`idtyp` of Microsoft Entra, `gty` of Auth0).
    fn is_of_client(&self, user: &str) -> bool {
        let clients = ["client_id", "azp"].into_iter().filter_map(|name| self.text(name));
        let subject = self.text("sub");
        let mut clients = clients.filter(|client| !client.is_empty());
        self.text("idtyp") == Some("app")
            || self.text("gty") == Some("client-credentials")
            || clients.any(|client| subject == Some(client) || client == user)
    }
}

/// Whether the header names critical extensions (RFC 7515 section 4.1.11); none is supported.
fn has_critical(token: &str) -> bool {
    let header = token.split('.').next().and_then(|part| URL_SAFE_NO_PAD.decode(part).ok());
    let header = header.and_then(|text| serde_json::from_slice::<Map<String, Value>>(&text).ok());
    header.is_none_or(|header| header.contains_key("crit"))
}

/// Returns the issuer that a compact token names, unverified, for the lookup of its key.
fn named_issuer(token: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct IssuerClaim {
        iss: String,
    }
    let payload = URL_SAFE_NO_PAD.decode(token.split('.').nth(1)?).ok()?;
    serde_json::from_slice::<IssuerClaim>(&payload).ok().map(|named| named.iss)
}

/// An admin whose token was verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admin {
    pub name: String,
    pub role: AdminRole,
    /// Emergency token of the admin, if it is one; its use is audited.
    pub emergency: Option<Emergency>,
    /// Groups of the token.
    pub groups: Vec<String>,
    /// The name, and all texts of the token that may be the same person's name at another service.
    pub names: Vec<String>,
    /// `iss` of the token.
    pub iss: String,
    /// Whether no person stands behind the token: an emergency token, or one that a client got for itself.
    pub is_machine: bool,
}

impl Verifier {
    pub fn new(trust: Trust) -> Verifier {
        Verifier { trust }
    }

    /// Returns the name of the token's admin issuer if its keys are fetched and none of the known ones has the token's
    /// key id, so that a newer key may have signed it.
    pub fn unknown_key_of(&self, token: &str) -> Option<String> {
        let kid = jsonwebtoken::decode_header(token).ok()?.kid?;
        let iss = named_issuer(token).filter(|_| token.len() <= MAX_TOKEN)?;
        let in_force = self.trust.in_force();
        if in_force.admins.iter().any(|issuer| issuer.kid == kid && issuer.rules.iss == iss) {
            return None;
        }
        let is_its = |wanted: &&FetchedIssuer| wanted.side == Side::Admins && wanted.document.iss == iss;
        in_force.wanted.iter().find(is_its).map(|wanted| wanted.name.clone())
    }

    /// Verifies the signature of a compact token; returns its claims, and the rules of the admin issuer that signed it.
    fn signed(&self, token: &str) -> Result<(AdminClaims, Arc<IssuerRules>)> {
        let invalid = || Problem::new(Code::TokenInvalid, "");
        if token.len() > MAX_TOKEN {
            return Err(invalid());
        }
        if has_critical(token) {
            return Err(invalid());
        }
        let token_header = jsonwebtoken::decode_header(token).map_err(|_| invalid())?;
        let kid = token_header.kid.ok_or_else(invalid)?;
        let iss = named_issuer(token).ok_or_else(invalid)?;
        let in_force = self.trust.in_force();
        let is_its = |issuer: &&TrustedIssuer| issuer.kid == kid && issuer.rules.iss == iss;
        let trusted = in_force.admins.iter().find(is_its).ok_or_else(invalid)?;
        let issuer = &trusted.rules;
        if !issuer.accepts_typ(token_header.typ.as_deref()) {
            return Err(invalid());
        }
        let mut rules = Validation::new(trusted.algorithm);
        rules.leeway = LEEWAY;
        rules.validate_nbf = true;
        rules.set_audience(&issuer.audiences);
        rules.set_issuer(&[&issuer.iss]);
        rules.set_required_spec_claims(&["exp", "aud", "iss", "sub"]);
        let decoded = jsonwebtoken::decode::<AdminClaims>(token, &trusted.key, &rules);
        let decoded = decoded.map_err(|error| match error.kind() {
            ErrorKind::ExpiredSignature => Problem::new(Code::TokenExpired, ""),
            _ => invalid(),
        })?;
        // As for callers: rejects tokens for the client itself (OpenID Connect Core 1.0 section 2), and tokens that are
        // bound to a key, which is not verified here (RFC 7800 section 3.1).
        let others = &decoded.claims.others;
        if asp_edge::check_use(others).is_err() || others.contains_key("cnf") {
            return Err(invalid());
        }
        Ok((decoded.claims, Arc::clone(issuer)))
    }

    /// Verifies a compact token at `now` (Unix seconds); `revoked` are the revocations in force.
    pub fn verify(&self, token: &str, revoked: &[RevokedList<'_>], now: u64) -> Result<Admin> {
        let refuse = |detail: &str| Problem::new(Code::TokenInvalid, detail);
        let (claims, issuer) = self.signed(token)?;
        let issuer = &*issuer;
        let lifetime = claims.exp.checked_sub(claims.iat).ok_or_else(|| refuse(""))?;
        if lifetime > issuer.max_lifetime || claims.iat > now + LEEWAY {
            return Err(refuse("the token lives longer than its issuer may let it"));
        }
        let name = claims.text(&issuer.user_claim).filter(|name| names::is_name(name));
        let name = name.ok_or_else(|| refuse(""))?;
        let role = claims.role(issuer);
        let role = role.ok_or_else(|| refuse("the token names no role, and none of its groups gives one"))?;
        if !issuer.accepts_role(&role) {
            return Err(refuse("the issuer may not give this role"));
        }
        let presented = PresentedToken {
            iss: &issuer.iss,
            jti: &claims.jti,
            org: role.org().unwrap_or_default(),
            user: name,
            // Revocations are built with the leeway of callers.
            issued_at: claims.iat.saturating_sub(MORE_LEEWAY),
            compact: token,
        };
        if policy::is_revoked(revoked, &presented) {
            return Err(Problem::new(Code::TokenRevoked, ""));
        }
        let emergency = (issuer.iss == BREAK_GLASS_ISS).then(|| Emergency {
            token: claims.jti.clone(),
            reason: claims.text("reason").unwrap_or_default().to_owned(),
        });
        if emergency.as_ref().is_some_and(|used| used.token.is_empty() || used.reason.is_empty()) {
            return Err(refuse("an emergency token has an id and a reason"));
        }
        let groups = claims.groups(issuer).into_iter().map(str::to_owned).collect();
        let is_machine = emergency.is_some() || claims.is_of_client(name);
        let texts = claims.others.values().filter_map(Value::as_str);
        let names = std::iter::once(name).chain(texts).map(str::to_owned).collect();
        let name = name.to_owned();
        let iss = issuer.iss.clone();
        Ok(Admin { name, role, emergency, groups, names, iss, is_machine })
    }
}

#[cfg(test)]
impl Admin {
    /// Returns an admin without groups.
    pub(crate) fn test(name: &str, role: AdminRole) -> Admin {
        let name = name.to_owned();
        let names = vec![name.clone()];
        let groups = Vec::new();
        let iss = String::new();
        Admin { name, role, emergency: None, groups, names, iss, is_machine: false }
    }
}

impl Admin {
    /// Returns the name in the audit.
    pub fn actor(&self) -> String {
        let how = if self.emergency.is_some() { "break-glass:" } else { "" };
        format!("{how}{}@{}", self.name, self.role.place())
    }

    /// Requires a platform role.
    pub fn platform(&self) -> Result<()> {
        if self.role.is_platform() {
            Ok(())
        } else {
            Err(Problem::new(Code::Forbidden, "needs role platform"))
        }
    }

    /// Requires access to the server; other servers get the answer for one that does not exist.
    pub fn of_server(&self, name: &str) -> Result<()> {
        match self.role.server() {
            Some(own) if own == name => Ok(()),
            Some(_) => Err(Problem::not_found()),
            None if self.role.is_installer() || self.role.is_auditor() => Err(Problem::not_found()),
            None => self.platform(),
        }
    }

    /// Requires a role that may write.
    pub fn writer(&self) -> Result<()> {
        if self.role.may_write() {
            Ok(())
        } else {
            Err(Problem::new(Code::Forbidden, "the role may only read"))
        }
    }

    /// Requires access to `org`; other orgs get the answer for one that does not exist.
    pub fn of_org(&self, org: &str) -> Result<()> {
        if valid_org(org) && self.role.covers(org) { Ok(()) } else { Err(Problem::not_found()) }
    }
}

impl Admin {
    /// Authenticates the admin of a request.
    pub async fn of(headers: &HeaderMap, state: &AdminState) -> Result<Admin> {
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
        if let Some(issuer) = state.verifier.unknown_key_of(token) {
            let revision = state.keeper.refresh_of(Side::Admins, &issuer).await;
            // A token may name any key without proof: the store is read only for keys that no snapshot has yet.
            if state.publisher.status().borrow().covers < revision {
                state.apply_issuers().await?;
            }
        }
        let published = state.publisher.xds_state().borrow().snapshot.clone();
        let now = clock::now_ms() / 1_000;
        let admin = match published.filter(|_| !state.publisher.is_stuck()) {
            Some(published) => {
                let lists = [(&*published.edge.content).into(), (&*published.recent.content).into()];
                state.verifier.verify(token, &lists, now)?
            }
            None => {
                // A caller that is not authenticated must not cause a read of the store.
                state.verifier.verify(token, &[], now)?;
                let stored = stored_revocations(state).await?;
                state.verifier.verify(token, &[(&stored).into()], now)?
            }
        };
        if let Some(emergency) = &admin.emergency {
            emergency::audit(state, emergency, &state.change(&admin, Precondition::None)).await?;
        }
        Ok(admin)
    }
}

/// Reads the revocations that the next snapshot will have: a missing or outdated snapshot must not admit a revoked
/// token.
async fn stored_revocations(state: &AdminState) -> Result<EdgeSnapshot> {
    let stored = state.store.revocations(None, MAX_REVOCATIONS as u32).await?;
    let mut revoked = policy::revoked(&stored, &state.compiler.trusted(), clock::now_ms());
    revoked.tokens.sort_unstable();
    let revoked_before = revoked.before;
    Ok(EdgeSnapshot { revoked: revoked.tokens.concat(), revoked_before, ..EdgeSnapshot::default() })
}

/// The roles that a resource of the admin API admits, as far as its path and the method decide. A role that only reads is
/// refused every change.
///
/// Keeps true: a resource without a permission admits nobody; a role is checked before anything of the query or the body is
/// read; what is beyond an admin's reach does not exist for it. If a query, a body or a stored record names the org, the
/// handler checks that org.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Permission {
    /// Every role. No request changes anything, whatever its method.
    Question,
    /// The platform and orgs; the handler keeps an org within its own, and checks then that an org's admin may write.
    Orgs,
    /// The platform, orgs and auditors, to read the audit; the handler keeps an org within its own.
    Audit,
    /// Auditors alone: neither the platform nor an org reads what callers sent.
    Bodies,
    /// The platform.
    Platform,
    /// The platform and the org in the path.
    Org,
    /// The platform, and the org in the path to read only.
    OrgBound,
    /// The platform, for an org or a pattern of orgs in the path.
    OrgHome,
    /// The platform and the team of the server in the path.
    Server,
    /// The platform, and every team; the handler keeps a team within its own server.
    Servers,
    /// The platform and the team of the server in the path, for an org in the path: other orgs do not exist for an org.
    Offer,
    /// The platform, the org in the path and the team of the server in the path.
    Standing,
    /// All roles but teams and auditors; installers remove nothing.
    Package,
}

impl Permission {
    /// Roles that may send this method, for the API document.
    pub(super) fn roles(self, method: &Method) -> &'static str {
        match self {
            Permission::Question => "every role",
            Permission::Orgs => "`platform`, `org:<id>` within its own org",
            Permission::Audit => "`platform`, `org:<id>` within its own org, `auditor`",
            Permission::Bodies => "`auditor`",
            Permission::OrgBound if self.changes(method) => "`platform`",
            Permission::Platform | Permission::OrgHome => "`platform`",
            Permission::Org | Permission::OrgBound => "`platform`, `org:<id>` of the org in the path",
            Permission::Server | Permission::Offer => "`platform`, `server:<name>` of the server in the path",
            Permission::Servers => "`platform`, `server:<name>` for its own server",
            Permission::Standing => {
                "`platform`, `org:<id>` of the org in the path, `server:<name>` of the server in the path"
            }
            Permission::Package if *method == Method::DELETE => "`platform`, `org:<id>`",
            Permission::Package => "`platform`, `org:<id>`, `installer`",
        }
    }

    /// Whether a request with this method makes a change, which a role with `:read` may not.
    pub(super) fn changes(self, method: &Method) -> bool {
        self != Permission::Question && !matches!(*method, Method::GET | Method::HEAD)
    }

    fn check(self, admin: &Admin, method: &Method, params: &RawPathParams) -> Result<()> {
        let (org, server) = (named(params, "org"), named(params, "server"));
        match self {
            Permission::Question => {}
            Permission::Orgs => check_scope(admin)?,
            Permission::Audit if admin.role.is_auditor() => {}
            Permission::Audit => check_scope(admin)?,
            Permission::Bodies if admin.role.is_auditor() => {}
            Permission::Bodies => return Err(Problem::not_found()),
            Permission::Platform => {
                check_scope(admin)?;
                admin.platform()?;
            }
            Permission::Org => admin.of_org(org)?,
            Permission::OrgBound => {
                admin.of_org(org)?;
                if self.changes(method) {
                    admin.platform()?;
                }
            }
            Permission::OrgHome => {
                // A pattern is the id of no org.
                if !admin.role.is_platform() {
                    admin.of_org(org)?;
                }
                admin.platform()?;
            }
            Permission::Server => admin.of_server(server)?,
            Permission::Servers if admin.role.server().is_some() => {}
            Permission::Servers => admin.platform()?,
            Permission::Offer => {
                if admin.role.org().is_some() {
                    admin.of_org(org)?;
                }
                admin.of_server(server)?;
            }
            Permission::Standing if admin.role.server() == Some(server) => {}
            Permission::Standing => admin.of_org(org)?,
            Permission::Package if *method == Method::DELETE => check_scope(admin)?,
            Permission::Package if admin.role.server().is_some() || admin.role.is_auditor() => {
                return Err(Problem::not_found());
            }
            Permission::Package => {}
        }
        // Another org's records do not exist for an org's admin, and only the handler knows whose they are.
        let is_left_to_handler = self == Permission::Orgs && !admin.role.is_platform();
        if self.changes(method) && !is_left_to_handler { admin.writer() } else { Ok(()) }
    }
}

/// Admits the platform and orgs; for teams, installers and auditors the resource does not exist.
fn check_scope(admin: &Admin) -> Result<()> {
    match admin.role.server().is_some() || admin.role.is_installer() || admin.role.is_auditor() {
        true => Err(Problem::not_found()),
        false => Ok(()),
    }
}

/// Returns the parameter of the path with this name; an empty text, which names nothing, if there is none.
fn named<'p>(params: &'p RawPathParams, name: &str) -> &'p str {
    params.iter().find(|(key, _)| *key == name).map_or("", |(_, value)| value)
}

/// An admin whom the resource's permission admits.
impl FromRequestParts<Arc<AdminState>> for Admin {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &Arc<AdminState>) -> Result<Admin> {
        let admin = Admin::of(&parts.headers, state).await?;
        in_flight::enter(&state.in_flight, parts, &admin.role).await?;
        let permission = parts.extensions.get::<Permission>().copied().ok_or_else(Problem::not_found)?;
        let params = RawPathParams::from_request_parts(parts, state).await;
        let params = params.map_err(|_| Problem::not_found())?;
        permission.check(&admin, &parts.method, &params)?;
        Ok(admin)
    }
}
