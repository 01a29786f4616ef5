//! Regions, and the home regions of orgs (docs/regions.md).
//!
//! Keeps true: only admins of the platform see and change them. A home may name a region that is not known here;
//! requests of its orgs are then refused.

use asp_store::control::{HomeRecord, MAX_HOMES, Placement, RegionRecord, StoreError};
use axum::Json;
use axum::extract::State;
use axum::response::Response;
use http::HeaderMap;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::auth::Admin;
use super::optimistic::OptimisticWrite;
use super::problem::{Problem, Result};
use super::request::{Body, Path, precondition, tagged};
use super::{AdminState, ApiState, change_response};
use crate::catalog::budget;
use crate::placement;

/// A region: this one, or one that an Envoy cluster leads to.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RegionEntry {
    /// 1 to 63 of `a-z 0-9 -`
    pub name: String,
    /// Whether it is this region; at most one is.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub here: bool,
    /// Envoy cluster that leads there: 1 to 63 of `a-z 0-9 . _ -`; empty for this region.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cluster: String,
}

/// The home of an org.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Home {
    pub region: String,
}

/// A home in a list.
#[derive(Serialize, ToSchema)]
pub struct ListedHome {
    /// An org, `prefix*` or `*`; the most specific entry applies.
    pub org: String,
    pub region: String,
}

/// Lists the regions.
#[utoipa::path(get, path = "/api/regions", tag = "regions",
    responses((status = 200, body = Vec<RegionEntry>), (status = 403, body = Problem)))]
pub async fn get(_admin: Admin, State(state): ApiState) -> Result<Response> {
    show(&state).await
}

/// Replaces the regions.
#[utoipa::path(put, path = "/api/regions", tag = "regions", request_body = Vec<RegionEntry>,
    responses((status = 200, body = Vec<RegionEntry>), (status = 409, body = Problem), (status = 412, body = Problem)))]
pub async fn put(
    admin: Admin,
    State(state): ApiState,
    headers: HeaderMap,
    Body(body): Body<Vec<RegionEntry>>,
) -> Result<Response> {
    let records = body.into_iter().enumerate().map(record).collect::<Result<Vec<_>>>()?;
    let faults = placement::region_faults(&records);
    if !faults.is_empty() {
        return Err(Problem::params(faults.join("; ")));
    }
    let mut attempt = OptimisticWrite::of(state.change(&admin, precondition(&headers)?));
    loop {
        let change = attempt.begin(&state).await?;
        check_budget(&state, |placed| placed.regions.clone_from(&records)).await?;
        let written = state.store.put_regions(change, &records).await;
        if attempt.end(&state, written)?.is_some() {
            break;
        }
    }
    show(&state).await
}

/// Removes all regions. Orgs whose home is one of them are refused until their homes are removed, too.
#[utoipa::path(delete, path = "/api/regions", tag = "regions",
    responses((status = 200, body = Object), (status = 412, body = Problem)))]
pub async fn delete(admin: Admin, State(state): ApiState, headers: HeaderMap) -> Result<Json<Value>> {
    let change = state.change(&admin, precondition(&headers)?);
    let written = state.notify_publisher(state.store.put_regions(&change, &[]).await?);
    Ok(change_response(written))
}

/// Lists the homes of orgs.
#[utoipa::path(get, path = "/api/regions/orgs", tag = "regions",
    responses((status = 200, body = Vec<ListedHome>), (status = 403, body = Problem)))]
pub async fn homes(_admin: Admin, State(state): ApiState) -> Result<Json<Vec<ListedHome>>> {
    let stored = state.store.homes().await?;
    let listed = |HomeRecord { org, region }: HomeRecord| ListedHome { org, region };
    Ok(Json(stored.into_iter().map(listed).collect()))
}

/// Returns the home of an org, or of a pattern of orgs.
#[utoipa::path(get, path = "/api/regions/orgs/{org}", tag = "regions", params(("org" = String, Path)),
    responses((status = 200, body = Home), (status = 404, body = Problem)))]
pub async fn get_home(_admin: Admin, State(state): ApiState, Path(org): Path<String>) -> Result<Response> {
    let found = state.store.home(&org).await?.ok_or_else(Problem::not_found)?;
    Ok(tagged(found.revision, Home { region: found.value.region }))
}

/// Sets the home of an org, or of all orgs that match `prefix*` or `*`. Data of the org in other regions stays there.
#[utoipa::path(put, path = "/api/regions/orgs/{org}", tag = "regions", request_body = Home,
    params(("org" = String, Path)),
    responses((status = 200, body = Object), (status = 409, body = Problem), (status = 412, body = Problem)))]
pub async fn put_home(
    admin: Admin,
    State(state): ApiState,
    Path(org): Path<String>,
    headers: HeaderMap,
    Body(body): Body<Home>,
) -> Result<Json<Value>> {
    let record = HomeRecord { org, region: body.region };
    if let Some(fault) = placement::home_fault(&record) {
        return Err(Problem::params(fault));
    }
    let mut attempt = OptimisticWrite::of(state.change(&admin, precondition(&headers)?));
    let written = loop {
        let change = attempt.begin(&state).await?;
        check_budget(&state, |placed| {
            placed.homes.retain(|known| known.org != record.org);
            placed.homes.push(record.clone());
        })
        .await?;
        let written = state.store.put_home(change, &record).await;
        if let Some(written) = attempt.end(&state, written)? {
            break written;
        }
    };
    Ok(Json(json!({
        "org": record.org, "region": record.region, "revision": written.revision, "changed": written.changed,
    })))
}

/// Removes a home: a less specific one applies then; without any, the org is at home here.
#[utoipa::path(delete, path = "/api/regions/orgs/{org}", tag = "regions", params(("org" = String, Path)),
    responses((status = 200, body = Object), (status = 404, body = Problem), (status = 412, body = Problem)))]
pub async fn delete_home(
    admin: Admin,
    State(state): ApiState,
    Path(org): Path<String>,
    headers: HeaderMap,
) -> Result<Json<Value>> {
    let change = state.change(&admin, precondition(&headers)?);
    let written = state.notify_publisher(state.store.delete_home(&change, &org).await?);
    Ok(change_response(written))
}

/// Checks that the stored placement fits into a snapshot with this change.
async fn check_budget(state: &AdminState, change: impl FnOnce(&mut Placement)) -> Result<()> {
    let mut placed = Placement {
        regions: state.store.regions().await?.value,
        homes: state.store.homes().await?,
        ..Default::default()
    };
    let bytes = |placed: &Placement| budget::bytes(&placement::regions(placed));
    let before = bytes(&placed);
    change(&mut placed);
    if placed.homes.len() > MAX_HOMES {
        return Err(StoreError::Full { what: "homes of orgs", bound: MAX_HOMES }.into());
    }
    let after = bytes(&placed);
    Ok(budget::HOMES.admit(after > before, after)?)
}

async fn show(state: &AdminState) -> Result<Response> {
    let stored = state.store.regions().await?;
    let entry = |RegionRecord { name, cluster }: RegionRecord| RegionEntry {
        name,
        here: cluster.is_empty(),
        cluster,
    };
    Ok(tagged(stored.revision, stored.value.into_iter().map(entry).collect::<Vec<_>>()))
}

fn record((position, region): (usize, RegionEntry)) -> Result<RegionRecord> {
    let RegionEntry { name, here, cluster } = region;
    if here != cluster.is_empty() {
        return Err(Problem::params(format!("region {position}: say either `here: true` or a cluster")));
    }
    Ok(RegionRecord { name, cluster })
}
