//! The audit log of calls: by page with filters, followed as it arrives, and exported as lines of JSON.
//!
//! Keeps true: an admin of one org sees only that org's calls and cannot tell whether another has any; no response but an
//! export is larger than a page, and an export holds one page in memory; a parameter that is not known is refused, so that
//! no filter is silently ignored.

use std::sync::Arc;

use asp_issuers::admin_role::valid_org;
use asp_platform::clock;
use asp_platform::time::from_rfc3339;
use asp_store::audit::search::{AuditPage, AuditSearch, EventPosition, MemberFilter, SearchOrder};
use asp_store::audit::{AuditLog, AuditQuery, StoredEvent};
use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, Uri, header};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::auth::Admin;
use super::problem::{Problem, Result};
use super::request::Query;
use super::{AdminState, name_checks};

/// Default number of events in a response.
const PAGE: u32 = 100;
/// Number of events that an export reads at once.
const EXPORT_PAGE: u32 = 1_000;
/// Maximum length of a filter in bytes: no name is longer.
const MAX_FILTER: usize = 512;
/// Prefix of the events of approvals.
const APPROVAL: &str = "approval.";

/// Filters of events, and the page.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct CallsParams {
    /// Only events of this org.
    org: Option<String>,
    /// Only events of this user or machine.
    user: Option<String>,
    /// Only events of this server.
    server: Option<String>,
    /// Only events of this primitive: `ID` in every version, `ID@VERSION`, or the name that clients see. If several primitives
    /// have the name, `server` must tell them apart.
    primitive: Option<String>,
    /// Only events of this kind, e.g. `call.finish`.
    event: Option<String>,
    /// Only ends of calls with this outcome: `completed`, `rejected`, `failed`, `cancelled` or `unknown`.
    outcome: Option<String>,
    /// Only ends of calls with this reason, e.g. `denied` or `rate_limited`.
    reason: Option<String>,
    /// Only events with this trace id; a whole `traceparent` is accepted too.
    trace: Option<String>,
    /// Only events at or after this time: RFC 3339 or Unix milliseconds.
    from: Option<String>,
    /// Only events before this time: RFC 3339 or Unix milliseconds.
    to: Option<String>,
    /// Position to continue from: the `cursor` in the `Link` header of the page before.
    cursor: Option<String>,
    /// Events with higher numbers, oldest first, to follow the log: the `after` in the `Link` header of the page before.
    after: Option<i64>,
    /// Only events with a lower number, newest first, without other filters than `org`.
    before: Option<i64>,
    /// 1 to 1000 [default: 100]; other values are clamped.
    #[param(format = Int64)]
    limit: Option<u32>,
}

/// Filters of events, and the time that is exported.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct ExportParams {
    /// Only events of this org.
    org: Option<String>,
    /// Only events of this user or machine.
    user: Option<String>,
    /// Only events of this server.
    server: Option<String>,
    /// Only events of this primitive: `ID` in every version, `ID@VERSION`, or the name that clients see. If several primitives
    /// have the name, `server` must tell them apart.
    primitive: Option<String>,
    /// Only events of this kind, e.g. `call.finish`.
    event: Option<String>,
    /// Only ends of calls with this outcome.
    outcome: Option<String>,
    /// Only ends of calls with this reason.
    reason: Option<String>,
    /// Only events with this trace id.
    trace: Option<String>,
    /// Start of the exported time: RFC 3339 or Unix milliseconds.
    from: String,
    /// End of the exported time, not included [default: now].
    to: Option<String>,
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

/// Lists events of calls, newest first, from the gateways that use this state directory. If there are more, the `Link`
/// header has the next page (`rel="next"`); a page that reads 50,000 events may be short and still have a next one.
#[utoipa::path(get, path = "/api/audit/calls", tag = "status", params(CallsParams),
    responses((status = 200, body = [CallRecord]), (status = 400, body = Problem)))]
