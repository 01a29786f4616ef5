//! Messages of the topic of revocations that revoked nothing: parked, for the platform's admins to read and drop.
//!
//! Keeps true: a change is audited before it is made. What to revoke instead is a request of its own.

use asp_platform::time::rfc3339;
use asp_store::control::{Note, ParkedEvent, Precondition};
use axum::Json;
use axum::extract::State;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::ApiState;
use super::auth::Admin;
use super::problem::{Problem, Result};
use super::queues::Topic;
use super::request::{Path, Query};

/// Default and maximum number of messages in a response.
const PAGE: u32 = 100;
const MAX_PAGE: u32 = 500;

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct ParkedParams {
    /// 1 to 500 [default: 100]; other values are clamped.
    #[param(format = Int64)]
    limit: Option<u32>,
}

/// A message that revoked nothing.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ParkedMessage {
    /// Topic, partition and offset.
    id: String,
    /// Time at which it was parked (RFC 3339).
    parked_at: String,
    fault: String,
    /// Text of the message, at most 4 KiB and without tokens.
    message: String,
}

impl From<ParkedEvent> for ParkedMessage {
    fn from(parked: ParkedEvent) -> ParkedMessage {
        let ParkedEvent { id, parked_at, fault, payload } = parked;
        ParkedMessage { id, parked_at: rfc3339(parked_at), fault, message: payload }
    }
}

/// Lists the messages of the topic of revocations that revoked nothing, newest first.
#[utoipa::path(get, path = "/api/kafka/parked", tag = "revocations", params(ParkedParams),
    responses((status = 200, body = [ParkedMessage])))]
pub async fn parked(
    _admin: Admin,
    State(state): ApiState,
    Query(params): Query<ParkedParams>,
) -> Result<Json<Vec<ParkedMessage>>> {
    let limit = params.limit.unwrap_or(PAGE).clamp(1, MAX_PAGE);
    let parked = state.store.parked_events(limit).await?;
    Ok(Json(parked.into_iter().map(ParkedMessage::from).collect()))
}

/// Deletes a message that revoked nothing, once it was dealt with.
#[utoipa::path(delete, path = "/api/kafka/parked/{id}", tag = "revocations", params(("id" = String, Path)),
    responses((status = 204), (status = 404, body = Problem)))]
pub async fn drop_parked(admin: Admin, State(state): ApiState, Path(id): Path<String>) -> Result<StatusCode> {
    let parked = state.store.parked_event(&id).await?.ok_or_else(Problem::not_found)?;
    admin.writer()?;
    let _permit = state.queues.to_write(Topic::Policy, &admin).await?;
    let resource = format!("kafka/{}", parked.id);
    let note = Note { action: "kafka.drop", resource: &resource, org: "", detail: &parked.fault };
    state.store.note(&state.change(&admin, Precondition::None), note).await?;
    match state.store.delete_parked_event(&parked.id).await? {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(Problem::not_found()),
    }
}
