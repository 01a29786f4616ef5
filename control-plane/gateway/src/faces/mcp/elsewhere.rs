//! What gateways tell each other: of legacy sessions that are at several of them what a client sends to one that is of a
//! call at another, and their end; of calls what their callers say of them at another gateway.
//!
//! A client's messages come to one gateway by its affinity key; to another one after gateways came or went. Keeps true: the
//! gateway that got a message has looked whose session it is; what comes from another gateway goes no further; of answers
//! only those to requests that a gateway made are passed on, and of a cancel only which request it names.

use std::sync::{Arc, Weak};
use std::time::Duration;

use asp_edge::Reason;
use asp_edge::envelope::MAX_ID_BYTES;
use futures::StreamExt;
use serde_json::json;
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::codec::{Failure, Message};
use super::legacy;
use crate::call::remote::InputFault;
use crate::gateway::Gateway;
use crate::sessions::{BusEvent, Session, Told, Untold};

/// Longest time for which a message from another gateway is tried again.
const TRIED_FOR: Duration = Duration::from_secs(20);
/// Delay between two attempts.
const TRY_EVERY: Duration = Duration::from_millis(300);

/// Passes on what is of nothing at this gateway. Who sent it must know when it went nowhere: an answer that is lost leaves
/// its call waiting.
pub(super) async fn pass_on(gateway: &Gateway, session: &Session, message: &Message) -> Result<(), Failure> {
    let Some(forwarded) = forwarded(gateway, session, message) else { return Ok(()) };
    gateway.sessions.pass_on(session, forwarded).await.map_err(|Untold| {
        Failure::with(
            Reason::UpstreamUnavailable,
            "what this is about is at another gateway, which cannot be told now: send it again",
        )
    })
}

/// The message as other gateways get it; `None` for one that can be of nothing there either.
fn forwarded(gateway: &Gateway, session: &Session, message: &Message) -> Option<Box<RawValue>> {
    let Some(method) = &message.method else {
        let id: String = serde_json::from_str(message.id_text()?).ok()?;
        let is_asked = gateway.sessions.has_asked(session, &id);
        return is_asked.then(|| serde_json::value::to_raw_value(message).ok()).flatten();
    };
    // The client's own id of its request, as long as the edge lets requests have: nothing else of a cancel is read.
    let id = message.param("requestId").filter(|id| id.is_string() || id.is_number())?;
    if id.to_string().len() > MAX_ID_BYTES {
        return None;
    }
    serde_json::value::to_raw_value(&json!({"method": method, "params": {"requestId": id}})).ok()
}

/// Hears what other gateways tell this one, until it is dropped; run it as a task. Returns at once where there are none.
pub async fn hear(gateway: Weak<Gateway>) {
    let Some(mut told) = gateway.upgrade().and_then(|gateway| Some(gateway.sessions.replicas()?.listen()))
    else {
        return;
    };
    while let Some(message) = told.next().await {
        let Some(gateway) = gateway.upgrade() else { return };
        match message {
            BusEvent::Message(told) => heard(&gateway, told),
            BusEvent::Gap => gateway.pipeline.look_into_inboxes(),
        }
    }
}

fn heard(gateway: &Arc<Gateway>, told: Told) {
    match told {
        Told::Ended { session } => {
            if let Some(session) = gateway.sessions.ended_elsewhere(&session) {
                end(gateway, &session);
            }
        }
        Told::Sent { session, message } => {
            let session = gateway.sessions.told_of(&session);
            if let (Some(session), Ok(message)) = (session, Message::read(message.get().as_bytes())) {
                let gateway = gateway.clone();
                // Apart: what is of a call that only is followed here is stored first.
                tokio::spawn(async move { take(&gateway, &session, &message).await });
            }
        }
        Told::Answered { .. } | Told::Cancelled { .. } | Told::Left { .. } => gateway.pipeline.heard(told),
    }
}

/// Takes a client's message from another gateway, which has told the client that it was taken: what cannot be stored is tried again.
async fn take(gateway: &Gateway, session: &Session, message: &Message) {
    let until = Instant::now() + TRIED_FOR;
    // What is of nothing here either is of nothing any more.
    while let Err(fault) = legacy::told(gateway, session, message).await {
        if fault == InputFault::TooLarge || Instant::now() >= until {
            tracing::warn!(%fault, "an answer or a cancel that a client sent to another gateway is lost: its call goes on without it, and an answer is waited for until the call's time is over");
            return;
        }
        tokio::time::sleep(TRY_EVERY).await;
    }
}

/// A session has ended: its streams and its sessions at upstream servers do.
pub(super) fn end(gateway: &Gateway, session: &Session) {
    gateway.subscriptions.end(&session.sid());
    gateway.pipeline.session_ended(&session.key());
}
