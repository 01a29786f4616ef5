//! Running calls and open sessions of all gateways, and the end of one.
//!
//! Keeps true: an admin of one org sees and ends only that org's; a request to end something is audited, then stored, and
//! only then confirmed; it names the org whose work it may end.

use std::sync::Arc;

use asp_store::control::{Note, Precondition};
use asp_store::live::{LiveError, LiveKind, LiveQuery, LiveWork};
use axum::Json;
use axum::extract::State;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::auth::Admin;
use super::problem::{Code, Problem, Result};
use super::queues::Topic;
use super::request::{Path, Query};
use super::{AdminState, usage};

/// Length of an id of a call or a session: hexadecimal digits, and the hyphens of a call's.
const ID_LENGTHS: [usize; 2] = [32, 36];

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct LiveParams {
    /// Only of this org.
    org: Option<String>,
    /// Only of users of this name.
    user: Option<String>,
    /// Only at this server.
    server: Option<String>,
    /// Only of this primitive: its id, with or without `@version`. Sessions have none
    primitive: Option<String>,
    /// 1 to 1000 [default: 100]; other values are clamped.
    #[param(format = Int64)]
    limit: Option<u32>,
}

/// A running call or an open session.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ShownWork {
    id: String,
    /// Start in Unix milliseconds
    since: i64,
    org: String,
    user: String,
    issuer: String,
    server: String,
    /// `id@version` of a call's primitive
    #[serde(skip_serializing_if = "String::is_empty")]
    primitive: String,
    protocol: String,
    /// State of a call
    #[serde(skip_serializing_if = "String::is_empty")]
    state: String,
}

impl From<LiveWork> for ShownWork {
    fn from(work: LiveWork) -> ShownWork {
        let LiveWork { kind: _, id, org, user, issuer, server, primitive, protocol, state, since_ms } = work;
        ShownWork { id, since: since_ms, org, user, issuer, server, primitive, protocol, state }
    }
}

/// Lists the calls that have run for more than a second, the longest first, as gateways reported them a second ago.
#[utoipa::path(get, path = "/api/calls", tag = "usage", params(LiveParams),
    responses((status = 200, body = [ShownWork]), (status = 404, body = Problem)))]
pub async fn calls(
    admin: Admin,
    State(state): State<Arc<AdminState>>,
    Query(params): Query<LiveParams>,
) -> Result<Json<Vec<ShownWork>>> {
    list(&admin, &state, LiveKind::Call, params).await
}

/// Lists the open sessions of legacy MCP clients, the oldest first, at most 1000 of each gateway.
#[utoipa::path(get, path = "/api/sessions", tag = "usage", params(LiveParams),
    responses((status = 200, body = [ShownWork]), (status = 404, body = Problem)))]
pub async fn sessions(
    admin: Admin,
    State(state): State<Arc<AdminState>>,
    Query(params): Query<LiveParams>,
) -> Result<Json<Vec<ShownWork>>> {
    list(&admin, &state, LiveKind::Session, params).await
}

async fn list(
    admin: &Admin,
    state: &AdminState,
    kind: LiveKind,
    params: LiveParams,
) -> Result<Json<Vec<ShownWork>>> {
    let LiveParams { org, user, server, primitive, limit } = params;
    if let Some(org) = &org {
        admin.of_org(org)?;
    }
    usage::check_filters([&user, &server, &primitive])?;
    let org = org.or_else(|| admin.role.org().map(str::to_owned));
    let limit = limit.unwrap_or(100);
    let query = LiveQuery { kind, org, user, server, primitive, id: None, limit };
    let found = state.live.live(&query).await.map_err(|error| failed(&error))?;
    Ok(Json(found.into_iter().map(ShownWork::from).collect()))
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct StopParams {
    /// Org of a call or session that is not listed; admins of an org need not name it.
    org: Option<String>,
}

/// Cancels a running call on whichever gateway runs it, within about a second.
#[utoipa::path(delete, path = "/api/calls/{id}", tag = "usage", params(("id" = String, Path), StopParams),
    responses((status = 202), (status = 404, body = Problem), (status = 429, body = Problem)))]
pub async fn cancel_call(
    admin: Admin,
    State(state): State<Arc<AdminState>>,
    Path(id): Path<String>,
    Query(params): Query<StopParams>,
) -> Result<StatusCode> {
    stop(&admin, &state, LiveKind::Call, &id, params).await
}

/// Ends a session and its calls on every gateway, within about a second. Its client can open another one.
#[utoipa::path(delete, path = "/api/sessions/{id}", tag = "usage", params(("id" = String, Path), StopParams),
    responses((status = 202), (status = 404, body = Problem), (status = 429, body = Problem)))]
pub async fn end_session(
    admin: Admin,
    State(state): State<Arc<AdminState>>,
    Path(id): Path<String>,
    Query(params): Query<StopParams>,
) -> Result<StatusCode> {
    stop(&admin, &state, LiveKind::Session, &id, params).await
}

async fn stop(
    admin: &Admin,
    state: &AdminState,
    kind: LiveKind,
    id: &str,
    StopParams { org }: StopParams,
) -> Result<StatusCode> {
    admin.writer()?;
    if let Some(org) = &org {
        admin.of_org(org)?;
    }
    let is_id = |byte: u8| byte.is_ascii_hexdigit() || byte == b'-';
    if !ID_LENGTHS.contains(&id.len()) || !id.bytes().all(is_id) {
        return Err(Problem::not_found());
    }
    let org = match org.or_else(|| admin.role.org().map(str::to_owned)) {
        Some(org) => org,
        None => org_of(state, kind, id).await?,
    };
    // Each request is a row of the org's audit, which keeps the newest ones.
    let _permit = state.queues.to_write(Topic::Policy, admin).await?;
    let (action, resource) = match kind {
        LiveKind::Call => ("call.cancel", format!("call/{id}")),
        LiveKind::Session => ("session.end", format!("session/{id}")),
    };
    let note = Note { action, resource: &resource, org: &org, detail: "" };
    // First: nobody ends anything unseen.
    state.store.note(&state.change(admin, Precondition::None), note).await?;
    match state.live.request_stop(kind, id, &org).await {
        Ok(()) => Ok(StatusCode::ACCEPTED),
        Err(LiveError::TooMany) => {
            let detail = format!("{org} has 1000 requests to end calls and sessions that have not expired");
            Err(Problem::new(Code::TooManyRequests, detail))
        }
        Err(error) => Err(failed(&error)),
    }
}

/// Returns the org of listed work.
async fn org_of(state: &AdminState, kind: LiveKind, id: &str) -> Result<String> {
    let query = LiveQuery {
        kind,
        org: None,
        user: None,
        server: None,
        primitive: None,
        id: Some(id.to_owned()),
        limit: 1,
    };
    let found = state.live.live(&query).await.map_err(|error| failed(&error))?;
    found.into_iter().next().map(|work| work.org).ok_or_else(Problem::not_found)
}

fn failed(error: &LiveError) -> Problem {
    tracing::error!(%error, "running calls and sessions cannot be read or ended, and an admin's request got an internal error");
    Problem::new(Code::Internal, "running calls and sessions are not available at the moment")
}
