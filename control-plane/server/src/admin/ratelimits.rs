//! Rate limits of an org: the list is replaced whole.

use std::sync::Arc;

use asp_store::control::LimitRecord;
use axum::Json;
use axum::extract::{Path, State};
use axum::response::Response;
use http::HeaderMap;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::AdminState;
use super::auth::Admin;
use super::body::Body;
use super::etag::{precondition, tagged};
use super::problem::Problem;
use crate::patterns;
use crate::policy::refill;

/// The only type there is.
const TOKEN_BUCKET: &str = "token-bucket";
/// A bucket larger than this limits nothing.
const MAX_CAPACITY: u64 = 1_000_000_000;

/// One limit.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RateLimit {
    pub selector: Selector,
    pub policy: Policy,
}

/// What it counts; a missing part is `*`.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Selector {
    #[serde(default = "any")]
    pub server: String,
    /// Primitive id: exact, `prefix*` or `*`
    #[serde(default = "any")]
    pub primitive: String,
    #[serde(default = "any")]
    pub user: String,
    #[serde(default = "any")]
    pub wcit: String,
}

/// How much it lets pass.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// `token-bucket`, also when missing
    #[serde(rename = "type", default = "token_bucket")]
    pub kind: String,
    pub capacity: u64,
    /// e.g. `100/s`, `30/m`, `1000/h`
    pub refill: String,
}

fn any() -> String {
    "*".to_owned()
}

fn token_bucket() -> String {
    TOKEN_BUCKET.to_owned()
}

/// Replaces the org's limits.
#[utoipa::path(put, path = "/api/ratelimits/orgs/{org}", tag = "limits", request_body = Vec<RateLimit>,
    params(("org" = String, Path)),
    responses((status = 200, body = Vec<RateLimit>), (status = 412, body = Problem)))]
pub async fn put(
    admin: Admin,
    State(state): State<Arc<AdminState>>,
    Path(org): Path<String>,
    headers: HeaderMap,
    Body(body): Body<Vec<RateLimit>>,
) -> Result<Response, Problem> {
    admin.of_org(&org)?;
    admin.writer()?;
    let change = state.change(&admin, precondition(&headers)?);
    let list = body.into_iter().enumerate().map(record).collect::<Result<Vec<_>, _>>()?;
    let platform = admin.role.is_platform();
    state.published(state.admission.put_limits(platform, &change, &org, &list).await?);
    limits_of(&state, &org).await
}

/// The org's limits.
#[utoipa::path(get, path = "/api/ratelimits/orgs/{org}", tag = "limits",
    params(("org" = String, Path)), responses((status = 200, body = Vec<RateLimit>)))]
pub async fn get(
    admin: Admin,
    State(state): State<Arc<AdminState>>,
    Path(org): Path<String>,
) -> Result<Response, Problem> {
    admin.of_org(&org)?;
    limits_of(&state, &org).await
}

/// Removes the org's limits.
#[utoipa::path(delete, path = "/api/ratelimits/orgs/{org}", tag = "limits",
    params(("org" = String, Path)), responses((status = 200, body = Object)))]
pub async fn delete(
    admin: Admin,
    State(state): State<Arc<AdminState>>,
    Path(org): Path<String>,
    headers: HeaderMap,
) -> Result<Json<Value>, Problem> {
    admin.of_org(&org)?;
    admin.writer()?;
    let change = state.change(&admin, precondition(&headers)?);
    let written = state.published(state.store.delete_limits(&change, &org).await?);
    Ok(Json(json!({ "revision": written.revision, "changed": written.changed })))
}

fn record((position, limit): (usize, RateLimit)) -> Result<LimitRecord, Problem> {
    let bad = |what: &str| Err(Problem::params(format!("limit {position}: {what}")));
    let RateLimit { selector, policy } = limit;
    if policy.kind != TOKEN_BUCKET {
        return bad("policy.type must be token-bucket");
    }
    if policy.capacity == 0 || policy.capacity > MAX_CAPACITY {
        return bad("policy.capacity must be from 1 to 1000000000");
    }
    if let Err(error) = refill::parse(&policy.refill) {
        return bad(&format!("policy.refill: {error}"));
    }
    let exact = [&selector.server, &selector.user, &selector.wcit];
    if !exact.iter().all(|text| patterns::valid_exact_or_any(text)) {
        return bad("server, user and wcit must be exact or *");
    }
    if !patterns::valid(&selector.primitive) {
        return bad("primitive must be exact, prefix* or *");
    }
    Ok(LimitRecord {
        server: selector.server,
        primitive: selector.primitive,
        user: selector.user,
        wcit: selector.wcit,
        capacity: policy.capacity,
        refill: policy.refill,
    })
}

async fn limits_of(state: &AdminState, org: &str) -> Result<Response, Problem> {
    let stored = state.store.limits(org).await?;
    let list: Vec<RateLimit> = stored
        .value
        .into_iter()
        .map(|limit| RateLimit {
            selector: Selector {
                server: limit.server,
                primitive: limit.primitive,
                user: limit.user,
                wcit: limit.wcit,
            },
            policy: Policy { kind: token_bucket(), capacity: limit.capacity, refill: limit.refill },
        })
        .collect();
    Ok(tagged(stored.revision, list))
}
