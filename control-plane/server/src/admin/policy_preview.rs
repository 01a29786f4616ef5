//! Preview of a change of policy: the recorded calls that would be admitted or refused, and those that limits would refuse.
//!
//! Keeps true: nothing is stored; a request reads at most [`MAX_CALLS`] calls and states since when.

use std::collections::BTreeMap;
use std::sync::Arc;

use asp_store::audit::AuditQuery;
use asp_store::control::{BindingRecord, ExposureRecord, LimitRecord};
use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::auth::Admin;
use super::limit_usage::{self, LimitUsage};
use super::policy::{Binding, Exposure};
use super::problem::{Problem, Result};
use super::ratelimits::{self, RateLimit};
use super::request::Body;
use super::undo_effects::{self, OrgServers};
use super::{AdminState, explain, name_checks, off_thread, policy};
use crate::policy::decisions::{Access, AttemptedCall, DecidedPolicy, PolicyChange, Verdict};
use crate::policy::limit_line;
use crate::policy::replay::RecordedCall;

/// Maximum number of calls that are replayed, newest first.
const MAX_CALLS: usize = 10_000;
/// Number of events in a page of the audit log: the most that it returns.
const PAGE: u32 = 1_000;
/// Maximum number of pages that are read: half of the events are starts of calls.
const MAX_PAGES: usize = 50;
/// Maximum number of entries of a list in a request.
const MAX_ENTRIES: usize = 1_000;
/// Maximum number of changed calls that are named.
const MAX_NAMED: usize = 100;
/// Maximum number of callers that are named.
const MAX_CALLERS: usize = 50;

/// A change of an org's policy that is not stored.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct ProposedPolicy {
    pub org: String,
    /// Bindings to put, at most 1000; as for every list here
    #[serde(default)]
    pub bindings: Vec<Binding>,
    /// Bindings to remove, by target, primitive, protocol and name
    #[serde(default)]
    pub remove_bindings: Vec<Binding>,
    /// Exceptions of servers to put
    #[serde(default)]
    pub exposure: Vec<Exposure>,
    /// Exceptions to remove, by server and protocol
    #[serde(default)]
    pub remove_exposure: Vec<Exposure>,
    /// Limits to try, each by itself: a line such as `60/min for each user on shop.*`, or a limit
    #[serde(default)]
    pub limits: Vec<ProposedLimit>,
    /// Unix milliseconds: only calls that ended since then
    #[serde(default)]
    pub since: Option<i64>,
}

/// A limit in one line, or as the API stores it.
#[derive(Deserialize, ToSchema)]
#[serde(untagged)]
pub enum ProposedLimit {
    Line(String),
    Limit(Box<RateLimit>),
}

/// The recorded calls that the change would decide otherwise than the stored policy, whatever their recorded end.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicyPreview {
    /// Unix milliseconds: the calls that ended since then were replayed
    since: i64,
    /// Number of replayed calls, at most 10,000
    calls: usize,
    /// Whether the log may have older calls of the asked time, which were not replayed
    more: bool,
    newly_refused: usize,
    newly_admitted: usize,
    /// Calls that would need a person's approval
    newly_asked: usize,
    undetermined: UndeterminedCalls,
    /// The newest changed calls, at most 100
    changed: Vec<ChangedCall>,
    /// The callers with the most changed calls, at most 50
    callers: Vec<ChangedCaller>,
    /// Use of each limit, as if it had been the only one
    limits: Vec<LimitUsage>,
}

/// Calls of which the log does not say whether they change.
#[derive(Default, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct UndeterminedCalls {
    /// Calls that change by the caller's groups, which the log does not have
    groups: usize,
    /// Calls that change by their arguments, which the log does not have
    arguments: usize,
    /// Calls of primitives that no server has any more
    not_served: usize,
}

/// A recorded call that the change decides otherwise.
#[derive(Serialize, ToSchema)]
pub struct ChangedCall {
    /// Id of the call
    call: String,
    /// Unix milliseconds
    at: i64,
    user: String,
    issuer: String,
    server: String,
    primitive: String,
    protocol: &'static str,
    /// `refused`, `asked` or `admitted` by the stored policy alone; something else may have refused the call, as `reason` says
    from: &'static str,
    to: &'static str,
    /// CallHistory reason: `ok`, or why there was no result
    reason: String,
}

/// Changed calls of one caller.
#[derive(Serialize, ToSchema)]
pub struct ChangedCaller {
    user: String,
    issuer: String,
    refused: usize,
    admitted: usize,
    asked: usize,
}

/// Lists the recorded calls that a change of policy would admit or refuse, as far as policy decides. Stores nothing.
#[utoipa::path(post, path = "/api/policy/preview", tag = "policy", request_body = ProposedPolicy,
    responses((status = 200, body = PolicyPreview), (status = 404, body = Problem), (status = 422, body = Problem)))]
