//! Another primitive as the delegate: a separate call through the one pipeline (I-2), as the same caller.
//!
//! Keeps true: it has at most the parent's time and ends with it; the depth of nested calls is bounded; if the parent
//! continues with another worker, the same delegation finds its first answer.

use std::sync::Arc;

use asp_call::call::event::{Event, ToolStep, ToolUse, cut_text};
use asp_call::call::lineage;
use asp_call::call::outcome::{Outcome, Output, Refusal};
use asp_call::call::{Call, CallKind, CallRequest, ClientAbilities, IdempotencyKey, Invocation, Parent};
use asp_call::telemetry::metrics::Usage;
use asp_json::Json;
use asp_proto::snapshot::{OtherPrimitive, Protocol};
use serde_json::{Value, json};

use super::answer::DelegateAnswer;
use crate::delegate::delegation::{Delegation, DelegationFault};

/// Maximum depth of calls below a client's own.
const MAX_DEPTH: u8 = 4;

/// A nested call; cancelled when dropped.
struct Child(Arc<Call>);

impl Drop for Child {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

pub(super) async fn run(
    delegation: &Delegation,
    other: &OtherPrimitive,
) -> Result<DelegateAnswer, DelegationFault> {
    let parent = &delegation.call;
    let depth = parent.parent.map_or(0, |parent| parent.depth) + 1;
    if depth > MAX_DEPTH {
        tracing::warn!(call = %parent.id, trace = %parent.trace, delegate = %delegation.id, "a delegation was refused, because it would be nested more than four calls deep; the usual cause is primitives that delegate to each other");
        return Err(DelegationFault::Refused);
    }
    // A primitive that is not listed here is as unknown to this server's callers as a hidden one (I-10).
    let entry = parent.server.tool_by_id(&other.id, other.major).ok_or(DelegationFault::Refused)?.clone();
    if !delegation.input.is_object() {
        return Err(DelegationFault::InvalidInput);
    }
    let request = CallRequest {
        caller: parent.authority.caller(),
        entry,
        bytes_in: delegation.input.to_string().len(),
        meta: lineage::passed(Some(&parent.meta.to_json())),
        kind: CallKind::Invoke,
        chosen: None,
        opening: None,
        parent: Some(Parent { call: parent.id, depth }),
        ..parent.request.clone()
    };
    let invocation = Invocation {
        request,
        subject: parent.subject(),
        // A plugin's messages are bounded, and so are the delegations of a call.
        memory: None,
        arguments: delegation.input.clone(),
        idempotency_key: Some(IdempotencyKey::Explicit(format!(
            "delegation {} {}",
            parent.id, delegation.correlation
        ))),
        deadline: Some(delegation.until),
        // No client is attached to it, so that it cannot ask questions; this waits for its end.
        abilities: ClientAbilities { tasks: true, ..ClientAbilities::default() },
    };
    let begun = delegation.platform.clone().begin(delegation.snapshot.clone(), invocation);
    // A primitive that the caller may not call is not shown: the call has not begun (I-10).
    let child = Child(begun.map_err(|refusal| fault(&refusal))?);
    show(delegation, other, || ToolStep::Started { args: delegation.input.text().to_owned() });
    let answered = tokio::select! {
        outcome = child.0.finished() => match outcome.as_ref() {
            Outcome::Done { output, .. } => convert_output(output),
            Outcome::Refused(refusal) => Err(fault(refusal)),
        },
        () = parent.cancelled() => Err(DelegationFault::Cancelled),
    };
    parent.model_usage.add(child.0.model_usage.total());
    show(delegation, other, || last_step(&answered));
    answered
}

/// Reports a step of the nested call to those who follow the parent, if their protocol has a form for it.
fn show(delegation: &Delegation, other: &OtherPrimitive, step: impl FnOnce() -> ToolStep) {
    if delegation.call.protocol == Protocol::A2a {
        let (id, name) = (delegation.correlation.clone(), other.id.clone());
        delegation.call.emit(Event::Tool(ToolUse { id, name, step: step() }));
    }
}

fn last_step(answered: &Result<DelegateAnswer, DelegationFault>) -> ToolStep {
    match answered {
        Ok(answer) => {
            let text = answer.said.view().pointer("/content/text").and_then(Value::as_str);
            ToolStep::Completed { result: text.unwrap_or_default().to_owned() }
        }
        Err(fault) => ToolStep::Failed { error: fault.text() },
    }
}

/// Converts the structured result to text, so that both kinds of answers are read alike.
fn convert_output(output: &Output) -> Result<DelegateAnswer, DelegationFault> {
    let Output::Tool { content, structured, is_error, .. } = output else {
        return Err(DelegationFault::Unavailable);
    };
    let texts: Vec<&str> = content.iter().filter_map(|block| block.get("text")?.as_str()).collect();
    if *is_error {
        let line = texts.first().and_then(|text| text.lines().next()).unwrap_or_default();
        return Err(DelegationFault::Failed(cut_text(line.to_owned())));
    }
    let text = structured.as_ref().map_or_else(|| texts.join("\n"), Json::to_string);
    let said = json!({"role": "assistant", "content": {"type": "text", "text": text}}).into();
    Ok(DelegateAnswer { said, usage: Usage::default() })
}

fn fault(refusal: &Refusal) -> DelegationFault {
    match refusal {
        Refusal::Limited { .. } => DelegationFault::Limited,
        Refusal::InvalidArguments { .. } => DelegationFault::InvalidInput,
        Refusal::InvalidOutput { .. } => DelegationFault::InvalidOutput,
        Refusal::Deadline | Refusal::InputExpired => DelegationFault::Expired,
        Refusal::Cancelled | Refusal::Withdrawn(_) => DelegationFault::Cancelled,
        Refusal::Upstream(_)
        | Refusal::Declined(_)
        | Refusal::Relayed { .. }
        | Refusal::OutcomeUnknown
        | Refusal::Internal(_) => DelegationFault::Unavailable,
        _ => DelegationFault::Refused,
    }
}
