//! Metrics of a runtime (`google.protobuf.Struct`) as JSON, so that serde reads them like everything else.
//!
//! Keeps true: a whole number stays whole, so that it fits an integer field. Size and depth are bounded by the
//! message that contained them.

use prost_types::value::Kind;
use prost_types::{Struct, Value as Detail};
use serde_json::{Map, Number, Value};

/// Largest double up to which every whole number is exact.
const MOST: f64 = 9_007_199_254_740_992.0;

/// Converts a runtime's metrics to JSON.
pub fn json(details: Struct) -> Value {
    let members = details.fields.into_iter().map(|(name, detail)| (name, value(detail)));
    Value::Object(members.collect::<Map<_, _>>())
}

fn value(detail: Detail) -> Value {
    match detail.kind {
        None | Some(Kind::NullValue(_)) => Value::Null,
        Some(Kind::BoolValue(truth)) => Value::Bool(truth),
        Some(Kind::StringValue(text)) => Value::String(text),
        Some(Kind::NumberValue(detail)) => number(detail),
        Some(Kind::ListValue(list)) => Value::Array(list.values.into_iter().map(value).collect()),
        Some(Kind::StructValue(inner)) => json(inner),
    }
}

fn number(detail: f64) -> Value {
    if detail.fract() == 0.0 && (0.0..=MOST).contains(&detail) {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "whole and in range")]
        return Value::from(detail as u64);
    }
    Number::from_f64(detail).map_or(Value::Null, Value::Number)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn whole_numbers_stay_whole_and_what_is_no_number_is_null() {
        let detail = |kind| Detail { kind: Some(kind) };
        let fields = [
            ("whole", Kind::NumberValue(3.0)),
            ("part", Kind::NumberValue(0.5)),
            ("below", Kind::NumberValue(-1.0)),
            ("none", Kind::NumberValue(f64::NAN)),
            ("text", Kind::StringValue("x".into())),
            (
                "inner",
                Kind::StructValue(Struct { fields: [("a".into(), detail(Kind::BoolValue(true)))].into() }),
            ),
        ];
        let fields = fields.into_iter().map(|(name, kind)| (name.to_owned(), detail(kind))).collect();
        let expected = json!({
            "whole": 3, "part": 0.5, "below": -1.0, "none": null, "text": "x", "inner": {"a": true},
        });
        assert_eq!(json(Struct { fields }), expected);
    }
}
