//! Groups and scopes that machines of an org may have: an admin of the platform allows them, the org's admins assign
//! them.
//!
//! Keeps true: the platform decides for machines what an issuer decides for people. The bound is enforced when a key or
//! certificate is written, and again when a snapshot is compiled.

use std::collections::BTreeSet;

use asp_edge::names;
use asp_store::control::{AtRevision, MachineBound};
use axum::Json;
use axum::extract::State;
use axum::response::Response;
use http::HeaderMap;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::auth::Admin;
use super::problem::{Code, Problem, Result};
use super::request::{Body, Path, precondition, tagged};
use super::{AdminState, ApiState, change_response};

/// Maximum length of a scope, as in a spec.
const MAX_SCOPE: usize = 128;
/// Maximum number of groups and of scopes in a bound.
const MAX_LISTED: usize = 256;

/// Groups and scopes that machines of an org may have; none by default.
#[derive(Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Bound {
    /// Exact names, at most 256
    #[serde(default)]
    pub groups: BTreeSet<String>,
    /// Exact scopes, at most 256
    #[serde(default)]
    pub scopes: BTreeSet<String>,
}

/// A bound in force, and the credentials that it shuts out.
#[derive(Serialize, ToSchema)]
pub struct ShownBound {
    /// Exact names, at most 256
    pub groups: BTreeSet<String>,
    /// Exact scopes, at most 256
    pub scopes: BTreeSet<String>,
    /// Ids of keys and certificates that exceed the bound, and therefore grant no access
    pub beyond: Vec<String>,
}

/// Shows the groups and scopes that machines of the org may have.
#[utoipa::path(get, path = "/api/machines/orgs/{org}/bound", tag = "machines",
    params(("org" = String, Path)), responses((status = 200, body = ShownBound), (status = 404, body = Problem)))]
pub async fn get(_admin: Admin, State(state): ApiState, Path(org): Path<String>) -> Result<Response> {
    show(&state, &org).await
}

/// Replaces the groups and scopes that machines of the org may have. Within a second, a key or certificate that exceeds
/// them grants no access.
#[utoipa::path(put, path = "/api/machines/orgs/{org}/bound", tag = "machines", request_body = Bound,
    params(("org" = String, Path)), responses((status = 200, body = ShownBound), (status = 400, body = Problem),
        (status = 403, body = Problem), (status = 412, body = Problem)))]
pub async fn put(
    admin: Admin,
    State(state): ApiState,
    Path(org): Path<String>,
    headers: HeaderMap,
    Body(body): Body<Bound>,
) -> Result<Response> {
    let Bound { groups, scopes } = body;
    if groups.len() > MAX_LISTED || scopes.len() > MAX_LISTED {
        return Err(Problem::params(format!("groups and scopes: at most {MAX_LISTED} each")));
    }
    if let Some(fault) = groups.iter().find_map(|group| names::fault(group)) {
        return Err(Problem::params(format!("groups: one {fault}")));
    }
    if !scopes.iter().all(|scope| is_scope(scope)) {
        return Err(Problem::params(
            "scopes: visible ASCII without quotes and backslashes, at most 128 each",
        ));
    }
    let change = state.change(&admin, precondition(&headers)?);
    let bound = MachineBound { groups, scopes };
    state.notify_publisher(state.store.put_machine_bound(&change, &org, &bound).await?);
    show(&state, &org).await
}

/// Removes all groups and scopes that machines of the org may have.
#[utoipa::path(delete, path = "/api/machines/orgs/{org}/bound", tag = "machines",
    params(("org" = String, Path)), responses((status = 200, body = Object), (status = 403, body = Problem), (status = 404, body = Problem),
        (status = 412, body = Problem)))]
pub async fn delete(
    admin: Admin,
    State(state): ApiState,
    Path(org): Path<String>,
    headers: HeaderMap,
) -> Result<Json<Value>> {
    let change = state.change(&admin, precondition(&headers)?);
    let none = MachineBound::default();
    Ok(change_response(state.notify_publisher(state.store.put_machine_bound(&change, &org, &none).await?)))
}

/// Refuses groups and scopes that machines of the org may not have.
pub(super) async fn check(state: &AdminState, org: &str, groups: &[String], scopes: &[String]) -> Result<()> {
    let bound = state.store.machine_bound(org).await?.value;
    let Some((kind, name)) = bound.beyond(groups, scopes) else { return Ok(()) };
    Err(Problem::new(
        Code::LimitReached,
        format!(
            "machines of {org} may not have the {kind} {name}: an admin of the platform allows it with \
             `asp machines bound {org} --allow-{kind} {name}` (PUT /api/machines/orgs/{{org}}/bound)"
        ),
    ))
}

/// Whether a text is a scope (RFC 6749 section 3.3).
pub(super) fn is_scope(scope: &str) -> bool {
    (1..=MAX_SCOPE).contains(&scope.len())
        && scope.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'"' && byte != b'\\')
}

async fn show(state: &AdminState, org: &str) -> Result<Response> {
    let AtRevision { revision, value: bound } = state.store.machine_bound(org).await?;
    let keys = state.store.machine_keys(org).await?;
    let keys = keys.into_iter().map(|key| (key.id, key.groups, key.scopes));
    let certificates = state.store.machine_certificates(org).await?;
    let certificates = certificates.into_iter().map(|known| (known.id, known.groups, known.scopes));
    let beyond = keys
        .chain(certificates)
        .filter(|(_, groups, scopes)| bound.beyond(groups, scopes).is_some())
        .map(|(id, ..)| id)
        .collect();
    let MachineBound { groups, scopes } = bound;
    Ok(tagged(revision, ShownBound { groups, scopes, beyond }))
}
