//! Rate limits of an org: the list is always replaced as a whole.

use asp_snapshot::limits::{EVERY_ORG, MAX_DRAWN};
use asp_store::control::sql::ControlStore;
use asp_store::control::{
    AtRevision, CONCURRENCY, Change, Commit, FIXED_WINDOW, LimitRecord, SLIDING_WINDOW, StoreError,
    TOKEN_BUCKET,
};
use async_trait::async_trait;
use axum::Json;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::lists::{self, OrgRequest, PlatformRequest, PolicyList};
use super::name_checks::{ForceQuery, Mention};
use super::problem::{Problem, Result};
use super::request::{Body, Query};
use crate::admission::{Admission, AdmissionError};
use crate::patterns;
use crate::policy::overlap::{self, OverlapFault};
use crate::policy::refill::{self, CONCURRENCY_REFILL, MAX_CAPACITY};
use crate::policy::window;

/// One limit.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RateLimit {
    pub selector: Selector,
    pub policy: Policy,
}

/// Calls that the limit counts; a missing part is `*`. It may name a user or a machine, not both.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Selector {
    #[serde(default = "any")]
    pub server: String,
    /// Primitive id: exact, `prefix*` or `*`; an exposed name as in a binding
    #[serde(default = "any")]
    pub primitive: String,
    /// Name of a user; `*`: one bucket for all users and machines together; `each`: one bucket for each user. The same
    /// name at two issuers is two users, and no machine
    #[serde(default = "any")]
    pub user: String,
    /// Id of a token (`jti`); `*`: one bucket for all tokens together; `each`: one bucket for each token
    #[serde(default = "any")]
    pub wcit: String,
    /// Name of an issuer, to count only its users and tokens; `*`: those of every issuer
    #[serde(default = "any", skip_serializing_if = "is_any")]
    pub issuer: String,
    /// Name of a machine; `each`: one bucket for each machine; `*`: the limit is not only for machines
    #[serde(default = "any", skip_serializing_if = "is_any")]
    pub machine: String,
    /// Group of the callers, as their token or key names it; `*`: callers of every group
    #[serde(default = "any", skip_serializing_if = "is_any")]
    pub group: String,
}

/// Rate of calls that a limit allows.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// `token-bucket` [default]; `fixed-window`: `capacity` calls in each `window`, counted from midnight UTC if it is a day;
    /// `sliding-window`: `capacity` calls in any period of this length; `concurrency`: `capacity` calls that run at once
    #[serde(rename = "type", default = "token_bucket")]
    pub kind: String,
    pub capacity: u64,
    /// Rate of a token bucket, e.g. `100/s`, `30/m`, `1000/h`
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub refill: String,
    /// Length of a window, e.g. `60s`, `15m`, `1h`, `1d`
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub window: String,
    /// Counts calls and refuses none
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub observe: bool,
}

fn any() -> String {
    "*".to_owned()
}

fn is_any(text: &str) -> bool {
    text == "*"
}

fn token_bucket() -> String {
    TOKEN_BUCKET.to_owned()
}

/// Replaces the org's limits.
#[utoipa::path(put, path = "/api/ratelimits/orgs/{org}", tag = "limits", request_body = Vec<RateLimit>,
    params(("org" = String, Path), ForceQuery),
    responses((status = 200, body = Vec<RateLimit>), (status = 412, body = Problem), (status = 422, body = Problem)))]
pub async fn put(
    request: OrgRequest,
    Query(forced): Query<ForceQuery>,
    Body(body): Body<Vec<RateLimit>>,
) -> Result<Response> {
    lists::put::<LimitList>(request, forced, body).await
}

/// Lists the org's limits.
#[utoipa::path(get, path = "/api/ratelimits/orgs/{org}", tag = "limits",
    params(("org" = String, Path)), responses((status = 200, body = Vec<RateLimit>)))]
pub async fn get(request: OrgRequest) -> Result<Response> {
    lists::get::<LimitList>(request).await
}

/// Removes the org's limits.
#[utoipa::path(delete, path = "/api/ratelimits/orgs/{org}", tag = "limits",
    params(("org" = String, Path)), responses((status = 200, body = Object)))]
