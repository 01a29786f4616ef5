//! Blocks: users and orgs that are kept out until an admin lets them in again.
//!
//! A revocation ends the tokens that were issued before it; a block refuses every token, also a new one. It is stored and
//! published as a revocation without an end, so that edges and gateways enforce it within a second, also while they
//! cannot read a store.
//! Keeps true: only the platform blocks an org, and only it lifts its own blocks; no admin blocks themselves.

use std::sync::Arc;

use asp_edge::names;
use asp_platform::clock;
use asp_store::control::{Precondition, RevocationRecord};
use axum::Json;
use axum::extract::State;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::ApiState;
use super::auth::Admin;
use super::problem::{Problem, Result};
use super::queues::{self, Topic};
use super::request::{Body, Query};
use super::revocations::{check_may_lift, live};
use crate::admission::AdmissionError;
use crate::policy::{BLOCK_ORG, BLOCK_USER};

/// End of a block: none. The last second that RFC 3339 can name, in Unix milliseconds, which every store and client can
/// represent.
pub(super) const FOREVER: u64 = 253_402_300_799_000;
const MAX_TEXT: usize = 512;
const PAGE: u32 = 100;
const MAX_PAGE: u32 = 1_000;

/// A block to make.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewBlock {
    /// `user` or `org`
    #[serde(rename = "type")]
    kind: String,
    /// Org of a user [default: the admin's org].
    org: Option<String>,
    /// The user or the org. A machine of an org with this name is blocked too.
    id: String,
    /// Shown to the blocked caller, up to 200 bytes of it.
    reason: Option<String>,
}

/// A block.
#[derive(Serialize, ToSchema)]
pub struct Block {
    pub block: String,
    /// `user` or `org`
    #[serde(rename = "type")]
    pub kind: String,
    pub org: String,
    pub id: String,
    pub reason: String,
    /// Unix milliseconds.
    pub since: u64,
    /// `platform` or `org`: an org's admins lift only their own blocks.
    pub by: &'static str,
}

impl From<RevocationRecord> for Block {
    fn from(record: RevocationRecord) -> Block {
        let kind = if record.kind == BLOCK_ORG { "org" } else { "user" };
        Block {
            block: record.id,
            kind: kind.to_owned(),
            org: record.org,
            id: record.target,
            reason: record.reason,
            since: record.created_at,
            by: if record.by_platform { "platform" } else { "org" },
        }
    }
}

/// Names of a block.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct BlockQuery {
    /// `user` or `org`
    #[serde(rename = "type")]
    kind: String,
    /// Org of a user [default: the admin's org].
    org: Option<String>,
    /// The user or the org.
    id: String,
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct BlocksQuery {
    /// Only blocks of this org.
    org: Option<String>,
    /// 1 to 1000 [default: 100]; other values are clamped.
    #[param(format = Int64)]
    limit: Option<u32>,
}

/// Blocks a user or an org: new requests are refused, with any token, and running calls end. The answer is 200 if the
/// caller was blocked already; then nothing changes.
#[utoipa::path(post, path = "/api/blocks", tag = "revocations", request_body = NewBlock,
    responses((status = 201, body = Block), (status = 200, body = Block), (status = 400, body = Problem)))]
pub async fn add(
    admin: Admin,
    State(state): ApiState,
    Body(body): Body<NewBlock>,
) -> Result<(StatusCode, Json<Block>)> {
    let record = record(&admin, body, clock::now_ms())?;
    let permit = state.queues.to_write(Topic::Revocations, &admin).await?;
    let platform = admin.role.is_platform();
    let known = live(state.store.as_ref(), &record.org).await?;
    // A block by an org does not do for the platform: the org could lift it.
    let is_same = |known: &RevocationRecord| {
        (&known.kind, &known.target) == (&record.kind, &record.target) && (known.by_platform || !platform)
    };
    if let Some(known) = known.into_iter().find(is_same) {
        return Ok((StatusCode::OK, Json(known.into())));
    }
    let change = state.change(&admin, Precondition::None);
    let work = {
        let state = Arc::clone(&state);
        let record = record.clone();
        async move {
            let written = state.admission.add_revocation(platform, &change, &record).await?;
            Ok::<_, AdmissionError>(state.notify_publisher(written))
        }
    };
    queues::write(permit, work).await??;
    Ok((StatusCode::CREATED, Json(record.into())))
}

