//! Revocations: durable before the response, enforced at the edges within a second.

mod lasting;

use std::collections::BTreeSet;
use std::sync::Arc;

use asp_edge::names;
use asp_issuers::trusted_issuer::MAX_TTL;
use asp_platform::clock;
use asp_proto::snapshot::Binding;
use asp_store::control::sql::ControlStore;
use asp_store::control::{
    MAX_REVOCATIONS, MAX_REVOCATIONS_AT_ONCE, Precondition, RevocationRecord, StoreError, linked_token_target,
};
use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::auth::{Admin, MORE_LEEWAY};
use super::name_checks::KnownNames;
use super::problem::{Code, Problem, Result};
use super::queues::{self, Topic};
use super::request::{Body, Path, Query};
use super::{AdminState, ApiState};
use crate::admission::AdmissionError;
use crate::policy::{self, BLOCK_ORG, BLOCK_USER, LINKED_TOKEN};
use lasting::Lockout;

/// Leeway added to the maximum lifetime of a token, because clocks differ.
const LEEWAY_MS: u64 = 60_000;
const MAX_TEXT: usize = 512;
const PAGE: u32 = 100;
const MAX_PAGE: u32 = 1_000;

/// A revocation to make.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewRevocation {
    /// `token` (a jti), `token_hash` (lower-case hex SHA-256 of the compact token), `user`, `org` or `linked_token` (tokens
    /// of linked accounts: a provider, or `provider/user`)
    #[serde(rename = "type")]
    kind: String,
    /// Required for `user`, where `""` means the admins of the platform. A token is revoked only if it belongs to this
    /// org; an org admin's revocation always applies to its own org. Linked tokens without an org are those of every org.
    org: Option<String>,
    id: String,
    reason: Option<String>,
    /// `iss` of a revoked jti [default: every issuer]. Only for `token`.
    issuer: Option<String>,
    /// `exp` of the token in Unix seconds, if known: the revocation is dropped after it. Only for `token` and
    /// `token_hash`: a user's or org's tokens expire at different times.
    exp: Option<u64>,
}

/// Tokens to revoke together.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewRevocations {
    /// `token` or `token_hash`
    #[serde(rename = "type")]
    kind: String,
    /// Org, as for a single revocation.
    org: Option<String>,
    /// Ids of tokens, 1 to 1,000.
    ids: Vec<String>,
    reason: Option<String>,
    issuer: Option<String>,
    exp: Option<u64>,
}

/// A revocation.
#[derive(Serialize, ToSchema)]
pub struct Revocation {
    pub revocation: String,
    #[serde(rename = "type")]
    pub kind: String,
    pub org: String,
    pub id: String,
    pub issuer: String,
    pub reason: String,
    /// Unix milliseconds.
    #[serde(rename = "createdAt")]
    pub created_at: u64,
    /// Unix milliseconds. In the response to a batch this is the requested time: a revocation of a machine's key or
    /// certificate is kept longer.
    pub until: u64,
}

impl From<RevocationRecord> for Revocation {
    fn from(record: RevocationRecord) -> Revocation {
        let RevocationRecord { id, kind, org, target, issuer, reason, created_at, until, by_platform: _ } =
            record;
        Revocation { revocation: id, kind, org, id: target, issuer, reason, created_at, until }
    }
}

/// A revocation that was made, and its limits.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct MadeRevocation {
    #[serde(flatten)]
    pub revocation: Revocation,
    /// Unix seconds, for a user or an org: tokens issued up to it are revoked, later ones are not. It is some seconds
    /// in the future, because an issuer's clock may be ahead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub issued_until: Option<u64>,
    /// Whether a token issued after that works. Always true: a revocation ends tokens and does not deny their holder.
    pub new_tokens_work: bool,
    /// Commands that deny every call of the user or org, also with new tokens, until they are reverted. At most 20, and
    /// 20 more for a machine with the user's name; empty for a single token and for admins of the platform.
    pub keep_out: Vec<String>,
    /// Number of bindings that still allow calls after `keepOut`, because more than 20 commands are needed. Once those
    /// are stored, the response to another revocation has the next ones.
    pub keep_out_omitted: usize,
}

impl MadeRevocation {
    async fn of(state: &AdminState, admin: &Admin, record: RevocationRecord) -> Result<MadeRevocation> {
        let (commands, omitted) = keep_out_commands(state, admin, &record).await?;
        let before = policy::revoked([&record], &[], record.created_at).before;
        // A user without an org is an admin of the platform.
        let more = if record.org.is_empty() && record.kind == "user" { MORE_LEEWAY } else { 0 };
        Ok(MadeRevocation {
            issued_until: before.first().map(|before| before.not_after_iat + more),
            new_tokens_work: true,
            keep_out: commands,
            keep_out_omitted: omitted,
            revocation: record.into(),
        })
    }
}

