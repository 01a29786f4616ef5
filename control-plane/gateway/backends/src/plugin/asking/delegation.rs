//! Delegations of a worker: the request within its bounds, and the delivery of the answer.
//!
//! Refuses: delegates that the primitive does not declare, input beyond its bound, and input that does not match the
//! delegate's schema.

use std::sync::Arc;
use std::time::Duration;

use asp_call::call::content::parse;
use asp_proto::plugin::{DelegationRequested, DeliverDelegationResult, Json};
use asp_proto::snapshot::Kind;
use asp_snapshot::Dependency;
use futures::FutureExt;
use futures::future::BoxFuture;
use prost::Message;
use serde_json::{Map, Value, json};

use super::super::attempt_state::{AttemptState, Delivery, Key};
use super::super::job::Job;
use super::DuplicateQuestion;
use super::offered::with_definitions;
use crate::conversation::dependencies::dependency;
use crate::delegate::conversation;
use crate::delegate::delegation::{Delegation, DelegationFault};
use crate::delegate::pending::{DEFAULT_TIME, DEFAULT_TOKENS, MAX_INPUT, PendingDelegation, sampling};
use crate::delegate::record;

/// Maximum number of open questions and delegations of one call (plugin.proto).
pub(super) const MAX_OPEN: usize = 16;

/// Starts a delegation; its answer arrives through `attempt_state.waiting`.
pub(crate) fn delegate(
    job: &Job<'_>,
    attempt_state: &mut AttemptState,
    requested: DelegationRequested,
) -> Result<(), DuplicateQuestion> {
    if !super::opens(attempt_state, Key::Delegation(requested.correlation_id.clone()))? {
        return Ok(());
    }
    let empty = DeliverDelegationResult {
        request_id: requested.request_id.clone(),
        task_id: requested.task_id.clone(),
        correlation_id: requested.correlation_id.clone(),
        ..DeliverDelegationResult::default()
    };
    let delegate = requested.delegate_id.clone();
    let answering =
        begin(job, attempt_state, requested).unwrap_or_else(|fault| unasked(job, delegate, fault));
    attempt_state.waiting.push(answering.map(|result| Delivery::Delegation(delivery(empty, result))).boxed());
    Ok(())
}

fn unasked(job: &Job<'_>, delegate: String, fault: DelegationFault) -> PendingAnswer {
    let platform = Arc::clone(&job.execution.platform);
    let call = Arc::clone(job.call());
    async move {
        record::unasked(platform.as_ref(), &call, &delegate, &fault).await;
        Err(fault)
    }
    .boxed()
}

fn delivery(
    mut delivery: DeliverDelegationResult,
    result: Result<asp_json::Json, DelegationFault>,
) -> DeliverDelegationResult {
    match result {
        Ok(value) => delivery.result = Some(Json { value: value.to_string().into_bytes() }),
        Err(fault) => delivery.error = fault.text(),
    }
    delivery
}

type PendingAnswer = BoxFuture<'static, Result<asp_json::Json, DelegationFault>>;

fn begin(
    job: &Job<'_>,
    attempt_state: &mut AttemptState,
    requested: DelegationRequested,
) -> Result<PendingAnswer, DelegationFault> {
    let execution = job.execution;
    let delegate =
        dependency(execution, Kind::Delegate, &requested.delegate_id).ok_or(DelegationFault::Undeclared)?;
    if requested.encoded_len() > MAX_INPUT {
        return Err(DelegationFault::TooLarge);
    }
    if attempt_state.open.len() > MAX_OPEN {
        return Err(DelegationFault::Limited);
    }
    let input = parse(requested.input.as_ref()).map_err(|_| DelegationFault::InvalidInput)?;
    let input = input.unwrap_or_else(|| Value::Null.into());
    let is_conversation = requested.conversation.is_some();
    if !is_conversation && delegate.entry.input.as_ref().is_some_and(|schema| schema.check(&input).is_err()) {
        return Err(DelegationFault::InvalidInput);
    }
    let sampling = match parse(requested.conversation.as_ref()).map_err(|_| DelegationFault::InvalidInput)? {
        None => sampling(delegate, &input),
        Some(_) if !delegate.entry.primitive.sampling_tools => return Err(DelegationFault::Undeclared),
        Some(given) => {
            let given = with_definitions(execution, &given).ok_or(DelegationFault::InvalidInput)?;
            conversation(delegate, &given).ok_or(DelegationFault::InvalidInput)?
        }
    };
    let time =
        requested.timeout.and_then(|time| Duration::try_from(time).ok()).filter(|time| !time.is_zero());
    let key = Key::Delegation(requested.correlation_id.clone());
    let delegation = Delegation {
        id: requested.delegate_id.clone(),
        correlation: requested.correlation_id,
        input,
        sampling,
        is_conversation,
        ..Delegation::of(execution, time.unwrap_or(DEFAULT_TIME))
    };
    let question = || attempt_state.question_id(&key, &requested.delegate_id);
    let pending = PendingDelegation::begin(&job.deps.delegates, delegation, question)?;
    let delegates = job.deps.delegates.clone();
    Ok(async move { pending.answered(&delegates).await.map(|answer| answer.result) }.boxed())
}

/// Builds the parameters of `sampling/createMessage` for a model that may use tools; the values that the spec fixes
/// are kept.
fn conversation(delegate: &Dependency, given: &Value) -> Option<Map<String, Value>> {
    let mut params = delegate.question.clone();
    params.extend(conversation::read(given)?);
    params.entry("maxTokens").or_insert(json!(DEFAULT_TOKENS));
    Some(params)
}
