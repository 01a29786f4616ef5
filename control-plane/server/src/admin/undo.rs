//! Undo of a change of exposure, bindings, limits, offers or revocations, and its preview.
//!
//! Keeps true: an undo is a change like any other, evaluated, audited and undoable, and needs the permission of the
//! change that it makes; it is refused if any entry of the change is no longer as the change left it; tokens become
//! valid again only if the request says so.

use asp_platform::shell;
use asp_snapshot::limits::EVERY_ORG;
use asp_store::control::{
    AtRevision, AuditRecord, BindingRecord, Change, Commit, ExposureRecord, LimitRecord, ListChange,
    ListDifference, MAX_UNDO_BYTES, OfferRecord, Precondition, RevocationRecord, StoreError,
    UNDOABLE_PER_ORG,
};
use axum::Json;
use axum::extract::State;
use axum::response::Response;
use http::HeaderMap;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::{IntoParams, ToSchema};

use super::auth::Admin;
use super::problem::{Code, Problem, Result};
use super::queues::{self, Topic};
use super::request::{Path, Query, precondition, tagged};
use super::revocations::{self, Revocation, check_may_lift};
use super::undo_effects::{self, AccessChanges, OrgServers};
use super::{AdminState, ApiState, change_response, name_checks, policy, ratelimits};
use crate::admission::AdmissionError;
use crate::policy::BLOCK_ORG;

/// Outcome of the undo of a change.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = UndoPreview)]
pub struct Preview {
    /// Revision of the change
    pub change: u64,
    /// Unix milliseconds
    pub at: u64,
    /// Admin who made the change
    pub actor: String,
    pub action: String,
    pub org: String,
    /// List that the change is about: `exposure`, `bindings`, `limits`, `offers` or `revocations`
    pub list: &'static str,
    /// Entries that the undo removes, as the API shows them
    #[schema(value_type = Vec<Object>)]
    pub removes: Vec<Value>,
    /// Entries that the undo stores again
    #[schema(value_type = Vec<Object>)]
    pub restores: Vec<Value>,
    #[serde(flatten)]
    pub effects: AccessChanges,
    /// Whether tokens become valid again, so that the undo needs `restoreAccess=true`
    pub restores_access: bool,
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct UndoQuery {
    /// Lets revoked tokens become valid again.
    #[serde(default)]
    restore_access: bool,
}

/// Returns what the undo of a change would do, and who would gain and lose access by it. Fails like the undo itself if
/// the change cannot be undone.
#[utoipa::path(get, path = "/api/audit/{revision}/undo", tag = "status", params(("revision" = u64, Path)),
    responses((status = 200, body = Preview), (status = 404, body = Problem), (status = 409, body = Problem)))]
pub async fn preview(admin: Admin, State(state): ApiState, Path(revision): Path<u64>) -> Result<Response> {
    let permit = state.queues.to_read(&admin).await?;
    let undoable = Undoable::find(&admin, &state, revision).await?;
    let plan = undoable.plan(&state).await?;
    let servers = OrgServers::read(&state, &undoable.record.org).await?;
    let work = move || undoable.preview(plan, &servers);
    let (at, shown) = permit.with_thread().await?.work(work).await??;
    Ok(tagged(at, shown))
}

/// Undoes a change; the answer has the revision of the undo, which can be undone too. With the ETag of the preview in
/// `If-Match`, only if the list has not changed since.
#[utoipa::path(post, path = "/api/audit/{revision}/undo", tag = "status", params(("revision" = u64, Path), UndoQuery),
    responses((status = 200, body = Object), (status = 403, body = Problem), (status = 404, body = Problem),
        (status = 409, body = Problem), (status = 412, body = Problem)))]