pub async fn delete(request: OrgRequest) -> Result<Json<Value>> {
    lists::delete::<LimitList>(request, ()).await
}

/// Replaces the limits that count for all orgs together.
#[utoipa::path(put, path = "/api/ratelimits/platform", tag = "limits", request_body = Vec<RateLimit>, params(ForceQuery),
    responses((status = 200, body = Vec<RateLimit>), (status = 412, body = Problem), (status = 422, body = Problem)))]
pub async fn put_platform(
    PlatformRequest(request): PlatformRequest,
    Query(forced): Query<ForceQuery>,
    Body(body): Body<Vec<RateLimit>>,
) -> Result<Response> {
    lists::put::<LimitList>(request, forced, body).await
}

/// Lists the limits that count for all orgs together.
#[utoipa::path(get, path = "/api/ratelimits/platform", tag = "limits",
    responses((status = 200, body = Vec<RateLimit>)))]
pub async fn get_platform(PlatformRequest(request): PlatformRequest) -> Result<Response> {
    lists::get::<LimitList>(request).await
}

/// Removes the limits that count for all orgs together.
#[utoipa::path(delete, path = "/api/ratelimits/platform", tag = "limits",
    responses((status = 200, body = Object)))]
pub async fn delete_platform(PlatformRequest(request): PlatformRequest) -> Result<Json<Value>> {
    lists::delete::<LimitList>(request, ()).await
}

struct LimitList;

#[async_trait]
impl PolicyList for LimitList {
    type Body = Vec<RateLimit>;
    type Record = Vec<LimitRecord>;
    type Key = ();
    type Entry = RateLimit;

    fn names(record: &Vec<LimitRecord>) -> Vec<Mention> {
        record
            .iter()
            .map(|limit| Mention { server: limit.server.clone(), primitive: limit.primitive.clone() })
            .collect()
    }

    fn primitives(record: &mut Vec<LimitRecord>) -> Vec<&mut String> {
        record.iter_mut().map(|limit| &mut limit.primitive).collect()
    }

    fn check(record: &Vec<LimitRecord>) -> Result<()> {
        check_overlap(record)
    }

    fn issuers(record: &Vec<LimitRecord>) -> Vec<&str> {
        record.iter().map(|limit| limit.issuer.as_str()).filter(|issuer| *issuer != "*").collect()
    }

    fn record(org: &str, body: Vec<RateLimit>) -> Result<Vec<LimitRecord>> {
        let records = body.into_iter().enumerate().map(record).collect::<Result<Vec<_>>>()?;
        match records.iter().position(names_callers).filter(|_| org == EVERY_ORG) {
            Some(position) => Err(Problem::params(format!(
                "limit {position}: a limit of all orgs is for everyone: user, wcit, machine and group must be *"
            ))),
            None => Ok(records),
        }
    }

    async fn put(
        admission: &Admission,
        platform: bool,
        change: &Change,
        org: &str,
        record: &Vec<LimitRecord>,
    ) -> Result<Commit, AdmissionError> {
        admission.put_limits(platform, change, org, record).await
    }

    async fn delete(store: &ControlStore, change: &Change, org: &str, (): ()) -> Result<Commit> {
        Ok(store.put_limits(change, org, &[]).await?)
    }

    async fn stored(store: &ControlStore, org: &str) -> Result<AtRevision<Vec<RateLimit>>, StoreError> {
        let AtRevision { revision, value } = store.limits(org).await?;
        Ok(AtRevision { revision, value: value.into_iter().map(entry).collect() })
    }
}

/// Whether a limit is for some callers, or counts each by itself. Names are those of one org: for all of them the same bucket
/// would be for strangers, and one org with many names would use up the room for the buckets of all.
fn names_callers(limit: &LimitRecord) -> bool {
    [&limit.user, &limit.wcit, &limit.machine, &limit.group].into_iter().any(|text| !is_any(text))
}

