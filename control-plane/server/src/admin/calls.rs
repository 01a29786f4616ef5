//! The audit log of calls, by page.
//!
//! Keeps true: an admin of one org sees only that org's calls and cannot tell whether another has any; no response is
//! larger than a page.

use std::sync::Arc;

use asp_store::audit::{AuditError, AuditQuery, StoredEvent};
use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::AdminState;
use super::auth::Admin;
use super::problem::{Code, Problem, Result};
use super::request::Query;

/// Default number of events in a response.
const PAGE: u32 = 100;

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct CallsParams {
    /// Only events of this org.
    org: Option<String>,
    /// Only events with a lower number, for the next page.
    before: Option<i64>,
    /// 1 to 1000 [default: 100]; other values are clamped.
    #[param(format = Int64)]
    limit: Option<u32>,
}

/// The start, the finish or another event of a call.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CallRecord {
    /// Position in the log; later events have higher numbers.
    seq: i64,
    /// Unix milliseconds.
    at: i64,
    org: String,
    /// Caller, primitive and outcome of the call; never arguments or results.
    #[schema(value_type = Object)]
    event: Value,
}

/// Lists events of calls, newest first, from the gateways that use this state directory.
#[utoipa::path(get, path = "/api/audit/calls", tag = "status", params(CallsParams), responses((status = 200, body = [CallRecord])))]
pub async fn list(
    admin: Admin,
    State(state): State<Arc<AdminState>>,
    Query(params): Query<CallsParams>,
) -> Result<Json<Vec<CallRecord>>> {
    if let Some(org) = &params.org {
        admin.of_org(org)?;
    }
    let org = params.org.or_else(|| admin.role.org().map(str::to_owned));
    let query = AuditQuery { org, before: params.before, limit: params.limit.unwrap_or(PAGE) };
    let page = state.calls.page(&query).await.map_err(|error| unreadable(&error))?;
    Ok(Json(page.into_iter().map(CallRecord::of).collect()))
}

pub(super) fn unreadable(error: &AuditError) -> Problem {
    tracing::error!(
        %error,
        "the audit log of calls cannot be read and an admin's request got an internal error; calls are not affected. \
         Check the audit file and its disk"
    );
    Problem::new(Code::Internal, "the audit log cannot be read at the moment")
}

impl CallRecord {
    fn of(stored: StoredEvent) -> CallRecord {
        let text = stored.event.event;
        let event = serde_json::from_str(&text).unwrap_or(Value::String(text));
        CallRecord { seq: stored.seq, at: stored.event.at_ms, org: stored.event.org, event }
    }
}
