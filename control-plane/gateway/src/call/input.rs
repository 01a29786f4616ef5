//! Stage 5: the arguments fit the input schema; defaults are filled in first (design §5a).

use serde_json::Value;

use super::outcome::Refusal;
use crate::live::Entry;

/// Completes and checks `arguments`; a misfit names the field.
pub fn check(entry: &Entry, arguments: &mut Value) -> Result<(), Refusal> {
    let Some(schema) = &entry.input else { return Ok(()) };
    schema.apply_defaults(arguments);
    schema
        .check(arguments)
        .map_err(|misfit| Refusal::InvalidArguments { pointer: misfit.pointer, message: misfit.message })
}