/// Refuses a list with the same selector twice, or with too many limits of one call.
pub(super) fn check_overlap(records: &[LimitRecord]) -> Result<()> {
    overlap::check(records).map_err(|fault| {
        Problem::params(match fault {
            OverlapFault::Twice(first, second) => {
                format!("entries {} and {} of the list have the same selector", first + 1, second + 1)
            }
            OverlapFault::TooMany(most) => format!(
                "one call may draw from {most} of these limits, and from at most {MAX_DRAWN}: name fewer kinds of callers, servers and \
                 patterns"
            ),
        })
    })
}

/// Validates a limit and converts it to its stored form.
pub(super) fn record((position, limit): (usize, RateLimit)) -> Result<LimitRecord> {
    let bad = |what: &str| Err(Problem::params(format!("limit {position}: {what}")));
    let RateLimit { selector, policy } = limit;
    if policy.capacity == 0 || policy.capacity > MAX_CAPACITY {
        return bad("policy.capacity must be from 1 to 1000000000");
    }
    let (refill, window_seconds) = match rate(&policy) {
        Ok(rate) => rate,
        Err(fault) => return bad(&fault),
    };
    let exact = [&selector.server, &selector.user, &selector.wcit, &selector.machine, &selector.group];
    if !exact.iter().all(|text| patterns::valid_exact_or_any(text)) {
        return bad("server and group must be exact or *, user, wcit and machine exact, each or *");
    }
    if selector.issuer != "*" && !patterns::is_issuer(&selector.issuer) {
        return bad("issuer must be an issuer's name or *");
    }
    if selector.machine != "*" && (selector.user != "*" || selector.issuer != "*") {
        return bad("machine excludes user and issuer: a machine is not a user and has no issuer");
    }
    if !patterns::valid(&selector.primitive) {
        return bad("primitive must be exact, prefix* or *");
    }
    let Selector { server, primitive, user, wcit, issuer, machine, group } = selector;
    let Policy { capacity, kind, observe, .. } = policy;
    Ok(LimitRecord {
        server,
        primitive,
        user,
        wcit,
        issuer,
        machine,
        capacity,
        refill,
        observe,
        group,
        kind,
        window_seconds,
    })
}

/// Returns the refill and the window's length of a limit, or what is wrong with them.
fn rate(policy: &Policy) -> Result<(String, u64), String> {
    let Policy { kind, capacity, refill, window, .. } = policy;
    let only = |of: &str, name: &str, value: &str| match value.is_empty() {
        true => Ok(()),
        false => Err(format!("policy.{name} is only for limits of type {of}")),
    };
    match kind.as_str() {
        TOKEN_BUCKET => {
            only("fixed-window and sliding-window", "window", window)?;
            refill::parse(refill).map_err(|error| format!("policy.refill: {error}"))?;
            Ok((refill.clone(), 0))
        }
        FIXED_WINDOW | SLIDING_WINDOW => {
            only(TOKEN_BUCKET, "refill", refill)?;
            let seconds = window::parse(window).map_err(|error| format!("policy.window: {error}"))?;
            Ok((window::refill(*capacity, seconds), seconds))
        }
        CONCURRENCY => {
            only(TOKEN_BUCKET, "refill", refill)?;
            only("fixed-window and sliding-window", "window", window)?;
            if policy.observe {
                return Err("a limit of type concurrency cannot be observed".to_owned());
            }
            Ok((CONCURRENCY_REFILL.to_owned(), 0))
        }
        _ => Err("policy.type must be token-bucket, fixed-window, sliding-window or concurrency".to_owned()),
    }
}

/// Returns a limit in the form of the admin API.
pub fn entry(limit: LimitRecord) -> RateLimit {
    let LimitRecord { server, primitive, user, wcit, issuer, machine, group, capacity, observe, .. } = limit;
    // The refill of another kind is for earlier versions.
    let refill = if limit.kind == TOKEN_BUCKET { limit.refill } else { String::new() };
    let window = match limit.window_seconds {
        0 => String::new(),
        seconds => window::text(seconds),
    };
    RateLimit {
        selector: Selector { server, primitive, user, wcit, issuer, machine, group },
        policy: Policy { kind: limit.kind, capacity, refill, window, observe },
    }
}
