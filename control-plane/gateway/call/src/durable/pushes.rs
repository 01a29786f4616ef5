//! Receivers of push notifications and the deliveries that wait for them, sealed.
//!
//! Owns: sealing, and when to look for deliveries. Refuses: the content of a notification, which is its protocol's. Keeps
//! true: the store cannot read URLs, tokens and credentials of receivers; a receiver opens only for its own call.

mod retry_times;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use asp_platform::secret::Secret;
use asp_store::push::{ClaimId, Delivery, PushStore, ReceiverRow};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tokio::time::Instant;
use uuid::Uuid;

use retry_times::RetryTimes;

use super::active::{ActiveFault, ActiveTable, in_time};
use crate::call::State;
use crate::digest;
use crate::seal::{Purpose, Sealer};

pub use asp_store::push::{PutReceiver, ReceiverBound};

/// Interval of looks without an event here: for deliveries of lost gateways, and for those that the control plane replays.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Time in which one attempt and its result are done. Afterwards another sender may try.
const LEASE: Duration = Duration::from_secs(45);

/// Context of the tags by which notifications are known to their receivers.
const NOTIFICATION: &[u8] = b"push notification";

/// Receiver of the states of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushReceiver {
    /// Id that is unique in the call.
    pub id: String,
    pub url: String,
    pub token: Option<Secret>,
    /// HTTP authentication schemes.
    pub schemes: Vec<String>,
    pub credentials: Option<Secret>,
    /// Version of the protocol over which it was registered.
    pub version: String,
    /// Server and primitive of the call, by which an operator's list decides.
    pub server: String,
    pub primitive: String,
}

/// A receiver as it is sealed.
#[derive(Serialize, Deserialize)]
struct SealedReceiver {
    url: String,
    token: Option<String>,
    schemes: Vec<String>,
    credentials: Option<String>,
    version: String,
    server: String,
    primitive: String,
}

impl SealedReceiver {
    fn of(receiver: &PushReceiver) -> SealedReceiver {
        let text = |secret: &Option<Secret>| secret.as_ref().map(|secret| secret.expose().to_owned());
        SealedReceiver {
            url: receiver.url.clone(),
            token: text(&receiver.token),
            schemes: receiver.schemes.clone(),
            credentials: text(&receiver.credentials),
            version: receiver.version.clone(),
            server: receiver.server.clone(),
            primitive: receiver.primitive.clone(),
        }
    }

    fn opened(self, id: String) -> PushReceiver {
        PushReceiver {
            id,
            url: self.url,
            token: self.token.map(Secret::new),
            schemes: self.schemes,
            credentials: self.credentials.map(Secret::new),
            version: self.version,
            server: self.server,
            primitive: self.primitive,
        }
    }
}

/// One state for one receiver, claimed by this gateway.
#[derive(Clone, Debug)]
pub struct DuePush {
    delivery: Delivery,
    /// Id of the notification, the same in each attempt. It does not tell how many others there are.
    pub id: String,
    /// `None` if it does not open with this gateway's keys.
    pub receiver: Option<PushReceiver>,
    claimed: Instant,
}

impl DuePush {
    pub fn call(&self) -> Uuid {
        Uuid::from_bytes(self.delivery.call)
    }

    pub fn org(&self) -> &str {
        &self.delivery.org
    }

    pub fn state(&self) -> State {
        self.delivery.state
    }

    /// Time of the state in Unix milliseconds.
    pub fn at_ms(&self) -> u64 {
        u64::try_from(self.delivery.at_ms).unwrap_or_default()
    }

    /// Time since the state.
    pub fn age(&self) -> Duration {
        self.delivery.age + self.claimed.elapsed()
    }

    /// Time for which it has waited for its receipt, since its state or its last replay.
    pub fn pending(&self) -> Duration {
        self.delivery.pending + self.claimed.elapsed()
    }

    /// Number of attempts, with this one.
    pub fn attempts(&self) -> u32 {
        self.delivery.attempts
    }

    /// Size of the call's record and outcome in bytes; 0 while it runs.
    pub fn bytes(&self) -> usize {
        self.delivery.bytes
    }
}

/// The receivers of calls, and the outbox.
pub struct Pushes {
    store: Arc<dyn PushStore>,
    active: Arc<ActiveTable>,
    sealer: Arc<Sealer>,
    /// Whether any call has a receiver, as far as known here.
    is_used: AtomicBool,
    /// Notified when deliveries may be due.
    woken: Notify,
    retries: RetryTimes,
}

impl Pushes {
    pub fn new(store: Arc<dyn PushStore>, active: Arc<ActiveTable>, sealer: Arc<Sealer>) -> Pushes {
        let is_used = AtomicBool::new(false);
        let woken = Notify::new();
        let retries = RetryTimes::default();
        Pushes { store, active, sealer, is_used, woken, retries }
    }

