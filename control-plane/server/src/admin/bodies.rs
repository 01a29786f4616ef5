//! Arguments and results of calls that the operator has kept, for auditors.
//!
//! Keeps true: only the role `auditor` reads them, and each reading is a row of the audit of changes, of the call's org.

use std::sync::Arc;

use asp_store::audit::CapturedBody;
use asp_store::control::{Note, Precondition};
use axum::Json;
use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;

use super::AdminState;
use super::auth::Admin;
use super::calls::bounded;
use super::problem::{Problem, Result};
use super::request::Path;

/// The arguments or the result of a call.
#[derive(Serialize, ToSchema)]
pub struct CallBody {
    /// Unix milliseconds.
    at: i64,
    org: String,
    call: String,
    /// `arguments` or `result`
    part: String,
    /// JSON text without its secrets, cut after 16 KiB
    body: String,
}

/// Returns the arguments and the result of a call, redacted, if those of its server are kept (`ASP_AUDIT_CAPTURE`). The
/// reading is audited.
#[utoipa::path(get, path = "/api/audit/calls/{call}/bodies", tag = "status", params(("call" = String, Path)),
    responses((status = 200, body = [CallBody]), (status = 404, body = Problem)))]
pub async fn get(
    admin: Admin,
    State(state): State<Arc<AdminState>>,
    Path(call): Path<String>,
) -> Result<Json<Vec<CallBody>>> {
    let call = bounded("call", &call)?;
    let found = state.calls.captured(call).await?;
    let Some(first) = found.first() else { return Err(Problem::not_found()) };
    let resource = format!("call/{call}");
    let note = Note { action: "bodies.read", resource: &resource, org: &first.org, detail: "" };
    // Before they are shown: nobody reads unseen.
    state.store.note(&state.change(&admin, Precondition::None), note).await?;
    let body = |CapturedBody { at_ms, org, call, part, body }| CallBody { at: at_ms, org, call, part, body };
    Ok(Json(found.into_iter().map(body).collect()))
}
