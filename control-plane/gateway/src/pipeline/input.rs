//! Stage 5: the arguments fit the input schema; defaults are filled in first. What a URI gives the variables of a
//! resource template is held to the rules of their places, whoever reads the resource.

use asp_snapshot::ListedPrimitive;
use serde_json::Value;

use crate::call::outcome::Refusal;

/// Completes and checks `arguments`; a misfit names the field.
pub fn check(entry: &ListedPrimitive, arguments: &mut Value) -> Result<(), Refusal> {
    if let (Some(template), Some(variables)) = (&entry.template, arguments.as_object()) {
        template.expand(variables).map_err(|fault| Refusal::misplaced(&fault))?;
    }
    let Some(schema) = &entry.input else { return Ok(()) };
    schema.apply_defaults(arguments);
    schema
        .check(arguments)
        .map_err(|misfit| Refusal::InvalidArguments { pointer: misfit.pointer, message: misfit.message })
}