fn record(admin: &Admin, body: NewBlock, now: u64) -> Result<RevocationRecord> {
    let NewBlock { kind, org, id, reason } = body;
    let (kind, org) = named(admin, (kind.as_str(), org, id.as_str()))?;
    admin.writer()?;
    if kind == BLOCK_ORG {
        admin.platform()?;
    }
    if let Some(fault) = names::fault(&id) {
        return Err(Problem::params(format!("id {fault}")));
    }
    if kind == BLOCK_USER && admin.role.org() == Some(org.as_str()) && admin.name == id {
        return Err(Problem::params("this would block yourself: ask another admin"));
    }
    let reason = reason.unwrap_or_default();
    if reason.len() > MAX_TEXT || reason.chars().any(char::is_control) {
        return Err(Problem::params(format!("reason: at most {MAX_TEXT} visible bytes")));
    }
    Ok(RevocationRecord {
        id: uuid::Uuid::now_v7().to_string(),
        kind: kind.to_owned(),
        org,
        target: id,
        issuer: String::new(),
        reason,
        created_at: now,
        until: FOREVER,
        by_platform: admin.role.is_platform(),
    })
}

/// Returns the kind of the record, and the org, which the admin may access.
fn named(admin: &Admin, (kind, org, id): (&str, Option<String>, &str)) -> Result<(&'static str, String)> {
    let own = || admin.role.org().map(str::to_owned);
    let (kind, org) = match kind {
        "user" => match org.or_else(own).filter(|org| !org.is_empty()) {
            Some(org) => (BLOCK_USER, org),
            None => return Err(Problem::params("a user is blocked within its org: org is missing")),
        },
        "org" => match org {
            Some(org) if org != id => return Err(Problem::params("org and id differ")),
            _ => (BLOCK_ORG, id.to_owned()),
        },
        _ => return Err(Problem::params("type must be user or org")),
    };
    admin.of_org(&org)?;
    Ok((kind, org))
}

/// Lists the blocks, newest first.
#[utoipa::path(get, path = "/api/blocks", tag = "revocations", params(BlocksQuery),
    responses((status = 200, body = Vec<Block>)))]
pub async fn list(
    admin: Admin,
    State(state): ApiState,
    Query(query): Query<BlocksQuery>,
) -> Result<Json<Vec<Block>>> {
    if let Some(org) = &query.org {
        admin.of_org(org)?;
    }
    let org = query.org.as_deref().or(admin.role.org());
    let limit = query.limit.unwrap_or(PAGE).clamp(1, MAX_PAGE);
    let records = state.store.blocks(org, limit).await?;
    Ok(Json(records.into_iter().map(Block::from).collect()))
}

/// Lets a blocked user or org in again. An org's admin cannot lift a block by the platform. Revocations stay in force.
#[utoipa::path(delete, path = "/api/blocks", tag = "revocations", params(BlockQuery),
    responses((status = 200, body = Vec<Block>), (status = 403, body = Problem), (status = 404, body = Problem)))]
pub async fn delete(
    admin: Admin,
    State(state): ApiState,
    Query(BlockQuery { kind, org, id }): Query<BlockQuery>,
) -> Result<Json<Vec<Block>>> {
    let (kind, org) = named(&admin, (kind.as_str(), org, id.as_str()))?;
    admin.writer()?;
    let permit = state.queues.to_write(Topic::Revocations, &admin).await?;
    let mut lifted = live(state.store.as_ref(), &org).await?;
    lifted.retain(|found| (found.kind.as_str(), &found.target) == (kind, &id));
    if lifted.is_empty() {
        return Err(Problem::not_found());
    }
    for found in &lifted {
        check_may_lift(&admin, found)?;
    }
    let work = async move {
        for found in &lifted {
            let change = state.change(&admin, Precondition::None);
            state.notify_publisher(state.store.delete_revocation(&change, &found.id).await?);
        }
        Ok::<_, Problem>(Json(lifted.into_iter().map(Block::from).collect()))
    };
    queues::write(permit, work).await?
}
