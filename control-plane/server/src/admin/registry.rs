//! Validation, compilation, storage and listing of servers.

use std::sync::Arc;

use asp_proto::mcp_revision::Revision;
use asp_proto::snapshot::Primitive;
use asp_registry::{CompiledServer, Fault, compile_mcp, runtime_manifest};
use asp_store::control::{
    Change, Commit, Note, Precondition, ServerIds, ServerRecord, SourceFile, StoreError,
};
use axum::Json;
use axum::extract::State;
use axum::response::Response;
use http::HeaderMap;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use utoipa::{IntoParams, ToSchema};

use super::auth::Admin;
use super::optimistic::MAX_TRIES;
use super::problem::{Code, Problem, Result};
use super::queues::{self, Topic};
use super::request::{Body, Path, Query, Text, precondition, tagged};
use super::{AdminState, ApiState, ids, name_checks, off_thread};
use crate::admin::inline::{self, Files};
use crate::catalog::{self, servers};

/// Default MCP revision of `compile`.
pub const DEFAULT_REVISION: &str = Revision::LATEST.as_str();

/// Maximum number of breaking changes that the audit names; a rewritten server has thousands.
const MAX_NOTED: usize = 20;

/// Result of a validation.
#[derive(Serialize, ToSchema)]
pub struct Validity {
    pub valid: bool,
    #[schema(value_type = Vec<Object>)]
    pub errors: Vec<Fault>,
    #[schema(value_type = Vec<Object>)]
    pub warnings: Vec<Fault>,
}

/// Checks a spec (its YAML or JSON text) or a set of files (`{"files": [{"path", "text"}]}`).
#[utoipa::path(post, path = "/api/registry/validate", tag = "registry",
    request_body(content = Value), responses((status = 200, body = Validity)))]
pub async fn validate(admin: Admin, State(state): ApiState, text: Text) -> Result<Json<Validity>> {
    let permit = state.queues.enter_read_queue(&admin).await?;
    let report = permit.work(move || inline::check(&text)).await??;
    Ok(Json(Validity { valid: report.catalog.is_some(), errors: report.faults, warnings: report.warnings }))
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct CompileQuery {
    /// Name of the server, if the files have several.
    server: Option<String>,
    /// MCP revision [default: the latest].
    revision: Option<String>,
}

/// Compiles a spec or a set of files to the artifacts for clients and the runtime.
#[utoipa::path(post, path = "/api/registry/compile", tag = "registry", params(CompileQuery),
    request_body(content = Value),
    responses((status = 200, body = Object), (status = 422, body = Problem)))]
pub async fn compile(
    admin: Admin,
    State(state): ApiState,
    Query(query): Query<CompileQuery>,
    text: Text,
) -> Result<Json<Value>> {
    let permit = state.queues.enter_read_queue(&admin).await?;
    let checked = permit.work(move || inline::check(&text)).await??;
    let Some(found) = checked.catalog else {
        return Err(Problem::primitives(checked.faults));
    };
    let mut servers = found.servers;
    if let Some(name) = &query.server {
        servers.retain(|server| server.server.name == *name);
    }
    let [server] = servers.as_slice() else {
        return Err(Problem::params("name one of the servers with ?server="));
    };
    Ok(Json(compiled(server, query.revision.as_deref().unwrap_or(DEFAULT_REVISION))))
}

/// Returns the compiled artifacts of one server.
pub fn compiled(server: &CompiledServer, revision: &str) -> Value {
    let versions = |id: &str| server.primitives.iter().filter(|other| other.id == id).count();
    let name = |primitive: &Primitive| match versions(&primitive.id) {
        1 => primitive.id.clone(),
        _ => format!("{}@{}", primitive.id, primitive.version),
    };
    let manifests: Map<String, Value> =
        server.primitives.iter().map(|primitive| (name(primitive), runtime_manifest(primitive))).collect();
    let card: Value = serde_json::from_str(&server.agent_card).unwrap_or(Value::Null);
    json!({
        "server": server.server.name,
        "contentHash": server.content_hash,
        "mcp": compile_mcp(server, revision),
        "a2a": card,
        "runtimeManifest": manifests,
    })
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct PutQuery {
    /// Stores a version that breaks callers without a new major version; the audit records it.
    #[serde(default)]
    force: bool,
}

/// Stores a server atomically and confirms A2A for it; does nothing if it is unchanged. A version that breaks callers
/// needs a new major version, unless forced.
#[utoipa::path(put, path = "/api/registry/servers/{server}", tag = "registry", request_body = Files,
    params(("server" = String, Path), PutQuery),
    responses((status = 200, body = Object), (status = 409, body = Problem), (status = 412, body = Problem),
        (status = 422, body = Problem)))]
