//! Stage 6: the idempotency ledger. Decides whether a call executes, waits or replays.
//!
//! Keeps true: the scope of a key is the principal and the primitive, never the token, so that a request with a
//! refreshed token finds its answer and nobody else does; a call that was executed is never executed again under its
//! key, unless its contract declares a repetition harmless and its outcome was never known; a replay is the answer that
//! was given.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use asp_call::call::outcome::{Outcome, Output, Refusal};
use asp_call::call::ownership::LedgerClaim;
use asp_call::call::{Call, IdempotencyKey};
use asp_call::digest;
use asp_call::durable::active::LATE_STATEMENT;
use asp_call::seal::Sealer;
use asp_json::Json;
use asp_platform::pauses::{Pauses, doubling};
use asp_proto::snapshot::Mutation;
use asp_snapshot::artifact;
use asp_store::ledger::{Answer, Claim, Holder, Ledger, LedgerError, LedgerKey, LedgerRequest, RequestHash};
use asp_store::records::OwnerId;
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use uuid::Uuid;

mod stored;

use stored::StoredEnd;

/// Time for which the answer of a mutating call is kept (Stripe and the IETF draft: at least a day).
const KEEP_MUTATING: Duration = Duration::from_secs(24 * 3600);
/// Time for which the answer of a read-only call is kept: long enough for a client's retries.
const KEEP_READING: Duration = Duration::from_secs(600);
/// Maximum size of a read-only call's answer that is kept, in bytes; a larger one is read again.
const MAX_QUICK_ANSWER: usize = 64 * 1024;
/// Maximum size of a mutating call's answer that is kept, in bytes; of a larger one, only the completion is kept.
const MAX_ANSWER: usize = 1024 * 1024;
/// Delay after which a caller whose org has too many keys may retry.
const FULL_RETRY_MS: u64 = 60_000;
/// Time beyond the deadline for which a claim counts as running.
const LEASE_SLACK: Duration = Duration::from_secs(5);
/// Time beyond the deadline in which a call may still store its result: less than its claim lasts.
const SETTLE_SLACK: Duration = Duration::from_secs(3);
/// Maximum number of claims that are released at a time because the store did not answer whether it accepted them; any
/// other ends with its lease. A gateway that finds the store unavailable claims nothing more.
const MAX_LOST: usize = 256;
/// Message to the caller of a repeatable call whose answer could not be stored.
const NOT_SAFE: &str = "the call was completed, but its answer could not be stored under its key: call again";
/// First pause before a busy store is tried again; it doubles up to [`LAST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LAST_PAUSE: Duration = Duration::from_millis(800);

/// A claimed key. Ends with [`HeldKey::settle`].
pub struct HeldKey {
    ledger: Arc<dyn Ledger>,
    sealer: Arc<Sealer>,
    claim: LedgerClaim,
    holder: Holder,
}

/// Decision of the ledger on a call.
pub enum LedgerDecision {
    /// Executes; there is no key to keep.
    Keyless,
    /// Executes, then stores the answer.
    Held(HeldKey),
    /// Does not execute: this was the answer.
    Replay(Output),
}

/// Whether the durable ledger must remember the effect of the call.
pub(super) fn must_be_remembered(call: &Call, key: Option<&IdempotencyKey>) -> bool {
    key.is_some() && !matches!(call.entry.primitive.mutation(), Mutation::ReadOnly)
}

/// Returns the claim of a call with this key; `None` if it runs without one. `is_alone`: no other gateway could be asked for
/// the call.
pub(super) fn claim_of(
    call: &Call,
    key: &IdempotencyKey,
    arguments: &Json,
    is_alone: bool,
) -> Option<LedgerClaim> {
    let mutating = !matches!(call.entry.primitive.mutation(), Mutation::ReadOnly);
    // The hot path: a read without a key of its own may run again, and touches no store (ADR 7). An artifact may be a
    // URL that is valid for less time than an answer is kept: it is created again even under a key. A call whose key is the
    // id that its client chose is found by that, with its end, where no other gateway could run it.
    let is_artifact = call.entry.primitive.id == artifact::PRIMITIVE_ID;
    let needs_none = match key {
        IdempotencyKey::Explicit(key) => is_artifact || (is_alone && is_own_id(call, key)),
        IdempotencyKey::SessionRequest { .. } => true,
    };
    if !mutating && needs_none {
        return None;
    }
    Some(LedgerClaim { key: scope(call, key).0, hash: request_hash(call, arguments), mutating })
}

