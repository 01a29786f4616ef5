//! Push notifications: the receivers of a call's states, and the outbox of the deliveries that they have not received.
//!
//! Owns: the [`PushStore`] port. Refuses: to read receivers, which the gateway seals. Keeps true: a state of a call and
//! its deliveries are stored together, whoever stores the state; a receiver gets the states of a call in their order, one
//! sender at a time has a delivery, and a state that one receiver does not take delays no other; receivers are bounded
//! per call, user and org, however many are stored at the same moment, and end with the record of their call (I-4).

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use crate::records::{CallId, OwnerId, State};

/// Maximum number of receivers of one call. Those of the calls of a user and of an org are bounded by
/// [`CallQuotas`](crate::records::CallQuotas).
pub const MAX_OF_CALL: u32 = 10;

/// Random id of one claim of deliveries.
pub type ClaimId = [u8; 16];

/// Receiver of the states of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceiverRow {
    /// Id that is unique in the call.
    pub config: String,
    /// Scheme, host and port of the URL.
    pub origin: String,
    /// Sealed URL and secrets.
    pub sealed: Bytes,
}

/// Result of storing a receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutReceiver {
    Stored,
    /// The call has no record.
    NoCall,
    Full(ReceiverBound),
}

/// Bound that another receiver would exceed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceiverBound {
    OfCall,
    /// Bound of the calls of a user, over all clients.
    OfUser,
    OfOrg,
}

/// One state for one receiver, while a sender has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// Number that rises from state to state.
    pub seq: i64,
    pub claim: ClaimId,
    pub call: CallId,
    pub config: String,
    pub org: String,
    pub state: State,
    /// Time of the state in Unix milliseconds.
    pub at_ms: i64,
    /// Time since then, by the store's clock.
    pub age: Duration,
    /// Time for which it has waited for its receipt: like `age`, but from its last replay on.
    pub pending: Duration,
    /// Number of attempts, with this one.
    pub attempts: u32,
    /// Size of the call's record and outcome in bytes; 0 while it runs.
    pub bytes: usize,
    /// Sealed URL and secrets of the receiver.
    pub sealed: Bytes,
}

/// State that its receiver did not take in time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter {
    pub seq: i64,
    pub call: CallId,
    pub config: String,
    pub org: String,
    /// Scheme, host and port of the receiver's URL.
    pub origin: String,
    pub state: State,
    /// Time of the state in Unix milliseconds.
    pub at_ms: i64,
    pub attempts: u32,
    /// Reason of the last failure.
    pub fault: String,
}

#[derive(Debug, thiserror::Error)]
pub enum PushStoreError {
    #[error("push notifications are not available: {0}")]
    Unavailable(String),
}

/// Result of an operation on receivers and deliveries.
pub type Result<T, E = PushStoreError> = std::result::Result<T, E>;

/// Store of receivers and deliveries. Data is durable once a method has returned `Ok`.
#[async_trait]
pub trait PushStore: Send + Sync {
    /// Stores a receiver, or replaces the one with the same id. If the call waits for its caller or has ended, that state
    /// is its first delivery.
    async fn put_receiver(&self, call: CallId, org: &str, receiver: &ReceiverRow) -> Result<PutReceiver>;

    /// Returns the receivers of a call, oldest first.
    async fn receivers(&self, call: CallId) -> Result<Vec<ReceiverRow>>;

    /// Deletes a receiver and its deliveries; returns whether there was one.
    async fn remove_receiver(&self, call: CallId, config: &str) -> Result<bool>;

    /// Whether any call has a receiver.
    async fn has_receivers(&self) -> Result<bool>;

    /// Claims at most `limit` due deliveries for `lease`, the earliest state of each receiver. Nobody else gets them
    /// before the lease ends.
    async fn claim_deliveries(&self, claim: ClaimId, lease: Duration, limit: u32) -> Result<Vec<Delivery>>;

    /// Deletes a claimed delivery that was received.
    async fn end_delivery(&self, delivery: &Delivery) -> Result<bool>;

    /// Ends the claim after a failed attempt; the receiver's deliveries are due `after` this time.
    async fn retry_delivery(&self, delivery: &Delivery, after: Duration, fault: &str) -> Result<bool>;

    /// Ends the claim without an attempt; the receiver's deliveries are due `after` this time.
    async fn postpone_delivery(&self, delivery: &Delivery, after: Duration) -> Result<bool>;

    /// Makes a claimed delivery a dead letter; the receiver's next one is due.
    async fn bury_delivery(&self, delivery: &Delivery, fault: &str) -> Result<bool>;

    /// Stores that running calls with receivers have failed whose gateway is gone and which no other one can resume, except
    /// those of the gateway `me`; returns the number of those that it failed, and has failed all once that is 0. Their owner becomes [`NOBODY`](crate::records::NOBODY), so that they stay
    /// failed if their gateway comes back.
    async fn fail_lost_calls(&self, me: OwnerId) -> Result<u64>;

    /// Returns dead letters with numbers below `before`, latest first: of an org, or of all if `org` is empty.
    async fn dead_letters(&self, org: &str, before: i64, limit: u32) -> Result<Vec<DeadLetter>>;

    /// Returns one dead letter, of an org or of any if `org` is empty.
    async fn dead_letter(&self, org: &str, seq: i64) -> Result<Option<DeadLetter>>;

    /// Makes a dead letter a delivery again; returns whether there was one.
    async fn replay_dead_letter(&self, org: &str, seq: i64) -> Result<bool>;

    /// Deletes a dead letter; returns whether there was one.
    async fn drop_dead_letter(&self, org: &str, seq: i64) -> Result<bool>;
}

/// Conformance suite of the port; every backend passes it.
#[cfg(any(test, feature = "testing"))]
pub mod suite;
