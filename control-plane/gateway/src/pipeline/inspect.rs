//! The inspection points: the arguments before anything is done by them, the output before anybody gets it or it is
//! stored under a key. Without an inspector both are one comparison.
//!
//! Keeps true: what an inspector replaces is held against the schema again; a misfit is a fault, and never the original
//! instead. What is replayed from the ledger was inspected when it was made.

use serde_json::Value;

use super::{input, output};
use crate::call::Call;
use crate::call::outcome::{Output, Refusal};
use crate::inspection::{Inspected, Inspection};

/// The arguments with which the call goes on.
pub async fn input(
    inspection: Option<&Inspection<Value>>,
    call: &Call,
    arguments: Value,
) -> Result<Value, Refusal> {
    let Some(inspection) = inspection else { return Ok(arguments) };
    match inspection.ask(call, "arguments", &arguments).await {
        Inspected::Passed => Ok(arguments),
        Inspected::Replaced(mut other) => {
            input::check(&call.entry, &mut other).map_err(|misfit| unfit("arguments", &misfit))?;
            Ok(other)
        }
        Inspected::Refused(why) => Err(Refusal::Barred(why)),
        Inspected::Unseen if call.is_cancelled() => Err(Refusal::Cancelled),
        Inspected::Unseen => {
            Err(Refusal::Upstream("nothing was done: the arguments cannot be inspected at the moment".into()))
        }
    }
}

/// The output that the caller gets. It fits the schema.
pub async fn output(
    inspection: Option<&Inspection<Output>>,
    call: &Call,
    output: Output,
) -> Result<Output, Refusal> {
    let Some(inspection) = inspection else { return Ok(output) };
    match inspection.ask(call, "output", &output).await {
        Inspected::Passed => Ok(output),
        Inspected::Replaced(other) => {
            output::check(&call.entry, &other).map_err(|misfit| unfit("output", &misfit))?;
            Ok(other)
        }
        Inspected::Refused(why) => Err(Refusal::Withheld(why)),
        Inspected::Unseen => Err(Refusal::Withheld("it cannot be inspected at the moment".into())),
    }
}

fn unfit(what: &str, misfit: &Refusal) -> Refusal {
    Refusal::Internal(format!(
        "an inspector replaced the {what} by something that does not fit the schema: {misfit}"
    ))
}
