//! Use of an org's limits in the last day, by a replay of its calls in the audit log.
//!
//! Keeps true: a request reads a bounded number of events, and states since when it counts. Each limit is replayed by
//! itself, so that one that is not stored yet can be tried.

use std::collections::BTreeMap;
use std::sync::Arc;

use asp_platform::clock;
use asp_snapshot::limits::EVERY_ORG;
use asp_store::audit::AuditQuery;
use asp_store::control::LimitRecord;
use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::auth::Admin;
use super::problem::{Problem, Result};
use super::ratelimits::{self, RateLimit};
use super::request::{Path, Query};
use super::{AdminState, name_checks, off_thread};
use crate::policy::replay::{self, CallerCount, RecordedCall};
use crate::policy::{self, limit_line};

/// Time of the calls that are counted, in milliseconds.
const DAY_MS: i64 = 24 * 3600 * 1000;
/// Number of events in a page of the audit log: the most that it returns.
const PAGE: u32 = 1_000;
/// Maximum number of pages that are read, newest first: half of the events are ends of calls.
const MAX_PAGES: usize = 50;
/// Maximum number of callers that are named with a limit.
const MAX_NAMED: usize = 10;

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct LimitUsageParams {
    /// A limit in one line to try instead of the stored ones, e.g. `60/min for each user on shop.*`
    limit: Option<String>,
}

/// Calls of the last day, and the use of each limit.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct OrgLimitUsage {
    /// Unix milliseconds: calls that ended since then are counted. Less than a day ago if there are more events than a
    /// request reads (50,000)
    since: i64,
    /// Number of calls, including those that a limit refused.
    calls: u64,
    /// Number of calls that a limit refused.
    rate_limited: u64,
    /// The limits of the org, then those of all orgs together
    limits: Vec<LimitUsage>,
}

/// Use of a limit, as if it had been the only one since then.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct LimitUsage {
    limit: RateLimit,
    /// The limit in words
    words: String,
    /// Whether it is a limit of all orgs together. It is counted by the calls of this org alone, so it may have refused more
    of_all_orgs: bool,
    /// Calls and callers that the limit counts; a caller is a user or machine of one issuer
    calls: u64,
    callers: u64,
    /// Calls and callers that the limit would have refused
    would_refuse: u64,
    would_refuse_callers: u64,
    /// The callers with the most refused calls, at most 10
    refused: Vec<CallerUsage>,
}

/// Calls of one caller.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CallerUsage {
    user: String,
    issuer: String,
    calls: u64,
    would_refuse: u64,
}

/// Counts the org's calls of the last day by its limits, or by a limit to try.
#[utoipa::path(get, path = "/api/ratelimits/orgs/{org}/usage", tag = "limits",
    params(("org" = String, Path), LimitUsageParams),
    responses((status = 200, body = OrgLimitUsage), (status = 422, body = Problem)))]
pub async fn get(
    admin: Admin,
    State(state): State<Arc<AdminState>>,
    Path(org): Path<String>,
    Query(params): Query<LimitUsageParams>,
) -> Result<Json<OrgLimitUsage>> {
    let permit = state.queues.to_read(&admin).await?;
    let limits = match params.limit {
        Some(line) => {
            let parsed = limit_line::parse(&line);
            let mut limit = parsed.map_err(|fault| Problem::params(format!("limit: {fault}")))?;
            name_checks::resolve(&state, &org, vec![&mut limit.primitive]).await?;
            vec![(org.clone(), limit)]
        }
        None => stored(&state, &org).await?,
    };
    let (since, mut recorded) = last_day(&state, &org).await?;
    let permit = permit.with_thread().await?;
    permit
        .work(move || {
            recorded.sort_by_key(|call| call.at_ms);
            let limits = limits.into_iter().filter_map(|(of, limit)| usage(&of, limit, &recorded)).collect();
            let rate_limited = recorded.iter().filter(|call| call.was_limited).count() as u64;
            Json(OrgLimitUsage { since, calls: recorded.len() as u64, rate_limited, limits })
        })
        .await
}

/// Returns the stored limits that calls of an org draw from, each with the org that it is of: its own, and those of all orgs.
async fn stored(state: &AdminState, org: &str) -> Result<Vec<(String, LimitRecord)>> {
    let mut limits = Vec::new();
    for of in [org, EVERY_ORG] {
        let stored = state.store.limits(of).await?.value;
        limits.extend(stored.into_iter().map(|limit| (of.to_owned(), limit)));
    }
    Ok(limits)
}

/// Reads the calls of the last day, newest first; returns the time since when they are complete.
async fn last_day(state: &AdminState, org: &str) -> Result<(i64, Vec<RecordedCall>)> {
    let start = i64::try_from(clock::now_ms()).unwrap_or(i64::MAX).saturating_sub(DAY_MS);
    let mut recorded = Vec::new();
    let mut before = None;
    let mut since = start;
    for _ in 0..MAX_PAGES {
        let query = AuditQuery { org: Some(org.to_owned()), before, limit: PAGE };
        let page = state.calls.page(&query).await?;
        let Some(last) = page.last() else { return Ok((start, recorded)) };
        before = Some(last.seq);
        since = last.event.at_ms;
        let read = move || -> Vec<RecordedCall> {
            let in_day = page.iter().map(|stored| &stored.event).filter(|event| event.at_ms >= start);
            in_day.filter_map(|event| RecordedCall::read(event.at_ms, &event.event)).collect()
        };
        recorded.extend(off_thread(read).await?);
        if since < start {
            return Ok((start, recorded));
        }
    }
    Ok((since, recorded))
}

/// Returns the use of a limit; `None` if the record cannot be read, and so is not enforced either.
pub(super) fn usage(org: &str, limit: LimitRecord, recorded: &[RecordedCall]) -> Option<LimitUsage> {
    let counts = replay::replay(&policy::limit(org, &limit).ok()?, recorded);
    let sum = |of: fn(&CallerCount) -> u64| counts.values().map(of).sum::<u64>();
    Some(LimitUsage {
        words: describe(&limit),
        of_all_orgs: org == EVERY_ORG,
        limit: ratelimits::entry(limit),
        calls: sum(|count| count.calls),
        callers: counts.len() as u64,
        would_refuse: sum(|count| count.refused),
        would_refuse_callers: counts.values().filter(|count| count.refused > 0).count() as u64,
        refused: most_refused(&counts),
    })
}

/// Describes a limit; one of a group also with why it counts nothing.
fn describe(limit: &LimitRecord) -> String {
    let words = limit_line::describe(limit);
    match limit.group.as_str() {
        "*" => words,
        _ => format!("{words}; recorded calls have no groups, so none is counted"),
    }
}

fn most_refused(counts: &BTreeMap<(&str, &str), CallerCount>) -> Vec<CallerUsage> {
    let mut refused: Vec<_> = counts.iter().filter(|(_, count)| count.refused > 0).collect();
    refused.sort_by_key(|(_, count)| std::cmp::Reverse(count.refused));
    let named = refused.into_iter().take(MAX_NAMED).map(|((user, issuer), count)| CallerUsage {
        user: (*user).to_owned(),
        issuer: (*issuer).to_owned(),
        calls: count.calls,
        would_refuse: count.refused,
    });
    named.collect()
}
