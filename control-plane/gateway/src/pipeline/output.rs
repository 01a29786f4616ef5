//! Stage 9: the result fits the output schema, or it is an error; it is never passed through.

use asp_snapshot::ListedPrimitive;

use crate::call::outcome::{Output, Refusal};

/// Checks what an executor produced. A tool error carries no structured result and is not checked.
pub fn check(entry: &ListedPrimitive, output: &Output) -> Result<(), Refusal> {
    let (Some(schema), Output::Tool { structured, is_error: false, .. }) = (&entry.output, output) else {
        return Ok(());
    };
    let Some(value) = structured else {
        return Err(Refusal::InvalidOutput {
            pointer: String::new(),
            message: "a structured result is required".into(),
        });
    };
    schema
        .check(value)
        .map_err(|misfit| Refusal::InvalidOutput { pointer: misfit.pointer, message: misfit.message })
}
