//! ProtoJSON (protobuf.dev, "ProtoJSON Format") of a message, held against its definition.
//!
//! Stricter than the format where it leaves a choice that A2A or its SDKs have made: members of answers have their JSON names,
//! values of enums are names, timestamps are in UTC, and of a oneof there is exactly one member.

use anyhow::{Context, Result};
use protox::prost_reflect::{DescriptorPool, ExtensionDescriptor, FieldDescriptor, Kind, MessageDescriptor};
use serde_json::{Map, Value};

use super::super::definitions::{Problem, SHOWN};

/// `google.api.FieldBehavior.REQUIRED`.
const REQUIRED: i32 = 2;

/// Treatment of members that the definition does not have.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Unknown {
    Refused,
    /// Refused in a request, whose members may also have the names of the definition, which every reader of ProtoJSON accepts.
    RefusedInRequest,
    /// Ignored in a document for readers of both versions.
    Ignored,
}

/// The rules of all messages of a pool.
pub(super) struct ProtoJson {
    behavior: ExtensionDescriptor,
}

impl ProtoJson {
    pub(super) fn new(pool: &DescriptorPool) -> Result<ProtoJson> {
        let behavior = pool.get_extension_by_name("google.api.field_behavior").context("marks of fields")?;
        Ok(ProtoJson { behavior })
    }

    /// Faults of `value` as this message.
    pub(super) fn problems(
        &self,
        definition: &MessageDescriptor,
        value: &Value,
        unknown: Unknown,
    ) -> Vec<Problem> {
        let mut check = Check { rules: self, unknown, problems: Vec::new() };
        check.message("", definition, value);
        check.problems.truncate(SHOWN);
        check.problems
    }

    pub(super) fn is_required(&self, field: &FieldDescriptor) -> bool {
        let options = field.options();
        let marks = options.get_extension(&self.behavior);
        marks.as_list().is_some_and(|marks| marks.iter().any(|mark| mark.as_enum_number() == Some(REQUIRED)))
    }
}

struct Check<'a> {
    rules: &'a ProtoJson,
    unknown: Unknown,
    problems: Vec<Problem>,
}