pub async fn undo(
    admin: Admin,
    State(state): ApiState,
    Path(revision): Path<u64>,
    Query(UndoQuery { restore_access }): Query<UndoQuery>,
    headers: HeaderMap,
) -> Result<Json<Value>> {
    admin.writer()?;
    let undoable = Undoable::find(&admin, &state, revision).await?;
    undoable.check_permission(&admin)?;
    if undoable.restores_access() && !restore_access {
        let detail = "the undo of a revocation makes its tokens valid again, until they expire: --restore-access \
            (API: ?restoreAccess=true) does that";
        return Err(Problem::new(Code::RestoresAccess, detail));
    }
    let permit = state.queues.to_write(undoable.topic(), &admin).await?;
    let given = precondition(&headers)?;
    let Plan { undo, expected, at, .. } = undoable.plan(&state).await?;
    if undoable.topic() == Topic::Policy {
        check_given(given, at)?;
    }
    let change = Change { undoes: Some(revision), ..state.change(&admin, expected) };
    let undo = undoable.checked(&admin, &state, undo, change.at)?;
    let platform = admin.role.is_platform();
    let org = undoable.record.org;
    let work = async move {
        let written = store(&state, platform, &change, &org, undo).await?;
        Ok::<_, AdmissionError>(state.notify_publisher(written))
    };
    Ok(change_response(queues::write(permit, work).await??))
}

/// A change that keeps what its undo needs.
struct Undoable {
    record: AuditRecord,
    change: ListChange,
}

/// The change that undoes another one.
struct Plan {
    undo: ListChange,
    /// Condition under which the list is as it was evaluated.
    expected: Precondition,
    /// Revision of the list; 0 if it is empty or has none.
    at: u64,
    /// The org's bindings, for a change of bindings.
    bindings: Vec<BindingRecord>,
}

impl Undoable {
    async fn find(admin: &Admin, state: &AdminState, revision: u64) -> Result<Undoable> {
        let found = state.store.audited(revision).await?;
        let own = |record: &AuditRecord| admin.role.org().is_none_or(|own| own == record.org);
        let (record, change) = found.filter(|(record, _)| own(record)).ok_or_else(Problem::not_found)?;
        match change {
            Some(change) => Ok(Undoable { record, change }),
            None => Err(Problem::new(Code::NotUndoable, not_undoable(&record))),
        }
    }

    /// Requires the permission of the change that the undo makes.
    fn check_permission(&self, admin: &Admin) -> Result<()> {
        match &self.change {
            // Their resource is the server, which is no org's.
            ListChange::Offers(_) => admin.platform(),
            _ if self.record.org.is_empty() || self.record.org == EVERY_ORG => admin.platform(),
            ListChange::Revocations(change) => {
                change.after.iter().try_for_each(|record| check_may_lift(admin, record))?;
                admin.of_org(&self.record.org)
            }
            _ => admin.of_org(&self.record.org),
        }
    }

    /// Whether tokens become valid again.
    fn restores_access(&self) -> bool {
        matches!(&self.change, ListChange::Revocations(change) if !change.after.is_empty())
    }

    fn topic(&self) -> Topic {
        match &self.change {
            ListChange::Revocations(_) => Topic::Revocations,
            _ => Topic::Policy,
        }
    }

    /// Evaluates the list as it is now; fails if an entry of the change is no longer as the change left it.
    async fn plan(&self, state: &AdminState) -> Result<Plan> {
        let org = self.record.org.as_str();
        let store = state.store.as_ref();
        let mut plan = Plan {
            undo: reversed(self.change.clone()),
            expected: Precondition::None,
            at: 0,
            bindings: Vec::new(),
        };
        let (at, touched) = match &self.change {
            ListChange::Exposure(change) => {
                let AtRevision { revision, value } = store.exposure(org).await?;
                (revision, change.touched_since(&value, ExposureRecord::same_key).is_some())
            }
            ListChange::Bindings(change) => {
                let AtRevision { revision, value } = store.bindings(org).await?;
                let touched = change.touched_since(&value, BindingRecord::same_key).is_some();
                plan.bindings = value;
                (revision, touched)
            }
            ListChange::Limits(change) => {
                let AtRevision { revision, value } = store.limits(org).await?;
                (revision, change.touched_since(&value, LimitRecord::same_key).is_some())
            }
            ListChange::Offers(change) => {
                let first = change.before.first().or(change.after.first());
                let server = first.map_or("", |offer| offer.server.as_str());
                let AtRevision { revision, value } = store.offers(server).await?;
                (revision, change.touched_since(&value, OfferRecord::eq).is_some())
            }
            ListChange::Revocations(change) => {
                let live = revocations::live(store, org).await?;
                check_revocations(&self.record, change, &live)?;
                return Ok(plan);
            }
        };
        if touched {
            return Err(Problem::new(Code::ChangedSince, changed_since(&self.record)));
        }
        plan.at = at;
        plan.expected = if at == 0 { Precondition::Absent } else { Precondition::At(at) };
        Ok(plan)
    }

