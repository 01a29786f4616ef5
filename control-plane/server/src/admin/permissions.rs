//! Permissions: the roles that a resource of the admin API admits, as far as its path and the method decide.
//!
//! Keeps true: a resource without a permission admits nobody; a role is checked before anything of the query or the body is
//! read; what is beyond an admin's reach does not exist for it. If a query, a body or a stored record names the org, the
//! handler checks that org.

use std::sync::Arc;

use axum::extract::{FromRequestParts, RawPathParams};
use http::Method;
use http::request::Parts;

use super::AdminState;
use super::auth::Admin;
use super::in_flight;
use super::problem::{Problem, Result};

/// The roles that a resource admits. A role that only reads is refused every change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Permission {
    /// Every role. No request changes anything, whatever its method.
    Question,
    /// The platform and orgs; the handler keeps an org within its own, and checks then that an org's admin may write.
    Orgs,
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
    /// All roles but teams; installers remove nothing.
    Package,
}

impl Permission {
    /// Roles that may send this method, for the API document.
    pub(super) fn roles(self, method: &Method) -> &'static str {
        match self {
            Permission::Question => "every role",
            Permission::Orgs => "`platform`, `org:<id>` within its own org",
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
            Permission::Package if admin.role.server().is_some() => return Err(Problem::not_found()),
            Permission::Package => {}
        }
        // Another org's records do not exist for an org's admin, and only the handler knows whose they are.
        let is_left_to_handler = self == Permission::Orgs && !admin.role.is_platform();
        if self.changes(method) && !is_left_to_handler { admin.writer() } else { Ok(()) }
    }
}

/// Admits the platform and orgs; for teams and installers the resource does not exist.
fn check_scope(admin: &Admin) -> Result<()> {
    match admin.role.server().is_some() || admin.role.is_installer() {
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
