//! Events of a topic that revoke: their form, what they may revoke, and how each becomes a revocation once.
//!
//! Owns what a message means; who delivers messages (`asp-kafka`) knows nothing of it. Keeps true: a message is answered for
//! only after its revocation is stored or it is parked (I-13); a repeated or an old one changes nothing; it revokes only in
//! the orgs that the operator names (I-12); no token is kept in the text of a parked message.

pub mod feed;
mod message;

use std::sync::Arc;

use asp_edge::names;
use asp_platform::clock;
use asp_store::control::sql::ControlStore;
use asp_store::control::{Change, ParkedEvent, RevocationEvent, StoreError};

use crate::admission::{Admission, AdmissionError};
use crate::publisher::Handle;
use feed::{EventOutcome, Feed};
use message::ParsedEvent;

/// Returns what is wrong with a pattern of orgs; `None` if it is a name, `prefix*` or `*`.
pub fn org_pattern_fault(pattern: &str) -> Option<&'static str> {
    names::pattern_fault(pattern)
}

/// Origin of a message.
#[derive(Clone, Copy, Debug)]
pub struct MessageOrigin<'a> {
    pub topic: &'a str,
    pub partition: i32,
    pub offset: i64,
    /// Time that the message itself has, in Unix milliseconds.
    pub at: Option<u64>,
}

impl MessageOrigin<'_> {
    /// Returns the id that every delivery of the message has.
    pub fn id(&self) -> String {
        format!("{}:{}:{}", self.topic, self.partition, self.offset)
    }
}

/// Makes revocations of the events of a topic.
pub struct RevocationEvents {
    store: Arc<ControlStore>,
    admission: Admission,
    publisher: Handle,
    feed: Arc<Feed>,
    /// Patterns of the orgs in which the topic may revoke.
    orgs: Vec<String>,
}

impl RevocationEvents {
    /// Creates the events of a topic that may revoke in these orgs: names, `prefix*` or `*`.
    pub fn new(
        store: Arc<ControlStore>,
        admission: Admission,
        publisher: Handle,
        feed: Arc<Feed>,
        orgs: Vec<String>,
    ) -> RevocationEvents {
        RevocationEvents { store, admission, publisher, feed, orgs }
    }

    /// Stores what a message revokes, or parks the message. After an error it must be delivered again: the store did not
    /// answer, and nothing has changed.
    pub async fn take(&self, origin: MessageOrigin<'_>, payload: &[u8]) -> Result<EventOutcome, StoreError> {
        let now = clock::now_ms();
        let outcome = match message::read(origin, payload, now).and_then(|event| self.check_org(event)) {
            Ok(event) if event.until <= now => EventOutcome::Old,
            Ok(event) => self.revoke(origin, payload, event, now).await?,
            Err(fault) => self.park(origin, payload, &fault, now).await?,
        };
        self.feed.count(outcome);
        Ok(outcome)
    }

    /// Fails if the operator does not let the topic revoke there. Without an org an event revokes in every org.
    fn check_org(&self, event: ParsedEvent) -> Result<ParsedEvent, String> {
        let allows = |pattern: &String| match event.record.org.as_str() {
            "" => pattern == "*",
            org => names::matches(pattern, org),
        };
        if self.orgs.iter().any(allows) {
            return Ok(event);
        }
        Err(match event.record.org.as_str() {
            "" => "it names no org, and ASP_KAFKA_ORGS is not `*`".to_owned(),
            org => format!("the topic may not revoke in the org {org}: ASP_KAFKA_ORGS does not name it"),
        })
    }

    async fn revoke(
        &self,
        origin: MessageOrigin<'_>,
        payload: &[u8],
        event: ParsedEvent,
        now: u64,
    ) -> Result<EventOutcome, StoreError> {
        let ParsedEvent { id, until, record } = event;
        // Asked first, so that a repetition is none also where no more revocations fit.
        if self.store.has_revocation_event(&id).await? {
            return Ok(EventOutcome::Repeated);
        }
        let change = Change::unconditional(&format!("kafka:{}", origin.topic), now);
        let event = RevocationEvent { id, until };
        match self.admission.add_revocation_of(true, &change, &record, Some(&event)).await {
            Ok(written) if written.changed => {
                self.publisher.changed();
                tracing::info!(event = origin.id(), kind = record.kind, org = record.org, "event revoked");
                Ok(EventOutcome::Revoked)
            }
            Ok(_) => Ok(EventOutcome::Repeated),
            Err(AdmissionError::Store(StoreError::Full { .. }) | AdmissionError::OverBudget(_)) => {
                let fault = "no more revocations fit: lift some, then revoke it by the admin API";
                self.park(origin, payload, fault, now).await
            }
            Err(AdmissionError::Store(error)) => Err(error),
            Err(refused) => self.park(origin, payload, &refused.to_string(), now).await,
        }
    }

    async fn park(
        &self,
        origin: MessageOrigin<'_>,
        payload: &[u8],
        fault: &str,
        now: u64,
    ) -> Result<EventOutcome, StoreError> {
        let id = origin.id();
        let payload = message::redacted(payload);
        let parked = ParkedEvent { id: id.clone(), parked_at: now, fault: fault.to_owned(), payload };
        let dropped = self.store.park_event(&parked).await?;
        self.feed.drop_parked(dropped);
        tracing::warn!(
            event = id,
            fault,
            "message of the topic revoked nothing and was parked; `asp kafka parked` shows it"
        );
        Ok(EventOutcome::Parked)
    }
}

#[cfg(test)]
mod tests;
