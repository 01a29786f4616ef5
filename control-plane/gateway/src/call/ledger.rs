//! Stage 6: the idempotency ledger. Decides whether a call executes, waits or replays (design §6).
//!
//! Keeps true: the key's scope is the principal and the primitive, never the token, so that a refreshed
//! token finds its answer and nobody else does; what was executed is never executed again under its key.

use std::sync::Arc;
use std::time::Duration;

use asp_proto::snapshot::Mutation;
use asp_store::active::OwnerId;
use asp_store::ledger::{Claim, Holder, Ledger, LedgerError, LedgerKey, RequestHash};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::Instant;

use super::outcome::{Output, Refusal};
use super::{Call, IdempotencyKey};
use crate::digest;

/// How long the answer of a mutating call is kept (Stripe and the IETF draft: at least a day).
const KEEP_MUTATING: Duration = Duration::from_secs(24 * 3600);
/// How long the answer of a read-only call is kept: long enough for a client's retries.
const KEEP_READING: Duration = Duration::from_secs(600);
/// Largest answer of a read that is kept, in bytes; a larger one is read again.
const MAX_QUICK_ANSWER: usize = 64 * 1024;
/// How much longer than the deadline a claim is believed to run.
const LEASE_SLACK: Duration = Duration::from_secs(5);

/// A claimed key. Ends with [`Held::settle`].
pub struct Held {
    ledger: Arc<dyn Ledger>,
    claim: LedgerClaim,
    holder: Holder,
}

/// A claimed key as a call's record keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerClaim {
    pub key: [u8; 32],
    pub hash: RequestHash,
    pub mutating: bool,
}

/// What the ledger says of a call.
pub enum Entered {
    /// Execute; there is no key to keep.
    Keyless,
    /// Execute, then store the answer.
    Held(Held),
    /// Do not execute: this was the answer.
    Replay(Output),
}

#[derive(Serialize, Deserialize)]
enum Stored {
    Output(Output),
    OutcomeUnknown,
}

/// What a call under an explicit key claims in the durable ledger; `None` where it claims nothing there.
pub(super) fn durable_claim(
    call: &Call,
    key: Option<&IdempotencyKey>,
    arguments: &Value,
) -> Option<LedgerClaim> {
    let mutating = !matches!(call.entry.primitive.mutation(), Mutation::ReadOnly);
    let key = key.filter(|key| mutating && matches!(key, IdempotencyKey::Explicit(_)))?;
    Some(LedgerClaim { key: scope(call, key).0, hash: request_hash(call, arguments), mutating })
}

/// Claims the call's key, waiting for a running twin until the call's deadline.
pub async fn enter(
    ledgers: &Ledgers,
    call: &Call,
    key: Option<&IdempotencyKey>,
    arguments: &Value,
) -> Result<Entered, Refusal> {
    let Some(key) = key else { return Ok(Entered::Keyless) };
    let mutating = !matches!(call.entry.primitive.mutation(), Mutation::ReadOnly);
    // The hot path: a read without a key of its own may run again, and touches no store (design §5).
    if !mutating && matches!(key, IdempotencyKey::SessionRequest { .. }) {
        return Ok(Entered::Keyless);
    }
    let ledger = if mutating { &ledgers.durable } else { &ledgers.quick };
    let (hashed, hash) = (scope(call, key), request_hash(call, arguments));
    // A duplicate JSON-RPC id of a running request is an error of the client, not a retry to wait for.
    let until = match key {
        IdempotencyKey::Explicit(_) => call.deadline(),
        IdempotencyKey::SessionRequest { .. } => Instant::now(),
    };
    let claim = match ledger.claim(hashed, hash, ledgers.holder(call), until, lease(call)).await {
        // A read may run again; without its ledger it only loses the replay.
        Err(error) if !mutating => {
            tracing::debug!(error = %error, "read runs without its idempotency key");
            return Ok(Entered::Keyless);
        }
        claim => claim.map_err(|e| Refusal::Internal(e.to_string()))?,
    };
    match (claim, key) {
        (Claim::New, _) => {
            let claim = LedgerClaim { key: hashed.0, hash, mutating };
            Ok(Entered::Held(Held { ledger: ledger.clone(), claim, holder: ledgers.holder(call) }))
        }
        (Claim::Replay(bytes), _) => replay(&bytes),
        (Claim::Conflict, _) => Err(Refusal::KeyConflict),
        (Claim::Abandoned, _) if !mutating => Ok(Entered::Keyless),
        (Claim::Abandoned, _) => Err(Refusal::OutcomeUnknown),
        (Claim::InFlight, IdempotencyKey::Explicit(_)) => Err(Refusal::InFlight),
        (Claim::InFlight, IdempotencyKey::SessionRequest { .. }) => Err(Refusal::DuplicateId),
    }
}

