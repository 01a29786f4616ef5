//! Notifications and answers of legacy clients, at the gateway that has the call or the session they concern.

use asp_call::call::Call;
use asp_call::call::remote::InputFault;
use asp_pipeline::pipeline::lookup::FoundCall;
use asp_pipeline::sessions::LegacySession;
use serde_json::Value;

use super::all_servers;
use super::codec::Message;
use super::legacy_era::read_request_id;
use super::questions;
use crate::ProtocolRequest;
use crate::replica::Replica;

/// Delivers a message to the call or the session it concerns. Returns false if this gateway does not have the call.
pub(super) async fn deliver(
    gateway: &Replica,
    session: &LegacySession,
    message: &Message,
) -> Result<bool, InputFault> {
    Ok(match message.method.as_deref() {
        Some("notifications/cancelled") => {
            let call = message.sent_param("requestId").and_then(|id| session.tracked(id.text()));
            let Some(call) = call else { return Ok(false) };
            gateway.pipeline.cancel(&call).await?;
            true
        }
        Some("notifications/roots/list_changed") if session.profile.abilities.roots_change => {
            gateway.pipeline.roots_changed(&session.key());
            true
        }
        Some(_) => true,
        None => answered(gateway, session, message).await?,
    })
}

/// Answers a question that this session has not asked here. The id of the server's request names the call, which is found
/// as in every protocol. False if the message is no such answer, or its question is not known here.
pub(super) async fn answer_found(
    request: &ProtocolRequest,
    session: &LegacySession,
    message: &Message,
) -> Result<bool, InputFault> {
    let gateway = &request.gateway;
    let id = message.id.as_deref().and_then(Value::as_str).filter(|_| message.method.is_none());
    let named = id.and_then(|id| read_request_id(gateway, session, id));
    let Some((call, question)) = named else { return Ok(false) };
    for (caller, server) in all_servers::holders(request) {
        if let Ok(Some(FoundCall::Here(call))) = gateway.pipeline.find(call, caller, server).await {
            return answer_question(gateway, &call, question, message).await;
        }
    }
    Ok(false)
}

/// Handles a client's answer to a request of the server; false if this gateway did not send that request.
async fn answered(gateway: &Replica, session: &LegacySession, message: &Message) -> Result<bool, InputFault> {
    let Some(id) = message.id.as_deref().and_then(Value::as_str) else { return Ok(true) };
    let Some((call, question)) = session.question(id) else { return Ok(false) };
    answer_question(gateway, &call, &question, message).await?;
    // Only after success: if the answer fails or its connection is lost, the client sends it again.
    session.forget_question(id);
    Ok(true)
}

/// Answers a question of a call; false if the call does not wait for it.
async fn answer_question(
    gateway: &Replica,
    call: &Call,
    question: &str,
    message: &Message,
) -> Result<bool, InputFault> {
    let Some(question) = call.questions.find(question) else { return Ok(false) };
    let answer = message.result.as_ref().and_then(|result| questions::answer(&question, result));
    let answer = answer.filter(|answer| call.questions.takes(&question.id, answer));
    // There is no other answer: this request has already had its response.
    let answer = answer.unwrap_or_else(|| questions::no_answer(&question, message.error.as_deref()));
    gateway.pipeline.answer(call, &question.id, answer).await?;
    Ok(true)
}