pub async fn put_server(
    admin: Admin,
    State(state): ApiState,
    (Path(name), Query(query)): (Path<String>, Query<PutQuery>),
    headers: HeaderMap,
    Body(body): Body<Files>,
) -> Result<Response> {
    let permit = state.queues.to_write(Topic::Policy, &admin).await?;
    let change = state.change(&admin, precondition(&headers)?);
    let work = async move {
        let stored = apply_files(&state, (&admin, &change), (&name, &body.files), query.force).await?;
        if stored.changes.iter().any(asp_registry::Change::breaks_callers) {
            audit_force(&state, &admin, &name, &stored.changes).await?;
        }
        Ok::<_, Problem>(stored.response(&name))
    };
    queues::write(permit, work).await?
}

/// Confirms A2A for a stored server that lists a2a, as if it were applied again. Does nothing if that is confirmed.
#[utoipa::path(put, path = "/api/registry/servers/{server}/a2a", tag = "registry", params(("server" = String, Path)),
    responses((status = 200, body = Object), (status = 404, body = Problem), (status = 412, body = Problem),
        (status = 422, body = Problem)))]
pub async fn confirm_a2a(admin: Admin, State(state): ApiState, Path(name): Path<String>) -> Result<Response> {
    let permit = state.queues.to_write(Topic::Policy, &admin).await?;
    let record = name_checks::server(&state, &admin, &name).await?;
    let change = state.change(&admin, Precondition::At(record.revision));
    let work = async move {
        let stored = apply_files(&state, (&admin, &change), (&name, &record.files), true).await?;
        match stored.lists_a2a {
            true => Ok(stored.response(&name)),
            false => Err(Problem::params(format!("{name}/server.yaml does not list a2a in `protocols`"))),
        }
    };
    queues::write(permit, work).await?
}

/// A server that was stored, or that was stored already.
pub(super) struct StoreOutcome {
    written: Commit,
    content_hash: String,
    lists_a2a: bool,
    /// Whether A2A was off and is on now.
    a2a_switched_on: bool,
    warnings: Vec<Fault>,
    changes: Vec<asp_registry::Change>,
}

impl StoreOutcome {
    pub(super) fn response(&self, name: &str) -> Response {
        tagged(
            self.written.revision,
            json!({
                "server": name,
                "revision": self.written.revision,
                "changed": self.written.changed,
                "contentHash": self.content_hash,
                "a2aSwitchedOn": self.a2a_switched_on,
                "warnings": self.warnings,
                "changes": self.changes,
            }),
        )
    }
}

/// Checks the files of the server `name`, stores it and confirms A2A for it.
async fn apply_files(
    state: &AdminState,
    (admin, change): (&Admin, &Change),
    server: (&str, &[SourceFile]),
    force: bool,
) -> Result<StoreOutcome> {
    let mut stored = store_files(state, (admin, change), server, force).await?;
    if stored.lists_a2a {
        let change = state.change(admin, Precondition::None);
        let confirmed = state.notify_publisher(state.store.confirm_a2a(&change, server.0).await?);
        if confirmed.changed {
            (stored.written, stored.a2a_switched_on) = (confirmed, true);
        }
    }
    Ok(stored)
}

