//! Placeholders of prompts and questions of elicitations.
//!
//! An MCP client shows an elicitation as a flat form, so its schema may contain plain fields only (MCP 2025-11-25,
//! "Elicitation", requested schema).

use serde_json::Value;

use super::{name, uri};
use crate::document::escape;
use crate::elicitation::requested_schema;
use crate::fault::FaultCode;
use crate::findings::Findings;
use crate::spec::{FieldType, Kind, Spec};

/// Maximum number of fields that a person fills in.
const MAX_FIELDS: usize = 50;

pub(super) fn check(spec: &Spec, findings: &mut Findings<'_>) {
    match spec.kind {
        Kind::Prompt => check_placeholders(spec, findings),
        Kind::Elicitation => check_elicitation(spec, findings),
        _ => {}
    }
}

fn check_placeholders(spec: &Spec, findings: &mut Findings<'_>) {
    let arguments = spec.schema.arguments.as_deref().unwrap_or_default();
    for (index, message) in spec.schema.messages.iter().flatten().enumerate() {
        let path = format!("/primitiveSchema/messages/{index}/content/text");
        let mut rest = message.content.text.as_deref().unwrap_or_default();
        while let Some((_, tail)) = rest.split_once("{{") {
            let Some((placeholder, after)) = tail.split_once("}}") else {
                let hint = "close the placeholder with }}";
                findings.add(FaultCode::BadPlaceholder, &path, "a {{ without its }}", hint);
                break;
            };
            if !arguments.iter().any(|argument| argument.name == placeholder) {
                let message = format!("no argument fills {{{{{}}}}}", name::escape(placeholder));
                let hint = "declare it in `arguments`, without spaces between the braces";
                findings.add(FaultCode::BadPlaceholder, &path, message, hint);
            }
            rest = after;
        }
    }
    let mut seen = std::collections::HashSet::new();
    for (index, argument) in arguments.iter().enumerate() {
        if !seen.insert(argument.name.as_str()) {
            let path = format!("/primitiveSchema/arguments/{index}/name");
            let message = format!("the argument `{}` is declared twice", name::escape(&argument.name));
            findings.add(FaultCode::DuplicateName, &path, message, "keep one of the two");
        }
    }
}

/// Checks an address that a user may be sent to.
pub(super) fn check_address(url: &str, path: &str, findings: &mut Findings<'_>) {
    let fault = match uri::http_url(url) {
        Err(reason) => reason,
        Ok(parsed) if !parsed.is_https => "the page is plain http".into(),
        Ok(_) => return,
    };
    let hint = "write https://host/path with a plain host and no credentials";
    findings.add(FaultCode::BadUrl, path, fault, hint);
}

fn check_elicitation(spec: &Spec, findings: &mut Findings<'_>) {
    check_fields(spec, findings);
    if let Some(page) = &spec.schema.url {
        // Users exchange data with it directly, so the connection must be encrypted.
        check_address(page, "/primitiveSchema/url", findings);
    }
    let Some(schema) = &spec.schema.requested_schema else { return };
    let at = "/primitiveSchema/requested_schema";
    let fault = |path: &str, message: String, findings: &mut Findings<'_>| {
        let hint = "use an object of string, number, integer and boolean properties without nesting";
        findings.add(FaultCode::BadElicitation, path, message, hint);
    };
    if schema.get("type").and_then(Value::as_str) != Some("object") {
        fault(at, "the answer's schema is not an object".into(), findings);
        return;
    }
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else {
        fault(at, "the answer's schema has no properties".into(), findings);
        return;
    };
    if properties.len() > MAX_FIELDS {
        fault(at, format!("{} fields, at most {MAX_FIELDS} are allowed", properties.len()), findings);
    }
    for (key, property) in properties {
        let path = format!("{at}/properties/{}", escape(key));
        if !is_plain_field(property) {
            fault(&path, format!("`{}` is not a plain field", name::escape(key)), findings);
        }
    }
    for required in schema.get("required").and_then(Value::as_array).into_iter().flatten() {
        if required.as_str().is_none_or(|key| !properties.contains_key(key)) {
            fault(&format!("{at}/required"), "`required` names no property".into(), findings);
        }
    }
}

/// Whether a field is a single value, or an array of choices (multi-select, MCP 2025-11-25).
fn is_plain_field(property: &Value) -> bool {
    match property.get("type").and_then(Value::as_str) {
        Some("string" | "number" | "integer" | "boolean") => true,
        Some("array") => property
            .get("items")
            .is_some_and(|items| items.get("enum").is_some() || items.get("anyOf").is_some()),
        _ => false,
    }
}

fn check_fields(spec: &Spec, findings: &mut Findings<'_>) {
    let fields = spec.schema.fields.as_deref().unwrap_or_default();
    let mut seen = std::collections::HashSet::new();
    for (index, field) in fields.iter().enumerate() {
        let path = format!("/primitiveSchema/fields/{index}");
        let mut fault = |key: &str, message: String, hint: &str| {
            findings.add(FaultCode::BadElicitation, &format!("{path}/{key}"), message, hint);
        };
        if !name::is_name(&field.name) {
            fault(
                "name",
                format!("`{}` is not a field name", name::escape(&field.name)),
                "use A-Z a-z 0-9 _ . -",
            );
        }
        if !seen.insert(field.name.as_str()) {
            fault("name", format!("the field `{}` occurs twice", name::escape(&field.name)), "keep one");
        }
        if !field.choices.is_empty() && field.kind != FieldType::String {
            fault("enum", "only texts have choices".into(), "write type: string, or remove `enum`");
        }
        let Some(default) = &field.default else { continue };
        let property = requested_schema(spec)
            .pointer(&format!("/properties/{}", escape(&field.name)))
            .cloned()
            .unwrap_or_default();
        let fits =
            jsonschema::options().offline().build(&property).is_ok_and(|field| field.is_valid(default));
        if !fits {
            let hint = "correct the default";
            findings.add(FaultCode::BadDefault, &format!("{path}/default"), "the field refuses it", hint);
        }
    }
    if fields.len() > MAX_FIELDS || (spec.schema.fields.is_some() && fields.is_empty()) {
        let message = format!("{} fields, 1 to {MAX_FIELDS} are allowed", fields.len());
        findings.add(FaultCode::BadElicitation, "/primitiveSchema/fields", message, "change their number");
    }
}
