//! Usage: sums of calls by org, caller, server, primitive and day, and the primitives without an admitted call.
//!
//! Keeps true: an admin of one org sees only that org's usage; no response has more than [`MOST`] groups.

use std::collections::BTreeSet;
use std::sync::Arc;

use asp_platform::clock;
use asp_platform::time::{from_rfc3339, rfc3339};
use asp_store::usage::{
    DAY_MS, KEEP_DAYS, MAX_GROUPS, MAX_PRIMITIVES, OTHER, UsageCounts, UsageDimension, UsageError,
    UsageGroup, UsageQuery,
};
use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::auth::Admin;
use super::problem::{Code, Problem, Result};
use super::request::Query;
use super::{AdminState, name_checks};
use crate::catalog::offers::OfferTable;

/// Maximum number of groups in a response.
const MOST: u32 = 1_000;
/// Default number of days.
const DAYS: i64 = 30;
/// Name of the group beyond the bounds in an answer.
const OTHER_WORD: &str = "other";
/// Parts of a million.
const MILLION: f64 = 1_000_000.0;

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct UsageParams {
    /// Only calls of this org.
    org: Option<String>,
    /// `org`, `user`, `primitive`, `server` or `day` [default: primitive]
    by: Option<String>,
    /// First day, in UTC: `2026-01-31` [default: 29 days before the last one]
    from: Option<String>,
    /// Last day, in UTC [default: today]
    to: Option<String>,
    /// Only calls of users of this name.
    user: Option<String>,
    /// Only calls at this server.
    server: Option<String>,
    /// Only calls of this primitive: its id, or the name that clients see. If several primitives have the name, `server` must
    /// tell them apart.
    primitive: Option<String>,
    /// 1 to 1000 [default: 100]; other values are clamped.
    #[param(format = Int64)]
    limit: Option<u32>,
}

/// Usage of some days.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct UsageReport {
    /// First and last day, in UTC
    from: String,
    to: String,
    by: String,
    total: Sums,
    /// Days newest first, other groups by their number of calls
    groups: Vec<Group>,
    /// Whether there are more groups
    more: bool,
}

/// Sums of one group.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = UsageGroup)]
pub struct Group {
    /// Name of the org, user, server or primitive, or the day
    name: String,
    /// Issuer of a user
    #[serde(skip_serializing_if = "String::is_empty")]
    issuer: String,
    /// Whether it stands for everything beyond the number of rows that an org keeps for a day
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    is_other: bool,
    #[serde(flatten)]
    sums: Sums,
}

/// Sums of calls.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = UsageSums)]
pub struct Sums {
    calls: u64,
    /// Calls without a good result, refused ones included
    errors: u64,
    /// Calls that a limit refused
    rate_limited: u64,
    latency: UsageLatency,
    /// CPU time of plugins' workers
    cpu_ms: u64,
    /// Tokens of models that the calls asked, as the endpoints report them
    tokens_in: u64,
    tokens_out: u64,
    /// Price of the tokens by `ASP_MODEL_PRICE` of the gateways at the time of the call
    cost: f64,
}

/// Latency in milliseconds, from request to end. The percentiles are estimated from 16 classes.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct UsageLatency {
    sum_ms: u64,
    p50_ms: Option<f64>,
    p99_ms: Option<f64>,
}

impl From<&UsageCounts> for Sums {
    fn from(counts: &UsageCounts) -> Sums {
        let milliseconds = |us: u64| us as f64 / 1_000.0;
        Sums {
            calls: counts.calls,
            errors: counts.errors,
            rate_limited: counts.limited,
            latency: UsageLatency {
                sum_ms: counts.latency_us / 1_000,
                p50_ms: counts.latency_percentile_us(50).map(milliseconds),
                p99_ms: counts.latency_percentile_us(99).map(milliseconds),
            },
            cpu_ms: counts.cpu_us / 1_000,
            tokens_in: counts.tokens_in,
            tokens_out: counts.tokens_out,
            cost: counts.cost_micros as f64 / MILLION,
        }
    }
}

/// Sums calls by org, user, primitive, server or day.
#[utoipa::path(get, path = "/api/usage", tag = "usage", params(UsageParams),
    responses((status = 200, body = UsageReport), (status = 404, body = Problem)))]