/// Checks the files of the server `name` and stores it.
pub(super) async fn store_files(
    state: &AdminState,
    (admin, change): (&Admin, &Change),
    (name, files): (&str, &[SourceFile]),
    force: bool,
) -> Result<StoreOutcome> {
    let sources = catalog::sources(files);
    let report = off_thread(move || asp_registry::check(&sources)).await?;
    let Some(found) = report.catalog else {
        return Err(Problem::primitives(report.faults));
    };
    let [server] = found.servers.as_slice() else {
        return Err(Problem::params("the files must make exactly one server"));
    };
    if server.server.name != name {
        return Err(Problem::params(format!("the files make the server `{}`", server.server.name)));
    }
    let compiler = state.compiler.clone();
    let candidate = server.clone();
    if let Err(fault) = off_thread(move || compiler.accepts(&candidate)).await? {
        return Err(Problem::new(Code::InvalidPrimitives, fault));
    }
    let (written, changes) = store_server(state, (admin, change), server, files, force).await?;
    Ok(StoreOutcome {
        written,
        content_hash: server.content_hash.clone(),
        lists_a2a: server.lists_a2a(),
        a2a_switched_on: false,
        warnings: report.warnings,
        changes,
    })
}

/// Audits, in addition to the write itself, that a breaking change was forced.
async fn audit_force(
    state: &AdminState,
    admin: &Admin,
    name: &str,
    changes: &[asp_registry::Change],
) -> Result<()> {
    let broken = changes.iter().filter(|change| change.breaks_callers());
    let detail: Vec<String> = broken
        .take(MAX_NOTED)
        .map(|change| format!("{}{}: {}", change.primitive, change.path, change.message))
        .collect();
    let resource = format!("server/{name}");
    let note = Note { action: "server.force", resource: &resource, org: "", detail: &detail.join("; ") };
    state.store.note(&state.change(admin, Precondition::None), note).await?;
    Ok(())
}

/// Stores a server that does not conflict with the others. It is evaluated again if one of them changes in the
/// meantime.
async fn store_server(
    state: &AdminState,
    (admin, change): (&Admin, &Change),
    server: &CompiledServer,
    files: &[SourceFile],
    force: bool,
) -> Result<(Commit, Vec<asp_registry::Change>)> {
    let name = &server.server.name;
    catalog::ids::take_stored_of(&state.store, name).await?;
    let of_server = catalog::ids::of(server);
    let has = ServerIds { ids: &of_server, by_platform: admin.role.is_platform() };
    let mut tries = 0;
    loop {
        let (revision, existing) = stored_servers(state).await?;
        let shares = |other: &CompiledServer| {
            let mut ids = catalog::ids::of(other).into_iter();
            other.server.name != *name && ids.any(|id| of_server.binary_search(&id).is_ok())
        };
        for other in existing.iter().filter(|other| shares(other)) {
            // A process of an earlier version may have stored it since this one began.
            catalog::ids::take_stored_of(&state.store, &other.server.name).await?;
        }
        let rules = state.store.routes().await?.value;
        let (admin, candidate, compiler) = (admin.clone(), server.clone(), state.compiler.clone());
        let changes = off_thread(move || {
            let changes = evaluate(&admin, &existing, &candidate, force)?;
            let size = |server: &CompiledServer| compiler.server_bytes(server);
            servers::admit(&existing, &candidate, &rules, size)?;
            Ok::<_, Problem>(changes)
        })
        .await??;
        let change = Change { based_on: Some(revision), ..change.clone() };
        tries += 1;
        let hash = &server.content_hash;
        match state.store.register_server(&change, name, files, hash, has).await {
            Err(StoreError::Stale) if tries < MAX_TRIES => {}
            Err(StoreError::DeniedIds(denied)) => {
                return Err(Problem::primitives(ids::faults(server, &denied)));
            }
            written => return Ok((state.notify_publisher(written?), changes)),
        }
    }
}

