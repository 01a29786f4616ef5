//! The structural check: keys, types and closed sets, by the published JSON Schema.
//!
//! Owns the translation of schema violations into faults. Keeps true: every structural fault of a file is found in
//! one pass, and a file without one can be decoded.

use jsonschema::ValidationError;
use jsonschema::error::ValidationErrorKind;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::document::escape;
use crate::fault::FaultCode;
use crate::findings::Findings;
use crate::published::FileFormat;
use crate::suggestion::nearest;

/// Maximum number of schema violations read from one file, as many as its findings may have.
const MAX_ERRORS: usize = 200;

/// Adds the structural faults of `value` and, if there are none, returns it typed.
pub(crate) fn decode<T: DeserializeOwned>(
    value: &Value,
    format: Option<&'static FileFormat>,
    findings: &mut Findings<'_>,
) -> Option<T> {
    let Some(format) = format else {
        findings.add(FaultCode::Syntax, "", "the format's own schema is broken", "report this");
        return None;
    };
    let mut clean = true;
    for error in format.validator.iter_errors(value).take(MAX_ERRORS) {
        clean = false;
        translate(format, &error, findings);
    }
    if !clean {
        return None;
    }
    match serde_json::from_value(value.clone()) {
        Ok(typed) => Some(typed),
        // Only numbers beyond the range of their Rust type fail here.
        Err(error) => {
            let hint = "use a whole number in the documented range";
            findings.add(FaultCode::WrongType, "", error.to_string(), hint);
            None
        }
    }
}

fn translate(format: &FileFormat, error: &ValidationError<'_>, findings: &mut Findings<'_>) {
    let path = error.instance_path().as_str();
    let text = &error.to_string();
    match error.kind() {
        ValidationErrorKind::AdditionalProperties { unexpected } => {
            for key in unexpected {
                let near = nearest(key, format.keys(error.schema_path().as_str()));
                let near = near.map(|near| format!(": did you mean `{near}`?")).unwrap_or_default();
                let message = format!("the key `{key}` is not known here{near}");
                let hint = "remove it or correct its spelling; primitives/schema lists the keys";
                findings.add(FaultCode::UnknownKey, &format!("{path}/{}", escape(key)), message, hint);
            }
        }
        ValidationErrorKind::Required { property } => {
            let key = property.as_str().unwrap_or_default();
            let message = format!("the key `{key}` is missing");
            findings.add(
                FaultCode::MissingKey,
                &format!("{path}/{}", escape(key)),
                message,
                format!("add `{key}`"),
            );
        }
        ValidationErrorKind::Type { .. } => {
            findings.add(FaultCode::WrongType, path, text, "write a value of that type; quote texts");
        }
        ValidationErrorKind::AnyOf { .. } | ValidationErrorKind::OneOfNotValid { .. } => {
            findings.add(FaultCode::WrongType, path, text, "primitives/README.md shows the accepted forms");
        }
        ValidationErrorKind::Enum { options } => {
            let hint = format!("write one of {options}");
            findings.add(FaultCode::BadValue, path, text, hint);
        }
        ValidationErrorKind::Constant { expected_value } => {
            findings.add(FaultCode::BadValue, path, text, format!("write {expected_value}"));
        }
        _ => findings.add(FaultCode::BadValue, path, text, "use a value in the documented range"),
    }
}
