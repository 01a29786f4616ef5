//! Approval by another person: a call requests a grant of the queue in the store, waits for the decision, and uses the
//! grant once.
//!
//! Owns: the wait of a call, and the watch over decisions that any process has stored. Refuses: to decide who may approve
//! (`asp_store::approvals`) and to show requests. Keeps true: a call runs only if this gateway has used a grant for it, of
//! exactly its caller, primitive and arguments, under the policy in force; if the store does not answer, it does not run;
//! the caller learns who must approve and gets no address with which to decide; waits are bounded by the spec's input
//! timeout and the call's deadline.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use asp_call::call::Call;
use asp_call::call::outcome::{Disapproval, Refusal};
use asp_call::call::principal::principal;
use asp_call::call::question::input_timeout;
use asp_call::call::ruling::Approvers;
use asp_call::clock::unix_ms;
use asp_call::digest::of_request;
use asp_call::telemetry::audit::{ApprovalFact, approval};
use asp_edge::MACHINE_ISSUER;
use asp_json::Json;
use asp_snapshot::Snapshot;
use asp_snapshot::protocol::protocol_name;
pub use asp_store::approvals::{
    Approval, ApprovalDecision, ApprovalId, ApprovalRequest, ApprovalState, ApprovalStoreError, Approver,
    GrantScope, MAX_REASON, NoticeClaim, check_approver,
};
use asp_store::approvals::{ApprovalStore, RequestReceipt};
use tokio::sync::broadcast;
use tokio::time::Instant;
use uuid::Uuid;

use super::approval_text::reviewable_text;
use super::approval_wait::{ApprovalEnd, ApprovalWait, within};
use super::approve;
use super::approver_standing;
use super::{CallTask, Pipeline};

/// Maximum number of decisions that wait for a call to see them; a call that is slower reads its request again.
const DECISIONS: usize = 1_024;
/// Maximum number of decisions of one look.
const LOOK: u32 = 512;
/// Time by which a look reaches back: transactions become visible in another order than their times.
const OVERLAP_MS: i64 = 5_000;
/// Time by which the first look reaches back.
const BEGIN_MS: i64 = 60_000;
/// Time after which a caller with too many requests may retry, in milliseconds.
const FULL_RETRY_MS: u64 = 60_000;
/// Maximum number of requests that one look marks as expired.
const EXPIRE: u32 = 100;

/// The queue of approvals, as the calls of one gateway use it.
pub struct Approvals {
    store: Option<Arc<dyn ApprovalStore>>,
    /// Whether a webhook is notified of requests.
    notifies: bool,
    waiting: AtomicUsize,
    decisions: broadcast::Sender<ApprovalId>,
}

/// A waiting call; counted until it is dropped.
struct WaitingCall<'a>(&'a AtomicUsize);

impl Drop for WaitingCall<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Position of a gateway in the decisions of the store.
pub struct DecisionCursor {
    latest_ms: i64,
    seen: Vec<(ApprovalId, i64)>,
}

impl Default for DecisionCursor {
    /// Begins with the decisions of the last minute: the clocks of gateway and store may differ, and a call that waits
    /// reads its request first.
    fn default() -> DecisionCursor {
        let latest_ms = i64::try_from(unix_ms()).unwrap_or_default() - BEGIN_MS;
        DecisionCursor { latest_ms, seen: Vec::new() }
    }
}

impl Approvals {
    pub fn new(store: Option<Arc<dyn ApprovalStore>>, notifies: bool) -> Approvals {
        let decisions = broadcast::Sender::new(DECISIONS);
        Approvals { store, notifies, waiting: AtomicUsize::new(0), decisions }
    }

    /// Returns the queue, if this gateway has one.
    pub fn store(&self) -> Option<&Arc<dyn ApprovalStore>> {
        self.store.as_ref()
    }