/// Returns the changes for callers of the stored server; an error if the new one conflicts with others.
fn evaluate(
    admin: &Admin,
    existing: &[Arc<CompiledServer>],
    server: &CompiledServer,
    force: bool,
) -> Result<Vec<asp_registry::Change>> {
    // The team of a server must not learn which other servers exist.
    let may_see = |other: &str| admin.of_server(other).is_ok();
    let conflicts = asp_registry::conflicts(existing.iter().map(Arc::as_ref), server, may_see);
    if !conflicts.is_empty() {
        return Err(Problem::primitives(conflicts));
    }
    let before = existing.iter().find(|known| known.server.name == server.server.name);
    let changes = before.map(|before| asp_registry::compare(before, server)).unwrap_or_default();
    if !force && changes.iter().any(asp_registry::Change::breaks_callers) {
        return Err(Problem::breaking(changes));
    }
    Ok(changes)
}

/// Returns a server's files as stored.
#[utoipa::path(get, path = "/api/registry/servers/{server}", tag = "registry",
    params(("server" = String, Path)), responses((status = 200, body = Object), (status = 404, body = Problem)))]
pub async fn get_server(_admin: Admin, State(state): ApiState, Path(name): Path<String>) -> Result<Response> {
    let Some(record) = state.store.server(&name).await? else {
        return Err(Problem::not_found());
    };
    Ok(server_response(&record))
}

/// Returns the response with a server and its files.
pub(super) fn server_response(record: &ServerRecord) -> Response {
    let mut body = json!({
        "server": record.name,
        "revision": record.revision,
        "contentHash": record.content_hash,
        "updatedAt": record.updated_at,
        "a2aConfirmed": record.a2a_confirmed,
        "disabled": record.disabled,
        "files": record.files,
    });
    if let (Some(fault), Some(members)) = (&record.unreadable, body.as_object_mut()) {
        members.insert("unreadable".to_owned(), fault.as_str().into());
    }
    tagged(record.revision, body)
}

/// Lists every stored server, without its files.
#[utoipa::path(get, path = "/api/registry/servers", tag = "registry", responses((status = 200, body = Vec<Object>)))]
pub async fn list_servers(admin: Admin, State(state): ApiState) -> Result<Json<Value>> {
    let records: Arc<Vec<ServerRecord>> = match admin.role.server() {
        Some(own) => Arc::new(state.store.server(own).await?.into_iter().collect()),
        None => state.servers.read(&state.store).await?.value,
    };
    let servers: Vec<Value> = records
        .iter()
        .map(|record| {
            json!({
                "server": record.name,
                "revision": record.revision,
                "contentHash": record.content_hash,
                "updatedAt": record.updated_at,
                "a2aConfirmed": record.a2a_confirmed,
                "disabled": record.disabled,
            })
        })
        .collect();
    Ok(Json(Value::Array(servers)))
}

/// Removes a server. One that an admin of the platform disabled, only the platform's admins remove.
#[utoipa::path(delete, path = "/api/registry/servers/{server}", tag = "registry", params(("server" = String, Path)),
    responses((status = 200, body = Object), (status = 403, body = Problem), (status = 404, body = Problem)))]
pub async fn delete_server(
    admin: Admin,
    State(state): ApiState,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Result<Json<Value>> {
    let permit = state.queues.to_write(Topic::Policy, &admin).await?;
    let change = state.change(&admin, precondition(&headers)?);
    let by_platform = admin.role.is_platform();
    let work = async move {
        // Stored again, it would be enabled.
        if !by_platform && state.store.is_disabled_by_platform(&name).await? {
            return Err(Problem::from(StoreError::DisabledByPlatform));
        }
        // A deleted server keeps its ids.
        catalog::ids::take_stored_of(&state.store, &name).await?;
        let written = state.notify_publisher(state.store.delete_server(&change, &name).await?);
        Ok::<_, Problem>(Json(
            json!({ "server": name, "revision": written.revision, "changed": written.changed }),
        ))
    };
    queues::write(permit, work).await?
}

/// Returns the compiled stored servers, and the revision at which they were read.
async fn stored_servers(state: &AdminState) -> Result<(u64, Vec<Arc<CompiledServer>>)> {
    let stored = state.servers.read(&state.store).await?;
    let compiler = state.compiler.clone();
    off_thread(move || (stored.revision, compiler.compile_all(&stored.value))).await
}
