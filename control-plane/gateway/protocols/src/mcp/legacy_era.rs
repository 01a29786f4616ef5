//! The differences of legacy sessions in the presentation of a call.
//!
//! Keeps true: questions are sent as requests of the server, and withdrawn once nobody waits for their answers; a lost
//! connection does not cancel a call.

use std::sync::Arc;

use asp_call::call::question::Question;
use asp_call::call::{Call, ClientAbilities};
use asp_call::media_type;
use asp_json::Json;
use asp_pipeline::sessions::LegacySession;
use serde_json::json;
use uuid::Uuid;

use super::codec::{notification, server_request};
use super::questions;
use super::results::CallResult;
use super::resume::Resumable;
use super::stream::Era;
use crate::ProtocolRequest;
use crate::replica::Replica;

/// The presentation of calls in a legacy session.
pub(super) struct LegacyEra {
    gateway: Arc<Replica>,
    session: Arc<LegacySession>,
}

impl LegacyEra {
    pub(super) fn of(request: &ProtocolRequest, session: &Arc<LegacySession>) -> LegacyEra {
        LegacyEra { gateway: request.gateway.clone(), session: session.clone() }
    }
}

impl Era for LegacyEra {
    fn complete(&self, _result: &mut CallResult<'_>) {}

    fn visited(&self, call: &Call, question: &str) -> Option<String> {
        let params = json!({"elicitationId": question_id(call, question)});
        Some(notification("notifications/elicitation/complete", params))
    }

    fn ask(&self, call: &Arc<Call>, question: &Question) -> Option<String> {
        let name = question_id(call, &question.id);
        let id = self.gateway.sessions.request_id(&self.session, &name);
        self.session.put_question(&id, call, &question.id);
        let request = questions::request_in(question, Some(&name), self.session.profile.revision);
        Some(server_request(&id, request))
    }

    /// A server cancels its own requests as a client does (2025-11-25 utilities, cancellation).
    fn taken_back(&self, call: &Arc<Call>) -> Option<String> {
        let id = self.session.take_stale_question(call)?;
        let reason = "the request no longer waits for an answer";
        Some(notification("notifications/cancelled", json!({"requestId": id, "reason": reason})))
    }

    fn suspend(&self, _call: &Arc<Call>, _questions: Vec<Question>, _next_event: u64) -> Option<Json> {
        None
    }

    fn resumable(&self, call: &Arc<Call>, progress_token: Option<&Json>) -> Option<Resumable> {
        Resumable::of(&self.gateway, &self.session, call, progress_token)
    }

    /// A client that cancels does not want an answer.
    fn answers_cancelled(&self) -> bool {
        false
    }

    /// A lost connection does not cancel (2025-11-25 transports, disconnection).
    fn abandoned(&self, _call: &Arc<Call>) {}
}

/// Returns the abilities of a request's client; questions need a stream to be sent on and a session for the answers.
pub(super) fn abilities(request: &ProtocolRequest, session: &LegacySession) -> ClientAbilities {
    let can_be_asked = session.is_persistent() && accepts_stream(request);
    if can_be_asked { session.profile.abilities } else { ClientAbilities::default() }
}

pub(super) fn accepts_stream(request: &ProtocolRequest) -> bool {
    media_type::accepts(&request.headers, "text/event-stream")
}

/// Returns the id of a question, unique among all calls; also the `elicitationId` of a page.
fn question_id(call: &Call, question: &str) -> String {
    format!("{}.{question}", call.id)
}

/// Returns the call and the question that a request of a gateway to the session's client asked, by the request's id.
pub(super) fn read_request_id<'a>(
    gateway: &Replica,
    session: &LegacySession,
    id: &'a str,
) -> Option<(Uuid, &'a str)> {
    let (name, _tag) = id.rsplit_once('.').filter(|_| gateway.sessions.is_own_request(session, id))?;
    let (call, question) = name.split_once('.')?;
    Some((call.parse().ok()?, question))
}