fn is_own_id(call: &Call, key: &str) -> bool {
    call.chosen.is_some() && Uuid::parse_str(key).is_ok_and(|key| key == call.id)
}

/// Claims the call's key, waiting for a running duplicate until the call's deadline.
pub(super) async fn enter(
    ledgers: &Ledgers,
    call: &Arc<Call>,
    key: &IdempotencyKey,
    claimed: LedgerClaim,
) -> Result<LedgerDecision, Refusal> {
    let mutating = claimed.mutating;
    let ledger = if mutating { &ledgers.durable } else { &ledgers.quick };
    if ledgers.is_given_back(call) {
        return Err(not_begun());
    }
    // A duplicate within a session here was refused before (ADR 7); waiting does not help if it ran at another gateway
    // or was lost.
    let until = match key {
        IdempotencyKey::Explicit(_) => call.deadline(),
        IdempotencyKey::SessionRequest { .. } => Instant::now(),
    };
    let claim = match claim(ledger, call, (request_of(&claimed), ledgers.holder(call)), until).await {
        // A read may run again; without its ledger it only loses the replay.
        Err(error) if !mutating => {
            tracing::debug!(call = %call.id, trace = %call.trace, error = %error, "read runs without its idempotency key");
            return Ok(LedgerDecision::Keyless);
        }
        Err(LedgerError::Full) => {
            return Err(Refusal::Limited {
                limit: "idempotency keys of the org",
                retry_after_ms: FULL_RETRY_MS,
            });
        }
        Err(LedgerError::Unavailable(error)) => {
            tracing::debug!(call = %call.id, trace = %call.trace, %error, "call was refused, because its idempotency key could not be claimed");
            ledgers.give_back(call, claimed);
            return Err(not_begun());
        }
        Ok(claim) => claim,
    };
    match (claim, key) {
        // The client gave the call no key: an earlier answer would not belong to this request.
        (Claim::Replay(_) | Claim::Conflict, IdempotencyKey::SessionRequest { .. }) => Err(Refusal::IdUsed),
        (Claim::New, _) => Ok(LedgerDecision::Held(ledgers.held_key(call, claimed))),
        (Claim::Replay(bytes), _) => {
            let replayed = stored::replay(&ledgers.sealer, &claimed, &bytes)?;
            Ok(replayed.map_or(LedgerDecision::Keyless, LedgerDecision::Replay))
        }
        (Claim::Conflict, _) => Err(Refusal::KeyConflict),
        (Claim::Abandoned, _) if !mutating => Ok(LedgerDecision::Keyless),
        (Claim::Abandoned, _) => Err(Refusal::OutcomeUnknown),
        (Claim::InFlight, IdempotencyKey::Explicit(_)) => Err(Refusal::InFlight),
        (Claim::InFlight, IdempotencyKey::SessionRequest { .. }) => Err(Refusal::DuplicateId),
    }
}

/// Returns the refusal of a call whose effect could not be remembered because the store does not answer: it was not
/// started.
pub(super) fn not_begun() -> Refusal {
    Refusal::Upstream("nothing was done: the store of idempotency keys does not answer; call again".into())
}

fn request_of(claim: &LedgerClaim) -> LedgerRequest {
    LedgerRequest { key: LedgerKey(claim.key), hash: claim.hash }
}

