//! The operations of A2A, whatever binding a request came over.
//!
//! Keeps true: a cancelled task stays cancelled, however often it is cancelled (0.3 refuses it again), and an ended one is never cancelled; a caller has
//! a card of its own where the public card says so.

use std::time::Duration;

use asp_a2a::{
    A2aAnswer, A2aError, A2aFailure, Generation, Operation, Request as AgentRequest, SendRequest, SendResult,
    Task, TaskState,
};
use asp_json::Json;
use asp_pipeline::pipeline::lookup::FoundCall;
use asp_proto::grace::BACKEND_STOPS_WITHIN;

use super::card::{card_for, has_extended_card};
use super::extensions::{ActiveExtensions, Negotiation};
use super::found::{find, report, settled};
use super::list::list;
use super::modes::OutputForms;
use super::push;
use super::refused::RefusedRequest;
use super::send::{self, SentTask};
use super::stream::{StreamStart, TaskStream};
use super::task::{self, TaskContents};
use crate::ProtocolRequest;

/// Time that a cancel waits for the task to end.
const ENDS_WITHIN: Duration = BACKEND_STOPS_WITHIN.saturating_mul(2);

/// Result of an operation.
pub(super) enum OperationResult {
    Answer(Box<A2aAnswer>),
    Stream(Box<TaskStream>),
}

/// Performs one operation.
pub(super) async fn perform(
    request: &ProtocolRequest,
    asked: AgentRequest,
    negotiation: &Negotiation,
) -> Result<OperationResult, RefusedRequest> {
    let AgentRequest { generation, tenant, operation } = asked;
    let active = negotiation.active;
    if tenant.is_some() {
        return Err(A2aFailure::invalid_field("tenant", "this agent has no tenants; leave it out").into());
    }
    if matches!(operation, Operation::Send(_) | Operation::Stream(_)) {
        negotiation.check_required()?;
    }
    let answer = match operation {
        Operation::Send(send) => A2aAnswer::Sent(send_message(request, active, &send).await?),
        Operation::Stream(send) => return stream_message(request, active, &send).await,
        Operation::GetTask { id, history_length } => {
            let found = find(request, &id).await?;
            let contents = TaskContents::with_history(history_length, active);
            A2aAnswer::Task(report(request, &found, contents).await)
        }
        Operation::ListTasks(query) => A2aAnswer::Tasks(list(request, &query, active).await?),
        Operation::CancelTask { id, .. } => A2aAnswer::Task(cancel(request, active, &id).await?),
        Operation::Subscribe { id } => return subscribe(request, active, &id).await,
        Operation::CreatePush(config) => A2aAnswer::Push(push::create(request, generation, config).await?),
        Operation::GetPush { task_id, id } => {
            A2aAnswer::Push(push::get(request, &task_id, id.as_deref()).await?)
        }
        Operation::ListPush { task_id, page_size, page_token } => {
            let page = push::list(request, &task_id, page_size, page_token.as_deref()).await?;
            A2aAnswer::Pushes(page)
        }
        Operation::DeletePush { task_id, id } => {
            push::delete(request, &task_id, &id).await?;
            A2aAnswer::Deleted
        }
        Operation::ExtendedCard => A2aAnswer::Card(extended_card(request).await?),
    };
    Ok(OperationResult::Answer(Box::new(answer)))
}

async fn send_message(
    request: &ProtocolRequest,
    active: ActiveExtensions,
    send: &SendRequest,
) -> Result<SendResult, RefusedRequest> {
    let waits = !send.configuration.return_immediately;
    let SentTask { mut found, .. } = send::take(request, active.generation, send, waits).await?;
    if waits {
        found = settled(request, found).await?;
    }
    let contents = contents(send, active);
    let task = report(request, &found, contents).await;
    Ok(match found.call().and_then(|call| task::reply(call, contents.forms)) {
        Some(message) => SendResult::Message(message),
        None => SendResult::Task(task),
    })
}

/// Returns the contents of the tasks that answer a message.
fn contents(send: &SendRequest, active: ActiveExtensions) -> TaskContents {
    let configuration = &send.configuration;
    let forms = OutputForms::of(&configuration.accepted_output_modes);
    TaskContents { forms, ..TaskContents::with_history(configuration.history_length, active) }
}

async fn stream_message(
    request: &ProtocolRequest,
    active: ActiveExtensions,
    send: &SendRequest,
) -> Result<OperationResult, RefusedRequest> {
    let SentTask { found, is_new } = send::take(request, active.generation, send, false).await?;
    let start = if is_new { StreamStart::Beginning } else { StreamStart::Now };
    follow(request, found, (start, contents(send, active))).await
}

async fn subscribe(
    request: &ProtocolRequest,
    active: ActiveExtensions,
    id: &str,
) -> Result<OperationResult, RefusedRequest> {
    let found = find(request, id).await?;
    if found.call().is_some_and(|call| call.outcome().is_some()) {
        let failure = A2aFailure::new(A2aError::UnsupportedOperation, "the task has ended; get it instead");
        return Err(failure.with("taskId", id).into());
    }
    let contents = TaskContents::with_history(None, active);
    follow(request, found, (StreamStart::Now, contents)).await
}

async fn follow(
    request: &ProtocolRequest,
    found: FoundCall,
    shown: (StreamStart, TaskContents),
) -> Result<OperationResult, RefusedRequest> {
    match found {
        FoundCall::Here(call) => {
            let stream = TaskStream::open(request, call, shown).await?;
            Ok(OperationResult::Stream(Box::new(stream)))
        }
        FoundCall::Elsewhere(_) => Err(RefusedRequest::runs_remotely()),
    }
}

/// Returns the agent's card with the skills that the caller may see.
async fn extended_card(request: &ProtocolRequest) -> Result<Json, RefusedRequest> {
    if !has_extended_card(&request.server) {
        return Err(A2aError::UnsupportedOperation.into());
    }
    let card = card_for(&request.gateway, &request.snapshot, &request.server, Some(&request.caller)).await;
    card.ok_or_else(|| A2aError::ExtendedAgentCardNotConfigured.into())
}

async fn cancel(
    request: &ProtocolRequest,
    active: ActiveExtensions,
    id: &str,
) -> Result<Task, RefusedRequest> {
    let found = find(request, id).await?;
    let contents = TaskContents::with_history(None, active);
    if found.call().is_some_and(|call| call.outcome().is_some()) {
        let task = report(request, &found, contents).await;
        return match task.status.state {
            // In 0.3 no state that is an end can be cancelled (section 8.2); 1.0 has the same effect again.
            TaskState::Canceled if active.generation == Generation::V10 => Ok(task),
            _ => Err(A2aFailure::from(A2aError::TaskNotCancelable).with("taskId", id).into()),
        };
    }
    let whose = (&request.caller, &request.server);
    let cancelled = request.gateway.pipeline.cancel_found(&found, whose).await;
    cancelled.map_err(RefusedRequest::of_input_fault)?;
    if let Some(call) = found.call() {
        // A task that takes longer to end is seen to end in a later request.
        let _ = tokio::time::timeout(ENDS_WITHIN, call.finished()).await;
    }
    Ok(report(request, &found, contents).await)
}
