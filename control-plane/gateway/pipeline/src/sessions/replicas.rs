//! Exchange between gateways about their sessions and calls: a directory that stores where a session is and whether it
//! has ended, and a bus for messages.
//!
//! Keeps true: messages are sealed for their receiver, because they contain users' answers and anyone able to write to
//! the bus could forge them; if directory or bus does not answer within the time that the stores bound, a request
//! continues with what this gateway knows (I-6); a client that loses something by that gets an error.

use std::sync::Arc;
use std::time::Duration;

use asp_call::call::event::LogLevel;
use asp_call::call::question::Answer;
use asp_call::outage_log::OutageLog;
use asp_call::seal::{Purpose, Sealer};
use asp_store::bus::{Bus, BusError, BusEvent};
use asp_store::records::{CallId, OwnerId};
use asp_store::sessions::{DirectoryError, SessionDirectory, SessionEntry, SessionId};
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::LegacySession;

/// The shared directory and bus, and this gateway's id.
pub struct Replicas {
    sealer: Arc<Sealer>,
    directory: Arc<dyn SessionDirectory>,
    bus: Arc<dyn Bus>,
    pub(crate) this: OwnerId,
    outage: OutageLog,
}

/// Message between gateways about a session that both have or about a call that the receiver runs.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ReplicaMessage {
    /// The client ended the session.
    Ended { session: SessionId },
    /// The client sent a message that concerns nothing at the sending gateway.
    Sent { session: SessionId, message: Box<RawValue> },
    /// The caller answered a question.
    Answered { call: CallId, question: String, answer: Answer },
    /// The caller cancelled the call.
    Cancelled { call: CallId },
    /// The sending gateway has no client that follows the call any more.
    Left { call: CallId },
}

impl ReplicaMessage {
    /// Whether it only reports that the call's inbox has a new entry.
    pub(crate) fn is_in_inbox(&self) -> bool {
        matches!(self, ReplicaMessage::Left { .. })
    }
}

/// Error: other gateways cannot be reached.
#[derive(Debug)]
pub struct DeliveryError;

impl Replicas {
    pub fn new(
        sealer: Arc<Sealer>,
        directory: Arc<dyn SessionDirectory>,
        bus: Arc<dyn Bus>,
        this: OwnerId,
    ) -> Replicas {
        Replicas { sealer, directory, bus, this, outage: OutageLog::default() }
    }

    /// Registers the session at this gateway; `None` if the directory does not answer.
    pub(super) async fn enter(&self, session: SessionId, left: Duration) -> Option<SessionEntry> {
        self.noted(self.directory.enter(session, self.this, left).await)
    }

    pub(super) async fn set_log_level(&self, session: SessionId, level: LogLevel, left: Duration) {
        // Stored as its index in `LogLevel::ALL`.
        self.noted(self.directory.set_log_level(session, level as u8, left).await);
    }

    /// Ends the session everywhere.
    pub(super) async fn end(&self, session: &LegacySession, left: Duration) {
        let were_at = self.noted(self.directory.end(session.sid(), left).await).unwrap_or_default();
        let told = ReplicaMessage::Ended { session: session.sid() };
        if let Err(error) = self.tell(self.others(session, were_at), &told).await {
            tracing::warn!(%error, "other gateways did not receive the end of a session; its calls there run to completion");
        }
    }

    /// Forwards a client's message to the other gateways that have its session. Ok if there are none.
    pub(super) async fn pass_on(
        &self,
        session: &LegacySession,
        left: Duration,
        message: Box<RawValue>,
    ) -> Result<(), DeliveryError> {
        let entry = self.enter(session.sid(), left).await.ok_or(DeliveryError)?;
        let SessionEntry::Open(known) = entry else { return Ok(()) };
        let told = ReplicaMessage::Sent { session: session.sid(), message };
        let told = self.tell(self.others(session, known.gateways), &told).await;
        told.map_err(|error| {
            tracing::warn!(%error, "client's message for a call at another gateway could not be delivered; the client gets an error");
            DeliveryError
        })
    }

    /// Returns the gateways of a session, including its creator, without this one.
    fn others(&self, session: &LegacySession, were_at: Vec<OwnerId>) -> Vec<OwnerId> {
        let mut others = were_at;
        others.extend(session.origin().by.filter(|maker| !others.contains(maker)));
        others.retain(|gateway| *gateway != self.this);
        others
    }

    pub(crate) async fn tell(&self, gateways: Vec<OwnerId>, told: &ReplicaMessage) -> Result<(), BusError> {
        let message = serde_json::to_vec(told).map_err(|error| BusError::Unavailable(error.to_string()))?;
        for gateway in gateways {
            let sealed = self.sealer.seal_bytes(Purpose::Bus, &gateway.0, &message);
            let sealed = sealed.map_err(|error| BusError::Unavailable(error.to_string()))?;
            self.bus.tell(gateway, Bytes::from(sealed)).await?;
        }
        Ok(())
    }

    /// Returns the messages of other gateways to this one.
    pub fn listen(&self) -> BoxStream<'static, BusEvent<ReplicaMessage>> {
        let sealer = self.sealer.clone();
        let this = self.this;
        let open = move |heard: BusEvent<Bytes>| {
            let BusEvent::Message(message) = heard else { return std::future::ready(Some(BusEvent::Gap)) };
            let opened = sealer.open_bytes(Purpose::Bus, &this.0, &message);
            let told = opened.and_then(|plain| serde_json::from_slice(&plain).ok());
            if told.is_none() {
                tracing::warn!(
                    "message from another gateway could not be read; its ASP_SEAL_KEY or version differs, or the sender is not a gateway"
                );
            }
            std::future::ready(told.map(BusEvent::Message))
        };
        self.bus.listen(self.this).filter_map(open).boxed()
    }

    /// Returns the directory's answer; an outage is logged once.
    fn noted<T>(&self, answer: Result<T, DirectoryError>) -> Option<T> {
        self.outage.noted(answer, |error| {
            tracing::warn!(%error, "session directory does not answer; until it does, a session ended at one gateway may be used at another, its settings are unknown there, and client messages for calls at other gateways are refused");
        })
    }
}