/// Returns the commands that keep a revoked user or org out, and the number of allows that remain. None for a single
/// token and for admins of the platform, to whom no policy applies.
async fn keep_out_commands(
    state: &AdminState,
    admin: &Admin,
    record: &RevocationRecord,
) -> Result<(Vec<String>, usize)> {
    let (org, user) = match record.kind.as_str() {
        "user" if !record.org.is_empty() => (record.org.as_str(), Some(record.target.as_str())),
        "org" => (record.target.as_str(), None),
        _ => return Ok((Vec::new(), 0)),
    };
    let (own, others) = match user {
        Some(user) => credentials_of_machines(state, org, user).await?,
        None => (BTreeSet::new(), BTreeSet::new()),
    };
    let bindings = state.store.bindings(org).await?.value;
    let lockout = Lockout { org, user, is_machine: false, others };
    let (mut denials, mut omitted) = lockout.denials(&bindings);
    // A user's revocation also ends the keys of a machine with that name, to which bindings of users do not apply.
    if !own.is_empty() {
        let (more, beyond) = Lockout { is_machine: true, ..lockout }.denials(&bindings);
        denials.extend(more.into_iter().filter(|denial| !denials.contains(denial)).collect::<Vec<_>>());
        omitted += beyond;
    }
    let known = KnownNames::read(state, admin, org).await?;
    let command = |denial: &Binding| lasting::command(denial, known.need_force(&denial.primitive));
    Ok((denials.iter().map(command).collect(), omitted))
}

/// Returns the ids of keys and certificates of an org's machines: those of the machine with this name, and those of all
/// others.
async fn credentials_of_machines(
    state: &AdminState,
    org: &str,
    name: &str,
) -> Result<(BTreeSet<String>, BTreeSet<String>)> {
    let keys = state.store.machine_keys(org).await?.into_iter().map(|key| (key.id, key.machine));
    let certificates = state.store.machine_certificates(org).await?;
    let certificates = certificates.into_iter().map(|known| (known.id, known.machine));
    let (own, others): (Vec<_>, Vec<_>) = keys.chain(certificates).partition(|(_, machine)| machine == name);
    let ids = |list: Vec<(String, String)>| list.into_iter().map(|(id, _)| id).collect();
    Ok((ids(own), ids(others)))
}

/// Revokes one token, or every token of a user or org that was issued until now.
#[utoipa::path(post, path = "/api/revocations", tag = "revocations", request_body = NewRevocation,
    responses((status = 201, body = MadeRevocation), (status = 400, body = Problem)))]
pub async fn add(admin: Admin, State(state): ApiState, Body(body): Body<NewRevocation>) -> Result<Response> {
    let now = clock::now_ms();
    let record = record(&admin, body, now)?;
    let change = state.change(&admin, Precondition::None);
    let platform = admin.role.is_platform();
    let permit = state.queues.to_write(Topic::Revocations, &admin).await?;
    let work = {
        let (state, record) = (Arc::clone(&state), record.clone());
        async move {
            let written = state.admission.add_revocation(platform, &change, &record).await?;
            Ok::<_, AdmissionError>(state.notify_publisher(written))
        }
    };
    queues::write(permit, work).await??;
    // It may be kept longer than requested (`MachineKeyRecord`).
    let record = state.store.revocation(&record.id).await?.unwrap_or(record);
    let location = HeaderValue::from_str(&format!("/api/revocations/{}", record.id));
    let revoked = MadeRevocation::of(&state, &admin, record).await?;
    let mut response = (StatusCode::CREATED, Json(revoked)).into_response();
    if let Ok(location) = location {
        response.headers_mut().insert(header::LOCATION, location);
    }
    Ok(response)
}

/// Revokes up to 1,000 tokens of one org in one write: all of them, or none if one of the ids is not a token.
#[utoipa::path(post, path = "/api/revocations/batch", tag = "revocations", request_body = NewRevocations,
    responses((status = 201, body = Vec<Revocation>), (status = 400, body = Problem)))]
pub async fn add_several(
    admin: Admin,
    State(state): ApiState,
    Body(body): Body<NewRevocations>,
) -> Result<(StatusCode, Json<Vec<Revocation>>)> {
    let change = state.change(&admin, Precondition::None);
    let records = records(&admin, body, change.at)?;
    let platform = admin.role.is_platform();
    let permit = state.queues.to_write(Topic::Revocations, &admin).await?;
    let work = {
        let (state, records) = (Arc::clone(&state), records.clone());
        async move {
            let written = state.admission.add_revocations(platform, &change, &records).await?;
            Ok::<_, AdmissionError>(state.notify_publisher(written))
        }
    };
    queues::write(permit, work).await??;
    Ok((StatusCode::CREATED, Json(records.into_iter().map(Revocation::from).collect())))
}