    /// Returns the undo in the form in which it is stored, if the API would accept it as a new change.
    fn checked(&self, admin: &Admin, state: &AdminState, undo: ListChange, now: u64) -> Result<ListChange> {
        match undo {
            ListChange::Bindings(change) => {
                let targets = change.after.iter().map(policy::open_target);
                for target in targets {
                    name_checks::check_open_target(state, &self.record.org, target)?;
                }
                Ok(ListChange::Bindings(change))
            }
            ListChange::Revocations(ListDifference { before, after }) => {
                let renewed = |record: &RevocationRecord| revocations::renewed(record, admin, now);
                let again: Vec<RevocationRecord> = after.iter().filter_map(renewed).collect();
                if again.iter().any(|record| record.kind == BLOCK_ORG) {
                    admin.platform()?;
                }
                if again.is_empty() && !after.is_empty() {
                    let detail =
                        "every token of these revocations has expired: there is nothing to revoke again";
                    return Err(Problem::new(Code::NotUndoable, detail));
                }
                Ok(ListChange::Revocations(ListDifference { before, after: again }))
            }
            other => Ok(other),
        }
    }

    /// Returns the revision of the list, and what the undo would do.
    fn preview(self, plan: Plan, servers: &OrgServers) -> Result<(u64, Preview)> {
        let restores_access = self.restores_access();
        let Undoable { record, .. } = self;
        let Plan { undo, at, bindings, .. } = plan;
        let (list, removes, restores) = entries(&undo);
        let effects = match &undo {
            ListChange::Exposure(undo) => undo_effects::of_exposure(servers, undo),
            ListChange::Bindings(undo) => undo_effects::of_bindings(servers, &bindings, undo).map_err(|fault| {
                tracing::error!(%fault, "stored bindings cannot be evaluated and the preview of an undo got an internal error");
                Problem::new(Code::Internal, "")
            })?,
            ListChange::Limits(undo) => undo_effects::of_limits(undo),
            ListChange::Offers(undo) => undo_effects::of_offers(servers, undo),
            ListChange::Revocations(undo) => undo_effects::of_revocations(undo),
        };
        let AuditRecord { revision: change, at: made_at, actor, action, org, .. } = record;
        let shown = Preview {
            change,
            at: made_at,
            actor,
            action,
            org,
            list,
            removes,
            restores,
            effects,
            restores_access,
        };
        Ok((at, shown))
    }
}

/// Fails unless the request's precondition holds for the list as it was evaluated, at this revision. The write itself depends on
/// that revision, whatever the request asks.
fn check_given(given: Precondition, at: u64) -> Result<()> {
    let holds = match given {
        Precondition::None => true,
        Precondition::At(wanted) => wanted == at,
        Precondition::Exists => at > 0,
        Precondition::Absent => at == 0,
    };
    match holds {
        true => Ok(()),
        false => Err(StoreError::Conflict { current: Some(at).filter(|at| *at > 0) }.into()),
    }
}

/// Fails if a revocation to lift is gone, or one to make again was made since.
fn check_revocations(
    record: &AuditRecord,
    change: &ListDifference<RevocationRecord>,
    live: &[RevocationRecord],
) -> Result<()> {
    let same = |one: &RevocationRecord, other: &RevocationRecord| {
        (&one.kind, &one.target, &one.issuer) == (&other.kind, &other.target, &other.issuer)
    };
    let is_gone = |made: &RevocationRecord| !live.iter().any(|found| found.id == made.id);
    let is_back = |lifted: &RevocationRecord| live.iter().any(|found| same(found, lifted));
    if change.after.iter().any(is_gone) || change.before.iter().any(is_back) {
        return Err(Problem::new(Code::ChangedSince, changed_since(record)));
    }
    Ok(())
}