pub async fn list(
    admin: Admin,
    State(state): State<Arc<AdminState>>,
    uri: Uri,
    Query(params): Query<CallsParams>,
) -> Result<Response> {
    let Some(before) = params.before else { return page(&admin, &state, &uri, &params, Vec::new()).await };
    let CallsParams { org, limit, .. } = params.clone();
    if (CallsParams { org, limit, before: Some(before), ..CallsParams::default() }) != params {
        return Err(Problem::params("before: goes with org and limit alone; continue with cursor instead"));
    }
    let org = org_of(&admin, params.org)?;
    let query = AuditQuery { org, before: Some(before), limit: params.limit.unwrap_or(PAGE) };
    let page = state.calls.page(&query).await?;
    Ok(Json(page.into_iter().map(CallRecord::of).collect::<Vec<_>>()).into_response())
}

/// Lists events of approvals, newest first: `approval.request`, `approval.decision`, `approval.use` and `approval.expiry`.
#[utoipa::path(get, path = "/api/audit/approvals", tag = "status", params(CallsParams),
    responses((status = 200, body = [CallRecord]), (status = 400, body = Problem)))]
pub async fn approvals(
    admin: Admin,
    State(state): State<Arc<AdminState>>,
    uri: Uri,
    Query(params): Query<CallsParams>,
) -> Result<Response> {
    if params.before.is_some() {
        return Err(Problem::params("before: continue with cursor instead"));
    }
    let approvals = vec![MemberFilter::starts("event", APPROVAL)];
    page(&admin, &state, &uri, &params, approvals).await
}

/// Exports the events of a time, oldest first, as lines of JSON (`application/x-ndjson`). A response that ends without its
/// last chunk is incomplete.
#[utoipa::path(get, path = "/api/audit/calls/export", tag = "status", params(ExportParams),
    responses((status = 200, body = String, content_type = "application/x-ndjson"), (status = 400, body = Problem)))]