/// Returns one record for each distinct token.
fn records(admin: &Admin, body: NewRevocations, now: u64) -> Result<Vec<RevocationRecord>> {
    let NewRevocations { kind, org, ids, reason, issuer, exp } = body;
    if !matches!(kind.as_str(), "token" | "token_hash") {
        return Err(Problem::params(
            "type must be token or token_hash: a user or an org is revoked by one entry",
        ));
    }
    if ids.is_empty() || ids.len() > MAX_REVOCATIONS_AT_ONCE {
        return Err(Problem::params(format!("ids: 1 to {MAX_REVOCATIONS_AT_ONCE} of them")));
    }
    let ids: BTreeSet<String> = ids.into_iter().collect();
    let of = |id| {
        let (kind, org, reason, issuer) = (kind.clone(), org.clone(), reason.clone(), issuer.clone());
        record(admin, NewRevocation { kind, org, id, reason, issuer, exp }, now)
    };
    ids.into_iter().map(of).collect()
}

fn record(admin: &Admin, body: NewRevocation, now: u64) -> Result<RevocationRecord> {
    let hash = |id: &str| id.len() == 64 && id.chars().all(|c| matches!(c, '0'..='9' | 'a'..='f'));
    let org = match (body.kind.as_str(), body.org) {
        ("org", None) => body.id.clone(),
        ("org", Some(org)) if org != body.id => return Err(Problem::params("org and id differ")),
        ("user", None) => return Err(Problem::params("a user is revoked within its org: org is missing")),
        ("token_hash", _) if !hash(&body.id) => {
            return Err(Problem::params("id must be the lower-case hex SHA-256 of the compact token"));
        }
        // An org admin's revocation applies to its own org, named or not.
        ("token" | "token_hash" | LINKED_TOKEN, None) => admin.role.org().unwrap_or_default().to_owned(),
        ("token" | "token_hash" | LINKED_TOKEN | "user" | "org", Some(org)) => org,
        (BLOCK_USER | BLOCK_ORG, _) => return Err(Problem::params("blocks are made by /api/blocks")),
        _ => return Err(Problem::params("type must be token, token_hash, user, org or linked_token")),
    };
    if org.is_empty() {
        admin.platform()?;
    } else {
        admin.of_org(&org)?;
    }
    admin.writer()?;
    if body.exp.is_some() && !matches!(body.kind.as_str(), "token" | "token_hash") {
        return Err(Problem::params(
            "exp is one token's: a user or an org stays revoked until all their tokens have ended",
        ));
    }
    if body.issuer.is_some() && body.kind != "token" {
        return Err(Problem::params("issuer is only for type token"));
    }
    if let Some(fault) = names::fault(&body.id) {
        return Err(Problem::params(format!("id {fault}")));
    }
    if body.kind == LINKED_TOKEN && linked_token_target(&body.id).is_none() {
        return Err(Problem::params("id must be a provider, or provider/user"));
    }
    let issuer = body.issuer.unwrap_or_default();
    let reason = body.reason.unwrap_or_default();
    let bounded = |text: &str| text.len() <= MAX_TEXT && !text.chars().any(char::is_control);
    if !bounded(&issuer) || !bounded(&reason) {
        return Err(Problem::params(format!("issuer and reason: at most {MAX_TEXT} visible bytes")));
    }
    let longest = longest(now);
    let known = body.exp.map(|exp| exp.saturating_mul(1_000).saturating_add(LEEWAY_MS));
    Ok(RevocationRecord {
        id: uuid::Uuid::now_v7().to_string(),
        kind: body.kind,
        org,
        target: body.id,
        issuer,
        reason,
        created_at: now,
        until: known.map_or(longest, |known| known.min(longest)),
        by_platform: admin.role.is_platform(),
    })
}

/// Returns the time until which a token that is issued now may live, in Unix milliseconds.
fn longest(now: u64) -> u64 {
    now + u64::try_from(MAX_TTL.as_millis()).unwrap_or(u64::MAX) + LEEWAY_MS
}

/// Returns a lifted revocation as a new one, which ends tokens issued until now; `None` if its token has expired.
pub(super) fn renewed(record: &RevocationRecord, admin: &Admin, now: u64) -> Option<RevocationRecord> {
    // A block has no end.
    let keeps_its_end = matches!(record.kind.as_str(), "token" | "token_hash" | BLOCK_USER | BLOCK_ORG);
    let until = if keeps_its_end { record.until } else { longest(now) };
    (until > now).then(|| RevocationRecord {
        id: uuid::Uuid::now_v7().to_string(),
        created_at: now,
        until,
        by_platform: record.by_platform && admin.role.is_platform(),
        ..record.clone()
    })
}

