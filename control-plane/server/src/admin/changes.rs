//! The audit of changes, with filters.
//!
//! Keeps true: an admin of one org sees only that org's changes; a parameter that is not known is refused.

use std::sync::Arc;

use asp_store::control::{AuditQuery, AuditRecord};
use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, Uri, header};
use serde::Deserialize;
use utoipa::IntoParams;

use super::auth::Admin;
use super::calls::{bounded, next_link, org_of, parse_range};
use super::problem::{Problem, Result};
use super::request::Query;
use super::{AdminState, status};

/// Default number of changes in a response.
const PAGE: u32 = 100;
/// Maximum number of changes in a response.
const MAX_PAGE: u32 = 1_000;

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct ChangesParams {
    /// Only changes of this org.
    org: Option<String>,
    /// Only changes by this admin: `NAME`, or `NAME@SCOPE` as in `actor`.
    user: Option<String>,
    /// Only changes of one kind, as of `/api/audit`.
    kind: Option<String>,
    /// Only changes with this action, e.g. `exposure.put` or `refused`.
    action: Option<String>,
    /// Only changes at or after this time: RFC 3339 or Unix milliseconds.
    from: Option<String>,
    /// Only changes before this time: RFC 3339 or Unix milliseconds.
    to: Option<String>,
    /// Position to continue from: the `cursor` in the `Link` header of the page before.
    cursor: Option<u64>,
    /// 1 to 1000 [default: 100]; other values are clamped.
    #[param(format = Int64)]
    limit: Option<u32>,
}

/// Lists changes, newest first. If there are more, the `Link` header has the next page (`rel="next"`).
#[utoipa::path(get, path = "/api/audit/changes", tag = "status", params(ChangesParams),
    responses((status = 200, body = Vec<Object>), (status = 400, body = Problem)))]
pub async fn list(
    admin: Admin,
    State(state): State<Arc<AdminState>>,
    uri: Uri,
    Query(params): Query<ChangesParams>,
) -> Result<Response> {
    let (from, to) = parse_range(params.from.as_deref(), params.to.as_deref())?;
    if params.cursor.is_some_and(|cursor| i64::try_from(cursor).is_err()) {
        return Err(Problem::params("cursor: no revision is that high"));
    }
    for (name, value) in [("user", &params.user), ("action", &params.action)] {
        value.as_deref().map(|value| bounded(name, value)).transpose()?;
    }
    let limit = params.limit.unwrap_or(PAGE).clamp(1, MAX_PAGE);
    let query = AuditQuery {
        org: org_of(&admin, params.org)?,
        resources: params
            .kind
            .as_deref()
            .map_or(Ok::<&'static [&'static str], Problem>(&[]), status::resources)?,
        before: params.cursor,
        limit,
        actor: params.user,
        action: params.action,
        from,
        to,
    };
    let found: Vec<AuditRecord> = state.store.audit(&query).await?;
    let is_full = u32::try_from(found.len()).is_ok_and(|count| count >= limit);
    let next = found.last().filter(|_| is_full).map(|last| last.revision.to_string());
    let mut response = Json(found).into_response();
    if let Some(next) = next
        && let Ok(link) = HeaderValue::from_str(&next_link(&uri, "cursor", &next))
    {
        response.headers_mut().insert(header::LINK, link);
    }
    Ok(response)
}
