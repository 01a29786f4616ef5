//! Streams of legacy sessions that their client can come back to: the ids of their events, the first event, and which are
//! closed in between (2025-11-25 transports, resumability and redelivery; ids alone since 2025-03-26).
//!
//! Keeps true: a call whose client was told an id is kept for as long as the client may come back. Only streams of
//! primitives whose spec says so are closed in between: a client of 2025-11-25 need not come back, and one that does not
//! would lose its answer.

use std::sync::Arc;
use std::time::Duration;

use asp_json::Json;
use asp_snapshot::mcp_revision::Revision;

use super::events;
use crate::call::Call;
use crate::event_id::{self, CallPosition, ChangesPosition, IdHolder, MAX_TOKEN, Position};
use crate::faces::FaceRequest;
use crate::gateway::Gateway;
use crate::sessions::Session;
use crate::sessions::session::Following;

/// How long a stream whose client polls is quiet before it is closed.
const QUIET: Duration = Duration::from_secs(5);

/// Where in a call its client is.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub next_event: u64,
    /// The progress that was told last.
    pub progress: Option<f64>,
}

/// A call's stream that its client can come back to, until this is dropped.
pub(super) struct Resumable {
    gateway: Arc<Gateway>,
    call: Arc<Call>,
    holder: IdHolder,
    progress_token: Option<String>,
    revision: Revision,
    following: Following,
}

impl Resumable {
    /// `None` for a request without a session, to which nobody can come back, and for one whose progress token is too long
    /// for an id.
    pub(super) fn of(
        gateway: &Arc<Gateway>,
        session: &Arc<Session>,
        call: &Arc<Call>,
        progress_token: Option<&Json>,
    ) -> Option<Resumable> {
        let progress_token = progress_token.map(|token| token.text().to_owned());
        if !session.is_kept() || progress_token.as_ref().is_some_and(|token| token.len() > MAX_TOKEN) {
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

    /// The id of an event after which the client goes on from there; `None` for the last one.
    pub(super) fn id(&self, place: Option<Place>) -> Option<String> {
        let position = Position::Call(CallPosition {
            call: self.call.id.into_bytes(),
            log: self.call.events.stream(),
            next_event: place.map(|place| place.next_event),
            progress: place.and_then(|place| place.progress),
            progress_token: self.progress_token.clone().filter(|_| place.is_some()),
        });
        event_id::seal(&self.gateway.sealer, &self.holder, &position)
    }

    /// The first event of a stream. Clients of earlier revisions take an event without a message for a broken one.
    pub(super) fn primer(&self, place: Place) -> Option<String> {
        let knows = self.revision >= Revision::V2025_11_25;
        self.id(Some(place)).filter(|_| knows).map(|id| events::primer(&id))
    }

    /// How long the stream may be quiet before it is closed; `None` where it stays open.
    pub(super) fn pauses_after(&self) -> Option<Duration> {
        let polls = self.call.entry.primitive.poll_stream && self.revision >= Revision::V2025_11_25;
        polls.then_some(QUIET)
    }

    /// Resolves when its client has come back to it elsewhere.
    pub(super) async fn taken_over(&self) {
        self.following.taken_over().await;
    }
}

impl Drop for Resumable {
    fn drop(&mut self) {
        self.gateway.pipeline.leave_stream(&self.call);
    }
}

/// A session's stream of what changed, that its client can come back to.
pub(super) struct ResumableChanges {
    gateway: Arc<Gateway>,
    holder: IdHolder,
    revision: Revision,
}

impl ResumableChanges {
    pub(super) fn of(request: &FaceRequest, session: &Session) -> ResumableChanges {
        ResumableChanges {
            gateway: request.gateway.clone(),
            holder: IdHolder::of(&request.caller, &request.server.message.name, session.sid()),
            revision: session.profile.revision,
        }
    }

    /// The id of the event after which the client is there.
    pub(super) fn id(&self, position: ChangesPosition) -> Option<String> {
        event_id::seal(&self.gateway.sealer, &self.holder, &Position::Changes(position))
    }

    /// The first event of the stream, as of a call's.
    pub(super) fn primer(&self, position: ChangesPosition) -> Option<String> {
        let knows = self.revision >= Revision::V2025_11_25;
        self.id(position).filter(|_| knows).map(|id| events::primer(&id))
    }
}
