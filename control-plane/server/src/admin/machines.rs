//! Keys with which machines of an org call (`psk`): created here, shown once, and stored as a hash.
//!
//! Keeps true: the key itself is returned once and is nowhere else, neither in the audit nor in the log; a machine may
//! have several valid keys, so that they can be rotated without a gap.

use std::sync::Arc;

use asp_edge::{KEY_PREFIX, names};
use asp_platform::clock;
use asp_platform::secret::{Secret, random_hex};
use asp_store::control::{MAX_MACHINE_KEY_BYTES, MachineKeyRecord, Precondition};
use axum::Json;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use utoipa::ToSchema;

use super::ApiState;
use super::auth::Admin;
use super::bounds;
use super::problem::{Problem, Result};
use super::queues::{self, Topic};
use super::request::Body;
use crate::policy::KEY_ID_BYTES;

/// Maximum number of groups and of scopes of a key.
const MAX_LISTED: usize = 16;
/// Default lifetime of a key: 90 days.
const TTL_SECONDS: u64 = 90 * DAY;
/// Maximum lifetime of a key, a year and a day: a leaked key that is never rotated ends eventually.
const MAX_TTL_SECONDS: u64 = 366 * DAY;
const MIN_TTL_SECONDS: u64 = 60;
const DAY: u64 = 24 * 60 * 60;

/// A key to create.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct NewKey {
    /// The machine's name: a machine in policy and limits, a user of the org in revocations and audit
    machine: String,
    /// Groups of the machine, at most 16
    #[serde(default)]
    groups: Vec<String>,
    /// Scopes of the machine, at most 16
    #[serde(default)]
    scopes: Vec<String>,
    /// 60 to 31,622,400 (366 days) [default: 90 days]
    ttl_seconds: Option<u64>,
}

/// A key in a list.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Key {
    /// Id for revocations of type `token` and bindings of type `wcit`; the second part of the key
    pub id: String,
    pub machine: String,
    pub groups: Vec<String>,
    pub scopes: Vec<String>,
    /// Unix milliseconds
    pub created_at: u64,
    /// Unix milliseconds
    pub expires_at: u64,
}

/// A key that was just created.
#[derive(Serialize, ToSchema)]
pub struct MadeKey {
    /// The key, which the machine sends as `Authorization: Bearer`. Returned once
    pub key: String,
    #[serde(flatten)]
    pub about: Key,
}

impl From<MachineKeyRecord> for Key {
    fn from(record: MachineKeyRecord) -> Key {
        let MachineKeyRecord { id, machine, groups, scopes, created_at, expires_at, .. } = record;
        Key { id, machine, groups, scopes, created_at, expires_at }
    }
}

/// Creates a key. The key is returned once, in this response.
#[utoipa::path(post, path = "/api/machines/orgs/{org}/keys", tag = "machines", request_body = NewKey,
    params(("org" = String, Path)),
    responses((status = 201, body = MadeKey), (status = 400, body = Problem), (status = 409, body = Problem)))]
pub async fn add(
    admin: Admin,
    State(state): ApiState,
    Path(org): Path<String>,
    Body(body): Body<NewKey>,
) -> Result<Response> {
    let (record, key) = make(&org, body, clock::now_ms())?;
    bounds::check(&state, &org, &record.groups, &record.scopes).await?;
    let change = state.change(&admin, Precondition::None);
    let permit = state.queues.to_write(Topic::Policy, &admin).await?;
    let work = {
        let (state, record) = (Arc::clone(&state), record.clone());
        async move {
            Ok::<_, Problem>(state.notify_publisher(state.store.add_machine_key(&change, &record).await?))
        }
    };
    queues::write(permit, work).await??;
    let made = MadeKey { key: key.expose().to_owned(), about: record.into() };
    let mut response = (StatusCode::CREATED, Json(made)).into_response();
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

/// Lists the org's keys, without the secrets.
#[utoipa::path(get, path = "/api/machines/orgs/{org}/keys", tag = "machines",
    params(("org" = String, Path)), responses((status = 200, body = Vec<Key>)))]
