//! Package files of plugins: upload, list, download and deletion, by the digest of their bytes.
//!
//! Keeps true: the bytes stored under a digest have that digest; a package that a registered primitive pins is not
//! deleted; an org's admin sees, fetches and deletes only its own org's packages, a platform admin those of all orgs.

use std::sync::Arc;
use std::time::Duration;

use asp_platform::clock;
use asp_proto::snapshot::runtime::Mode;
use asp_registry::CompiledServer;
use asp_store::control::{Note, Precondition};
use asp_store::packages::{Digest, MAX_PACKAGE, PackageError, PackageMeta, PackageUpload, UploadOutcome};
use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use futures::TryStreamExt;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio_util::io::ReaderStream;
use utoipa::IntoParams;

use super::auth::Admin;
use super::problem::{Code, Problem, Result};
use super::queues::{self, Topic};
use super::request::{Path, Query};
use super::{AdminState, ApiState, off_thread};
use crate::package_format::Format;

/// Time without data after which an upload is aborted.
const SILENCE: Duration = Duration::from_secs(30);
const MAX_NAME: usize = 255;
const OCTETS: &str = "application/octet-stream";

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct PutQuery {
    /// The file's name; its end determines the format: `.whl`, `.tgz`, `.jar` or `.mcpb`.
    name: String,
}

/// Stores a package file. The body is its bytes (`application/octet-stream`); the same bytes again change nothing.
#[utoipa::path(put, path = "/api/artifacts/{sha256}", tag = "artifacts", params(("sha256" = String, Path), PutQuery),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    responses((status = 201, body = Object), (status = 200, body = Object), (status = 409, body = Problem),
        (status = 413, body = Problem), (status = 422, body = Problem)))]
pub async fn put(
    admin: Admin,
    State(state): ApiState,
    Path(sha256): Path<String>,
    Query(query): Query<PutQuery>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response> {
    let digest = digest(&sha256)?;
    check_name(&query.name)?;
    check_headers(&headers)?;
    let mut upload = state.packages.create(admin.role.org().unwrap_or_default()).await?;
    receive(body, upload.as_mut()).await?;
    // Queued after the upload, which may take minutes, so that it does not block the org's other writes.
    let permit = state.queues.to_write(Topic::Policy, &admin).await?;
    let work = async move {
        let owner = admin.role.org().unwrap_or_default();
        let stored = upload.finish(&digest, &query.name, clock::now_ms()).await?;
        let found = state.packages.find(Some(owner), &digest).await?;
        let meta = found.ok_or_else(|| Problem::new(Code::Internal, ""))?;
        let status = match stored {
            UploadOutcome::New => {
                audit(&state, &admin, "artifact.put", &meta).await?;
                StatusCode::CREATED
            }
            UploadOutcome::Known => StatusCode::OK,
        };
        Ok::<_, Problem>((status, Json(artifact_json(&meta))).into_response())
    };
    queues::write(permit, work).await?
}

/// Returns the bytes of a package file or, if the operator configured it, a redirect to a short-lived URL of the object
/// store.
#[utoipa::path(get, path = "/api/artifacts/{sha256}", tag = "artifacts", params(("sha256" = String, Path)),
    responses((status = 200, body = Vec<u8>, content_type = "application/octet-stream"),
        (status = 307, description = "The bytes are at the URL in `Location`."), (status = 404, body = Problem),
        (status = 503, body = Problem)))]
pub async fn get(
    admin: Admin,
    State(state): ApiState,
    Path(sha256): Path<String>,
    method: Method,
) -> Result<Response> {
    let meta = find(&state, &admin, &sha256).await?;
    let value = |text: &str| HeaderValue::from_str(text).map_err(|_| Problem::new(Code::Internal, ""));
    // A URL is signed for one method.
    if method == Method::GET
        && let Some(link) = state.packages.link(&meta).await?
    {
        let mut response = StatusCode::TEMPORARY_REDIRECT.into_response();
        let headers = response.headers_mut();
        headers.insert(header::LOCATION, value(&link.url)?);
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        return Ok(response);
    }
    let body = match method {
        Method::HEAD => Body::empty(),
        _ => {
            let content = state.packages.open(&meta).await?.ok_or_else(Problem::not_found)?;
            Body::from_stream(ReaderStream::new(content))
        }
    };
    let mut response = body.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(OCTETS));
    headers.insert(header::CONTENT_LENGTH, meta.size.into());
    headers.insert(header::ETAG, value(&format!("\"{}\"", meta.sha256))?);
    headers.insert(header::CONTENT_DISPOSITION, value(&format!("attachment; filename=\"{}\"", meta.name))?);
    Ok(response)
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct ListQuery {
    /// Only this org's packages.
    org: Option<String>,
}

/// Lists the package files that the admin may fetch, each with the registered primitives that pin it.
#[utoipa::path(get, path = "/api/artifacts", tag = "artifacts", params(ListQuery),
    responses((status = 200, body = Vec<Object>), (status = 404, body = Problem)))]
pub async fn list(
    admin: Admin,
    State(state): ApiState,
    Query(query): Query<ListQuery>,
) -> Result<Json<Value>> {
    if let Some(org) = &query.org {
        admin.of_org(org)?;
    }
    let owner = query.org.as_deref().or_else(|| admin.role.org());
    let found = state.packages.list(owner).await?;
    // Only platform admins may see all names of primitives.
    let servers = match admin.role.is_platform() {
        true => Some(servers(&state).await?),
        false => None,
    };
    let list: Vec<Value> = found
        .iter()
        .map(|meta| {
            let mut value = artifact_json(meta);
            if let (Some(servers), Some(object)) = (&servers, value.as_object_mut()) {
                object.insert("pinnedBy".into(), json!(pinned_by(servers, &meta.sha256)));
            }
            value
        })
        .collect();
    Ok(Json(Value::Array(list)))
}

