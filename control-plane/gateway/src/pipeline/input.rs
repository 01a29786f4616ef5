//! Stage 5: the arguments fit the input schema; defaults are filled in first. What a URI gives the variables of a
//! resource template is held to the rules of their places, whoever reads the resource. What somebody types is no argument
//! yet: of that, only what the primitive declares is handed on, no longer than its bound.

use asp_json::Json;
use serde_json::Value;

use asp_snapshot::ListedPrimitive;

use crate::call::outcome::Refusal;
use crate::call::{Aim, Call};

/// Longest value that is handed on while somebody types, in bytes.
const MAX_TYPED: usize = 4096;

/// Completes and checks `arguments`; a misfit names the field.
pub fn check(call: &Call, arguments: &mut Json) -> Result<(), Refusal> {
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
    complete(&call.entry, arguments);
    schema
        .check(arguments)
        .map_err(|misfit| Refusal::InvalidArguments { pointer: misfit.pointer, message: misfit.message })
}

/// Refuses equal keys, for whoever judges arguments: the last of them is judged, and their reader may take the first.
pub fn check_keys(arguments: &Json) -> Result<(), Refusal> {
    match asp_json::repeated(arguments.text()) {
        Some(pointer) => {
            let message = "is there twice, and these arguments are checked before the call; send it once";
            Err(Refusal::InvalidArguments { pointer, message: message.into() })
        }
        None => Ok(()),
    }
}

/// Fills in the defaults: in the view of all, because policy reads them, and in the text for what was written for them. A
/// service of somebody else has its own (JSON Schema 2020-12 validation, section 9.2).
pub fn complete(entry: &ListedPrimitive, arguments: &mut Json) {
    let Some(schema) = &entry.input else { return };
    if !schema.has_defaults() {
        return;
    }
    let mut completed = arguments.view().clone();
    schema.apply_defaults(&mut completed);
    *arguments = match entry.is_forwarded() {
        true => arguments.viewed_as(completed),
        false => arguments.changed_to(completed),
    };
}

/// A client names what it knows of the other arguments as it likes; the plugin gets what it declares.
fn typed(call: &Call, arguments: &mut Json) -> Result<(), Refusal> {
    let Value::Object(mut known) = arguments.view().clone() else { return Ok(()) };
    known.retain(|name, _| call.entry.is_argument(name));
    let is_long = |value: &Value| value.as_str().is_some_and(|text| text.len() > MAX_TYPED);
    match known.iter().find(|(_, value)| is_long(value)) {
        Some((name, _)) => Err(Refusal::InvalidArguments {
            pointer: format!("/{name}"),
            message: format!("at most {MAX_TYPED} bytes are completed"),
        }),
        None => {
            *arguments = arguments.changed_to(Value::Object(known));
            Ok(())
        }
    }
}
