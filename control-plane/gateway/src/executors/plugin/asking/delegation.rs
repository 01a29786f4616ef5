//! A delegation of a worker: answered by the client's model, by one of the platform's, or by another primitive.
//!
//! Keeps true: whoever answers, the answer is read and checked in one way, and leaves one metric and one audit
//! line.

use std::sync::Arc;
use std::time::Duration;

use asp_proto::plugin::{DelegationRequested, DeliverDelegationResult, Json};
use asp_proto::snapshot::Kind;
use futures::FutureExt;
use futures::future::BoxFuture;
use prost::Message;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::super::history::{Delivery, History, Key};
use super::super::job::Job;
use super::AskedTwice;
use crate::call::content::parse;
use crate::call::question::{Ask, Asked, Question, put};
use crate::executors::delegate::delegation::{Delegation, Fault, Way};
use crate::executors::delegate::{Delegates, answer, record};
use crate::telemetry::metrics::delegations::Usage;
use asp_snapshot::Dependency;

/// Largest input of a model in bytes, as JSON text.
const MAX_INPUT: usize = 512 << 10;
/// Most questions and delegations one call may have open (plugin.proto).
const MAX_OPEN: usize = 16;
/// How long a model may take when neither the plugin nor the spec says.
const DEFAULT_TIME: Duration = Duration::from_secs(300);
/// What a model may say where the spec has no amount: MCP requires one.
const DEFAULT_TOKENS: u32 = 1024;

/// Begins to ask; the answer comes out of `history.waiting`.
pub(crate) fn delegate(
    job: &Job<'_>,
    history: &mut History,
    requested: DelegationRequested,
) -> Result<(), AskedTwice> {
    if !super::opens(history, Key::Delegation(requested.correlation_id.clone()))? {
        return Ok(());
    }
    let empty = DeliverDelegationResult {
        request_id: requested.request_id.clone(),
        task_id: requested.task_id.clone(),
        correlation_id: requested.correlation_id.clone(),
        ..DeliverDelegationResult::default()
    };
    let delegate = requested.delegate_id.clone();
    let answering = begin(job, history, requested).unwrap_or_else(|fault| unasked(job, delegate, fault));
    history.waiting.push(answering.map(|result| Delivery::Delegation(delivery(empty, result))).boxed());
    Ok(())
}

fn unasked(job: &Job<'_>, delegate: String, fault: Fault) -> Answering {
    let platform = Arc::clone(&job.execution.platform);
    let call = Arc::clone(job.call());
    async move {
        record::unasked(platform.as_ref(), &call, &delegate, &fault).await;
        Err(fault)
    }
    .boxed()
}

fn delivery(mut delivery: DeliverDelegationResult, result: Result<Value, Fault>) -> DeliverDelegationResult {
    match result {
        Ok(value) => delivery.result = Some(Json { value: value.to_string().into_bytes() }),
        Err(fault) => delivery.error = fault.text(),
    }
    delivery
}

type Answering = BoxFuture<'static, Result<Value, Fault>>;

fn begin(job: &Job<'_>, history: &mut History, requested: DelegationRequested) -> Result<Answering, Fault> {
    let (call, execution) = (job.call(), job.execution);
    let declared = call.entry.primitive.delegations.contains(&requested.delegate_id);
    let found = execution.live.dependencies.get(&requested.delegate_id);
    let delegate = found.filter(|found| declared && found.kind == Kind::Delegate).ok_or(Fault::Undeclared)?;
    if requested.encoded_len() > MAX_INPUT {
        return Err(Fault::TooLarge);
    }
    if history.open.len() > MAX_OPEN {
        return Err(Fault::Limited);
    }
    let input = parse(requested.input.as_ref()).map_err(|_| Fault::InvalidInput)?.unwrap_or(Value::Null);
    if delegate.entry.input.as_ref().is_some_and(|schema| schema.check(&input).is_err()) {
        return Err(Fault::InvalidInput);
    }
    let way = job.delegates.way(delegate, call.abilities)?;
    let time =
        requested.timeout.and_then(|time| Duration::try_from(time).ok()).filter(|time| !time.is_zero());
    let began = Instant::now();
    let delegation = Delegation {
        call: Arc::clone(call),
        live: execution.live.clone(),
        platform: execution.platform.clone(),
        id: requested.delegate_id,
        correlation: requested.correlation_id,
        sampling: sampling(delegate, &input),
        input,
        began,
        until: call.deadline().min(began + time.unwrap_or(DEFAULT_TIME)),
    };
    let asked = match way {
        // Put now, so that it stands where the worker asked it; only the answer is waited for.
        Way::Client => Some(ask_client(history, &delegation)?),
        Way::Model | Way::Primitive => None,
    };
    Ok(answered(job.delegates.clone(), delegation, way, asked).boxed())
}

fn ask_client(history: &mut History, delegation: &Delegation) -> Result<Asked, Fault> {
    let question = Question {
        id: super::question_id(history, &delegation.id),
        ask: Ask::Sampling(delegation.sampling.clone()),
    };
    let asked = put(&delegation.call, question).map_err(|_| Fault::Unsupported)?;
    Ok(asked.within(delegation.until.saturating_duration_since(delegation.began)))
}

async fn answered(
    delegates: Arc<Delegates>,
    delegation: Delegation,
    way: Way,
    asked: Option<Asked>,
) -> Result<Value, Fault> {
    let answer = match asked {
        Some(asked) => answer::of_client(asked, &delegation.call).await,
        None => delegates.answer(way, &delegation).await,
    };
    let entry = &delegation.delegate()?.entry;
    let usage = answer.as_ref().map_or_else(|_| Usage::default(), |answered| answered.usage);
    let result = answer.and_then(|answered| answer::result(&answered.said, entry));
    record::ended(&delegation, way, result.as_ref().map(drop), usage).await;
    result
}

/// The parameters of `sampling/createMessage`: the spec's constant part and the plugin's input as one message.
fn sampling(delegate: &Dependency, input: &Value) -> Map<String, Value> {
    let mut params = delegate.question.clone();
    let text = input.as_str().map_or_else(|| input.to_string(), str::to_owned);
    params.insert("messages".into(), json!([{"role": "user", "content": {"type": "text", "text": text}}]));
    params.entry("maxTokens").or_insert(json!(DEFAULT_TOKENS));
    params
}
