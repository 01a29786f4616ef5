//! Routes of requests to gateway pools. The list is always replaced as a whole.
//!
//! Keeps true: only admins of the platform see and change them; a list that edges would reject is not stored.

use std::collections::BTreeMap;

use asp_store::control::RouteRecord;
use axum::Json;
use axum::extract::State;
use axum::response::Response;
use http::HeaderMap;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::auth::Admin;
use super::off_thread;
use super::optimistic::OptimisticWrite;
use super::problem::{Problem, Result};
use super::request::{Body, precondition, tagged};
use super::{AdminState, ApiState, change_response};
use crate::catalog::budget;
use crate::placement;

/// A route; a missing part is `*`. Of several that match a request, the most specific one applies: by primitive, then
/// server, then method.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Route {
    /// A server's name or `*`
    #[serde(default = "any")]
    pub server: String,
    /// A JSON-RPC method, e.g. `tools/call`, or `*`
    #[serde(default = "any")]
    pub method: String,
    /// Primitive id: exact, `prefix*` or `*`
    #[serde(default = "any")]
    pub primitive: String,
    /// Name of the pool, as in `ASP_POOL` of its gateways: 1 to 63 of `a-z 0-9 -`
    pub pool: String,
}

fn any() -> String {
    "*".to_owned()
}

/// A gateway pool.
#[derive(Serialize, ToSchema)]
pub struct Pool {
    pub pool: String,
    /// Number of gateways published to Envoy. Without one, requests that are routed to the pool are refused (503).
    pub gateways: usize,
    /// Number of routes to it in the edge snapshot.
    pub routes: usize,
}

/// Lists the routes that admins have stored.
#[utoipa::path(get, path = "/api/routes", tag = "routes",
    responses((status = 200, body = Vec<Route>), (status = 403, body = Problem)))]
pub async fn get(_admin: Admin, State(state): ApiState) -> Result<Response> {
    show(&state).await
}

/// Replaces the routes.
#[utoipa::path(put, path = "/api/routes", tag = "routes", request_body = Vec<Route>,
    responses((status = 200, body = Vec<Route>), (status = 409, body = Problem), (status = 412, body = Problem)))]
pub async fn put(
    admin: Admin,
    State(state): ApiState,
    headers: HeaderMap,
    Body(body): Body<Vec<Route>>,
) -> Result<Response> {
    let records: Vec<RouteRecord> = body.into_iter().map(record).collect();
    let faults = placement::route_faults(&records);
    if !faults.is_empty() {
        return Err(Problem::params(faults.join("; ")));
    }
    let mut attempt = OptimisticWrite::of(state.change(&admin, precondition(&headers)?));
    loop {
        let change = attempt.begin(&state).await?;
        check_budget(&state, &records).await?;
        let written = state.store.put_routes(change, &records).await;
        if attempt.end(&state, written)?.is_some() {
            break;
        }
    }
    show(&state).await
}

/// Removes all routes; those in servers' own files stay.
#[utoipa::path(delete, path = "/api/routes", tag = "routes",
    responses((status = 200, body = Object), (status = 412, body = Problem)))]
pub async fn delete(admin: Admin, State(state): ApiState, headers: HeaderMap) -> Result<Json<Value>> {
    let change = state.change(&admin, precondition(&headers)?);
    let written = state.notify_publisher(state.store.put_routes(&change, &[]).await?);
    Ok(change_response(written))
}

/// Lists the pools that have gateways or routes.
#[utoipa::path(get, path = "/api/pools", tag = "routes",
    responses((status = 200, body = Vec<Pool>), (status = 403, body = Problem)))]
pub async fn pools(_admin: Admin, State(state): ApiState) -> Result<Json<Vec<Pool>>> {
    let xds_state = state.publisher.xds_state().borrow().clone();
    let mut found: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for (pool, gateways) in &xds_state.endpoints.clusters {
        found.entry(pool).or_default().0 = gateways.len();
    }
    for route in xds_state.snapshot.iter().flat_map(|published| &published.edge.content.routes) {
        found.entry(&route.cluster).or_default().1 += 1;
    }
    let pool =
        |(pool, (gateways, routes)): (&str, (usize, usize))| Pool { pool: pool.to_owned(), gateways, routes };
    Ok(Json(found.into_iter().map(pool).collect()))
}

/// Checks that the routes are within the budget of the edge snapshot.
async fn check_budget(state: &AdminState, records: &[RouteRecord]) -> Result<()> {
    let servers = state.store.servers().await?.value;
    let stored = state.store.routes().await?.value;
    let compiler = state.compiler.clone();
    let records = records.to_vec();
    let [before, after] = off_thread(move || {
        let servers = compiler.compile_all(&servers);
        let servers: Vec<_> = servers.iter().map(|server| &**server).collect();
        [stored, records].map(|list| asp_registry::routes_bytes(&placement::routes(&servers, &list)))
    })
    .await?;
    Ok(budget::ROUTES.admit(after > before, after)?)
}

async fn show(state: &AdminState) -> Result<Response> {
    let stored = state.store.routes().await?;
    let list: Vec<Route> = stored.value.into_iter().map(entry).collect();
    Ok(tagged(stored.revision, list))
}

fn record(Route { server, method, primitive, pool }: Route) -> RouteRecord {
    RouteRecord { server, method, primitive, pool }
}

fn entry(RouteRecord { server, method, primitive, pool }: RouteRecord) -> Route {
    Route { server, method, primitive, pool }
}
