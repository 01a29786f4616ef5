//! Push notifications that their receivers did not take in time: dead letters, which an admin reads, replays and drops.
//!
//! Keeps true: nothing of a receiver is shown but scheme, host and port of its URL, and nothing of a task but its id and
//! state; an admin of an org sees and changes only that org's; each change is audited before it is made.

use asp_platform::time::rfc3339;
use asp_store::control::{Note, Precondition};
use asp_store::push::{DeadLetter, PushStoreError};
use axum::Json;
use axum::extract::State;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::auth::Admin;
use super::problem::{Code, Problem, Result};
use super::queues::Topic;
use super::request::{Path, Query};
use super::{AdminState, ApiState};

/// Default and maximum number of dead letters in a response.
const PAGE: u32 = 100;
const MAX_PAGE: u32 = 1_000;

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct DeadLettersParams {
    /// Only those of this org.
    org: Option<String>,
    /// Only those with a lower id, for the next page.
    before: Option<i64>,
    /// 1 to 1000 [default: 100]; other values are clamped.
    #[param(format = Int64)]
    limit: Option<u32>,
}

/// A push notification that was not received.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = DeadLetter)]
pub struct DeadLetterView {
    /// Later notifications have higher ids.
    id: i64,
    org: String,
    /// Id of the call, which is that of the task.
    task: String,
    /// Id of the push configuration.
    config: String,
    /// Scheme, host and port of the receiver.
    receiver: String,
    /// State of the call, e.g. `completed`
    state: &'static str,
    /// Time of the state (RFC 3339).
    at: String,
    attempts: u32,
    /// Reason of the last failure, e.g. `HTTP 503`
    fault: String,
}

impl DeadLetterView {
    fn of(letter: DeadLetter) -> DeadLetterView {
        let at = u64::try_from(letter.at_ms).unwrap_or_default();
        DeadLetterView {
            id: letter.seq,
            org: letter.org,
            task: uuid::Uuid::from_bytes(letter.call).to_string(),
            config: letter.config,
            receiver: letter.origin,
            state: letter.state.as_str(),
            at: rfc3339(at),
            attempts: letter.attempts,
            fault: letter.fault,
        }
    }
}

/// Lists push notifications that were not received, latest first.
#[utoipa::path(get, path = "/api/push/dead-letters", tag = "push", params(DeadLettersParams),
    responses((status = 200, body = [DeadLetterView])))]
pub async fn list(
    admin: Admin,
    State(state): ApiState,
    Query(params): Query<DeadLettersParams>,
) -> Result<Json<Vec<DeadLetterView>>> {
    if let Some(org) = &params.org {
        admin.of_org(org)?;
    }
    let org = params.org.as_deref().or(admin.role.org()).unwrap_or_default();
    let limit = params.limit.unwrap_or(PAGE).clamp(1, MAX_PAGE);
    let letters = state.pushes.dead_letters(org, params.before.unwrap_or(i64::MAX), limit).await?;
    Ok(Json(letters.into_iter().map(DeadLetterView::of).collect()))
}

/// Returns one push notification that was not received.
#[utoipa::path(get, path = "/api/push/dead-letters/{id}", tag = "push", params(("id" = i64, Path)),
    responses((status = 200, body = DeadLetterView), (status = 404, body = Problem)))]
pub async fn get(admin: Admin, State(state): ApiState, Path(id): Path<i64>) -> Result<Json<DeadLetterView>> {
    Ok(Json(DeadLetterView::of(find(&state, &admin, id).await?)))
}

/// Sends a notification again, before later ones of its receiver.
#[utoipa::path(post, path = "/api/push/dead-letters/{id}/replay", tag = "push", params(("id" = i64, Path)),
    responses((status = 204), (status = 404, body = Problem)))]
pub async fn replay(admin: Admin, State(state): ApiState, Path(id): Path<i64>) -> Result<StatusCode> {
    let letter = change(&state, &admin, id, "push.replay").await?;
    match state.pushes.replay_dead_letter(&letter.org, id).await? {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(Problem::not_found()),
    }
}

/// Deletes a notification that was not received.
#[utoipa::path(delete, path = "/api/push/dead-letters/{id}", tag = "push", params(("id" = i64, Path)),
    responses((status = 204), (status = 404, body = Problem)))]
pub async fn delete(admin: Admin, State(state): ApiState, Path(id): Path<i64>) -> Result<StatusCode> {
    let letter = change(&state, &admin, id, "push.drop").await?;
    match state.pushes.drop_dead_letter(&letter.org, id).await? {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(Problem::not_found()),
    }
}

/// Finds a dead letter that the admin may change, and audits the change.
async fn change(state: &AdminState, admin: &Admin, id: i64, action: &str) -> Result<DeadLetter> {
    let letter = find(state, admin, id).await?;
    admin.writer()?;
    let _permit = state.queues.to_write(Topic::Policy, admin).await?;
    let resource = format!("push/{id}");
    let detail = format!("task {}, receiver {}", uuid::Uuid::from_bytes(letter.call), letter.origin);
    let note = Note { action, resource: &resource, org: &letter.org, detail: &detail };
    state.store.note(&state.change(admin, Precondition::None), note).await?;
    Ok(letter)
}

/// Finds a dead letter that the admin may access.
async fn find(state: &AdminState, admin: &Admin, id: i64) -> Result<DeadLetter> {
    let found = state.pushes.dead_letter(admin.role.org().unwrap_or_default(), id).await?;
    found.ok_or_else(Problem::not_found)
}

impl From<PushStoreError> for Problem {
    fn from(error: PushStoreError) -> Problem {
        tracing::error!(
            %error,
            "push notifications cannot be read and an admin's request got an internal error; check the database of calls"
        );
        Problem::new(Code::Internal, "push notifications cannot be read at the moment")
    }
}