/// Stores an undo.
async fn store(
    state: &AdminState,
    platform: bool,
    change: &Change,
    org: &str,
    undo: ListChange,
) -> Result<Commit, AdmissionError> {
    let admission = &state.admission;
    match undo {
        ListChange::Exposure(undo) => admission.replace_exposure(platform, change, org, &undo).await,
        ListChange::Bindings(undo) => admission.replace_bindings(platform, change, org, &undo).await,
        ListChange::Limits(undo) => {
            let list = undo.applied(&state.store.limits(org).await?.value);
            let refused = |fault: Problem| AdmissionError::Unpublishable(fault.detail().to_owned());
            ratelimits::check_overlap(&list).map_err(refused)?;
            admission.put_limits(platform, change, org, &list).await
        }
        ListChange::Offers(undo) => match (undo.after.first(), undo.before.first()) {
            (Some(offer), _) => Ok(state.store.put_offer(change, offer).await?),
            (None, Some(offer)) => Ok(state.store.delete_offer(change, offer).await?),
            (None, None) => Ok(Commit { revision: 0, changed: false }),
        },
        ListChange::Revocations(undo) => match (undo.after.as_slice(), undo.before.as_slice()) {
            ([one], _) => admission.add_revocation(platform, change, one).await,
            ([], [one]) => Ok(state.store.delete_revocation(change, &one.id).await?),
            ([], several) => {
                let ids: Vec<String> = several.iter().map(|record| record.id.clone()).collect();
                Ok(state.store.delete_revocations(change, &ids).await?)
            }
            (several, _) => admission.add_revocations(platform, change, several).await,
        },
    }
}

fn reversed(change: ListChange) -> ListChange {
    match change {
        ListChange::Exposure(change) => ListChange::Exposure(change.reversed()),
        ListChange::Bindings(change) => ListChange::Bindings(change.reversed()),
        ListChange::Limits(change) => ListChange::Limits(change.reversed()),
        ListChange::Offers(change) => ListChange::Offers(change.reversed()),
        ListChange::Revocations(change) => ListChange::Revocations(change.reversed()),
    }
}

/// Returns the name of the list, and the entries that a change removes and stores, as the API shows them.
fn entries(change: &ListChange) -> (&'static str, Vec<Value>, Vec<Value>) {
    fn both<T>(change: &ListDifference<T>, show: impl Fn(&T) -> Value) -> (Vec<Value>, Vec<Value>) {
        (change.before.iter().map(&show).collect(), change.after.iter().map(&show).collect())
    }
    let (list, (before, after)) = match change {
        ListChange::Exposure(change) => {
            ("exposure", both(change, |record| json!(policy::exposure_body(record))))
        }
        ListChange::Bindings(change) => {
            ("bindings", both(change, |record| json!(policy::binding_body(record))))
        }
        ListChange::Limits(change) => {
            ("limits", both(change, |record| json!(ratelimits::entry(record.clone()))))
        }
        ListChange::Offers(change) => {
            ("offers", both(change, |offer| json!({ "server": offer.server, "org": offer.org })))
        }
        ListChange::Revocations(change) => {
            ("revocations", both(change, |record| json!(Revocation::from(record.clone()))))
        }
    };
    (list, before, after)
}

/// Returns why a change cannot be undone, and what to do instead.
fn not_undoable(record: &AuditRecord) -> String {
    let AuditRecord { revision, action, resource, .. } = record;
    if let Some(server) = resource.strip_prefix("server/") {
        return format!(
            "change {revision} ({action}) is undone by a rollback: `asp servers versions {server}` lists the versions"
        );
    }
    format!(
        "change {revision} ({action}) has nothing to undo it with. Changes of exposure, bindings, limits, offers and \
         revocations have: the newest {UNDOABLE_PER_ORG} of an org, up to {MAX_UNDO_BYTES} bytes each, since the version \
         that has undo"
    )
}

fn changed_since(record: &AuditRecord) -> String {
    let AuditRecord { revision, org, .. } = record;
    let of_org = if org.is_empty() { String::new() } else { shell::option("org", org) };
    format!(
        "a later change touched what change {revision} changed, or it has expired: `asp history{of_org}` lists the \
         changes since; undo those first, newest first"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_adds_a_condition_and_replaces_none() {
        let holds = |given, at| check_given(given, at).is_ok();
        assert!(holds(Precondition::None, 0) && holds(Precondition::None, 7));
        assert!(
            holds(Precondition::At(7), 7) && !holds(Precondition::At(6), 7) && !holds(Precondition::At(8), 7)
        );
        assert!(holds(Precondition::Exists, 7) && !holds(Precondition::Exists, 0));
        assert!(holds(Precondition::Absent, 0) && !holds(Precondition::Absent, 7));
    }
}
