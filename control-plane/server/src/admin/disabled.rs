//! Disabling servers and primitives in an incident.
//!
//! Keeps true: a disabled server or primitive stays stored, with its versions and offers, and stays disabled when a new version
//! is applied; callers see neither; what the platform disabled stays so until the platform enables it.

use std::sync::Arc;

use asp_store::control::{ServerRecord, WHOLE_SERVER};
use axum::extract::State;
use axum::response::Response;
use http::HeaderMap;
use serde_json::json;

use super::auth::Admin;
use super::problem::{Code, Problem, Result};
use super::queues::{self, Topic};
use super::request::{Path, precondition, tagged};
use super::{AdminState, ApiState, name_checks, off_thread};
use crate::suggestion::nearest;

/// Disables a server: within a second its callers get the answer for an unknown one, and its running calls are cancelled.
#[utoipa::path(put, path = "/api/registry/servers/{server}/disabled", tag = "registry", params(("server" = String, Path)),
    responses((status = 200, body = Object), (status = 404, body = Problem), (status = 412, body = Problem)))]
pub async fn disable(
    admin: Admin,
    State(state): ApiState,
    Path(server): Path<String>,
    headers: HeaderMap,
) -> Result<Response> {
    set(state, (&admin, &headers), (server, WHOLE_SERVER.to_owned()), true).await
}

/// Enables a disabled server. What an admin of the platform disabled, only the platform's admins enable.
#[utoipa::path(delete, path = "/api/registry/servers/{server}/disabled", tag = "registry",
    params(("server" = String, Path)),
    responses((status = 200, body = Object), (status = 403, body = Problem), (status = 404, body = Problem),
        (status = 412, body = Problem)))]
pub async fn enable(
    admin: Admin,
    State(state): ApiState,
    Path(server): Path<String>,
    headers: HeaderMap,
) -> Result<Response> {
    set(state, (&admin, &headers), (server, WHOLE_SERVER.to_owned()), false).await
}

/// Disables all versions of a primitive that a server lists. If no other primitive uses its plugin, the plugin's workers exit.
#[utoipa::path(put, path = "/api/registry/servers/{server}/disabled/{primitive}", tag = "registry",
    params(("server" = String, Path), ("primitive" = String, Path)),
    responses((status = 200, body = Object), (status = 404, body = Problem), (status = 412, body = Problem)))]
pub async fn disable_primitive(
    admin: Admin,
    State(state): ApiState,
    Path((server, primitive)): Path<(String, String)>,
    headers: HeaderMap,
) -> Result<Response> {
    set(state, (&admin, &headers), (server, primitive), true).await
}

/// Enables a disabled primitive. What an admin of the platform disabled, only the platform's admins enable.
#[utoipa::path(delete, path = "/api/registry/servers/{server}/disabled/{primitive}", tag = "registry",
    params(("server" = String, Path), ("primitive" = String, Path)),
    responses((status = 200, body = Object), (status = 403, body = Problem), (status = 404, body = Problem),
        (status = 412, body = Problem)))]
pub async fn enable_primitive(
    admin: Admin,
    State(state): ApiState,
    Path((server, primitive)): Path<(String, String)>,
    headers: HeaderMap,
) -> Result<Response> {
    set(state, (&admin, &headers), (server, primitive), false).await
}

async fn set(
    state: Arc<AdminState>,
    (admin, headers): (&Admin, &HeaderMap),
    (name, entry): (String, String),
    is_disabled: bool,
) -> Result<Response> {
    let permit = state.queues.to_write(Topic::Policy, admin).await?;
    let record = name_checks::server(&state, admin, &name).await?;
    if is_disabled && entry != WHOLE_SERVER {
        check_listed(&state, record, &entry).await?;
    }
    let change = state.change(admin, precondition(headers)?);
    let by_platform = admin.role.is_platform();
    let work = async move {
        let part = (entry.as_str(), is_disabled);
        let written = state.store.set_disabled(&change, &name, part, by_platform).await?;
        let written = state.notify_publisher(written);
        let body = json!({ "server": name, "revision": written.revision, "changed": written.changed });
        Ok::<_, Problem>(tagged(written.revision, body))
    };
    queues::write(permit, work).await?
}

/// Refuses an id that the server does not list. A server that does not compile is not checked.
async fn check_listed(state: &AdminState, record: ServerRecord, id: &str) -> Result<()> {
    let compiler = state.compiler.clone();
    let name = record.name.clone();
    let Some(server) = off_thread(move || compiler.compile_one(&record)).await? else { return Ok(()) };
    let ids = || server.server.listings.iter().map(|listing| listing.id.as_str());
    if ids().any(|listed| listed == id) {
        return Ok(());
    }
    let near = name_checks::question(nearest(id, ids()));
    Err(Problem::new(Code::NotFound, format!("{name} lists no primitive with the id {id}{near}")))
}