    fn enter(&self) -> WaitingCall<'_> {
        self.waiting.fetch_add(1, Ordering::AcqRel);
        WaitingCall(&self.waiting)
    }

    /// Wakes the calls that wait for a request.
    fn wake(&self, id: ApprovalId) {
        // Err: no call waits.
        let _ = self.decisions.send(id);
    }

    /// Reads decisions that any process has stored since the last look, and wakes their calls. Reads nothing while no
    /// call waits.
    pub async fn look(&self, cursor: &mut DecisionCursor) -> Result<(), ApprovalStoreError> {
        let Some(store) = &self.store else { return Ok(()) };
        if self.waiting.load(Ordering::Acquire) == 0 {
            *cursor = DecisionCursor::default();
            return Ok(());
        }
        let since = cursor.latest_ms.saturating_sub(OVERLAP_MS);
        let decided = within(store.decided_approvals(since, LOOK)).await?;
        let is_full = decided.len() >= usize::try_from(LOOK).unwrap_or(usize::MAX);
        for (id, at_ms) in &decided {
            if !cursor.seen.contains(&(*id, *at_ms)) {
                self.wake(*id);
            }
        }
        let last = decided.last().map_or(cursor.latest_ms, |(_, at_ms)| *at_ms);
        // A full look must not stay within its overlap.
        cursor.latest_ms = if is_full { last.saturating_add(OVERLAP_MS) } else { last.max(cursor.latest_ms) };
        cursor.seen = decided;
        Ok(())
    }
}

impl Pipeline {
    /// The queue of approvals.
    pub fn approvals(&self) -> &Approvals {
        &self.approvals
    }

    /// Returns a request.
    pub async fn find_approval(&self, id: ApprovalId) -> Result<Option<Approval>, ApprovalStoreError> {
        match &self.approvals.store {
            Some(store) => within(store.approval(id)).await,
            None => Ok(None),
        }
    }

    /// Claims notifications of open requests for `lease`.
    pub async fn due_approval_notices(
        &self,
        claim: NoticeClaim,
        lease: Duration,
        limit: u32,
    ) -> Result<Vec<Approval>, ApprovalStoreError> {
        match &self.approvals.store {
            Some(store) => within(store.claim_notices(claim, lease, limit)).await,
            None => Ok(Vec::new()),
        }
    }

    /// Ends a claimed notification.
    pub async fn end_approval_notice(
        &self,
        id: ApprovalId,
        claim: NoticeClaim,
    ) -> Result<(), ApprovalStoreError> {
        match &self.approvals.store {
            Some(store) => within(store.end_notice(id, claim)).await.map(drop),
            None => Ok(()),
        }
    }

    /// Lets a claimed notification be sent again `after` this time.
    pub async fn retry_approval_notice(
        &self,
        id: ApprovalId,
        claim: NoticeClaim,
        after: Duration,
    ) -> Result<(), ApprovalStoreError> {
        match &self.approvals.store {
            Some(store) => within(store.retry_notice(id, claim, after)).await.map(drop),
            None => Ok(()),
        }
    }

    /// Stores a decision by an approver who was authenticated and may decide; false if the request is not open any more.
    pub async fn decide_approval(
        self: &Arc<Self>,
        request: &ApprovalRequest,
        decision: &ApprovalDecision,
    ) -> Result<bool, ApprovalStoreError> {
        let (pipeline, request, decision) = (Arc::clone(self), request.clone(), decision.clone());
        // In a task of its own: if the approver leaves, or the store is slow, the store may have the decision nevertheless.
        let deciding = tokio::spawn(async move { pipeline.store_decision(&request, &decision).await });
        let lost = |_| Err(ApprovalStoreError::Unavailable("the decision was interrupted".into()));
        within(async { deciding.await.unwrap_or_else(lost) }).await
    }

    /// Stores a decision, records it and wakes the calls that wait for it.
    async fn store_decision(
        &self,
        request: &ApprovalRequest,
        decision: &ApprovalDecision,
    ) -> Result<bool, ApprovalStoreError> {
        let Some(store) = &self.approvals.store else { return Ok(false) };
        if !store.decide_approval(request.id, decision).await? {
            return Ok(false);
        }
        let state = if decision.approved { ApprovalState::Approved } else { ApprovalState::Denied };
        self.metrics.approvals.count(state.as_str());
        let fact = ApprovalFact {
            event: "approval.decision",
            call: Uuid::from_bytes(request.call),
            state: state.as_str(),
            by: &decision.by,
            reason: &decision.reason,
        };
        // The decision is stored; a lost event is counted.
        let _ = self.audit.record_end(approval(request, fact)).await;
        self.approvals.wake(request.id);
        Ok(true)
    }

