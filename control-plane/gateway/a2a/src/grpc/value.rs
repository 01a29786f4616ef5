//! `google.protobuf.Value` and `Struct`.

use asp_json::Json;
use prost_types::value::Kind;
use prost_types::{ListValue, Struct, Value as ProtoValue};
use serde_json::{Map, Number, Value};

use crate::bounds::MAX_GRPC_DEPTH;
use crate::error::{A2aError, A2aFailure};

/// Description of data with a number that JSON lacks.
pub(super) const NOT_JSON: &str = "must not have infinity or NaN, which JSON lacks";
/// Largest integer that a double distinguishes from its neighbours.
const EXACT: f64 = 9_007_199_254_740_991.0;

/// Converts a JSON value.
pub(super) fn value(json: &Json) -> Result<ProtoValue, A2aFailure> {
    write(json.view(), MAX_GRPC_DEPTH)
}

/// Converts an object; another value is an empty one.
pub(super) fn structure(json: Option<&Json>) -> Result<Option<Struct>, A2aFailure> {
    let Some(json) = json else { return Ok(None) };
    match value(json)?.kind {
        Some(Kind::StructValue(structure)) => Ok(Some(structure)),
        _ => Ok(Some(Struct::default())),
    }
}

fn write(value: &Value, depth: usize) -> Result<ProtoValue, A2aFailure> {
    let deeper = || {
        let message = "data nests deeper than gRPC carries; use another binding";
        depth.checked_sub(1).ok_or_else(|| A2aFailure::new(A2aError::Internal, message))
    };
    let kind = match value {
        Value::Null => Kind::NullValue(0),
        Value::Bool(value) => Kind::BoolValue(*value),
        Value::Number(number) => Kind::NumberValue(number.as_f64().unwrap_or_default()),
        Value::String(text) => Kind::StringValue(text.clone()),
        Value::Array(items) => {
            let depth = deeper()?;
            let values = items.iter().map(|item| write(item, depth)).collect::<Result<_, _>>()?;
            Kind::ListValue(ListValue { values })
        }
        Value::Object(members) => {
            let depth = deeper()?;
            let member = |(name, value): (&String, &Value)| Ok((name.clone(), write(value, depth)?));
            let fields = members.iter().map(member).collect::<Result<_, A2aFailure>>()?;
            Kind::StructValue(Struct { fields })
        }
    };
    Ok(ProtoValue { kind: Some(kind) })
}

/// Converts a value to JSON.
pub(super) fn json(value: &ProtoValue) -> Json {
    Json::from(read(value))
}

/// Converts an object to JSON.
pub(super) fn object(structure: &Struct) -> Json {
    Json::from(read_struct(structure))
}

fn read_struct(structure: &Struct) -> Value {
    let member = |(name, value): (&String, &ProtoValue)| (name.clone(), read(value));
    Value::Object(structure.fields.iter().map(member).collect::<Map<_, _>>())
}

/// Converts a value. The depth of the recursion is bounded by the decoder of protocol buffers.
fn read(value: &ProtoValue) -> Value {
    match &value.kind {
        None | Some(Kind::NullValue(_)) => Value::Null,
        Some(Kind::BoolValue(value)) => Value::Bool(*value),
        Some(Kind::NumberValue(double)) if double.fract() == 0.0 && double.abs() <= EXACT => {
            Value::from(*double as i64)
        }
        // JSON has neither infinity nor NaN.
        Some(Kind::NumberValue(double)) => Number::from_f64(*double).map_or(Value::Null, Value::Number),
        Some(Kind::StringValue(text)) => Value::String(text.clone()),
        Some(Kind::ListValue(list)) => Value::Array(list.values.iter().map(read).collect()),
        Some(Kind::StructValue(structure)) => read_struct(structure),
    }
}

/// Whether JSON has every number of a value. The depth of the recursion is bounded by the decoder of protocol buffers.
pub(super) fn is_json(value: &ProtoValue) -> bool {
    match &value.kind {
        Some(Kind::NumberValue(double)) => double.is_finite(),
        Some(Kind::ListValue(list)) => list.values.iter().all(is_json),
        Some(Kind::StructValue(structure)) => is_json_object(structure),
        _ => true,
    }
}

pub(super) fn is_json_object(structure: &Struct) -> bool {
    structure.fields.values().all(is_json)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nulls_survive_and_numbers_are_doubles() {
        for (text, back) in [
            (r#"{"a":null,"b":[null,{"c":null}],"d":"x","e":true}"#, None),
            (
                r#"{"a":1,"b":-2.5,"c":1e300,"d":9007199254740991}"#,
                Some(r#"{"a":1,"b":-2.5,"c":1e+300,"d":9007199254740991}"#),
            ),
            ("null", None),
            ("[]", None),
            ("9007199254740993", Some("9007199254740992.0")),
            (r#"{"b":1,"a":2}"#, Some(r#"{"a":2,"b":1}"#)),
        ] {
            let json = Json::parse(text.as_bytes()).unwrap();
            let there_and_back = super::json(&value(&json).unwrap());
            assert_eq!(there_and_back.text(), back.unwrap_or(text), "{text}");
        }
    }

    #[test]
    fn json_has_neither_infinity_nor_nan() {
        let list = |double| {
            let values = vec![ProtoValue { kind: Some(Kind::NumberValue(double)) }];
            let list = ProtoValue { kind: Some(Kind::ListValue(ListValue { values })) };
            let fields = [("a".to_owned(), list)].into_iter().collect();
            ProtoValue { kind: Some(Kind::StructValue(Struct { fields })) }
        };
        assert!(is_json(&list(1e308)));
        assert!(!is_json(&list(f64::INFINITY)) && !is_json(&list(f64::NAN)));
    }

    #[test]
    fn depth_is_bounded() {
        let nested = |depth: usize| Json::part(format!("{}{}", "[".repeat(depth), "]".repeat(depth)));
        assert!(value(&nested(MAX_GRPC_DEPTH)).is_ok());
        assert!(value(&nested(MAX_GRPC_DEPTH + 1)).is_err());
    }
}