pub async fn get(
    admin: Admin,
    State(state): State<Arc<AdminState>>,
    Query(params): Query<UsageParams>,
) -> Result<Json<UsageReport>> {
    let _permit = state.queues.to_read(&admin).await?;
    let org = own_org(&admin, params.org)?;
    let word = params.by.unwrap_or_else(|| "primitive".to_owned());
    let by = parse_by(&word)?;
    let to = params.to.map_or_else(|| Ok(today()), |text| parse_day("to", &text))?;
    let from = params.from.map_or(Ok(to - DAYS + 1), |text| parse_day("from", &text))?;
    if from > to {
        return Err(Problem::params("from is after to"));
    }
    check_filters([&params.user, &params.server, &params.primitive])?;
    let primitive = match params.primitive {
        Some(name) => {
            let id = name_checks::called_id(&state, org.as_deref(), params.server.as_deref(), &name).await?;
            Some(id.unwrap_or(name))
        }
        None => None,
    };
    let limit = params.limit.unwrap_or(100).clamp(1, MOST);
    let query = UsageQuery {
        org,
        days: (from, to),
        user: params.user,
        server: params.server,
        primitive,
        by,
        limit: limit.saturating_add(1),
    };
    let mut groups = state.call_usage.usage(&query).await.map_err(|error| unreadable(&error))?;
    let total = UsageQuery { by: UsageDimension::Org, limit: MAX_GROUPS, ..query };
    let mut sum = UsageCounts::default();
    for group in state.call_usage.usage(&total).await.map_err(|error| unreadable(&error))? {
        sum.add(&group.counts);
    }
    let most = usize::try_from(limit).unwrap_or_default();
    let more = groups.len() > most;
    groups.truncate(most);
    Ok(Json(UsageReport {
        from: day_text(from),
        to: day_text(to),
        total: Sums::from(&sum),
        groups: groups.into_iter().map(|group| group_body(by, group)).collect(),
        by: word,
        more,
    }))
}

fn group_body(by: UsageDimension, group: UsageGroup) -> Group {
    let sums = Sums::from(&group.counts);
    let is_other = group.name == OTHER;
    let name = match by {
        UsageDimension::Day => group.name.parse().map_or(group.name, day_text),
        _ if is_other => OTHER_WORD.to_owned(),
        _ => group.name,
    };
    let issuer = if is_other { String::new() } else { group.issuer };
    Group { name, issuer, is_other, sums }
}

/// Returns the org to read: the asked one if the admin may, or the admin's own.
fn own_org(admin: &Admin, org: Option<String>) -> Result<Option<String>> {
    if let Some(org) = &org {
        admin.of_org(org)?;
    }
    Ok(org.or_else(|| admin.role.org().map(str::to_owned)))
}

/// Refuses names that no caller, server or primitive has and that a database cannot hold.
pub(super) fn check_filters(filters: [&Option<String>; 3]) -> Result<()> {
    let is_bad = |name: &String| name.chars().any(char::is_control);
    match filters.into_iter().flatten().any(is_bad) {
        true => Err(Problem::params("user, server and primitive have no control characters")),
        false => Ok(()),
    }
}

fn parse_by(word: &str) -> Result<UsageDimension> {
    match word {
        "org" => Ok(UsageDimension::Org),
        "user" => Ok(UsageDimension::User),
        "server" => Ok(UsageDimension::Server),
        "primitive" => Ok(UsageDimension::Primitive),
        "day" => Ok(UsageDimension::Day),
        _ => Err(Problem::params("by must be org, user, primitive, server or day")),
    }
}

fn today() -> i64 {
    i64::try_from(clock::now_ms()).unwrap_or(i64::MAX) / DAY_MS
}

/// Parses a day such as `2026-01-31`.
fn parse_day(name: &str, text: &str) -> Result<i64> {
    let is_day = text.len() == 10 && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
    let midnight = is_day.then(|| from_rfc3339(&format!("{text}T00:00:00Z"))).flatten();
    let day = midnight.and_then(|ms| i64::try_from(ms).ok()).map(|ms| ms.div_euclid(DAY_MS));
    day.ok_or_else(|| Problem::params(format!("{name} must be a day such as 2026-01-31")))
}

fn day_text(day: i64) -> String {
    let text = rfc3339(u64::try_from(day.saturating_mul(DAY_MS)).unwrap_or_default());
    text.split('T').next().unwrap_or_default().to_owned()
}

