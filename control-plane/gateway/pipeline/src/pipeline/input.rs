//! Stage 5: the arguments fit the input schema; defaults are filled in first. The variables of a resource template must
//! follow the rules of their positions in the URI, in every protocol. The values of a completion are not arguments yet:
//! only those that the primitive declares are passed on, up to a maximum length.

use asp_call::call::outcome::Refusal;
use asp_call::call::{Call, CallKind};
use asp_json::Json;
use asp_snapshot::ListedPrimitive;
use serde_json::Value;

/// Maximum length of a value that is passed on for a completion, in bytes.
const MAX_TYPED: usize = 4096;

/// Completes and checks `arguments`; a misfit names the field.
pub fn check(call: &Call, arguments: &mut Json) -> Result<(), Refusal> {
    match call.kind {
        CallKind::Invoke => {}
        CallKind::Complete(_) => return typed(call, arguments),
        CallKind::List => return Ok(()),
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

/// Refuses duplicate keys where arguments are checked before the call: the last value is checked, and the recipient may
/// read the first.
pub fn check_keys(arguments: &Json) -> Result<(), Refusal> {
    match asp_json::repeated(arguments.text()) {
        Some(pointer) => {
            let message = "is there twice, and these arguments are checked before the call; send it once";
            Err(Refusal::InvalidArguments { pointer, message: message.into() })
        }
        None => Ok(()),
    }
}

/// Fills in the defaults: in the view of all arguments, because policy reads it, and in the text for authored
/// primitives. Other services apply their own defaults (JSON Schema 2020-12 validation, section 9.2).
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

/// Keeps the declared arguments of a completion: a client may name other known arguments as it likes.
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
