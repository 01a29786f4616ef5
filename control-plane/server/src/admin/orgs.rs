//! The orgs that something is stored for.

use asp_store::control::OrgRecord;
use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::ApiState;
use super::auth::Admin;
use super::problem::Result;
use super::request::Query;

/// Default and maximum number of orgs in a response.
const PAGE: u32 = 100;
const MAX_PAGE: u32 = 1_000;

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct OrgsParams {
    /// Only orgs after this name, for the next page.
    after: Option<String>,
    /// 1 to 1000 [default: 100]; other values are clamped.
    #[param(format = Int64)]
    limit: Option<u32>,
}

/// An org, and the number of its records of each kind.
#[derive(Serialize, ToSchema)]
pub struct OrgSummary {
    org: String,
    /// Offers of servers, without those in the servers' own files.
    offers: u64,
    /// Exceptions from servers' default exposure.
    exposure: u64,
    bindings: u64,
    limits: u64,
    /// Keys and certificates of machines.
    machines: u64,
    /// Live revocations.
    revocations: u64,
}

impl From<OrgRecord> for OrgSummary {
    fn from(record: OrgRecord) -> OrgSummary {
        let OrgRecord { org, offers, exposure, bindings, limits, machines, revocations } = record;
        OrgSummary { org, offers, exposure, bindings, limits, machines, revocations }
    }
}

/// Lists the orgs that something is stored for, by name. An org of which nothing is stored may call by what servers allow
/// everyone, and is not listed.
#[utoipa::path(get, path = "/api/orgs", tag = "policy", params(OrgsParams),
    responses((status = 200, body = [OrgSummary])))]
pub async fn list(
    admin: Admin,
    State(state): ApiState,
    Query(params): Query<OrgsParams>,
) -> Result<Json<Vec<OrgSummary>>> {
    let limit = params.limit.unwrap_or(PAGE).clamp(1, MAX_PAGE);
    let own = admin.role.org().unwrap_or_default();
    let orgs = state.store.orgs(params.after.as_deref().unwrap_or_default(), own, limit).await?;
    Ok(Json(orgs.into_iter().map(OrgSummary::from).collect()))
}
