//! ProtoJSON of the messages of A2A, by their descriptors.

use anyhow::{Context, Result, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use prost_reflect::{
    DynamicMessage, FieldDescriptor, Kind, MapKey, MessageDescriptor, ReflectMessage, Value as Field,
};
use prost_types::value::Kind as ValueKind;
use prost_types::{ListValue, Struct, Timestamp, Value as ProtoValue};
use serde_json::{Map, Value, json};

const STRUCT: &str = "google.protobuf.Struct";
const VALUE: &str = "google.protobuf.Value";
const TIMESTAMP: &str = "google.protobuf.Timestamp";
/// The message whose members are all written, because A2A requires them.
const WHOLE: &str = "lf.a2a.v1.ListTasksResponse";
/// Largest integer that a double distinguishes from its neighbours.
const EXACT: f64 = 9_007_199_254_740_991.0;

/// Reads a message; members that it does not have are left out.
pub(super) fn read(descriptor: MessageDescriptor, json: &Value) -> Result<DynamicMessage> {
    let mut message = DynamicMessage::new(descriptor.clone());
    match descriptor.full_name() {
        STRUCT => message.transcode_from(&read_struct(json)?)?,
        VALUE => message.transcode_from(&read_value(json))?,
        TIMESTAMP => bail!("no step has a timestamp"),
        _ => {
            for (name, value) in json.as_object().with_context(|| format!("{json} is no object"))? {
                if let Some(field) = descriptor.get_field_by_json_name(name)
                    && !value.is_null()
                {
                    message.try_set_field(&field, read_field(&field, value)?)?;
                }
            }
        }
    }
    Ok(message)
}

fn read_field(field: &FieldDescriptor, json: &Value) -> Result<Field> {
    if field.is_map() {
        bail!("no request has the map {}", field.name());
    }
    if !field.is_list() {
        return read_single(field.kind(), json);
    }
    let items = json.as_array().with_context(|| format!("{json} is no list"))?;
    Ok(Field::List(items.iter().map(|item| read_single(field.kind(), item)).collect::<Result<_>>()?))
}

fn read_single(kind: Kind, json: &Value) -> Result<Field> {
    let fault = || format!("{json} is no {kind:?}");
    Ok(match &kind {
        Kind::String => Field::String(json.as_str().with_context(fault)?.to_owned()),
        Kind::Bool => Field::Bool(json.as_bool().with_context(fault)?),
        Kind::Int32 => Field::I32(i32::try_from(json.as_i64().with_context(fault)?)?),
        Kind::Bytes => Field::Bytes(STANDARD.decode(json.as_str().with_context(fault)?)?.into()),
        Kind::Enum(values) => {
            let value = values.get_value_by_name(json.as_str().with_context(fault)?);
            Field::EnumNumber(value.with_context(fault)?.number())
        }
        Kind::Message(descriptor) => Field::Message(read(descriptor.clone(), json)?),
        _ => bail!(fault()),
    })
}

fn read_struct(json: &Value) -> Result<Struct> {
    let members = json.as_object().with_context(|| format!("{json} is no object"))?;
    Ok(Struct { fields: members.iter().map(|(name, value)| (name.clone(), read_value(value))).collect() })
}

fn read_value(json: &Value) -> ProtoValue {
    let kind = match json {
        Value::Null => ValueKind::NullValue(0),
        Value::Bool(value) => ValueKind::BoolValue(*value),
        Value::Number(number) => ValueKind::NumberValue(number.as_f64().unwrap_or_default()),
        Value::String(text) => ValueKind::StringValue(text.clone()),
        Value::Array(items) => {
            ValueKind::ListValue(ListValue { values: items.iter().map(read_value).collect() })
        }
        Value::Object(members) => {
            let fields = members.iter().map(|(name, value)| (name.clone(), read_value(value))).collect();
            ValueKind::StructValue(Struct { fields })
        }
    };
    ProtoValue { kind: Some(kind) }
}

/// Writes a message without members that are not set.
pub(super) fn write(message: &DynamicMessage) -> Result<Value> {
    let descriptor = message.descriptor();
    Ok(match descriptor.full_name() {
        STRUCT => write_struct(&message.transcode_to::<Struct>()?),
        VALUE => write_value(&message.transcode_to::<ProtoValue>()?),
        TIMESTAMP => write_timestamp(message.transcode_to::<Timestamp>()?).into(),
        name => {
            let is_written = |field: &FieldDescriptor| name == WHOLE || message.has_field(field);
            let mut members = Map::new();
            for field in descriptor.fields().filter(is_written) {
                let value = write_field(&field.kind(), &message.get_field(&field))?;
                members.insert(field.json_name().to_owned(), value);
            }
            Value::Object(members)
        }
    })
}

/// Writes a timestamp with milliseconds, as the platform does over the other bindings.
fn write_timestamp(time: Timestamp) -> String {
    let seconds = Timestamp { nanos: 0, ..time }.to_string();
    format!("{}.{:03}Z", seconds.trim_end_matches('Z'), time.nanos / 1_000_000)
}

fn write_field(kind: &Kind, field: &Field) -> Result<Value> {
    Ok(match (field, kind) {
        (Field::Bool(value), _) => json!(value),
        (Field::I32(number), _) => json!(number),
        (Field::String(text), _) => json!(text),
        (Field::Bytes(bytes), _) => json!(STANDARD.encode(bytes)),
        (Field::EnumNumber(number), Kind::Enum(values)) => {
            let value = values.get_value(*number).with_context(|| format!("no value {number}"))?;
            json!(value.name())
        }
        (Field::Message(message), _) => write(message)?,
        (Field::List(items), kind) => {
            items.iter().map(|item| write_field(kind, item)).collect::<Result<Value>>()?
        }
        (Field::Map(entries), Kind::Message(entry)) => {
            let kind = entry.map_entry_value_field().kind();
            let member = |(key, value): (&MapKey, &Field)| -> Result<(String, Value)> {
                Ok((key.as_str().context("a name")?.to_owned(), write_field(&kind, value)?))
            };
            Value::Object(entries.iter().map(member).collect::<Result<_>>()?)
        }
        _ => bail!("{field:?} is in no message of A2A"),
    })
}

fn write_struct(structure: &Struct) -> Value {
    structure.fields.iter().map(|(name, value)| (name.clone(), write_value(value))).collect()
}

fn write_value(value: &ProtoValue) -> Value {
    match &value.kind {
        None | Some(ValueKind::NullValue(_)) => Value::Null,
        Some(ValueKind::BoolValue(value)) => json!(value),
        Some(ValueKind::NumberValue(number)) if number.fract() == 0.0 && number.abs() <= EXACT => {
            json!(*number as i64)
        }
        Some(ValueKind::NumberValue(number)) => json!(number),
        Some(ValueKind::StringValue(text)) => json!(text),
        Some(ValueKind::ListValue(list)) => list.values.iter().map(write_value).collect(),
        Some(ValueKind::StructValue(structure)) => write_struct(structure),
    }
}
