//! The servers that may have a primitive with an id; policy, limits and services refer to primitives by id.
//!
//! Keeps true: an id belongs to the server that stored it first; only the platform grants it to other servers or
//! withdraws it. The store enforces this within the write.

use asp_registry::{CompiledServer, Fault, FaultCode};
use asp_store::control::{AtRevision, DeniedId};
use axum::Json;
use axum::extract::State;
use axum::response::Response;
use http::HeaderMap;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::auth::Admin;
use super::problem::{Problem, Result};
use super::request::{Path, precondition, tagged};
use super::{AdminState, ApiState, change_response};
use crate::catalog::ids;

/// A server that may have the id.
#[derive(Serialize, ToSchema)]
pub struct Holder {
    pub server: String,
    /// Whether it stored the id first.
    pub first: bool,
}

/// Lists the servers that may have a primitive with this id.
#[utoipa::path(get, path = "/api/registry/primitives/{id}/servers", tag = "registry",
    params(("id" = String, Path)), responses((status = 200, body = Vec<Holder>)))]
pub async fn list(_admin: Admin, State(state): ApiState, Path(id): Path<String>) -> Result<Response> {
    show(&state, &id).await
}

async fn show(state: &AdminState, id: &str) -> Result<Response> {
    let AtRevision { revision, value } = state.store.primitive_servers(id).await?;
    let holders = value.into_iter().map(|known| Holder { server: known.server, first: known.first });
    Ok(tagged(revision, holders.collect::<Vec<_>>()))
}

/// Allows a server to have a primitive with an id that another server stored first.
#[utoipa::path(put, path = "/api/registry/primitives/{id}/servers/{server}", tag = "registry",
    params(("id" = String, Path), ("server" = String, Path)),
    responses((status = 200, body = Vec<Holder>), (status = 412, body = Problem)))]
pub async fn grant(
    admin: Admin,
    State(state): ApiState,
    Path((id, server)): Path<(String, String)>,
    headers: HeaderMap,
) -> Result<Response> {
    if !asp_edge::names::is_name(&id) || !asp_edge::names::is_label(&server) {
        return Err(Problem::params("an id of a primitive and the name of a server are needed"));
    }
    let change = state.change(&admin, precondition(&headers)?);
    state.store.grant_primitive(&change, &id, &server).await?;
    show(&state, &id).await
}

/// Withdraws the id from a server: its next version may not have it. The stored version stays and is served.
#[utoipa::path(delete, path = "/api/registry/primitives/{id}/servers/{server}", tag = "registry",
    params(("id" = String, Path), ("server" = String, Path)),
    responses((status = 200, body = Object), (status = 404, body = Problem), (status = 412, body = Problem)))]
pub async fn withdraw(
    admin: Admin,
    State(state): ApiState,
    Path((id, server)): Path<(String, String)>,
    headers: HeaderMap,
) -> Result<Json<Value>> {
    ids::take_stored_of(&state.store, &server).await?;
    let change = state.change(&admin, precondition(&headers)?);
    Ok(change_response(state.store.withdraw_primitive(&change, &id, &server).await?))
}

/// Returns the faults of a server with ids that it may not have. They do not tell its team who owns the ids; nothing is
/// denied to the platform.
pub(super) fn faults(server: &CompiledServer, denied: &[DeniedId]) -> Vec<Fault> {
    let name = &server.server.name;
    let fault = |DeniedId { id, owner }: &DeniedId| Fault {
        code: FaultCode::DuplicateId,
        file: server.files.first().cloned().unwrap_or_default(),
        line: 0,
        path: "/primitives".into(),
        message: match owner {
            Some(_) => format!("the id `{id}` belongs to another server, which stored it first"),
            None => format!("an admin of the platform has withdrawn the id `{id}` from this server"),
        },
        hint: format!(
            "use another id, or have an admin of the platform grant it: PUT /api/registry/primitives/{id}/servers/{name}"
        ),
    };
    denied.iter().map(fault).collect()
}