    /// Marks requests and grants past their time as expired, and records each once for all gateways.
    pub async fn expire_approvals(&self) -> Result<(), ApprovalStoreError> {
        let Some(store) = &self.approvals.store else { return Ok(()) };
        for _ in 0..EXPIRE {
            // One at a time: each is recorded even if the store does not answer for the next one.
            let expired = within(store.expire_approvals(1)).await?.pop();
            let Some(Approval { request, .. }) = expired else { return Ok(()) };
            self.metrics.approvals.count(ApprovalState::Expired.as_str());
            let fact = ApprovalFact {
                event: "approval.expiry",
                call: Uuid::from_bytes(request.call),
                state: ApprovalState::Expired.as_str(),
                by: "",
                reason: "",
            };
            let _ = self.audit.record_end(approval(&request, fact)).await;
        }
        Ok(())
    }
}

impl CallTask {
    /// Waits for the approval that the call needs: of its caller, or of another person.
    pub(super) async fn approved(&self, arguments: &Json) -> Result<(), Refusal> {
        match self.call.ruling.approvers() {
            None => approve::approve(&self.call).await,
            // Boxed, so that the state of every call does not include this wait.
            Some(approvers) => Box::pin(self.granted(&approvers, arguments)).await,
        }
    }

    /// Requests a grant, waits for it and uses it.
    async fn granted(&self, approvers: &Approvers, arguments: &Json) -> Result<(), Refusal> {
        let approvals = &self.pipeline.approvals;
        let Some(store) = &approvals.store else { return Err(unavailable("this gateway has no queue")) };
        let began = Instant::now();
        let Some(snapshot) = self.pipeline.running.snapshot() else { return Err(unavailable("no snapshot")) };
        // The call may have waited since its bindings were evaluated: others may have to approve it by now.
        if snapshot.policy.version(&self.call.caller.org) != approvers.policy {
            return Err(Refusal::NotApproved(Disapproval::Outdated));
        }
        let shown = reviewable_text(arguments)?;
        let scope = scope(&snapshot, &self.call, approvers, arguments);
        let _counted = approvals.enter();
        let mut wait = ApprovalWait {
            call: &self.call,
            store: &**store,
            decisions: approvals.decisions.subscribe(),
            until: began + input_timeout(&self.call.entry.primitive),
            question: None,
            is_shown: false,
        };
        loop {
            if Instant::now() >= wait.until {
                return Err(Refusal::InputExpired);
            }
            let id = self.request(&**store, &scope, shown.clone(), began).await?;
            let decided = wait.decision(id, &approvers.group).await;
            if matches!(decided, Err(Refusal::Cancelled | Refusal::NotApproved(Disapproval::Declined))) {
                self.withdraw(&**store, id).await;
            }
            match decided? {
                ApprovalEnd::Granted => {}
                ApprovalEnd::Gone => continue,
            }
            if self.use_grant(&**store, id, &scope).await? {
                self.pipeline.metrics.approvals.used(began.elapsed());
                return Ok(());
            }
        }
    }

    /// Stores the request, or joins an equal one.
    async fn request(
        &self,
        store: &dyn ApprovalStore,
        scope: &GrantScope,
        shown: String,
        began: Instant,
    ) -> Result<ApprovalId, Refusal> {
        let call = &self.call;
        let pipeline = &self.pipeline;
        let request = ApprovalRequest {
            id: rand::random(),
            scope: scope.clone(),
            requester: call.caller.user.clone(),
            issuer: call.caller.issuer.clone(),
            client: call.caller.client.clone(),
            is_machine: is_machine(call),
            title: approve::title(call).to_owned(),
            protocol: protocol_name(call.protocol).to_owned(),
            rule: call.ruling.get().rule.unwrap_or_default(),
            shown,
            call: call.id.into_bytes(),
        };
        match within(store.request_approval(&request, pipeline.approvals.notifies)).await {
            Ok(RequestReceipt::Stored(id)) => {
                pipeline.metrics.approvals.visible(began.elapsed());
                self.record(&request, "approval.request", ApprovalState::Pending, "").await;
                Ok(id)
            }
            Ok(RequestReceipt::Joined(id)) => {
                pipeline.metrics.approvals.count("joined");
                Ok(id)
            }
            Ok(RequestReceipt::Full) => {
                pipeline.metrics.approvals.count("full");
                Err(Refusal::Limited { limit: "approvals", retry_after_ms: FULL_RETRY_MS })
            }
            Err(error) => Err(self.store_failed(&error)),
        }
    }