    /// Stores a receiver of a call of `org`, or replaces the one with its id. `origin`: scheme, host and port of its URL.
    pub async fn put(
        &self,
        call: Uuid,
        org: &str,
        origin: String,
        receiver: &PushReceiver,
    ) -> Result<PutReceiver, ActiveFault> {
        let plain = serde_json::to_vec(&SealedReceiver::of(receiver));
        let plain = plain.map_err(|error| ActiveFault::of(&error))?;
        let sealed = self.sealer.seal_bytes(Purpose::Push, &context(call, &receiver.id), &plain);
        let sealed = sealed.map_err(|error| ActiveFault::of(&error))?.into();
        let row = ReceiverRow { config: receiver.id.clone(), origin, sealed };
        let put = in_time(self.store.put_receiver(call.into_bytes(), org, &row)).await?;
        self.is_used.store(true, Ordering::Release);
        self.wake();
        Ok(put)
    }

    /// Returns the receivers of a call, oldest first; those that do not open are left out.
    pub async fn of_call(&self, call: Uuid) -> Result<Vec<PushReceiver>, ActiveFault> {
        let rows = in_time(self.store.receivers(call.into_bytes())).await?;
        Ok(rows.into_iter().filter_map(|row| self.open(call, row.config, &row.sealed)).collect())
    }

    /// Deletes a receiver and what it has not received.
    pub async fn remove(&self, call: Uuid, id: &str) -> Result<bool, ActiveFault> {
        in_time(self.store.remove_receiver(call.into_bytes(), id)).await
    }

    /// Claims at most `limit` deliveries.
    pub async fn due(&self, limit: u32) -> Result<Vec<DuePush>, ActiveFault> {
        let claim: ClaimId = rand::random();
        let claimed = in_time(self.store.claim_deliveries(claim, LEASE, limit)).await?;
        let opened = |delivery: Delivery| {
            let call = Uuid::from_bytes(delivery.call);
            let receiver = self.open(call, delivery.config.clone(), &delivery.sealed);
            let id = self.sealer.tag(NOTIFICATION, &delivery.seq.to_string());
            DuePush { delivery, id, receiver, claimed: Instant::now() }
        };
        Ok(claimed.into_iter().map(opened).collect())
    }

    /// Deletes a delivery that was received.
    pub async fn end(&self, push: &DuePush) -> Result<bool, ActiveFault> {
        let ended = in_time(self.store.end_delivery(&push.delivery)).await;
        self.wake();
        ended
    }

    /// Tries a delivery again after this time.
    pub async fn retry(&self, push: &DuePush, after: Duration, fault: &str) -> Result<bool, ActiveFault> {
        let released = in_time(self.store.retry_delivery(&push.delivery, after, fault)).await;
        self.retries.add(Instant::now() + after);
        released
    }

    /// Gives a delivery back that was not tried.
    pub async fn postpone(&self, push: &DuePush, after: Duration) -> Result<bool, ActiveFault> {
        let released = in_time(self.store.postpone_delivery(&push.delivery, after)).await;
        self.retries.add(Instant::now() + after);
        released
    }

    /// Makes a delivery a dead letter.
    pub async fn bury(&self, push: &DuePush, fault: &str) -> Result<bool, ActiveFault> {
        let buried = in_time(self.store.bury_delivery(&push.delivery, fault)).await;
        self.wake();
        buried
    }

    /// Stores that calls of lost gateways have failed, whose receivers would otherwise wait for ever. Only a gateway whose
    /// own lease has held long enough judges the leases of others.
    pub async fn fail_lost_calls(&self) -> Result<u64, ActiveFault> {
        if !self.is_used.load(Ordering::Acquire) || !self.active.is_steady() {
            return Ok(0);
        }
        in_time(self.store.fail_lost_calls(self.active.owner())).await
    }

    /// Asks the store whether any call has a receiver.
    pub async fn look(&self) -> Result<(), ActiveFault> {
        let is_used = in_time(self.store.has_receivers()).await?;
        self.is_used.store(is_used, Ordering::Release);
        Ok(())
    }

    pub fn is_used(&self) -> bool {
        self.is_used.load(Ordering::Acquire)
    }

    /// Waits until deliveries may be due.
    pub async fn wait(&self) {
        tokio::select! {
            () = self.active.state_stored(), if self.is_used() => {}
            () = self.woken.notified() => {}
            () = self.retries.wait() => {}
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
    }

    fn wake(&self) {
        self.woken.notify_one();
    }

    fn open(&self, call: Uuid, id: String, sealed: &[u8]) -> Option<PushReceiver> {
        let plain = self.sealer.open_bytes(Purpose::Push, &context(call, &id), sealed)?;
        let receiver: SealedReceiver = serde_json::from_slice(&plain).ok()?;
        Some(receiver.opened(id))
    }
}

/// Returns the context of a seal, which opens only for its call and its id.
fn context(call: Uuid, id: &str) -> Vec<u8> {
    [call.as_bytes().as_slice(), &digest::of_parts(&[id])].concat()
}
