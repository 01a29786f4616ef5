//! Stage 5: the arguments fit the input schema; defaults are filled in first. What a URI gives the variables of a
//! resource template is held to the rules of their places, whoever reads the resource. What somebody types is no argument
//! yet: of that, only what the primitive declares is handed on, no longer than its bound.

use serde_json::Value;

use crate::call::outcome::Refusal;
use crate::call::{Aim, Call};

/// Longest value that is handed on while somebody types, in bytes.
const MAX_TYPED: usize = 4096;

/// Completes and checks `arguments`; a misfit names the field.
pub fn check(call: &Call, arguments: &mut Value) -> Result<(), Refusal> {
    match call.aim {
        Aim::Done => {}
        Aim::Completed(_) => return typed(call, arguments),
        Aim::Listed => return Ok(()),
    }
    let entry = &call.entry;
    if let (Some(template), Some(variables)) = (&entry.template, arguments.as_object()) {
        template.expand(variables).map_err(|fault| Refusal::misplaced(&fault))?;
    }
    let Some(schema) = &entry.input else { return Ok(()) };
    schema.apply_defaults(arguments);
    schema
        .check(arguments)
        .map_err(|misfit| Refusal::InvalidArguments { pointer: misfit.pointer, message: misfit.message })
}

/// A client names what it knows of the other arguments as it likes; the plugin gets what it declares.
fn typed(call: &Call, arguments: &mut Value) -> Result<(), Refusal> {
    let Some(known) = arguments.as_object_mut() else { return Ok(()) };
    known.retain(|name, _| call.entry.is_argument(name));
    let is_long = |value: &Value| value.as_str().is_some_and(|text| text.len() > MAX_TYPED);
    match known.iter().find(|(_, value)| is_long(value)) {
        Some((name, _)) => Err(Refusal::InvalidArguments {
            pointer: format!("/{name}"),
            message: format!("at most {MAX_TYPED} bytes are completed"),
        }),
        None => Ok(()),
    }
}