pub async fn export(
    admin: Admin,
    State(state): State<Arc<AdminState>>,
    Query(params): Query<ExportParams>,
) -> Result<Response> {
    let ExportParams { org, user, server, primitive, event, outcome, reason, trace, from, to } = params;
    // Events that arrive during the export would extend it forever.
    let to = to.unwrap_or_else(|| clock::now_ms().to_string());
    let filters = CallsParams {
        org,
        user,
        server,
        primitive,
        event,
        outcome,
        reason,
        trace,
        from: Some(from),
        to: Some(to),
        limit: Some(EXPORT_PAGE),
        ..CallsParams::default()
    };
    let search =
        AuditSearch { order: SearchOrder::Oldest, ..filters.search(&admin, &state, Vec::new()).await? };
    let calls = Arc::clone(&state.calls);
    // The first page before the response begins, so that a log that cannot be read is an error with a status.
    let first = calls.search(&search).await?;
    let lines = futures::stream::try_unfold(Some((first, search)), move |step| {
        let calls = Arc::clone(&calls);
        async move { next_lines(calls.as_ref(), step).await }
    });
    let content = [(header::CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"))];
    Ok((content, Body::from_stream(lines)).into_response())
}

/// A page of an export that was read, and the search that continues it.
type ExportStep = Option<(AuditPage, AuditSearch)>;

/// Returns the lines of a page, and the page after it.
async fn next_lines(
    calls: &dyn AuditLog,
    step: ExportStep,
) -> Result<Option<(Bytes, ExportStep)>, std::io::Error> {
    let Some((page, mut search)) = step else { return Ok(None) };
    let mut lines = String::new();
    for stored in page.events {
        lines.push_str(&serde_json::to_string(&CallRecord::of(stored)).unwrap_or_default());
        lines.push('\n');
    }
    let next = match page.next {
        None => None,
        Some(next) => {
            search.after = Some(next);
            let page = calls.search(&search).await.map_err(|error| {
                tracing::error!(%error, "export of the audit log broke off; its reader gets an incomplete response");
                std::io::Error::other("the audit log cannot be read")
            })?;
            Some((page, search))
        }
    };
    Ok(Some((Bytes::from(lines), next)))
}

/// Returns a page, and where it continues.
async fn page(
    admin: &Admin,
    state: &AdminState,
    uri: &Uri,
    params: &CallsParams,
    members: Vec<MemberFilter>,
) -> Result<Response> {
    let search = params.search(admin, state, members).await?;
    let found = state.calls.search(&search).await?;
    let next = match search.order {
        SearchOrder::Arrival => {
            let last = found.next.or(found.events.last().map(EventPosition::of)).or(search.after);
            last.map(|last| ("after", last.seq.to_string()))
        }
        SearchOrder::Newest | SearchOrder::Oldest => found.next.map(|next| ("cursor", next.to_string())),
    };
    let mut response = Json(found.events.into_iter().map(CallRecord::of).collect::<Vec<_>>()).into_response();
    if let Some((name, value)) = next
        && let Ok(link) = HeaderValue::from_str(&next_link(uri, name, &value))
    {
        response.headers_mut().insert(header::LINK, link);
    }
    Ok(response)
}

/// Returns the link to the next page (RFC 8288): the same query from another position.
pub(super) fn next_link(uri: &Uri, name: &str, value: &str) -> String {
    let is_position = |pair: &&str| {
        ["cursor", "after", "before"].contains(&pair.split('=').next().unwrap_or_default()) || pair.is_empty()
    };
    let mut query: Vec<&str> =
        uri.query().unwrap_or_default().split('&').filter(|pair| !is_position(pair)).collect();
    let position = format!("{name}={value}");
    query.push(&position);
    format!("<{}?{}>; rel=\"next\"", uri.path(), query.join("&"))
}

/// Returns the org whose records an admin may read of those that the query names.
pub(super) fn org_of(admin: &Admin, org: Option<String>) -> Result<Option<String>> {
    match org.as_deref() {
        Some(org) if !admin.role.is_auditor() => admin.of_org(org)?,
        Some(org) if !valid_org(org) => return Err(Problem::not_found()),
        _ => {}
    }
    Ok(org.or_else(|| admin.role.org().map(str::to_owned)))
}

/// Parses a time; returns Unix milliseconds.
pub(super) fn parse_time(name: &str, text: &str) -> Result<i64> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let time = match is_number {
        true => text.parse::<i64>().ok(),
        false => from_rfc3339(text).and_then(|time| i64::try_from(time).ok()),
    };
    time.ok_or_else(|| {
        Problem::params(format!("{name}: a time is 2026-01-31T08:00:00Z or Unix milliseconds"))
    })
}

/// Parses the start and the end of a time.
pub(super) fn parse_range(from: Option<&str>, to: Option<&str>) -> Result<(Option<i64>, Option<i64>)> {
    let from = from.map(|from| parse_time("from", from)).transpose()?;
    let to = to.map(|to| parse_time("to", to)).transpose()?;
    match (from, to) {
        (Some(from), Some(to)) if from > to => Err(Problem::params("from: is after to")),
        range => Ok(range),
    }
}

impl CallsParams {
    /// Returns the search that an admin asks for; events must pass the given filters too.
    async fn search(
        &self,
        admin: &Admin,
        state: &AdminState,
        mut members: Vec<MemberFilter>,
    ) -> Result<AuditSearch> {
        let org = org_of(admin, self.org.clone())?;
        let (from_ms, to_ms) = parse_range(self.from.as_deref(), self.to.as_deref())?;
        for (name, value) in [
            ("user", &self.user),
            ("server", &self.server),
            ("event", &self.event),
            ("outcome", &self.outcome),
            ("reason", &self.reason),
        ] {
            if let Some(value) = value {
                members.push(MemberFilter::is(name, bounded(name, value)?));
            }
        }
        if let Some(primitive) = &self.primitive {
            let primitive = bounded("primitive", primitive)?;
            members.push(match primitive.contains('@') {
                true => MemberFilter::is("primitive", primitive),
                false => {
                    let server = self.server.as_deref();
                    let id = name_checks::called_id(state, org.as_deref(), server, primitive).await?;
                    MemberFilter::starts("primitive", &format!("{}@", id.as_deref().unwrap_or(primitive)))
                }
            });
        }
        let trace = self.trace.as_deref().map(|trace| bounded("trace", trace).map(trace_id)).transpose()?;
        let (order, after) = self.position()?;
        Ok(AuditSearch {
            org,
            trace,
            from_ms,
            to_ms,
            members,
            order,
            after,
            limit: self.limit.unwrap_or(PAGE),
        })
    }

    /// Returns the order, and the position in it to continue from.
    fn position(&self) -> Result<(SearchOrder, Option<EventPosition>)> {
        match (&self.cursor, self.after) {
            (Some(_), Some(_)) => Err(Problem::params("after: goes without cursor")),
            (None, Some(seq)) => Ok((SearchOrder::Arrival, Some(EventPosition { at_ms: 0, seq }))),
            (Some(cursor), None) => {
                let position = cursor.parse::<EventPosition>();
                let position = position.map_err(|fault| Problem::params(format!("cursor: {fault}")))?;
                Ok((SearchOrder::Newest, Some(position)))
            }
            (None, None) => Ok((SearchOrder::Newest, None)),
        }
    }
}

/// Returns a filter that is neither empty nor too long, and that a database can hold.
pub(super) fn bounded<'t>(name: &str, text: &'t str) -> Result<&'t str> {
    match (1..=MAX_FILTER).contains(&text.len()) && !text.contains('\0') {
        true => Ok(text),
        false => Err(Problem::params(format!("{name}: has 1 to {MAX_FILTER} bytes, none of them 0"))),
    }
}

