//! Lookup of calls for clients that return for them, at any gateway.
//!
//! Owns: the decision whether a call is here, is mirrored here from another gateway, is known by its record alone, or
//! has ended elsewhere, and how. Keeps true: the principal that started a call finds it, at its server, as long as it
//! may see the primitive; anyone else gets the answer for an unknown call; a call that another gateway continues is
//! never reported as ended here.

use std::sync::Arc;
use std::time::Duration;

use asp_call::call::chosen::Put;
use asp_call::call::outcome::{Outcome, Output, Refusal};
use asp_call::call::ownership::LedgerClaim;
use asp_call::call::remote::{CallCursor, CallPage, ListOrder, RemoteCall};
use asp_call::call::{Call, CallRequest, Invocation, State, principal};
use asp_call::durable::active::ActiveFault;
use asp_call::durable::active::call_status::CallStatus;
use asp_call::durable::ended_call::{EndedCall, EndedEvents};
use asp_call::durable::shared_briefs::BriefLookup;
use asp_call::durable::stored_outcome::StoredOutcome;
use asp_edge::Caller;
use asp_proto::snapshot::Primitive;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::Pipeline;

/// Time for which a retry waits until its call is taken over: the lease of the lost gateway, and the interval of the
/// scans.
const TAKE_OVER_WITHIN: Duration = Duration::from_secs(20);
/// Interval at which the call's end at another gateway is checked.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Message to the caller of a repeatable call that no gateway continues.
pub(super) const GONE: &str = "the gateway of the call is gone, and no other can continue it: call again";
/// Message to the caller of a lost call that did nothing: another one has its key, and a retry gets that one's answer.
const HELD: &str = "another call runs under the idempotency key: call again under the same key";
/// Message to the caller of a repeatable call whose answer was too large for its record.
const TOO_LARGE: &str = "the call was completed, but its answer was too large to store: call again";