/// Claims a key. If its holder died, the call takes it over if a repetition is harmless.
async fn claim(
    ledger: &Arc<dyn Ledger>,
    call: &Call,
    (request, holder): (LedgerRequest, Holder),
    until: Instant,
) -> Result<Claim, LedgerError> {
    loop {
        let claim = ledger.claim(request, holder, until, lease(call)).await?;
        if claim != Claim::Abandoned || !call.may_repeat() {
            return Ok(claim);
        }
        if ledger.reclaim(request, holder, lease(call)).await? {
            tracing::info!(call = %call.id, trace = %call.trace, "gateway that ran a call under this key is gone; the call runs again");
            return Ok(Claim::New);
        }
        // Another retry has it now.
    }
}

/// The ledgers of one gateway: SQL for mutating calls, a cache for the others (I-6). If gateways share a Redis, an
/// answer of one of them is in the cache of all.
#[derive(Clone)]
pub struct Ledgers {
    pub durable: Arc<dyn Ledger>,
    pub quick: Arc<dyn Ledger>,
    /// This run of this gateway.
    pub owner: OwnerId,
    /// Seals the entries.
    pub sealer: Arc<Sealer>,
    /// Permits for releasing claims that may have succeeded.
    lost: Arc<Semaphore>,
    /// Client-chosen ids whose keys are being released: another attempt under such an id is the same call to the
    /// ledger, and would lose its own claim. At most one per permit.
    given_back: Arc<Mutex<HashSet<Uuid>>>,
}

impl Ledgers {
    pub fn new(
        durable: Arc<dyn Ledger>,
        quick: Arc<dyn Ledger>,
        owner: OwnerId,
        sealer: Arc<Sealer>,
    ) -> Ledgers {
        let lost = Arc::new(Semaphore::new(MAX_LOST));
        Ledgers { durable, quick, owner, sealer, lost, given_back: Arc::default() }
    }

    /// Releases a claim that the store has not answered. If the store accepted it, a retry would find the key held by a
    /// call that does not run. This happens in the background; a claim that the store accepts later ends with its
    /// lease.
    pub(super) fn give_back(&self, call: &Arc<Call>, claim: LedgerClaim) {
        let Ok(place) = self.lost.clone().try_acquire_owned() else { return };
        let held = self.held_key(call, claim);
        let (call, given_back) = (call.clone(), self.given_back.clone());
        if call.chosen.is_some() {
            given_back.lock().insert(call.id);
        }
        tokio::spawn(async move {
            let is_answered = held.give_back(&call).await;
            if call.chosen.is_some() {
                if !is_answered {
                    // An attempt without an answer may still be executed.
                    tokio::time::sleep(LATE_STATEMENT).await;
                }
                given_back.lock().remove(&call.id);
            }
            drop(place);
        });
    }

    /// Waits until no key is being released, at most `longest`: a key that a stopped gateway still holds leaves a retry
    /// without an answer.
    pub async fn drained(&self, longest: Duration) {
        let all = u32::try_from(MAX_LOST).unwrap_or(u32::MAX);
        // The gateway ends either way; a key that remains ends with its lease.
        let _ = tokio::time::timeout(longest, self.lost.acquire_many(all)).await;
    }

    /// Whether an earlier attempt under the call's client-chosen id is releasing its key.
    fn is_given_back(&self, call: &Call) -> bool {
        call.chosen.is_some() && self.given_back.lock().contains(&call.id)
    }

    /// Takes over the key that `call` held at a lost gateway; `None` if the call has ended: there is an answer, or the
    /// key was released, and another execution may have it.
    pub(crate) async fn take_over_claim(
        &self,
        call: &Call,
        claim: LedgerClaim,
    ) -> Result<Option<HeldKey>, LedgerError> {
        let ledger = if claim.mutating { &self.durable } else { &self.quick };
        let (request, holder) = (request_of(&claim), self.holder(call));
        let held = if claim.mutating {
            ledger.seize(request, holder, lease(call)).await?
        } else {
            // Keys of the quick ledger belong to one gateway, and reads may run again.
            ledger.claim(request, holder, Instant::now(), lease(call)).await?;
            true
        };
        Ok(held.then(|| self.held_key(call, claim)))
    }

