//! Resumable streams of legacy sessions: their event ids, their first event, and which of them are closed in between
//! (2025-11-25 transports, resumability and redelivery; ids alone since 2025-03-26).
//!
//! Keeps true: a call whose client has received an id is kept for as long as the client may reconnect. Only streams of
//! primitives whose spec allows it are closed in between: a client of 2025-11-25 need not reconnect, and one that does
//! not would lose its answer.

use std::sync::Arc;
use std::time::Duration;

use asp_call::call::Call;
use asp_json::Json;
use asp_pipeline::event_id::{self, CallPosition, ChangesPosition, IdHolder, MAX_TOKEN, Position};
use asp_pipeline::sessions::LegacySession;
use asp_pipeline::sessions::session::OpenStream;
use asp_proto::mcp_revision::{Feature, Revision};

use super::events;
use crate::ProtocolRequest;
use crate::replica::Replica;

/// Quiet time after which a stream is closed if its client polls.
const QUIET: Duration = Duration::from_secs(5);

/// A client's position in a call.
#[derive(Clone, Copy)]
pub(super) struct StreamPosition {
    pub next_event: u64,
    /// The last progress that was sent.
    pub progress: Option<f64>,
}

/// A call's stream that its client can resume, until this is dropped.
pub(super) struct Resumable {
    gateway: Arc<Replica>,
    call: Arc<Call>,
    holder: IdHolder,
    progress_token: Option<String>,
    revision: Revision,
    following: OpenStream,
}

impl Resumable {
    /// Returns `None` for a request without a session, which cannot be resumed, and for a progress token too long for
    /// an id.
    pub(super) fn of(
        gateway: &Arc<Replica>,
        session: &Arc<LegacySession>,
        call: &Arc<Call>,
        progress_token: Option<&Json>,
    ) -> Option<Resumable> {
        let progress_token = progress_token.map(|token| token.text().to_owned());
        if !session.is_persistent() || progress_token.as_ref().is_some_and(|token| token.len() > MAX_TOKEN) {
            return None;
        }
        gateway.pipeline.promise_stream(call);
        Some(Resumable {
            gateway: gateway.clone(),
            call: call.clone(),
            holder: IdHolder::of(&call.caller, &call.server.message.name, session.sid()),
            progress_token,
            revision: session.profile.revision,
            following: session.follow(call.id),
        })
    }

    /// Returns the id of an event after which the client resumes at `place`; `None` stands for the end.
    pub(super) fn id(&self, place: Option<StreamPosition>) -> Option<String> {
        let position = Position::Call(CallPosition {
            call: self.call.id.into_bytes(),
            log: self.call.events.stream(),
            next_event: place.map(|place| place.next_event),
            progress: place.and_then(|place| place.progress),
            progress_token: self.progress_token.clone().filter(|_| place.is_some()),
        });
        event_id::seal(&self.gateway.sealer, &self.holder, &position)
    }

    /// Returns the first event of a stream. Clients of earlier revisions treat an event without a message as broken.
    pub(super) fn primer(&self, place: StreamPosition) -> Option<String> {
        let knows = self.revision.has(Feature::StreamPolling);
        self.id(Some(place)).filter(|_| knows).map(|id| events::primer(&id))
    }

    /// Returns the quiet time after which the stream is closed; `None` if it stays open.
    pub(super) fn pauses_after(&self) -> Option<Duration> {
        let polls = self.call.entry.primitive.poll_stream && self.revision.has(Feature::StreamPolling);
        polls.then_some(QUIET)
    }

    /// Resolves when the client has resumed the stream on another connection.
    pub(super) async fn taken_over(&self) {
        self.following.taken_over().await;
    }
}

impl Drop for Resumable {
    fn drop(&mut self) {
        self.gateway.pipeline.leave_stream(&self.call);
    }
}

/// A session's stream of changes that its client can resume.
pub(super) struct ResumableChanges {
    gateway: Arc<Replica>,
    holder: IdHolder,
    revision: Revision,
}

impl ResumableChanges {
    pub(super) fn of(request: &ProtocolRequest, session: &LegacySession) -> ResumableChanges {
        ResumableChanges {
            gateway: request.gateway.clone(),
            holder: IdHolder::of(&request.caller, &request.server.message.name, session.sid()),
            revision: session.profile.revision,
        }
    }

    /// Returns the id of the event at this position.
    pub(super) fn id(&self, position: ChangesPosition) -> Option<String> {
        event_id::seal(&self.gateway.sealer, &self.holder, &Position::Changes(position))
    }

    /// Returns the first event of the stream, under the same rule as for a call.
    pub(super) fn primer(&self, position: ChangesPosition) -> Option<String> {
        let knows = self.revision.has(Feature::StreamPolling);
        self.id(position).filter(|_| knows).map(|id| events::primer(&id))
    }
}