fn unreadable(error: &UsageError) -> Problem {
    tracing::error!(%error, "usage of calls cannot be read and an admin's request got an internal error; calls are not affected");
    Problem::new(Code::Internal, "usage cannot be read at the moment")
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct UnusedParams {
    /// Org whose calls count, and whose servers are listed [default: every org and server]
    org: Option<String>,
    /// Number of days, today included: 1 to 400 [default: 30]
    #[param(format = Int64)]
    days: Option<u32>,
}

/// Primitives without an admitted call.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct UnusedPrimitives {
    /// First day, in UTC
    from: String,
    /// Day of the oldest usage on record, of the org if it is given; nothing is known of the days before. `null` if there is none
    recorded_from: Option<String>,
    /// Number of primitives that were looked at
    primitives: usize,
    unused: Vec<UnusedPrimitive>,
    /// Admitted calls that are counted without their primitive, because there were more in a day than an org keeps; some of
    /// `unused` may have been used by them
    unknown_calls: u64,
}

/// A primitive without an admitted call.
#[derive(Serialize, ToSchema, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnusedPrimitive {
    server: String,
    /// Id of the primitive
    primitive: String,
}

/// Lists the primitives without an admitted call: calls that were refused are no use.
#[utoipa::path(get, path = "/api/usage/unused", tag = "usage", params(UnusedParams),
    responses((status = 200, body = UnusedPrimitives), (status = 404, body = Problem)))]
pub async fn unused(
    admin: Admin,
    State(state): State<Arc<AdminState>>,
    Query(params): Query<UnusedParams>,
) -> Result<Json<UnusedPrimitives>> {
    let permit = state.queues.to_read(&admin).await?;
    let org = own_org(&admin, params.org)?;
    let days = i64::from(params.days.unwrap_or(30));
    if !(1..=KEEP_DAYS).contains(&days) {
        return Err(Problem::params(format!("days must be from 1 to {KEEP_DAYS}")));
    }
    let from = today() - days + 1;
    let stored = state.servers.read(&state.store).await?.value;
    let offers = match &org {
        Some(org) => Some((org.clone(), state.store.offers_to(org).await?)),
        None => None,
    };
    let compiler = state.compiler.clone();
    let permit = permit.with_thread().await?;
    let work = move || {
        let servers = compiler.compile_all(&stored);
        let offered = offers.as_ref().map(|(org, offers)| (org, OfferTable::of(&servers, offers)));
        let is_listed =
            |server: &str| offered.as_ref().is_none_or(|(org, table)| table.includes(server, org));
        let servers = servers.iter().filter(|server| is_listed(&server.server.name));
        let named = servers.flat_map(|server| {
            let name = &server.server.name;
            server
                .server
                .listings
                .iter()
                .map(move |listing| UnusedPrimitive { server: name.clone(), primitive: listing.id.clone() })
        });
        named.collect::<BTreeSet<UnusedPrimitive>>()
    };
    let mut unused = permit.work(work).await?;
    let primitives = unused.len();
    let recorded = state.call_usage.first_usage_day(org.as_deref()).await;
    let recorded_from = recorded.map_err(|error| unreadable(&error))?.map(day_text);
    let unknown_calls = remove_used(&state, org, from, &mut unused).await?;
    let unused = unused.into_iter().collect();
    Ok(Json(UnusedPrimitives { from: day_text(from), recorded_from, primitives, unused, unknown_calls }))
}

/// Removes the primitives with an admitted call since a day; returns the number of admitted calls without their primitive.
async fn remove_used(
    state: &AdminState,
    org: Option<String>,
    from: i64,
    unused: &mut BTreeSet<UnusedPrimitive>,
) -> Result<u64> {
    let query = UsageQuery {
        org,
        days: (from, today()),
        user: None,
        server: None,
        primitive: None,
        by: UsageDimension::ServerPrimitive,
        limit: MAX_PRIMITIVES,
    };
    let mut unknown_calls = 0;
    for group in state.call_usage.usage(&query).await.map_err(|error| unreadable(&error))? {
        let admitted = group.counts.admitted();
        if group.name == OTHER {
            unknown_calls += admitted;
        }
        if admitted > 0 {
            unused.remove(&UnusedPrimitive { server: group.issuer, primitive: group.name });
        }
    }
    Ok(unknown_calls)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_is_a_date_and_nothing_else() {
        assert_eq!(parse_day("from", "1970-01-02").ok(), Some(1));
        assert_eq!(day_text(1), "1970-01-02");
        for bad in
            ["", "today", "2026-1-31", "2026-02-30", "2026-01-31T00", "20260131--", "2026-13-01", "30d"]
        {
            assert!(parse_day("from", bad).is_err(), "{bad}");
        }
    }
}