    fn held_key(&self, call: &Call, claim: LedgerClaim) -> HeldKey {
        let ledger = if claim.mutating { &self.durable } else { &self.quick };
        HeldKey { ledger: ledger.clone(), sealer: self.sealer.clone(), claim, holder: self.holder(call) }
    }

    /// Returns the outcome of the call that held this key. `None` if the key has no answer: it was released, it has
    /// expired, or the call still holds it.
    pub(crate) async fn outcome(&self, claim: &LedgerClaim) -> Result<Option<Outcome>, LedgerError> {
        let answer = self.durable.answer(request_of(claim)).await?;
        let replayed = answer.map(|answer| stored::replay(&self.sealer, claim, &answer)).transpose();
        Ok(match replayed {
            Ok(Some(Some(output))) => Some(Outcome::Done { output, replayed: true }),
            Ok(Some(None) | None) => None,
            Err(refusal) => Some(Outcome::Refused(refusal)),
        })
    }

    /// Whether another call runs under this key, so that `call` has not executed or has left no effect.
    pub(crate) async fn is_held_by_another(
        &self,
        call: &Call,
        claim: &LedgerClaim,
    ) -> Result<bool, LedgerError> {
        let running = self.durable.running(request_of(claim)).await?;
        Ok(running.is_some_and(|running| running != call.id.into_bytes()))
    }

    fn holder(&self, call: &Call) -> Holder {
        Holder { call: call.id.into_bytes(), owner: self.owner.0, org: digest::short(&call.caller.org) }
    }
}

impl HeldKey {
    pub(crate) fn claim(&self) -> &LedgerClaim {
        &self.claim
    }

    /// Stores the result of the execution, with retries while the store is busy and the call has time. A refusal that
    /// certainly left no effect frees the key, and so does one after which the call may run again.
    pub async fn settle(self, call: &Call, result: &Result<Output, Refusal>) -> Result<(), Refusal> {
        let mutating = self.claim.mutating;
        let stored = match result {
            Ok(output) => StoredEnd::Output(output.clone()),
            Err(refusal) if !mutating || left_no_effect(call, refusal) => return self.free(call).await,
            Err(refusal) => match StoredEnd::of_refusal(refusal) {
                Some(stored) => stored,
                None if call.may_repeat() => return self.free(call).await,
                None => StoredEnd::OutcomeUnknown,
            },
        };
        let whole = stored.bytes()?;
        if !mutating && whole.len() > MAX_QUICK_ANSWER {
            return self.free(call).await;
        }
        let short = if mutating { StoredEnd::NotKept.bytes()? } else { StoredEnd::Unread.bytes()? };
        let whole = if whole.len() > MAX_ANSWER { short.clone() } else { whole };
        let keep = if mutating { KEEP_MUTATING } else { KEEP_READING };
        let sealed = |answer: Bytes| stored::sealed(&self.sealer, &self.claim, &answer);
        match self.complete(call, Answer { whole: sealed(whole)?, short: sealed(short)? }, keep).await {
            Ok(true) => Ok(()),
            // A read only loses its replay.
            Ok(false) if !mutating => Ok(()),
            // The effect may have happened, but its answer is not stored: do not acknowledge it.
            Ok(false) => Err(call.unanswered(Refusal::Upstream(NOT_SAFE.into()))),
            Err(error) => {
                tracing::error!(call = %call.id, trace = %call.trace, %error, "answer of a call could not be stored under its idempotency key and is withheld; the caller is asked to repeat the call if that is harmless, otherwise the outcome is reported as unknown: check the store");
                Err(call.unanswered(Refusal::Upstream(NOT_SAFE.into())))
            }
        }
    }

    async fn complete(&self, call: &Call, answer: Answer, keep: Duration) -> Result<bool, LedgerError> {
        let key = LedgerKey(self.claim.key);
        let mut patience = Patience::of(call);
        let mut failed = false;
        loop {
            match self.ledger.complete(key, self.holder, answer.clone(), keep).await {
                Err(error) if patience.lasts(&error).await => failed = true,
                Ok(false) if failed => break,
                completed => return completed,
            }
        }
        // A failed attempt may have been executed after all.
        let stored = self.ledger.answer(request_of(&self.claim)).await?;
        Ok(stored.is_some_and(|stored| stored == answer.whole || stored == answer.short))
    }

