//! Stage 9: the result fits the output schema, or it is an error; it is never passed through.

use asp_snapshot::ListedPrimitive;

use crate::call::outcome::{Output, Refusal};

/// Takes out what an error says in `structuredContent` where the schema speaks against it: clients check that too (MCP
/// tools, output schema).
pub fn settle(entry: &ListedPrimitive, output: &mut Output) {
    if let (Some(schema), Output::Tool { structured, is_error: true, .. }) = (&entry.output, output)
        && structured.as_ref().is_some_and(|value| schema.check(value).is_err())
    {
        *structured = None;
    }
}

/// Checks what an executor produced. A tool error needs no structured result and is not checked.
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