pub async fn preview(
    admin: Admin,
    State(state): State<Arc<AdminState>>,
    Body(proposed): Body<ProposedPolicy>,
) -> Result<Json<PolicyPreview>> {
    admin.of_org(&proposed.org)?;
    let permit = state.queues.to_read(&admin).await?;
    let change = ProposedChange::read(&state, proposed).await?;
    // What was stored before is compiled once it is published.
    explain::newest(&state).await?;
    let servers = OrgServers::read(&state, &change.org).await?;
    let stored = state.store.bindings(&change.org).await?.value;
    let recorded = CallHistory::read(&state, &change.org, change.since).await?;
    let permit = permit.with_thread().await?;
    let previewed = permit.work(move || change.preview(&servers, &stored, recorded)).await?;
    Ok(Json(previewed?))
}

/// A checked change.
struct ProposedChange {
    org: String,
    bindings: Vec<BindingRecord>,
    remove_bindings: Vec<BindingRecord>,
    exposure: Vec<ExposureRecord>,
    remove_exposure: Vec<ExposureRecord>,
    limits: Vec<LimitRecord>,
    since: i64,
}

impl ProposedChange {
    async fn read(state: &AdminState, proposed: ProposedPolicy) -> Result<ProposedChange> {
        let ProposedPolicy { org, bindings, remove_bindings, exposure, remove_exposure, limits, since } =
            proposed;
        let sizes =
            [bindings.len(), remove_bindings.len(), exposure.len(), remove_exposure.len(), limits.len()];
        if sizes.into_iter().any(|size| size > MAX_ENTRIES) {
            return Err(Problem::params(format!("a list has more than {MAX_ENTRIES} entries")));
        }
        let of_bindings = |list: Vec<Binding>| -> Result<Vec<BindingRecord>> {
            list.into_iter().map(|binding| policy::binding_record(&org, binding)).collect()
        };
        let of_exposure = |list: Vec<Exposure>| -> Result<Vec<ExposureRecord>> {
            list.into_iter().map(|exposure| policy::exposure_record(&org, exposure)).collect()
        };
        let mut bindings = of_bindings(bindings)?;
        let mut limits = limits.into_iter().enumerate().map(limit_record).collect::<Result<Vec<_>>>()?;
        let named = bindings.iter_mut().map(|binding| &mut binding.primitive);
        let named = named.chain(limits.iter_mut().map(|limit| &mut limit.primitive));
        name_checks::resolve(state, &org, named.collect()).await?;
        Ok(ProposedChange {
            bindings,
            remove_bindings: of_bindings(remove_bindings)?,
            exposure: of_exposure(exposure)?,
            remove_exposure: of_exposure(remove_exposure)?,
            limits,
            since: since.unwrap_or(i64::MIN),
            org,
        })
    }

    fn preview(
        self,
        servers: &OrgServers,
        stored: &[BindingRecord],
        recorded: CallHistory,
    ) -> Result<PolicyPreview> {
        let replaced = |record: &&BindingRecord| {
            !self.bindings.iter().chain(&self.remove_bindings).any(|new| new.same_key(record))
        };
        let bindings: Vec<BindingRecord> =
            stored.iter().filter(replaced).chain(&self.bindings).cloned().collect();
        let kept = |record: &&ExposureRecord| {
            !self.exposure.iter().chain(&self.remove_exposure).any(|new| new.same_key(record))
        };
        let exposure: Vec<ExposureRecord> =
            servers.exposure.iter().filter(kept).chain(&self.exposure).cloned().collect();
        let is_changed = |record: &&BindingRecord| {
            let stays = stored.contains(record) && bindings.contains(record);
            !(record.observed || record.when.is_empty() || stays)
        };
        let conditional: Vec<BindingRecord> =
            stored.iter().chain(&bindings).filter(is_changed).cloned().collect();
        let compile =
            |records: &[BindingRecord]| undo_effects::compile(&self.org, records).map_err(Problem::params);
        let decided = |records: &[BindingRecord], exposure: &[ExposureRecord]| -> Result<DecidedPolicy> {
            let reach = servers.reachable(&servers.offers, exposure);
            Ok(DecidedPolicy { policy: compile(records)?, reach })
        };
        let both = (decided(stored, &servers.exposure)?, decided(&bindings, &exposure)?);
        let all = stored.iter().chain(&bindings);
        let change = PolicyChange::new(&self.org, both, compile(&conditional)?, all, &servers.servers);
        let verdicts = change.replay(&recorded.attempted);
        let mut preview = summed(&recorded, verdicts);
        let tried = self.limits.into_iter();
        preview.limits =
            tried.filter_map(|limit| limit_usage::usage(&self.org, limit, &recorded.counted)).collect();
        Ok(preview)
    }
}

fn limit_record((position, limit): (usize, ProposedLimit)) -> Result<LimitRecord> {
    match limit {
        ProposedLimit::Line(line) => {
            limit_line::parse(&line).map_err(|fault| Problem::params(format!("limit {position}: {fault}")))
        }
        ProposedLimit::Limit(limit) => ratelimits::record((position, *limit)),
    }
}