    /// Releases the key. If the store does not accept that, the call's answer stands, and the key is free when its
    /// lease is over.
    async fn free(self, call: &Call) -> Result<(), Refusal> {
        self.give_back(call).await;
        Ok(())
    }

    /// Releases the key; false if an attempt was not answered.
    async fn give_back(self, call: &Call) -> bool {
        let mut patience = Patience::of(call);
        let mut is_answered = true;
        while let Err(error) = self.ledger.release(LedgerKey(self.claim.key), self.holder).await {
            is_answered = false;
            if !patience.lasts(&error).await {
                tracing::warn!(
                    call = %call.id, trace = %call.trace,
                    %error,
                    "idempotency key of a call without effect could not be freed; retries under it wait until its lease expires: check the store"
                );
                break;
            }
        }
        is_answered
    }

    /// Whether the key is still held, after a time in which another gateway could have taken the call. A read may run
    /// in any case.
    pub(crate) async fn still(&self, call: &Call) -> Result<bool, LedgerError> {
        let key = LedgerKey(self.claim.key);
        Ok(!self.claim.mutating || self.ledger.renew(key, self.holder, lease(call)).await?)
    }

    /// Frees the key of a call that executed nothing.
    pub(crate) async fn release(self) -> Result<(), Refusal> {
        let released = self.ledger.release(LedgerKey(self.claim.key), self.holder).await;
        released.map_err(|e| Refusal::Internal(e.to_string()))
    }
}

/// Returns the lease of a claim: a holder that is dead is told from a slow one by the deadline and some slack.
fn lease(call: &Call) -> Duration {
    call.deadline().saturating_duration_since(Instant::now()) + LEASE_SLACK
}

/// Whether a refusal certainly left no effect: after the handover, backends use these only if the request was never
/// delivered, or the service reported that it did nothing.
fn left_no_effect(call: &Call, refusal: &Refusal) -> bool {
    !call.was_handed_over()
        || matches!(
            refusal,
            Refusal::Upstream(_)
                | Refusal::Declined(_)
                | Refusal::PagesFirst { .. }
                | Refusal::Limited { .. }
        )
}

/// Retry policy of a call that stores its result: until its deadline and some slack.
struct Patience {
    until: Instant,
    pauses: Pauses,
}

impl Patience {
    fn of(call: &Call) -> Patience {
        let until = call.deadline().max(Instant::now()) + SETTLE_SLACK;
        Patience { until, pauses: doubling(FIRST_PAUSE, LAST_PAUSE) }
    }

    /// Waits before another attempt; false if there is no time for one.
    async fn lasts(&mut self, error: &LedgerError) -> bool {
        let pause = self.pauses.next().unwrap_or(LAST_PAUSE);
        if Instant::now() + pause >= self.until {
            return false;
        }
        tracing::debug!(%error, "ledger is busy; retrying");
        tokio::time::sleep(pause).await;
        true
    }
}

fn scope(call: &Call, key: &IdempotencyKey) -> LedgerKey {
    let caller = &call.caller;
    let who = [caller.issuer.as_str(), caller.org.as_str(), caller.user.as_str()];
    let mut parts = who.to_vec();
    parts.push(call.server.message.name.as_str());
    match key {
        IdempotencyKey::Explicit(key) => parts.extend(["key", call.entry.primitive.id.as_str(), key]),
        IdempotencyKey::SessionRequest { session, id } => parts.extend(["id", session, "in", id]),
    }
    LedgerKey(digest::of_parts(&parts))
}

fn request_hash(call: &Call, arguments: &Json) -> RequestHash {
    let primitive = &call.entry.primitive;
    digest::of_request(&[primitive.id.as_str(), primitive.version.as_str()], arguments)
}