/// Returns the trace id of a `traceparent` (W3C Trace Context), or the text itself.
fn trace_id(text: &str) -> String {
    match text.split('-').collect::<Vec<_>>().as_slice() {
        [_, trace, _, _] => (*trace).to_owned(),
        _ => text.to_owned(),
    }
}

impl CallRecord {
    fn of(stored: StoredEvent) -> CallRecord {
        let text = stored.event.event;
        let event = serde_json::from_str(&text).unwrap_or(Value::String(text));
        CallRecord { seq: stored.seq, at: stored.event.at_ms, org: stored.event.org, event }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_page_has_the_same_query_from_another_position() {
        let uri: Uri = "/api/audit/calls?user=al%26ice&cursor=1.2&limit=3".parse().unwrap();
        assert_eq!(
            next_link(&uri, "cursor", "5.-7"),
            "</api/audit/calls?user=al%26ice&limit=3&cursor=5.-7>; rel=\"next\""
        );
        let plain: Uri = "/api/audit/calls".parse().unwrap();
        assert_eq!(next_link(&plain, "after", "7"), "</api/audit/calls?after=7>; rel=\"next\"");
    }

    #[test]
    fn a_time_is_a_date_with_its_hour_or_milliseconds() {
        assert_eq!(parse_time("from", "1970-01-01T00:00:01Z").unwrap(), 1_000);
        assert_eq!(parse_time("from", "1700000000000").unwrap(), 1_700_000_000_000);
        for bad in ["", "yesterday", "-1", "1.5", "99999999999999999999", "2026-01-31"] {
            assert!(parse_time("from", bad).is_err(), "{bad}");
        }
        assert!(parse_range(Some("5"), Some("4")).is_err() && parse_range(Some("5"), Some("5")).is_ok());
    }

    #[test]
    fn a_trace_is_found_in_its_traceparent() {
        let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        assert_eq!(trace_id(parent), "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!(trace_id("4bf9"), "4bf9");
    }
}