impl Check<'_> {
    fn message(&mut self, at: &str, definition: &MessageDescriptor, value: &Value) {
        match definition.full_name() {
            "google.protobuf.Value" => {}
            "google.protobuf.Struct" => self.hold(value.is_object(), at, "an object"),
            "google.protobuf.ListValue" => self.hold(value.is_array(), at, "an array"),
            "google.protobuf.Timestamp" => self.hold(is_timestamp(value), at, "a timestamp in UTC"),
            name => match value.as_object() {
                Some(members) => self.members(at, definition, members),
                None => self.hold(false, at, &format!("an object of {name}")),
            },
        }
    }

    fn members(&mut self, at: &str, definition: &MessageDescriptor, members: &Map<String, Value>) {
        let name = definition.full_name();
        for (member, value) in members {
            let at = format!("{at}/{member}");
            let original = || self.original(member, definition);
            match definition.get_field_by_json_name(member).or_else(original) {
                Some(field) if is_set(&field, value) => self.field(&at, &field, value),
                Some(_) => {}
                None if self.unknown == Unknown::Ignored => {}
                None => self.fault(&at, format!("{name} has no such member")),
            }
        }
        let takes_original = self.unknown == Unknown::RefusedInRequest;
        let has = |field: &FieldDescriptor| {
            let original = || members.get(field.name()).filter(|_| takes_original);
            members.get(field.json_name()).or_else(original).is_some_and(|value| is_set(field, value))
        };
        for field in definition.fields() {
            if self.rules.is_required(&field) && !has(&field) {
                self.fault(at, format!("{name}.{} is REQUIRED", field.json_name()));
            }
        }
        for oneof in definition.oneofs().filter(|oneof| !oneof.is_synthetic()) {
            let count = oneof.fields().filter(&has).count();
            if count != 1 {
                self.fault(at, format!("{count} members of the oneof {}", oneof.full_name()));
            }
        }
    }

    /// The field of this name in the definition, if such a name may be used.
    fn original(&self, name: &str, definition: &MessageDescriptor) -> Option<FieldDescriptor> {
        definition.get_field_by_name(name).filter(|_| self.unknown == Unknown::RefusedInRequest)
    }

    fn field(&mut self, at: &str, field: &FieldDescriptor, value: &Value) {
        let kind = field.kind();
        match (&kind, value) {
            (Kind::Message(entry), Value::Object(entries)) if field.is_map() => {
                let kind = entry.map_entry_value_field().kind();
                for (key, value) in entries {
                    self.value(&format!("{at}/{key}"), &kind, value);
                }
            }
            (_, Value::Array(items)) if field.is_list() => {
                for (index, item) in items.iter().enumerate() {
                    self.value(&format!("{at}/{index}"), &kind, item);
                }
            }
            _ if field.is_map() => self.hold(false, at, "an object"),
            _ if field.is_list() => self.hold(false, at, "an array"),
            (Kind::Enum(_), _) if self.rules.is_required(field) => {
                self.value(at, &kind, value);
                let is_named = value.as_str().is_none_or(|name| !name.ends_with("_UNSPECIFIED"));
                self.hold(is_named, at, "a specified value, because it is REQUIRED");
            }
            _ => self.value(at, &kind, value),
        }
    }

    fn value(&mut self, at: &str, kind: &Kind, value: &Value) {
        match kind {
            Kind::Message(definition) => self.message(at, definition, value),
            Kind::Enum(definition) => {
                let is_known =
                    value.as_str().is_some_and(|name| definition.get_value_by_name(name).is_some());
                self.hold(is_known, at, &format!("a value of {}", definition.full_name()));
            }
            Kind::String => self.hold(value.is_string(), at, "a string"),
            Kind::Bool => self.hold(value.is_boolean(), at, "true or false"),
            Kind::Bytes => self.hold(value.as_str().is_some_and(is_base64), at, "base64"),
            Kind::Double | Kind::Float => self.hold(value.is_number(), at, "a number"),
            Kind::Int32
            | Kind::Int64
            | Kind::Uint32
            | Kind::Uint64
            | Kind::Sint32
            | Kind::Sint64
            | Kind::Fixed32
            | Kind::Fixed64
            | Kind::Sfixed32
            | Kind::Sfixed64 => self.hold(is_integer(value), at, "an integer"),
        }
    }

    fn hold(&mut self, fits: bool, at: &str, wanted: &str) {
        if !fits {
            self.fault(at, format!("this is not {wanted}"));
        }
    }

    fn fault(&mut self, at: &str, error: String) {
        self.problems.push(Problem { pointer: at.to_owned(), error });
    }
}

/// Whether a member counts: null is the same as none, but for a field that can hold null.
fn is_set(field: &FieldDescriptor, value: &Value) -> bool {
    let kind = field.kind();
    let takes_null = kind.as_message().is_some_and(|kind| kind.full_name() == "google.protobuf.Value");
    takes_null || !value.is_null()
}

fn is_timestamp(value: &Value) -> bool {
    let is_read = |text: &str| text.ends_with('Z') && text.parse::<prost_types::Timestamp>().is_ok();
    value.as_str().is_some_and(is_read)
}

fn is_integer(value: &Value) -> bool {
    value.is_i64() || value.is_u64() || value.as_str().is_some_and(|text| text.parse::<i64>().is_ok())
}

/// Either alphabet, with padding or without.
fn is_base64(text: &str) -> bool {
    let digits = text.trim_end_matches('=');
    let is_digit = |byte: u8| byte.is_ascii_alphanumeric() || b"+/-_".contains(&byte);
    text.len() - digits.len() <= 2 && digits.len() % 4 != 1 && digits.bytes().all(is_digit)
}
