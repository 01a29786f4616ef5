//! Stored versions of a server, and rollback to one of them.
//!
//! Keeps true: a rollback is checked like any other write, by the current rules, and stores a new version. It may break
//! callers, because it is used when something is broken already. The audit names the restored version.

use asp_store::control::{Note, Precondition};
use axum::Json;
use axum::extract::State;
use axum::response::Response;
use http::HeaderMap;
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::auth::Admin;
use super::problem::{Problem, Result};
use super::queues::{self, Topic};
use super::request::{Body, Path, precondition};
use super::{ApiState, registry};

/// Lists the kept versions, newest first; those of a deleted server stay for 30 days.
#[utoipa::path(get, path = "/api/registry/servers/{server}/versions", tag = "registry",
    params(("server" = String, Path)),
    responses((status = 200, body = Vec<Object>), (status = 404, body = Problem)))]
pub async fn list(_admin: Admin, State(state): ApiState, Path(name): Path<String>) -> Result<Json<Value>> {
    let versions = state.store.server_versions(&name).await?;
    if versions.is_empty() {
        return Err(Problem::not_found());
    }
    let shown = versions.into_iter().map(|version| {
        json!({
            "revision": version.revision,
            "contentHash": version.content_hash,
            "storedAt": version.stored_at,
            "actor": version.actor,
        })
    });
    Ok(Json(shown.collect()))
}

/// Returns one version with its files.
#[utoipa::path(get, path = "/api/registry/servers/{server}/versions/{revision}", tag = "registry",
    params(("server" = String, Path), ("revision" = u64, Path)),
    responses((status = 200, body = Object), (status = 404, body = Problem)))]
pub async fn get(
    _admin: Admin,
    State(state): ApiState,
    Path((name, revision)): Path<(String, u64)>,
) -> Result<Response> {
    let Some(record) = state.store.server_version(&name, revision).await? else {
        return Err(Problem::not_found());
    };
    Ok(registry::server_response(&record))
}

/// Version to restore.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Rollback {
    /// `revision` of one of its versions.
    pub revision: u64,
}

/// Restores an earlier version of a server, including a deleted one.
#[utoipa::path(post, path = "/api/registry/servers/{server}/rollback", tag = "registry", request_body = Rollback,
    params(("server" = String, Path)),
    responses((status = 200, body = Object), (status = 404, body = Problem), (status = 412, body = Problem),
        (status = 422, body = Problem)))]
pub async fn rollback(
    admin: Admin,
    State(state): ApiState,
    Path(name): Path<String>,
    headers: HeaderMap,
    Body(wanted): Body<Rollback>,
) -> Result<Response> {
    let Some(version) = state.store.server_version(&name, wanted.revision).await? else {
        return Err(Problem::not_found());
    };
    let permit = state.queues.to_write(Topic::Policy, &admin).await?;
    let change = state.change(&admin, precondition(&headers)?);
    let work = async move {
        let stored = registry::store_files(&state, (&admin, &change), (&name, &version.files), true).await?;
        let resource = format!("server/{name}");
        let detail = format!("to the version of revision {}", wanted.revision);
        let note = Note { action: "server.rollback", resource: &resource, org: "", detail: &detail };
        state.store.note(&state.change(&admin, Precondition::None), note).await?;
        Ok::<_, Problem>(stored.response(&name))
    };
    queues::write(permit, work).await?
}