/// The store of calls does not answer, so that the location of a call is unknown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(transparent)]
pub struct StoreFault(#[from] ActiveFault);

/// Location of a call that its client returns for.
pub enum FoundCall {
    /// The call is here, or is mirrored here from another gateway.
    Here(Arc<Call>),
    /// The call runs at another gateway, or waits to be taken over, and its events are not known here.
    Elsewhere(RemoteCall),
}

impl FoundCall {
    pub fn id(&self) -> Uuid {
        match self {
            FoundCall::Here(call) => call.id,
            FoundCall::Elsewhere(call) => call.id,
        }
    }

    /// Returns the call if it is here.
    pub fn call(&self) -> Option<&Arc<Call>> {
        match self {
            FoundCall::Here(call) => Some(call),
            FoundCall::Elsewhere(_) => None,
        }
    }

    /// Returns the request that created the call, if its client chose the id.
    pub fn put(&self) -> Option<Put> {
        match self {
            FoundCall::Here(call) => Put::of(call),
            FoundCall::Elsewhere(call) => call.put.as_deref().cloned(),
        }
    }

    /// Whether it is no longer here, because another gateway continues it: look it up again.
    pub fn has_moved(&self) -> bool {
        self.call().is_some_and(|call| call.ownership.continued.is_set())
    }
}

/// A call that the database may not have.
enum BriefCall {
    /// Present here. If another gateway has run it, with the time left for its record.
    Found(Arc<Call>, Option<Duration>),
    Absent,
    /// The database has the call, or may have it.
    InDatabase,
}

/// Result of attaching to a call.
pub enum AttachResult {
    Here(Arc<Call>),
    /// The call still runs at another gateway, which alone has its events if gateways share no store.
    Elsewhere,
    Unknown,
}

impl Pipeline {
    /// Returns the call with this id for `caller` at `server`, even if it has ended at another gateway; waits for one
    /// that runs there until it is taken over or ends. `None` also for an ended call that the caller may no longer
    /// start.
    pub async fn attach(
        self: &Arc<Self>,
        id: Uuid,
        caller: &Caller,
        server: &str,
    ) -> Result<AttachResult, StoreFault> {
        let until = Instant::now() + TAKE_OVER_WITHIN;
        loop {
            let otherwise = match self.find(id, caller, server).await? {
                Some(FoundCall::Here(call)) => return Ok(AttachResult::Here(call)),
                Some(FoundCall::Elsewhere(_)) if Instant::now() < until => None,
                Some(FoundCall::Elsewhere(_)) => Some(AttachResult::Elsewhere),
                None => Some(AttachResult::Unknown),
            };
            if let Some(otherwise) = otherwise {
                // It may have been taken over and ended in between.
                return Ok(self.here(id, caller, server).map_or(otherwise, AttachResult::Here));
            }
            self.taken_over.changed_within(LOOK_EVERY).await;
        }
    }

    /// Finds the call wherever it is, without waiting. An ended call of another gateway is kept here for a while.
    pub async fn find(
        self: &Arc<Self>,
        id: Uuid,
        caller: &Caller,
        server: &str,
    ) -> Result<Option<FoundCall>, StoreFault> {
        Ok(self.keep_ended(self.peek(id, caller, server).await?))
    }

    /// Keeps an ended call of another gateway here for a while, and returns what was found.
    fn keep_ended(&self, found: Option<(FoundCall, Option<Duration>)>) -> Option<FoundCall> {
        let (found, left) = found?;
        if let (FoundCall::Here(call), Some(left)) = (&found, left) {
            self.promise_ended(call, left);
        }
        Some(found)
    }

    /// Finds the call in the same way, for a list of calls, and keeps none here. Returns also the time left for the
    /// record of a call that ended at another gateway.
    pub async fn peek(
        self: &Arc<Self>,
        id: Uuid,
        caller: &Caller,
        server: &str,
    ) -> Result<Option<(FoundCall, Option<Duration>)>, StoreFault> {
        if let Some(call) = self.here(id, caller, server) {
            return Ok(Some((FoundCall::Here(call), None)));
        }
        Ok(match self.active.status(id, caller, server).await? {
            Some(CallStatus::Ended(ended)) => {
                let left = ended.kept.as_ref().map(|_| ended.left);
                let call = self.restore_ended(id, *ended, caller, server).await?;
                let call = call.filter(|call| self.running.shows(call, caller));
                call.map(|call| (FoundCall::Here(call), left))
            }
            Some(CallStatus::Runs(seen)) => {
                let mirror = self.mirrored(id, &seen, (caller, server)).await;
                Some((mirror.map_or(FoundCall::Elsewhere(seen.call), FoundCall::Here), None))
            }
            None => None,
        })
    }

    /// Finds a call that the database may not have.
    pub async fn find_task(
        self: &Arc<Self>,
        id: Uuid,
        caller: &Caller,
        server: &str,
    ) -> Result<Option<FoundCall>, StoreFault> {
        Ok(self.keep_ended(self.peek_task(id, caller, server).await?))
    }

    /// Finds it in the same way, for a list of calls, and keeps none here.
    pub async fn peek_task(
        self: &Arc<Self>,
        id: Uuid,
        caller: &Caller,
        server: &str,
    ) -> Result<Option<(FoundCall, Option<Duration>)>, StoreFault> {
        match self.peek_brief(id, caller, server).await? {
            BriefCall::Found(call, left) => Ok(Some((FoundCall::Here(call), left))),
            BriefCall::Absent | BriefCall::InDatabase => self.peek(id, caller, server).await,
        }
    }

    /// Finds the call that a message started before. `waits` as in [`Pipeline::promise_message`]: if nothing of such a call
    /// would be stored in the database, that is not asked without need.
    pub async fn find_sent(
        self: &Arc<Self>,
        id: Uuid,
        (caller, server): (&Caller, &str),
        primitive: &Primitive,
        waits: bool,
    ) -> Result<Option<FoundCall>, StoreFault> {
        if !self.keeps_briefly(primitive) {
            return self.find(id, caller, server).await;
        }
        match self.peek_brief(id, caller, server).await? {
            BriefCall::Found(call, left) => Ok(self.keep_ended(Some((FoundCall::Here(call), left)))),
            BriefCall::Absent if waits => Ok(None),
            BriefCall::Absent | BriefCall::InDatabase => self.find(id, caller, server).await,
        }
    }

    async fn peek_brief(
        self: &Arc<Self>,
        id: Uuid,
        caller: &Caller,
        server: &str,
    ) -> Result<BriefCall, StoreFault> {
        if let Some(call) = self.here(id, caller, server) {
            return Ok(BriefCall::Found(call, None));
        }
        Ok(match self.active.find_brief(id, caller, server).await {
            BriefLookup::Absent => BriefCall::Absent,
            BriefLookup::InDatabase => BriefCall::InDatabase,
            BriefLookup::Ended(ended) => {
                let left = ended.left;
                let call = self.restore_ended(id, *ended, caller, server).await?;
                let call = call.filter(|call| self.running.shows(call, caller));
                call.map_or(BriefCall::InDatabase, |call| BriefCall::Found(call, Some(left)))
            }
        })
    }

    /// Finds a call in the same way for the principal that started it, on whose behalf its states are sent. `None` also if
    /// the token that started it was revoked: nothing is sent under it any more.
    pub async fn peek_for_requester(self: &Arc<Self>, id: Uuid) -> Result<Option<FoundCall>, StoreFault> {
        let Some((caller, server)) = self.active.requester(id).await? else { return Ok(None) };
        if self.running.snapshot().is_some_and(|snapshot| snapshot.revoked(&caller)) {
            return Ok(None);
        }
        Ok(self.peek(id, &caller, &server).await?.map(|(found, _)| found))
    }

    /// Returns the server of a call, wherever it runs or ended, for a client that names the call alone. What the client may
    /// know of the call is checked when it is looked up.
    pub async fn server_of(&self, id: Uuid) -> Result<Option<String>, StoreFault> {
        if let Some(call) = self.registry.find_running(id) {
            return Ok(Some(call.server.message.name.clone()));
        }
        Ok(self.active.requester(id).await?.map(|(_, server)| server))
    }

    /// Returns the call if this gateway has it, and no other one continues it.
    pub fn here(&self, id: Uuid, caller: &Caller, server: &str) -> Option<Arc<Call>> {
        let call = self.registry.attach(id, caller, server);
        let call = call.filter(|call| !call.ownership.continued.is_set())?;
        (call.outcome().is_none() || self.running.shows(&call, caller)).then_some(call)
    }

    /// Lists the caller's calls at `server` whose ids it chose, by at most `rows` records.
    pub async fn list(
        &self,
        caller: &Caller,
        server: &str,
        order: ListOrder,
        before: Option<CallCursor>,
        rows: u32,
    ) -> Result<CallPage, StoreFault> {
        Ok(self.active.listed(caller, server, order, before, rows).await?)
    }

    /// Restores an ended call from its record.
    async fn restore_ended(
        &self,
        id: Uuid,
        ended: EndedCall,
        caller: &Caller,
        server: &str,
    ) -> Result<Option<Arc<Call>>, ActiveFault> {
        let snapshot = self.running.snapshot();
        let invocation = snapshot.and_then(|snapshot| ended.record.ended(&snapshot));
        let is_theirs = |invocation: &Invocation| {
            let CallRequest { caller: own, server: of, .. } = &invocation.request;
            principal::is_same(own, caller) && of.message.name == server
        };
        let Some(invocation) = invocation.filter(is_theirs) else { return Ok(None) };
        let now = Instant::now();
        let mut call = Call::new(&invocation, now, now, CancellationToken::new());
        call.id = id;
        let outcome = self.recorded_outcome(&call, ended.kept, ended.record.claim.as_ref()).await?;
        call.questions.restore(ended.record.history);
        let is_brief = ended.events.is_some();
        if let Some(EndedEvents { log, events, next }) = ended.events {
            call.continues(log, events, next);
        } else if let Some(events) = self.active.events()
            && let Some(kept) = events.read(id, 0).await
        {
            kept.continue_in(&mut call);
        }
        call.events.raise_to(ended.generation);
        // A call that never started has no record: this one's id stays taken.
        call.enter(State::Working);
        // Its gateway has stored its end and its events: this one stores nothing of it.
        if is_brief {
            call.ownership.make_brief();
            call.ownership.share_brief();
            call.ownership.given_up.set();
        } else {
            call.ownership.known.set();
        }
        call.finish(outcome);
        call.note_changed(ended.ended_ms);
        Ok(Some(Arc::new(call)))
    }

    /// Returns the outcome in the record of a call at another gateway.
    pub(super) async fn recorded_outcome(
        &self,
        call: &Call,
        kept: Option<StoredOutcome>,
        claim: Option<&LedgerClaim>,
    ) -> Result<Outcome, ActiveFault> {
        Ok(match kept {
            Some(StoredOutcome::Done(output)) => Outcome::Done { output, replayed: false },
            Some(StoredOutcome::Refused(refusal)) => Outcome::Refused(refusal),
            // A ledger that does not answer leaves the outcome open.
            Some(StoredOutcome::InLedger(claim)) => {
                self.ledgers.outcome(&claim).await?.unwrap_or_else(Outcome::unknown)
            }
            Some(StoredOutcome::TooLarge) if call.may_repeat() => {
                Outcome::Refused(Refusal::Upstream(TOO_LARGE.into()))
            }
            Some(StoredOutcome::TooLarge) => Outcome::Done { output: Output::too_large(), replayed: true },
            None => self.last_known(call, claim, GONE).await?,
        })
    }

    /// Returns the outcome of a call whose gateway is gone: the answer in the ledger under its key, if there is one.
    pub(super) async fn last_known(
        &self,
        call: &Call,
        claim: Option<&LedgerClaim>,
        gone: &str,
    ) -> Result<Outcome, ActiveFault> {
        if let Some(claim) = claim.filter(|claim| claim.mutating) {
            if let Some(outcome) = self.ledgers.outcome(claim).await? {
                return Ok(outcome);
            }
            // A call that has executed keeps its key, unless repeating it is harmless.
            if self.ledgers.is_held_by_another(call, claim).await? {
                return Ok(Outcome::Refused(Refusal::Upstream(HELD.into())));
            }
        }
        Ok(Outcome::Refused(call.unanswered(Refusal::Upstream(gone.into()))))
    }
}