/// Adds the verdicts up.
fn summed(recorded: &CallHistory, verdicts: Vec<Verdict>) -> PolicyPreview {
    let mut preview = PolicyPreview {
        since: recorded.since,
        calls: recorded.attempted.len(),
        more: recorded.more,
        newly_refused: 0,
        newly_admitted: 0,
        newly_asked: 0,
        undetermined: UndeterminedCalls::default(),
        changed: Vec::new(),
        callers: Vec::new(),
        limits: Vec::new(),
    };
    let mut callers: BTreeMap<(&str, &str), [usize; 3]> = BTreeMap::new();
    for (call, verdict) in recorded.attempted.iter().zip(verdicts) {
        let (from, to) = match verdict {
            Verdict::Changed { from, to } => (from, to),
            Verdict::DependsOnGroups => {
                preview.undetermined.groups += 1;
                continue;
            }
            Verdict::DependsOnArguments => {
                preview.undetermined.arguments += 1;
                continue;
            }
            Verdict::NotServed => {
                preview.undetermined.not_served += 1;
                continue;
            }
            Verdict::Unchanged => continue,
        };
        let [refused, admitted, asked] = callers.entry((&call.user, &call.issuer)).or_default();
        let (sum, of_caller) = match to {
            Access::Refused => (&mut preview.newly_refused, refused),
            Access::Admitted => (&mut preview.newly_admitted, admitted),
            Access::Asked => (&mut preview.newly_asked, asked),
        };
        *sum += 1;
        *of_caller += 1;
        if preview.changed.len() < MAX_NAMED {
            preview.changed.push(changed_call(call, from, to));
        }
    }
    let mut callers: Vec<_> = callers.into_iter().collect();
    callers.sort_by_key(|(_, counts)| std::cmp::Reverse(counts.iter().sum::<usize>()));
    let named = callers.into_iter().take(MAX_CALLERS);
    preview.callers = named
        .map(|((user, issuer), [refused, admitted, asked])| ChangedCaller {
            user: user.to_owned(),
            issuer: issuer.to_owned(),
            refused,
            admitted,
            asked,
        })
        .collect();
    preview
}

fn changed_call(call: &AttemptedCall, from: Access, to: Access) -> ChangedCall {
    let AttemptedCall { id, at_ms, user, issuer, server, primitive, reason, .. } = call.clone();
    ChangedCall {
        call: id,
        at: at_ms,
        user,
        issuer,
        server,
        primitive,
        protocol: asp_snapshot::protocol::protocol_name(call.protocol),
        from: from.as_str(),
        to: to.as_str(),
        reason,
    }
}

/// Calls of the audit log.
struct CallHistory {
    since: i64,
    /// Whether there may be older ones.
    more: bool,
    /// Newest first.
    attempted: Vec<AttemptedCall>,
    /// Those that limits counted, in the order of their time.
    counted: Vec<RecordedCall>,
}

impl CallHistory {
    /// Reads the newest calls of the org that ended since `start`.
    async fn read(state: &AdminState, org: &str, start: i64) -> Result<CallHistory> {
        let mut recorded =
            CallHistory { since: start, more: false, attempted: Vec::new(), counted: Vec::new() };
        let mut before = None;
        let mut is_whole = false;
        for _ in 0..MAX_PAGES {
            let query = AuditQuery { org: Some(org.to_owned()), before, limit: PAGE };
            let page = state.calls.page(&query).await?;
            let Some(last) = page.last() else {
                is_whole = true;
                break;
            };
            before = Some(last.seq);
            let oldest = last.event.at_ms;
            let room = MAX_CALLS - recorded.attempted.len();
            let read = move || read_page(page.iter().map(|stored| &stored.event), start, room);
            let (attempted, counted, newest_left_out) = off_thread(read).await?;
            recorded.attempted.extend(attempted);
            recorded.counted.extend(counted);
            recorded.since = newest_left_out.unwrap_or(oldest);
            if oldest < start || newest_left_out.is_some() {
                is_whole = newest_left_out.is_none();
                break;
            }
        }
        if is_whole {
            let oldest = recorded.attempted.last().map(|call| call.at_ms);
            recorded.since = if start == i64::MIN { oldest.unwrap_or_default() } else { start };
        }
        recorded.more = !is_whole;
        recorded.counted.sort_by_key(|call| call.at_ms);
        Ok(recorded)
    }
}

/// Reads at most `room` calls of a page; also returns the time of the first one beyond that.
fn read_page<'e>(
    events: impl Iterator<Item = &'e asp_store::audit::CallEvent>,
    start: i64,
    room: usize,
) -> (Vec<AttemptedCall>, Vec<RecordedCall>, Option<i64>) {
    let mut attempted = Vec::new();
    let mut counted = Vec::new();
    for event in events.filter(|event| event.at_ms >= start) {
        let Some(call) = AttemptedCall::read(event.at_ms, &event.event) else { continue };
        if attempted.len() == room {
            return (attempted, counted, Some(event.at_ms));
        }
        attempted.push(call);
        counted.extend(RecordedCall::read(event.at_ms, &event.event));
    }
    (attempted, counted, None)
}