/// Removes a package file that no registered primitive pins.
#[utoipa::path(delete, path = "/api/artifacts/{sha256}", tag = "artifacts", params(("sha256" = String, Path)),
    responses((status = 200, body = Object), (status = 404, body = Problem), (status = 409, body = Problem)))]
pub async fn delete(admin: Admin, State(state): ApiState, Path(sha256): Path<String>) -> Result<Json<Value>> {
    let permit = state.queues.to_write(Topic::Policy, &admin).await?;
    let meta = find(&state, &admin, &sha256).await?;
    let pins = pinned_by(&servers(&state).await?, &meta.sha256);
    if !pins.is_empty() {
        let detail = match admin.role.is_platform() {
            true => format!("pinned by {}", pins.join(", ")),
            false => "a registered primitive pins it".to_owned(),
        };
        return Err(Problem::new(Code::ArtifactInUse, detail));
    }
    let digest = digest(&sha256)?;
    let work = async move {
        let deleted = state.packages.delete(&meta.owner, &digest).await?;
        if deleted {
            audit(&state, &admin, "artifact.delete", &meta).await?;
        }
        Ok::<_, Problem>(Json(json!({ "sha256": meta.sha256, "changed": deleted })))
    };
    queues::write(permit, work).await?
}

fn digest(text: &str) -> Result<Digest> {
    Digest::parse(text)
        .ok_or_else(|| Problem::params("the path ends with a SHA-256, 64 lower-case hex digits"))
}

/// Finds a package that the admin may access.
async fn find(state: &AdminState, admin: &Admin, sha256: &str) -> Result<PackageMeta> {
    let found = state.packages.find(admin.role.org(), &digest(sha256)?).await?;
    found.ok_or_else(Problem::not_found)
}

fn check_name(name: &str) -> Result<()> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._+-".contains(&byte);
    let is_plain = name.len() <= MAX_NAME && !name.starts_with(['.', '-']) && name.bytes().all(plain);
    if is_plain && Format::of_name(name).is_some() {
        return Ok(());
    }
    Err(Problem::params("name is a file name that ends with .whl, .tgz, .jar or .mcpb"))
}

fn check_headers(headers: &HeaderMap) -> Result<()> {
    let sent = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = sent.split(';').next().unwrap_or_default().trim();
    if !essence.eq_ignore_ascii_case(OCTETS) {
        return Err(Problem::new(Code::UnsupportedMediaType, format!("send {OCTETS}")));
    }
    let length =
        headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    // Checked before the upload; a body without a length is measured while it arrives.
    if length.is_some_and(|length| length > MAX_PACKAGE) {
        return Err(too_large());
    }
    Ok(())
}

fn too_large() -> Problem {
    Problem::new(Code::BodyTooLarge, format!("at most {MAX_PACKAGE} bytes"))
}

async fn receive(body: Body, upload: &mut dyn PackageUpload) -> Result<()> {
    let broken = |detail: &str| Problem::new(Code::InvalidBody, detail);
    let mut pieces = body.into_data_stream();
    loop {
        let next = tokio::time::timeout(SILENCE, pieces.try_next()).await;
        let next = next.map_err(|_| broken("the body stopped coming"))?;
        match next.map_err(|_| broken("the body could not be read to its end"))? {
            Some(piece) => upload.write(&piece).await?,
            None => return Ok(()),
        }
    }
}

async fn audit(state: &AdminState, admin: &Admin, action: &str, meta: &PackageMeta) -> Result<()> {
    let resource = format!("artifact/{}", meta.sha256);
    let note = Note { action, resource: &resource, org: &meta.owner, detail: &meta.name };
    state.store.note(&state.change(admin, Precondition::None), note).await?;
    Ok(())
}

fn artifact_json(meta: &PackageMeta) -> Value {
    json!({
        "sha256": meta.sha256,
        "name": meta.name,
        "size": meta.size,
        "org": if meta.owner.is_empty() { Value::Null } else { json!(meta.owner) },
        "createdAt": meta.created_ms,
    })
}

async fn servers(state: &AdminState) -> Result<Vec<Arc<CompiledServer>>> {
    let stored = state.servers.read(&state.store).await?.value;
    let compiler = state.compiler.clone();
    off_thread(move || compiler.compile_all(&stored)).await
}

/// Returns the primitives that pin a digest: `server/id@version`.
fn pinned_by(servers: &[Arc<CompiledServer>], sha256: &str) -> Vec<String> {
    let mut found = Vec::new();
    for server in servers {
        for primitive in &server.primitives {
            let pin = match primitive.runtime.as_ref().and_then(|runtime| runtime.mode.as_ref()) {
                Some(Mode::Plugin(plugin)) => &plugin.artifact_sha256,
                Some(Mode::McpStdio(stdio)) => &stdio.artifact_sha256,
                _ => continue,
            };
            if pin == sha256 {
                found.push(format!("{}/{}@{}", server.server.name, primitive.id, primitive.version));
            }
        }
    }
    found
}

impl From<PackageError> for Problem {
    fn from(error: PackageError) -> Problem {
        match error {
            PackageError::TooLarge => too_large(),
            PackageError::Quota { .. } => Problem::new(Code::LimitReached, error.to_string()),
            PackageError::Mismatch { .. } => Problem::new(Code::DigestMismatch, error.to_string()),
            PackageError::Unavailable(fault) => {
                tracing::warn!(
                    %fault,
                    "the artifact store failed and an admin's request was refused with 503; check the object store that \
                     ASP_S3_URL names, or the disk of the state directory"
                );
                Problem::new(
                    Code::StoreUnavailable,
                    "the artifact store does not answer: send it again later",
                )
            }
        }
    }
}