/// Returns the live revocations of an org; for an empty one, those that belong to no org.
pub(super) async fn live(store: &ControlStore, org: &str) -> Result<Vec<RevocationRecord>, StoreError> {
    let mut live = store.revocations(Some(org).filter(|org| !org.is_empty()), ALL).await?;
    live.retain(|record| record.org == org);
    Ok(live)
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct ListQuery {
    /// Only revocations of this org.
    org: Option<String>,
    /// 1 to 1000 [default: 100]; other values are clamped.
    #[param(format = Int64)]
    limit: Option<u32>,
}

/// Lists the live revocations, newest first.
#[utoipa::path(get, path = "/api/revocations", tag = "revocations", params(ListQuery),
    responses((status = 200, body = Vec<Revocation>)))]
pub async fn list(
    admin: Admin,
    State(state): ApiState,
    Query(query): Query<ListQuery>,
) -> Result<Json<Vec<Revocation>>> {
    if let Some(org) = &query.org {
        admin.of_org(org)?;
    }
    let org = query.org.as_deref().or(admin.role.org());
    let limit = query.limit.unwrap_or(PAGE).clamp(1, MAX_PAGE);
    let records = state.store.revocations(org, limit).await?;
    Ok(Json(records.into_iter().map(Revocation::from).collect()))
}

/// Returns one revocation.
#[utoipa::path(get, path = "/api/revocations/{id}", tag = "revocations", params(("id" = String, Path)),
    responses((status = 200, body = Revocation), (status = 404, body = Problem)))]
pub async fn get(admin: Admin, State(state): ApiState, Path(id): Path<String>) -> Result<Json<Revocation>> {
    find(&admin, &state, &id).await.map(|record| Json(record.into()))
}

/// Reverts a revocation. An org's admin cannot revert a revocation by the platform.
#[utoipa::path(delete, path = "/api/revocations/{id}", tag = "revocations", params(("id" = String, Path)),
    responses((status = 204), (status = 403, body = Problem), (status = 404, body = Problem)))]
pub async fn delete(admin: Admin, State(state): ApiState, Path(id): Path<String>) -> Result<StatusCode> {
    let record = find(&admin, &state, &id).await?;
    admin.writer()?;
    check_may_lift(&admin, &record)?;
    let _permit = state.queues.to_write(Topic::Revocations, &admin).await?;
    let change = state.change(&admin, Precondition::None);
    state.notify_publisher(state.store.delete_revocation(&change, &id).await?);
    Ok(StatusCode::NO_CONTENT)
}

/// Maximum number of live revocations.
const ALL: u32 = MAX_REVOCATIONS as u32;

/// Reverts every live revocation with the same type, org and id. An org's admin reverts none of them if the platform
/// made one.
#[utoipa::path(delete, path = "/api/revocations", tag = "revocations", request_body = NewRevocation,
    responses((status = 200, body = Vec<Revocation>), (status = 403, body = Problem), (status = 404, body = Problem)))]
pub async fn delete_matching(
    admin: Admin,
    State(state): ApiState,
    Body(body): Body<NewRevocation>,
) -> Result<Json<Vec<Revocation>>> {
    let wanted = record(&admin, body, clock::now_ms())?;
    let permit = state.queues.to_write(Topic::Revocations, &admin).await?;
    let mut live = live(state.store.as_ref(), &wanted.org).await?;
    live.retain(|found| (&found.kind, &found.target) == (&wanted.kind, &wanted.target));
    if live.is_empty() {
        return Err(Problem::not_found());
    }
    for found in &live {
        check_may_lift(&admin, found)?;
    }
    let work = async move {
        for found in &live {
            let change = state.change(&admin, Precondition::None);
            state.notify_publisher(state.store.delete_revocation(&change, &found.id).await?);
        }
        Ok::<_, Problem>(Json(live.into_iter().map(Revocation::from).collect()))
    };
    queues::write(permit, work).await?
}

/// Finds a revocation that the admin may access.
async fn find(admin: &Admin, state: &AdminState, id: &str) -> Result<RevocationRecord> {
    let record = state.store.revocation(id).await?.ok_or_else(Problem::not_found)?;
    if admin.role.org().is_some_and(|own| own != record.org) {
        return Err(Problem::not_found());
    }
    Ok(record)
}

/// Refuses to let an org's admins revert a revocation by the platform.
pub(super) fn check_may_lift(admin: &Admin, record: &RevocationRecord) -> Result<()> {
    if record.by_platform && !admin.role.is_platform() {
        let detail = format!(
            "an admin of the platform made revocation {}: only the platform's admins take it back",
            record.id
        );
        return Err(Problem::new(Code::Forbidden, detail));
    }
    Ok(())
}
