//! Cards over gRPC: ProtoJSON of the card's type, by its descriptor.

use std::collections::HashMap;
use std::sync::LazyLock;

use asp_json::Json;
use asp_proto::A2A_DESCRIPTORS;
use asp_proto::a2a::a2a::v1 as v03;
use asp_proto::a2a::lf::a2a::v1 as v10;
use prost::Message;
use prost_reflect::{
    DescriptorPool, DynamicMessage, FieldDescriptor, Kind, MapKey, MessageDescriptor, ReflectMessage,
    Value as Field,
};
use prost_types::Struct;
use serde_json::{Map, Value};

use super::value::{object, structure};
use crate::error::{A2aError, A2aFailure};

/// Messages of both versions; empty if they cannot be read, which a test excludes.
static POOL: LazyLock<DescriptorPool> =
    LazyLock::new(|| DescriptorPool::decode(A2A_DESCRIPTORS).unwrap_or_default());

const V10: &str = "lf.a2a.v1.AgentCard";
const V03: &str = "a2a.v1.AgentCard";
const STRUCT: &str = "google.protobuf.Struct";

/// Converts a card's JSON for a client of 1.0; what 1.0 does not have is left out.
pub fn encode_v10(card: &Json) -> Result<v10::AgentCard, A2aFailure> {
    encode(V10, card.view())
}

/// Converts a hybrid card's JSON for a client of 0.3.
pub fn encode_v03(card: &Json) -> Result<v03::AgentCard, A2aFailure> {
    encode(V03, &v03_form(card.view()))
}

/// Converts a card of an agent to JSON.
pub fn decode_v10(card: &v10::AgentCard) -> Result<Json, A2aFailure> {
    decode(V10, &card.encode_to_vec())
}

/// Converts a card of an agent of 0.3 to JSON.
pub fn decode_v03(card: &v03::AgentCard) -> Result<Json, A2aFailure> {
    decode(V03, &card.encode_to_vec())
}

fn fault() -> A2aFailure {
    A2aFailure::new(A2aError::Internal, "the agent card cannot be converted for gRPC")
}

fn encode<M: Message + Default>(name: &str, card: &Value) -> Result<M, A2aFailure> {
    let descriptor = POOL.get_message_by_name(name).ok_or_else(fault)?;
    let message = message_of(descriptor, card).ok_or_else(fault)?;
    message.transcode_to().map_err(|_| fault())
}

fn decode(name: &str, bytes: &[u8]) -> Result<Json, A2aFailure> {
    let descriptor = POOL.get_message_by_name(name).ok_or_else(fault)?;
    let message = DynamicMessage::decode(descriptor, bytes).map_err(|_| fault())?;
    Ok(Json::from(json_of(&message)))
}

/// Reads a message; `None` if a field has another type. The depth of the recursion is that of the descriptors.
fn message_of(descriptor: MessageDescriptor, json: &Value) -> Option<DynamicMessage> {
    if descriptor.full_name() == STRUCT {
        let mut message = DynamicMessage::new(descriptor);
        message.transcode_from(&structure(Some(&Json::from(json.clone()))).ok()??).ok()?;
        return Some(message);
    }
    let mut message = DynamicMessage::new(descriptor.clone());
    for (name, value) in json.as_object()?.iter().filter(|(_, value)| !value.is_null()) {
        let field = descriptor.get_field_by_json_name(name).or_else(|| descriptor.get_field_by_name(name));
        if let Some(field) = field {
            message.try_set_field(&field, field_of(&field, value)?).ok()?;
        }
    }
    Some(message)
}

fn field_of(field: &FieldDescriptor, json: &Value) -> Option<Field> {
    let kind = field.kind();
    if let (true, Kind::Message(entry)) = (field.is_map(), &kind) {
        let kind = entry.map_entry_value_field().kind();
        let entry = |(name, value): (&String, &Value)| {
            Some((MapKey::String(name.clone()), single_of(kind.clone(), value)?))
        };
        return Some(Field::Map(json.as_object()?.iter().map(entry).collect::<Option<HashMap<_, _>>>()?));
    }
    if field.is_list() {
        let items = json.as_array()?.iter().map(|item| single_of(kind.clone(), item));
        return Some(Field::List(items.collect::<Option<_>>()?));
    }
    single_of(kind, json)
}

fn single_of(kind: Kind, json: &Value) -> Option<Field> {
    match (kind, json) {
        (Kind::String, Value::String(text)) => Some(Field::String(text.clone())),
        (Kind::Bool, Value::Bool(value)) => Some(Field::Bool(*value)),
        (Kind::Message(descriptor), json) => message_of(descriptor, json).map(Field::Message),
        _ => None,
    }
}

fn json_of(message: &DynamicMessage) -> Value {
    if message.descriptor().full_name() == STRUCT {
        return message.transcode_to::<Struct>().map_or(Value::Null, |found| object(&found).view().clone());
    }
    let members = message.fields().map(|(field, value)| (field.json_name().to_owned(), json_of_field(value)));
    Value::Object(members.collect())
}

fn json_of_field(field: &Field) -> Value {
    match field {
        Field::Bool(value) => Value::Bool(*value),
        Field::String(text) => Value::String(text.clone()),
        Field::Message(message) => json_of(message),
        Field::List(items) => Value::Array(items.iter().map(json_of_field).collect()),
        Field::Map(entries) => {
            let mut named: Vec<(&str, &Field)> =
                entries.iter().filter_map(|(key, value)| Some((key.as_str()?, value))).collect();
            named.sort_by_key(|(name, _)| *name);
            Value::Object(
                named.into_iter().map(|(name, value)| (name.to_owned(), json_of_field(value))).collect(),
            )
        }
        // A card has no numbers, bytes or enums.
        _ => Value::Null,
    }
}

/// Returns the JSON of 0.3 as ProtoJSON has it: security requirements are messages there.
fn v03_form(card: &Value) -> Value {
    let with_messages = |object: &Map<String, Value>| -> Map<String, Value> {
        let member = |(name, value): (&String, &Value)| {
            (name.clone(), if name == "security" { requirements(value) } else { value.clone() })
        };
        object.iter().map(member).collect()
    };
    let Some(card) = card.as_object() else { return Value::Null };
    let mut card = with_messages(card);
    if let Some(Value::Array(skills)) = card.get_mut("skills") {
        for skill in skills.iter_mut() {
            if let Some(members) = skill.as_object() {
                *skill = Value::Object(with_messages(members));
            }
        }
    }
    Value::Object(card)
}

/// Turns `[{"scheme":["scope"]}]` into `[{"schemes":{"scheme":{"list":["scope"]}}}]`.
fn requirements(value: &Value) -> Value {
    let of = |(name, scopes): (&String, &Value)| {
        (name.clone(), Value::Object(Map::from_iter([("list".to_owned(), scopes.clone())])))
    };
    let requirement = |requirement: &Value| {
        let schemes = requirement.as_object().into_iter().flatten().map(of).collect();
        Value::Object(Map::from_iter([("schemes".to_owned(), Value::Object(schemes))]))
    };
    Value::Array(value.as_array().into_iter().flatten().map(requirement).collect())
}
