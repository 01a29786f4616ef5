//! A message in protocol buffers, held against its definition.
//!
//! Stricter than the encoding: fields and values of enums are those of the definition, a oneof has a member, and what is
//! REQUIRED has a value. Of numbers and lists the encoding leaves out zero and none, which may be that value.

use protox::prost_reflect::{DynamicMessage, FieldDescriptor, Kind, ReflectMessage, Value};

use super::super::definitions::{Problem, SHOWN};
use super::proto_json::ProtoJson;

/// REQUIRED text that is empty on the last page.
const MAY_BE_EMPTY: &str = "lf.a2a.v1.ListTasksResponse.next_page_token";

/// Faults of a message.
pub(super) fn problems(rules: &ProtoJson, message: &DynamicMessage) -> Vec<Problem> {
    let mut check = Check { rules, problems: Vec::new() };
    check.message("", message);
    check.problems.truncate(SHOWN);
    check.problems
}

struct Check<'a> {
    rules: &'a ProtoJson,
    problems: Vec<Problem>,
}

impl Check<'_> {
    fn message(&mut self, at: &str, message: &DynamicMessage) {
        let definition = message.descriptor();
        let name = definition.full_name();
        for unknown in message.unknown_fields() {
            self.fault(at, format!("{name} has no field {}", unknown.number()));
        }
        for field in definition.fields() {
            let at = format!("{at}/{}", field.name());
            if message.has_field(&field) {
                self.value(&at, &field.kind(), &message.get_field(&field));
            } else if self.rules.is_required(&field) && is_sent(&field) {
                self.fault(&at, format!("{} is REQUIRED", field.full_name()));
            }
        }
        for oneof in definition.oneofs().filter(|oneof| !oneof.is_synthetic()) {
            if !oneof.fields().any(|field| message.has_field(&field)) {
                self.fault(at, format!("no member of the oneof {}", oneof.full_name()));
            }
        }
    }

    fn value(&mut self, at: &str, kind: &Kind, value: &Value) {
        match (kind, value) {
            (_, Value::Message(message)) => self.message(at, message),
            (_, Value::List(items)) => {
                for (index, item) in items.iter().enumerate() {
                    self.value(&format!("{at}/{index}"), kind, item);
                }
            }
            (Kind::Message(entry), Value::Map(entries)) => {
                let kind = entry.map_entry_value_field().kind();
                for (key, value) in entries {
                    self.value(&format!("{at}/{}", key.as_str().unwrap_or_default()), &kind, value);
                }
            }
            (Kind::Enum(definition), Value::EnumNumber(number))
                if definition.get_value(*number).is_none() =>
            {
                self.fault(at, format!("{number} is no value of {}", definition.full_name()));
            }
            _ => {}
        }
    }

    fn fault(&mut self, at: &str, error: String) {
        self.problems.push(Problem { pointer: at.to_owned(), error });
    }
}

/// Whether a REQUIRED field is sent with every value that it may have. Zero is unspecified in an enum, and not allowed.
fn is_sent(field: &FieldDescriptor) -> bool {
    match field.kind() {
        _ if field.is_list() || field.is_map() => false,
        Kind::Message(_) | Kind::Enum(_) => true,
        Kind::String => field.full_name() != MAY_BE_EMPTY,
        _ => false,
    }
}