    /// Uses the grant under the policy in force, if its approver has not been revoked; false if another call was faster.
    async fn use_grant(
        &self,
        store: &dyn ApprovalStore,
        id: ApprovalId,
        scope: &GrantScope,
    ) -> Result<bool, Refusal> {
        let snapshot = self.pipeline.running.snapshot();
        let in_force = snapshot.filter(|snapshot| snapshot.policy.version(&scope.org) == scope.policy);
        let Some(snapshot) = in_force else {
            return Err(Refusal::NotApproved(Disapproval::Outdated));
        };
        let granted = within(store.approval(id)).await.map_err(|error| self.store_failed(&error))?;
        let Some(granted) = granted else { return Ok(false) };
        if approver_standing::is_revoked(&snapshot, &granted) {
            // Otherwise the next call would find this grant again until it expires.
            let _ = within(store.end_grant(id)).await;
            return Err(Refusal::NotApproved(Disapproval::ApproverRevoked));
        }
        let used = within(store.use_approval(id, scope, self.call.id.into_bytes())).await;
        if !used.map_err(|error| self.store_failed(&error))? {
            return Ok(false);
        }
        self.call.ruling.approve();
        self.record(&granted.request, "approval.use", ApprovalState::Used, &granted.decided_by).await;
        Ok(true)
    }

    async fn withdraw(&self, store: &dyn ApprovalStore, id: ApprovalId) {
        // What is not withdrawn expires.
        if let Ok(true) = within(store.withdraw_approval(id, self.call.id.into_bytes())).await {
            self.pipeline.metrics.approvals.count(ApprovalState::Withdrawn.as_str());
        }
    }

    async fn record(&self, request: &ApprovalRequest, event: &'static str, state: ApprovalState, by: &str) {
        let fact = ApprovalFact { event, call: self.call.id, state: state.as_str(), by, reason: "" };
        // The row in the store is the truth; a lost event is counted.
        let _ = self.pipeline.audit.record_end(approval(request, fact)).await;
    }

    fn store_failed(&self, error: &ApprovalStoreError) -> Refusal {
        self.pipeline.metrics.approvals.count("unavailable");
        tracing::warn!(call = %self.call.id, trace = %self.call.trace, %error, "call that needs an approval was refused, because the store of approvals did not answer: check the store");
        unavailable("their store does not answer")
    }
}

fn unavailable(reason: &str) -> Refusal {
    Refusal::Upstream(format!("approvals are not available: {reason}"))
}

/// Whether the caller is a machine: by its credential, or by a token that a client got for itself (RFC 9068 section 2.2).
fn is_machine(call: &Call) -> bool {
    let caller = &call.caller;
    caller.issuer == MACHINE_ISSUER || (!caller.client.is_empty() && caller.client == caller.user)
}

/// Returns what a grant for the call is bound to.
fn scope(snapshot: &Snapshot, call: &Call, approvers: &Approvers, arguments: &Json) -> GrantScope {
    let server = &call.server.message.name;
    let primitive = format!("{}@{}", call.entry.primitive.id, call.entry.primitive.version);
    GrantScope {
        org: call.caller.org.clone(),
        principal: principal(&call.caller),
        arguments: of_request(&["asp/approval/1", server, &primitive], arguments),
        server: server.clone(),
        primitive,
        approvers: approvers.group.clone(),
        approvers_iss: iss(snapshot, call, approvers),
        policy: approvers.policy,
    }
}

/// Returns the `iss` of the issuer whose groups count; empty for every issuer.
fn iss(snapshot: &Snapshot, call: &Call, approvers: &Approvers) -> String {
    let name = match approvers.issuer.as_str() {
        "*" => return String::new(),
        // A machine has no issuer.
        "" if call.caller.issuer == MACHINE_ISSUER => return String::new(),
        "" => call.caller.issuer.as_str(),
        named => named,
    };
    let found = snapshot.issuers.iter().find(|issuer| issuer.name == name);
    // The name of an issuer that is gone is no `iss`, so nobody can approve.
    found.map_or_else(|| name.to_owned(), |issuer| issuer.iss.clone())
}
