//! `ask_delegate`: a tool that is answered by the delegate of its spec, a model or another primitive.
//!
//! Its arguments are the delegate's input, and its result is the JSON object of the answer. Keeps true: a call asks once; an
//! answer that is not an object, or off the delegate's output schema, is a tool error.

use asp_call::call::outcome::{Output, Refusal};
use asp_call::execution::Execution;
use asp_json::Json;
use asp_proto::snapshot::Kind;

use crate::conversation::dependencies::{declared, dependency};
use crate::delegate::Delegates;
use crate::delegate::delegation::{Delegation, DelegationFault};
use crate::delegate::pending::{DEFAULT_TIME, MAX_INPUT, PendingDelegation, sampling};
use crate::delegate::record;

/// Id of the only delegation of a call, and of the question to a client whose model answers.
const DELEGATION: &str = "delegate";

pub(super) async fn run(execution: &Execution, delegates: &Delegates) -> Result<Output, Refusal> {
    let [id] = declared(&execution.call.entry.primitive, Kind::Delegate) else {
        return Ok(Output::tool_error(
            "ask_delegate needs one delegate in primitiveDependencies.delegations",
        ));
    };
    match ask(execution, delegates, id).await {
        Ok(result) => match result.member("json").filter(|json| json.is_object()) {
            Some(object) => Ok(Output::structured(object)),
            None => Ok(Output::tool_error("the answer of the delegate is not a JSON object")),
        },
        Err(DelegationFault::Cancelled) => Err(Refusal::Cancelled),
        Err(fault) => Ok(Output::tool_error(&format!("the delegate did not answer: {}", fault.text()))),
    }
}

/// Returns the delegate's answer in the form for a plugin.
async fn ask(execution: &Execution, delegates: &Delegates, id: &str) -> Result<Json, DelegationFault> {
    match begin(execution, delegates, id) {
        Ok(pending) => pending.answered(delegates).await.map(|answer| answer.result),
        Err(fault) => {
            record::unasked(execution.platform.as_ref(), &execution.call, id, &fault).await;
            Err(fault)
        }
    }
}

fn begin(
    execution: &Execution,
    delegates: &Delegates,
    id: &str,
) -> Result<PendingDelegation, DelegationFault> {
    let delegate = dependency(execution, Kind::Delegate, id).ok_or(DelegationFault::Undeclared)?;
    let input = &execution.arguments;
    if input.text().len() > MAX_INPUT {
        return Err(DelegationFault::TooLarge);
    }
    if delegate.entry.input.as_ref().is_some_and(|schema| schema.check(input).is_err()) {
        return Err(DelegationFault::InvalidInput);
    }
    let delegation = Delegation {
        id: id.to_owned(),
        correlation: DELEGATION.to_owned(),
        input: input.clone(),
        sampling: sampling(delegate, input),
        ..Delegation::of(execution, DEFAULT_TIME)
    };
    PendingDelegation::begin(delegates, delegation, || DELEGATION.to_owned())
}
