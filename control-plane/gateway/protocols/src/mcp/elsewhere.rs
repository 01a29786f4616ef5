//! Messages between gateways: client messages for a call of the same legacy session at another gateway, the end of such
//! a session, and answers and cancels for calls at another gateway.
//!
//! The affinity key routes a client's messages to one gateway, and to another one after gateways were added or removed.
//! Keeps true: the receiving gateway has checked that the session is the client's; messages from another gateway are
//! not forwarded again; answers are forwarded only for requests that a gateway made whose call is not found by its id, and
//! a cancel only with the id of the request it names.

use std::sync::{Arc, Weak};

use asp_edge::Reason;
use asp_edge::envelope::MAX_ID_BYTES;
use asp_json::{Json, Members};
use asp_pipeline::sessions::{BusEvent, DeliveryError, LegacySession, ReplicaMessage};
use futures::StreamExt;
use serde_json::value::RawValue;

use super::client_messages::deliver;
use super::codec::{Message, RpcFailure};
use crate::replica::Replica;

/// Forwards a message that concerns nothing at this gateway. Failures are reported to the client, because a lost answer
/// would leave its call waiting.
pub(super) async fn pass_on(
    gateway: &Replica,
    session: &LegacySession,
    message: &Message,
) -> Result<(), RpcFailure> {
    let Some(forwarded) = forwarded(gateway, session, message) else { return Ok(()) };
    gateway.sessions.pass_on(session, forwarded).await.map_err(|DeliveryError| {
        RpcFailure::with(
            Reason::UpstreamUnavailable,
            "the call or session of this message is at another gateway, which cannot be reached now: send it again",
        )
    })
}

/// Returns the message in the form sent to other gateways; `None` if it cannot concern anything there either.
fn forwarded(gateway: &Replica, session: &LegacySession, message: &Message) -> Option<Box<RawValue>> {
    let Some(method) = &message.method else {
        let id: String = serde_json::from_str(message.id_text()?).ok()?;
        let is_asked = gateway.sessions.is_own_request(session, &id);
        return is_asked.then(|| serde_json::value::to_raw_value(message).ok()).flatten();
    };
    // Only the client's own id of its request is taken from a cancel, within the edge's limit of ids.
    let id = message.sent_param("requestId").filter(|id| id.is_string() || id.is_number())?;
    if id.text().len() > MAX_ID_BYTES {
        return None;
    }
    let params = Members::from_iter([("requestId", id)]).to_json();
    let cancel = Members::from_iter([("method", Json::from(method.as_str())), ("params", params)]);
    Some(cancel.to_json().raw().to_owned())
}

/// Handles messages from other gateways until the gateway is dropped; run it as a task. Returns at once if there are no
/// other gateways.
pub async fn listen(gateway: Weak<Replica>) {
    let Some(mut told) = gateway.upgrade().and_then(|gateway| Some(gateway.sessions.replicas()?.listen()))
    else {
        return;
    };
    while let Some(message) = told.next().await {
        let Some(gateway) = gateway.upgrade() else { return };
        match message {
            BusEvent::Message(told) => handle_message(&gateway, told),
            BusEvent::Gap => gateway.pipeline.look_into_inboxes(),
        }
    }
}

fn handle_message(gateway: &Arc<Replica>, told: ReplicaMessage) {
    match told {
        ReplicaMessage::Ended { session } => {
            if let Some(session) = gateway.sessions.apply_remote_end(&session) {
                end(gateway, &session);
            }
        }
        ReplicaMessage::Sent { session, message } => {
            let session = gateway.sessions.find_unchecked(&session);
            if let (Some(session), Ok(message)) = (session, Message::read(message.get().as_bytes())) {
                let gateway = gateway.clone();
                // A task of its own, because messages for calls that this gateway only follows are stored first.
                tokio::spawn(async move { take(&gateway, &session, &message).await });
            }
        }
        ReplicaMessage::Answered { .. } | ReplicaMessage::Cancelled { .. } | ReplicaMessage::Left { .. } => {
            gateway.pipeline.handle_message(told)
        }
    }
}

/// Handles a client's message from another gateway, which has already confirmed it to the client. A message that concerns
/// nothing here either is dropped.
async fn take(gateway: &Replica, session: &LegacySession, message: &Message) {
    if let Err(fault) = deliver(gateway, session, message).await {
        tracing::warn!(%fault, "client's answer or cancel for a call at another gateway was lost; the call continues without it, and an unanswered question expires");
    }
}

/// Ends a session of an org that is kept here, for an admin; false if it is not here.
pub async fn end_for_admin(gateway: &Replica, id: &str, org: &str) -> bool {
    let Some(session) = gateway.sessions.end_for_admin(id, org).await else { return false };
    end(gateway, &session);
    true
}

/// Ends a session's streams, its sessions at upstream servers, and the linked accounts that end with it.
pub(super) fn end(gateway: &Replica, session: &LegacySession) {
    if let (Some(links), Some(subject)) = (&gateway.issuers.links, session.subject()) {
        links.end_session(&subject.org, &session.key());
    }
    gateway.subscriptions.end(&session.sid());
    gateway.pipeline.session_ended(&session.key());
}