pub async fn list(_admin: Admin, State(state): ApiState, Path(org): Path<String>) -> Result<Json<Vec<Key>>> {
    let records = state.store.machine_keys(&org).await?;
    Ok(Json(records.into_iter().map(Key::from).collect()))
}

/// Deletes a key: within a second it grants no access any more, and its running calls end.
#[utoipa::path(delete, path = "/api/machines/orgs/{org}/keys/{id}", tag = "machines",
    params(("org" = String, Path), ("id" = String, Path)),
    responses((status = 204), (status = 404, body = Problem)))]
pub async fn delete(
    admin: Admin,
    State(state): ApiState,
    Path((org, id)): Path<(String, String)>,
) -> Result<StatusCode> {
    let change = state.change(&admin, Precondition::None);
    // In the queue of revocations, so that it does not wait for the org's policy writes.
    let _permit = state.queues.to_write(Topic::Revocations, &admin).await?;
    state.notify_publisher(state.store.delete_machine_key(&change, &org, &id).await?);
    Ok(StatusCode::NO_CONTENT)
}

/// Creates a key; returns the record to store, and the key.
fn make(org: &str, body: NewKey, now_ms: u64) -> Result<(MachineKeyRecord, Secret)> {
    let NewKey { machine, groups, scopes, ttl_seconds } = body;
    let terms = Terms { org, machine: &machine, groups: &groups, scopes: &scopes, ttl_seconds };
    let lives_ms = terms.check(0)?;
    let id = random_hex::<KEY_ID_BYTES>();
    let key = Secret::new(format!("{KEY_PREFIX}{id}_{}", Secret::random().expose()));
    let hash = Sha256::digest(key.expose()).iter().map(|byte| format!("{byte:02x}")).collect();
    let record = MachineKeyRecord {
        id,
        org: org.to_owned(),
        machine,
        hash,
        groups,
        scopes,
        created_at: now_ms,
        expires_at: now_ms.saturating_add(lives_ms),
    };
    Ok((record, key))
}

/// Owner, rights and lifetime of a machine's key or certificate.
pub(super) struct Terms<'a> {
    pub(super) org: &'a str,
    pub(super) machine: &'a str,
    pub(super) groups: &'a [String],
    pub(super) scopes: &'a [String],
    pub(super) ttl_seconds: Option<u64>,
}

impl Terms<'_> {
    /// Validates the terms; returns the lifetime in milliseconds. `more` is the number of bytes that are stored in
    /// addition.
    pub(super) fn check(&self, more: usize) -> Result<u64> {
        let &Terms { org, machine, groups, scopes, ttl_seconds } = self;
        for name in std::iter::once(machine).chain(groups.iter().map(String::as_str)) {
            if let Some(fault) = names::fault(name) {
                let shown: String = name.chars().take(64).collect();
                return Err(Problem::params(format!(
                    "machine and groups: `{}` {fault}",
                    shown.escape_debug()
                )));
            }
        }
        if !scopes.iter().all(|scope| bounds::is_scope(scope)) {
            return Err(Problem::params(
                "scopes: visible ASCII without quotes and backslashes, at most 128 each",
            ));
        }
        if groups.len() > MAX_LISTED || scopes.len() > MAX_LISTED {
            return Err(Problem::params(format!("groups and scopes: at most {MAX_LISTED} each")));
        }
        let ttl = ttl_seconds.unwrap_or(TTL_SECONDS);
        if !(MIN_TTL_SECONDS..=MAX_TTL_SECONDS).contains(&ttl) {
            return Err(Problem::params(format!("ttlSeconds: {MIN_TTL_SECONDS} to {MAX_TTL_SECONDS}")));
        }
        let texts = [org, machine].into_iter().chain(groups.iter().chain(scopes).map(String::as_str));
        if texts.map(str::len).sum::<usize>() + more > MAX_MACHINE_KEY_BYTES {
            let what = if more > 0 {
                "org, machine, uri, groups and scopes"
            } else {
                "org, machine, groups and scopes"
            };
            return Err(Problem::params(format!("{what}: at most {MAX_MACHINE_KEY_BYTES} bytes together")));
        }
        Ok(ttl.saturating_mul(1_000))
    }
}
