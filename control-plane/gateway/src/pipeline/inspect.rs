//! The inspection points: arguments before they are used, outputs before the caller gets them or they are stored under
//! a key. Without an inspector both cost one comparison.
//!
//! Keeps true: arguments with duplicate keys are refused before an inspector sees one of the values; a replacement is
//! checked against the schema again; if it does not fit, that is a fault, and the original is never used instead; an
//! output that could not be inspected is withheld for good only if the call cannot be repeated. A replay from the
//! ledger was inspected when its call ran.

use asp_json::Json;
use serde_json::Value;

use super::{input, output};
use crate::call::Call;
use crate::call::outcome::{Output, Refusal};
use crate::inspection::{Inspection, InspectionResult};

/// Returns the arguments with which the call continues.
pub async fn input(
    inspection: Option<&Inspection<Value>>,
    call: &Call,
    arguments: Json,
) -> Result<Json, Refusal> {
    let Some(inspection) = inspection else { return Ok(arguments) };
    input::check_keys(&arguments)?;
    match inspection.ask(call, "arguments", arguments.view()).await {
        InspectionResult::Passed => Ok(arguments),
        InspectionResult::Replaced(other) => {
            let mut other = arguments.changed_to(other);
            input::check(call, &mut other).map_err(|misfit| {
                Refusal::Internal(format!(
                    "an inspector replaced the arguments by something that does not fit the schema: {misfit}"
                ))
            })?;
            Ok(other)
        }
        InspectionResult::Refused(why) => Err(Refusal::Barred(why)),
        InspectionResult::Unseen if call.is_cancelled() => Err(Refusal::Cancelled),
        InspectionResult::Unseen => {
            Err(Refusal::Upstream("nothing was done: the arguments cannot be inspected at the moment".into()))
        }
    }
}

/// Returns the output for the caller. It fits the schema.
pub async fn output(
    inspection: Option<&Inspection<Output>>,
    call: &Call,
    output: Output,
) -> Result<Output, Refusal> {
    let Some(inspection) = inspection else { return Ok(output) };
    match inspection.ask(call, "output", &output).await {
        InspectionResult::Passed => Ok(output),
        InspectionResult::Replaced(other) => {
            let Err(misfit) = output::check(&call.entry, &other) else { return Ok(other) };
            tracing::error!(call = %call.id, trace = %call.trace, primitive = %call.entry.primitive.id, %misfit, "inspector replaced the output of a call with one that does not fit the schema; the output is withheld: fix the inspector");
            Err(Refusal::Withheld("what an inspection made of it does not fit the schema".into()))
        }
        InspectionResult::Refused(why) => Err(Refusal::Withheld(why)),
        // The call was done, and its result will never be seen.
        InspectionResult::Unseen if !call.may_repeat() => {
            Err(Refusal::Withheld("it could not be inspected when the call was done".into()))
        }
        InspectionResult::Unseen if call.is_cancelled() => Err(Refusal::Cancelled),
        InspectionResult::Unseen => {
            Err(Refusal::Upstream("the output cannot be inspected at the moment: call again".into()))
        }
    }
}
