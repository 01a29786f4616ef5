//! The body of a proxied HTTP request: its value and its encoding.
//!
//! Refuses: pointers to nothing, forms of values without fields, and a media type that contradicts the encoding.

use serde_json::Value;

use super::{SpecArguments, check_pointer};
use crate::document::escape;
use crate::fault::FaultCode;
use crate::findings::Findings;
use crate::rules::name;
use crate::spec::{BodyFormat, HttpProxy, RequestBody};

pub(super) fn check(http: &HttpProxy, arguments: &SpecArguments<'_>, findings: &mut Findings<'_>) {
    let at = "/runtime/http/body";
    match &http.body {
        Some(RequestBody::Word(pointer)) if pointer.starts_with('/') => {
            check_pointer(pointer, at, Some(arguments), findings);
        }
        Some(RequestBody::Word(word)) if word != "args" => {
            let message = format!("`{}` is not a body", name::escape(word));
            let hint = "write `args`, a pointer such as /body, or a mapping";
            findings.add(FaultCode::BadMapping, at, message, hint);
        }
        Some(RequestBody::Pointers(pointers)) => {
            for (key, pointer) in pointers {
                check_pointer(pointer, &format!("{at}/{}", escape(key)), Some(arguments), findings);
            }
        }
        _ => {}
    }
    match http.body_format {
        BodyFormat::Json if !http.body_styles.is_empty() => {
            let hint = "add `bodyFormat: form` or `bodyFormat: multipart`, or remove the styles";
            let message = "only the fields of a form have styles";
            findings.add(FaultCode::BadMapping, "/runtime/http/bodyStyles", message, hint);
        }
        BodyFormat::Json => {}
        BodyFormat::Form | BodyFormat::Multipart => check_form(http, arguments, findings),
    }
}

fn check_form(http: &HttpProxy, arguments: &SpecArguments<'_>, findings: &mut Findings<'_>) {
    match &http.body {
        None => {
            let hint = "add `body`, or remove `bodyFormat`";
            findings.add(FaultCode::BadMapping, "/runtime/http/bodyFormat", "the request has no body", hint);
        }
        Some(RequestBody::Word(pointer)) if arguments.at(pointer).is_some_and(is_no_object) => {
            let hint = "make it `type: object`; each of its members becomes a field";
            let message = "a form is made from an object, and this argument is not one";
            findings.add(FaultCode::BadMapping, "/runtime/http/body", message, hint);
        }
        Some(_) => {}
    }
    for key in http.headers.keys().filter(|key| key.eq_ignore_ascii_case("content-type")) {
        let path = format!("/runtime/http/headers/{}", escape(key));
        let hint = "remove it; `bodyFormat` decides the media type";
        findings.add(FaultCode::BadHeader, &path, "a form has a media type of its own", hint);
    }
}

/// Whether no value of this schema can be an object, according to its own `type`.
fn is_no_object(schema: &Value) -> bool {
    match schema.get("type") {
        Some(Value::Array(kinds)) => kinds.iter().all(|kind| kind != "object"),
        Some(kind) => kind != "object",
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use crate::{Source, check};

    /// Returns faults and warnings of a tool whose request has these keys, as `code path`.
    fn found(http: &str) -> Vec<String> {
        let text = format!(
            "id: sample\nname: Sample\ntype: tool\nversion: 1.0.0\nowner: team\nsummary: A sample.\n\
             mutation: idempotent\nprimitiveSchema:\n  input_schema:\n    type: object\n    properties:\n      \
             id: {{type: string}}\n      body: {{type: object, properties: {{list: {{type: array}}}}}}\n\
             runtime: {{mode: proxy, http: {{url: \"https://api.example.com/\", {http}}}}}\n"
        );
        let report = check(&[Source { path: "demo/sample.yaml".into(), text }]);
        let all = report.faults.iter().chain(&report.warnings);
        all.map(|fault| format!("{} {}", fault.code.as_str(), fault.path)).collect()
    }

    #[test]
    fn a_form_is_made_of_an_object_and_has_its_own_media_type() {
        let table = [
            ("body: args, bodyFormat: form", None),
            ("body: args, bodyFormat: multipart", None),
            ("body: args, bodyFormat: json", None),
            ("body: /body, bodyFormat: form", None),
            ("body: {a: /id}, bodyFormat: form", None),
            ("body: args, bodyFormat: form, bodyStyles: {ids: deepObject, \"tags[]\": form}", None),
            ("body: /id, bodyFormat: form", Some("bad_mapping /runtime/http/body")),
            ("body: /body/list, bodyFormat: form", Some("bad_mapping /runtime/http/body")),
            ("bodyFormat: multipart", Some("bad_mapping /runtime/http/bodyFormat")),
            ("body: args, bodyFormat: xml", Some("bad_value /runtime/http/bodyFormat")),
            ("body: args, bodyStyles: {a: form}", Some("bad_mapping /runtime/http/bodyStyles")),
            (
                "body: args, bodyFormat: form, bodyStyles: {a: spaceDelimited}",
                Some("bad_value /runtime/http/bodyStyles/a"),
            ),
            (
                "body: args, bodyFormat: form, headers: {Content-Type: text/plain}",
                Some("bad_header /runtime/http/headers/Content-Type"),
            ),
        ];
        for (http, expected) in table {
            assert_eq!(found(http), Vec::from_iter(expected), "{http}");
        }
    }
}