/// The ledgers of one gateway: SQL for mutating calls, a cache for the others (I-6).
#[derive(Clone)]
pub struct Ledgers {
    pub durable: Arc<dyn Ledger>,
    pub quick: Arc<dyn Ledger>,
    /// This run of this gateway.
    pub owner: OwnerId,
}

impl Ledgers {
    /// The key that `call` held on a gateway that is gone, held here now; `None` where the call has ended: there is an
    /// answer, or the key was given back, and perhaps another execution has it.
    pub(super) async fn seize(&self, call: &Call, claim: LedgerClaim) -> Result<Option<Held>, LedgerError> {
        let ledger = if claim.mutating { &self.durable } else { &self.quick };
        let (key, holder) = (LedgerKey(claim.key), self.holder(call));
        let held = if claim.mutating {
            ledger.seize(key, claim.hash, holder, lease(call)).await?
        } else {
            // The quick ledger is one gateway's alone, and what reads may run again.
            ledger.claim(key, claim.hash, holder, Instant::now(), lease(call)).await?;
            true
        };
        Ok(held.then(|| Held { ledger: ledger.clone(), claim, holder }))
    }

    fn holder(&self, call: &Call) -> Holder {
        Holder { call: call.id.into_bytes(), owner: self.owner.0 }
    }
}

impl Held {
    pub(super) fn claim(&self) -> &LedgerClaim {
        &self.claim
    }

    /// Stores what the execution ended with. A refusal that certainly left no effect frees the key.
    pub async fn settle(self, call: &Call, result: &Result<Output, Refusal>) -> Result<(), Refusal> {
        let stored = match result {
            Ok(output) => Stored::Output(output.clone()),
            Err(refusal) if !self.claim.mutating || left_no_effect(call, refusal) => {
                return self.release().await;
            }
            Err(_) => Stored::OutcomeUnknown,
        };
        let bytes = serde_json::to_vec(&stored).map_err(|e| Refusal::Internal(e.to_string()))?;
        if !self.claim.mutating && bytes.len() > MAX_QUICK_ANSWER {
            return self.release().await;
        }
        let keep = if self.claim.mutating { KEEP_MUTATING } else { KEEP_READING };
        match self.ledger.complete(LedgerKey(self.claim.key), self.holder, Bytes::from(bytes), keep).await {
            Ok(true) => Ok(()),
            // What reads only loses its replay.
            Ok(false) if !self.claim.mutating => Ok(()),
            // The effect may have happened, but its answer is not safe: do not acknowledge it.
            Ok(false) | Err(_) => Err(Refusal::OutcomeUnknown),
        }
    }

    /// Whether the key is still held, after a time in which another gateway could have taken the call. A read may run
    /// in any case.
    pub(super) async fn still(&self, call: &Call) -> Result<bool, LedgerError> {
        let key = LedgerKey(self.claim.key);
        Ok(!self.claim.mutating || self.ledger.renew(key, self.holder, lease(call)).await?)
    }

    /// Nothing was executed: the key is free again.
    pub(super) async fn release(self) -> Result<(), Refusal> {
        let released = self.ledger.release(LedgerKey(self.claim.key), self.holder).await;
        released.map_err(|e| Refusal::Internal(e.to_string()))
    }
}

/// A holder that died is told apart from one that is slow by its deadline and a little more.
fn lease(call: &Call) -> Duration {
    call.deadline().saturating_duration_since(Instant::now()) + LEASE_SLACK
}

/// Executors answer so only when the request was never delivered, or the service said that it did nothing.
fn left_no_effect(call: &Call, refusal: &Refusal) -> bool {
    !call.was_handed_over()
        || matches!(refusal, Refusal::Upstream(_) | Refusal::Declined(_) | Refusal::Limited { .. })
}

fn replay(bytes: &[u8]) -> Result<Entered, Refusal> {
    match serde_json::from_slice(bytes) {
        Ok(Stored::Output(output)) => Ok(Entered::Replay(output)),
        Ok(Stored::OutcomeUnknown) => Err(Refusal::OutcomeUnknown),
        Err(error) => Err(Refusal::Internal(format!("stored answer: {error}"))),
    }
}

fn scope(call: &Call, key: &IdempotencyKey) -> LedgerKey {
    let caller = &call.caller;
    let mut parts = vec![caller.org.as_str(), caller.user.as_str(), call.server.message.name.as_str()];
    match key {
        IdempotencyKey::Explicit(key) => parts.extend(["key", call.entry.primitive.id.as_str(), key]),
        IdempotencyKey::SessionRequest { session, id } => parts.extend(["id", session, "in", id]),
    }
    LedgerKey(digest::of_parts(&parts))
}

fn request_hash(call: &Call, arguments: &Value) -> RequestHash {
    let primitive = &call.entry.primitive;
    digest::of_parts(&[primitive.id.as_str(), primitive.version.as_str(), &digest::canonical(arguments)])
}
